/*
 * RMS norm, alone and with the rotary embedding that follows it (see ops/norm.c, rms_norm_rope.c).
 *
 * Rows are short: the heads of a token, 72 elements or so each, lie one after the other.  A warp
 * takes a tile of such rows at once, as one stretch of pieces that it reads and writes in order;
 * which row and column a lane's pieces belong to is the same in every tile.
 */
#include "cuda/kernels.h"
#include "cuda/row_sums.cuh"
#include "cuda/workspace.h"
#include "norm.h"
#include "rope.h"

/* Runs of rows without gaps between them, each cut into tiles of so many rows, the last shorter. */
struct tiles {
    int rows;
    int64_t run, per_run, count; /* rows of a run, tiles of a run, tiles in all */
};

__device__ __forceinline__ int64_t tile_seek(const struct tiles &t, int64_t tile, int *rows)
{
    int64_t run = quotient(tile, t.per_run), first = (tile - run * t.per_run) * t.rows;
    *rows = t.run - first < t.rows ? (int)(t.run - first) : t.rows;
    return run * t.run + first;
}

/* Where the pieces of a lane stand in a tile. */
struct places {
    int row[PIECES], column[PIECES]; /* the column in pieces */
};

__device__ __forceinline__ void places_find(struct places &p, int lane, int n)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        p.row[i] = (lane + 32 * i) / n;
        p.column[i] = lane + 32 * i - p.row[i] * n;
    }
}

constexpr int TILE_MEMORY = 32 * PIECES + 32;

/* From a value per piece: the sum over row `lane` of the tile, in lanes below rows.  Rows stand at
 * odd distances in memory, so that lanes which walk them meet no bank twice. */
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

/* S elements, a pair if they are turned: by their angle, or back. */
template <bool ROPE, int S>
__device__ __forceinline__ void turn(float (&x)[S], const float *table, float sign)
{
    if constexpr (ROPE) {
#pragma unroll
        for (int j = 0; j < S; j += 2) {
            float a = x[j], b = x[j + 1], cosine = table[j], sine = sign * table[j + 1];
            x[j] = a * cosine - b * sine;
            x[j + 1] = b * cosine + a * sine;
        }
    }
}

/* The table entries of a piece. */
template <bool ROPE, int N>
__device__ __forceinline__ void table_load(float (&table)[N], const char *row, int column)
{
    if constexpr (ROPE)
        floats_load(table, reinterpret_cast<const float *>(row) + column * N);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* Operands: x, y, the table if there is one, rstd. */
template <bool ROPE> static constexpr int forward_operands = ROPE ? 4 : 3;

template <typename T, bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_tiles(const __grid_constant__ struct rows r, const __grid_constant__ struct tiles t,
                   int n, const char *w, float eps)
{
    __shared__ float memory[WARPS][TILE_MEMORY];
    constexpr int N = piece<T>::n, RSTD = forward_operands<ROPE> - 1;
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    struct places p;
    places_find(p, lane, n);
    int64_t tile = (int64_t)blockIdx.x * WARPS + warp;
    for (; tile < t.count; tile += (int64_t)gridDim.x * WARPS) {
        int rows;
        char *at[forward_operands<ROPE>];
        rows_seek(r, tile_seek(t, tile, &rows), at);
        piece<T> x[PIECES];
        float squares[PIECES] = {};
        row_load<T, 32>(x, at[0], lane, rows * n);
#pragma unroll
        for (int i = 0; i < PIECES; i++)
#pragma unroll
            for (int j = 0; j < N; j++)
                squares[i] += x[i].at(j) * x[i].at(j);
        float mean = tile_sum(squares, p, rows, n, memory[warp]) / (float)(n * N);
        float rstd = 1.f / sqrtf(mean + eps);
        if (lane < rows)
            *reinterpret_cast<float *>(at[RSTD] + lane * r.step[RSTD][r.ndim - 1]) = rstd;
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            float y[N], table[N], by = of_row(rstd, p.row[i]);
            if (lane + 32 * i >= rows * n)
                continue;
            asm volatile("" ::: "memory"); /* not earlier: registers are rows under way */
            piece<T> weight = piece_load<T>(w, p.column[i]);
            table_load<ROPE>(table, at[2], p.column[i]);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = x[i].at(j) * by;
            round_piece<T>(y);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] *= weight.at(j);
            turn<ROPE>(y, table, 1.f);
            piece_store<T>(at[1], lane + 32 * i, y);
        }
    }
}

