/* SPDX-License-Identifier: Apache-2.0 */
/* Batched matrix products: layout of the operands, and the batches that share a launch. */
#ifndef CKPT_OPS_MATMUL_H
#define CKPT_OPS_MATMUL_H

#include "loops.h"
#include "shapes/gemm.h"

struct matmul_attr {
    int32_t transpose_a, transpose_b;
    int32_t wide; /* 1: the result is fp32 */
};

/* One product, and loops over the batch axes of y, a and b in elements. */
struct matmul {
    struct gemm g;
    struct loops batch;
};

struct matmul matmul_of(const struct ckpt_desc *a, const struct ckpt_desc *b,
                        const struct ckpt_desc *y, const struct matmul_attr *attr);

/* Sets g to the product at position i of the batch, with the data pointers of y, a and b. */
void matmul_seek(const struct matmul *m, const struct ckpt_kernel_args *args, int axes, int64_t i,
                 struct gemm *g);

#endif
