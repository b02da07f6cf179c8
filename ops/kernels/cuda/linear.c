/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: y = x w^T + b and the gradients of x and w, as products by cuBLASLt of the
 * operands or of their 8-bit copies.  Products with GELU or a gate in their epilogue, on Hopper,
 * use libckpt's kernels. */
#include "attr.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/gemm_gated.h"
#include "kernels/cuda/gemm_gelu.h"
#include "kernels/cuda/kernels.h"
#include "kernels/parts.h"
#include "shapes/linear.h"
#include "fp8.h"

static int run(struct gemm *g, const struct ckpt_kernel_args *a)
{
    g->a.data = a->in[0].data;
    g->b.data = a->in[1].data;
    g->c = a->out[0].data;
    return cuda_gemm(a, g);
}

int cuda_linear(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    g.bias = a->in[2].data;
    g.addend = a->n_in > 3 ? a->in[3].data : NULL;
    return run(&g, a);
}

int cuda_linear_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    g.addend = a->in[2].data;
    return run(&g, a);
}

int cuda_linear_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dw_gemm(&a->in[0].desc, &a->in[1].desc, a->out[0].desc.dtype);
    g.accumulate = a->accumulate;
    return run(&g, a);
}

/* ---- with GELU in the epilogue --------------------------------------------------------------- */

int cuda_linear_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {.product = cuda_linear, .gelu = cuda_gelu};
    const struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    if (!cuda_gemm_gelu_takes(g.rows, g.inner, g.cols))
        return linear_gelu_by_parts(a, &parts);
    const struct gemm_gelu own = {.rows = g.rows,
                                  .inner = g.inner,
                                  .cols = g.cols,
                                  .x = a->in[0].data,
                                  .w = a->in[1].data,
                                  .bias = a->in[2].data,
                                  .pre = a->out[0].data,
                                  .post = a->out[1].data};
    return cuda_gemm_gelu(&own, a->stream);
}

int cuda_linear_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {
        .product = cuda_linear_dx, .gelu = cuda_gelu, .dx = cuda_gelu_dx, .pre = 2};
    const struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    if (!cuda_gemm_gelu_takes(g.rows, g.inner, g.cols))
        return linear_dx_gelu_by_parts(a, &parts);
    const struct gemm_gelu_dx own = {.rows = g.rows,
                                     .inner = g.inner,
                                     .cols = g.cols,
                                     .dy = a->in[0].data,
                                     .w = a->in[1].data,
                                     .pre = a->in[2].data,
                                     .dpre = a->out[0].data,
                                     .sums = extra_output(a, EXTRA_SUMS),
                                     .post = extra_output(a, EXTRA_GELU),
                                     .workspace = a->workspace};
    return cuda_gemm_gelu_dx(&own, a->stream);
}

/* ---- with a gate in the epilogue ------------------------------------------------------------- */

int cuda_linear_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cuda_linear, .silu = cuda_silu, .mul = cuda_mul};
    const struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    if (!cuda_gemm_gated_takes(g.rows, g.inner, g.cols))
        return linear_gated_by_parts(a, &parts);
    const struct gemm_gated own = {.rows = g.rows,
                                   .inner = g.inner,
                                   .cols = g.cols,
                                   .x = a->in[0].data,
                                   .wg = a->in[1].data,
                                   .wu = a->in[2].data,
                                   .gate = a->out[0].data,
                                   .up = a->out[1].data,
                                   .h = a->out[2].data};
    return cuda_gemm_gated(&own, a->stream);
}

