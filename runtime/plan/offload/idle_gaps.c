/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the gaps in which storages idle long enough to be offloaded: optimizer state from one
 * update to the next, parameters from the forward to the backward pass and from there to the
 * update, activations from the forward to the backward pass.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

#define MIN_OFFLOADED (INT64_C(1) << 20) /* smaller copies are dominated by latency */

/* The time at which each step starts if none waits, and last the end of the step. */
static void find_starts(const struct graph *g, const struct plan *p, double *start)
{
    for (int32_t k = 0; k < p->n_steps; k++)
        start[k + 1] = start[k] + g->ops[p->steps[k].op].seconds;
}

/* Two consecutive uses. */
struct idle {
    int32_t from, to;
};

/* Per storage: the state of the scan over the steps. */
struct scanned {
    int32_t used;        /* the last step that used it, or -1 */
    int32_t first;       /* the first step that used it, or -1 */
    int32_t written;     /* the first step that writes it, or -1 */
    int32_t wrote;       /* the last step so far that writes it, or -1 */
    int32_t residence;   /* the last of its residences that began, or -1 */
    struct idle longest; /* the longest gap in the body within one residence */
    int32_t within;      /* the residence of the longest gap */
};

struct scan {
    const struct graph *g;
    const struct plan *p;
    double *start;
    double rate; /* of copies in */
    struct scanned *at;
    LIST(struct idle_gap) list;
    int32_t n;
    struct pool *memory; /* of the list */
};

/* Adds a gap of storage s, with the other members of `a`. */
static void add(struct scan *w, int32_t s, struct idle at, struct idle_gap a)
{
    a.storage = s;
    a.group = -1;
    a.out_step = at.from;
    a.use_step = at.to;
    a.bytes = w->g->storages[s].bytes;
    if (!POOL_RESERVE(w->memory, &w->list, w->n))
        w->list.data[w->n++] = a;
}

static bool may_leave(const struct graph_storage *t)
{
    if (t->persistent)
        return graph_backing(t) != TIER_DEVICE ||
               (t->backing == BACKING_ANY && t->bytes >= MIN_OFFLOADED);
    return (t->kind == KIND_ACTIVATION || t->kind == KIND_INPUT) && !t->carried &&
           t->bytes >= MIN_OFFLOADED;
}

/* A gap of a persistent storage between two uses: kept if the copies fit into its time. */
static void scan_idle(struct scan *w, int32_t s, int32_t from, int32_t to)
{
    const struct graph_storage *t = &w->g->storages[s];
    bool needed = w->g->n_micro > 1 && from < w->p->n_body && to >= w->p->n_body;
    bool dirty = w->at[s].written >= 0 && w->at[s].written <= from;
    double seconds = to > from + 1 ? w->start[to] - w->start[from + 1] : 0;
    /* A gradient in the address range of its value may be offloaded until the norm is known. */
    if (dirty && (w->at[s].wrote != from || from >= w->p->n_body || to < w->p->n_body || needed))
        return;
    if (needed || seconds * w->rate >= (dirty ? 2 : 1) * (double)t->bytes)
        add(w, s, (struct idle){from, to},
            (struct idle_gap){
                .residence = -1, .needed = needed, .gradient = dirty, .clean = !dirty});
}

static void scan_use(struct scan *w, int32_t s, int32_t step, bool writes)
{
    struct scanned *i = &w->at[s];
    const struct graph_storage *t = &w->g->storages[s];
    bool inside = i->residence >= 0 && w->p->residences[i->residence].last >= step &&
                  w->p->residences[i->residence].first <= i->used;
    if (t->persistent && may_leave(t) && i->used >= 0 && i->used < step)
        scan_idle(w, s, i->used, step);
    if (i->used >= 0 && inside && step < w->p->n_body &&
        step - i->used > i->longest.to - i->longest.from) {
        i->longest = (struct idle){i->used, step};
        i->within = i->residence;
    }
    if (i->first < 0)
        i->first = step;
    if (writes && i->written < 0)
        i->written = step;
    if (writes)
        i->wrote = step;
    i->used = step;
}

static void scan_steps(struct scan *w)
{
    const struct graph *g = w->g;
    const struct plan *p = w->p;
    for (int32_t s = 0; s < g->n_storages; s++)
        w->at[s] = (struct scanned){-1, -1, -1, -1, -1, {0, 0}, -1};
    for (int32_t k = 0, n = 0; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        for (; n < p->n_residences && p->residences[n].first == k; n++)
            if (p->residences[n].storage >= 0)
                w->at[p->residences[n].storage].residence = n;
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            scan_use(w, graph_ref(g, o, j), k, j >= o->n_reads);
    }
}

/* Adds the gap around the end of the step, or the longest gap of an activation. */
static void finish_storage(struct scan *w, int32_t s)
{
    const struct graph_storage *t = &w->g->storages[s];
    const struct scanned *i = &w->at[s];
    if (!may_leave(t) || i->used < 0)
        return;
    if (t->persistent) {
        add(w, s, (struct idle){i->used, i->first},
            (struct idle_gap){.residence = -1,
                              .wraps = true,
                              .state = i->first >= w->p->n_body,
                              .needed = true,
                              .clean = i->written < 0});
        return;
    }
    if (i->within >= 0 && i->longest.to > i->longest.from + 1)
        add(w, s, i->longest, (struct idle_gap){.residence = i->within});
}

/* Removes storages that the body writes in each of several micro-steps: a copy in a tier would
 * become stale. */
static void drop_stale(struct scan *w)
{
    int32_t n = 0;
    for (int32_t i = 0; i < w->n; i++) {
        struct idle_gap *a = &w->list.data[i];
        const struct graph_storage *t = &w->g->storages[a->storage];
        int32_t written = w->at[a->storage].written;
        a->forced = a->needed && t->backing != BACKING_ANY;
        if (a->residence >= 0 || written < 0 || written >= w->p->n_body || w->g->n_micro == 1)
            w->list.data[n++] = *a;
    }
    w->n = n;
}

/* Sorts by storage, then by out_step. */
static void sort_gaps(struct scan *w, struct pool *scratch)
{
    struct idle_gap *before = pool_array(scratch, w->n, sizeof(*before));
    struct place_key *keys = pool_array(scratch, w->n, sizeof(*keys));
    for (int32_t i = 0; i < w->n && !scratch->failed; i++) {
        before[i] = w->list.data[i];
        keys[i] = (struct place_key){before[i].storage, before[i].out_step, i};
    }
    if (scratch->failed)
        return;
    place_sort_keys(keys, w->n);
    for (int32_t i = 0; i < w->n; i++)
        w->list.data[i] = before[keys[i].item];
}

int idle_gaps_find(const struct graph *g, const struct machine *m, const struct plan *p,
                   struct pool *memory, struct idle_gap **list, int32_t *n)
{
    struct pool scratch = {NULL, false};
    struct scan w = {.g = g, .p = p, .rate = m->h2d_both, .memory = memory};
    POOL_ARRAY(&scratch, w.at, g->n_storages);
    POOL_ARRAY(&scratch, w.start, p->n_steps);
    bool good = !scratch.failed && !POOL_RESERVE(memory, &w.list, 0);
    if (good) {
        find_starts(g, p, w.start);
        scan_steps(&w);
    }
    for (int32_t s = 0; s < g->n_storages && good; s++)
        finish_storage(&w, s);
    if (good) {
        drop_stale(&w);
        sort_gaps(&w, &scratch);
        good = !scratch.failed;
    }
    pool_free(&scratch);
    *list = w.list.data;
    *n = w.n;
    return good ? pool_status(memory) : CKPT_ENOMEM;
}
