/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of parameters across ranks.  The trained parameters of a block with one dtype are
 * concatenated in a flat bucket.  The bucket is cut into as many equal shares as there are ranks,
 * regardless of tensor sizes: a tensor may span shares, and the last share ends with padding.
 */
#ifndef CKPT_LAYOUT_H
#define CKPT_LAYOUT_H

#include "core/base.h"

enum {
    LAYOUT_ALIGN = 64, /* alignment of tensors and shares, elements */
    LAYOUT_PARTS = 60, /* largest number of tensors in a bucket */
    LAYOUT_FROZEN = -2 /* group of a parameter that no rank trains */
};

struct layout_param {
    const char *name; /* "blocks.3.mlp.weight" belongs to the block "blocks.3" */
    enum ckpt_dtype dtype;
    int64_t numel;
    bool trainable; /* other parameters are not sharded */
    int32_t group;  /* optimizer group: a bucket holds one group */
    int32_t stage;  /* of a pipeline: a bucket holds parameters of one */
    int32_t ranks;  /* of a split parameter, those that have this part; numel is that of the part;
                       0: all ranks have the whole */
};

/* Position of a parameter. */
struct layout_place {
    int32_t bucket;             /* -1: none, every rank has the whole parameter */
    int64_t offset, numel;      /* in elements of the bucket */
    int32_t first_owner, owner; /* its elements are in the shares of ranks first_owner to owner */
};

struct layout_bucket {
    char name[96]; /* "blocks.3", "blocks.3 (bf16)" */
    enum ckpt_dtype dtype;
    int64_t numel;  /* end of the last tensor */
    int64_t share;  /* elements per rank */
    int64_t padded; /* share times the number of ranks */
    int32_t ranks;  /* that share it: all, or those with the same parts of split parameters */
    int32_t first;  /* first of its parameters in layout->order */
    int32_t n;
};

struct layout {
    int32_t world, n_params, n_buckets;
    struct layout_bucket *buckets;
    struct layout_place *places; /* per parameter */
    int32_t *order;              /* parameters sorted by bucket */
};

/* Parameters in order of creation.  Returns 0 or CKPT_ENOMEM. */
int layout_make(struct layout **l, const struct layout_param *params, int32_t n, int32_t world);
void layout_free(struct layout *l);

/* The elements of a parameter, or of a part, in the share of a rank, by its place among those that
 * share the bucket: from *at in the parameter and from *in_share in the share.  Returns their
 * number, which may be 0. */
int64_t layout_part(const struct layout *l, int32_t param, int32_t rank, int64_t *at,
                    int64_t *in_share);

/* Signature of the layout: equal on all ranks that train the same model. */
uint64_t layout_signature(const struct layout *l);

#endif
