/* SPDX-License-Identifier: Apache-2.0 */
/* The products of linear layers: which operand is transposed. */
#include "core/base.h"
#include "shapes/linear.h"

int64_t linear_rows(const struct ckpt_desc *x)
{
    int64_t rows = 1;
    for (int i = 0; i < x->ndim - 1; i++)
        rows *= x->shape[i];
    return rows;
}

struct gemm linear_gemm(const struct ckpt_desc *x, const struct ckpt_desc *w)
{
    return (struct gemm){.rows = linear_rows(x),
                         .cols = w->shape[0],
                         .inner = w->shape[1],
                         .a = {.dtype = x->dtype},
                         .b = {.dtype = w->dtype, .transposed = true},
                         .c_dtype = x->dtype};
}

struct gemm linear_dx_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *w)
{
    return (struct gemm){.rows = linear_rows(dy),
                         .cols = w->shape[1],
                         .inner = w->shape[0],
                         .a = {.dtype = dy->dtype},
                         .b = {.dtype = w->dtype},
                         .c_dtype = w->dtype};
}

struct gemm linear_dw_gemm(const struct ckpt_desc *dy, const struct ckpt_desc *x,
                           enum ckpt_dtype dtype)
{
    return (struct gemm){.rows = dy->shape[dy->ndim - 1],
                         .cols = x->shape[x->ndim - 1],
                         .inner = linear_rows(x),
                         .a = {.dtype = dy->dtype, .transposed = true},
                         .b = {.dtype = x->dtype},
                         .c_dtype = dtype};
}

static struct gemm_operand fp8_operand(const struct ckpt_view *in, bool transposed)
{
    return (struct gemm_operand){.data = in[0].data,
                                 .dtype = in[0].desc.dtype,
                                 .transposed = transposed,
                                 .scale = in[1].data};
}

struct gemm fp8_gemm(const struct ckpt_view *in, enum ckpt_dtype dtype)
{
    const struct ckpt_desc *a = &in[0].desc, *b = &in[2].desc;
    return (struct gemm){.rows = linear_rows(a),
                         .cols = b->shape[0],
                         .inner = b->shape[1],
                         .a = fp8_operand(in, false),
                         .b = fp8_operand(in + 2, true),
                         .c_dtype = dtype};
}
