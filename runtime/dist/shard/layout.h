/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How parameters lie across ranks.  The trained parameters of a block, those of one dtype, stand
 * one behind the other in a flat bucket; the bucket is cut into as many equal shares as there are
 * ranks, whatever the sizes: a tensor may cross shares, and the end of the last one is padding.
 */
#ifndef CKPT_LAYOUT_H
#define CKPT_LAYOUT_H

#include "core/base.h"

enum {
    LAYOUT_ALIGN = 64, /* elements: where tensors and shares begin */
    LAYOUT_PARTS = 60, /* tensors of one bucket at most */
    LAYOUT_FROZEN = -2 /* the group of a parameter that no rank trains */
};

struct layout_param {
    const char *name; /* "blocks.3.mlp.weight" belongs to the block "blocks.3" */
    enum ckpt_dtype dtype;
    int64_t numel;
    bool trainable; /* others are not sharded */
    int32_t group;  /* of the optimizer: a bucket has those of one */
};

/* Where a parameter stands. */
struct layout_place {
    int32_t bucket;        /* -1: nowhere, every rank has all of it */
    int64_t offset, numel; /* in elements of the bucket */
    int32_t first_owner,
        owner; /* its elements are in the shares of these ranks and those between */
};

struct layout_bucket {
    char name[96]; /* "blocks.3", "blocks.3 (bf16)" */
    enum ckpt_dtype dtype;
    int64_t numel;  /* up to the end of the last tensor */
    int64_t share;  /* elements of each rank */
    int64_t padded; /* share times the number of ranks */
    int32_t first;  /* its parameters stand in layout->order from here */
    int32_t n;
};

struct layout {
    int32_t world, n_params, n_buckets;
    struct layout_bucket *buckets;
    struct layout_place *places; /* per parameter */
    int32_t *order;              /* parameters, bucket by bucket */
};

/* Parameters in the order of their creation.  Returns 0 or CKPT_ENOMEM. */
int layout_make(struct layout **l, const struct layout_param *params, int32_t n, int32_t world);
void layout_free(struct layout *l);

/* The elements of a parameter in the share of a rank: from `at` in the parameter and from
 * `in_share` in the share.  Returns how many, maybe 0. */
int64_t layout_part(const struct layout *l, int32_t param, int32_t rank, int64_t *at,
                    int64_t *in_share);

/* Of everything above: the same on all ranks that train the same. */
uint64_t layout_signature(const struct layout *l);

#endif
