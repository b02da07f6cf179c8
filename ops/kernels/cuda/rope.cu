/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding (see ops/rope.c).  Operands: x, y, table. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "rope.h"

/* A thread handles the same piece of ROWS rows that are adjacent along the last axis, where
 * heads share a row of the table: one address computation for all of them, and several loads in
 * flight. */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(256)
    rope_pieces(const __grid_constant__ struct rows r, int64_t n, float sign)
{
    constexpr int N = piece<T>::n;
    const int last = r.ndim - 1;
    int64_t all = r.count / ROWS * n, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t group = quotient(i, n);
        int at = (int)(i - group * n);
        char *to[3];
        rows_seek(r, group * ROWS, to);
        piece<T> x[ROWS];
        float table[N], y[N];
#pragma unroll
        for (int k = 0; k < ROWS; k++)
            x[k] = piece_load<T>(to[0] + (ROWS > 1 ? k * r.step[0][last] : 0), at);
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            if (k == 0 || r.step[2][last] != 0)
                floats_load(table, reinterpret_cast<const float *>(
                                       to[2] + (ROWS > 1 ? k * r.step[2][last] : 0)) +
                                       (int64_t)at * N);
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                float cosine = table[j], sine = sign * table[j + 1];
                y[j] = x[k].at(j) * cosine - x[k].at(j + 1) * sine;
                y[j + 1] = x[k].at(j + 1) * cosine + x[k].at(j) * sine;
            }
            piece_store<T>(to[1] + (ROWS > 1 ? k * r.step[1][last] : 0), at, y);
        }
    }
}

/* The same for halves: a thread rotates a piece of the first half of a row with that of the second;
 * n: pieces of a half. */
template <typename T, int ROWS>
static __global__ void __launch_bounds__(256)
    rope_halves(const __grid_constant__ struct rows r, int64_t n, float sign)
{
    constexpr int N = piece<T>::n;
    const int last = r.ndim - 1;
    int64_t all = r.count / ROWS * n, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t group = quotient(i, n);
        int at = (int)(i - group * n);
        char *to[3];
        rows_seek(r, group * ROWS, to);
        piece<T> a[ROWS], b[ROWS];
        float table[2 * N], low[N], high[N];
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            const char *row = to[0] + (ROWS > 1 ? k * r.step[0][last] : 0);
            a[k] = piece_load<T>(row, at);
            b[k] = piece_load<T>(row, at + (int)n);
        }
#pragma unroll
        for (int k = 0; k < ROWS; k++) {
            char *row = to[1] + (ROWS > 1 ? k * r.step[1][last] : 0);
            if (k == 0 || r.step[2][last] != 0)
                floats_load(table, reinterpret_cast<const float *>(
                                       to[2] + (ROWS > 1 ? k * r.step[2][last] : 0)) +
                                       (int64_t)at * 2 * N);
#pragma unroll
            for (int j = 0; j < N; j++) {
                float cosine = table[2 * j], sine = sign * table[2 * j + 1];
                low[j] = a[k].at(j) * cosine - b[k].at(j) * sine;
                high[j] = b[k].at(j) * cosine + a[k].at(j) * sine;
            }
            piece_store<T>(row, at, low);
            piece_store<T>(row, at + (int)n, high);
        }
    }
}

/* One thread per pair, whose elements are 1 or half a row apart. */
static __global__ void __launch_bounds__(256)
    rope_pairs(const __grid_constant__ struct rows r, int64_t pairs, bool half, float sign,
               bool halves)
{
    const int64_t apart = halves ? pairs : 1;
    int64_t all = r.count * pairs, i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (; i < all; i += (int64_t)gridDim.x * blockDim.x) {
        int64_t row = quotient(i, pairs), k = i - row * pairs, j = halves ? k : 2 * k;
        char *to[3];
        rows_seek(r, row, to);
        const float *table = reinterpret_cast<const float *>(to[2]) + 2 * k;
        float a = row_get(to[0], j, half), b = row_get(to[0], j + apart, half);
        float cosine = table[0], sine = sign * table[1];
        row_put(to[1], j, a * cosine - b * sine, half);
        row_put(to[1], j + apart, b * cosine + a * sine, half);
    }
}

/* n: pieces of a row, or of half a row. */
template <typename T, int ROWS>
static void launch_pieces(const struct rows &r, int64_t n, bool halves, float sign,
                          cudaStream_t stream)
{
    auto kernel = halves ? rope_halves<T, ROWS> : rope_pieces<T, ROWS>;
    kernel<<<grid_for(r.count / ROWS * n, 256), 256, 0, stream>>>(r, n, sign);
}

template <typename T>
static void launch_rows(const struct rows &r, int64_t n, bool halves, float sign,
                        cudaStream_t stream)
{
    const int64_t side_by_side = r.ndim ? r.size[r.ndim - 1] : 1;
    if (side_by_side % 4 == 0)
        launch_pieces<T, 4>(r, n, halves, sign, stream);
    else if (side_by_side % 2 == 0)
        launch_pieces<T, 2>(r, n, halves, sign, stream);
    else
        launch_pieces<T, 1>(r, n, halves, sign, stream);
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
    bool half = view_half(x), pieces = rows_in_pieces(&r, r.n, attr->halves ? c / 2 : c, half);
    int64_t n = c / (pieces ? half ? 8 : 4 : 2);
    if (!pieces)
        rope_pairs<<<grid_for(r.count * n, 256), 256, 0, stream_of(a)>>>(r, n, half, sign,
                                                                         attr->halves);
    else if (half)
        launch_rows<bf16>(r, attr->halves ? n / 2 : n, attr->halves, sign, stream_of(a));
    else
        launch_rows<float>(r, attr->halves ? n / 2 : n, attr->halves, sign, stream_of(a));
    return launched();
}
