/*
 * Gradients of layer norm, modulation and gated residual.  Those of shift, scale and gate are sums
 * over the rows that share one; they are made in the pass that makes dx: each chunk of rows gives a
 * partial sum, and a second kernel adds those (ops/cuda/workspace.h says how rows are cut).
 */
#include "cuda/kernels.h"
#include "cuda/row_sums.cuh"
#include "cuda/workspace.h"

enum kind { NORM, MODULATE, GATE, NORM_MODULATE };

/* Operands: x (or a), dy, dx, the addend of dx; the vector and its sums; last the statistics, where
 * there are any. */
constexpr int ADDEND = 3, VECTOR = 4;

template <int KIND> struct traits {
    static constexpr bool norm = KIND == NORM || KIND == NORM_MODULATE;
    static constexpr int sums = KIND == NORM ? 0 : KIND == GATE ? 1 : 2;
    static constexpr int stats = KIND == NORM ? VECTOR : VECTOR + 1 + sums;
    static constexpr int operands = stats + (norm ? 1 : 0);
};

/* How the rows are cut: a unit is one chunk of the rows of one vector. */
struct cut {
    int64_t each, chunk, chunks, units; /* rows of a vector, of a chunk; chunks of a vector */
};

/* What the statistics make of x, and what dy becomes on the way to it. */
template <int KIND> __device__ __forceinline__ float normalized(float x, float2 stats)
{
    return traits<KIND>::norm ? (x - stats.x) * stats.y : x;
}

template <int KIND> __device__ __forceinline__ float scaled(float dy, float v)
{
    return KIND == NORM ? dy : KIND == GATE ? dy * v : dy * (1.f + v);
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

/* What is read for a row; NULL is no addend. */
struct row_source {
    const char *x, *dy, *addend, *vector;
    float2 stats;
};

/* Piece i of it, as far as it is there. */
template <typename T> struct source_piece {
    piece<T> x, dy, vector;
};

template <typename T, int KIND>
__device__ __forceinline__ source_piece<T> source_load(const struct row_source &from, int i, int n)
{
    source_piece<T> p = {};
    if (i < n) {
        p.x = piece_load<T>(from.x, i);
        p.dy = piece_load<T>(from.dy, i);
        if constexpr (traits<KIND>::sums > 0)
            p.vector = piece_load<T>(from.vector, i);
    }
    return p;
}

/* The means of g and of g n over a row. */
template <typename T, int W, int KIND>
__device__ __forceinline__ float2 row_means(const struct row_source &from, int rank, int n)
{
    float2 mean = make_float2(0.f, 0.f);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        source_piece<T> p = source_load<T, KIND>(from, rank + i * 32 * W, n);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++) {
            float g = scaled<KIND>(p.dy.at(j), p.vector.at(j));
            mean.x += g;
            mean.y += g * normalized<KIND>(p.x.at(j), from.stats);
        }
    }
    mean.x = row_sum<W>(mean.x) / (float)(n * piece<T>::n);
    mean.y = row_sum<W>(mean.y) / (float)(n * piece<T>::n);
    return mean;
}

/*
 * One row: sets dx and adds to the sums of this lane's columns.  What it reads twice lies close by,
 * in shared memory or a cache: in registers there is no room next to the sums.
 */
template <typename T, int W, int KIND>
__device__ __forceinline__ void row_gradient(const struct row_source &from, char *to, int rank,
                                             int n, float (*sum)[PIECES][piece<T>::n])
{
    constexpr int N = piece<T>::n;
    float2 mean = make_float2(0.f, 0.f);
    if constexpr (traits<KIND>::norm)
        mean = row_means<T, W, KIND>(from, rank, n);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        int at = rank + i * 32 * W;
        float dx[N];
        if constexpr (W == 1)
            asm volatile("" ::: "memory"); /* no loads before their turn */
        source_piece<T> p = source_load<T, KIND>(from, at, n);
        piece<T> addend = {};
        if (traits<KIND>::norm && from.addend && at < n)
            addend = piece_load<T>(from.addend, at);
#pragma unroll
        for (int j = 0; j < N; j++) {
            float d = p.dy.at(j), v = normalized<KIND>(p.x.at(j), from.stats);
            dx[j] = gradient_of<KIND>(scaled<KIND>(d, p.vector.at(j)), v, from.stats.y, mean);
            if constexpr (traits<KIND>::norm)
                dx[j] += addend.at(j);
            if constexpr (KIND == GATE)
                sum[0][i][j] += d * v;
            if constexpr (traits<KIND>::sums == 2) {
                sum[0][i][j] += d;
                sum[1][i][j] += d * v;
            }
        }
        if (at < n)
            piece_store<T>(to, at, dx);
    }
}

