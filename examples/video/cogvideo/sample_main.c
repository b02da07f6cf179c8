/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-sample: see ../programs.h. */
#include "../../common/say.h"
#include "../programs.h"
#include "family.h"

const char say_program[] = "cogvideo-sample";

int main(int argc, char **argv)
{
    return video_sample(&cogvideo_model, argc, argv);
}
