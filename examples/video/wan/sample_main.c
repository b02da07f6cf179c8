/* SPDX-License-Identifier: Apache-2.0 */
/* wan-sample: see ../programs.h. */
#include "../../common/say.h"
#include "../programs.h"
#include "family.h"

const char say_program[] = "wan-sample";

int main(int argc, char **argv)
{
    return video_sample(&wan_model, argc, argv);
}
