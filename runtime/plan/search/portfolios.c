/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Portfolios that are kept for the next question about the same numbers.  A portfolio follows from
 * a graph without its names and without the places of what is persistent, so two shapes that are
 * each other's mirror image share one, and so do a size of micro-steps that was tried and the same
 * one chosen.  A kept portfolio gives the plans that a new one would.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/lattice.h"

#define KEPT 8 /* at most; the one that was not asked for the longest goes */

/* What a portfolio follows from, as hashes; homes: what its lattice does. */
struct key {
    uint64_t structure, times, homes;
};

struct kept {
    struct key key;
    struct portfolio *pf;
};

struct portfolios {
    struct kept list[KEPT]; /* the last asked for comes first */
    int n;
    struct kept first; /* not searched; pf is NULL where none was asked for */
};

static uint64_t mix_seconds(uint64_t h, double seconds)
{
    int64_t bits;
    memcpy(&bits, &seconds, sizeof(bits));
    return hash_mix(h, bits);
}

static bool is_away(const struct graph_storage *s)
{
    return s->home == HOME_HOST || s->home == HOME_NVME;
}

static struct key key_of(const struct graph *g)
{
    struct key k = {graph_signature(g), HASH_START, HASH_START};
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        k.times = mix_seconds(mix_seconds(k.times, o->seconds), o->comm_seconds);
        k.times = mix_seconds(k.times, o->drag_seconds);
        k.times = hash_mix(hash_mix(k.times, o->ranks), o->replicas);
    }
    for (int32_t s = 0; s < g->n_storages; s++) {
        const struct graph_storage *t = &g->storages[s];
        k.times = hash_mix(k.times, is_away(t));
        k.homes = hash_mix(hash_mix(k.homes, t->home), t->home_offset);
        k.homes = hash_mix(hash_mix(k.homes, t->crosses), t->crossing);
    }
    return k;
}

int portfolios_new(struct portfolios **all)
{
    *all = calloc(1, sizeof(**all));
    return *all ? 0 : CKPT_ENOMEM;
}

void portfolios_free(struct portfolios *all)
{
    for (int i = 0; all && i < all->n; i++)
        portfolio_free(all->list[i].pf);
    if (all)
        portfolio_free(all->first.pf);
    free(all);
}

/* Has it speak of g, whose numbers are those that it was made of. */
static void turn_to(struct kept *k, const struct graph *g, const struct key *key)
{
    k->pf->p->g = g;
    if (k->key.homes == key->homes)
        return;
    lattice_free(k->pf->lattice);
    k->pf->lattice = NULL;
    k->key.homes = key->homes;
}

static bool is_of(const struct kept *k, const struct key *key)
{
    return k->pf && k->key.structure == key->structure && k->key.times == key->times;
}

int portfolios_get_first(struct portfolios *all, const struct graph *g, struct portfolio **pf)
{
    const struct key key = key_of(g);
    struct kept *k = &all->first;
    if (is_of(k, &key)) {
        turn_to(k, g, &key);
    } else {
        portfolio_free(k->pf);
        *k = (struct kept){.key = key};
        int rc = portfolio_build_first(g, &k->pf);
        if (rc)
            return rc;
    }
    *pf = k->pf;
    return 0;
}

int portfolios_get(struct portfolios *all, const struct graph *g, struct portfolio **pf)
{
    const struct key key = key_of(g);
    struct kept k = {.key = key};
    int i = 0;
    while (i < all->n && !is_of(&all->list[i], &key))
        i++;
    if (i < all->n) {
        k = all->list[i];
        turn_to(&k, g, &key);
    } else {
        int rc = portfolio_build(g, &k.pf);
        if (rc)
            return rc;
        i = all->n < KEPT ? all->n++ : KEPT - 1;
        portfolio_free(all->list[i].pf); /* NULL where there was room */
    }
    memmove(all->list + 1, all->list, (size_t)i * sizeof(k));
    all->list[0] = k;
    *pf = k.pf;
    return 0;
}
