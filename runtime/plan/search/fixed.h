/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the planner: what a simulation need not look at.  A storage that is never dropped and that
 * no op touches that may run again is there from its first to its last op, whatever the holds are:
 * it is fixed, and only its bytes count.
 */
#ifndef CKPT_PLAN_FIXED_H
#define CKPT_PLAN_FIXED_H

#include "plan/search/chain.h"

/* The storages of an op that are not fixed: refs[refs ..], those that it reads first. */
struct loose_op {
    int32_t refs, n_reads, n_writes;
};

struct fixed {
    const struct program *p;
    bool *is;             /* per storage */
    struct loose_op *ops; /* per op */
    int32_t *refs;
    int32_t *carried, n_carried; /* storages that are so, and used, but not fixed */
    int32_t *met, round;         /* per storage: the last round that met it */
};

/* Bytes of fixed storages, per op: those that come with it and those that go behind it. */
struct baseline {
    int64_t *rise, *fall;
};

int fixed_build(const struct program *p, struct fixed *y);
void fixed_free(struct fixed *y);
int baseline_new(const struct program *p, struct baseline *t);
void baseline_free(struct baseline *t);

/* Whether it is there at all, and then the ops at which it comes and behind which it goes. */
bool fixed_stay(const struct fixed *y, int32_t s, int32_t *first, int32_t *last);
/* Of the whole program. */
void baseline_of_program(const struct fixed *y, struct baseline *t);
/* Of a block alone: from the first to the last of its ops that uses a storage. */
void baseline_of_block(struct fixed *y, const struct block *b, struct baseline *t);

#endif
