/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of layer norm, RMS norm, modulation and gated residual.  Those of weight, shift, scale
 * and gate are sums over the rows that share one; they are made in the pass that makes dx: each
 * chunk of rows gives a partial sum, and a second kernel adds those (ops/cuda/workspace.h says how
 * rows are cut).
 */
#include "cuda/kernels.h"
#include "cuda/row_sums.cuh"
#include "cuda/workspace.h"

/* Blocks have FEW warps at most and threads a piece, or MANY and MANY_PIECES at most. */
constexpr int FEW = 5, MANY = 12, MANY_PIECES = 3;

enum kind { NORM, MODULATE, GATE, NORM_MODULATE, NORM_AFFINE, RMS };

/* Operands: x (or a), dy, dx, the addend of dx; the vector and its sums; last the statistics, where
 * there are any. */
constexpr int ADDEND = 3, VECTOR = 4;

template <int KIND> struct traits {
    static constexpr bool centred = KIND == NORM || KIND == NORM_MODULATE || KIND == NORM_AFFINE;
    static constexpr bool norm = centred || KIND == RMS;
    static constexpr bool weight = KIND == GATE || KIND == NORM_AFFINE || KIND == RMS;
    static constexpr int sums = KIND == NORM ? 0 : KIND == GATE || KIND == RMS ? 1 : 2;
    static constexpr int stats = KIND == NORM ? VECTOR : VECTOR + 1 + sums;
    static constexpr int operands = stats + (norm ? 1 : 0);
};

/* How the rows are cut: a unit is one chunk of the rows of one vector. */
struct cut {
    int64_t each, chunk, chunks, units; /* rows of a vector, of a chunk; chunks of a vector */
};

/* Mean and rstd of a row; of RMS norm rstd alone is kept. */
template <int KIND> __device__ __forceinline__ float2 stats_of(const char *at)
{
    if constexpr (traits<KIND>::centred)
        return *reinterpret_cast<const float2 *>(at);
    else
        return make_float2(0.f, *reinterpret_cast<const float *>(at));
}

/* What the statistics make of x, and what dy becomes on the way to it. */
template <int KIND> __device__ __forceinline__ float normalized(float x, float2 stats)
{
    return traits<KIND>::norm ? (x - stats.x) * stats.y : x;
}

template <int KIND> __device__ __forceinline__ float scaled(float dy, float v)
{
    return KIND == NORM ? dy : traits<KIND>::weight ? dy * v : dy * (1.f + v);
}

/* dx from g = scaled(dy), n = normalized(x) and, for norms, the means of g and of g n. */
template <int KIND>
__device__ __forceinline__ float gradient_of(float g, float n, float rstd, float2 mean)
{
    return traits<KIND>::norm ? rstd * (g - mean.x - n * mean.y) : g;
}

/* The first and last row of a unit. */
__device__ __forceinline__ int64_t unit_rows(const struct cut &cut, int64_t unit, int64_t *end)
{
    int64_t vector = quotient(unit, cut.chunks), chunk = unit - vector * cut.chunks;
    int64_t first = chunk * cut.chunk, last = first + cut.chunk;
    *end = vector * cut.each + (last < cut.each ? last : cut.each);
    return vector * cut.each + first;
}

/* Where sum s of a unit goes: to the partial sums, or to its final place if there is one chunk. */
template <int KIND>
__device__ __forceinline__ float *unit_sum(const struct rows &r, const struct cut &cut,
                                           int64_t unit, int64_t first, int64_t c, float *partial,
                                           int s)
{
    if (cut.chunks == 1)
        return reinterpret_cast<float *>(rows_seek_one(r, first, VECTOR + 1 + s));
    return partial + (unit * traits<KIND>::sums + s) * c;
}

/* ---- rows in pieces -------------------------------------------------------------------------- */

/* What a thread works with: where its pieces are in a row, the factors of its columns (zeros past
 * the end of a row), and its sums. */
