/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scaling study: the same step for other numbers of ranks.  In a graph that was recorded for N
 * ranks the sharded storages are those that an all-gather reads, that a reduce-scatter writes, and
 * that the update writes with them; everything else about a rank does not depend on N.  So a copy
 * of the graph is resized in place for each layout, and the schedules found for one layout are
 * simulated for all: which activations to recompute does not depend on the size of shards.
 *
 * With ZeRO stage 0 there are no gathers, and with stage 1 gathers follow the updates: these are
 * other graphs (scaling_graph.c) with searches of their own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/scale/scaling_study.h"
#include "plan/scale/scaling_graph.h"

struct scaling_study {
    const struct machine *m;
    struct scaling_graph *graphs[SCALING_KINDS];
    struct frontier *pfs[SCALING_KINDS];
};

/* The layout that schedules are searched for; those of other layouts are close. */
#define SEARCHED 8

void scaling_study_free(struct scaling_study *w)
{
    if (!w)
        return;
    for (int k = 0; k < SCALING_KINDS; k++) {
        frontier_free(w->pfs[k]);
        scaling_graph_free(w->graphs[k]);
    }
    free(w);
}

int scaling_study_open(const struct graph *g, const struct machine *m, struct scaling_study **out)
{
    struct scaling_study *w = calloc(1, sizeof(*w));
    const struct scaling_layout first = {SEARCHED, SEARCHED, 3};
    int rc = 0;
    *out = w;
    if (!w)
        return error_set(CKPT_ENOMEM, "planning ran out of host memory");
    w->m = m;
    for (int k = 0; k < SCALING_KINDS && !rc; k++) {
        rc = scaling_graph_new(g, (enum scaling_kind)k, &w->graphs[k]);
        if (rc)
            break;
        scaling_graph_resize(w->graphs[k], &first, m);
        rc = graph_check_seconds(scaling_graph(w->graphs[k]));
        rc = rc ? rc : frontier_build(scaling_graph(w->graphs[k]), &w->pfs[k]);
    }
    if (rc) {
        scaling_study_free(w);
        *out = NULL;
    }
    return rc == CKPT_ENOMEM ? error_set(rc, "planning ran out of host memory") : rc;
}

/* ---- the fastest step ------------------------------------------------------------------------ */

struct choice {
    struct frontier *frontier;
    const struct graph *g;
    int64_t device;
    bool keeps; /* gathered values stay (ZeRO stage 2) */
};

static int simulate_option(const struct choice *c, int32_t option, double lead,
                           struct scaling_step *step)
{
    struct option o = c->frontier->options.data[option];
    size_t size = retention_size(o.retention, c->g->n_storages);
    int32_t *retention = malloc(size);
    struct plan *p;
    if (!retention)
        return CKPT_ENOMEM;
    memcpy(retention, o.retention, size);
    for (int32_t i = 0; i < c->g->n_ops && c->keeps; i++)
        if (c->g->ops[i].collective == GRAPH_ALL_GATHER)
            retention[c->g->refs[c->g->ops[i].writes]] = RETAIN_ALWAYS;
    o.retention = retention;
    o.lead = lead;
    o.plan = NULL;
    int rc = option_steps(c->frontier, &o, &p);
    free(retention);
    if (rc)
        return rc;
    *step = (struct scaling_step){.bytes = p->persistent + p->load,
                                  .seconds = p->seconds,
                                  .compute = plan_compute_seconds(p),
                                  .recompute = p->recompute_seconds,
                                  .exposed = p->exposed_comm,
                                  .comm = p->comm_seconds};
    step->fits = step->bytes <= c->device;
    plan_free(p);
    return 0;
}

/* The last, and so the fastest, option that fits. */
static int last_within(const struct choice *c, int32_t *option)
{
    int32_t low = -1, high = c->frontier->n;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        struct scaling_step step;
        int rc = simulate_option(c, middle, c->frontier->options.data[middle].lead, &step);
        if (rc)
            return rc;
        if (step.fits)
            low = middle;
        else
            high = middle;
    }
    *option = low;
    return 0;
}

static int choose(const struct choice *c, struct scaling_step *step)
{
    int32_t last;
    int rc = last_within(c, &last);
    if (!rc && last < 0)
        return simulate_option(c, 0, 0, step);
    *step = (struct scaling_step){.seconds = INFINITY};
    for (int32_t i = max_i64(0, last - 2); i <= last && !rc; i++)
        for (int k = 0; k < COMM_LEADS && !rc; k++) {
            struct scaling_step other;
            rc = simulate_option(c, i, comm_leads[k], &other);
            if (!rc && other.fits && other.seconds < step->seconds)
                *step = other;
        }
    return rc;
}

int scaling_study_plan(struct scaling_study *w, const struct scaling_layout *l, int64_t device,
                       struct scaling_step *step)
{
    enum scaling_kind kind = l->zero == 0 || l->ranks == 1 ? SCALING_WHOLE
                             : l->zero == 1                ? SCALING_STATE
                                                           : SCALING_SHARED;
    struct scaling_graph *of = w->graphs[kind];
    struct choice c = {
        .frontier = w->pfs[kind], .g = scaling_graph(of), .device = device, .keeps = l->zero == 2};
    scaling_graph_resize(of, l, w->m);
    program_sum(c.frontier->p);
    return choose(&c, step);
}
