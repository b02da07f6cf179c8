/* SPDX-License-Identifier: Apache-2.0 */
/* RMS norm, alone and with the rotary embedding that follows it (see ops/norm.c, ops/rope.c);
 * short_gradient.cu has the gradients. */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/tiles.cuh"
#include "norm.h"
#include "rope.h"

__device__ __forceinline__ int64_t tile_seek(const struct tiles &t, int64_t tile, int *rows)
{
    int64_t run = quotient(tile, t.per_run), first = (tile - run * t.per_run) * t.rows;
    *rows = t.run - first < t.rows ? (int)(t.run - first) : t.rows;
    return run * t.run + first;
}

/* The rows and columns of a lane's pieces in a tile. */
struct places {
    int row[PIECES], column[PIECES]; /* column: in pieces */
};

/* Divides by n as a product with its reciprocal in units of 1/65536, rounded up: exact below 65536
 * / n. */
__device__ __forceinline__ void places_find(struct places &p, int lane, int n, int reciprocal)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        p.row[i] = (lane + 32 * i) * reciprocal >> 16;
        p.column[i] = lane + 32 * i - p.row[i] * n;
    }
}

constexpr int TILE_MEMORY = 32 * PIECES + 32;

/* From one value per piece: lane i < rows gets the sum over row i of the tile.  In shared memory
 * rows have an odd pitch, so lanes that go along different rows have no bank conflicts. */
__device__ __forceinline__ float tile_sum(const float (&x)[PIECES], const struct places &p,
                                          int rows, int n, float *memory)
{
    int lane = threadIdx.x & 31;
    float sum = 0.f;
    if (rows == 1) {
#pragma unroll
        for (int i = 0; i < PIECES; i++)
            sum += x[i];
        return warp_sum(sum);
    }
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        if (lane + 32 * i < rows * n)
            memory[p.row[i] * (n | 1) + p.column[i]] = x[i];
    __syncwarp();
    for (int i = 0; lane < rows && i < n; i++)
        sum += memory[lane * (n | 1) + i];
    __syncwarp();
    return sum;
}

__device__ __forceinline__ float of_row(float x, int row)
{
    return __shfl_sync(0xffffffffu, x, row);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Operands: x, y, the table if there is one, rstd. */
template <bool ROPE> static constexpr int forward_operands = ROPE ? 4 : 3;

template <typename T, bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_tiles(const __grid_constant__ struct rows r, const __grid_constant__ struct tiles t,
                   int n, int reciprocal, const char *w, float eps, uint32_t *to)
{
    __shared__ float memory[WARPS][TILE_MEMORY];
    largest<T> amax(to);
    constexpr int N = piece<T>::n, RSTD = forward_operands<ROPE> - 1;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    struct places p;
    places_find(p, lane, n, reciprocal);
    int64_t tile = (int64_t)blockIdx.x * WARPS + warp;
    for (; tile < t.count; tile += (int64_t)gridDim.x * WARPS) {
        int rows;
        char *at[forward_operands<ROPE>];
        rows_seek(r, tile_seek(t, tile, &rows), at);
        float x[PIECES][N], squares[PIECES] = {};
        row_floats<T, 32>(x, at[0], lane, rows * n);
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                squares[i] += x[i][j] * x[i][j];
        float mean = tile_sum(squares, p, rows, n, memory[warp]) / (float)(n * N);
        float rstd = 1.f / sqrtf(mean + eps);
        if (lane < rows)
            *reinterpret_cast<float *>(at[RSTD] + lane * r.step[RSTD][r.ndim - 1]) = rstd;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            float y[N], table[N], by = of_row(rstd, p.row[i]);
            if (lane + 32 * i >= rows * n)
                continue;
            asm volatile(
                "" ::
                    : "memory"); /* no earlier loads: fewer registers allow more rows in flight */
            piece<T> weight = piece_load<T>(w, p.column[i]);
            table_load<ROPE>(table, at[2] + p.column[i] * N * (int)sizeof(float));
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = x[i][j] * by;
            round_piece<T>(y);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] *= weight.at(j);
            rotate<ROPE>(y, table, 1.f);
            piece_store<T>(at[1], lane + 32 * i, y, amax);
        }
    }
    leave_largest(to, amax);
}