template <typename T, int P, int KIND> struct columns {
    static constexpr int N = piece<T>::n, SUMS = traits<KIND>::sums;
    int offset[P]; /* in bytes; past the end, that of the last piece */
    bool there[P];
    float factor[P][N];
    float share; /* of a column in a row: one over their number */
    float sum[SUMS ? SUMS : 1][P][N];
};

/* What dy becomes on the way to x: a factor per column. */
template <int KIND> __device__ __forceinline__ float factor_of(float v)
{
    return KIND == NORM ? 1.f : traits<KIND>::weight ? v : 1.f + v;
}

template <typename T, int P, int KIND>
__device__ __forceinline__ void columns_begin(columns<T, P, KIND> &c, const char *vector, int n)
{
    c.share = 1.f / (float)(n * piece<T>::n);
#pragma unroll
    for (int i = 0; i < P; i++) {
        int at = (int)threadIdx.x + i * (int)blockDim.x;
        c.there[i] = at < n;
        c.offset[i] = (at < n ? at : n - 1) * 16;
        piece<T> v = {};
        if constexpr (traits<KIND>::sums > 0)
            v = piece_load<T>(vector + c.offset[i], 0);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++) {
            c.factor[i][j] = c.there[i] ? factor_of<KIND>(v.at(j)) : 0.f;
#pragma unroll
            for (int s = 0; s < traits<KIND>::sums; s++)
                c.sum[s][i][j] = 0.f;
        }
    }
}

/* Sums over the threads of a block, in each of them.  Warps that the block does not have left zeros
 * in `shared`; what it held must have been read before the barrier in here was last passed. */
template <int M, int W>
__device__ __forceinline__ void sum_block(float (&x)[M], vec<float, M> *shared)
{
#pragma unroll
    for (int i = 0; i < M; i++)
        x[i] = warp_sum(x[i]);
    if ((threadIdx.x & 31) == 0) {
        vec<float, M> mine;
#pragma unroll
        for (int i = 0; i < M; i++)
            mine.at[i] = x[i];
        shared[threadIdx.x >> 5] = mine;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < M; i++)
        x[i] = 0.f;
#pragma unroll
    for (int w = 0; w < W; w++) {
        vec<float, M> more = shared[w];
#pragma unroll
        for (int i = 0; i < M; i++)
            x[i] += more.at[i];
    }
}

/*
 * R rows, the first at at[], which moves on: sets dx and adds to the sums of this thread's columns.
 * All of them are on their way before the first is used.
 */
