/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlap of collectives with compute.  A gather overlaps if its output has room while steps before
 * its first reader run; a reduction, if its input stays while later steps run.  Both need memory,
 * so the frontier gets options with no overlap and with more (frontier_overlap).
 *
 * Collectives share one queue.  In the backward pass a bucket is reduced where its last gradient is
 * computed, just before the gather for the previous block is rerun.  That gather must run first, so
 * it is moved.  A gather of the forward pass keeps its position; only its residence begins earlier.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"

/* A gather, and the step where it should begin. */
struct gather {
    int32_t step, residence, begin;
};

/* Nothing is offloaded yet, so the clock needs no rates. */
static const struct machine no_tiers;

struct overlap {
    const struct graph *g;
    struct plan *p;
    double lead;
    double *time; /* per step, and for the end: the start time if no step waits */
    struct gather *gathers;
    int32_t n;
    int32_t *floor; /* per residence: the step after the previous residence of its storage */
    int32_t *place; /* per step: its new index */
};

/* ---- gathers --------------------------------------------------------------------------------- */

/* The first step after k that reads the residence. */
static int32_t first_reader(const struct overlap *v, int32_t k, const struct residence *i)
{
    int32_t r = k + 1;
    while (r < i->last && !graph_op_reads(v->g, &v->g->ops[v->p->steps[r].op], i->storage))
        r++;
    return r;
}

/* Whether o is a gather of a persistent input, which is readable at any time. */
static bool may_begin_early(const struct overlap *v, const struct graph_op *o)
{
    const struct graph_storage *in = &v->g->storages[v->g->refs[o->reads]];
    return o->collective == GRAPH_ALL_GATHER && in->persistent;
}

static void list_gathers(struct overlap *v)
{
    const struct plan *p = v->p;
    for (int32_t n = 0; n < p->n_residences; n++) {
        const struct residence *i = &p->residences[n];
        const struct graph_op *o = &v->g->ops[p->steps[i->first].op];
        if (i->storage >= 0 && may_begin_early(v, o) && v->g->refs[o->writes] == i->storage &&
            i->last > i->first)
            v->gathers[v->n++] = (struct gather){i->first, n, i->first};
    }
}

static void set_floors(struct overlap *v, int32_t *last)
{
    const struct plan *p = v->p;
    for (int32_t n = 0; n < p->n_residences; n++) {
        const struct residence *i = &p->residences[n];
        if (i->storage < 0)
            continue;
        v->floor[n] = last[i->storage] + 1;
        last[i->storage] = i->last;
    }
}

/* The last step in least, ..., k that starts by time; least if none does. */
static int32_t step_at(const struct overlap *v, double time, int32_t k, int32_t least)
{
    while (k > least && v->time[k] > time)
        k--;
    return k;
}

/* Sets the latest begins with which no gather is late, from the last gather to the first.
 * Residences, and so gathers, are in the order of their steps. */
static void set_begins(struct overlap *v)
{
    double next = INFINITY;
    for (int32_t n = v->n - 1; n >= 0; n--) {
        struct gather *a = &v->gathers[n];
        const struct residence *i = &v->p->residences[a->residence];
        int32_t body = v->p->n_body;
        int32_t least = max_i64(v->floor[a->residence], a->step >= body ? body : 0);
        double use = v->time[first_reader(v, a->step, i)];
        double seconds = v->g->ops[v->p->steps[a->step].op].comm_seconds;
        next = fmin(use, next) - v->lead * seconds;
        a->begin = step_at(v, next, a->step, least);
    }
}

/* ---- the new order --------------------------------------------------------------------------- */

/* Moves rerun gathers right before the step where they begin. */
static void set_places(struct overlap *v)
{
    const struct plan *p = v->p;
    int32_t at = 0, n = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        v->place[k] = -1;
    for (int32_t k = 0; k < p->n_steps; k++) {
        for (; n < v->n && v->gathers[n].begin <= k; n++)
            if (p->steps[v->gathers[n].step].again)
                v->place[v->gathers[n].step] = at++;
        if (v->place[k] < 0)
            v->place[k] = at++;
    }
}

static void move_residence(const struct overlap *v, struct residence *i)
{
    if (i->storage < 0)
        i->storage = -1 - v->place[-1 - i->storage];
    i->first = v->place[i->first];
    i->last = v->place[i->last];
}

