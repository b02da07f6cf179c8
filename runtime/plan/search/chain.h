/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: the forward pass as a chain of blocks, and the choices for each of them. */
#ifndef CKPT_PLAN_CHAIN_H
#define CKPT_PLAN_CHAIN_H

#include "plan/search/search.h"

/* Ops [forward, forward_end) of the forward pass and their part of the backward pass. */
struct block {
    int32_t forward, forward_end, backward, backward_end;
    int32_t class;   /* blocks of a class are equal for the planner */
    int32_t storage; /* the storages that it may drop: chain.storages[storage ..] */
    int32_t n_storage;
    int64_t base; /* bytes alive in its backward ops under all choices of the chain */
};

/* The retention intervals tried for a storage of a block: always kept; kept from its recompute on;
 * kept from its first use in the backward pass on. */
enum { LEVEL_KEPT, LEVEL_DROPPED, LEVEL_LATE, LEVELS };
static inline int32_t level_retention(const struct program *p, int32_t s, int32_t level)
{
    const int32_t retention[LEVELS] = {RETAIN_ALWAYS, p->g->n_body - 1, p->wanted_at[s]};
    return retention[level];
}

/* The cost of one block under some retention intervals. */
struct block_cost {
    int64_t ticks;             /* of recompute */
    int64_t kept;              /* bytes kept from its forward to its backward ops */
    int64_t forward, backward; /* the peak of its own bytes in either pass */
};

/* Simulates one block with all storages of other blocks resident. */
int simulate_block(struct simulator *m, const struct block *b, const int32_t *retention,
                   struct block_cost *cost);

/* The whole forward pass as a chain of blocks. */
struct chain {
    const struct program *p;
    struct block *blocks;
    int32_t n, n_classes;
    int32_t *storages; /* in the order of their writers */
};
/* Blocks end at every every-th narrow cut, starting with number first. */
int chain_build(const struct program *p, int32_t every, int32_t first, struct pool *m,
                struct chain *c);

/* Retention intervals for the blocks of a class: one level per storage. */
struct choice {
    struct block_cost cost;
    uint8_t *level;
};
#define MOST_CHOICES 64
struct pareto_set {
    struct choice choices[MOST_CHOICES];
    int32_t n;
};
/* Finds the Pareto set of the class of block b; levels are in pool m. */
int pareto_build(const struct chain *c, const struct block *b, struct simulator *sim, int64_t work,
                 struct pool *m, struct pareto_set *f);

#endif
