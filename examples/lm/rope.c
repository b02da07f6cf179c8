/* SPDX-License-Identifier: Apache-2.0 */
/* The rotary embedding's table (Su et al. 2021), with the scalings of enum lm_rope_kind. */
#include <math.h>
#include "model.h"

#define TURN 6.283185307179586

/* Wavelengths above length / low are divided by factor, wavelengths below length / high are
 * unchanged, and the ones between are interpolated. */
static double scale_llama3(const struct lm_rope *s, double f)
{
    double wave = TURN / f, length = (double)s->length;

    if (wave < length / s->high)
        return f;
    if (wave > length / s->low)
        return f / s->factor;
    double share = (length / wave - s->low) / (s->high - s->low);
    return (1 - share) * f / s->factor + share * f;
}

/* The pair, as a real number, that turns `turns` times in the original length. */
static double pair_of(const struct lm_rope *s, double turns, int64_t width)
{
    return (double)width * log((double)s->length / (turns * TURN)) / (2 * log(s->theta));
}

/* Pairs before the ramp keep their frequency, those behind it have it divided by factor. */
static double scale_yarn(const struct lm_rope *s, double f, int64_t pair, int64_t width)
{
    double low = pair_of(s, s->high, width), high = pair_of(s, s->low, width);

    if (s->truncate)
        low = floor(low), high = ceil(high);
    low = fmax(low, 0);
    high = fmin(high, (double)width - 1);
    if (low == high)
        high += 0.001;
    double ramp = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
    return f / s->factor * ramp + f * (1 - ramp);
}

static double frequency(const struct lm_rope *s, int64_t pair, int64_t width, int64_t length)
{
    double f = pow(s->theta, -2.0 * (double)pair / (double)width);

    switch (s->kind) {
    case LM_ROPE_LINEAR:
        return f / s->factor;
    case LM_ROPE_LLAMA3:
        return scale_llama3(s, f);
    case LM_ROPE_YARN:
        return scale_yarn(s, f, pair, width);
    case LM_ROPE_LONG:
        return f / s->each[length > s->length][pair];
    default:
        return f;
    }
}

void lm_rope_table(const struct lm_config *c, int which, int64_t length, float *table)
{
    const struct lm_rope *s = &c->rope[which];
    int64_t turned = lm_turned(c), half = turned / 2;

    for (int64_t i = 0; i < half; i++) {
        double f = frequency(s, i, turned, length);
        for (int64_t p = 0; p < length; p++) {
            table[2 * (p * half + i)] = (float)(s->attention * cos((double)p * f));
            table[2 * (p * half + i) + 1] = (float)(s->attention * sin((double)p * f));
        }
    }
}
