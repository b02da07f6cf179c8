/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of norms of short rows, such as single heads: RMS norm, alone and with the rotary
 * embedding after it, and layer norm with weight and bias.  A block processes tiles of rows
 * (tiles.cuh), one piece per thread, and keeps sums for the weight in registers; a second kernel
 * adds the sums of all blocks.  Longer rows use row_gradient.cu.
 */
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/row_sums.cuh"
#include "kernels/cuda/tiles.cuh"
#include "kernels/cuda/workspace.h"
#include "norm.h"
#include "rope.h"

constexpr int BLOCK = 32 * PIECES; /* threads; 16 heads of 72 bf16 are 144 pieces */
constexpr int TOGETHER = 2;        /* tiles that are loaded and reduced together */

/* The kind of norm.  Operands: x, dy, dx, the table if there is one, the statistics. */
enum kind { HEAD_RMS, HEAD_ROPE, HEAD_AFFINE };

template <int KIND> static constexpr int tile_operands = KIND == HEAD_ROPE ? 5 : 4;
template <int KIND> static constexpr int tile_sums = KIND == HEAD_AFFINE ? 2 : 1;

/*
 * A thread's position: the addresses of its piece in x, dy, dx and the table, and of the statistics
 * of its row; then its values that stay the same for all tiles.
 */
template <typename T, int KIND> struct tile_walk {
    static constexpr int N = piece<T>::n, SUMS = tile_sums<KIND>, STATS = tile_operands<KIND> - 1;
    char *at[tile_operands<KIND>];
    int row, n, column; /* column: in pieces */
    bool valid;         /* the thread has a piece */
    float weight[N], sum[SUMS][N];
    float share; /* one over the number of columns */

    __device__ __forceinline__ tile_walk(const struct tiles &t, int n, const char *w) : n(n)
    {
        row = threadIdx.x / n;
        column = threadIdx.x - row * n;
        valid = row < t.rows;
        row = valid ? row : 0;
        share = 1.f / (float)(n * N);
        piece<T> all = piece_load<T>(w, column);
#pragma unroll
        for (int j = 0; j < N; j++) {
            weight[j] = all.at(j);
#pragma unroll
            for (int s = 0; s < SUMS; s++)
                sum[s][j] = 0.f;
        }
    }

    /* Moves to a tile.  Returns the number of tiles from it on, below end, that follow each other
     * by one stride. */
    __device__ __forceinline__ int seek(const struct rows &r, const struct tiles &t, int64_t tile,
                                        int64_t end)
    {
        int ahead = rows_ahead(r, tile, end, at);
#pragma unroll
        for (int k = 0; k < 3; k++)
            at[k] += valid ? threadIdx.x * 16 : 0;
        if constexpr (KIND == HEAD_ROPE)
            at[3] += column * N * (int)sizeof(float);
        at[STATS] += row * t.step;
        return ahead;
    }

    __device__ __forceinline__ void next(const struct rows &r)
    {
#pragma unroll
        for (int k = 0; k < tile_operands<KIND>; k++)
            at[k] += r.step[k][r.ndim - 1];
    }

    __device__ __forceinline__ float2 stats(void) const
    {
        if constexpr (KIND == HEAD_AFFINE)
            return *reinterpret_cast<const float2 *>(at[STATS]);
        else
            return make_float2(0.f, *reinterpret_cast<const float *>(at[STATS]));
    }
};

/* Calls step(count, rows) for a block's range of at most `each` tiles, for TOGETHER tiles at a time
 * where as many are equidistant. */
template <typename W, typename F>
__device__ __forceinline__ void walk_tiles(W &w, const struct rows &r, const struct tiles &t,
                                           int64_t each, const F &step)
{
    const constant<TOGETHER> several = {};
    const constant<1> one = {};
    const int64_t first = blockIdx.x * each, end = first + each < t.count ? first + each : t.count;
    for (int64_t tile = first; tile < end;) {
        int ahead = w.seek(r, t, tile, end);
        tile += ahead;
        bool shorter = t.last < t.rows && tile - quotient(tile, t.per_run) * t.per_run == 0;
        for (ahead -= shorter; ahead >= TOGETHER; ahead -= TOGETHER)
            step(several, t.rows);
        for (; ahead > 0; ahead--)
            step(one, t.rows);
        if (shorter)
            step(one, t.last);
    }
}

