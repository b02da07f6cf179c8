/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary embedding's table (Su et al. 2021), with the scaling of Llama 3.1. */
#include <math.h>
#include "model.h"

/*
 * Wavelengths above length / low are divided by factor, wavelengths below length / high are
 * unchanged, and the ones between are interpolated.
 */
static double scale(const struct lm_rope_scaling *s, double f)
{
    double wave = 6.283185307179586 / f, length = (double)s->length;

    if (!(s->factor > 0) || wave < length / s->high)
        return f;
    if (wave > length / s->low)
        return f / s->factor;
    double share = (length / wave - s->low) / (s->high - s->low);
    return (1 - share) * f / s->factor + share * f;
}

void lm_rope_table(const struct lm_config *c, int64_t length, float *table)
{
    int64_t half = c->head / 2;

    for (int64_t i = 0; i < half; i++) {
        double f = scale(&c->scaling, pow(c->theta, -2.0 * (double)i / (double)c->head));
        for (int64_t p = 0; p < length; p++) {
            table[2 * (p * half + i)] = (float)cos((double)p * f);
            table[2 * (p * half + i) + 1] = (float)sin((double)p * f);
        }
    }
}
