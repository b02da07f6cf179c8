/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel: randn. */
#include "kernels.h"
#include "map.h"
#include "core/random.h"

#define CHUNK 4096

/*
 * The stream is the number of the op, in the half of all streams that ckpt.h reserves for the
 * library.  Values are numbered over the whole batch, sample by sample, so the noise of a sample
 * does not depend on the micro-batch size.
 */
int cpu_randn(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *y = &a->out[0];
    struct random_stream s = {a->run->seed, (uint64_t)a->run->step, (uint32_t)a->number | 1u << 31};
    int64_t n = desc_numel(&y->desc), before = a->run->micro * n;
    int64_t size = ckpt_dtype_size(y->desc.dtype);
#pragma omp parallel for schedule(static) if (loops_parallel(n))
    for (int64_t i = 0; i < n; i += CHUNK) {
        float some[CHUNK];
        int64_t m = min_i64(CHUNK, n - i);
        random_normal(&s, before + i, some, m);
        cpu_store((char *)y->data + i * size, some, y->desc.dtype, m);
    }
    return CKPT_OK;
}