/* Shared memory for the sums over rows of some tiles.  Consecutive steps use alternate halves, so
 * one barrier per step suffices: a thread that has passed it has read the values of the step
 * before. */
template <int M> struct tile_memory {
    vec<float, M> half[2][BLOCK];
};

/* Sums x over the row to which the thread's piece belongs. */
template <int M>
__device__ __forceinline__ void sum_pieces(float (&x)[M], vec<float, M> *shared, int row, int n,
                                           bool alone)
{
    int first = row * n, count = n, at = threadIdx.x;
    vec<float, M> mine;
    if (alone) { /* a tile is a single row */
        first = 0;
        at = threadIdx.x >> 5;
        count = blockDim.x >> 5;
#pragma unroll
        for (int i = 0; i < M; i++)
            x[i] = warp_sum(x[i]);
    }
#pragma unroll
    for (int i = 0; i < M; i++)
        mine.at[i] = x[i];
    if (!alone || (threadIdx.x & 31) == 0)
        shared[at] = mine;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < M; i++)
        x[i] = 0.f;
#pragma unroll 3
    for (int k = 0; k < count; k++) {
        vec<float, M> more = shared[first + k];
#pragma unroll
        for (int i = 0; i < M; i++)
            x[i] += more.at[i];
    }
}

/* R tiles of `rows` rows: stores dx and adds to the sums of this thread's columns.  All R tiles are
 * loaded before the first is used. */
template <typename T, int KIND, int R>
__device__ __forceinline__ void
tiles_gradient(tile_walk<T, KIND> &w, const struct rows &r, int rows, bool alone,
               vec<float, R * tile_sums<KIND>> *shared, largest<T> &amax)
{
    constexpr int N = piece<T>::n, SUMS = tile_sums<KIND>;
    constexpr bool ROPE = KIND == HEAD_ROPE, CENTRED = KIND == HEAD_AFFINE;
    const bool valid = w.valid && w.row < rows;
    piece<T> x[R], dy[R];
    float2 stats[R];
    float table[R][N], d[R][N], mean[R * SUMS] = {};
    char *to[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        dy[k] = valid ? piece_load<T>(w.at[1], 0) : piece<T>{};
        x[k] = valid ? piece_load<T>(w.at[0], 0) : piece<T>{};
        stats[k] = valid ? w.stats() : make_float2(0.f, 0.f);
        table_load<ROPE>(table[k], w.at[3]);
        to[k] = w.at[2];
        w.next(r);
    }
#pragma unroll
    for (int k = 0; k < R; k++) {
#pragma unroll
        for (int j = 0; j < N; j++)
            d[k][j] = dy[k].at(j);
        rotate<ROPE>(d[k], table[k], -1.f);
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float g = d[k][j] * w.weight[j], v = x[k].at(j);
            mean[k * SUMS] += g * (CENTRED ? v - stats[k].x : v);
            if constexpr (SUMS == 2)
                mean[k * SUMS + 1] += g;
        }
    }
    sum_pieces(mean, shared, w.row, w.n, alone);
#pragma unroll
    for (int k = 0; k < R; k++) {
        const float by = stats[k].y, down = mean[k * SUMS] * by * by * w.share;
        const float level = SUMS == 2 ? mean[k * SUMS + SUMS - 1] * w.share : 0.f;
        float dx[N], v[N];
#pragma unroll
        for (int j = 0; j < N; j++) {
            const float from = CENTRED ? x[k].at(j) - stats[k].x : x[k].at(j);
            v[j] = from * by;
            dx[j] = by * (d[k][j] * w.weight[j] - from * down - level);
        }
        if constexpr (!CENTRED) /* RMS norm rounds its result before it multiplies by the weight */
            round_piece<T>(v);
#pragma unroll
        for (int j = 0; j < N; j++) {
            if constexpr (SUMS == 2)
                w.sum[0][j] += d[k][j];
            w.sum[SUMS - 1][j] += d[k][j] * v[j];
        }
        if (valid)
            piece_store<T>(to[k], 0, dx, amax);
    }
}

