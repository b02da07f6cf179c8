/* SPDX-License-Identifier: Apache-2.0 */
/* Linear layers: y = x w^T + b and the gradients of x and w as products of cuBLASLt. */
#include "cpu/linear.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"

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