template <typename T, int P, int W, int KIND, int R>
__device__ __forceinline__ void rows_step(columns<T, P, KIND> &c, const struct rows &r,
                                          char *(&at)[traits<KIND>::operands],
                                          vec<float, 2 * R> *shared, largest<T> &most)
{
    constexpr int N = piece<T>::n, SUMS = traits<KIND>::sums, STATS = traits<KIND>::operands - 1;
    constexpr bool NORMS = traits<KIND>::norm;
    const int last = r.ndim - 1;
    piece<T> x[R][P], dy[R][P], addend[R][P];
    float2 stats[R];
    char *to[R];
    float mean[2 * R] = {};
#pragma unroll
    for (int k = 0; k < R; k++) {
        to[k] = at[2];
        stats[k] = NORMS ? stats_of<KIND>(at[STATS]) : make_float2(0.f, 1.f);
#pragma unroll
        for (int i = 0; i < P; i++) {
            dy[k][i] = piece_load<T>(at[1] + c.offset[i], 0);
            x[k][i] = piece_load<T>(at[0] + c.offset[i], 0);
            addend[k][i] = piece<T>{};
            if (NORMS && r.base[ADDEND])
                addend[k][i] = piece_load<T>(at[ADDEND] + c.offset[i], 0);
        }
#pragma unroll
        for (int o = 0; o <= STATS; o++)
            if (o < (NORMS ? 4 : 3) || (NORMS && o == STATS))
                at[o] += r.step[o][last];
    }
    if constexpr (NORMS) {
#pragma unroll
        for (int k = 0; k < R; k++)
#pragma unroll
            for (int i = 0; i < P; i++)
#pragma unroll
                for (int j = 0; j < N; j++) {
                    float g = dy[k][i].at(j) * c.factor[i][j];
                    mean[2 * k] += traits<KIND>::centred ? g : 0.f;
                    mean[2 * k + 1] += g * normalized<KIND>(x[k][i].at(j), stats[k]);
                }
        sum_block<2 * R, W>(mean, shared);
#pragma unroll
        for (int k = 0; k < 2 * R; k++)
            mean[k] *= stats[k / 2].y * c.share;
    }
#pragma unroll
    for (int k = 0; k < R; k++) {
        if constexpr (NORMS && P > 1) {
            keep_packed(x[k]);
            keep_packed(dy[k]);
        }
#pragma unroll
        for (int i = 0; i < P; i++) {
            float dx[N];
#pragma unroll
            for (int j = 0; j < N; j++) {
                float d = dy[k][i].at(j), v = normalized<KIND>(x[k][i].at(j), stats[k]);
                dx[j] = d * c.factor[i][j];
                if constexpr (NORMS)
                    dx[j] = dx[j] * stats[k].y +
                            (addend[k][i].at(j) - mean[2 * k] - v * mean[2 * k + 1]);
                if constexpr (SUMS == 2)
                    c.sum[0][i][j] += d;
                if constexpr (SUMS > 0 && KIND != RMS)
                    c.sum[SUMS - 1][i][j] += d * v;
            }
            if constexpr (KIND == RMS) { /* its result is rounded before the weight comes */
                float v[N];
#pragma unroll
                for (int j = 0; j < N; j++)
                    v[j] = normalized<KIND>(x[k][i].at(j), stats[k]);
                round_piece<T>(v);
#pragma unroll
                for (int j = 0; j < N; j++)
                    c.sum[0][i][j] += dy[k][i].at(j) * v[j];
            }
            if (c.there[i])
                piece_store<T>(to[k] + c.offset[i], 0, dx, most);
        }
    }
}

/*
 * A block to a unit, W warps at most, P pieces a thread.  A thread sums its own columns in
 * registers, and has little else to keep: so there is room for many rows under way.
 */
template <typename T, int P, int W, int KIND>
static __global__ void __launch_bounds__(32 * W, P > 1 ? 1 : 3)
    gradient_rows(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                  int n, float *partial, uint32_t *to)
{
    constexpr int R = P > 1 ? 1 : traits<KIND>::norm ? 2 : 4;
    __shared__ vec<float, 2 * R> parts[2][W];
    __shared__ vec<float, 2> single[2][W];
    largest<T> most;
    let_next_kernel_come();
    for (int i = threadIdx.x; i < 2 * W; i += blockDim.x) {
        parts[0][i] = vec<float, 2 * R>{};
        single[0][i] = vec<float, 2>{};
    }
    __syncthreads();
    for (int64_t unit = blockIdx.x; unit < cut.units; unit += gridDim.x) {
        int64_t end, first = unit_rows(cut, unit, &end);
        int side = 0;
        columns<T, P, KIND> c;
        columns_begin(c, traits<KIND>::sums ? rows_seek_one(r, first, VECTOR) : nullptr, n);
        for (int64_t row = first; row < end;) {
            char *at[traits<KIND>::operands];
            int left = rows_ahead(r, row, end, at);
            row += left;
            for (; left >= R; left -= R, side ^= 1)
                rows_step<T, P, W, KIND, R>(c, r, at, parts[side], most);
            for (; left > 0; left--, side ^= 1)
                rows_step<T, P, W, KIND, 1>(c, r, at, single[side], most);
        }
#pragma unroll
        for (int s = 0; s < traits<KIND>::sums; s++)
#pragma unroll
            for (int i = 0; i < P; i++)
                if (c.there[i])
                    floats_store(unit_sum<KIND>(r, cut, unit, first, n * piece<T>::n, partial, s) +
                                     c.offset[i] / 16 * piece<T>::n,
                                 c.sum[s][i]);
    }
    leave_largest(to, most);
}

