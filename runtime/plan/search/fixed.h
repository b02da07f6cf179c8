/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: storages that no retention interval affects.  A storage that is never dropped
 * and that no rerunnable op uses is resident from its first to its last op under all retention
 * intervals, and one that is carried for the whole body.  It is fixed: the simulation only adds its
 * bytes, precomputed per op.
 */
#ifndef CKPT_PLAN_FIXED_H
#define CKPT_PLAN_FIXED_H

#include "plan/search/chain.h"

/* An op with its storages that are not fixed: refs[refs ..], reads before writes. */
struct variable_op {
    int64_t ticks, workspace;
    int32_t refs, n_reads, n_writes;
    bool strays; /* it writes several storages: a rerun needs room for unneeded ones, too */
};

struct fixed {
    const struct program *p;
    bool *is;                /* per storage */
    struct variable_op *ops; /* per op */
    int32_t *refs;
    int32_t *met, round; /* per storage: the last round that counted it */
};

/* Bytes of fixed storages per op: allocated before it, and freed after it. */
struct baseline {
    int64_t *rise, *fall;
};

/* Their arrays are in pool m.  Return 0 or CKPT_ENOMEM. */
int fixed_build(const struct program *p, struct pool *m, struct fixed *y);
int baseline_new(const struct program *p, struct pool *m, struct baseline *t);

/* Whether s is fixed and used; sets its first and last op. */
bool fixed_stay(const struct fixed *y, int32_t s, int32_t *first, int32_t *last);
/* The baseline of the whole program. */
void baseline_of_program(const struct fixed *y, struct baseline *t);
/* The baseline of a block alone: storages count from their first to their last op in the block. */
void baseline_of_block(struct fixed *y, const struct block *b, struct baseline *t);

#endif
