/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: moving_average.  Compiled without fused multiply-add, so that CUDA gives the same
 * bits. */
#include "attr.h"
#include "cpu.h"
#include "kernels.h"

static void average(float *after, const float *before, const struct ckpt_view *x, float momentum)
{
    const float *value = x->data, keep = 1.f - momentum;
    int64_t n = desc_numel(&x->desc), step = desc_step(&x->desc);
    for (int64_t i = 0; i < n; i++)
        after[i] = keep * before[i] + momentum * value[i * step];
}

int cpu_moving_average(const struct ckpt_kernel_args *a)
{
    const struct moving_average_attr *attr = a->attr;
    const struct ckpt_view *buffer = a->in + a->n_out, *x = buffer + a->n_out;
    for (int k = 0; k < a->n_out; k++)
        average(a->out[k].data, a->accumulate ? a->out[k].data : buffer[k].data, &x[k],
                attr->momentum);
    return CKPT_OK;
}
