/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in fp32 arithmetic for calls that the tensor core kernels do not support: fp32
 * operands, masks of short sequences, and heads wider than 128 that attention_wide.h does not
 * support.  Simple, and correct for every size.
 *
 * A block of eight warps has 32 rows (queries, or keys for dk and dv), four per warp, and loops
 * over the other side 32 rows at a time, one per lane.  Sums over the width go through shared
 * memory 32 columns at a time.  A block computes up to 128 columns of the result, every 32nd per
 * lane; wider heads are split over several blocks, each of which recomputes the scores.
 */
#include "kernels/cuda/attention/attention_args.cuh"

constexpr int SIDE = 32;
constexpr int WARP_ROWS = 4; /* rows of a warp */
constexpr int THREADS = 32 * SIDE / WARP_ROWS;
constexpr int BAND = 128; /* columns of a block */
constexpr int EACH = BAND / 32;

struct scratch {
    float rows[SIDE][SIDE];      /* a whole warp reads the same value */
    float lanes[SIDE][SIDE + 1]; /* each lane reads its own row */
    float factor[SIDE][SIDE];    /* probabilities or their gradients, by row and lane */
    float wide[SIDE][BAND];
    float delta[SIDE];
};

/* Loads rows [0, n) and columns [first, first + COLUMNS) of x; elements out of range are zero. */
template <int COLUMNS>
__device__ __forceinline__ void load_block(float *to, int pitch, const attention_rows &x, int n,
                                           int first, int width)
{
    for (int i = threadIdx.x; i < SIDE * COLUMNS; i += THREADS) {
        int r = i / COLUMNS, c = i % COLUMNS;
        bool valid = r < n && first + c < width;
        to[r * pitch + c] = valid ? attention_element(x, r * x.row + first + c) : 0.f;
    }
}

/* s[r] = the product of the warp's row r and the lane's row of the other side. */
__device__ __forceinline__ void find_scores(float (&s)[WARP_ROWS], struct scratch *sh,
                                            const attention_rows &rows, int n_rows,
                                            const attention_rows &lanes, int n_lanes, int width)
{
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
        s[r] = 0;
    for (int first = 0; first < width; first += SIDE) {
        __syncthreads();
        load_block<SIDE>(&sh->rows[0][0], SIDE, rows, n_rows, first, width);
        load_block<SIDE>(&sh->lanes[0][0], SIDE + 1, lanes, n_lanes, first, width);
        __syncthreads();
#pragma unroll 8
        for (int d = 0; d < SIDE; d++)
#pragma unroll
            for (int r = 0; r < WARP_ROWS; r++)
                s[r] += sh->rows[mine + r][d] * sh->lanes[lane][d];
    }
}

/* sum += factor x, for the columns of the band that begins at `first`. */
__device__ __forceinline__ void add_product(float (&sum)[WARP_ROWS][EACH], struct scratch *sh,
                                            const float (&factor)[WARP_ROWS],
                                            const attention_rows &x, int n, int first, int width)
{
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
    __syncthreads();
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
        sh->factor[mine + r][lane] = factor[r];
    load_block<BAND>(&sh->wide[0][0], BAND, x, n, first, width);
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < SIDE; j++)
#pragma unroll
        for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
            for (int c = 0; c < EACH; c++)
                sum[r][c] += sh->factor[mine + r][j] * sh->wide[j][lane + 32 * c];
}

__device__ __forceinline__ void clear_sum(float (&sum)[WARP_ROWS][EACH])
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            sum[r][c] = 0;
}

/* Stores the band to rows [0, n) of x, each row multiplied by its factor. */
__device__ __forceinline__ void store_band(const attention_rows &x, int n, int first, int width,
                                           const float (&sum)[WARP_ROWS][EACH],
                                           const float (&factor)[WARP_ROWS])
{
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++)
#pragma unroll
        for (int c = 0; c < EACH; c++)
            if (mine + r < n && first + lane + 32 * c < width)
                attention_set_element(x, (mine + r) * x.row + first + lane + 32 * c,
                                      sum[r][c] * factor[r]);
}

