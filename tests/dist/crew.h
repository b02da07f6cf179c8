/* SPDX-License-Identifier: Apache-2.0 */
/* Trains the small transformer of tests/exec/tiny.h by several ranks that are threads. */
#ifndef TESTS_DIST_CREW_H
#define TESTS_DIST_CREW_H

#include "dist/comm/linked.h"
#include "exec/tiny.h"

enum { CREW_MOST = 4, CREW_STEPS = 8 };

struct crew {
    int ranks, zero;
    int per_host;      /* they say that so many are on each host, or on fewer; 0: all are on one */
    bool in_turns;     /* and fill hosts one rank each, again and again */
    struct tiny model; /* batch: of all ranks together */
    struct ckpt_options options;
    struct ckpt_adamw adamw;
    ckpt_optimizer *(*optimizer)(ckpt *c, const struct ckpt_adamw *adamw); /* NULL: adamw */
    double deadline;         /* of steps; 0: that of the options */
    struct comm_fault fault; /* of rank faulty */
    int faulty;
    const char *load, *save; /* files: read after the compile, written at the end; or NULL */
    const char *load_state, *save_state; /* the same of states of training */
    int steps;                           /* 0: CREW_STEPS */
    bool in_full; /* see ckpt_plan_in_full: without it no result tells the smallest budget */
    void (*look)(const ckpt_program *p, void *user); /* at the program of rank 0; or NULL */
    void *user;
    /* Faults of ranks. */
    const struct crew *other; /* what rank faulty has in place of all this; or NULL */
    int64_t nan_step;         /* rank faulty is fed a NaN in this step */
    int halt;                 /* it gets this signal in the middle of the steps */
    int flip_step, flip_slot; /* a bit of its first bucket flips behind this step, in a slot */
    int set_step;             /* a parameter of it is set to other values behind this step */
    int lr_step;              /* its learning rate is another from this step on */
};

struct crew_result {
    int rc[CREW_MOST];
    char message[CREW_MOST][1024];
    float loss[CREW_MOST][CREW_STEPS];
    double norm[CREW_MOST][CREW_STEPS];
    float *values[CREW_MOST], *ema[CREW_MOST]; /* all parameters, as each rank gets them */
    int64_t numel;
    struct ckpt_program_info info[CREW_MOST];
    /* Of rank 0's plan. */
    uint64_t order;            /* of all that it runs */
    int group_ranks;           /* ranks that share one copy */
    int64_t taken[CREW_MOST];  /* of the arena, by each rank */
    uint64_t calls[CREW_MOST]; /* the collectives that each rank hands over, in their order */
    int32_t n_buckets;
    int32_t gathers;       /* all_gathers of a step, those that run again included */
    int64_t left;          /* transient bytes that the backward pass leaves to the update */
    int64_t narrow_shares; /* bytes of bf16 gradients of this rank's shares */
    int64_t shares;  /* bytes of fp32 gradients: of this rank's shares, of whole buckets, of */
    int64_t buckets; /* parameters, each storage rounded up */
    int64_t gradients;
    char table[4096];
    int64_t least; /* transient bytes under the smallest budget */
};

/* A crew of one trains alone, without a communicator. */
void crew_train(const struct crew *crew, struct crew_result *r);
/* The work of one rank in its own context. */
int crew_member(const struct crew *crew, ckpt *c, int rank, struct crew_result *r);
/* A crew on 12 samples of 5 x 12 numbers; no powers of two, so that shares cross tensors. */
struct crew crew_small(int ranks, int zero, int64_t micro);
/* A digest of everything that must not depend on the transport. */
uint64_t crew_digest(const struct crew_result *r);
void crew_free(struct crew_result *r);

/* The same bits in losses, norms, values and EMA on all ranks of both? */
bool crew_same(const struct crew_result *a, int a_ranks, const struct crew_result *b, int b_ranks);
/* The largest relative difference of a loss, or of the values as vectors if that is larger. */
double crew_distance(const struct crew_result *a, const struct crew_result *b);

#endif
