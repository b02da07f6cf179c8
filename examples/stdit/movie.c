/* SPDX-License-Identifier: Apache-2.0 */
/* What sampling gives where there is an autoencoder: videos, and pictures of their frames. */
#include <stdlib.h>
#include "../common/samples.h"
#include "run.h"

static struct sample_clip clip_of(const struct stdit_run *r, const uint8_t *rgb)
{
    const struct stdit_clips *c = &r->data.shape->clips;
    float fps = r->data.fps[0];

    return (struct sample_clip){c->frames, c->height, c->width, fps >= 1 && fps < 120 ? fps : 24,
                                rgb};
}

static int write_movie(const struct stdit_run *r, const char *name, const struct sample_clip *c,
                       bool frames)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s%s", r->options.out, name, sample_ending(c));
    int rc = sample_write(c, path);
    if (rc || !frames)
        return rc;
    snprintf(path, sizeof path, "%s/%s", r->options.out, name);
    return sample_write(c, path);
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
    struct sample_clip clip = clip_of(r, rgb);
    int rc =
        sample_write_strip(&clip, r->options.out, &(struct sample_name){"clip", "clip"}, &r->log);
    free(rgb);
    return rc;
}

static void report_samples(const struct stdit_run *r, int64_t step)
{
    struct sample_name name = sample_name(step, 0);
    struct sample_clip c = clip_of(r, NULL);
    const char *out = r->options.out, *end = sample_ending(&c);

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
        struct sample_name name = sample_name(step, i);
        struct sample_clip clip = clip_of(r, rgb);
        rc = stdit_vae_decode(&r->data.vae, c, z + i * row, rgb) ||
             write_movie(r, name.file, &clip, !step) ||
             sample_write_strip(&clip, r->options.out, &name, &r->log);
    }
    free(rgb);
    if (!rc && r->options.video_dir && !step)
        rc = write_data(r);
    if (rc)
        return -1;
    report_samples(r, step);
    return 0;
}