/* The product of row `row` of o and of d_o, in every lane. */
__device__ __forceinline__ float row_product(const attention_rows &o, const attention_rows &d_o,
                                             int row, int width)
{
    float sum = 0;
    for (int d = threadIdx.x & 31; d < width; d += 32)
        sum += attention_element(o, row * o.row + d) * attention_element(d_o, row * d_o.row + d);
    return warp_sum(sum);
}

__device__ __forceinline__ attention_rows rows_from(const attention_rows &x, int64_t first)
{
    attention_rows r = x;
    r.data = (char *)x.data + first * x.row * (x.f32 ? 4 : 2);
    return r;
}

__device__ __forceinline__ int at_most_side(int64_t n)
{
    return n < SIDE ? (int)n : SIDE;
}

/* The largest multiple of SIDE that is at most x. */
__device__ __forceinline__ int64_t whole_sides(int64_t x)
{
    return x / SIDE * SIDE;
}

__device__ __forceinline__ bool in_span(const struct attention_span &s, int64_t key)
{
    return key >= s.begin && key < s.end;
}

/* The rows, columns and keys of a block of queries; keys [span.begin, span.end) of the sequence,
 * rounded down to begin at a step. */
struct query_block {
    struct attention_keys keys;
    struct attention_span span;
    int64_t sequence, head, shared, first; /* shared: the head of keys and values */
    int band, n;
};

__device__ __forceinline__ struct query_block query_block_of(const struct attention_args &a,
                                                             int64_t unit)
{
    struct query_block b;
    b.head = take_index(unit, a.n_heads);
    b.band = (int)take_index(unit, (a.width + BAND - 1) / BAND) * BAND;
    b.first = take_index(unit, (a.n_queries + SIDE - 1) / SIDE) * SIDE;
    b.n = at_most_side(a.n_queries - b.first);
    b.sequence = unit;
    b.shared = b.head / a.group;
    b.keys = attention_keys_of(a, unit);
    b.span = attention_span_of_rows(a, b.first, b.first + b.n, b.keys.n);
    b.span.begin = whole_sides(b.span.begin);
    return b;
}

/* Sets the keys visible to the four rows of a warp; rows out of range see none. */
__device__ __forceinline__ void find_spans(struct attention_span (&seen)[WARP_ROWS],
                                           const struct attention_args &a,
                                           const struct query_block &b)
{
    const int mine = threadIdx.x / 32 * WARP_ROWS;
    for (int r = 0; r < WARP_ROWS; r++) {
        seen[r].begin = seen[r].end = 0;
        if (mine + r < b.n)
            seen[r] = attention_span_of(a, b.sequence, b.first + mine + r, b.keys.n);
    }
}

/* ---- forward -------------------------------------------------------------------------------- */

/* Converts scores to exp(score - maximum), and rescales earlier sums to the new maximum. */
__device__ __forceinline__ void softmax_step(float (&s)[WARP_ROWS], float (&maximum)[WARP_ROWS],
                                             float (&total)[WARP_ROWS],
                                             float (&sum)[WARP_ROWS][EACH])
{
#pragma unroll
    for (int r = 0; r < WARP_ROWS; r++) {
        /* a row that has seen no key yet has the maximum -infinity, which is not subtracted */
        float top = fmaxf(maximum[r], warp_max(s[r]));
        float shift = top == -INFINITY ? 0.f : top, factor = expf(maximum[r] - shift);
        s[r] = expf(s[r] - shift);
        total[r] = total[r] * factor + warp_sum(s[r]);
        maximum[r] = top;
#pragma unroll
        for (int c = 0; c < EACH; c++)
            sum[r][c] *= factor;
    }
}

