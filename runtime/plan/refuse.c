/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No plan fits: three lines that say what the program needs, which budgets to try and what they
 * buy, and what else would do.  Each budget they name is one that the planner accepts when it is
 * typed as it stands, and none is named twice.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/lattice.h"

#define KIB        (INT64_C(1) << 10)
#define MIB        (INT64_C(1) << 20)
#define GIB        (INT64_C(1) << 30)
#define LEAST_GAIN .995 /* a budget that leaves more of the time is not worth naming */

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

/* A size as it is typed: rounded up to MiB, below 1 GiB to KiB. */
static int64_t typed(int64_t bytes)
{
    return round_up(bytes, bytes >= GIB ? MIB : KIB);
}

static void say_typed(struct sentence *s, int64_t bytes)
{
    int64_t n = typed(bytes);
    if (n % GIB == 0)
        say(s, "%lldG", (long long)(n / GIB));
    else if (n % MIB == 0)
        say(s, "%lldM", (long long)(n / MIB));
    else
        say(s, "%lldK", (long long)(n / KIB));
}

/* The smallest that works: exact below 1 GiB, where a KiB more would be another answer. */
static void say_needed(struct sentence *s, int64_t bytes)
{
    if (bytes < GIB)
        say(s, "%lld bytes", (long long)bytes);
    else
        say_typed(s, bytes);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* What was asked for. */
static void say_budgets(struct sentence *s, const struct budgets *b)
{
    say(s, "no plan fits %s", human_bytes(b->device));
    if (b->host > 0)
        say(s, " with %s of host memory", human_bytes(b->host));
    if (b->nvme > 0)
        say(s, "%s%s of NVMe", b->host > 0 ? " and " : " with ", human_bytes(b->nvme));
}

static void say_needs(struct frontier *pf, const struct request *q, const struct smallest *least,
                      struct sentence *s)
{
    const struct plan *p = least->plan;
    int64_t fixed = q->reserved + p->persistent;
    say(s, ": it needs at least ");
    say_needed(s, least->bytes);
    if (fixed < least->bytes)
        say(s, ", %s of it for parameters and the like", human_bytes(fixed));
    if (p->n_steps)
        say(s, ", with the peak in %.200s", pf->p->g->ops[p->steps[p->peak_step].op].name);
}

static void say_budget(struct sentence *s, int64_t bytes, double seconds)
{
    say(s, "; --vram ");
    say_typed(s, bytes);
    say(s, " takes %s", human_seconds(seconds));
}

/* The most that --vram can be.  Of a GPU the machine file says what it has; where a process takes
 * nothing beside its arena, the device is the memory of some host. */
static int64_t device_has(const struct request *q)
{
    return q->m->process > 0 ? q->m->memory : INT64_MAX;
}

/* What the smallest budget costs, what 1 GiB more buys, and the fastest plan. */
static int say_try(struct frontier *pf, const struct request *q, const struct smallest *least,
                   struct sentence *s)
{
    const struct plan *p = least->plan;
    struct budgets b = q->budgets;
    struct answer more;
    struct option *all;
    if (typed(least->bytes) > device_has(q)) {
        say(s, "\n  no --vram is enough: %.60s has %s", q->m->name, human_bytes(q->m->memory));
        return 0;
    }
    b.device = min_i64(least->bytes + GIB, device_has(q));
    int rc = answer_within(pf, q, &b, &more);
    if (!rc)
        rc = smallest_faster(pf, pf->options.data[pf->n - 1].seconds * (1 + 1e-12) + DBL_MIN, &all);
    if (rc)
        return rc;
    say(s, "\n  try that: a step takes %s", human_seconds(p->seconds));
    if (p->recompute_seconds > 0)
        say(s, ", %.0f %% of it recompute", share(p->recompute_seconds, p->seconds));
    if (p->exposed_seconds > 0)
        say(s, ", %.0f %% waiting for copies", share(p->exposed_seconds, p->seconds));
    double seconds = more.offloaded ? more.offloaded->seconds : more.option->seconds;
    int64_t fastest = q->reserved + pf->p->persistent + all->placed;
    bool knows_fastest = !q->backings && fastest > least->bytes && typed(fastest) <= device_has(q);
    bool gains = seconds < LEAST_GAIN * p->seconds && !(knows_fastest && fastest <= b.device);
    if (gains)
        say_budget(s, b.device, seconds);
    if (knows_fastest && all->seconds < LEAST_GAIN * (gains ? seconds : p->seconds)) {
        say_budget(s, fastest, all->seconds);
        say(s, ", and no more is faster");
    }
    return 0;
}

/* How much of a lower tier is enough beside what there is of the others. */
static int say_tier(struct frontier *pf, const struct request *q, int tier, struct sentence *s)
{
    const char *option = tier == TIER_NVME ? "--nvme" : "--host";
    struct budgets b = q->budgets;
    int64_t *own = tier == TIER_NVME ? &b.nvme : &b.host, had = *own, needs;
    struct answer with = {NULL, NULL};
    const struct plan *p;
    int rc = lattice_needs(q->lattice, tier, &q->budgets, &needs, &p);
    if (rc)
        return rc;
    if (!p || needs <= had) {
        say(s, "\n  or make the step smaller (micro-batch, length, model): no %s is enough",
            option);
        return 0;
    }
    *own = typed(needs);
    rc = answer_within(pf, q, &b, &with);
    say(s, "\n  or keep this budget and add %s ", option);
    say_typed(s, needs);
    say(s, ": a step then takes %s",
        human_seconds(with.offloaded ? with.offloaded->seconds : p->seconds));
    return rc;
}

int plan_refuse(struct frontier *pf, const struct request *q, struct error *error)
{
    struct sentence s = {.text = error->text};
    struct smallest least;
    int rc = smallest_device(pf, q, &q->budgets, &least);
    say_budgets(&s, &q->budgets);
    if (!rc && least.plan) {
        say_needs(pf, q, &least, &s);
        rc = say_try(pf, q, &least, &s);
    } else if (!rc) {
        say(&s, ": beside these lower tiers no size of the device is enough");
    }
    if (!rc)
        rc = say_tier(pf, q, q->budgets.nvme > 0 ? TIER_NVME : TIER_HOST, &s);
    return error->code = rc ? rc : CKPT_EBUDGET;
}
