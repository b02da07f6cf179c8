/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scaling study: the same step for other numbers of ranks.  In a graph that was recorded for N
 * ranks the sharded storages are those that an all-gather reads, that a reduce-scatter writes, and
 * that the update writes with them; everything else about a rank does not depend on N.  So a copy
 * of the graph is resized in place for each layout, and the schedules found for one layout are
 * simulated for all: which activations to recompute does not depend on the size of shards.
 *
 * With ZeRO stage 0 there are no gathers, and with stage 1 gathers follow the updates: these are
 * other graphs (world_graph.c) with searches of their own.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/scale/world.h"
#include "plan/scale/world_graph.h"

struct world {
    const struct machine *m;
    struct world_graph *graphs[WORLD_KINDS];
    struct frontier *pfs[WORLD_KINDS];
};

/* The layout that schedules are searched for; those of other layouts are close. */
#define SEARCHED 8

void world_free(struct world *w)
{
    if (!w)
        return;
    for (int k = 0; k < WORLD_KINDS; k++) {
        frontier_free(w->pfs[k]);
        world_graph_free(w->graphs[k]);
    }
    free(w);
}

int world_open(const struct graph *g, const struct machine *m, struct world **out)
{
    struct world *w = calloc(1, sizeof(*w));
    const struct world_layout first = {SEARCHED, SEARCHED, 3};
    int rc = 0;
    *out = w;
    if (!w)
        return error_set(CKPT_ENOMEM, "planning ran out of host memory");
    w->m = m;
    for (int k = 0; k < WORLD_KINDS && !rc; k++) {
        rc = world_graph_new(g, (enum world_kind)k, &w->graphs[k]);
        if (rc)
            break;
        world_graph_resize(w->graphs[k], &first, m);
        rc = graph_check_seconds(world_graph(w->graphs[k]));
        rc = rc ? rc : frontier_build(world_graph(w->graphs[k]), &w->pfs[k]);
    }
    if (rc) {
        world_free(w);
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
                           struct world_step *step)
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
    *step = (struct world_step){.bytes = p->persistent + p->load,
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
        struct world_step step;
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

static int choose(const struct choice *c, struct world_step *step)
{
    int32_t last;
    int rc = last_within(c, &last);
    if (!rc && last < 0)
        return simulate_option(c, 0, 0, step);
    *step = (struct world_step){.seconds = INFINITY};
    for (int32_t i = max_i64(0, last - 2); i <= last && !rc; i++)
        for (int k = 0; k < COMM_LEADS && !rc; k++) {
            struct world_step other;
            rc = simulate_option(c, i, comm_leads[k], &other);
            if (!rc && other.fits && other.seconds < step->seconds)
                *step = other;
        }
    return rc;
}

int world_plan(struct world *w, const struct world_layout *l, int64_t device,
               struct world_step *step)
{
    enum world_kind kind = l->zero == 0 || l->ranks == 1 ? WORLD_WHOLE
                           : l->zero == 1                ? WORLD_STATE
                                                         : WORLD_SHARED;
    struct world_graph *of = w->graphs[kind];
    struct choice c = {
        .frontier = w->pfs[kind], .g = world_graph(of), .device = device, .keeps = l->zero == 2};
    world_graph_resize(of, l, w->m);
    program_sum(c.frontier->p);
    return choose(&c, step);
}