__global__ void __launch_bounds__(THREADS)
    plain_forward(const __grid_constant__ attention_args a, int64_t first_unit)
{
    __shared__ struct scratch sh;
    const struct query_block b = query_block_of(a, first_unit + blockIdx.x);
    const attention_rows q = attention_rows_at(a, a.q, b.sequence, b.head, b.first);
    const attention_rows k = attention_rows_at(a, a.k, b.sequence, b.shared, b.keys.first);
    const attention_rows v = attention_rows_at(a, a.v, b.sequence, b.shared, b.keys.first);
    const struct attention_bias bias = attention_bias_of(a, b.sequence, b.head);
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
    const float scale = attention_scale(a, b.keys);
    float s[WARP_ROWS], maximum[WARP_ROWS], total[WARP_ROWS], sum[WARP_ROWS][EACH];
    struct attention_span seen[WARP_ROWS];
    find_spans(seen, a, b);
    clear_sum(sum);
    for (int r = 0; r < WARP_ROWS; r++) {
        maximum[r] = -INFINITY;
        total[r] = 0;
    }
    for (int64_t j = b.span.begin; j < b.span.end; j += SIDE) {
        int n = at_most_side(b.keys.n - j);
        find_scores(s, &sh, q, b.n, rows_from(k, j), n, a.width);
        for (int r = 0; r < WARP_ROWS; r++) {
            bool visible = in_span(seen[r], j + lane);
            s[r] = visible ? s[r] * scale : -INFINITY;
            if (visible && bias.data)
                s[r] += attention_bias_at(bias, b.first + mine + r, j + lane);
        }
        softmax_step(s, maximum, total, sum);
        add_product(sum, &sh, s, rows_from(v, j), n, b.band, a.width);
    }
    float *lse = attention_lse_at(a, b.sequence, b.head) + b.first * a.lse.row;
    for (int r = 0; r < WARP_ROWS; r++) {
        if (b.band == 0 && lane == 0 && mine + r < b.n)
            lse[(mine + r) * a.lse.row] = total[r] == 0.f ? 0.f : maximum[r] + logf(total[r]);
        total[r] = total[r] == 0.f ? 0.f : 1.f / total[r];
    }
    store_band(attention_rows_at(a, a.o, b.sequence, b.head, b.first), b.n, b.band, a.width, sum,
               total);
}

/* ---- backward ------------------------------------------------------------------------------- */

/* Converts s and dp to p and ds = p (dp - delta); shift: the lse minus the bias. lse is rounded
 * like the scores, so p is clamped to 1.  With a single key ds is 0, as the scale is
 * (attention_scale). */
__device__ __forceinline__ void score_gradient(float &s, float &dp, float scale, float shift,
                                               float delta, const struct attention_span &seen,
                                               int64_t key)
{
    bool visible = in_span(seen, key);
    s = visible ? expf(at_most_zero(s * scale - shift)) : 0.f;
    dp = visible && seen.end - seen.begin > 1 ? s * (dp - delta) : 0.f;
}

/* The lse minus the bias of a score. */
__device__ __forceinline__ float shift_of(const struct attention_bias &bias, float lse,
                                          const struct attention_span &seen, int64_t query,
                                          int64_t key)
{
    return bias.data && in_span(seen, key) ? lse - attention_bias_at(bias, query, key) : lse;
}

