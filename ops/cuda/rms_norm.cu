/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMS norm, alone and with the rotary embedding that follows it (see ops/norm.c, rms_norm_rope.c).
 *
 * Rows are short: the heads of a token, 72 elements or so each, lie one after the other.  A tile of
 * such rows is one stretch of pieces, which a warp (forward) or a block, a piece a thread
 * (backward), reads and writes in order; which row and column a thread's pieces belong to is the
 * same in every tile.
 */
#include "cuda/kernels.h"
#include "cuda/row_sums.cuh"
#include "cuda/workspace.h"
#include "norm.h"
#include "rope.h"

constexpr int BLOCK = 32 * PIECES; /* threads backward: 16 heads of 72 bf16 are 144 pieces */

/* Runs of rows without gaps between them, each cut into tiles of so many rows, the last shorter. */
struct tiles {
    int rows, last;              /* of a tile, of the last one of a run */
    int64_t run, per_run, count; /* rows of a run, tiles of a run, tiles in all */
    int64_t step;                /* of the statistics, from row to row */
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

/* Division by n through its reciprocal in 1/65536, rounded up: exact below 65536 / n. */
__device__ __forceinline__ void places_find(struct places &p, int lane, int n, int reciprocal)
{
#pragma unroll
    for (int i = 0; i < PIECES; i++) {
        p.row[i] = (lane + 32 * i) * reciprocal >> 16;
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
__device__ __forceinline__ void table_load(float (&table)[N], const char *at)
{
    if constexpr (ROPE)
        floats_load(table, reinterpret_cast<const float *>(at));
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
    largest<T> most(to);
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
            asm volatile("" ::: "memory"); /* not earlier: registers are rows under way */
            piece<T> weight = piece_load<T>(w, p.column[i]);
            table_load<ROPE>(table, at[2] + p.column[i] * N * (int)sizeof(float));
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = x[i][j] * by;
            round_piece<T>(y);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] *= weight.at(j);
            turn<ROPE>(y, table, 1.f);
            piece_store<T>(at[1], lane + 32 * i, y, most);
        }
    }
    leave_largest(to, most);
}

/* W warps to a row, P pieces a lane; it is read once. */
template <typename T, int W, int P>
static __global__ void __launch_bounds__(W == 1 ? 32 * WARPS : 32 * W)
    rms_norm_long(const __grid_constant__ struct rows r, int n, const char *w, float eps,
                  uint32_t *to)
{
    largest<T> most(to);
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
            asm volatile("" ::: "memory"); /* not earlier: registers are rows under way */
            piece<T> weight = piece_load<T>(w, column);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] = x[i][j] * rstd;
            round_piece<T>(y);
#pragma unroll
            for (int j = 0; j < N; j++)
                y[j] *= weight.at(j);
            piece_store<T>(at[1], column, y, most);
        }
        if (rank == 0)
            *reinterpret_cast<float *>(at[2]) = rstd;
    }
    leave_largest(to, most);
}

/* Rows of any width and place: a warp to a row, which it reads twice. */
template <bool ROPE>
static __global__ void __launch_bounds__(32 * WARPS)
    rms_norm_elements(const __grid_constant__ struct rows r, int64_t c, bool half, const char *w,
                      float eps, uint32_t *to)
{
    largest<float> most(to);
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
                row_put(at[1], j + k, y[k], half, most);
        }
        if (lane == 0)
            *reinterpret_cast<float *>(at[forward_operands<ROPE> - 1]) = rstd;
    }
    leave_largest(to, most);
}

/* ---- backward -------------------------------------------------------------------------------- */

/*
 * Where a thread's piece is in x, dy and dx, in the table if there is one, and where rstd of its
 * row is; and what does not change from tile to tile.
 */
