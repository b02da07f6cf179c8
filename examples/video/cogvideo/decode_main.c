/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-decode: from a file of latents to a video. */
#include "../../common/say.h"
#include "../programs.h"
#include "vae.h"

const char say_program[] = "cogvideo-decode";

static const char usage[] =
    "Usage: cogvideo-decode [OPTION]... --model DIR --latents FILE --output VIDEO\n\n"
    "Decodes latents with the video autoencoder of CogVideoX inside a memory budget; the\n"
    "budget changes no bit of the result.  VIDEO is a file .mp4, .y4m or of another video format,\n"
    "a file .rgb of raw frames, or a directory for PNG pictures.\n"
    "\nExamples:\n  cogvideo-decode --model CogVideoX-5b --latents latents.safetensors --output "
    "clip.mp4\n"
    "  cogvideo-decode --model CogVideoX-5b --latents latents.safetensors --vram 8G --output "
    "pictures\n";

int main(int argc, char **argv)
{
    return video_decode(&cogvideo_autoencoder, usage, argc, argv);
}
