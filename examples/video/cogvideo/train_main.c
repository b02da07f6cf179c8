/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-train: see ../programs.h. */
#include "../../common/say.h"
#include "../programs.h"
#include "family.h"

const char say_program[] = "cogvideo-train";

int main(int argc, char **argv)
{
    return video_train(&cogvideo_model, argc, argv);
}
