/* SPDX-License-Identifier: Apache-2.0 */
/* Noise levels and sampling steps of Wan: see schedule.h.  All in double. */
#include "schedule.h"
#include <math.h>
#include <string.h>
#include "../../common/say.h"
#include "noise.h"

enum { TIMES = 1000 };

int wan_solver(const char *name, enum wan_solver *solver)
{
    static const char *const names[] = {
        [WAN_UNIPC] = "unipc", [WAN_UNIPC_ORIGINAL] = "unipc-original", [WAN_EULER] = "euler"};

    for (int i = 0; i < 3; i++) {
        if (!strcmp(name, names[i])) {
            *solver = (enum wan_solver)i;
            return 0;
        }
    }
    return say_fail("--solver %s: give unipc, unipc-original or euler", name);
}

/* ---- levels -------------------------------------------------------------------------------- */

/* diffusers shifts the ends of Euler's levels, and then all of its levels again.  In UniPC a first
 * level of 1 would have no signal, of which it takes the logarithm. */
double wan_level(const struct wan_schedule *s, enum wan_solver solver, int64_t n, int64_t i)
{
    const double k = s->shift, end = 1. / TIMES;

    if (i == n)
        return 0;
    if (solver == WAN_EULER) {
        double part = n > 1 ? (double)i / (double)(n - 1) : 0;
        return wan_shift(k, 1 + part * (wan_shift(k, end) - 1));
    }
    if (solver == WAN_UNIPC_ORIGINAL)
        return wan_shift(k, (1 - end) * (1 - (double)i / (double)n));
    return wan_shift(k, 1 + (double)i * ((end - 1) / (double)n)) - (i ? 0 : 1e-6);
}

/* ---- steps --------------------------------------------------------------------------------- */

/* Half the logarithm of the signal-to-noise ratio. */
static double log_ratio(double s)
{
    return log(1 - s) - log(s);
}

static void euler(struct video_step *x, double s, double next)
{
    x->keep = next / s;
    x->clean = 1 - next / s;
}

/* The sample at level s[2] from the one at s[1] and x0 at s[0] (with order 2), s[1] and s[2]. */
static void correct(struct video_step *x, const double s[3], int order)
{
    const double h = log_ratio(s[2]) - log_ratio(s[1]), e = expm1(-h);
    const double part = (1 - s[2]) * e, b0 = (e / -h - 1) / e;
    struct video_correction *c = &x->correction;

    x->corrects = true;
    c->keep = s[2] / s[1];
    if (order == 1) {
        c->clean = c->old = -part / 2;
        return;
    }
    const double r = (log_ratio(s[0]) - log_ratio(s[1])) / h;
    const double b1 = 2 * ((e / -h - 1) / -h - 0.5) / e;
    const double c0 = (b0 - b1) / (1 - r), c1 = b0 - c0;
    c->clean = -part * c1;
    c->older = -part * c0 / r;
    c->old = -part - c->older + part * c1;
}

/* From level s[1] to s[2], with x0 at s[1] and, with order 2, at s[0]. */
static void predict(struct video_step *x, const double s[3], int order)
{
    const double h = log_ratio(s[2]) - log_ratio(s[1]), part = (1 - s[2]) * expm1(-h);
    const double r = order > 1 ? (log_ratio(s[0]) - log_ratio(s[1])) / h : 1;

    x->keep = s[2] / s[1];
    x->old = order > 1 ? -part / (2 * r) : 0;
    x->clean = -part - x->old;
}

/* The last step ends at level 0, where only x0 is left. */
struct video_step wan_step(const struct wan_schedule *schedule, enum wan_solver solver, int64_t n,
                           int64_t i)
{
    double s[4];

    for (int64_t k = 0; k < 4; k++)
        s[k] = i + k > 1 ? wan_level(schedule, solver, n, i + k - 2) : NAN;
    struct video_step x = {.t = TIMES * s[2], .level = {1, s[2]}};
    if (solver == WAN_EULER) {
        euler(&x, s[2], s[3]);
        return x;
    }
    x.t = floor(x.t);
    if (i)
        correct(&x, s, i > 1 ? 2 : 1);
    if (i + 1 == n)
        x.clean = 1;
    else
        predict(&x, s + 1, i ? 2 : 1);
    return x;
}
