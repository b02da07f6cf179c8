/* SPDX-License-Identifier: Apache-2.0 */
/* wan-train: see ../programs.h. */
#include "../../common/say.h"
#include "../programs.h"
#include "family.h"

const char say_program[] = "wan-train";

int main(int argc, char **argv)
{
    return video_train(&wan_model, argc, argv);
}
