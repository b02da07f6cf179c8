/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No plan fits: three lines that say what the program needs, what more memory buys, and what else
 * would do.  Each budget they name is one that the planner accepts when it is typed as it stands.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/lattice.h"

#define GIB (INT64_C(1) << 30)

struct sentence {
    char *text;
    int n;
};

static void say(struct sentence *s, const char *fmt, ...) CKPT_PRINTF(2, 3);

static void say(struct sentence *s, const char *fmt, ...)
{
    va_list ap;
    if (s->n < 0 || s->n >= CKPT_MESSAGE)
        return;
    va_start(ap, fmt);
    int n = vsnprintf(s->text + s->n, (size_t)(CKPT_MESSAGE - s->n), fmt, ap);
    va_end(ap);
    s->n = n < 0 ? n : s->n + n;
}

/* A size in as few digits as a person types: what is needed is rounded up, what is there is rounded
 * down.  Below 1 GiB it is exact. */
enum rounding { NEEDED, THERE };

static void say_size(struct sentence *s, int64_t bytes, enum rounding how)
{
    const int64_t mib = INT64_C(1) << 20;
    if (bytes < GIB)
        say(s, "%lld bytes", (long long)bytes);
    else if (bytes % GIB == 0)
        say(s, "%lldG", (long long)(bytes / GIB));
    else
        say(s, "%lldM", (long long)((how == NEEDED ? round_up(bytes, mib) : bytes) / mib));
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* What was asked for. */
static void say_budgets(struct sentence *s, const struct budgets *b)
{
    say(s, "no plan fits ");
    say_size(s, b->device, THERE);
    if (b->host > 0) {
        say(s, " with ");
        say_size(s, b->host, THERE);
        say(s, " of host memory");
    }
    if (b->nvme > 0) {
        say(s, b->host > 0 ? " and " : " with ");
        say_size(s, b->nvme, THERE);
        say(s, " of NVMe");
    }
}

static void say_needs(struct portfolio *pf, const struct request *q, const struct smallest *least,
                      struct sentence *s)
{
    const struct plan *p = least->plan;
    int64_t fixed = q->reserved + p->persistent;
    say(s, "\n  this program needs at least ");
    say_size(s, least->bytes, NEEDED);
    if (fixed < least->bytes) {
        say(s, ", ");
        say_size(s, fixed, THERE);
        say(s, " of them for parameters and the like");
    }
    say(s, "; the peak is reached in %.200s; a step then takes %.4g s, %.0f %% of it recompute",
        p->n_steps ? pf->p->g->ops[p->steps[p->peak_step].op].name : "no op", p->seconds,
        share(p->recompute_seconds, p->seconds));
    if (p->exposed_seconds > 0)
        say(s, ", %.0f %% waiting for copies", share(p->exposed_seconds, p->seconds));
}

/* What 1 GiB more buys, and the fastest plan. */
static int say_try(struct portfolio *pf, const struct request *q, const struct smallest *least,
                   struct sentence *s)
{
    struct budgets b = q->budgets;
    struct answer more;
    struct option *all;
    b.device = least->bytes + GIB;
    int rc = answer_within(pf, q, &b, &more);
    if (!rc)
        rc = smallest_faster(pf, pf->options.data[pf->n - 1].seconds * (1 + 1e-12), &all);
    if (rc)
        return rc;
    double seconds = more.parked ? more.parked->seconds : more.option->seconds;
    int64_t fastest = q->reserved + pf->p->persistent + all->placed;
    if (seconds < least->plan->seconds)
        say(s, "\n  try with 1 GiB more: a step then takes %.4g s", seconds);
    if (q->homes || fastest <= least->bytes || all->seconds >= seconds)
        return 0;
    say(s, "%s; the fastest plan needs ", seconds < least->plan->seconds ? "" : "\n  try more");
    say_size(s, fastest, NEEDED);
    say(s, " and takes %.4g s", all->seconds);
    return 0;
}

/* How much of a lower tier is enough beside what there is of the others. */
static int say_tier(const struct request *q, int tier, struct sentence *s)
{
    int64_t had = tier == TIER_NVME ? q->budgets.nvme : q->budgets.host, needs;
    const struct plan *p;
    int rc = lattice_needs(q->lattice, tier, &q->budgets, &needs, &p);
    if (rc || !p || needs <= had)
        return rc;
    say(s, "\n  or stay with this budget and give it --%s ", tier == TIER_NVME ? "nvme" : "host");
    say_size(s, needs, NEEDED);
    say(s, ": a step then takes %.4g s", p->seconds);
    return 0;
}

int plan_refuse(struct portfolio *pf, const struct request *q, struct error *error)
{
    struct sentence s = {.text = error->text};
    struct smallest least;
    int rc = smallest_device(pf, q, &q->budgets, &least);
    say_budgets(&s, &q->budgets);
    if (!rc && least.plan) {
        say_needs(pf, q, &least, &s);
        rc = say_try(pf, q, &least, &s);
    }
    if (!rc)
        rc = say_tier(q, q->budgets.nvme > 0 ? TIER_NVME : TIER_HOST, &s);
    return error->code = rc ? rc : CKPT_EBUDGET;
}
