/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels and sampling steps of CogVideoX: see schedule.h.  All in double. */
#include <math.h>
#include <string.h>
#include "../../common/say.h"
#include "ckpt_tools.h"
#include "schedule.h"

#define PI 3.14159265358979323846

enum { STREAM_TIME = 0x43560001 };

/* ---- levels -------------------------------------------------------------------------------- */

/* The cosine schedule of Nichol & Dhariwal (2021): the signal at a fraction of the timesteps. */
static double cosine(double at)
{
    double c = cos((at + 0.008) / 1.008 * PI / 2);

    return c * c;
}

static double beta(const struct cogvideo_noise *n, int t)
{
    const double at = t / (double)(COGVIDEO_TIMES - 1), next = (t + 1.) / COGVIDEO_TIMES;

    if (n->betas)
        return n->betas[t];
    if (!strcmp(n->kind, "linear"))
        return n->first + (n->last - n->first) * at;
    if (!strcmp(n->kind, "squaredcos_cap_v2"))
        return fmin(1 - cosine(next) / cosine(t / (double)COGVIDEO_TIMES), 0.999);
    double root = sqrt(n->first) + (sqrt(n->last) - sqrt(n->first)) * at;
    return root * root;
}

/* Shifts and scales the square roots of the signal: the first keeps its value, the last is 0. */
static void rescale(double *signal)
{
    const double begin = sqrt(signal[0]), end = sqrt(signal[COGVIDEO_TIMES - 1]);

    for (int t = 0; t < COGVIDEO_TIMES; t++) {
        double root = (sqrt(signal[t]) - end) * begin / (begin - end);
        signal[t] = root * root;
    }
}

void cogvideo_levels(struct cogvideo_schedule *s, const struct cogvideo_noise *n)
{
    double product = 1;

    for (int t = 0; t < COGVIDEO_TIMES; t++) {
        product *= 1 - beta(n, t);
        s->signal[t] = product / (n->shift + (1 - n->shift) * product);
    }
    if (n->rescaled)
        rescale(s->signal);
}

void cogvideo_schedule(struct cogvideo_schedule *s, double shift)
{
    const struct cogvideo_noise noise = {
        .kind = "scaled_linear", .first = 0.00085, .last = 0.012, .shift = shift, .rescaled = true};

    *s = (struct cogvideo_schedule){.end = 1, .spacing = COGVIDEO_TRAILING, .solver = COGVIDEO_DPM};
    cogvideo_levels(s, &noise);
}

/* ---- training ------------------------------------------------------------------------------ */

void cogvideo_draw_times(uint64_t seed, int64_t step, int64_t n, float *t)
{
    ckpt_fill_uniform(seed, (uint64_t)step, STREAM_TIME, t, n);
    for (int64_t i = 0; i < n; i++)
        t[i] = (float)floor((double)t[i] * COGVIDEO_TIMES);
}

/* ---- sampling ------------------------------------------------------------------------------ */

/* The same operations as in diffusers, because halves are rounded to even. */
int64_t cogvideo_time(const struct cogvideo_schedule *s, int64_t n, int64_t i)
{
    const double all = COGVIDEO_TIMES;
    const int64_t back = n - 1 - i;

    if (s->spacing == COGVIDEO_LEADING)
        return back * (COGVIDEO_TIMES / n) + s->offset;
    if (s->spacing == COGVIDEO_LINSPACE)
        return back ? (int64_t)nearbyint((double)back * ((all - 1) / (double)(n - 1))) : 0;
    return (int64_t)nearbyint(all + (double)i * (all - all / (double)n - all)) - 1;
}

int cogvideo_check_steps(const struct cogvideo_schedule *s, int64_t n)
{
    if (cogvideo_time(s, n, 0) >= COGVIDEO_TIMES)
        return say_fail("%lld steps of sampling with the \"steps_offset\" %lld of "
                        "scheduler_config.json begin behind the last timestep: give fewer steps",
                        (long long)n, (long long)s->offset);
    /* diffusers counts these steps by a division whose rounding makes one more of them. */
    if (s->spacing == COGVIDEO_TRAILING &&
        COGVIDEO_TIMES / (COGVIDEO_TIMES / (double)n) > (double)n)
        return say_fail("%lld steps of sampling: diffusers would take one more, at timestep -1, "
                        "which spoils the clip: give %lld steps",
                        (long long)n, (long long)n - 1);
    return 0;
}

static double log_ratio(double a)
{
    return 0.5 * log(a / (1 - a));
}

static void ddim(struct cogvideo_step *x, double b)
{
    x->keep = sqrt((1 - b) / (1 - x->a));
    x->clean = sqrt(b) - sqrt(x->a) * x->keep;
}

/* Where x has no x0 yet (a = 0) the formulas use their limits. */
static void dpm(struct cogvideo_step *x, double b, const double *back)
{
    double h = log_ratio(b) - log_ratio(x->a), shrink = x->a > 0 ? exp(-2 * h) : 0;
    double ratio = back && *back > 0 ? (log_ratio(x->a) - log_ratio(*back)) / h : INFINITY;
    double extra = back ? 1 / (2 * ratio) : 0, clean = sqrt(b) * (1 - shrink);

    x->keep = x->a > 0 ? sqrt((1 - b) / (1 - x->a)) * exp(-h) : 0;
    x->clean = clean * (1 + extra);
    x->old = -clean * extra;
    x->noise = sqrt(1 - b) * sqrt(1 - shrink);
}

/* The step ends at t - 1000/n rounded down, which may differ from the next timestep.  A step that
 * ends below timestep 0 has order 1. */
struct cogvideo_step cogvideo_step(const struct cogvideo_schedule *s, enum cogvideo_solver solver,
                                   int64_t n, int64_t i)
{
    struct cogvideo_step x = {.t = cogvideo_time(s, n, i)};
    const int64_t to = x.t - COGVIDEO_TIMES / n;
    const double b = to < 0 ? s->end : s->signal[to];
    const double *back = i && to >= 0 ? &s->signal[cogvideo_time(s, n, i - 1)] : NULL;

    x.a = s->signal[x.t];
    if (b == 1)
        x.clean = 1;
    else if (solver == COGVIDEO_DDIM)
        ddim(&x, b);
    else
        dpm(&x, b, back);
    return x;
}

double cogvideo_guidance(const struct cogvideo_schedule *s, enum cogvideo_guidance_kind kind,
                         double guidance, int64_t n, int64_t i)
{
    double at = (double)(kind == COGVIDEO_REFERENCE ? cogvideo_time(s, n, i) : i);

    if (kind == COGVIDEO_CONSTANT)
        return guidance;
    return 1 + guidance * (1 - cos(PI * pow(((double)n - at) / (double)n, 5))) / 2;
}
