/* SPDX-License-Identifier: Apache-2.0 */
/* The learning rate of a step as a pure function: see ckpt_optim.h. */
#include <math.h>
#include "core/sized.h"

/* Are the settings valid? */
static bool is_valid(const struct ckpt_schedule *s)
{
    bool ends = s->kind == CKPT_SCHEDULE_LINEAR || s->kind == CKPT_SCHEDULE_COSINE ||
                s->kind == CKPT_SCHEDULE_WSD;
    return s->kind >= CKPT_SCHEDULE_CONSTANT && s->kind <= CKPT_SCHEDULE_INVERSE_SQRT &&
           s->warmup >= 0 && s->final >= 0 && isfinite(s->final) && s->decay > 0 && s->decay <= 1 &&
           (!ends || s->total > s->warmup);
}

/* The fraction of [from, to) that lies before a step, in [0, 1]. */
static double progress(double step, double from, double to)
{
    return step >= to ? 1 : step <= from ? 0 : (step - from) / (to - from);
}

/* The factor of the learning rate after the warm-up. */
static double factor(const struct ckpt_schedule *s, double step)
{
    const double total = (double)s->total, first = (double)(s->warmup > 1 ? s->warmup : 1);
    const double r = progress(step, (double)s->warmup, total), drop = 1 - s->final;
    double begin = total - s->decay * total;
    switch (s->kind) {
    case CKPT_SCHEDULE_LINEAR:
        return 1 - drop * r;
    case CKPT_SCHEDULE_COSINE:
        return s->final + drop * 0.5 * (1 + cos(3.14159265358979323846 * r));
    case CKPT_SCHEDULE_WSD:
        if (begin < (double)s->warmup)
            begin = (double)s->warmup;
        return s->final + drop * (1 - sqrt(progress(step, begin, total)));
    case CKPT_SCHEDULE_INVERSE_SQRT:
        return sqrt(first / (step > first ? step : first));
    default:
        return 1;
    }
}

double ckpt_schedule(const struct ckpt_schedule *settings, double lr, int64_t step)
{
    struct ckpt_schedule s = CKPT_SCHEDULE_INIT;
    struct error unused;
    ERRORS_TO(&unused);
    if (!settings || sized_read("struct ckpt_schedule", &s, sizeof s, settings) || !is_valid(&s) ||
        step < 0)
        return NAN;
    if (step < s.warmup) /* this order of operations gives the same bits as older trainers */
        return lr * (double)(step + 1) / (double)(s.warmup + 1);
    return lr * factor(&s, (double)step);
}
