/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding (see ops/rope.c).  Operands: x, y, table. */
#include "cuda/kernels.h"
#include "cuda/rows.cuh"
#include "rope.h"

/* A thread to a piece. */
template <typename T>
static __global__ void __launch_bounds__(256)
    rope_pieces(const __grid_constant__ struct rows r, int64_t n, float sign)
{
    constexpr int N = piece<T>::n;
    int64_t all = r.count * n, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = quotient(i, n);
        int at = (int)(i - row * n);
        char *to[3];
        rows_seek(r, row, to);
        piece<T> x = piece_load<T>(to[0], at);
        float table[N], y[N];
        floats_load(table, reinterpret_cast<const float *>(to[2]) + (int64_t)at * N);
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            float cosine = table[j], sine = sign * table[j + 1];
            y[j] = x.at(j) * cosine - x.at(j + 1) * sine;
            y[j + 1] = x.at(j + 1) * cosine + x.at(j) * sine;
        }
        piece_store<T>(to[1], at, y);
    }
}

/* A thread to a pair. */
static __global__ void __launch_bounds__(256)
    rope_pairs(const __grid_constant__ struct rows r, int64_t pairs, bool half, float sign)
{
    int64_t all = r.count * pairs, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = quotient(i, pairs), j = 2 * (i - row * pairs);
        char *to[3];
        rows_seek(r, row, to);
        const float *table = reinterpret_cast<const float *>(to[2]) + j;
        float a = row_get(to[0], j, half), b = row_get(to[0], j + 1, half);
        float cosine = table[0], sine = sign * table[1];
        row_put(to[1], j, a * cosine - b * sine, half);
        row_put(to[1], j + 1, b * cosine + a * sine, half);
    }
}

int cuda_rope(const struct ckpt_kernel_args *a)
{
    const struct rope_attr *attr = (const struct rope_attr *)a->attr;
    const struct ckpt_view *x = &a->in[0];
    int64_t c = row_width(x);
    float sign = attr->inverse ? -1.f : 1.f;
    struct ckpt_view table = rope_table_rows(&a->in[1], &x->desc, attr->axis);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &table);
    rows_finish(&r);
    bool half = view_half(x), pieces = rows_in_pieces(&r, r.n, c, half);
    int64_t n = c / (pieces ? half ? 8 : 4 : 2);
    unsigned grid = grid_for(r.count * n, 256);
    if (!pieces)
        rope_pairs<<<grid, 256, 0, stream_of(a)>>>(r, n, half, sign);
    else if (half)
        rope_pieces<bf16><<<grid, 256, 0, stream_of(a)>>>(r, n, sign);
    else
        rope_pieces<float><<<grid, 256, 0, stream_of(a)>>>(r, n, sign);
    return launched();
}