template <typename T, bool ROPE> struct tile_walk {
    static constexpr int operands = 4 + ROPE;
    char *at[operands];
    int row, column; /* the column in pieces */
    bool there;      /* has it a piece at all? */
    float weight[piece<T>::n];
    float share; /* of a column in a row: one over their number */

    __device__ __forceinline__ tile_walk(const struct tiles &t, int n, const char *w)
    {
        row = threadIdx.x / n;
        column = threadIdx.x - row * n;
        there = row < t.rows;
        row = there ? row : 0;
        share = 1.f / (float)(n * piece<T>::n);
        piece<T> all = piece_load<T>(w, column);
#pragma unroll
        for (int j = 0; j < piece<T>::n; j++)
            weight[j] = all.at(j);
    }

    /* Returns how many tiles from this one on, below end, are one step apart. */
    __device__ __forceinline__ int seek(const struct rows &r, const struct tiles &t, int64_t tile,
                                        int64_t end)
    {
        int ahead = rows_ahead(r, tile, end, at);
#pragma unroll
        for (int k = 0; k < 3; k++)
            at[k] += there ? threadIdx.x * 16 : 0;
        if constexpr (ROPE)
            at[3] += column * piece<T>::n * (int)sizeof(float);
        at[operands - 1] += row * t.step;
        return ahead;
    }

    __device__ __forceinline__ void next(const struct rows &r)
    {
#pragma unroll
        for (int k = 0; k < operands; k++)
            at[k] += r.step[k][r.ndim - 1];
    }
};

/* Calls step(how many, rows of each) for a block's stretch of tiles, R at a time as far as they
 * reach; there are at most `each` of them. */
template <int R, typename W, typename F>
__device__ __forceinline__ void walk_tiles(W &w, const struct rows &r, const struct tiles &t,
                                           int64_t each, const F &step)
{
    const std::integral_constant<int, R> several = {};
    const std::integral_constant<int, 1> one = {};
    const int64_t first = blockIdx.x * each, end = first + each < t.count ? first + each : t.count;
    for (int64_t tile = first; tile < end;) {
        int ahead = w.seek(r, t, tile, end);
        tile += ahead;
        bool shorter = t.last < t.rows && tile - quotient(tile, t.per_run) * t.per_run == 0;
        for (ahead -= shorter; ahead >= R; ahead -= R)
            step(several, t.rows);
        for (; ahead > 0; ahead--)
            step(one, t.rows);
        if (shorter)
            step(one, t.last);
    }
}

/* Room for the sums over rows of R tiles; the next ones go to the other half, so that one barrier
 * does: whoever is past it has read what was there before. */
template <int R> struct tile_memory {
    vec<float, R> half[2][BLOCK];
};

