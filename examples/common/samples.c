/* SPDX-License-Identifier: Apache-2.0 */
/* Files of sampled clips: see samples.h. */
#include <stdlib.h>
#include <string.h>
#include "memory.h"
#include "picture.h"
#include "samples.h"
#include "say.h"
#include "sink.h"

enum {
    STRIP = 6,   /* frames in a strip */
    NARROW = 480 /* pixels: strips of narrower clips are drawn twice as large */
};

struct sample_name sample_name(int64_t step, int64_t i)
{
    struct sample_name name;
    char clip[16] = "";

    if (i)
        snprintf(clip, sizeof clip, "-%d", (int)i);
    snprintf(name.tag, sizeof name.tag, "sample%s", clip);
    if (step)
        snprintf(name.file, sizeof name.file, "step-%08lld%s", (long long)step, clip);
    else
        snprintf(name.file, sizeof name.file, "%s", name.tag);
    return name;
}

/* Video files need even sizes and FFmpeg; raw clips have no limits. */
const char *sample_ending(const struct sample_clip *c)
{
#ifdef HAVE_FFMPEG
    return c->width % 2 || c->height % 2 ? ".rgb" : ".mp4";
#else
    (void)c;
    return ".rgb";
#endif
}

int sample_write(const struct sample_clip *c, const char *path)
{
    struct sink s = {.width = c->width, .height = c->height, .frames = c->frames, .fps = c->fps};
    int rc = sink_open(&s, path);

    for (int64_t f = 0; f < s.frames && !rc; f++)
        rc = sink_put(&s, c->rgb + f * s.width * s.height * 3);
    if (!rc)
        rc = sink_finish(&s);
    sink_close(&s);
    return rc;
}

int64_t sample_strip_frames(int64_t frames)
{
    return frames < STRIP ? frames : STRIP;
}

int64_t sample_strip_place(int64_t frames, int64_t i)
{
    int64_t n = sample_strip_frames(frames);

    return n > 1 ? i * (frames - 1) / (n - 1) : 0;
}

int sample_put_strip(const struct sample_clip *some, const char *out,
                     const struct sample_name *name, struct run_log *log)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s.png", out, name->file);
    if (picture_write(path, some->frames, some->height, some->width, some->rgb,
                      some->width * some->frames < NARROW ? 2 : 1))
        return -1;
    log_picture(log, name->tag, path);
    return 0;
}

int sample_write_strip(const struct sample_clip *c, const char *out, const struct sample_name *name,
                       struct run_log *log)
{
    int64_t n = sample_strip_frames(c->frames), frame = c->width * c->height * 3;
    uint8_t *rgb = MEMORY_FOR(1, n, frame);
    struct sample_clip some = *c;

    if (!rgb)
        return say_fail("no memory for pictures");
    for (int64_t i = 0; i < n; i++)
        memcpy(rgb + i * frame, c->rgb + sample_strip_place(c->frames, i) * frame, (size_t)frame);
    some.frames = n;
    some.rgb = rgb;
    int rc = sample_put_strip(&some, out, name, log);
    free(rgb);
    return rc;
}
