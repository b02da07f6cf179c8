/* SPDX-License-Identifier: Apache-2.0 */
/* The noise on images of I2V, and their latents: see images.h. */
#include "images.h"
#include <math.h>
#include <stdlib.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "latents.h"

enum { FRAME = 3 /* values of a pixel */ };

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
        rc = video_coder_take(k, 0, l.z) || video_latents_draw(&l, m->seed, k->sizes.scaling, name);
    if (!rc)
        video_latents_to(&l, image);
    free(l.z);
    return rc ? -1 : 0;
}
