/* SPDX-License-Identifier: Apache-2.0 */
/* frames FILE: writes all frames of a video as FFmpeg's rawvideo in rgb24, in the size in which
 * they are displayed; on standard error their number, and the one that the file announces.  They
 * are read once more from the last to the first, and must be the same.  Used by test_ffmpeg.sh. */
#include <stdlib.h>
#include <string.h>
#include "../../examples/common/say.h"
#include "../../examples/common/video.h"

const char say_program[] = "frames";

struct frames {
    struct picture_size size;
    size_t bytes; /* of a frame */
    int64_t n;
    uint8_t *rgb, *again; /* all of them; one */
};

static int read_all(struct frames *f, struct video *v)
{
    f->size = (struct picture_size){v->width, v->height, false};
    f->bytes = (size_t)(v->width * v->height * 3);
    f->n = video_frames(v);
    fprintf(stderr, "%lld x %lld, %lld frames, %lld announced\n", (long long)v->width,
            (long long)v->height, (long long)f->n, (long long)v->announced);
    if (f->n <= 0)
        return -1;
    f->rgb = malloc(f->bytes * (size_t)f->n);
    f->again = malloc(f->bytes);
    for (int64_t i = 0; i < f->n && f->rgb; i++)
        if (video_read(v, i, &f->size, f->rgb + (size_t)i * f->bytes) != 1)
            return -1;
    return f->rgb && f->again ? 0 : -1;
}

static int read_again(const struct frames *f, struct video *v)
{
    for (int64_t i = f->n - 1; i >= 0; i--) {
        if (video_read(v, i, &f->size, f->again) != 1)
            return -1;
        if (memcmp(f->again, f->rgb + (size_t)i * f->bytes, f->bytes) != 0)
            return say_fail("frame %lld depends on what was read before", (long long)i);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct frames f = {.n = 0};
    struct video v, again;

    if (argc != 2)
        return say_fail("frames FILE"), 1;
    int rc = video_open(&v, argv[1]) || read_all(&f, &v);
    video_close(&v);
    if (!rc) {
        rc = video_open(&again, argv[1]) || read_again(&f, &again);
        video_close(&again);
    }
    if (!rc && fwrite(f.rgb, f.bytes, (size_t)f.n, stdout) != (size_t)f.n)
        rc = -1;
    free(f.rgb);
    free(f.again);
    return rc ? 1 : 0;
}
