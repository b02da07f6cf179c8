/* SPDX-License-Identifier: Apache-2.0 */
/* Products of row groups: which rows a group has, and its product. */
#ifndef CKPT_OPS_GROUPED_MATMUL_H
#define CKPT_OPS_GROUPED_MATMUL_H

#include "core/base.h"
#include "shapes/gemm.h"

struct grouped_attr {
    int32_t transpose_w; /* w is [groups, N, K] */
};

/*
 * Group g has the rows from the largest of the offsets before it to the largest up to its own, each
 * of them cut to [0, rows]: whatever the offsets, groups are in order and no row is beyond.
 */
static inline int64_t grouped_end(int64_t begin, int32_t offset, int64_t rows)
{
    return max_i64(begin, min_i64(offset, rows));
}

/* y = x w, of all rows with one group's w. */
static inline struct gemm grouped_gemm(const struct ckpt_desc *x, const struct ckpt_desc *y,
                                       bool transpose_w)
{
    return (struct gemm){.rows = x->shape[0],
                         .cols = y->shape[1],
                         .inner = x->shape[1],
                         .a = {.dtype = x->dtype},
                         .b = {.dtype = x->dtype, .transposed = transpose_w},
                         .c_dtype = y->dtype};
}

#endif
