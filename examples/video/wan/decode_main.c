/* SPDX-License-Identifier: Apache-2.0 */
/* wan-decode: from a file of latents to a video. */
#include "../../common/say.h"
#include "../programs.h"
#include "vae.h"

const char say_program[] = "wan-decode";

static const char usage[] =
    "Usage: wan-decode [OPTION]... --model DIR --latents FILE --output VIDEO\n\n"
    "Decodes latents with the video autoencoder of Wan 2.1 or 2.2 inside a memory budget; the\n"
    "budget changes no bit of the result.  VIDEO is a file .mp4, .y4m or of another video format,\n"
    "a file .rgb of raw frames, or a directory for PNG pictures.\n"
    "\nExamples:\n  wan-decode --model Wan2.2-TI2V-5B-Diffusers --latents latents.safetensors "
    "--output clip.mp4\n"
    "  wan-decode --model Wan2.2-TI2V-5B-Diffusers --clip 121x704x1280 --vram 12G --plan-only\n";

int main(int argc, char **argv)
{
    return video_decode(&wan_autoencoder, usage, argc, argv);
}
