/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A cache of frontiers.  A frontier depends on a graph but not on its names or the addresses of
 * persistent storages.  So two mirrored shapes share one, and so do a micro-batch size that was
 * tried and the same size once chosen.  A cached frontier gives the same plans as a new one.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/lattice.h"

#define KEPT 8 /* the most cached frontiers; the least recently used one is dropped */

/* Hashes of the inputs of a frontier; backings: of its lattice, with whether
 * updates may be deferred. */
struct key {
    uint64_t structure, times, backings;
};

struct kept {
    struct key key;
    struct frontier *frontier;
};

struct frontiers {
    /* Most recently used first; frontier is NULL in unused ones.  The last one has no search. */
    struct kept list[KEPT + 1];
};

static struct key key_of(const struct graph *g)
{
    struct key k = {graph_signature(g), HASH_START, HASH_START};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        k.times = hash_seconds(hash_seconds(k.times, o->seconds), o->comm_seconds);
        k.times = hash_seconds(k.times, o->contention_seconds);
        k.times = hash_mix(hash_mix(k.times, o->ranks), o->replicas);
    }
    k.backings = hash_mix(k.backings, g->in_turn);
    for (int32_t s = 0; s < g->n_storages; s++) {
        const struct graph_storage *t = &g->storages[s];
        k.times = hash_mix(k.times, graph_backing(t) != TIER_DEVICE);
        k.backings = hash_mix(hash_mix(k.backings, t->backing), t->backing_offset);
        k.backings = hash_mix(hash_mix(k.backings, t->crosses), t->crossing);
    }
    return k;
}

int frontiers_new(struct frontiers **all)
{
    *all = calloc(1, sizeof(**all));
    return *all ? 0 : CKPT_ENOMEM;
}

void frontiers_free(struct frontiers *all)
{
    for (int i = 0; all && i <= KEPT; i++)
        frontier_free(all->list[i].frontier);
    free(all);
}

/* Makes the frontier refer to g, which has the same key but for its backings. */
static void rebind(struct kept *k, const struct graph *g, const struct key *key)
{
    k->frontier->p->g = g;
    if (k->key.backings == key->backings)
        return;
    lattice_free(k->frontier->lattice);
    k->frontier->lattice = NULL;
    k->key.backings = key->backings;
}

static bool is_of(const struct kept *k, const struct key *key)
{
    return k->frontier && k->key.structure == key->structure && k->key.times == key->times;
}

/* The frontier of an entry, which is built if the entry is not for this graph. */
static int take(struct kept *k, const struct graph *g, const struct key *key,
                int (*build)(const struct graph *, struct frontier **), struct frontier **out)
{
    int rc = 0;
    if (is_of(k, key)) {
        rebind(k, g, key);
    } else {
        frontier_free(k->frontier);
        *k = (struct kept){.key = *key};
        rc = build(g, &k->frontier);
    }
    *out = k->frontier;
    return rc;
}

int frontiers_get_first(struct frontiers *all, const struct graph *g, struct frontier **out)
{
    const struct key key = key_of(g);
    return take(&all->list[KEPT], g, &key, frontier_build_first, out);
}

int frontiers_get(struct frontiers *all, const struct graph *g, struct frontier **out)
{
    const struct key key = key_of(g);
    int i = 0;
    while (i < KEPT - 1 && !is_of(&all->list[i], &key))
        i++;
    const struct kept k = all->list[i];
    memmove(all->list + 1, all->list, (size_t)i * sizeof(k));
    all->list[0] = k;
    return take(&all->list[0], g, &key, frontier_build, out);
}
