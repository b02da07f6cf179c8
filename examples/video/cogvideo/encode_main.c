/* SPDX-License-Identifier: Apache-2.0 */
/* cogvideo-encode: from videos to files of latents, a cache for training. */
#include "../../common/say.h"
#include "../programs.h"
#include "vae.h"

const char say_program[] = "cogvideo-encode";

static const char usage[] =
    "Usage: cogvideo-encode [OPTION]... --model DIR --video FILE --output DIR\n"
    "       cogvideo-encode [OPTION]... --model DIR --list FILE --output DIR\n\n"
    "Encodes videos with the video autoencoder of CogVideoX inside a memory budget.  VIDEO.mp4\n"
    "becomes DIR/VIDEO.safetensors with \"encoded_video\" [16, F, h, w]: a sample of the "
    "posterior,\n"
    "multiplied by the scaling factor, as in the caches of CogVideoX trainers.\n"
    "\nExamples:\n  cogvideo-encode --model CogVideoX-5b --video clip.mp4 --output latents\n"
    "  cogvideo-encode --model CogVideoX-5b --list videos.txt --vram 8G --output latents\n";

int main(int argc, char **argv)
{
    return video_encode(&cogvideo_autoencoder, usage, argc, argv);
}