__global__ void __launch_bounds__(THREADS)
    plain_backward_queries(const __grid_constant__ attention_args a, int64_t first_unit)
{
    __shared__ struct scratch sh;
    const struct query_block b = query_block_of(a, first_unit + blockIdx.x);
    const attention_rows q = attention_rows_at(a, a.q, b.sequence, b.head, b.first);
    const attention_rows k = attention_rows_at(a, a.k, b.sequence, b.shared, b.keys.first);
    const attention_rows v = attention_rows_at(a, a.v, b.sequence, b.shared, b.keys.first);
    const struct attention_bias bias = attention_bias_of(a, b.sequence, b.head);
    const attention_rows o = attention_rows_at(a, a.o, b.sequence, b.head, b.first);
    const attention_rows d_o = attention_rows_at(a, a.d_o, b.sequence, b.head, b.first);
    const float *stored = attention_lse_at(a, b.sequence, b.head) + b.first * a.lse.row;
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
    float s[WARP_ROWS], ds[WARP_ROWS], lse[WARP_ROWS], delta[WARP_ROWS], scale[WARP_ROWS],
        sum[WARP_ROWS][EACH];
    struct attention_span seen[WARP_ROWS];
    find_spans(seen, a, b);
    clear_sum(sum);
    for (int r = 0; r < WARP_ROWS; r++) {
        bool valid = mine + r < b.n;
        lse[r] = valid ? stored[(mine + r) * a.lse.row] : 0.f;
        delta[r] = valid ? row_product(o, d_o, mine + r, a.width) : 0.f;
        scale[r] = attention_scale(a, b.keys);
    }
    for (int64_t j = b.span.begin; j < b.span.end; j += SIDE) {
        int n = at_most_side(b.keys.n - j);
        find_scores(s, &sh, q, b.n, rows_from(k, j), n, a.width);
        find_scores(ds, &sh, d_o, b.n, rows_from(v, j), n, a.width);
        for (int r = 0; r < WARP_ROWS; r++) {
            float shift = shift_of(bias, lse[r], seen[r], b.first + mine + r, j + lane);
            score_gradient(s[r], ds[r], scale[r], shift, delta[r], seen[r], j + lane);
        }
        add_product(sum, &sh, ds, rows_from(k, j), n, b.band, a.width);
    }
    store_band(attention_rows_at(a, a.dq, b.sequence, b.head, b.first), b.n, b.band, a.width, sum,
               scale);
}

/* A tile of keys of one head of keys and values. */
struct key_block {
    struct attention_key_tile tile;
    int64_t shared;
    int n, n_rows; /* valid keys, and rows that get a gradient */
    int band;
};

__device__ __forceinline__ struct key_block key_block_of(const struct attention_args &a,
                                                         int64_t unit)
{
    struct key_block b;
    b.shared = take_index(unit, a.n_heads / a.group);
    b.band = (int)take_index(unit, (a.width + BAND - 1) / BAND) * BAND;
    b.tile = attention_key_tile_of(a, unit, SIDE);
    const int64_t left = b.tile.keys.n - b.tile.first;
    b.n = left < 0 ? 0 : at_most_side(left);
    b.n_rows = a.lens ? b.n : at_most_side(a.n_keys - b.tile.first);
    return b;
}

/* Adds the contributions of the queries of one head to a tile of keys. */
__device__ __forceinline__ void add_queries(float (&dk)[WARP_ROWS][EACH],
                                            float (&dv)[WARP_ROWS][EACH], struct scratch *sh,
                                            const struct attention_args &a,
                                            const struct key_block &b, const attention_rows &k,
                                            const attention_rows &v, int64_t head, float scale)
{
    const int64_t sequence = b.tile.sequence;
    const attention_rows q = attention_rows_at(a, a.q, sequence, head, 0);
    const attention_rows o = attention_rows_at(a, a.o, sequence, head, 0);
    const attention_rows d_o = attention_rows_at(a, a.d_o, sequence, head, 0);
    const struct attention_bias bias = attention_bias_of(a, sequence, head);
    const float *stored = attention_lse_at(a, sequence, head);
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
    const struct attention_span rows =
        attention_queries_of_keys(a, b.tile.first, b.tile.first + b.n, b.tile.keys.n);
    float s[WARP_ROWS], ds[WARP_ROWS];
    for (int64_t i = whole_sides(rows.begin); i < rows.end; i += SIDE) {
        int m = at_most_side(a.n_queries - i);
        const attention_rows qi = rows_from(q, i), d_oi = rows_from(d_o, i), oi = rows_from(o, i);
        for (int r = mine; r < mine + WARP_ROWS; r++) {
            float delta = r < m ? row_product(oi, d_oi, r, a.width) : 0.f;
            if (lane == 0)
                sh->delta[r] = delta;
        }
        find_scores(s, sh, k, b.n, qi, m, a.width);
        find_scores(ds, sh, v, b.n, d_oi, m, a.width);
        struct attention_span seen = {0, 0};
        if (lane < m)
            seen = attention_span_of(a, sequence, i + lane, b.tile.keys.n);
        float lse = lane < m ? stored[(i + lane) * a.lse.row] : 0.f, delta = sh->delta[lane];
        for (int r = 0; r < WARP_ROWS; r++) {
            int64_t key = b.tile.first + mine + r;
            float shift = shift_of(bias, lse, seen, i + lane, key);
            score_gradient(s[r], ds[r], scale, shift, delta, seen, key);
        }
        add_product(dv, sh, s, d_oi, m, b.band, a.width);
        add_product(dk, sh, ds, qi, m, b.band, a.width);
    }
}