/* Rows of any width, place and dtypes: a block to a unit, a thread to every 128th column, whose
 * sums stand in memory. */
template <int KIND>
static __global__ void __launch_bounds__(128)
    gradient_elements(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                      int64_t c, bool half, bool dy_half, float *partial, uint32_t *most_to)
{
    constexpr int SUMS = traits<KIND>::sums;
    largest<float> most;
    for (int64_t unit = blockIdx.x; unit < cut.units; unit += gridDim.x) {
        int64_t end, first = unit_rows(cut, unit, &end);
        float *to[2];
        for (int s = 0; s < SUMS; s++)
            to[s] = unit_sum<KIND>(r, cut, unit, first, c, partial, s);
        for (int64_t row = first; row < end; row++) {
            char *at[traits<KIND>::operands];
            float2 stats = make_float2(0.f, 1.f), mean = make_float2(0.f, 0.f);
            rows_seek(r, row, at);
            if constexpr (traits<KIND>::norm) {
                stats = stats_of<KIND>(at[traits<KIND>::stats]);
                for (int64_t j = threadIdx.x; j < c; j += 128) {
                    float v = SUMS ? row_get(at[VECTOR], j, half) : 0.f;
                    float g = scaled<KIND>(row_get(at[1], j, dy_half), v);
                    mean.x += traits<KIND>::centred ? g : 0.f;
                    mean.y += g * normalized<KIND>(row_get(at[0], j, half), stats);
                }
                mean.x = block_sum(mean.x) / (float)c;
                mean.y = block_sum(mean.y) / (float)c;
            }
            for (int64_t j = threadIdx.x; j < c; j += 128) {
                float v = SUMS ? row_get(at[VECTOR], j, half) : 0.f, d = row_get(at[1], j, dy_half);
                float x = normalized<KIND>(row_get(at[0], j, half), stats);
                float before = at[ADDEND] ? row_get(at[ADDEND], j, half) : 0.f;
                float dx = gradient_of<KIND>(scaled<KIND>(d, v), x, stats.y, mean);
                row_put(at[2], j, dx + before, half, most);
                if constexpr (SUMS == 2)
                    to[0][j] = d + (row == first ? 0.f : to[0][j]);
                float n = KIND == RMS ? rounded(x, half) : x;
                if constexpr (SUMS > 0)
                    to[SUMS - 1][j] = d * n + (row == first ? 0.f : to[SUMS - 1][j]);
            }
        }
    }
    leave_largest(most_to, most);
}

template <typename T, int P, int W, int KIND>
static void launch_rows(const struct ckpt_kernel_args *a, const struct rows *r,
                        const struct cut *cut, int64_t n, uint32_t *to)
{
    const unsigned warps = (unsigned)((n + 32 * P - 1) / (32 * P));
    gradient_rows<T, P, W, KIND><<<grid_for(cut->units, 1), 32 * warps, 0, stream_of(a)>>>(
        *r, *cut, (int)n, (float *)a->workspace, to);
}

/* Launches the kernel that fits; rows of one vector in chunks of `chunk`. */
template <int KIND>
static void launch_gradient(const struct ckpt_kernel_args *a, const struct rows *r, struct cut *cut,
                            int64_t c, bool half, bool dy_half)
{
    int64_t n = c / (half ? 8 : 4);
    uint32_t *to = largest_begin(a, 1 + traits<KIND>::sums);
    bool pieces = half == dy_half && n <= 32 * MANY * MANY_PIECES &&
                  rows_in_pieces(r, traits<KIND>::stats, c, half);
    bool wide = n > 32 * FEW;
    if (!traits<KIND>::sums)
        cut->chunk = pieces ? cut->chunk : 1;
    cut->chunks = (cut->each + cut->chunk - 1) / cut->chunk;
    cut->units = cut->chunks * (r->count / cut->each);
    if (!pieces)
        gradient_elements<KIND><<<grid_for(cut->units, 1), 128, 0, stream_of(a)>>>(
            *r, *cut, c, half, dy_half, (float *)a->workspace, to);
    else if (half && !wide)
        launch_rows<bf16, 1, FEW, KIND>(a, r, cut, n, to);
    else if (half)
        launch_rows<bf16, MANY_PIECES, MANY, KIND>(a, r, cut, n, to);
    else if (!wide)
        launch_rows<float, 1, FEW, KIND>(a, r, cut, n, to);
    else
        launch_rows<float, MANY_PIECES, MANY, KIND>(a, r, cut, n, to);
}

