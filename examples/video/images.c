/* SPDX-License-Identifier: Apache-2.0 */
/* Images of I2V, with noise and encoded: see images.h. */
#include "images.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "latents.h"
#include "stages.h"

enum { FRAME = 3 /* values of a pixel */ };

/* ---- opening ------------------------------------------------------------------------------- */

static int open_encoder(struct video_images *m, const struct video_options *o)
{
    char path[4096];

    autoencoder_directory(path, sizeof path, o->model);
    if (!o->vae && !strcmp(path, o->model))
        return say_fail(
            "--images: there is no vae/ in %s to encode pictures; give one by --vae DIR", o->model);
    if (video_coder_configure(&m->encoder, o, false))
        return -1;
    m->encoder.options.library = o->library;
    return 0;
}

int video_images_open(struct video_images *m, const struct video_run *r)
{
    const struct video_options *o = &r->options;
    const struct video_data *d = &r->data;

    if (!o->images)
        return 0;
    m->seed = (uint64_t)o->library.seed;
    m->mean = o->image_noise_mean;
    m->deviation = o->image_noise_std;
    if (video_list_paths(&m->files, o->images))
        return -1;
    if (m->files.n != video_data_lines(d))
        return say_fail("%s: has %lld pictures for %lld clips", o->images, (long long)m->files.n,
                        (long long)video_data_lines(d));
    return open_encoder(m, o) || video_images_join(m, r->context, d->shapes.shape->geometry.height,
                                                   d->shapes.shape->geometry.width)
               ? -1
               : 0;
}

void video_images_close(struct video_images *m)
{
    video_list_free(&m->files);
    if (m->encoder.joined)
        video_coder_close(&m->encoder);
    free(m->rgb);
    free(m->x);
}

int video_images_join(struct video_images *m, ckpt *c, int64_t height, int64_t width)
{
    struct video_coder *k = &m->encoder;
    int64_t factor = k->sizes.factor;

    m->height = height * factor;
    m->width = width * factor;
    m->rgb = MEMORY_FOR(FRAME, m->height, m->width);
    m->x = MEMORY_FOR(sizeof *m->x, m->height, m->width, FRAME);
    k->shown = true;
    return m->rgb && m->x ? video_coder_join(k, c) : say_fail("no memory for a picture");
}

int video_images_compile(struct video_images *m, bool least)
{
    return m->encoder.joined ? video_coder_compile_again(&m->encoder, 1, m->height, m->width, least)
                             : 0;
}

/* ---- encoding ------------------------------------------------------------------------------ */

/* Computed in double: sigma is often far below the resolution of a pixel. */
static void add_noise(struct video_images *m, int64_t sample)
{
    int64_t n = m->height * m->width * FRAME;
    float level;

    ckpt_fill_normal(m->seed, (uint64_t)sample, VIDEO_STREAM_LEVEL, &level, 1);
    ckpt_fill_normal(m->seed, (uint64_t)sample, VIDEO_STREAM_NOISE, m->x, n);
    double sigma = exp(m->mean + m->deviation * (double)level);
    for (int64_t i = 0; i < n; i++)
        m->x[i] = (float)(m->rgb[i] / 127.5 - 1 + sigma * (double)m->x[i]);
}

/* Trainers multiply by the scaling factor, also for 1.5-I2V, whose pipeline divides by it. */
int video_images_encode(struct video_images *m, int64_t sample, float *image)
{
    struct video_coder *k = &m->encoder;
    int64_t factor = k->sizes.factor;
    struct video_latents l = {1, m->height / factor, m->width / factor, 2 * k->sizes.latent, NULL};
    char name[40];

    add_noise(m, sample);
    snprintf(name, sizeof name, "image-%lld", (long long)sample);
    l.z = MEMORY_FOR(sizeof *l.z, l.height * l.width, l.channels);
    int rc = l.z ? video_coder_run(k, m->x) : say_fail("no memory for latents");
    if (!rc)
        rc = video_coder_take(k, 0, l.z) || video_latents_draw(&l, m->seed, &k->sizes, name);
    if (!rc)
        video_latents_to(&l, image);
    free(l.z);
    return rc ? -1 : 0;
}

int video_images_read(struct video_images *m, int64_t line, int64_t sample, float *image)
{
    const struct picture_size size = {m->width, m->height, false};
    const char *path = m->files.video[line];
    struct video v;
    int rc = video_open(&v, path), got = rc ? -1 : video_read(&v, 0, &size, m->rgb);

    video_close(&v);
    if (!rc && !got)
        say_fail("%s: there is no picture in it", path);
    return got > 0 ? video_images_encode(m, sample, image) : -1;
}