__global__ void __launch_bounds__(THREADS)
    plain_backward_keys(const __grid_constant__ attention_args a, int64_t first_unit)
{
    __shared__ struct scratch sh;
    const struct key_block b = key_block_of(a, first_unit + blockIdx.x);
    if (b.tile.sequence < 0)
        return;
    const int64_t sequence = b.tile.sequence, first = b.tile.keys.first + b.tile.first;
    const attention_rows k = attention_rows_at(a, a.k, sequence, b.shared, first);
    const attention_rows v = attention_rows_at(a, a.v, sequence, b.shared, first);
    float scale[WARP_ROWS], one[WARP_ROWS], dk[WARP_ROWS][EACH], dv[WARP_ROWS][EACH];
    clear_sum(dk);
    clear_sum(dv);
    for (int r = 0; r < WARP_ROWS; r++) {
        scale[r] = attention_scale(a, b.tile.keys);
        one[r] = 1;
    }
    for (int64_t member = 0; b.n > 0 && member < a.group; member++)
        add_queries(dk, dv, &sh, a, b, k, v, b.shared * a.group + member, scale[0]);
    store_band(attention_rows_at(a, a.dk, sequence, b.shared, first), b.n_rows, b.band, a.width, dk,
               scale);
    store_band(attention_rows_at(a, a.dv, sequence, b.shared, first), b.n_rows, b.band, a.width, dv,
               one);
}

/* The gradient of the bias, [units, queries, keys]: one block per 32 x 32 elements of a unit, which
 * loops over its members in order. */
