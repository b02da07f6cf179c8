/* SPDX-License-Identifier: Apache-2.0 */
/* A clip from whatever file there is. */
#include <unistd.h>
#include "clip.h"
#include "say.h"

#ifndef CLIP_DIR
#define CLIP_DIR "examples/data"
#endif

const char *clip_shipped(void)
{
    static const char *const places[] = {
#ifdef HAVE_FFMPEG
        "examples/data/bunny.mp4", CLIP_DIR "/bunny.mp4",
#endif
        "examples/data/bunny.rgb", CLIP_DIR "/bunny.rgb"};
    size_t n = sizeof places / sizeof *places;

    for (size_t i = 0; i < n; i++)
        if (!access(places[i], R_OK))
            return places[i];
    say_note(
        "the clip that comes along is neither in ./examples/data nor in %s: run \"make install\" "
        "or start in the source tree, or name a clip with --video FILE",
        CLIP_DIR);
    return NULL;
}

int clip_read(struct clip *c, const char *path)
{
    int raw = clip_is_raw(path);

    if (raw < 0)
        return -1;
    return raw ? clip_read_raw(c, path) : clip_decode(c, path);
}