template <int KIND>
__device__ __forceinline__ float2 row_stats(char *const (&at)[traits<KIND>::operands])
{
    if constexpr (traits<KIND>::norm)
        return *reinterpret_cast<const float2 *>(at[traits<KIND>::stats]);
    return make_float2(0.f, 1.f);
}

/* Rows first, first + step, ... below end by all the warps of a block, as they lie in memory. */
template <typename T, int W, int KIND>
__device__ __forceinline__ void rows_together(const struct rows &r, int64_t first, int64_t end,
                                              const char *vector, int n,
                                              float (*sum)[PIECES][piece<T>::n])
{
    for (int64_t row = first; row < end; row++) {
        char *at[traits<KIND>::operands];
        rows_seek(r, row, at);
        row_gradient<T, W, KIND>({at[0], at[1], at[ADDEND], vector, row_stats<KIND>(at)}, at[2],
                                 (int)threadIdx.x, n, sum);
    }
}

/* Shared memory for one row that is fetched. */
__host__ __device__ __forceinline__ int stage_bytes(int n, bool adds)
{
    return (adds ? 3 : 2) * n * 16;
}

/* Fetches what is read of a row; one past the end is an empty group.  Returns its statistics. */
template <int KIND>
__device__ __forceinline__ float2 stage_fill(const struct rows &r, int64_t row, int64_t end,
                                             char *stage, int lane, int n)
{
    float2 stats = make_float2(0.f, 1.f);
    if (row < end) {
        char *at[traits<KIND>::operands];
        rows_seek(r, row, at);
        row_fetch(stage, at[0], lane, n);
        row_fetch(stage + n * 16, at[1], lane, n);
        if (traits<KIND>::norm && at[ADDEND])
            row_fetch(stage + 2 * n * 16, at[ADDEND], lane, n);
        stats = row_stats<KIND>(at);
    }
    fetches_end();
    return stats;
}

/*
 * Every WARPS-th row below end by one warp.  Registers hold the sums and one row, so that few warps
 * find room on a multiprocessor: to keep memory busy nevertheless, each has its next row on the way
 * to shared memory while it works on one.
 */
template <typename T, int KIND>
__device__ __forceinline__ void rows_apart(const struct rows &r, int64_t first, int64_t end,
                                           const char *vector, int n, char *memory,
                                           float (*sum)[PIECES][piece<T>::n])
{
    int lane = threadIdx.x & 31;
    bool adds = traits<KIND>::norm && r.base[ADDEND];
    int bytes = stage_bytes(n, adds);
    char *stage = memory + (threadIdx.x >> 5) * 2 * bytes, *other = stage + bytes;
    float2 stats = stage_fill<KIND>(r, first, end, stage, lane, n);
    float2 next = stage_fill<KIND>(r, first + WARPS, end, other, lane, n);
    for (int64_t row = first; row < end; row += WARPS) {
        fetches_wait<1>();
        row_gradient<T, 1, KIND>(
            {stage, stage + n * 16, adds ? stage + 2 * n * 16 : nullptr, vector, stats},
            rows_seek_one(r, row, 2), lane, n, sum);
        stats = next;
        next = stage_fill<KIND>(r, row + 2 * WARPS, end, stage, lane, n);
        char *done = stage;
        stage = other;
        other = done;
    }
    __syncthreads(); /* the memory is needed for the sums, or for the next unit */
}

/* Adds the sums of the warps of a block, one after the other, in shared memory; the last stores. */
template <typename T, int SUMS>
__device__ __forceinline__ void add_warps(float (*sum)[PIECES][piece<T>::n], float *shared, int n,
                                          float *const *to)
{
    constexpr int N = piece<T>::n;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (int w = 0; w < WARPS; w++) {
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            int at = lane + 32 * i;
            if (warp != w || at >= n)
                continue;
#pragma unroll
            for (int s = 0; s < SUMS; s++) {
                float before[N];
                if (w)
                    floats_load(before, shared + (s * n + at) * N);
#pragma unroll
                for (int j = 0; j < N; j++)
                    sum[s][i][j] += w ? before[j] : 0.f;
                floats_store(w + 1 < WARPS ? shared + (s * n + at) * N : to[s] + at * N, sum[s][i]);
            }
        }
        __syncthreads();
    }
}

/*
 * A block to a unit: a warp to a row, WARPS rows at a time, or all W warps to one.  Every lane sums
 * its own columns over its rows in registers.
 */
