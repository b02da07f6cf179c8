/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: dequantize, CHUNK values at a time through an fp32 buffer. */
#include "attr.h"
#include "core/frozen.h"
#include "cpu.h"
#include "kernels.h"

enum { CHUNK = 16 * FROZEN_BLOCK };

int cpu_dequantize(const struct ckpt_kernel_args *a)
{
    const struct dequantize_attr *attr = a->attr;
    const struct ckpt_desc *out = &a->out[0].desc;
    const int64_t n = desc_numel(out), size = ckpt_dtype_size(out->dtype);
#pragma omp parallel for schedule(static) if (n > 32768)
    for (int64_t at = 0; at < n; at += CHUNK) {
        float value[CHUNK];
        const int64_t count = min_i64(CHUNK, n - at);
        frozen_decode(a->in[0].data, n, attr->format, at, count, value);
        cpu_store((char *)a->out[0].data + at * size, value, out->dtype, count);
    }
    return CKPT_OK;
}
