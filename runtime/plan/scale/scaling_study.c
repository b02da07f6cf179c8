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
 *
 * Of a pipeline each stage has a graph, and a plan for each layout; the clock of pipelines
 * (pipeline.c) makes a step of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/scale/scaling_study.h"
#include "plan/scale/scaling_graph.h"

/* One graph: the only one, or that of a stage. */
struct part {
    struct scaling_graph *graphs[SCALING_KINDS]; /* NULL: one pipeline, which shares nothing */
    struct frontier *kept[SCALING_KINDS];        /* keeps everything; NULL: not needed so far */
    struct frontier *searched[SCALING_KINDS];
};

struct scaling_study {
    const struct machine *m;
    struct part *parts;
    int32_t n;
};

/* The layout that schedules are searched for; those of other layouts are close. */
#define SEARCHED 8

static struct scaling_layout searched_for(const struct graph *g)
{
    const int32_t ranks = SEARCHED * (g->pipeline.stages ? g->pipeline.stages : 1);
    return (struct scaling_layout){ranks, ranks, 3};
}

static void free_part(struct part *p)
{
    for (int k = 0; k < SCALING_KINDS; k++) {
        frontier_free(p->kept[k]);
        frontier_free(p->searched[k]);
        scaling_graph_free(p->graphs[k]);
    }
}

void scaling_study_free(struct scaling_study *w)
{
    if (!w)
        return;
    for (int32_t i = 0; i < w->n && w->parts; i++)
        free_part(&w->parts[i]);
    free(w->parts);
    free(w);
}

static int open_part(const struct graph *g, const struct machine *m, struct part *p)
{
    const int kinds = g->pipeline.pipelines == 1 ? SCALING_WHOLE + 1 : SCALING_KINDS;
    const struct scaling_layout first = searched_for(g);
    int rc = 0;
    for (int k = 0; k < kinds && !rc; k++) {
        rc = scaling_graph_new(g, (enum scaling_kind)k, &p->graphs[k]);
        if (rc)
            break;
        scaling_graph_resize(p->graphs[k], &first, m);
        rc = graph_check_seconds(scaling_graph(p->graphs[k]));
    }
    return rc;
}

int scaling_study_open_stages(struct graph *const *g, int32_t n, const struct machine *m,
                              struct scaling_study **out)
{
    struct scaling_study *w = calloc(1, sizeof(*w));
    *out = w;
    if (w)
        *w = (struct scaling_study){m, calloc((size_t)n, sizeof(*w->parts)), n};
    int rc = w && w->parts ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < n && !rc; i++)
        rc = open_part(g[i], m, &w->parts[i]);
    if (rc) {
        scaling_study_free(w);
        *out = NULL;
    }
    return rc == CKPT_ENOMEM ? error_set(rc, "planning ran out of host memory") : rc;
}

int scaling_study_open(struct graph *g, const struct machine *m, struct scaling_study **w)
{
    return scaling_study_open_stages(&g, 1, m, w);
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
    if (c->g->pipeline.stages)
        step->stage = stage_seconds(c->g, p);
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

/* Of this frontier, which is built if it is not there. */
static int plan_of(const struct scaling_study *w, struct scaling_graph *of, struct frontier **f,
                   int (*build)(const struct graph *, struct frontier **),
                   const struct scaling_layout *l, int64_t device, struct scaling_step *step)
{
    struct choice c = {.g = scaling_graph(of), .device = device, .keeps = l->zero == 2};
    const struct scaling_layout first = searched_for(c.g);
    if (!*f) {
        scaling_graph_resize(of, &first, w->m);
        const int rc = build(c.g, f);
        if (rc)
            return rc;
    }
    c.frontier = *f;
    scaling_graph_resize(of, l, w->m);
    program_sum(c.frontier->p);
    return choose(&c, step);
}

/* A stage has the ops of all micro-steps, which take long to search: only if not all fits. */
static int plan_part(const struct scaling_study *w, struct part *p, const struct scaling_layout *l,
                     int64_t device, struct scaling_step *step)
{
    const enum scaling_kind kind = l->zero == 0 || l->ranks == 1 ? SCALING_WHOLE
                                   : l->zero == 1                ? SCALING_STATE
                                                                 : SCALING_SHARED;
    struct scaling_graph *of = p->graphs[kind];
    step->fits = false;
    if (scaling_graph(of)->pipeline.stages) {
        const int rc = plan_of(w, of, &p->kept[kind], frontier_build_first, l, device, step);
        if (rc || step->fits)
            return rc;
    }
    return plan_of(w, of, &p->searched[kind], frontier_build, l, device, step);
}

/* Adds a stage of n to the step of all. */
static void add_stage(struct scaling_step *all, const struct scaling_step *s, int32_t n)
{
    all->fits &= s->fits;
    all->bytes = max_i64(all->bytes, s->bytes);
    all->compute += s->compute / n;
    all->recompute += s->recompute / n;
    all->comm += s->comm / n;
}

static int plan_pipeline(const struct scaling_study *w, const struct scaling_layout *l,
                         int64_t device, struct scaling_step *all)
{
    struct stage_seconds *time = calloc((size_t)w->n, sizeof(*time));
    int rc = time ? 0 : CKPT_ENOMEM;
    *all = (struct scaling_step){.fits = true};
    for (int32_t i = 0; i < w->n && !rc; i++) {
        struct scaling_step s;
        rc = plan_part(w, &w->parts[i], l, device, &s);
        if (rc)
            break;
        time[i] = s.stage;
        add_stage(all, &s, w->n);
    }
    if (!rc) {
        const struct graph *g = scaling_graph(w->parts->graphs[SCALING_WHOLE]);
        all->seconds = pipeline_seconds(time, w->n, g->pipeline.unrolled);
        all->exposed = plan_waiting(all->seconds, all->compute + all->recompute);
        rc = isnan(all->seconds) ? CKPT_ENOMEM : 0;
    }
    free(time);
    return rc;
}

int scaling_study_plan(struct scaling_study *w, const struct scaling_layout *l, int64_t device,
                       struct scaling_step *step)
{
    return w->n > 1 ? plan_pipeline(w, l, device, step) : plan_part(w, w->parts, l, device, step);
}