/* The sums of x over the row that a thread's piece belongs to. */
template <int M>
__device__ __forceinline__ void sum_pieces(float (&x)[M], vec<float, M> *shared, int row, int n,
                                           bool alone)
{
    int first = row * n, count = n, at = threadIdx.x;
    vec<float, M> mine;
    if (alone) { /* the block has one row */
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

/*
 * R tiles of `rows` rows: sets dx and adds dy n to the sums of this thread's columns.  All of them
 * are on their way before the first is used.
 */
template <typename T, bool ROPE, int R>
__device__ __forceinline__ void tiles_gradient(tile_walk<T, ROPE> &w, const struct rows &r,
                                               int rows, int n, bool alone, vec<float, R> *shared,
                                               float (&sum)[piece<T>::n], largest<T> &most)
{
    constexpr int N = piece<T>::n, RSTD = tile_walk<T, ROPE>::operands - 1;
    const bool there = w.there && w.row < rows;
    piece<T> x[R], dy[R];
    float rstd[R], table[R][N], d[R][N], slope[R] = {};
    char *to[R];
#pragma unroll
    for (int k = 0; k < R; k++) {
        dy[k] = there ? piece_load<T>(w.at[1], 0) : piece<T>{};
        x[k] = there ? piece_load<T>(w.at[0], 0) : piece<T>{};
        rstd[k] = there ? *reinterpret_cast<const float *>(w.at[RSTD]) : 0.f;
        table_load<ROPE>(table[k], w.at[3]);
        to[k] = w.at[2];
        w.next(r);
    }
#pragma unroll
    for (int k = 0; k < R; k++) {
#pragma unroll
        for (int j = 0; j < N; j++)
            d[k][j] = dy[k].at(j);
        turn<ROPE>(d[k], table[k], -1.f);
#pragma unroll
        for (int j = 0; j < N; j++)
            slope[k] += d[k][j] * w.weight[j] * x[k].at(j);
    }
    sum_pieces(slope, shared, w.row, n, alone);
#pragma unroll
    for (int k = 0; k < R; k++) {
        float dx[N], v[N], by = rstd[k], down = slope[k] * by * by * w.share;
#pragma unroll
        for (int j = 0; j < N; j++)
            v[j] = x[k].at(j) * by;
#pragma unroll
        for (int j = 0; j < N; j++)
            dx[j] = by * (d[k][j] * w.weight[j] - x[k].at(j) * down);
        round_piece<T>(v);
#pragma unroll
        for (int j = 0; j < N; j++)
            sum[j] += d[k][j] * v[j];
        if (there)
            piece_store<T>(to[k], 0, dx, most);
    }
}

/*
 * A block to a stretch of tiles.  Threads sum their columns over it in registers, and the block
 * adds, in shared memory, what belongs to the same column.
 */
template <typename T, bool ROPE, int R>
static __global__ void __launch_bounds__(BLOCK, 4)
    rms_norm_dx_tiles(const __grid_constant__ struct rows r, const __grid_constant__ struct tiles t,
                      int n, const char *weight, int64_t each, float *partial, uint32_t *to)
{
    constexpr int N = piece<T>::n;
    __shared__ tile_memory<R> memory;
    __shared__ float4 sums[BLOCK * N / 4];
    tile_walk<T, ROPE> w(t, n, weight);
    float sum[N] = {}, *total = reinterpret_cast<float *>(sums);
    int side = 0, c = n * N;
    largest<T> most(to);
    let_next_kernel_come();
    walk_tiles<R>(w, r, t, each, [&](auto many, int rows) {
        constexpr int M = decltype(many)::value;
        tiles_gradient<T, ROPE, M>(w, r, rows, n, t.rows == 1,
                                   reinterpret_cast<vec<float, M> *>(memory.half[side]), sum, most);
        side ^= 1;
    });
    if (w.there)
        floats_store(total + threadIdx.x * N, sum);
    __syncthreads();
    for (int j = threadIdx.x; j < c; j += blockDim.x) {
        float all = 0.f;
#pragma unroll 8
        for (int row = 0; row < t.rows; row++)
            all += total[row * c + j];
        partial[(int64_t)blockIdx.x * c + j] = all;
    }
    leave_largest(to, most);
}

/* Turned rows of any width, place and dtypes: a block to a chunk of rows, a thread to every 128th
 * pair of columns, whose sums stand in memory. */
static __global__ void __launch_bounds__(128)
    rms_norm_rope_dx_elements(const __grid_constant__ struct rows r, int64_t chunk, int64_t c,
                              bool half, bool dy_half, const char *w, float *partial)
{
    float *dw = partial + blockIdx.x * c;
    int64_t first = blockIdx.x * chunk;
    for (int64_t row = first; row < first + chunk && row < r.count; row++) {
        char *at[tile_walk<bf16, true>::operands];
        float dot = 0.f;
        rows_seek(r, row, at);
        float rstd = *reinterpret_cast<const float *>(at[tile_walk<bf16, true>::operands - 1]);
        const float *table = reinterpret_cast<const float *>(at[3]);
        for (int64_t j = threadIdx.x * 2; j < c; j += 128 * 2) {
            float d[2];
            for (int k = 0; k < 2; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            turn<true>(d, table + j, -1.f);
            for (int k = 0; k < 2; k++)
                dot += d[k] * row_get(w, j + k, half) * row_get(at[0], j + k, half);
        }
        float slope = block_sum(dot) * rstd * rstd / (float)c;
        for (int64_t j = threadIdx.x * 2; j < c; j += 128 * 2) {
            float d[2];
            for (int k = 0; k < 2; k++)
                d[k] = row_get(at[1], j + k, dy_half);
            turn<true>(d, table + j, -1.f);
            for (int k = 0; k < 2; k++) {
                float x = row_get(at[0], j + k, half), v = row_get(w, j + k, half);
                float before = row == first ? 0.f : dw[j + k];
                row_put(at[2], j + k, rstd * (d[k] * v - x * slope), half);
                dw[j + k] = before + d[k] * rounded(x * rstd, half);
            }
        }
    }
}

/* ---- launches -------------------------------------------------------------------------------- */

/* Cuts rows of n pieces into tiles of `most` rows, or of as many as fit; the first n_dense operands
 * must lie without gaps in a run, and the table, if there is one, must stand still. */
static struct tiles tiles_of(const struct rows *r, int n_dense, bool rope, int64_t n, int64_t most)
{
    int last = r->ndim - 1;
    bool runs = !rope || r->step[n_dense][last] == 0;
    struct tiles t = {1, 1, 1, 1, r->count, r->step[r->n - 1][last]};
    for (int k = 0; k < n_dense; k++)
        runs = runs && r->step[k][last] == n * 16;
    if (!runs)
        return t;
    t.run = r->size[last];
    t.rows = (int)min_i64(min_i64(t.run, most), 32 * PIECES / n);
    t.per_run = (t.run + t.rows - 1) / t.rows;
    t.last = (int)(t.run - (t.per_run - 1) * t.rows);
    t.count = r->count / t.run * t.per_run;
    return t;
}

/* The tiles as rows of their own. */
static struct rows rows_of_tiles(const struct rows *r, const struct tiles *t)
{
    struct rows tiles = *r;
    int last = r->ndim - 1;
    if (t->run == 1)
        return tiles;
    tiles.count = t->count;
    tiles.size[last] = t->per_run;
    for (int k = 0; k < r->n; k++)
        tiles.step[k][last] *= t->rows;
    if (t->per_run == 1 && last > 0)
        tiles.ndim--;
    return tiles;
}

/* Rows of n pieces, too many for two of them to share a tile. */
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
    uint32_t *to = largest_begin(a, 2);
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

/* Launches the kernel that fits and returns the number of its partial sums. */
template <typename T, bool ROPE>
static int64_t launch_tiles(const struct ckpt_kernel_args *a, const struct rows *r, int64_t n)
{
    const struct tiles t = tiles_of(r, 3, ROPE, n, n > 32 ? 1 : BLOCK); /* long rows alone */
    const int64_t chunks = min_i64(t.count, cuda_weight_chunks(r->count));
    const int64_t each = (t.count + chunks - 1) / chunks;
    const unsigned grid = grid_for(t.count, each), threads = (unsigned)round_up(t.rows * n, 32);
    rms_norm_dx_tiles<T, ROPE, 2><<<grid, threads, 0, stream_of(a)>>>(
        rows_of_tiles(r, &t), t, (int)n, (const char *)a->in[2].data, each, (float *)a->workspace,
        largest_begin(a, 2));
    return grid;
}

/* Do the tiles take rows of x and dy? */
static bool in_tiles(const struct ckpt_kernel_args *a, const struct rows *r, int64_t c)
{
    bool half = view_half(&a->in[1]);
    return c <= BLOCK * (half ? 8 : 4) && half == view_half(&a->in[0]) &&
           rows_in_pieces(r, r->n - 1, c, half) && aligned16(a->in[2].data);
}

static void add_parts(const struct ckpt_kernel_args *a, int64_t chunks)
{
    struct rows dw;
    rows_begin(&dw, &a->out[1]);
    rows_finish(&dw);
    launch_add_chunks(&dw, 1, chunks, row_width(&a->in[1]), 0, 1, (const float *)a->workspace,
                      total{}, stream_of(a));
}

/* The rows of x, dy and dx, the table if there is one, and rstd. */
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

template <bool ROPE>
static int64_t launch_gradient(const struct ckpt_kernel_args *a, const struct rows *r)
{
    const bool half = view_half(&a->in[1]);
    const int64_t n = row_width(&a->in[1]) / (half ? 8 : 4);
    return half ? launch_tiles<bf16, ROPE>(a, r, n) : launch_tiles<float, ROPE>(a, r, n);
}

int cuda_rms_norm(const struct ckpt_kernel_args *a)
{
    return rms_norm<false>(a, ((const struct norm_attr *)a->attr)->eps, NULL);
}

int cuda_rms_norm_dx(const struct ckpt_kernel_args *a)
{
    struct rows r;
    gradient_operands(&r, a, NULL);
    if (a->in[4].data || !in_tiles(a, &r, row_width(&a->in[1])))
        return cuda_rms_norm_rows_dx(a);
    add_parts(a, launch_gradient<false>(a, &r));
    return launched();
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
    const int64_t c = row_width(&a->in[1]);
    struct rows r;
    gradient_operands(&r, a, &table);
    if (in_tiles(a, &r, c)) {
        add_parts(a, launch_gradient<true>(a, &r));
        return launched();
    }
    const int64_t chunks = cuda_weight_chunks(r.count);
    rms_norm_rope_dx_elements<<<(unsigned)chunks, 128, 0, stream_of(a)>>>(
        r, cuda_chunk(CUDA_WEIGHT_WAVE, r.count), c, view_half(&a->in[1]), view_half(&a->in[0]),
        (const char *)a->in[2].data, (float *)a->workspace);
    add_parts(a, chunks);
    return launched();
}