/* W warps per row, P pieces per lane; each row is read once. */
template <typename T, int W, int P>
static __global__ void __launch_bounds__(W == 1 ? 32 * WARPS : 32 * W)
    rms_norm_long(const __grid_constant__ struct rows r, int n, const char *w, float eps,
                  uint32_t *to)
{
    largest<T> amax(to);
    constexpr int LANES = 32 * W, N = piece<T>::n;
    int rank = (int)threadIdx.x % LANES;
    int64_t per = blockDim.x / LANES, row = blockIdx.x * per + threadIdx.x / LANES;
    for (; row < r.count; row += gridDim.x * per) {
        char *at[forward_operands<false>];
        float x[P][N], squares = 0.f;
        rows_seek(r, row, at);
        row_floats<T, LANES>(x, at[0], rank, n);
#pragma unroll
        for (int i = 0; i < P; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                squares += x[i][j] * x[i][j];
        float rstd = 1.f / sqrtf(row_sum<W>(squares) / (float)(n * N) + eps);
#pragma unroll
        for (int i = 0; i < P; i++) {
            int column = rank + i * LANES;
            float y[N];
            if (column >= n)
                continue;
            asm volatile(
                "" ::
                    : "memory"); /* no earlier loads: fewer registers allow more rows in flight */
            piece<T> weight = piece_load<T>(w, column);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = x[i][j] * rstd;
            round_piece<T>(y);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] *= weight.at(j);
            piece_store<T>(at[1], column, y, amax);
        }
        if (rank == 0)
            *reinterpret_cast<float *>(at[2]) = rstd;
    }
    leave_largest(to, amax);
}

/* Rows of any width and alignment: one warp per row, which it reads twice. */
template <bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_elements(const __grid_constant__ struct rows r, int64_t c, bool half, const char *w,
                      float eps, uint32_t *to)
{
    largest<float> amax(to);
    constexpr int S = ROPE ? 2 : 1;
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    int lane = threadIdx.x & 31;
    for (; row < r.count; row += (int64_t)gridDim.x * WARPS) {
        char *at[forward_operands<ROPE>];
        float squares = 0.f;
        rows_seek(r, row, at);
        for (int64_t j = lane; j < c; j += 32)
            squares += row_get(at[0], j, half) * row_get(at[0], j, half);
        float rstd = 1.f / sqrtf(warp_sum(squares) / (float)c + eps);
        for (int64_t j = lane * S; j < c; j += 32 * S) {
            float y[S];
            for (int k = 0; k < S; k++)
                y[k] = rounded(row_get(at[0], j + k, half) * rstd, half) * row_get(w, j + k, half);
            rotate<ROPE>(y, reinterpret_cast<const float *>(at[2]) + j, 1.f);
            for (int k = 0; k < S; k++)
                row_put(at[1], j + k, y[k], half, amax);
        }
        if (lane == 0)
            *reinterpret_cast<float *>(at[forward_operands<ROPE> - 1]) = rstd;
    }
    leave_largest(to, amax);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Rows of n pieces, too long for two of them to share a tile. */
template <typename T>
static int launch_long(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n, float eps,
                       uint32_t *to)
{
    const char *weight = (const char *)a->in[1].data;
    return row_shape(n, [=](auto w, auto p) {
        constexpr int W = decltype(w)::value, P = decltype(p)::value;
        constexpr int block = W == 1 ? 32 * WARPS : 32 * W;
        rms_norm_long<T, W, P><<<grid_for(r->count, block / (32 * W)), block, 0, stream_of(a)>>>(
            *r, (int)n, weight, eps, to);
        return launched();
    });
}

template <bool ROPE>
static int rms_norm(const struct ckpt_kernel_args *a, float eps, const struct ckpt_view *table)
{
    const struct ckpt_view *x = &a->in[0];
    const char *w = (const char *)a->in[1].data;
    bool half = view_half(x);
    int64_t c = row_width(x), n = c / (half ? 8 : 4);
    uint32_t *to = largest_begin(a);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    if (ROPE)
        rows_operand(&r, table);
    rows_operand(&r, &a->out[1]);
    rows_finish(&r);
    bool pieces = rows_in_pieces(&r, r.n - 1, c, half) && aligned16(w);
    if (!ROPE && pieces && n > 16 * PIECES && n <= WIDE)
        return half ? launch_long<bf16>(a, &r, n, eps, to) : launch_long<float>(a, &r, n, eps, to);
    if (!pieces || n > 32 * PIECES) {
        rms_norm_elements<ROPE>
            <<<grid_for(r.count, WARPS), 32 * WARPS, 0, stream_of(a)>>>(r, c, half, w, eps, to);
        return launched();
    }
    struct tiles t = tiles_of(&r, 2, ROPE, n, 32);
    unsigned grid = grid_for(t.count, WARPS);
    const int reciprocal = (int)((65536 + n - 1) / n);
    auto kernel = half ? rms_norm_tiles<bf16, ROPE> : rms_norm_tiles<float, ROPE>;
    kernel<<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, t, (int)n, reciprocal, w, eps, to);
    return launched();
}

int cuda_rms_norm(const struct ckpt_kernel_args *a)
{
    return rms_norm<false>(a, ((const struct norm_attr *)a->attr)->eps, NULL);
}

int cuda_rms_norm_rope(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = (const struct rms_norm_rope_attr *)a->attr;
    struct ckpt_view table = rope_table_rows(&a->in[2], &a->in[0].desc, attr->axis);
    return rms_norm<true>(a, attr->eps, &table);
}
