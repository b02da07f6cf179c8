/* SPDX-License-Identifier: Apache-2.0 */
/* Layer norm: alone, with weight and bias, or with the modulation that follows it (see ops/norm.c,
 * norm_modulate.c). */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/rows.cuh"
#include "norm.h"

enum epilogue { PLAIN, MODULATE, AFFINE };

/* Operands: x, y; with modulation shift and scale, else optionally bias and weight; then the
 * statistics. */
template <int EPILOGUE> static constexpr int norm_operands = EPILOGUE ? 5 : 3;

/* The epilogue of a normalized value.  An absent bias is 0. */
template <int EPILOGUE>
__device__ __forceinline__ float apply_epilogue(float n, float shift, float scale)
{
    return EPILOGUE == MODULATE ? n * (1.f + scale) + shift : EPILOGUE ? n * scale + shift : n;
}

/* Stores piece `column` of a result.  The result of a modulated norm may be NULL: then only its
 * largest magnitude is requested. */
template <typename T, int EPILOGUE>
__device__ __forceinline__ void finish(char *row, int column, const float (&y)[piece<T>::n],
                                       largest<T> &amax)
{
    piece<T> p;
    p.set(y);
    if (EPILOGUE == MODULATE && !row)
        amax.see(p.word);
    else
        piece_store<T>(row, column, y, amax);
}

/* The statistics of a modulated norm may be NULL as well. */
template <int EPILOGUE>
__device__ __forceinline__ void store_stats(char *at, float mean, float rstd)
{
    if (EPILOGUE != MODULATE || at)
        *reinterpret_cast<float2 *>(at) = make_float2(mean, rstd);
}

/*
 * W warps per row, P pieces per lane; if W is 1, WARPS rows per block.  Each row is read once, kept
 * in registers for mean, variance and result, and written once.  Shift and scale, which many rows
 * share, are loaded from the cache only when they are used: fewer registers allow more rows in
 * flight.
 */
template <typename T, int W, int P, int EPILOGUE>
static __global__ void __launch_bounds__(W == 1 ? 32 * WARPS : 32 * W)
    layer_norm_rows(const __grid_constant__ struct rows r, int n, float eps, uint32_t *to)
{
    largest<T> amax(to);
    constexpr int LANES = 32 * W, N = piece<T>::n;
    int rank = (int)threadIdx.x % LANES;
    int64_t per = blockDim.x / LANES, row = blockIdx.x * per + threadIdx.x / LANES;
    const float share = 1.f / (float)(n * N);
    for (; row < r.count; row += gridDim.x * per) {
        char *at[norm_operands<EPILOGUE>];
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
            if constexpr (EPILOGUE) {
                asm volatile("" ::: "memory"); /* no earlier load: see above */
                if (EPILOGUE == MODULATE || at[2])
                    shift = piece_load<T>(at[2], column);
                scale = piece_load<T>(at[3], column);
            }
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = apply_epilogue<EPILOGUE>(x[i][j] * rstd, shift.at(j), scale.at(j));
            finish<T, EPILOGUE>(at[1], column, y, amax);
        }
        if (rank == 0)
            store_stats<EPILOGUE>(at[norm_operands<EPILOGUE> - 1], mean, rstd);
    }
    leave_largest(to, amax);
}

/* Sums over G adjacent lanes. */
template <int G> __device__ __forceinline__ float group_sum(float v)
{
#pragma unroll
    for (int o = G / 2; o; o /= 2)
        v += __shfl_xor_sync(~0u, v, o);
    return v;
}

/* Rows of at most G pieces, such as single heads: G lanes per row, so that a warp handles several
 * rows at once. */