int cuda_linear_dx_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cuda_linear_dx, .silu = cuda_silu, .mul = cuda_mul, .silu_dx = cuda_silu_dx};
    const struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    if (!cuda_gemm_gated_takes(g.rows, g.inner, g.cols))
        return linear_dx_gated_by_parts(a, &parts);
    const struct gemm_gated_dx own = {.rows = g.rows,
                                      .inner = g.inner,
                                      .cols = g.cols,
                                      .dy = a->in[0].data,
                                      .w = a->in[1].data,
                                      .gate = a->in[2].data,
                                      .up = a->in[3].data,
                                      .dgate = a->out[0].data,
                                      .dup = a->out[1].data,
                                      .h = a->n_out > 2 ? a->out[2].data : NULL};
    return cuda_gemm_gated_dx(&own, a->stream);
}

/* ---- of 8-bit copies ------------------------------------------------------------------------- */

/* The product for y or dx, which sums over channels. */
static struct gemm channel_gemm(const struct ckpt_view *in, const struct ckpt_kernel_args *a)
{
    struct gemm g = fp8_gemm(in, a->out[0].desc.dtype);
    g.c = a->out[0].data;
    g.short_sums = g.inner <= FP8_SHORT_SUMS;
    return g;
}

/* Finds the largest magnitude of GELU of the result, in a separate pass. */
static int find_gelu(const struct ckpt_kernel_args *a)
{
    static const struct to_fp8_largest_attr attr = {FP8_GELU};
    struct ckpt_kernel_args find = *a;
    find.in = &a->out[0];
    find.out = &a->out[1];
    find.n_in = find.n_out = 1;
    find.extra = 0;
    find.attr = &attr;
    return cuda_to_fp8_largest(&find);
}

/* The product if the largest magnitude of GELU of its result is requested: fused on Hopper. */
static int run_before_gelu(const struct ckpt_kernel_args *a, const struct gemm *g)
{
    const struct gemm_gelu own = {
        .rows = g->rows,
        .inner = g->inner,
        .cols = g->cols,
        .x = g->a.data,
        .w = g->b.data,
        .bias = g->bias,
        .pre = g->c,
        .fp8 = {.scale = {g->a.scale, g->b.scale}, .largest = a->out[1].data}};
    if (cuda_gemm_gelu_takes(g->rows, g->inner, g->cols))
        return cuda_gemm_gelu(&own, a->stream);
    const int rc = cuda_gemm(a, g);
    return rc ? rc : find_gelu(a);
}

int cuda_linear_fp8(const struct ckpt_kernel_args *a)
{
    struct gemm g = channel_gemm(a->in + FP8_QX, a);
    g.bias = a->in[FP8_BIAS].data;
    g.addend = a->in[FP8_ADDEND].data;
    return a->extra ? run_before_gelu(a, &g) : cuda_gemm(a, &g);
}

int cuda_linear_fp8_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = channel_gemm(a->in, a);
    g.addend = a->in[4].data;
    return cuda_gemm(a, &g);
}

int cuda_linear_fp8_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {
        .product = cuda_linear_fp8_dx, .gelu = cuda_gelu, .dx = cuda_gelu_dx, .pre = FP8_DX_PRE};
    const struct gemm g = channel_gemm(a->in, a);
    if (!cuda_gemm_gelu_takes(g.rows, g.inner, g.cols))
        return linear_dx_gelu_by_parts(a, &parts);
    const struct gemm_gelu_dx own = {
        .rows = g.rows,
        .inner = g.inner,
        .cols = g.cols,
        .dy = g.a.data,
        .w = g.b.data,
        .pre = a->in[FP8_DX_PRE].data,
        .dpre = g.c,
        .sums = extra_output(a, EXTRA_SUMS),
        .workspace = a->workspace,
        .fp8 = {.scale = {g.a.scale, g.b.scale}, .largest = extra_output(a, EXTRA_LARGEST)}};
    return cuda_gemm_gelu_dx(&own, a->stream);
}

/* dw sums over all rows, too many for accumulators of 14 bits. */
int cuda_linear_fp8_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = fp8_gemm(a->in, a->out[0].desc.dtype);
    g.c = a->out[0].data;
    g.accumulate = a->accumulate;
    return cuda_gemm(a, &g);
}