/* Rows of any width and place: a warp to a row, which it reads twice. */
template <bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_elements(const __grid_constant__ struct rows r, int64_t c, bool half, const char *w,
                      float eps)
{
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
            turn<ROPE>(y, reinterpret_cast<const float *>(at[2]) + j, 1.f);
            for (int k = 0; k < S; k++)
                row_put(at[1], j + k, y[k], half);
        }
        if (lane == 0)
            *reinterpret_cast<float *>(at[forward_operands<ROPE> - 1]) = rstd;
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Operands: x, dy, dx, the table if there is one, rstd. */
template <bool ROPE> static constexpr int backward_operands = ROPE ? 5 : 4;

/* A tile on its way to shared memory: x, dy and the row of the table; its first row and rstd. */
struct staged {
    char *x, *dy, *table;
    int rows;
    int64_t first;
    float rstd; /* of row `lane` */
};

/* Shared memory for one. */
template <typename T, bool ROPE>
__host__ __device__ __forceinline__ int stage_bytes(int rows, int n)
{
    return 2 * rows * n * 16 + (ROPE ? n * piece<T>::n * (int)sizeof(float) : 0);
}

/* Fetches a tile; one past the end is an empty group. */
template <typename T, bool ROPE>
__device__ __forceinline__ void stage_fill(struct staged &s, const struct rows &r,
                                           const struct tiles &t, int64_t tile, int64_t end, int n)
{
    int lane = threadIdx.x & 31;
    if (tile < end) {
        char *at[backward_operands<ROPE>];
        s.first = tile_seek(t, tile, &s.rows);
        rows_seek(r, s.first, at);
        row_fetch(s.x, at[0], lane, s.rows * n);
        row_fetch(s.dy, at[1], lane, s.rows * n);
        if (ROPE) /* every lane reads all of it */
            for (int i = lane; i < n * piece<T>::n / 4; i += 32)
                piece_fetch(s.table + i * 16, at[3] + i * 16);
        int64_t step = r.step[backward_operands<ROPE> - 1][r.ndim - 1];
        if (lane < s.rows)
            s.rstd =
                *reinterpret_cast<const float *>(at[backward_operands<ROPE> - 1] + lane * step);
    }
    fetches_end();
}

/* One tile: sets dx and adds dy n to the sums of this lane's columns. */
template <typename T, bool ROPE>
__device__ __forceinline__ void
tile_gradient(const struct staged &from, char *to, const struct places &p, int n,
              piece<T> (&weight)[PIECES], float (&sum)[PIECES][piece<T>::n], float *memory)
{
    constexpr int N = piece<T>::n;
    int lane = threadIdx.x & 31, rows = from.rows;
    float d[PIECES][N], dots[PIECES] = {}, rstd = lane < rows ? from.rstd : 0.f;
    keep_packed(weight);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        float table[N];
        piece<T> x = piece_within<T>(from.x, lane + 32 * i, rows * n);
        piece<T> dy = piece_within<T>(from.dy, lane + 32 * i, rows * n);
        table_load<ROPE>(table, from.table, p.column[i]);
#pragma unroll
        for (int j = 0; j < N; j++)
            d[i][j] = dy.at(j);
        turn<ROPE>(d[i], table, -1.f);
#pragma unroll
        for (int j = 0; j < N; j++)
            dots[i] += d[i][j] * weight[i].at(j) * x.at(j);
    }
    float slope = tile_sum(dots, p, rows, n, memory) * rstd * rstd / (float)(n * N);
    keep_packed(weight);
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        float dx[N], v[N], by = of_row(rstd, p.row[i]), down = of_row(slope, p.row[i]);
        asm volatile("" ::: "memory"); /* x is read again: the sums leave no registers for it */
        piece<T> x = piece_within<T>(from.x, lane + 32 * i, rows * n);
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = x.at(j) * by;
        round_piece<T>(v);
#pragma unroll
        for (int j = 0; j < N; j++) {
            dx[j] = by * (d[i][j] * weight[i].at(j) - x.at(j) * down);
            sum[i][j] += d[i][j] * v[j];
        }
        if (lane + 32 * i < rows * n)
            piece_store<T>(to, lane + 32 * i, dx);
    }
}

/*
 * A block to a stretch of tiles, a warp to every WARPS-th of it, with the next one under way while
 * it works on one.  The lanes sum their columns over it in registers, and the block adds, in shared
 * memory, what belongs to the same column.
 */
