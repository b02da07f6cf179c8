/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The message when no plan fits, in three lines: the smallest budget, the budgets to try with their
 * times, and the alternatives.  The planner accepts each named budget as it is typed, and none is
 * named twice.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "plan/lattice.h"

#define KIB      (INT64_C(1) << 10)
#define MIB      (INT64_C(1) << 20)
#define GIB      (INT64_C(1) << 30)
#define MIN_GAIN .995 /* a budget is named if its time is below this part of the other */

/* A size rounded up to MiB, or to KiB below 1 GiB, as an option takes it. */
static int64_t typed(int64_t bytes)
{
    return round_up(bytes, bytes >= GIB ? MIB : KIB);
}

static void append_size(FILE *s, int64_t bytes)
{
    int64_t n = typed(bytes);
    if (n % GIB == 0)
        fprintf(s, "%lldG", (long long)(n / GIB));
    else if (n % MIB == 0)
        fprintf(s, "%lldM", (long long)(n / MIB));
    else
        fprintf(s, "%lldK", (long long)(n / KIB));
}

int64_t plan_refuse_names(int64_t bytes)
{
    return bytes < GIB ? bytes : typed(bytes);
}

/* The smallest budget: in bytes below 1 GiB, where rounding to KiB may change the answer. */
static void append_smallest(FILE *s, int64_t bytes)
{
    if (bytes < GIB)
        fprintf(s, "%lld bytes", (long long)bytes);
    else
        append_size(s, bytes);
}

static long percent(double part, double whole)
{
    return whole > 0 ? lrint(100 * part / whole) : 0;
}

/* The budgets of the request. */
static void append_budgets(FILE *s, const struct budgets *b)
{
    fprintf(s, "no plan fits %s", human_bytes(b->device));
    if (b->host > 0)
        fprintf(s, " with %s of host memory", human_bytes(b->host));
    if (b->nvme > 0)
        fprintf(s, "%s%s of NVMe", b->host > 0 ? " and " : " with ", human_bytes(b->nvme));
}

static void append_needs(struct frontier *f, const struct request *q, const struct smallest *least,
                         FILE *s)
{
    const struct plan *p = least->plan;
    int64_t fixed = q->reserved + p->persistent;
    fprintf(s, ": it needs at least ");
    append_smallest(s, least->bytes);
    if (fixed < least->bytes)
        fprintf(s, ", %s of it for parameters and the like", human_bytes(fixed));
    if (p->n_steps)
        fprintf(s, ", with the peak in %.200s", f->p->g->ops[p->steps[p->peak_step].op].name);
}

static void append_budget(FILE *s, int64_t bytes, double seconds)
{
    fprintf(s, "; --vram ");
    append_size(s, bytes);
    fprintf(s, " takes %s", human_seconds(seconds));
}

/* The largest possible --vram: the memory of the GPU in the machine file.  A CPU, whose process
 * uses nothing beside the arena, has no limit here. */
static int64_t device_has(const struct request *q)
{
    return q->m.process > 0 ? q->m.memory : INT64_MAX;
}

/* The time of the smallest budget, of 1 GiB more, and of the fastest plan. */
static int append_times(struct frontier *f, const struct request *q, const struct smallest *least,
                        FILE *s)
{
    const struct plan *p = least->plan;
    struct budgets b = q->budgets;
    struct answer more;
    struct option *all;
    if (typed(least->bytes) > device_has(q)) {
        fprintf(s, "\n  no --vram is enough: %.60s has %s", q->m.name, human_bytes(q->m.memory));
        return 0;
    }
    b.device = min_i64(least->bytes + GIB, device_has(q));
    int rc = answer_within(f, q, &b, &more);
    if (!rc)
        rc = smallest_faster(f, f->options.data[f->n - 1].seconds * (1 + 1e-12) + DBL_MIN, &all);
    if (rc)
        return rc;
    fprintf(s, "\n  try that: a step takes %s", human_seconds(p->seconds));
    if (p->recompute_seconds > 0)
        fprintf(s, ", %ld %% of it recompute", percent(p->recompute_seconds, p->seconds));
    if (p->exposed_seconds > 0)
        fprintf(s, ", %ld %% waiting for copies", percent(p->exposed_seconds, p->seconds));
    double seconds = more.offloaded ? more.offloaded->seconds : more.option->seconds;
    int64_t fastest = q->reserved + f->p->persistent + all->plan->transient;
    bool knows_fastest = !q->backings && fastest > least->bytes && typed(fastest) <= device_has(q);
    bool gains = seconds < MIN_GAIN * p->seconds && !(knows_fastest && fastest <= b.device);
    if (gains)
        append_budget(s, b.device, seconds);
    if (knows_fastest && all->seconds < MIN_GAIN * (gains ? seconds : p->seconds)) {
        append_budget(s, fastest, all->seconds);
        fprintf(s, ", and no more is faster");
    }
    return 0;
}

/* The bytes of a lower tier that are enough with the other budgets. */
static int append_tier(struct frontier *f, const struct request *q, int tier, FILE *s)
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
        fprintf(s, "\n  or make the step smaller (micro-batch, length, model): no %s is enough",
               option);
        return 0;
    }
    *own = typed(needs);
    rc = answer_within(f, q, &b, &with);
    fprintf(s, "\n  or keep this budget and add %s ", option);
    append_size(s, needs);
    fprintf(s, ": a step then takes %s",
           human_seconds(with.offloaded ? with.offloaded->seconds : p->seconds));
    return rc;
}

int plan_refuse(struct frontier *f, const struct request *q)
{
    char *text;
    size_t size;
    FILE *s = open_memstream(&text, &size);
    struct smallest least;
    if (!s)
        return CKPT_ENOMEM;
    int rc = smallest_device(f, q, &q->budgets, &least);
    append_budgets(s, &q->budgets);
    if (!rc && least.plan) {
        append_needs(f, q, &least, s);
        rc = append_times(f, q, &least, s);
    } else if (!rc) {
        fprintf(s, ": beside these lower tiers no size of the device is enough");
    }
    if (!rc)
        rc = append_tier(f, q, q->budgets.nvme > 0 ? TIER_NVME : TIER_HOST, s);
    int closed = text_close(s, &text);
    if (!rc && !closed)
        error_set(CKPT_EBUDGET, "%s", text);
    free(text);
    return rc ? rc : closed ? closed : CKPT_EBUDGET;
}
