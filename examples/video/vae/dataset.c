/* SPDX-License-Identifier: Apache-2.0 */
/* Training data: clips of a video, tensors of a file, or noise. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../../common/clip.h"
#include "../../common/memory.h"
#include "../../common/tensors.h"
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "run.h"

int64_t vae_data_frame(const struct vae_data *d)
{
    return d->padded_height * d->padded_width * 3;
}

/* Bytes to [-1, 1]; padding repeats the last row and column. */
static void to_values(const struct vae_data *d, const uint8_t *rgb, float *to)
{
    for (int64_t y = 0; y < d->padded_height; y++)
        for (int64_t x = 0; x < d->padded_width; x++) {
            int64_t row = y < d->height ? y : d->height - 1;
            int64_t column = x < d->width ? x : d->width - 1;
            const uint8_t *p = rgb + (row * d->width + column) * 3;
            for (int channel = 0; channel < 3; channel++)
                *to++ = (float)p[channel] / 127.5f - 1.f;
        }
}

void vae_data_values(const struct vae_data *d, const uint8_t *rgb, int64_t frames, float *to)
{
    for (int64_t f = 0; f < frames; f++)
        to_values(d, rgb + f * d->height * d->width * 3, to + f * vae_data_frame(d));
}

void vae_data_take(const struct vae_data *d, int64_t row, int64_t start, int64_t frames, float *to)
{
    int64_t first = row * d->frames + start, frame = vae_data_frame(d);

    if (d->x)
        memcpy(to, d->x + first * frame, (size_t)(frames * frame) * sizeof *to);
    if (d->rgb)
        vae_data_values(d, d->rgb + first * d->height * d->width * 3, frames, to);
}

static int64_t whole_cells(int64_t size, const struct vae_options *o)
{
    int64_t factor = vae_factor(&o->config);

    return (size + factor - 1) / factor * factor;
}

static void pad(struct vae_data *d, const struct vae_options *o)
{
    d->padded_height = whole_cells(d->height, o);
    d->padded_width = whole_cells(d->width, o);
}

static int no_memory(const struct vae_data *d)
{
    return say_fail("no memory for %lld clips", (long long)d->rows);
}

/* Adds the padded sizes, if they differ, to the title. */
static void say_padded(struct vae_data *d)
{
    size_t at = strlen(d->title);

    if (d->padded_height != d->height || d->padded_width != d->width)
        snprintf(d->title + at, sizeof d->title - at, ", padded to %lld x %lld",
                 (long long)d->padded_width, (long long)d->padded_height);
}

/* ---- videos -------------------------------------------------------------------------------- */

/* Consecutive clips. */
static int read_clips(struct vae_data *d, struct video *v, int64_t stride)
{
    struct clip c = {.size = {d->width, d->height, true}, .frames = d->frames, .stride = stride};
    int rc = 0;

    d->rgb = MEMORY_FOR(3, d->rows, d->frames, d->height, d->width);
    if (!d->rgb)
        return no_memory(d);
    for (int64_t i = 0; i < d->rows && !rc; i++) {
        c.skip = i * c.frames * stride;
        rc = clip_take(&c, v, d->rgb + i * c.frames * d->height * d->width * 3);
    }
    return rc;
}

static void set_size(struct vae_data *d, const struct vae_options *o)
{
    d->frames = o->frames;
    d->width = o->width ? o->width : 64;
    d->height = o->height ? o->height : 40;
    pad(d, o);
}

static int open_video(struct vae_data *d, const struct vae_options *o)
{
    const char *path = o->video ? o->video : clip_shipped();
    struct video v;

    d->rows = o->clips ? o->clips : 1;
    set_size(d, o);
    if (!path)
        return -1;
    int rc = video_open(&v, path) || read_clips(d, &v, o->stride ? o->stride : 1);
    video_close(&v);
    snprintf(d->title, sizeof d->title, "clip: %s, %lld x %lld frames of %lld x %lld", path,
             (long long)d->rows, (long long)d->frames, (long long)d->width, (long long)d->height);
    return rc ? -1 : 0;
}