static int reorder(struct overlap *v)
{
    struct plan *p = v->p;
    struct plan_step *steps = malloc(((size_t)p->n_steps + 1) * sizeof(*steps));
    if (!steps)
        return CKPT_ENOMEM;
    set_places(v);
    for (int32_t k = 0; k < p->n_steps; k++)
        steps[v->place[k]] = p->steps[k];
    free(p->steps);
    p->steps = steps;
    for (int32_t n = 0; n < v->n; n++)
        if (!steps[v->place[v->gathers[n].step]].again)
            p->residences[v->gathers[n].residence].first = v->gathers[n].begin;
    for (int32_t n = 0; n < p->n_residences; n++)
        move_residence(v, &p->residences[n]);
    return plan_sort(p);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Whether the residence ends with a collective that reads it. */
static bool ends_with_collective(const struct overlap *v, const struct residence *i)
{
    const struct graph_op *o = &v->g->ops[v->p->steps[i->last].op];
    return i->storage >= 0 && o->collective && graph_op_reads(v->g, o, i->storage);
}

/* Keeps the inputs of collectives until these end, by a clock in which all inputs stay. */
static int keep_inputs(struct overlap *v)
{
    struct plan *p = v->p;
    struct plan_clock c;
    int32_t *until = v->place; /* per residence: the step of the collective, or -1 */
    for (int32_t n = 0; n < p->n_residences; n++) {
        struct residence *i = &p->residences[n];
        until[n] = ends_with_collective(v, i) ? i->last : -1;
        if (until[n] >= 0)
            i->last = (i->last < p->n_body ? p->n_body : p->n_steps) - 1;
    }
    int rc = plan_clock(v->g, &no_tiers, p, &c);
    for (int32_t k = 0; k < p->n_steps && !rc; k++)
        v->time[k] = c.steps[k].start;
    for (int32_t n = 0; n < p->n_residences && !rc; n++)
        if (until[n] >= 0)
            p->residences[n].last =
                step_at(v, c.steps[until[n]].end, p->residences[n].last, until[n]);
    if (!rc)
        plan_clock_free(&c);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void start_times(struct overlap *v)
{
    double now = 0;
    for (int32_t k = 0; k < v->p->n_steps; k++) {
        v->time[k] = now;
        now += compute_seconds(&v->g->ops[v->p->steps[k].op]);
    }
    v->time[v->p->n_steps] = now;
}

static int arrange(struct overlap *v)
{
    const struct plan *p = v->p;
    struct pool m = {NULL, false};
    int64_t n = max_i64(p->n_residences, p->n_steps);
    int32_t *last = pool_filled(&m, v->g->n_storages, -1);
    POOL_ARRAY(&m, v->time, n);
    POOL_ARRAY(&m, v->gathers, n);
    POOL_ARRAY(&m, v->floor, n);
    POOL_ARRAY(&m, v->place, n);
    int rc = pool_status(&m);
    if (!rc) {
        start_times(v);
        list_gathers(v);
        set_floors(v, last);
        set_begins(v);
        rc = reorder(v);
    }
    if (!rc)
        rc = keep_inputs(v);
    if (!rc)
        rc = plan_measure(v->g, v->p);
    pool_free(&m);
    return rc;
}

int comm_overlap(const struct graph *g, double lead, struct plan *p)
{
    struct overlap v = {.g = g, .p = p, .lead = lead};
    if (!graph_has_collectives(g))
        return 0;
    int rc = lead > 0 ? arrange(&v) : 0;
    return rc ? rc : plan_reprice(g, &no_tiers, p);
}

/* ---- options --------------------------------------------------------------------------------- */

const double comm_leads[COMM_LEADS] = {0, 1, 1.5, 3};

/* The plan of an option with a lead. */
static int plan_with(struct frontier *f, const struct option *o, double lead, struct plan **p)
{
    struct option with = *o;
    with.lead = lead;
    return option_steps(f, &with, p);
}

static int offer(struct frontier *f, const struct option *o, double lead)
{
    struct plan *p;
    int rc = plan_with(f, o, lead, &p);
    if (rc)
        return rc;
    if (p->seconds >= f->floor)
        rc = frontier_keep(f, o->retention, p->load, p->seconds, lead);
    plan_free(p);
    return rc;
}

int frontier_overlap(struct frontier *f)
{
    struct option *before = f->options.data;
    int32_t n = f->n;
    int rc = 0;
    if (!graph_has_collectives(f->p->g))
        return 0;
    f->options.data = NULL;
    f->options.capacity = f->n = 0;
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < COMM_LEADS && !rc; k++)
            rc = offer(f, &before[i], comm_leads[k]);
        free(before[i].retention);
    }
    free(before);
    return rc;
}

int frontier_set_floor(struct frontier *f)
{
    if (!graph_has_collectives(f->p->g))
        return 0;
    f->floor = INFINITY;
    for (int k = 0; k < COMM_LEADS; k++) {
        struct plan *p;
        int rc = plan_with(f, f->options.data, comm_leads[k], &p);
        if (rc)
            return rc;
        f->floor = fmin(f->floor, p->seconds);
        plan_free(p);
    }
    return 0;
}