__global__ void __launch_bounds__(THREADS)
    plain_bias(const __grid_constant__ attention_args a,
               const __grid_constant__ attention_fold fold, float *out, int64_t first_unit)
{
    __shared__ struct scratch sh;
    const int lane = threadIdx.x & 31, mine = threadIdx.x / 32 * WARP_ROWS;
    int64_t unit = first_unit + blockIdx.x;
    const int64_t key = take_index(unit, (a.n_keys + SIDE - 1) / SIDE) * SIDE;
    struct query_block b = {};
    b.first = take_index(unit, (a.n_queries + SIDE - 1) / SIDE) * SIDE;
    b.n = at_most_side(a.n_queries - b.first);
    float s[WARP_ROWS], ds[WARP_ROWS], sum[WARP_ROWS] = {};
    struct attention_span seen[WARP_ROWS];
    for (int64_t member = 0; member < fold.members; member++) {
        b.sequence = attention_fold_head(&fold, unit, member);
        b.head = take_index(b.sequence, a.n_heads);
        b.shared = b.head / a.group;
        b.keys = attention_keys_of(a, b.sequence);
        b.span = attention_span_of_rows(a, b.first, b.first + b.n, b.keys.n);
        if (key >= b.span.end || key + SIDE <= b.span.begin)
            continue; /* for all threads of the block */
        const int n = at_most_side(b.keys.n - key);
        const attention_rows q = attention_rows_at(a, a.q, b.sequence, b.head, b.first);
        const attention_rows k = attention_rows_at(a, a.k, b.sequence, b.shared, key);
        const attention_rows v = attention_rows_at(a, a.v, b.sequence, b.shared, key);
        const attention_rows o = attention_rows_at(a, a.o, b.sequence, b.head, b.first);
        const attention_rows d_o = attention_rows_at(a, a.d_o, b.sequence, b.head, b.first);
        const struct attention_bias bias = attention_bias_of(a, b.sequence, b.head);
        const float *lse = attention_lse_at(a, b.sequence, b.head) + b.first * a.lse.row;
        find_spans(seen, a, b);
        find_scores(s, &sh, q, b.n, k, n, a.width);
        find_scores(ds, &sh, d_o, b.n, v, n, a.width);
        for (int r = 0; r < WARP_ROWS; r++) {
            bool valid = mine + r < b.n;
            float delta = valid ? row_product(o, d_o, mine + r, a.width) : 0.f;
            float shift = shift_of(bias, valid ? lse[(mine + r) * a.lse.row] : 0.f, seen[r],
                                   b.first + mine + r, key + lane);
            score_gradient(s[r], ds[r], attention_scale(a, b.keys), shift, delta, seen[r],
                           key + lane);
            sum[r] += ds[r];
        }
    }
    for (int r = 0; r < WARP_ROWS; r++)
        if (mine + r < b.n && key + lane < a.n_keys)
            out[(unit * a.n_queries + b.first + mine + r) * a.n_keys + key + lane] = sum[r];
}

/* Clears the gradients of packed rows that belong to no sequence: one thread per element of dk,
 * which also clears it in dv. */
__global__ void __launch_bounds__(256)
    plain_clear_rest(const __grid_constant__ attention_args a, int64_t first_unit)
{
    __shared__ int64_t used;
    if (threadIdx.x == 0)
        used = attention_packed_rows(a);
    __syncthreads();
    int64_t index = (first_unit + blockIdx.x) * blockDim.x + threadIdx.x;
    int64_t column = take_index(index, a.width), head = take_index(index, a.n_heads);
    if (index < used || index >= a.n_keys)
        return;
    attention_set_element(attention_rows_at(a, a.dk, 0, head, index), column, 0);
    attention_set_element(attention_rows_at(a, a.dv, 0, head, index), column, 0);
}

/* ---- launching ------------------------------------------------------------------------------- */

static int64_t query_blocks(const struct attention_args &a)
{
    return a.n_sequences * a.n_heads * attention_tile_count(a.n_queries, SIDE) *
           attention_tile_count(a.width, BAND);
}

void attention_plain_forward(const struct attention_args &a, cudaStream_t stream)
{
    attention_launch(plain_forward, query_blocks(a), THREADS, 0, stream, a);
}

void attention_plain_backward(const struct attention_args &a, cudaStream_t stream)
{
    int64_t tiles = a.lens ? a.n_keys / SIDE + a.n_sequences
                           : a.n_sequences * attention_tile_count(a.n_keys, SIDE);
    attention_launch(plain_backward_queries, query_blocks(a), THREADS, 0, stream, a);
    attention_launch(plain_backward_keys,
                     tiles * (a.n_heads / a.group) * attention_tile_count(a.width, BAND), THREADS,
                     0, stream, a);
    if (a.lens)
        attention_launch(plain_clear_rest,
                         attention_tile_count(a.n_keys * a.n_heads * a.width, 256), 256, 0, stream,
                         a);
}

void attention_plain_bias(const struct attention_args &a, const struct attention_fold &fold,
                          float *out, cudaStream_t stream)
{
    const int64_t units =
        fold.units * attention_tile_count(a.n_queries, SIDE) * attention_tile_count(a.n_keys, SIDE);
    attention_launch(plain_bias, units, THREADS, 0, stream, a, fold, out);
}
