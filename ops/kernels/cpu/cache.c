/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: copies rows into a cache, sample by sample. */
#include <string.h>
#include "cache.h"
#include "cpu.h"
#include "kernels.h"
#include "report.h"

int cpu_cache_append(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *cache = &a->in[CACHE].desc, *x = &a->in[CACHE_ROWS].desc;
    const int32_t *at = a->in[CACHE_AT].data;
    const int64_t size = ckpt_dtype_size(x->dtype), samples = x->shape[0], rows = x->shape[1];
    const int64_t row = desc_numel(x) / (samples * rows) * size;
    for (int64_t b = 0; b < samples; b++) {
        const int64_t last = at[b] + rows - 1;
        if (at[b] < 0 || last >= cache->shape[1])
            report_index(a, b, (int32_t)(at[b] < 0 ? at[b] : last), cache->shape[1]);
        else
            memcpy((char *)a->out[0].data + (b * cache->shape[1] + at[b]) * row,
                   (const char *)a->in[CACHE_ROWS].data + b * rows * row, (size_t)(rows * row));
    }
    return CKPT_OK;
}
