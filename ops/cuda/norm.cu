/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm, alone, with weight and bias, or with the modulation that follows it (see ops/norm.c,
 * norm_modulate.c). */
#include "cuda/kernels.h"
#include "cuda/rows.cuh"
#include "norm.h"

enum behind { PLAIN, MODULATE, AFFINE };

/* Operands: x, y, with modulation shift and scale (else perhaps bias and weight), and last the
 * statistics. */
template <int BEHIND> static constexpr int norm_operands = BEHIND ? 5 : 3;

/* What follows a normalised value.  An absent bias is 0. */
template <int BEHIND> __device__ __forceinline__ float finished(float n, float shift, float scale)
{
    return BEHIND == MODULATE ? n * (1.f + scale) + shift : BEHIND ? n * scale + shift : n;
}

/* Piece `column` of a result; a modulated one may be nowhere, where only its largest magnitude is
 * wanted. */
template <typename T, int BEHIND>
__device__ __forceinline__ void finish(char *row, int column, const float (&y)[piece<T>::n],
                                       largest<T> &most)
{
    piece<T> p;
    p.set(y);
    if (BEHIND == MODULATE && !row)
        most.see(p.word);
    else
        piece_store<T>(row, column, y, most);
}

/* Those of a modulated norm may be nowhere, too. */
template <int BEHIND> __device__ __forceinline__ void leave_stats(char *at, float mean, float rstd)
{
    if (BEHIND != MODULATE || at)
        *reinterpret_cast<float2 *>(at) = make_float2(mean, rstd);
}

/*
 * W warps to a row, P pieces a lane; WARPS rows a block where one warp has a row.  Each row is read
 * once, kept in registers for mean, variance and result, and written once.  Shift and scale, which
 * many rows share, are read from the cache when they are needed: the fewer registers, the more rows
 * are under way.
 */
template <typename T, int W, int P, int BEHIND>
static __global__ void __launch_bounds__(W == 1 ? 32 * WARPS : 32 * W)
    layer_norm_rows(const __grid_constant__ struct rows r, int n, float eps, uint32_t *to)
{
    largest<T> most(to);
    constexpr int LANES = 32 * W, N = piece<T>::n;
    int rank = (int)threadIdx.x % LANES;
    int64_t per = blockDim.x / LANES, row = blockIdx.x * per + threadIdx.x / LANES;
    const float share = 1.f / (float)(n * N);
    for (; row < r.count; row += gridDim.x * per) {
        char *at[norm_operands<BEHIND>];
        float x[P][N], sum = 0.f, squares = 0.f;
        rows_seek(r, row, at);
        row_floats<T, LANES>(x, at[0], rank, n);
#pragma unroll
        for (int i = 0; i < P; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                sum += x[i][j];
        const float mean = row_sum<W>(sum) * share;
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (rank + i * LANES >= n)
                continue;
#pragma unroll
            for (int j = 0; j < N; j++) {
                x[i][j] -= mean;
                squares += x[i][j] * x[i][j];
            }
        }
        const float rstd = 1.f / sqrtf(row_sum<W>(squares) * share + eps);
#pragma unroll
        for (int i = 0; i < P; i++) {
            int column = rank + i * LANES;
            float y[N];
            piece<T> shift = {}, scale = {};
            if (column >= n)
                continue;
            if constexpr (BEHIND) {
                asm volatile("" ::: "memory"); /* not earlier: see above */
                if (BEHIND == MODULATE || at[2])
                    shift = piece_load<T>(at[2], column);
                scale = piece_load<T>(at[3], column);
            }
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = finished<BEHIND>(x[i][j] * rstd, shift.at(j), scale.at(j));
            finish<T, BEHIND>(at[1], column, y, most);
        }
        if (rank == 0)
            leave_stats<BEHIND>(at[norm_operands<BEHIND> - 1], mean, rstd);
    }
    leave_largest(to, most);
}

