/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of calls that the tables of all devices need: sizes, products, scratch of kernels that
 * divide their work alike everywhere. */
#ifndef CKPT_KERNELS_COMMON_H
#define CKPT_KERNELS_COMMON_H

#include <math.h>
#include "attr.h"
#include "fold.h"
#include "fp8.h"
#include "perceptual.h"
#include "quantize.h"
#include "shapes/linear.h"

static inline int64_t columns_of(const struct ckpt_desc *x)
{
    return x->shape[x->ndim - 1];
}

static inline struct gemm gemm_of_linear(const struct ckpt_call *call)
{
    return linear_gemm(&call->in[0], &call->in[1]);
}

static inline struct gemm gemm_of_dx(const struct ckpt_call *call)
{
    return linear_dx_gemm(&call->in[0], &call->in[1]);
}

static inline struct gemm gemm_of_dw(const struct ckpt_call *call)
{
    return linear_dw_gemm(&call->in[0], &call->in[1], call->out[0].dtype);
}

/* The product of 8-bit operands a and a + 2; their scales follow each. */
static inline struct gemm gemm_of_fp8(const struct ckpt_call *call, int a)
{
    struct ckpt_view in[4];
    for (int i = 0; i < 4; i++)
        in[i] = (struct ckpt_view){.desc = call->in[a + i]};
    return fp8_gemm(in, call->out[0].dtype);
}

/* A partial sum in double for each chunk. */
static inline int64_t chunk_bytes(int64_t chunks)
{
    return chunks * (int64_t)sizeof(double);
}

static inline int64_t fold_bytes(const struct ckpt_call *call)
{
    const struct fold_shape s = fold_shape_of(&call->in[0], call->attr);
    return fold_workspace(&s);
}

/* A loss for each row. */
static inline int64_t cross_entropy_bytes(const struct ckpt_call *call)
{
    return chunk_bytes(call->out[1].shape[0]);
}

/* Per row the loss and two floats, then two counts. */
static inline int64_t cross_entropy_both_bytes(const struct ckpt_call *call)
{
    enum { LABEL = 2 };
    return chunk_bytes(2 * (desc_numel(&call->in[LABEL]) + 1));
}

static inline int64_t distance_bytes(const struct ckpt_call *call)
{
    return chunk_bytes(distance_chunks(linear_rows(&call->in[0])));
}

static inline int64_t quantize_bytes(const struct ckpt_call *call)
{
    return chunk_bytes(quantize_chunks(desc_numel(&call->out[1])));
}

#endif
