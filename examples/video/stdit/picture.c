/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of clips: one PNG per frame, one strip per clip, and a strip of the data. */
#include <math.h>
#include <stdlib.h>
#include "../../common/directory.h"
#include "../../common/picture.h"
#include "../../common/samples.h"
#include "run.h"

/* The values shown as black and white. */
struct range {
    float low, high;
};

/* Clips are in [-1, 1]; of latents the first channels are shown, mean +- two standard
 * deviations. */
static struct range range_of(const struct video_data *d)
{
    double sum = 0, squares = 0;
    int64_t n = video_data_z(d, d->shapes.shape);

    if (d->pixels)
        return (struct range){-1, 1};
    for (int64_t i = 0; i < n; i++) {
        sum += d->z[i];
        squares += (double)d->z[i] * d->z[i];
    }
    double mean = sum / (double)n,
           spread = 2 * sqrt(fmax(squares / (double)n - mean * mean, 1e-12));
    return (struct range){(float)(mean - spread), (float)(mean + spread)};
}

/* [C, T, H, W] -> [T][H][W][3]; with fewer than three channels the first is used for all
 * colours. */
static void to_rgb(uint8_t *rgb, const float *z, const struct video_data *d, struct range range)
{
    const struct video_geometry *g = &d->shapes.shape->geometry;
    int64_t volume = g->frames * g->height * g->width;

    for (int64_t p = 0; p < volume; p++)
        for (int64_t channel = 0; channel < 3; channel++) {
            float v = z[(d->channels < 3 ? 0 : channel) * volume + p];
            float share = (v - range.low) / (range.high - range.low);
            rgb[p * 3 + channel] = (uint8_t)lrintf(255.f * fminf(fmaxf(share, 0.f), 1.f));
        }
}

/* Small frames are magnified. */
static int zoom_to(int64_t pixels, int64_t width)
{
    return pixels > 2 * width ? (int)(pixels / width) : 1;
}

static int write_strip(struct video_run *r, const struct sample_name *name, const uint8_t *rgb)
{
    const struct video_geometry *g = &r->data.shapes.shape->geometry;
    char path[4096];

    snprintf(path, sizeof path, "%s/%s.png", r->options.out, name->file);
    if (picture_write(path, g->frames, g->height, g->width, rgb,
                      zoom_to(1920, g->frames * g->width)))
        return -1;
    log_picture(&r->log, name->tag, path);
    return 0;
}

static int write_frames(const struct video_run *r, const uint8_t *rgb)
{
    const struct video_geometry *g = &r->data.shapes.shape->geometry;
    char path[4096];

    for (int64_t frame = 0; frame < g->frames; frame++) {
        snprintf(path, sizeof path, "%s/frame-%03d.png", r->options.out, (int)frame);
        if (picture_write(path, 1, g->height, g->width, rgb + frame * g->height * g->width * 3,
                          zoom_to(240, g->width)))
            return -1;
    }
    return 0;
}

/* Writes the strip of the data's first clip. */
static int write_data(struct video_run *r, uint8_t *rgb, struct range range)
{
    to_rgb(rgb, r->data.z, &r->data, range);
    return write_strip(r, &(struct sample_name){"clip", "clip"}, rgb);
}

static int write_clips(struct video_run *r, const float *z, int64_t n, int64_t step, uint8_t *rgb)
{
    struct range range = range_of(&r->data);
    int64_t row = video_data_z(&r->data, r->data.shapes.shape);

    if (!step && write_data(r, rgb, range))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        struct sample_name name = sample_name(step, i);
        to_rgb(rgb, z + i * row, &r->data, range);
        if (write_strip(r, &name, rgb) || (i == 0 && !step && write_frames(r, rgb)))
            return -1;
    }
    return 0;
}

int stdit_write_pictures(struct video_run *r, const float *z, int64_t n, int64_t step)
{
    const struct video_geometry *g = &r->data.shapes.shape->geometry;
    const char *out = r->options.out;
    uint8_t *rgb;

    if (directory_make(out))
        return -1;
    rgb = malloc((size_t)(g->frames * g->height * g->width * 3));
    if (!rgb)
        return say_fail("no memory for pictures");
    int rc = write_clips(r, z, n, step, rgb);
    free(rgb);
    if (!rc && step)
        say_print("step %lld: sampled: %s/%s.png\n", (long long)step, out,
                  sample_name(step, 0).file);
    else if (!rc)
        say_print(
            "sampled: %s/sample.png (the data: %s/clip.png), its frames: %s/frame-000.png ...\n",
            out, out, out);
    return rc;
}
