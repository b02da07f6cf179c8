/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the planner: the forward pass as a chain of blocks, and the choices for each of them. */
#ifndef CKPT_PLAN_CHAIN_H
#define CKPT_PLAN_CHAIN_H

#include "plan/search/search.h"

/* A stretch of the forward pass, ops [forward, forward_end), and the ops of the backward pass that
 * go down through it. */
struct block {
    int32_t forward, forward_end, backward, backward_end;
    int32_t class;   /* blocks of a class differ in nothing that a plan can see */
    int32_t storage; /* those that it may drop: chain.storages[storage ..] */
    int32_t n_storage;
    int64_t base; /* bytes alive in its backward ops that no choice in the chain changes */
};

/* The holds worth trying for a storage of a block: kept, held from when it is made again, held from
 * its own first use in the backward pass. */
enum { LEVEL_KEPT, LEVEL_DROPPED, LEVEL_LATE, LEVELS };
static inline int32_t level_hold(const struct program *p, int32_t s, int32_t level)
{
    const int32_t holds[LEVELS] = {HOLD_ALWAYS, p->g->n_body - 1, p->wanted_at[s]};
    return holds[level];
}

/* What a choice of holds in one block comes to. */
struct block_cost {
    int64_t ticks;             /* of recompute */
    int64_t kept;              /* bytes from its forward to its backward ops */
    int64_t forward, backward; /* most bytes of its own alive in either */
};

/* Plays one block with everything outside of it there. */
int simulate_block(struct simulator *m, const struct block *b, const int32_t *hold,
                   struct block_cost *cost);

/* The whole forward pass as a chain of blocks. */
struct chain {
    const struct program *p;
    struct block *blocks;
    int32_t n, n_classes;
    int32_t *storages; /* in the order of their writers */
    /* What runs again for the backward ops of a block is in it: whatever its storages hold, the
     * ticks of the others stay. */
    bool apart;
};
/* Blocks end at every n-th narrow cut, from the first-th on. */
int chain_build(const struct program *p, int32_t every, int32_t first, struct chain **c);
void chain_free(struct chain *c);

/* A choice of holds for the blocks of a class: per storage a level. */
struct choice {
    struct block_cost cost;
    uint8_t *level;
};
#define MOST_CHOICES 64
struct pareto_set {
    struct choice choices[MOST_CHOICES];
    int32_t n;
};
/* Finds the choices for one class; b is one of its blocks. */
int pareto_build(const struct chain *c, const struct block *b, struct simulator *sim, int64_t work,
                 struct pareto_set *f);
void pareto_free(struct pareto_set *f);

#endif
