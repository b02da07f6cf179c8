/* SPDX-License-Identifier: Apache-2.0 */
/* Times of ops: see timing.h. */
#include <stdlib.h>
#include "exec/timing.h"

enum { SAMPLES = 16 }; /* kept of an op: the first is warm-up */

struct samples {
    double seconds[SAMPLES];
    int32_t n;
};

struct timing {
    struct samples *ops; /* per op of the tape */
};

int timing_new(struct timing **out, const struct ckpt_program *p)
{
    struct timing *t = calloc(1, sizeof *t);
    if (!t)
        return CKPT_ENOMEM;
    t->ops = calloc((size_t)p->tape->n_ops + 1, sizeof *t->ops);
    if (!t->ops) {
        timing_free(t);
        return CKPT_ENOMEM;
    }
    *out = t;
    return 0;
}

void timing_free(struct timing *t)
{
    if (!t)
        return;
    free(t->ops);
    free(t);
}

double *timing_slot(struct timing *t, int32_t op)
{
    struct samples *s = &t->ops[op];
    return s->n < SAMPLES ? &s->seconds[s->n++] : NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

double timing_median(const struct timing *t, int32_t op)
{
    const struct samples *s = &t->ops[op];
    double sorted[SAMPLES];
    if (!s->n)
        return 0;
    int32_t skip = s->n > 1, n = s->n - skip;
    for (int32_t i = 0; i < n; i++)
        sorted[i] = s->seconds[i + skip];
    return median_of(sorted, n);
}

/* One entry a key: the middle one of those that ops of this key got. */
static int32_t merge(struct machine_cost *costs, int32_t n)
{
    int32_t kept = 0;
    machine_sort_costs(costs, n);
    for (int32_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && costs[end].key == costs[i].key; end++)
            ;
        costs[kept++] = costs[i + (end - i) / 2];
    }
    return kept;
}

/* The costs of the machine that no op here has, and the times of those that ran. */
static int32_t collect(const struct timing *t, const struct ckpt_program *p,
                       struct machine_cost *costs)
{
    struct machine measured = {.costs = costs};
    double seconds;
    for (int32_t i = 0; i < p->graph->n_ops; i++) {
        const struct graph_op *o = &p->graph->ops[i];
        if (t->ops[o->tape_op].n)
            costs[measured.n_costs++] =
                (struct machine_cost){o->cost_key, timing_median(t, o->tape_op)};
    }
    measured.n_costs = merge(costs, measured.n_costs);
    int32_t n = measured.n_costs;
    for (int32_t i = 0; i < p->programs->machine.n_costs; i++)
        if (!machine_cost(&measured, p->programs->machine.costs[i].key, &seconds))
            costs[n++] = p->programs->machine.costs[i];
    machine_sort_costs(costs, n);
    return n;
}

int timing_step(const struct timing *t, const struct ckpt_program *p)
{
    struct machine m = p->programs->machine;
    size_t most = (size_t)p->graph->n_ops + (size_t)m.n_costs + 1;
    if (!p->programs->options->machine_out || !p->trains || p->steps > SAMPLES ||
        (p->steps & (p->steps - 1)))
        return 0;
    m.costs = calloc(most, sizeof *m.costs);
    if (!m.costs)
        return error_fail(p->programs->error, CKPT_ENOMEM, "no memory for the times of ops");
    m.n_costs = collect(t, p, m.costs);
    int rc = machine_write(&m, p->programs->options->machine_out, p->programs->error);
    if (!rc)
        p->programs->written |= WRITTEN_MACHINE;
    free(m.costs);
    return rc;
}