template <typename T, int G, int EPILOGUE>
static __global__ void __launch_bounds__(32 * WARPS)
    layer_norm_short(const __grid_constant__ struct rows r, int n, float eps, uint32_t *to)
{
    largest<T> amax(to);
    constexpr int N = piece<T>::n, PER = 32 * WARPS / G;
    const int rank = (int)threadIdx.x % G;
    const float c = (float)(n * N);
    for (int64_t first = (int64_t)blockIdx.x * PER; first < r.count;
         first += (int64_t)gridDim.x * PER) {
        int64_t row = first + threadIdx.x / G;
        bool valid = rank < n && row < r.count; /* all lanes of a warp take part in the shuffles */
        char *at[norm_operands<EPILOGUE>];
        rows_seek(r, row < r.count ? row : r.count - 1, at);
        piece<T> x = piece_within<T>(at[0], rank, n), shift = {}, scale = {};
        if constexpr (EPILOGUE) {
            if (EPILOGUE == MODULATE || at[2])
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
            y[j] = apply_epilogue<EPILOGUE>((x.at(j) - mean) * rstd, shift.at(j), scale.at(j));
        if (valid)
            finish<T, EPILOGUE>(at[1], rank, y, amax);
        if (valid && rank == 0)
            store_stats<EPILOGUE>(at[norm_operands<EPILOGUE> - 1], mean, rstd);
    }
    leave_largest(to, amax);
}

/* Rows of any width and alignment: one warp per row, which it reads three times. */
template <int EPILOGUE>
static __global__ void __launch_bounds__(32 * WARPS)
    layer_norm_elements(const __grid_constant__ struct rows r, int64_t c, bool half, float eps,
                        uint32_t *to)
{
    largest<float> amax(to);
    int lane = threadIdx.x & 31;
    int64_t row = (int64_t)blockIdx.x * WARPS + (threadIdx.x >> 5);
    for (; row < r.count; row += (int64_t)gridDim.x * WARPS) {
        char *at[norm_operands<EPILOGUE>];
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
            if constexpr (EPILOGUE) {
                shift = at[2] ? row_get(at[2], j, half) : 0.f;
                scale = row_get(at[3], j, half);
            }
            const float y =
                apply_epilogue<EPILOGUE>((row_get(at[0], j, half) - mean) * rstd, shift, scale);
            if (EPILOGUE == MODULATE && !at[1])
                amax.see(__float_as_uint(half ? to_float(from_float<bf16>(y)) : y));
            else
                row_put(at[1], j, y, half, amax);
        }
        if (lane == 0)
            store_stats<EPILOGUE>(at[norm_operands<EPILOGUE> - 1], mean, rstd);
    }
    leave_largest(to, amax);
}

template <typename T, int EPILOGUE>
static int launch_rows(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n, float eps,
                       uint32_t *to)
{
    return row_shape(n, [=](auto w, auto p) {
        constexpr int W = decltype(w)::value, P = decltype(p)::value;
        constexpr int block = W == 1 ? 32 * WARPS : 32 * W;
        layer_norm_rows<T, W, P, EPILOGUE>
            <<<grid_for(r->count, block / (32 * W)), block, 0, stream_of(a)>>>(*r, (int)n, eps, to);
        return launched();
    });
}

template <typename T, int G, int EPILOGUE>
static int launch_short(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n,
                        float eps, uint32_t *to)
{
    layer_norm_short<T, G, EPILOGUE>
        <<<grid_for(r->count, 32 * WARPS / G), 32 * WARPS, 0, stream_of(a)>>>(*r, (int)n, eps, to);
    return launched();
}

/* Rows that fit in the registers of a block or a part of it. */
template <typename T, int EPILOGUE>
static int launch_pieces(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n,
                         float eps, uint32_t *to)
{
    if (n <= 8)
        return launch_short<T, 8, EPILOGUE>(a, r, n, eps, to);
    if (n <= 16)
        return launch_short<T, 16, EPILOGUE>(a, r, n, eps, to);
    return launch_rows<T, EPILOGUE>(a, r, n, eps, to);
}

/* Sets the bias as the shift operand and the weight as the scale operand. */
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

template <int EPILOGUE> static int layer_norm(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[0];
    float eps = ((const struct norm_attr *)a->attr)->eps;
    bool half = view_half(x);
    int64_t c = row_width(x), n = c / (half ? 8 : 4);
    uint32_t *to = largest_begin(a);
    struct rows r;
    rows_begin(&r, x);
    if (a->out[0].data)
        rows_operand(&r, &a->out[0]);
    else
        rows_absent(&r);
    if (EPILOGUE == MODULATE)
        for (int i = 1; i < 3; i++)
            rows_operand(&r, &a->in[i]);
    else if (EPILOGUE)
        affine_operands(&r, a);
    if (a->out[1].data)
        rows_operand(&r, &a->out[1]);
    else
        rows_absent(&r);
    rows_finish(&r);
    if (rows_in_pieces(&r, r.n - 1, c, half) && n <= WIDE)
        return half ? launch_pieces<bf16, EPILOGUE>(a, &r, n, eps, to)
                    : launch_pieces<float, EPILOGUE>(a, &r, n, eps, to);
    layer_norm_elements<EPILOGUE>
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
