/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of updates.  The host runs them in the order of the steps, and the next forward pass
 * waits for each value.  So they are sorted by the first use of their value, the order of earliest
 * deadlines, which minimizes lateness.  Updates of which none uses what another one writes may be
 * reordered freely; the numbers stay the same.
 */
#include <stdlib.h>
#include "plan/offload/transfer.h"

struct updates {
    const struct graph *g;
    struct plan *p;
    int32_t *first, *last;  /* per storage: the first step that uses it; the last reader in a run */
    int32_t *writer;        /* per storage: the last step so far that writes it, or -1 */
    struct place_key *keys; /* for sorting */
};

/* Whether a step is an update that may move: it writes persistent storages only and has no
 * workspace. */
static bool is_update(const struct updates *u, int32_t k)
{
    const struct graph_op *o = &u->g->ops[u->p->steps[k].op];
    bool persistent = !o->workspace;
    for (int32_t j = 0; j < o->n_writes; j++)
        persistent &= u->g->storages[u->g->refs[o->writes + j]].persistent;
    return persistent && graph_op_updates(u->g, o);
}

/* Whether no step of [from, to) uses what another one writes. */
static bool are_apart(struct updates *u, int32_t from, int32_t to)
{
    bool apart = true;
    for (int32_t k = from; k < to; k++) {
        const struct graph_op *o = &u->g->ops[u->p->steps[k].op];
        for (int32_t j = 0; j < o->n_writes; j++) {
            int32_t *writer = &u->writer[u->g->refs[o->writes + j]];
            apart &= *writer < from;
            *writer = k;
        }
    }
    for (int32_t k = from; k < to; k++) {
        const struct graph_op *o = &u->g->ops[u->p->steps[k].op];
        for (int32_t j = 0; j < o->n_reads; j++) {
            int32_t writer = u->writer[u->g->refs[o->reads + j]];
            apart &= writer < from || writer == k;
        }
    }
    return apart;
}

static int32_t first_use(const struct updates *u, const struct graph_op *o)
{
    int32_t first = INT32_MAX;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t use = u->first[u->g->refs[o->writes + j]];
        first = use < first ? use : first;
    }
    return first;
}

static void sort_run(struct updates *u, int32_t from, int32_t to)
{
    for (int32_t k = from; k < to; k++) {
        int32_t op = u->p->steps[k].op;
        u->keys[k - from] = (struct place_key){first_use(u, &u->g->ops[op]), 0, op};
    }
    place_sort_keys(u->keys, to - from);
    for (int32_t k = from; k < to; k++)
        u->p->steps[k].op = u->keys[k - from].item;
}

/* Ends the residences of gradients with the last update that reads them.  A residence that no
 * update of the run reads serves a collective under way, and stays as it is. */
static void end_residences(struct updates *u, int32_t from, int32_t to)
{
    for (int32_t k = from; k < to; k++) {
        const struct graph_op *o = &u->g->ops[u->p->steps[k].op];
        for (int32_t j = 0; j < o->n_reads; j++)
            u->last[u->g->refs[o->reads + j]] = k;
    }
    for (int32_t i = 0; i < u->p->n_residences; i++) {
        struct residence *t = &u->p->residences[i];
        if (t->last >= from && t->last < to && u->last[t->storage] >= from)
            t->last = u->last[t->storage];
    }
}

static void find_first(struct updates *u)
{
    for (int32_t k = u->p->n_steps - 1; k >= 0; k--) {
        const struct graph_op *o = &u->g->ops[u->p->steps[k].op];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            u->first[graph_ref(u->g, o, j)] = k;
    }
}

int updates_sort(const struct graph *g, struct plan *p)
{
    struct pool m = {NULL, false};
    struct updates u = {.g = g, .p = p};
    u.first = pool_filled(&m, g->n_storages, 0);
    u.last = pool_filled(&m, g->n_storages, -1);
    u.writer = pool_filled(&m, g->n_storages, -1);
    POOL_ARRAY(&m, u.keys, p->n_steps - p->n_body);
    if (!m.failed)
        find_first(&u);
    for (int32_t from = p->n_body, to; from < p->n_steps && !m.failed; from = to + 1) {
        for (to = from; to < p->n_steps && is_update(&u, to); to++)
            ;
        if (to - from > 1 && are_apart(&u, from, to)) {
            sort_run(&u, from, to);
            end_residences(&u, from, to);
        }
    }
    int rc = pool_status(&m);
    pool_free(&m);
    return rc;
}