template <typename T, bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS, 3)
    rms_norm_dx_tiles(const __grid_constant__ struct rows r, const __grid_constant__ struct tiles t,
                      int n, const char *w, float *partial)
{
    constexpr int N = piece<T>::n;
    extern __shared__ float4 stages[];
    __shared__ float memory[WARPS][TILE_MEMORY];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, c = n * N;
    int64_t per = quotient(t.count + gridDim.x - 1, gridDim.x), tile = blockIdx.x * per + warp;
    int64_t end = (blockIdx.x + 1) * per < t.count ? (blockIdx.x + 1) * per : t.count;
    struct staged stage[2];
    struct places p;
    piece<T> weight[PIECES];
    float sum[PIECES][N] = {};
    places_find(p, lane, n);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        weight[i] = piece_load<T>(w, p.column[i]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int bytes = stage_bytes<T, ROPE>(t.rows, n);
        stage[i].x = reinterpret_cast<char *>(stages) + (warp * 2 + i) * bytes;
        stage[i].dy = stage[i].x + t.rows * n * 16;
        stage[i].table = stage[i].dy + t.rows * n * 16;
        stage_fill<T, ROPE>(stage[i], r, t, tile + i * WARPS, end, n);
    }
    for (; tile < end; tile += WARPS) {
        fetches_wait<1>();
        __syncwarp(); /* the row of the table is everybody's */
        tile_gradient<T, ROPE>(stage[0], rows_seek_one(r, stage[0].first, 2), p, n, weight, sum,
                               memory[warp]);
        __syncwarp();
        struct staged done = stage[0];
        stage[0] = stage[1];
        stage[1] = done;
        stage_fill<T, ROPE>(stage[1], r, t, tile + 2 * WARPS, end, n);
    }
    __syncthreads(); /* the memory is now for the sums */
    float *total = reinterpret_cast<float *>(stages);
#pragma unroll
    for (int i = 0; i < PIECES; i++)
        floats_store(&total[(warp * 32 * PIECES + lane + 32 * i) * N], sum[i]);
    __syncthreads();
    for (int j = threadIdx.x; j < c; j += 32 * WARPS) {
        float all = 0.f;
        for (int k = 0; k < WARPS; k++)
#pragma unroll 8
            for (int row = 0; row < t.rows; row++)
                all += total[k * 32 * PIECES * N + row * c + j];
        partial[(int64_t)blockIdx.x * c + j] = all;
    }
}

/* Rows of any width, place and dtypes: a block to a chunk of rows, a thread to every 128th column
 * (or pair), whose sums stand in memory. */