template <typename T, int W, int KIND>
static __global__ void __launch_bounds__(W == 1 ? 32 * WARPS : 32 * W, W == 1 ? 3 : 1)
    gradient_rows(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                  int n, float *partial)
{
    extern __shared__ float4 memory[];
    constexpr int LANES = 32 * W, N = piece<T>::n, SUMS = traits<KIND>::sums;
    int rank = (int)threadIdx.x % LANES;
    for (int64_t unit = blockIdx.x; unit < cut.units; unit += gridDim.x) {
        int64_t end, first = unit_rows(cut, unit, &end);
        const char *vector = SUMS ? rows_seek_one(r, first, VECTOR) : nullptr;
        float sum[SUMS ? SUMS : 1][PIECES][N] = {};
        if constexpr (W == 1)
            rows_apart<T, KIND>(r, first + (threadIdx.x >> 5), end, vector, n,
                                reinterpret_cast<char *>(memory), sum);
        else
            rows_together<T, W, KIND>(r, first, end, vector, n, sum);
        if constexpr (SUMS > 0) {
            float *to[SUMS];
            for (int s = 0; s < SUMS; s++)
                to[s] = unit_sum<KIND>(r, cut, unit, first, n * N, partial, s);
            if constexpr (W == 1)
                add_warps<T, SUMS>(sum, reinterpret_cast<float *>(memory), n, to);
            for (int i = 0; W > 1 && i < PIECES; i++)
                for (int s = 0; s < SUMS && rank + i * LANES < n; s++)
                    floats_store(to[s] + (rank + i * LANES) * N, sum[s][i]);
        }
    }
}

/* Rows of any width, place and dtypes: a block to a unit, a thread to every 128th column, whose
 * sums stand in memory. */
template <int KIND>
static __global__ void __launch_bounds__(128)
    gradient_elements(const __grid_constant__ struct rows r, const __grid_constant__ struct cut cut,
                      int64_t c, bool half, bool dy_half, float *partial)
{
    constexpr int SUMS = traits<KIND>::sums;
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
                stats = *reinterpret_cast<const float2 *>(at[traits<KIND>::stats]);
                for (int64_t j = threadIdx.x; j < c; j += 128) {
                    float v = SUMS ? row_get(at[VECTOR], j, half) : 0.f;
                    float g = scaled<KIND>(row_get(at[1], j, dy_half), v);
                    mean.x += g;
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
                row_put(at[2], j, dx + before, half);
                if constexpr (SUMS == 2)
                    to[0][j] = d + (row == first ? 0.f : to[0][j]);
                if constexpr (SUMS > 0)
                    to[SUMS - 1][j] = d * x + (row == first ? 0.f : to[SUMS - 1][j]);
            }
        }
    }
}

template <typename T, int W, int KIND>
static void launch_rows(const struct ckpt_kernel_args *a, const struct rows *r,
                        const struct cut *cut, int64_t n)
{
    constexpr int block = W == 1 ? 32 * WARPS : 32 * W;
    size_t sums = (size_t)(traits<KIND>::sums * n) * piece<T>::n * sizeof(float);
    size_t stages = (size_t)WARPS * 2 * stage_bytes((int)n, r->base[ADDEND]);
    size_t shared = W > 1 ? 0 : sums > stages ? sums : stages;
    allow_shared(gradient_rows<T, W, KIND>, shared);
    gradient_rows<T, W, KIND><<<grid_for(cut->units, 1), block, shared, stream_of(a)>>>(
        *r, *cut, (int)n, (float *)a->workspace);
}

/* Launches the kernel that fits; rows of one vector in chunks of `chunk`. */
template <int KIND>
static void launch_gradient(const struct ckpt_kernel_args *a, const struct rows *r, struct cut *cut,
                            int64_t c, bool half, bool dy_half)
{
    int64_t n = c / (half ? 8 : 4);
    bool pieces = half == dy_half && n <= 32 * WIDE * PIECES &&
                  rows_in_pieces(r, traits<KIND>::stats, c, half);
    bool wide = n > 32 * PIECES;
    if (!traits<KIND>::sums)
        cut->chunk = pieces && !wide ? cut->chunk : 1;
    cut->chunks = (cut->each + cut->chunk - 1) / cut->chunk;
    cut->units = cut->chunks * (r->count / cut->each);
    if (!pieces)
        gradient_elements<KIND><<<grid_for(cut->units, 1), 128, 0, stream_of(a)>>>(
            *r, *cut, c, half, dy_half, (float *)a->workspace);
    else if (half && !wide)
        launch_rows<bf16, 1, KIND>(a, r, cut, n);
    else if (half)
        launch_rows<bf16, WIDE, KIND>(a, r, cut, n);
    else if (!wide)
        launch_rows<float, 1, KIND>(a, r, cut, n);
    else
        launch_rows<float, WIDE, KIND>(a, r, cut, n);
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
    cut.chunk = cuda_row_chunk(r.count / cut.each, cut.each);
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
