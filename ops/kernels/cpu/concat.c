/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: concat.  Each operand is dense; its rows interleave in the result. */
#include "cpu.h"
#include "kernels.h"

int cpu_concat(const struct ckpt_kernel_args *a)
{
    int axis = *(const int *)a->attr;
    const struct ckpt_desc *out = &a->out[0].desc;
    int64_t outer = 1, element = ckpt_dtype_size(out->dtype), at = 0;
    for (int i = 0; i < axis; i++)
        outer *= out->shape[i];
    int64_t row = desc_numel(out) / outer * element;
    for (int i = 0; i < a->n_in; i++) {
        int64_t part = desc_numel(&a->in[i].desc) / outer * element;
        const char *src = a->in[i].data;
        char *dst = (char *)a->out[0].data + at;
#pragma omp parallel for schedule(static) if (outer * part > 65536)
        for (int64_t r = 0; r < outer; r++)
            memcpy(dst + r * row, src + r * part, (size_t)part);
        at += part;
    }
    return 0;
}
