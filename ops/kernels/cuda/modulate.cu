/* SPDX-License-Identifier: Apache-2.0 */
/* x (1 + scale) + shift and x + gate a (see ops/modulate.c). */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"

/* Operands: in[0], in[1], in[2] (x, shift, scale or x, gate, a) and the result. */
template <bool GATE> __device__ __forceinline__ float joined(float x, float v, float w)
{
    return GATE ? x + v * w : x * (1.f + w) + v;
}

/* One warp per row; it loads up to PIECES pieces a lane of all operands before it computes. */
template <typename T, bool GATE>
static __global__ void __launch_bounds__(32 * WARPS)
    modulate_rows(const __grid_constant__ struct rows r, int64_t n, uint32_t *to)
{
    constexpr int N = piece<T>::n;
    largest<T> amax(to);
    int lane = threadIdx.x & 31;
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    for (; row < r.count; row += (int64_t)gridDim.x * WARPS) {
        char *at[4];
        rows_seek(r, row, at);
        for (int64_t first = 0; first < n; first += 32 * PIECES) {
            int left = n - first < 32 * PIECES ? (int)(n - first) : 32 * PIECES;
            piece<T> x[PIECES], v[PIECES], w[PIECES];
            row_load<T, 32>(x, at[0] + first * 16, lane, left);
            row_load<T, 32>(w, at[2] + first * 16, lane, left);
            row_load<T, 32>(v, at[1] + first * 16, lane, left);
#pragma unroll
            for (int i = 0; i < PIECES; i++) {
                float y[N];
#pragma unroll
                for (int j = 0; j < N; j++)
                    y[j] = joined<GATE>(x[i].at(j), v[i].at(j), w[i].at(j));
                if (lane + 32 * i < left)
                    piece_store<T>(at[3] + first * 16, lane + 32 * i, y, amax);
            }
        }
    }
    leave_largest(to, amax);
}

/* Rows of any width and alignment: one warp per row, one element at a time. */
template <bool GATE>
static __global__ void __launch_bounds__(32 * WARPS)
    modulate_elements(const __grid_constant__ struct rows r, int64_t c, bool half, uint32_t *to)
{
    largest<float> amax(to);
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    for (; row < r.count; row += (int64_t)gridDim.x * WARPS) {
        char *at[4];
        rows_seek(r, row, at);
        for (int64_t j = threadIdx.x & 31; j < c; j += 32)
            row_put(at[3], j,
                    joined<GATE>(row_get(at[0], j, half), row_get(at[1], j, half),
                                 row_get(at[2], j, half)),
                    half, amax);
    }
    leave_largest(to, amax);
}

template <bool GATE> static int modulate(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    int64_t c = row_width(x);
    uint32_t *to = largest_begin(a);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[1]);
    rows_operand(&r, &a->in[2]);
    rows_operand(&r, &a->out[0]);
    rows_finish(&r);
    unsigned grid = grid_for(r.count, WARPS);
    if (!rows_in_pieces(&r, r.n, c, view_half(x)))
        modulate_elements<GATE><<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, c, view_half(x), to);
    else if (view_half(x))
        modulate_rows<bf16, GATE><<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, c / 8, to);
    else
        modulate_rows<float, GATE><<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, c / 4, to);
    return launched();
}

int cuda_modulate(const struct ckpt_kernel_args *a)
{
    return modulate<false>(a);
}

int cuda_gated_residual(const struct ckpt_kernel_args *a)
{
    return modulate<true>(a);
}
