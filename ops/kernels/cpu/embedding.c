/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timestep embedding.  Angles reach 1,000, where fp32 resolves only 6e-5, so they are computed in
 * double; the result is rounded once.
 */
#include "embedding.h"
#include "kernels.h"
#include "rows.h"

static void embed(float x, const struct timestep_attr *attr, char *y, bool half)
{
    int64_t n = attr->dim / 2;
    double log_period = log((double)attr->max_period);
    for (int64_t i = 0; i < n; i++) {
        double angle = (double)x * exp(-log_period * (double)i / (double)n);
        row_put(y, i, (float)cos(angle), half);
        row_put(y, n + i, (float)sin(angle), half);
    }
}

int cpu_timestep_embedding(const struct ckpt_kernel_args *a)
{
    const struct timestep_attr *attr = a->attr;
    const float *x = a->in[0].data;
    char *y = a->out[0].data;
    bool half = view_half(&a->out[0]);
    int64_t row = attr->dim * ckpt_dtype_size(a->out[0].desc.dtype);
    for (int64_t b = 0; b < a->in[0].desc.shape[0]; b++)
        embed(x[b], attr, y + b * row, half);
    return CKPT_OK;
}
