/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of linear layers: y = x w^T + b, the gradients of x and w, and GELU and gates behind. */
#include "attr.h"
#include "cpu.h"
#include "fp8.h"
#include "gemm.h"
#include "kernels.h"
#include "kernels/parts.h"
#include "shapes/linear.h"
#include "workspace.h"

static int run(struct gemm *g, const struct ckpt_kernel_args *a)
{
    g->a.data = a->in[0].data;
    g->b.data = a->in[1].data;
    g->c = a->out[0].data;
    gemm_run(g, a->workspace);
    return CKPT_OK;
}

int cpu_linear(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_gemm(&a->in[0].desc, &a->in[1].desc);
    g.bias = a->in[2].data;
    g.addend = a->n_in > 3 ? a->in[3].data : NULL;
    return run(&g, a);
}

int cpu_linear_dx(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dx_gemm(&a->in[0].desc, &a->in[1].desc);
    g.addend = a->in[2].data;
    return run(&g, a);
}

int cpu_linear_dw(const struct ckpt_kernel_args *a)
{
    struct gemm g = linear_dw_gemm(&a->in[0].desc, &a->in[1].desc, a->out[0].desc.dtype);
    g.accumulate = a->accumulate;
    return run(&g, a);
}

/* ---- GELU epilogues -------------------------------------------------------------------------- */

int cpu_linear_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {.product = cpu_linear, .gelu = cpu_gelu};
    return linear_gelu_by_parts(a, &parts);
}

int cpu_linear_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {
        .product = cpu_linear_dx, .gelu = cpu_gelu, .dx = cpu_gelu_dx, .pre = 2};
    return linear_dx_gelu_by_parts(a, &parts);
}

int cpu_linear_fp8_dx_gelu(const struct ckpt_kernel_args *a)
{
    static const struct linear_gelu_parts parts = {
        .product = cpu_linear_fp8_dx, .gelu = cpu_gelu, .dx = cpu_gelu_dx, .pre = FP8_DX_PRE};
    return linear_dx_gelu_by_parts(a, &parts);
}

/* ---- gate epilogues -------------------------------------------------------------------------- */

int cpu_linear_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear, .silu = cpu_silu, .mul = cpu_mul};
    return linear_gated_by_parts(a, &parts);
}

int cpu_linear_dx_gated(const struct ckpt_kernel_args *a)
{
    static const struct linear_gated_parts parts = {
        .product = cpu_linear_dx, .silu = cpu_silu, .mul = cpu_mul, .silu_dx = cpu_silu_dx};
    return linear_dx_gated_by_parts(a, &parts);
}