template <bool ROPE>
static __global__ void __launch_bounds__(128)
    rms_norm_dx_elements(const __grid_constant__ struct rows r, int64_t chunk, int64_t c, bool half,
                         bool dy_half, const char *w, float *partial)
{
    constexpr int S = ROPE ? 2 : 1;
    float *dw = partial + blockIdx.x * c;
    int64_t first = blockIdx.x * chunk;
    for (int64_t row = first; row < first + chunk && row < r.count; row++) {
        char *at[backward_operands<ROPE>];
        float dot = 0.f;
        rows_seek(r, row, at);
        float rstd = *reinterpret_cast<const float *>(at[backward_operands<ROPE> - 1]);
        const float *table = reinterpret_cast<const float *>(at[3]);
        for (int64_t j = threadIdx.x * S; j < c; j += 128 * S) {
            float d[S];
            for (int k = 0; k < S; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            turn<ROPE>(d, table + j, -1.f);
            for (int k = 0; k < S; k++)
                dot += d[k] * row_get(w, j + k, half) * row_get(at[0], j + k, half);
        }
        float slope = block_sum(dot) * rstd * rstd / (float)c;
        for (int64_t j = threadIdx.x * S; j < c; j += 128 * S) {
            float d[S];
            for (int k = 0; k < S; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            turn<ROPE>(d, table + j, -1.f);
            for (int k = 0; k < S; k++) {
                float x = row_get(at[0], j + k, half), v = row_get(w, j + k, half);
                float before = row == first ? 0.f : dw[j + k];
                row_put(at[2], j + k, rstd * (d[k] * v - x * slope), half);
                dw[j + k] = before + d[k] * rounded(x * rstd, half);
            }
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Cuts rows of n pieces into tiles; the first n_dense operands must lie without gaps in a run, and
 * the table, if there is one, must stand still. */
static struct tiles tiles_of(const struct rows *r, int n_dense, bool rope, int64_t n)
{
    int last = r->ndim - 1;
    bool runs = !rope || r->step[n_dense][last] == 0;
    for (int k = 0; k < n_dense; k++)
        runs = runs && r->step[k][last] == n * 16;
    struct tiles t = {1, 1, 1, r->count};
    if (!runs)
        return t;
    t.run = r->size[last];
    t.rows = (int)min_i64(t.run, min_i64(32, 32 * PIECES / n));
    t.per_run = (t.run + t.rows - 1) / t.rows;
    t.count = r->count / t.run * t.per_run;
    return t;
}

template <bool ROPE>
static int rms_norm(const struct ckpt_kernel_args *a, float eps, const struct ckpt_view *table)
{
    const struct ckpt_view *x = &a->in[0];
    const char *w = (const char *)a->in[1].data;
    bool half = view_half(x);
    int64_t c = row_width(x), n = c / (half ? 8 : 4);
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    if (ROPE)
        rows_operand(&r, table);
    rows_operand(&r, &a->out[1]);
    rows_finish(&r);
    if (n > 32 * PIECES || !rows_in_pieces(&r, r.n - 1, c, half) || !aligned16(w)) {
        rms_norm_elements<ROPE>
            <<<grid_for(r.count, WARPS), 32 * WARPS, 0, stream_of(a)>>>(r, c, half, w, eps);
        return launched();
    }
    struct tiles t = tiles_of(&r, 2, ROPE, n);
    unsigned grid = grid_for(t.count, WARPS);
    if (half)
        rms_norm_tiles<bf16, ROPE><<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, t, (int)n, w, eps);
    else
        rms_norm_tiles<float, ROPE><<<grid, 32 * WARPS, 0, stream_of(a)>>>(r, t, (int)n, w, eps);
    return launched();
}

template <typename T, bool ROPE>
static void launch_tiles(const struct ckpt_kernel_args *a, const struct rows *r,
                         const struct tiles *t, int n, const char *w, unsigned grid)
{
    size_t stages = (size_t)WARPS * 2 * stage_bytes<T, ROPE>(t->rows, n);
    size_t sums = (size_t)WARPS * 32 * PIECES * piece<T>::n * sizeof(float);
    size_t shared = stages > sums ? stages : sums;
    allow_shared(rms_norm_dx_tiles<T, ROPE>, shared);
    rms_norm_dx_tiles<T, ROPE>
        <<<grid, 32 * WARPS, shared, stream_of(a)>>>(*r, *t, n, w, (float *)a->workspace);
}

/* Launches the kernel that fits and returns the number of its partial sums. */
template <bool ROPE>
static int64_t launch_gradient(const struct ckpt_kernel_args *a, const struct rows *r, int64_t c)
{
    bool half = view_half(&a->in[1]), dy_half = view_half(&a->in[0]);
    const char *w = (const char *)a->in[2].data;
    float *partial = (float *)a->workspace;
    int64_t n = c / (half ? 8 : 4), chunks = cuda_row_chunks(1, r->count);
    if (n > 32 * PIECES || half != dy_half || !rows_in_pieces(r, r->n - 1, c, half) ||
        !aligned16(w)) {
        rms_norm_dx_elements<ROPE><<<(unsigned)chunks, 128, 0, stream_of(a)>>>(
            *r, cuda_row_chunk(1, r->count), c, half, dy_half, w, partial);
        return chunks;
    }
    struct tiles t = tiles_of(r, 3, ROPE, n);
    unsigned grid = (unsigned)min_i64(chunks, t.count);
    if (half)
        launch_tiles<bf16, ROPE>(a, r, &t, (int)n, w, grid);
    else
        launch_tiles<float, ROPE>(a, r, &t, (int)n, w, grid);
    return grid;
}

template <bool ROPE>
static int rms_norm_dx(const struct ckpt_kernel_args *a, const struct ckpt_view *table)
{
    const struct ckpt_view *x = &a->in[1];
    int64_t c = row_width(x);
    struct rows r, dw;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[0]);
    rows_operand(&r, &a->out[0]);
    if (ROPE)
        rows_operand(&r, table);
    rows_operand(&r, &a->in[3]);
    rows_finish(&r);
    int64_t chunks = launch_gradient<ROPE>(a, &r, c);
    rows_begin(&dw, &a->out[1]);
    rows_finish(&dw);
    launch_add_chunks(&dw, 1, chunks, c, 0, 1, (const float *)a->workspace, stream_of(a));
    return launched();
}

int cuda_rms_norm(const struct ckpt_kernel_args *a)
{
    return rms_norm<false>(a, ((const struct norm_attr *)a->attr)->eps, NULL);
}

int cuda_rms_norm_dx(const struct ckpt_kernel_args *a)
{
    return rms_norm_dx<false>(a, NULL);
}

int cuda_rms_norm_rope(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = (const struct rms_norm_rope_attr *)a->attr;
    struct ckpt_view table = rope_table_rows(&a->in[2], &a->in[0].desc, attr->axis);
    return rms_norm<true>(a, attr->eps, &table);
}

int cuda_rms_norm_rope_dx(const struct ckpt_kernel_args *a)
{
    const struct rms_norm_rope_attr *attr = (const struct rms_norm_rope_attr *)a->attr;
    struct ckpt_view table = rope_table_rows(&a->in[4], &a->in[1].desc, attr->axis);
    return rms_norm_dx<true>(a, &table);
}
