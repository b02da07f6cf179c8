/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks share parameters and their state, as far as recording a program depends on it.  Set
 * when ranks join and with the first program; constant afterwards.
 */
#ifndef CKPT_SHARING_H
#define CKPT_SHARING_H

#include "dist/shard/layout.h"

struct sharing {
    int ranks;       /* in the job; 1: single rank */
    int group_ranks; /* ranks that share one copy of the model: all ranks, or the ranks of each host
                      */
    int replicas;    /* number of such copies */
    int replica, place; /* this rank's replica, and its share of that replica */
    int zero; /* ZeRO stage. 0: every rank has everything; 1: all values, a share of the state; 2: a
                 share of values, gathered once per step; 3: gathered when needed */
    bool drop_after_forward; /* stage 3: free gathered values after forward even if memory would
                                allow keeping them */
    int sequence;            /* ranks that split the tokens of their samples; below 2: none */
    int sequence_place;      /* of this rank among those */
    struct layout *layout;   /* of the parameters, from the first compile on; NULL: single rank */
};

/* Groups of ranks that have samples of their own, and the one of this rank in the job. */
static inline int sharing_sample_groups(const struct sharing *s)
{
    return s->sequence > 1 ? s->ranks / s->sequence : s->ranks;
}

static inline int sharing_sample_group(const struct sharing *s, int rank)
{
    return s->sequence > 1 ? rank / s->sequence : rank;
}

#endif
