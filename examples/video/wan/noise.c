/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels in training: see noise.h.  All in double. */
#include "noise.h"
#include <math.h>

enum { GRID = 1000 /* levels whose weights have the mean 1 */ };

/* ---- levels -------------------------------------------------------------------------------- */

double wan_shift(double k, double s)
{
    return k * s / (1 + (k - 1) * s);
}

/* Fraction of N(0, 1) below x. */
static double normal_below(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

/* The x with that fraction below it, by halving an interval that has all but 1e-22. */
static double normal_at(double fraction)
{
    double low = -10, high = 10;

    for (int i = 0; i < 60; i++) {
        const double x = 0.5 * (low + high);
        if (normal_below(x) < fraction)
            low = x;
        else
            high = x;
    }
    return 0.5 * (low + high);
}

/* Fraction of the distribution below a shifted level. */
static double below(const struct wan_noise *n, double level)
{
    const double s = wan_shift(1 / n->shift, level);

    if (!n->normal || s <= 0 || s >= 1)
        return s;
    return normal_below(log(s / (1 - s)));
}

double wan_noise_level(const struct wan_noise *n, double u)
{
    const double high = below(n, n->high), at = high - u * (high - below(n, n->low));

    return wan_shift(n->shift, n->normal ? 1 / (1 + exp(-normal_at(at))) : at);
}

double wan_noise_share(const struct wan_noise *n)
{
    return below(n, n->high) - below(n, n->low);
}

/* ---- weights ------------------------------------------------------------------------------- */

static double bell(double level)
{
    return exp(-2 * (level - 0.5) * (level - 0.5));
}

void wan_noise_begin(struct wan_noise *n)
{
    double sum = 0;

    n->floor = 1;
    for (int i = 0; i < GRID; i++)
        n->floor = fmin(n->floor, bell(wan_shift(n->shift, 1 - i / (double)GRID)));
    for (int i = 0; i < GRID; i++)
        sum += bell(wan_shift(n->shift, 1 - i / (double)GRID)) - n->floor;
    n->scale = GRID / sum;
}

double wan_noise_weight(const struct wan_noise *n, double level)
{
    return n->weighted ? fmax(0, bell(level) - n->floor) * n->scale : 1;
}