/* Videos of a list are used as whole files: a clip starts anywhere in its file, which must have
 * enough frames. */
static int check_lengths(const struct vae_data *d, const struct vae_options *o)
{
    int64_t needed = (d->frames - 1) * d->videos.stride + 1, most = 0;

    for (int64_t row = 0; row < d->rows; row++)
        most = d->lengths[row] > most ? d->lengths[row] : most;
    return most >= needed ? 0
                          : say_fail("%s: no video has the %lld frames that --frames (--lengths) "
                                     "and --stride ask for",
                                     o->video_dir, (long long)needed);
}

static int open_videos(struct vae_data *d, const struct vae_options *o)
{
    struct videos *v = &d->videos;

    set_size(d, o);
    *v = (struct videos){.frames = d->frames,
                         .width = d->width,
                         .height = d->height,
                         .stride = o->stride ? o->stride : 1};
    if (videos_any(v, o->video_dir, o->clips))
        return -1;
    d->rows = v->rows;
    d->lengths = MEMORY_FOR(sizeof *d->lengths, d->rows);
    if (!d->lengths)
        return no_memory(d);
    for (int64_t row = 0; row < d->rows; row++)
        d->lengths[row] = videos_frames(v, row);
    snprintf(d->title, sizeof d->title, "videos: %s, %lld x %lld frames of %lld x %lld",
             o->video_dir, (long long)d->rows, (long long)d->frames, (long long)d->width,
             (long long)d->height);
    return check_lengths(d, o);
}

/* ---- tensors ------------------------------------------------------------------------------- */

static int read_tensors(struct vae_data *d, struct vae_options *o, ckpt_file *f)
{
    int64_t x[] = {-1, -1, -1, -1, 3}, factor = vae_factor(&o->config);

    d->x = tensor_read(f, o->tensors, "x", 5, x);
    if (!d->x)
        return -1;
    d->rows = x[0];
    d->frames = x[1];
    d->height = d->padded_height = x[2];
    d->width = d->padded_width = x[3];
    if (d->height % factor || d->width % factor)
        return say_fail("%s: frames of %lld x %lld: width and height must be multiples of %lld",
                        o->tensors, (long long)d->width, (long long)d->height, (long long)factor);
    int64_t z[] = {d->rows, d->frames, d->height / factor, d->width / factor, o->config.latent};
    d->noise_2d = tensor_read(f, o->tensors, "noise_2d", 5, z);
    z[1] = vae_latent_frames(d->frames, 0);
    d->noise = d->noise_2d ? tensor_read(f, o->tensors, "noise", 5, z) : NULL;
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
    pad(d, o);
    d->x = MEMORY_FOR(sizeof *d->x, d->rows, d->frames, vae_data_frame(d));
    if (!d->x)
        return no_memory(d);
    ckpt_fill_uniform((uint64_t)o->library.seed, 0, VAE_STREAM_DATA, d->x,
                      d->rows * d->frames * vae_data_frame(d));
    snprintf(d->title, sizeof d->title, "random clips %s, %lld samples", o->random,
             (long long)d->rows);
    return 0;
}

/* ---- all kinds of data --------------------------------------------------------------------- */

int vae_data_open(struct vae_data *d, struct vae_options *o)
{
    int rc;

    *d = (struct vae_data){0};
    if (o->tensors)
        rc = open_tensors(d, o);
    else if (o->random)
        rc = open_random(d, o);
    else
        rc = o->video_dir ? open_videos(d, o) : open_video(d, o);
    say_padded(d);
    return rc;
}

void vae_data_close(struct vae_data *d)
{
    videos_close(&d->videos);
    free(d->lengths);
    free(d->rgb);
    free(d->x);
    free(d->noise_2d);
    free(d->noise);
    *d = (struct vae_data){0};
}
