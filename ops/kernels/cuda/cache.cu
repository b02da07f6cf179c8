/* SPDX-License-Identifier: Apache-2.0 */
/* Appends rows to a cache.  A sample's rows are contiguous there; each thread block copies a part
 * of them. */
#include "cache.h"
#include "core/base.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/report.cuh"

template <typename W>
static __global__ void __launch_bounds__(256)
    append(char *cache, const char *x, const int32_t *at, int64_t samples, int64_t rows,
           int64_t size, int64_t row, const __grid_constant__ struct index_reporter reporter)
{
    const int64_t words = rows * row / (int64_t)sizeof(W);
    for (int64_t b = blockIdx.y; b < samples; b += gridDim.y) {
        const int64_t first = at[b];
        if (first < 0 || first + rows > size) {
            if (blockIdx.x == 0 && threadIdx.x == 0)
                report_index(reporter, b, (int32_t)(first < 0 ? first : first + rows - 1));
            continue;
        }
        W *to = reinterpret_cast<W *>(cache + (b * size + first) * row);
        const W *from = reinterpret_cast<const W *>(x + b * rows * row);
        for (int64_t i = blockIdx.x * 256ll + threadIdx.x; i < words; i += gridDim.x * 256ll)
            to[i] = from[i];
    }
}

int cuda_cache_append(const struct ckpt_kernel_args *a)
{
    const struct ckpt_desc *x = &a->in[CACHE_ROWS].desc;
    const int64_t samples = x->shape[0], rows = x->shape[1], size = a->in[CACHE].desc.shape[1];
    const int64_t row = desc_numel(x) / (samples * rows) * ckpt_dtype_size(x->dtype);
    const bool wide =
        row % 16 == 0 && aligned16(a->out[0].data) && aligned16(a->in[CACHE_ROWS].data);
    const int64_t words = rows * row / (wide ? 16 : 2);
    const dim3 grid((unsigned)min_i64(1024, (words + 255) / 256),
                    (unsigned)min_i64(65535, samples));
    const struct index_reporter reporter = index_reporter_of(a, size);
    auto kernel = wide ? append<uint4> : append<uint16_t>;
    kernel<<<grid, 256, 0, stream_of(a)>>>(
        static_cast<char *>(a->out[0].data), static_cast<const char *>(a->in[CACHE_ROWS].data),
        static_cast<const int32_t *>(a->in[CACHE_AT].data), samples, rows, size, row, reporter);
    return launched();
}