/* Adds the sums of a column over the threads of a block, in shared memory. */
template <typename T, int KIND>
__device__ __forceinline__ void store_tile_sums(const tile_walk<T, KIND> &w, const struct tiles &t,
                                                float *total, float *to)
{
    constexpr int N = piece<T>::n;
    const int c = w.n * N;
#pragma unroll
    for (int s = 0; s < tile_sums<KIND>; s++) {
        __syncthreads();
        if (w.valid)
            floats_store(total + threadIdx.x * N, w.sum[s]);
        __syncthreads();
        for (int j = threadIdx.x; j < c; j += blockDim.x) {
            float all = 0.f;
#pragma unroll 8
            for (int row = 0; row < t.rows; row++)
                all += total[row * c + j];
            to[s * c + j] = all;
        }
    }
}

/* One block per range of `each` tiles; threads sum their columns over it in registers. */
template <typename T, int KIND>
static __global__ void __launch_bounds__(BLOCK, 4)
    norm_dx_tiles(const __grid_constant__ struct rows r, const __grid_constant__ struct tiles t,
                  int n, const char *weight, int64_t each, float *partial, uint32_t *to)
{
    constexpr int SUMS = tile_sums<KIND>;
    __shared__ tile_memory<TOGETHER * SUMS> memory;
    __shared__ float4 sums[BLOCK * piece<T>::n / 4];
    tile_walk<T, KIND> w(t, n, weight);
    int side = 0;
    largest<T> amax(to);
    launch_dependents();
    walk_tiles(w, r, t, each, [&](auto many, int rows) {
        constexpr int R = decltype(many)::value;
        tiles_gradient<T, KIND, R>(w, r, rows, t.rows == 1,
                                   reinterpret_cast<vec<float, R * SUMS> *>(memory.half[side]),
                                   amax);
        side ^= 1;
    });
    store_tile_sums(w, t, reinterpret_cast<float *>(sums),
                    partial + (int64_t)blockIdx.x * SUMS * n * piece<T>::n);
    leave_largest(to, amax);
}

/* Rows with a rotary embedding, of any width, alignment and dtypes: one block per chunk of rows;
 * each thread handles every 128th pair of columns, whose sums are in memory. */