/* x: the operand of dx; v: the vector; in[0] is dy, out[0] is dx, the sums follow; norms have
 * statistics and perhaps an addend behind them. */
template <int KIND>
static int gradient(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                    const struct ckpt_view *v, const struct ckpt_view *stats)
{
    constexpr int SUMS = traits<KIND>::sums;
    int64_t c = row_width(x);
    struct rows r;
    struct cut cut = {};
    rows_begin(&r, x);
    rows_operand(&r, &a->in[0]);
    rows_operand(&r, &a->out[0]);
    if (stats && stats[1].data)
        rows_operand(&r, &stats[1]);
    else
        rows_absent(&r);
    if (v)
        rows_operand(&r, v);
    for (int s = 0; s < SUMS; s++)
        rows_operand(&r, &a->out[1 + s]);
    if (stats)
        rows_operand(&r, stats);
    if (SUMS)
        cut.each = rows_finish_reduction(&r, VECTOR + 1);
    else
        rows_finish(&r);
    cut.each = SUMS ? cut.each : r.count;
    cut.chunk = KIND == RMS ? cuda_chunk(CUDA_WEIGHT_WAVE, cut.each)
                            : cuda_row_chunk(r.count / cut.each, cut.each, c);
    launch_gradient<KIND>(a, &r, &cut, c, view_half(x), view_half(&a->in[0]));
    if (SUMS && cut.chunks > 1)
        launch_add_chunks(&r, cut.each, cut.chunks, c, VECTOR + 1, SUMS,
                          (const float *)a->workspace, stream_of(a));
    return launched();
}

int cuda_layer_norm_dx(const struct ckpt_kernel_args *a)
{
    return gradient<NORM>(a, &a->in[1], NULL, &a->in[2]);
}

int cuda_modulate_dx(const struct ckpt_kernel_args *a)
{
    return gradient<MODULATE>(a, &a->in[1], &a->in[2], NULL);
}

int cuda_gated_residual_dx(const struct ckpt_kernel_args *a)
{
    return gradient<GATE>(a, &a->in[2], &a->in[1], NULL);
}

int cuda_layer_norm_modulate_dx(const struct ckpt_kernel_args *a)
{
    return gradient<NORM_MODULATE>(a, &a->in[1], &a->in[2], &a->in[3]);
}

int cuda_layer_norm_affine_dx(const struct ckpt_kernel_args *a)
{
    const int ndim = a->in[1].desc.ndim;
    struct ckpt_view w = rows_vector(a->in[2], ndim);
    struct ckpt_view out[] = {a->out[0], rows_vector(a->out[1], ndim), rows_vector(a->out[2], ndim),
                              a->n_out > 3 ? a->out[3] : a->out[0]};
    struct ckpt_kernel_args spread = *a;
    spread.out = out;
    return gradient<NORM_AFFINE>(&spread, &a->in[1], &w, &a->in[3]);
}

int cuda_rms_norm_rows_dx(const struct ckpt_kernel_args *a)
{
    struct ckpt_view w = rows_vector(a->in[2], a->in[1].desc.ndim);
    struct ckpt_view out[] = {a->out[0], rows_vector(a->out[1], a->in[1].desc.ndim),
                              a->n_out > 2 ? a->out[2] : a->out[0]};
    struct ckpt_kernel_args spread = *a;
    spread.out = out;
    return gradient<RMS>(&spread, &a->in[1], &w, &a->in[3]);
}
