/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How ranks share parameters and their state, as far as recording a program depends on it.  Set
 * when ranks join and with the first program; constant afterwards.
 */
#ifndef CKPT_SHARING_H
#define CKPT_SHARING_H

#include "dist/shard/layout.h"

/* What a cut into stages has to respect of the rank of a stage. */
struct stage_limit {
    double speed; /* as a share of the fastest rank's */
    int64_t most; /* bytes of parameters that it may get */
};

/* Ops of the recording that a stage was planned with, and whether a plan fits its rank. */
struct stage_try {
    int32_t stage, from, to;
    bool fits;
};

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
    int tensor;              /* ranks that have a part each of split parameters; below 2: none */
    int stages;              /* of a pipeline, each a rank; below 2: none.  A rank then has the
                                parameters of its stage, and group_ranks counts the pipelines, whose
                                ranks of one stage share these; of one pipeline zero is 0, and there
                                is no layout */
    int stage;               /* of this rank */
    bool unlike;             /* some stages compute on GPUs, the others on CPUs */
    const struct stage_limit *limits; /* of each stage; the same on all ranks */
    const struct stage_try *tries;    /* of all stages, by earlier cuts; the same on all ranks */
    int32_t n_tries;
    struct layout *layout; /* of the parameters, from the first compile on, or once stages are cut;
                              NULL: single rank */
};

/* Ranks that have the same samples. */
static inline int sharing_sample_ranks(const struct sharing *s)
{
    const int n = s->stages > 1 ? s->stages : s->sequence > 1 ? s->sequence : s->tensor;
    return n > 1 ? n : 1;
}

/* Ranks that compute a loss each: a step takes the mean of these. */
static inline int sharing_losses(const struct sharing *s)
{
    return s->ranks < 1 ? 1 : s->stages > 1 ? s->ranks / s->stages : s->ranks;
}

/* Whether several pipelines run at once; their ranks of one stage share its parameters. */
static inline bool sharing_has_pipelines(const struct sharing *s)
{
    return s->stages > 1 && s->ranks > s->stages;
}

/* Whether so many ranks can share parameters so if each is one of so many stages: those of a stage
 * share them over all pipelines. */
static inline bool sharing_stages_may(int64_t ranks, int64_t stages, int64_t zero, bool in_hosts)
{
    return !in_hosts && (zero == 0 || ranks > stages);
}

/* Ranks from one to the next of those with the same part of the model, be it a stage or parts of
 * split parameters. */
static inline int sharing_stride(const struct sharing *s)
{
    return s->stages > 1 ? s->stages : s->tensor > 1 ? s->tensor : 1;
}

/* Groups of ranks that have samples of their own, and the one of this rank in the job. */
static inline int sharing_sample_groups(const struct sharing *s)
{
    return s->ranks / sharing_sample_ranks(s);
}

static inline int sharing_sample_group(const struct sharing *s, int rank)
{
    return rank / sharing_sample_ranks(s);
}

/* Whether the ranks have parts of the parameters of a bucket, and which part a rank has. */
static inline bool sharing_is_split(const struct sharing *s, const struct layout_bucket *b)
{
    return s->tensor > 1 && b->ranks < s->ranks;
}

static inline int sharing_part(const struct sharing *s, const struct layout_bucket *b, int rank)
{
    return sharing_is_split(s, b) ? rank % s->tensor : 0;
}

/* The place of this rank among those that share a bucket. */
static inline int sharing_place(const struct sharing *s, const struct layout_bucket *b)
{
    return sharing_is_split(s, b) ? s->place / s->tensor : s->place;
}

#endif