static __global__ void __launch_bounds__(128)
    rms_norm_rope_dx_elements(const __grid_constant__ struct rows r, int64_t chunk, int64_t c,
                              bool half, bool dy_half, const char *w, float *partial, uint32_t *to)
{
    float *dw = partial + blockIdx.x * c;
    largest<float> amax(to);
    int64_t first = blockIdx.x * chunk;
    for (int64_t row = first; row < first + chunk && row < r.count; row++) {
        char *at[tile_operands<HEAD_ROPE>];
        float dot = 0.f;
        rows_seek(r, row, at);
        float rstd = *reinterpret_cast<const float *>(at[tile_operands<HEAD_ROPE> - 1]);
        const float *table = reinterpret_cast<const float *>(at[3]);
        for (int64_t j = threadIdx.x * 2; j < c; j += 128 * 2) {
            float d[2];
            for (int k = 0; k < 2; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            rotate<true>(d, table + j, -1.f);
            for (int k = 0; k < 2; k++)
                dot += d[k] * row_get(w, j + k, half) * row_get(at[0], j + k, half);
        }
        float slope = block_sum(dot) * rstd * rstd / (float)c;
        for (int64_t j = threadIdx.x * 2; j < c; j += 128 * 2) {
            float d[2];
            for (int k = 0; k < 2; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            rotate<true>(d, table + j, -1.f);
            for (int k = 0; k < 2; k++) {
                float x = row_get(at[0], j + k, half), v = row_get(w, j + k, half);
                float before = row == first ? 0.f : dw[j + k];
                row_put(at[2], j + k, rstd * (d[k] * v - x * slope), half, amax);
                dw[j + k] = before + d[k] * rounded(x * rstd, half);
            }
        }
    }
    leave_largest(to, amax);
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Launches the kernel for tiles; returns the number of partial sums, at most
 * cuda_weight_chunks(). */
template <typename T, int KIND>
static int64_t launch_tiles(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n)
{
    const struct tiles t = tiles_of(r, 3, KIND == HEAD_ROPE, n, n > 32 ? 1 : BLOCK);
    const int64_t chunks = min_i64(t.count, cuda_weight_chunks(r->count));
    const int64_t each = (t.count + chunks - 1) / chunks;
    const unsigned grid = grid_for(t.count, each), threads = (unsigned)round_up(t.rows * n, 32);
    norm_dx_tiles<T, KIND><<<grid, threads, 0, stream_of(a)>>>(
        rows_of_tiles(r, &t), t, (int)n, (const char *)a->in[2].data, each, (float *)a->workspace,
        largest_begin(a));
    return grid;
}

/* Can tiles hold rows of c elements of x and dy, of at most `limit` pieces? */
static bool in_tiles(const struct ckpt_kernel_args *a, const struct rows *r, int64_t c, int limit)
{
    bool half = view_half(&a->in[1]);
    return c <= limit * (half ? 8 : 4) && half == view_half(&a->in[0]) &&
           rows_in_pieces(r, r->n - 1, c, half) && aligned16(a->in[2].data);
}

static void add_parts(const struct ckpt_kernel_args *a, int64_t chunks, int sums)
{
    struct rows to;
    rows_begin(&to, &a->out[1]);
    for (int s = 1; s < sums; s++)
        rows_operand(&to, &a->out[1 + s]);
    rows_finish(&to);
    launch_add_chunks(&to, 1, chunks, row_width(&a->in[1]), 0, sums, (const float *)a->workspace,
                      total{}, stream_of(a));
}

/* Sets up the rows of x, dy and dx, the table if there is one, and the statistics. */
static void gradient_operands(struct rows *r, const struct ckpt_kernel_args *a,
                              const struct ckpt_view *table)
{
    rows_begin(r, &a->in[1]);
    rows_operand(r, &a->in[0]);
    rows_operand(r, &a->out[0]);
    if (table)
        rows_operand(r, table);
    rows_operand(r, &a->in[3]);
    rows_finish(r);
}

template <int KIND>
static int launch_gradient(const struct ckpt_kernel_args *a, const struct rows *r)
{
    const bool half = view_half(&a->in[1]);
    const int64_t n = row_width(&a->in[1]) / (half ? 8 : 4);
    add_parts(a, half ? launch_tiles<bf16, KIND>(a, r, n) : launch_tiles<float, KIND>(a, r, n),
              tile_sums<KIND>);
    return launched();
}

/* Rows of at most 16 pieces; in a group of row_gradient.cu they would leave most of a warp idle. */
int cuda_layer_norm_affine_dx(const struct ckpt_kernel_args *a)
{
    struct rows r;
    gradient_operands(&r, a, NULL);
    if (a->in[4].data || extra_output(a, EXTRA_SUMS) || !in_tiles(a, &r, row_width(&a->in[1]), 16))
        return cuda_layer_norm_rows_affine_dx(a);
    return launch_gradient<HEAD_AFFINE>(a, &r);
}

int cuda_rms_norm_dx(const struct ckpt_kernel_args *a)
{
    struct rows r;
    gradient_operands(&r, a, NULL);
    if (a->in[4].data || extra_output(a, EXTRA_SUMS) ||
        !in_tiles(a, &r, row_width(&a->in[1]), BLOCK))
        return cuda_rms_norm_rows_dx(a);
    return launch_gradient<HEAD_RMS>(a, &r);
}

int cuda_rms_norm_rope_dx(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = (const struct rms_norm_rope_attr *)a->attr;
    struct ckpt_view table = rope_table_rows(&a->in[4], &a->in[1].desc, attr->axis);
    const int64_t c = row_width(&a->in[1]);
    struct rows r;
    gradient_operands(&r, a, &table);
    if (in_tiles(a, &r, c, BLOCK))
        return launch_gradient<HEAD_ROPE>(a, &r);
    const int64_t chunks = cuda_weight_chunks(r.count);
    rms_norm_rope_dx_elements<<<(unsigned)chunks, 128, 0, stream_of(a)>>>(
        r, cuda_chunk(CUDA_WEIGHT_WAVE, r.count), c, view_half(&a->in[1]), view_half(&a->in[0]),
        (const char *)a->in[2].data, (float *)a->workspace, largest_begin(a));
    add_parts(a, chunks, 1);
    return launched();
}