/* Over neighbouring lanes, G of them. */
template <int G> __device__ __forceinline__ float group_sum(float v)
{
#pragma unroll
    for (int o = G / 2; o; o /= 2)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

/* Rows of G pieces at most, as of single heads: G lanes to a row, so that a warp reads several at
 * once. */
template <typename T, int G, int BEHIND>
static __global__ void __launch_bounds__(32 * WARPS)
    layer_norm_short(const __grid_constant__ struct rows r, int n, float eps, uint32_t *to)
{
    largest<T> most(to);
    constexpr int N = piece<T>::n, PER = 32 * WARPS / G;
    const int rank = (int)threadIdx.x % G;
    const float c = (float)(n * N);
    for (int64_t first = (int64_t)blockIdx.x * PER; first < r.count;
         first += (int64_t)gridDim.x * PER) {
        int64_t row = first + threadIdx.x / G;
        bool there = rank < n && row < r.count; /* all lanes of a warp take part in its sums */
        char *at[norm_operands<BEHIND>];
        rows_seek(r, row < r.count ? row : r.count - 1, at);
        piece<T> x = piece_within<T>(at[0], rank, n), shift = {}, scale = {};
        if constexpr (BEHIND) {
            if (BEHIND == MODULATE || at[2])
                shift = piece_within<T>(at[2], rank, n);
            scale = piece_within<T>(at[3], rank, n);
        }
        float sum = 0.f, squares = 0.f, y[N];
#pragma unroll
        for (int j = 0; j < N; j++)
            sum += x.at(j);
        float mean = group_sum<G>(sum) / c;
#pragma unroll
        for (int j = 0; j < N; j++)
            squares += rank < n ? (x.at(j) - mean) * (x.at(j) - mean) : 0.f;
        float rstd = 1.f / sqrtf(group_sum<G>(squares) / c + eps);
#pragma unroll
        for (int j = 0; j < N; j++)
            y[j] = finished<BEHIND>((x.at(j) - mean) * rstd, shift.at(j), scale.at(j));
        if (there)
            finish<T, BEHIND>(at[1], rank, y, most);
        if (there && rank == 0)
            leave_stats<BEHIND>(at[norm_operands<BEHIND> - 1], mean, rstd);
    }
    leave_largest(to, most);
}

/* Rows of any width and place: a warp to a row, which it reads three times. */
template <int BEHIND>
static __global__ void __launch_bounds__(32 * WARPS)
    layer_norm_elements(const __grid_constant__ struct rows r, int64_t c, bool half, float eps,
                        uint32_t *to)
{
    largest<float> most(to);
    int lane = threadIdx.x & 31;
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    for (; row < r.count; row += (int64_t)gridDim.x * WARPS) {
        char *at[norm_operands<BEHIND>];
        rows_seek(r, row, at);
        float sum = 0.f, squares = 0.f;
        for (int64_t j = lane; j < c; j += 32)
            sum += row_get(at[0], j, half);
        float mean = warp_sum(sum) / (float)c;
        for (int64_t j = lane; j < c; j += 32) {
            float d = row_get(at[0], j, half) - mean;
            squares += d * d;
        }
        float rstd = 1.f / sqrtf(warp_sum(squares) / (float)c + eps);
        for (int64_t j = lane; j < c; j += 32) {
            float shift = 0.f, scale = 0.f;
            if constexpr (BEHIND) {
                shift = at[2] ? row_get(at[2], j, half) : 0.f;
                scale = row_get(at[3], j, half);
            }
            const float y = finished<BEHIND>((row_get(at[0], j, half) - mean) * rstd, shift, scale);
            if (BEHIND == MODULATE && !at[1])
                most.see(__float_as_uint(half ? to_float(from_float<bf16>(y)) : y));
            else
                row_put(at[1], j, y, half, most);
        }
        if (lane == 0)
            leave_stats<BEHIND>(at[norm_operands<BEHIND> - 1], mean, rstd);
    }
    leave_largest(to, most);
}

template <typename T, int BEHIND>
static int launch_rows(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n, float eps,
                       uint32_t *to)
{
    return row_shape(n, [=](auto w, auto p) {
        constexpr int W = decltype(w)::value, P = decltype(p)::value;
        constexpr int block = W == 1 ? 32 * WARPS : 32 * W;
        layer_norm_rows<T, W, P, BEHIND>
            <<<grid_for(r->count, block / (32 * W)), block, 0, stream_of(a)>>>(*r, (int)n, eps, to);
        return launched();
    });
}

template <typename T, int G, int BEHIND>
static int launch_short(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n,
                        float eps, uint32_t *to)
{
    layer_norm_short<T, G, BEHIND>
        <<<grid_for(r->count, 32 * WARPS / G), 32 * WARPS, 0, stream_of(a)>>>(*r, (int)n, eps, to);
    return launched();
}

/* Rows that a block or a part of it keeps. */
template <typename T, int BEHIND>
static int launch_pieces(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n,
                         float eps, uint32_t *to)
{
    if (n <= 8)
        return launch_short<T, 8, BEHIND>(a, r, n, eps, to);
    if (n <= 16)
        return launch_short<T, 16, BEHIND>(a, r, n, eps, to);
    return launch_rows<T, BEHIND>(a, r, n, eps, to);
}

/* The bias where a shift would be, the weight where a scale would be. */
static void affine_operands(struct rows *r, const struct ckpt_kernel_args *a)
{
    for (int i = 2; i > 0; i--) {
        struct ckpt_view v = rows_vector(a->in[i], a->in[0].desc.ndim);
        if (v.data)
            rows_operand(r, &v);
        else
            rows_absent(r);
    }
}

template <int BEHIND> static int layer_norm(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    float eps = ((const struct norm_attr *)a->attr)->eps;
    bool half = view_half(x);
    int64_t c = row_width(x), n = c / (half ? 8 : 4);
    uint32_t *to = a->n_out > 2 && a->out[2].data ? largest_begin(a, 2) : NULL;
    struct rows r;
    rows_begin(&r, x);
    if (a->out[0].data)
        rows_operand(&r, &a->out[0]);
    else
        rows_absent(&r);
    if (BEHIND == MODULATE)
        for (int i = 1; i < 3; i++)
            rows_operand(&r, &a->in[i]);
    else if (BEHIND)
        affine_operands(&r, a);
    if (a->out[1].data)
        rows_operand(&r, &a->out[1]);
    else
        rows_absent(&r);
    rows_finish(&r);
    if (rows_in_pieces(&r, r.n - 1, c, half) && n <= WIDE)
        return half ? launch_pieces<bf16, BEHIND>(a, &r, n, eps, to)
                    : launch_pieces<float, BEHIND>(a, &r, n, eps, to);
    layer_norm_elements<BEHIND>
        <<<grid_for(r.count, WARPS), 32 * WARPS, 0, stream_of(a)>>>(r, c, half, eps, to);
    return launched();
}

int cuda_layer_norm(const struct ckpt_kernel_args *a)
{
    return a->in[1].data ? layer_norm<AFFINE>(a) : layer_norm<PLAIN>(a);
}

int cuda_layer_norm_modulate(const struct ckpt_kernel_args *a)
{
    return layer_norm<MODULATE>(a);
}
