/* SPDX-License-Identifier: Apache-2.0 */
/* What is trained on: clips of a video, tensors of a file, or noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/clip.h"
#include "../common/memory.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "run.h"

int64_t vae_data_frame(const struct vae_data *d)
{
    return d->padded_height * d->padded_width * 3;
}

const float *vae_data_row(const struct vae_data *d, int64_t row, int64_t start)
{
    return d->x + (row * d->frames + start) * vae_data_frame(d);
}

static int64_t whole_cells(int64_t size, const struct vae_options *o)
{
    int64_t factor = vae_factor(&o->config);

    return (size + factor - 1) / factor * factor;
}

static int allocate(struct vae_data *d, const struct vae_options *o)
{
    d->padded_height = whole_cells(d->height, o);
    d->padded_width = whole_cells(d->width, o);
    d->x = MEMORY_FOR(sizeof *d->x, d->rows, d->frames, vae_data_frame(d));
    return d->x ? 0 : say_fail("no memory for %lld clips", (long long)d->rows);
}

/* Says that sizes were filled up to whole cells, if they were. */
static void say_padded(struct vae_data *d)
{
    size_t at = strlen(d->title);

    if (d->padded_height != d->height || d->padded_width != d->width)
        snprintf(d->title + at, sizeof d->title - at, ", filled up to %lld x %lld",
                 (long long)d->padded_width, (long long)d->padded_height);
}

/* ---- videos -------------------------------------------------------------------------------- */

/* Bytes to [-1, 1]; what is filled up repeats the last row and column. */
static void to_values(struct vae_data *d, const uint8_t *rgb)
{
    float *to = d->x;

    for (int64_t f = 0; f < d->rows * d->frames; f++)
        for (int64_t y = 0; y < d->padded_height; y++)
            for (int64_t x = 0; x < d->padded_width; x++) {
                int64_t row = y < d->height ? y : d->height - 1;
                int64_t column = x < d->width ? x : d->width - 1;
                const uint8_t *p = rgb + ((f * d->height + row) * d->width + column) * 3;
                for (int channel = 0; channel < 3; channel++)
                    *to++ = (float)p[channel] / 127.5f - 1.f;
            }
}

static int open_video(struct vae_data *d, const struct vae_options *o)
{
    const char *path = o->video ? o->video : clip_shipped();
    struct clip c = {.stride = o->stride ? o->stride : 1};

    d->rows = o->clips ? o->clips : 1;
    d->frames = o->frames;
    c.width = d->width = o->width ? o->width : 64;
    c.height = d->height = o->height ? o->height : 40;
    c.frames = d->rows * d->frames;
    int rc = path ? clip_read(&c, path) : -1;
    if (!rc)
        rc = allocate(d, o);
    if (!rc)
        to_values(d, c.rgb);
    free(c.rgb);
    snprintf(d->title, sizeof d->title, "clip: %s, %lld x %lld frames of %lld x %lld", path,
             (long long)d->rows, (long long)d->frames, (long long)d->width, (long long)d->height);
    return rc;
}

/* ---- tensors ------------------------------------------------------------------------------- */

/* The tensor of a name with the shape that is wanted; 0 there fits any and is filled in. */
static float *read_tensor(ckpt_file *f, const char *path, const char *name, int64_t shape[5])
{
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    int i = ckpt_file_find(f, name);
    bool fits = i >= 0 && !ckpt_file_entry(f, i, &e) && e.ndim == 5;

    for (int axis = 0; fits && axis < 5; axis++) {
        fits = shape[axis] ? shape[axis] == e.shape[axis] : e.shape[axis] > 0;
        shape[axis] = e.shape[axis];
    }
    if (!fits) {
        say_fail("%s: has no tensor \"%s\" of five axes and a shape that goes with the model", path,
                 name);
        return NULL;
    }
    float *x = malloc((size_t)e.numel * sizeof *x);
    if (!x || ckpt_file_read_f32(f, i, x, e.numel)) {
        say_fail("%s: %s", path, x ? ckpt_error(NULL) : "no memory");
        free(x);
        return NULL;
    }
    return x;
}

static int read_tensors(struct vae_data *d, struct vae_options *o, ckpt_file *f)
{
    int64_t x[] = {0, 0, 0, 0, 3}, factor = vae_factor(&o->config);

    d->x = read_tensor(f, o->tensors, "x", x);
    if (!d->x)
        return -1;
    d->rows = x[0];
    d->frames = x[1];
    d->height = d->padded_height = x[2];
    d->width = d->padded_width = x[3];
    if (d->height % factor || d->width % factor)
        return say_fail("%s: frames of %lld x %lld are no whole cells of %lld", o->tensors,
                        (long long)d->width, (long long)d->height, (long long)factor);
    int64_t z[] = {d->rows, d->frames, d->height / factor, d->width / factor, o->config.latent};
    d->noise_2d = read_tensor(f, o->tensors, "noise_2d", z);
    z[1] = vae_latent_frames(d->frames, 0);
    d->noise = d->noise_2d ? read_tensor(f, o->tensors, "noise", z) : NULL;
    return d->noise ? 0 : -1;
}

static int open_tensors(struct vae_data *d, struct vae_options *o)
{
    ckpt_file *f;

    if (ckpt_file_open(&f, o->tensors))
        return say_fail("%s", ckpt_error(NULL));
    int rc = read_tensors(d, o, f);
    ckpt_file_close(f);
    o->frames = o->length[0] = d->frames;
    o->n_lengths = 1;
    snprintf(d->title, sizeof d->title, "tensors: %s, %lld x %lld frames of %lld x %lld",
             o->tensors, (long long)d->rows, (long long)d->frames, (long long)d->width,
             (long long)d->height);
    return rc;
}

/* ---- noise --------------------------------------------------------------------------------- */

static int open_random(struct vae_data *d, const struct vae_options *o)
{
    d->rows = o->train.samples;
    d->frames = o->frames;
    d->height = o->height;
    d->width = o->width;
    if (allocate(d, o))
        return -1;
    ckpt_fill_uniform((uint64_t)o->library.seed, 0, VAE_STREAM_DATA, d->x,
                      d->rows * d->frames * vae_data_frame(d));
    snprintf(d->title, sizeof d->title, "random clips %s, %lld samples", o->random,
             (long long)d->rows);
    return 0;
}

/* ---- all of them --------------------------------------------------------------------------- */

int vae_data_open(struct vae_data *d, struct vae_options *o)
{
    *d = (struct vae_data){0};
    int rc = o->tensors ? open_tensors(d, o) : o->random ? open_random(d, o) : open_video(d, o);

    say_padded(d);
    return rc;
}

void vae_data_close(struct vae_data *d)
{
    free(d->x);
    free(d->noise_2d);
    free(d->noise);
    *d = (struct vae_data){0};
}
