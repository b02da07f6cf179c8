/* SPDX-License-Identifier: Apache-2.0 */
/* What sampling gives where there is an autoencoder: videos, and pictures of their frames. */
#include <stdlib.h>
#include <string.h>
#include "../common/sink.h"
#include "../common/picture.h"
#include "run.h"

enum { STRIP = 6 /* frames of a strip */ };

static int put_all(struct sink *s, const char *path, const uint8_t *rgb)
{
    int rc = sink_open(s, path);

    for (int64_t f = 0; f < s->frames && !rc; f++)
        rc = sink_put(s, rgb + f * s->width * s->height * 3);
    if (!rc)
        rc = sink_finish(s);
    sink_close(s);
    return rc;
}

/* Video files have even sizes and want FFmpeg; a raw clip holds anything. */
static const char *ending(const struct stdit_clips *c)
{
#ifdef HAVE_FFMPEG
    return c->width % 2 || c->height % 2 ? ".rgb" : ".mp4";
#else
    (void)c;
    return ".rgb";
#endif
}

static int write_movie(const struct stdit_run *r, const char *name, const uint8_t *rgb, bool frames)
{
    const struct stdit_clips *c = &r->data.shape->clips;
    char path[4096];
    float fps = r->data.fps[0];
    struct sink s = {.width = c->width,
                     .height = c->height,
                     .frames = c->frames,
                     .fps = fps >= 1 && fps < 120 ? fps : 24};

    snprintf(path, sizeof path, "%s/%s%s", r->options.out, name, ending(c));
    int rc = put_all(&s, path, rgb);
    if (rc || !frames)
        return rc;
    snprintf(path, sizeof path, "%s/%s", r->options.out, name);
    return put_all(&s, path, rgb);
}

/* Frames from the first to the last, side by side. */
static int write_strip(struct stdit_run *r, const struct stdit_name *name, const uint8_t *rgb)
{
    const struct stdit_clips *c = &r->data.shape->clips;
    int64_t n = c->frames < STRIP ? c->frames : STRIP, frame = c->width * c->height * 3;
    uint8_t *some = malloc((size_t)(n * frame));
    char path[4096];

    if (!some)
        return say_fail("no memory for pictures");
    for (int64_t i = 0; i < n; i++)
        memcpy(some + i * frame, rgb + (n > 1 ? i * (c->frames - 1) / (n - 1) : 0) * frame,
               (size_t)frame);
    snprintf(path, sizeof path, "%s/%s.png", r->options.out, name->file);
    int rc = picture_write(path, n, c->height, c->width, some, c->width * n < 480 ? 2 : 1);
    free(some);
    if (!rc)
        log_picture(&r->log, name->tag, path);
    return rc;
}

/* The first clip of the data, for the eye to compare with. */
static int write_data(struct stdit_run *r)
{
    const struct stdit_clips *shape = &r->data.shape->clips;
    struct clip c = {.size = {shape->width, shape->height, true}, .frames = shape->frames};
    double fps;
    const struct video_file *file = stdit_videos_find(&r->data.videos, 0, 0, &c);
    uint8_t *rgb = clip_read(&c, file, &fps);

    if (!rgb)
        return -1;
    int rc = write_strip(r, &(struct stdit_name){"clip", "clip"}, rgb);
    free(rgb);
    return rc;
}

struct stdit_name stdit_sample_name(int64_t step, int64_t i)
{
    struct stdit_name name;
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

static void report_samples(const struct stdit_run *r, int64_t step)
{
    struct stdit_name name = stdit_sample_name(step, 0);
    const char *out = r->options.out, *end = ending(&r->data.shape->clips);

    if (step)
        say_print("step %lld: sampled: %s/%s%s, some frames side by side: %s/%s.png\n",
                  (long long)step, out, name.file, end, out, name.file);
    else
        say_print("sampled: %s/sample%s, its frames: %s/sample/frame-00000.png ..., some side by "
                  "side: %s/sample.png\n",
                  out, end, out, out);
}

int stdit_write_videos(struct stdit_run *r, const float *z, int64_t n, int64_t step)
{
    const struct stdit_clips *c = &r->data.shape->clips;
    uint8_t *rgb = malloc((size_t)(c->frames * c->width * c->height * 3));
    int64_t row = stdit_data_z(&r->data, r->data.shape);
    int rc = rgb ? 0 : say_fail("no memory for a clip");

    for (int64_t i = 0; i < n && !rc; i++) {
        struct stdit_name name = stdit_sample_name(step, i);
        rc = stdit_vae_decode(&r->data.vae, c, z + i * row, rgb) ||
             write_movie(r, name.file, rgb, !step) || write_strip(r, &name, rgb);
    }
    free(rgb);
    if (!rc && r->options.video_dir && !step)
        rc = write_data(r);
    if (rc)
        return -1;
    report_samples(r, step);
    return 0;
}
