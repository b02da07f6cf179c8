/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling of latents from moments: see vae_latents.h. */
#include <math.h>
#include <stdlib.h>
#include "../common/memory.h"
#include "../common/say.h"
#include "ckpt_tools.h"
#include "latents.h"

/* The noise of a clip depends only on the seed and the name of its file, and on no other clip. */
static uint64_t step_of(const char *name)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * UINT64_C(1099511628211);
    return h >> 12;
}

int video_latents_draw(struct video_latents *moments, uint64_t seed, double scaling,
                       const char *name)
{
    int64_t places = moments->frames * moments->height * moments->width;
    int64_t channels = moments->channels / 2;
    float *noise = MEMORY_FOR(sizeof *noise, places, channels);

    if (!noise)
        return say_fail("no memory for noise");
    ckpt_fill_normal(seed, step_of(name), 0, noise, places * channels);
    for (int64_t p = 0; p < places; p++)
        for (int64_t c = 0; c < channels; c++) {
            const float *m = moments->z + p * 2 * channels;
            float logvar = fminf(fmaxf(m[channels + c], -30.f), 20.f);
            noise[p * channels + c] =
                (m[c] + expf(0.5f * logvar) * noise[p * channels + c]) * (float)scaling;
        }
    free(moments->z);
    moments->z = noise;
    moments->channels = channels;
    return 0;
}
