/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backward attention on tensor cores (see attention_tiles.cu), deterministic.  One kernel computes
 * dq: its blocks have a tile of queries and loop over the keys.  Another computes dk and dv: its
 * blocks have a tile of keys and loop over the queries, or over one chunk of them if the tiles of
 * keys alone are too few to fill the device.  Only the sums of chunks are added across blocks, in
 * order, by a last kernel.  Probabilities are recomputed from lse.
 */
#include "kernels/cuda/attention/attention_seen.cuh"
#include "kernels/cuda/attention/attention_workspace.h"

constexpr int WARPS = 4;
constexpr int THREADS = 32 * WARPS;
constexpr int STEP = 32; /* keys or queries that a block loads at once */
extern __shared__ uint4 attention_shared[];

template <int DP> constexpr int step_tile = tile_shape<DP>::rows(STEP);

/* ---- dq ------------------------------------------------------------------------------------- */

template <int DP> constexpr int warp_tiles = DP <= 72 ? 2 : 1;
template <int DP> constexpr int block_rows = warp_tiles<DP> * 16 * WARPS;

/* Computes lse in base 2 and delta = sum(o d_o) of the block's rows, for this kernel and the next.
 * A thread handles one row of the tiles. */
template <int DP>
__device__ __forceinline__ void find_statistics(const struct attention_args &a, const float *lse,
                                                float2 *global, float2 *shared, const bf16 *o,
                                                const bf16 *d_o, int n_rows)
{
    const int row = threadIdx.x;
    if (row >= block_rows<DP>)
        return;
    float2 s = {0.f, 0.f};
    if (row < n_rows) {
        s = row_statistics<DP>(lse[row * a.lse.row], o + row * tile_shape<DP>::pitch,
                               d_o + row * tile_shape<DP>::pitch);
        global[row] = s;
    }
    shared[row] = s;
}

/* The state of a warp's queries. */
template <int DP> struct query_rows {
    static constexpr int M = warp_tiles<DP>;
    row_fragment<DP> q[M], d_o[M];
    float shift[M][2], delta[M][2], dq[M][tile_shape<DP>::units][4];
};

template <int DP>
__device__ __forceinline__ void open_queries(query_rows<DP> &r, const bf16 *q, const bf16 *d_o,
                                             const float2 *statistics)
{
#pragma unroll
    for (int m = 0; m < r.M; m++) {
        load_fragment(r.q[m], q + m * 16 * tile_shape<DP>::pitch);
        load_fragment(r.d_o[m], d_o + m * 16 * tile_shape<DP>::pitch);
#pragma unroll
        for (int half = 0; half < 2; half++) {
            float2 s = statistics[m * 16 + half * 8 + (threadIdx.x & 31) / 4];
            r.shift[m][half] = s.x;
            r.delta[m][half] = s.y;
        }
    }
    clear_accumulators(r.dq);
}

/* Processes one tile of keys, n_keys of them valid. mask(s) converts products to scores and hides
 * keys. */
template <int DP, typename MASK>
__device__ __forceinline__ void query_step(query_rows<DP> &r, const bf16 *k, const bf16 *v,
                                           int n_keys, const MASK &mask)
{
    constexpr int M = warp_tiles<DP>;
    float s[M][STEP / 8][4], ds[M][STEP / 8][4];
    uint32_t operand[M][STEP / 16][4];
    clear_accumulators(s);
    clear_accumulators(ds);
    multiply_transposed(s, r.q, k);
    multiply_transposed(ds, r.d_o, v);
    mask(s);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float p = probability(s[m][n][i], r.shift[m][i / 2]);
                ds[m][n][i] = p * (ds[m][n][i] - r.delta[m][i / 2]);
            }
    fill_after(ds, n_keys, 0.f);
    pack_accumulators(operand, ds);
    multiply_rows<DP>(r.dq, operand, k);
}

template <int DP, bool MASKED>
__global__ void __launch_bounds__(THREADS, 2)
    backward_queries(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int M = warp_tiles<DP>, ROWS = block_rows<DP>, pitch = tile_shape<DP>::pitch;
    __shared__ int document;
    bf16 *q_tile = (bf16 *)attention_shared, *d_o_tile = q_tile + ROWS * pitch;
    bf16 *k_tile = d_o_tile + ROWS * pitch, *v_tile = k_tile + 2 * step_tile<DP>;
    float2 *statistics = (float2 *)(v_tile + 2 * step_tile<DP>);
    query_block<M> b;
    /* The score of a single key gets no gradient, exactly. */
    find_queries<M, ROWS, MASKED>(b, a, first_unit + blockIdx.x, 2, &document);
    const float scale = attention_scale(a, b.keys);
    const struct attention_rows dq = attention_rows_at(a, a.dq, b.sequence, b.head, b.first);
    const int n_rows = b.n_rows, row = b.row;
    const tile_mover<DP, THREADS> mover;
    tile_stream<DP, THREADS, STEP> k, v;
    query_rows<DP> r;

    k.open(mover, keys_of(a, a.k, b), a.width, k_tile);
    v.open(mover, keys_of(a, a.v, b), a.width, v_tile);
    /* o is needed only here: its buffer is that of later keys and values. */
    static_assert(4 * STEP >= ROWS, "o does not fit");
    mover.template load<ROWS>(q_tile, attention_rows_at(a, a.q, b.sequence, b.head, b.first), 0,
                              n_rows, 1, a.width);
    mover.template load<ROWS>(d_o_tile, attention_rows_at(a, a.d_o, b.sequence, b.head, b.first), 0,
                              n_rows, 1, a.width);
    mover.template load<ROWS>(k_tile, attention_rows_at(a, a.o, b.sequence, b.head, b.first), 0,
                              n_rows, 1, a.width);
    copies_wait();
    __syncthreads();
    find_statistics<DP>(a, attention_lse_at(a, b.sequence, b.head) + b.first * a.lse.row,
                        a.statistics + (b.sequence * a.n_heads + b.head) * a.n_queries + b.first,
                        statistics, k_tile, d_o_tile, n_rows);
    __syncthreads();
    int64_t left = b.span.end - b.span.begin;
    int n = left < STEP ? (int)left : STEP, stage = 0, key = b.span.begin;
    if (n > 0) {
        k.load(mover, 0, n, a.width);
        v.load(mover, 0, n, a.width);
    }
    open_queries<DP>(r, q_tile + row * pitch, d_o_tile + row * pitch, statistics + row);
    for (; left > 0; left -= STEP, stage ^= 1, key += STEP) {
        int now = n;
        n = left - STEP < STEP ? (int)(left - STEP) : STEP;
        copies_wait();
        __syncthreads(); /* this tile has arrived, and no warp still uses the previous one */
        if (n > 0) {
            k.load(mover, stage ^ 1, n, a.width);
            v.load(mover, stage ^ 1, n, a.width);
        }
        if (row >= n_rows)
            continue;
        query_step<DP>(r, k_tile + stage * step_tile<DP>, v_tile + stage * step_tile<DP>, now,
                       [&](float(&s)[M][STEP / 8][4]) {
                           if constexpr (MASKED)
                               score_rows(s, b.seen, a, b.bias, b.first + row, key,
                                          scale * ATTENTION_LOG2E);
                           else
                               scale_scores(s, scale * ATTENTION_LOG2E);
                       });
    }
    __syncwarp();
    put_accumulators<DP, M>(q_tile + row * pitch, r.dq, scale);
    __syncthreads();
    mover.template store<ROWS>(dq, 0, n_rows, 1, a.width, q_tile, a.most[0]);
}

/* ---- dk and dv ------------------------------------------------------------------------------ */

/* The state of a warp's 16 keys. */
template <int DP> struct key_rows {
    row_fragment<DP> k[1], v[1];
    float dk[1][tile_shape<DP>::units][4], dv[1][tile_shape<DP>::units][4];
};

/* The masks and the bias of a step: the keys visible to its queries, and the warp's first key. */
struct key_mask {
    const struct seen_keys *seen; /* for each query of the step */
    struct attention_bias bias;
    int64_t query, key;
};

/* Converts p and dp to probabilities and gradients of scores, 0 for keys that a query does not see.
 * The score of a single key gets no gradient, exactly. */
template <bool MASKED>
__device__ __forceinline__ void find_gradient(float (&p)[4], float (&dp)[4], float4 statistics,
                                              const key_mask &mask, int n)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        bool seen = true, several = true;
        if constexpr (MASKED) {
            const struct seen_keys k = mask.seen[n * 8 + lane % 4 * 2 + i % 2];
            const int64_t key = mask.key + i / 2 * 8 + lane / 4;
            seen = key >= k.begin && key < k.end;
            several = k.end - k.begin > 1;
        }
        p[i] = seen ? probability(p[i], i % 2 ? statistics.z : statistics.x) : 0.f;
        float ds = p[i] * (dp[i] - (i % 2 ? statistics.w : statistics.y));
        dp[i] = seen && several ? ds : 0.f;
    }
}

/* Converts products to scores in base 2, keys x queries.  For a query or key out of range it reads
 * the bias of the nearest valid one, so that no load depends on a condition. */
template <bool MASKED>
__device__ __forceinline__ void score_columns(float (&s)[STEP / 8][4],
                                              const struct attention_args &a, float scale,
                                              const key_mask &mask)
{
    const int lane = threadIdx.x & 31;
    float b[STEP / 8][4] = {};
    if (MASKED && mask.bias.data) {
#pragma unroll
        for (int n = 0; n < STEP / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                b[n][i] = attention_bias_at(
                    mask.bias, min(mask.query + n * 8 + lane % 4 * 2 + i % 2, a.n_queries - 1),
                    min(mask.key + i / 2 * 8 + lane / 4, a.n_keys - 1));
    }
#pragma unroll
    for (int n = 0; n < STEP / 8; n++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            s[n][i] = MASKED ? s[n][i] * scale + b[n][i] * ATTENTION_LOG2E : s[n][i] * scale;
}

/* Processes one tile of queries.  Scores are transposed, keys x queries, so that rounded they are
 * the left operands that both sums need.  Missing queries contribute nothing: their q, d_o and
 * statistics are zero. */
template <int DP, bool MASKED>
__device__ __forceinline__ void key_step(key_rows<DP> &r, const struct attention_args &a,
                                         const bf16 *q, const bf16 *d_o, const float2 *statistics,
                                         float scale, const key_mask &mask)
{
    float p[1][STEP / 8][4], ds[1][STEP / 8][4];
    uint32_t operand[1][STEP / 16][4];
    clear_accumulators(p);
    clear_accumulators(ds);
    multiply_transposed(p, r.k, q);
    multiply_transposed(ds, r.v, d_o);
    score_columns<MASKED>(p[0], a, scale, mask);
#pragma unroll
    for (int n = 0; n < STEP / 8; n++) {
        float4 s = *reinterpret_cast<const float4 *>(statistics + n * 8 + (threadIdx.x & 3) * 2);
        find_gradient<MASKED>(p[0][n], ds[0][n], s, mask, n);
    }
    pack_accumulators(operand, p);
    multiply_rows<DP>(r.dv, operand, d_o);
    pack_accumulators(operand, ds);
    multiply_rows<DP>(r.dk, operand, q);
}

/* Stores a warp's rows of a sum, in fp32, to the scratch of a chunk. */
template <int DP>
__device__ __forceinline__ void put_partial(const struct attention_args &a, float *to, int n_rows,
                                            const float (&c)[1][tile_shape<DP>::units][4],
                                            float factor)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int n = 0; n < tile_shape<DP>::units; n++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int row = lane / 4 + i / 2 * 8, column = n * 8 + lane % 4 * 2 + i % 2;
            if (row < n_rows && column < a.width)
                to[row * a.n_shared * a.width + column] = c[0][n][i] * factor;
        }
}

/* The queries [begin, end) of a chunk that may see any of a tile's keys. */
template <bool MASKED>
__device__ __forceinline__ struct attention_span queries_of(const struct attention_args &a,
                                                            const struct attention_key_tile &tile,
                                                            int64_t chunk, int n_keys, int *shared)
{
    struct attention_span s = {chunk * a.chunk, chunk * a.chunk + a.chunk};
    s.end = s.end < a.n_queries ? s.end : a.n_queries;
    if constexpr (MASKED) {
        const int64_t stop = tile.first + n_keys;
        const struct attention_span may =
            attention_queries_of_keys(a, tile.first, stop, tile.keys.n);
        s.begin = may.begin > s.begin ? may.begin : s.begin;
        s.end = may.end < s.end ? may.end : s.end;
        s.end = n_keys > 0 ? last_query_seeing(a, tile.sequence, s.begin, s.end, stop, shared) : 0;
    }
    return s;
}

/* A thread's loads of steps of queries, of one head and within a span. */
template <int DP> struct query_stream {
    tile_stream<DP, THREADS, STEP> q, d_o;
    const float2 *from; /* the thread's statistics */
    int64_t at;         /* first query of the next step */

    __device__ __forceinline__ void open(const struct attention_args &a,
                                         const tile_mover<DP, THREADS> &mover, int64_t sequence,
                                         int64_t head, int64_t begin, bf16 *q_tile, bf16 *d_o_tile)
    {
        at = begin;
        from = a.statistics + (sequence * a.n_heads + head) * a.n_queries + begin + threadIdx.x;
        q.open(mover, attention_rows_at(a, a.q, sequence, head, begin), a.width, q_tile);
        d_o.open(mover, attention_rows_at(a, a.d_o, sequence, head, begin), a.width, d_o_tile);
    }

    /* Loads the next step, with n valid queries. */
    __device__ __forceinline__ void load(const struct attention_args &a,
                                         const tile_mover<DP, THREADS> &mover, int stage, int n,
                                         float2 *statistics)
    {
        q.load(mover, stage, n, a.width);
        d_o.load(mover, stage, n, a.width);
        if (threadIdx.x < STEP)
            copy8(shared_address(statistics + stage * STEP + threadIdx.x), from,
                  (int)threadIdx.x < n);
        from += STEP;
        at += STEP;
    }
};

template <int DP, bool MASKED>
__global__ void __launch_bounds__(THREADS, DP <= 72 && !MASKED ? 3 : 2)
    backward_keys(const __grid_constant__ attention_args a, int64_t first_unit)
{
    constexpr int ROWS = 16 * WARPS, pitch = tile_shape<DP>::pitch;
    static_assert(ROWS == CUDA_ATTENTION_KEYS && ROWS == 2 * STEP, "tiles change places");
    __shared__ int document;
    __shared__ struct seen_keys seen[2 * STEP];
    bf16 *q_tile = (bf16 *)attention_shared, *d_o_tile = q_tile + 2 * step_tile<DP>;
    float2 *statistics = (float2 *)(d_o_tile + 2 * step_tile<DP>);
    int64_t unit = first_unit + blockIdx.x, shared = take_index(unit, a.n_shared);
    int64_t chunk = take_index(unit, a.n_chunks);
    const struct attention_key_tile tile = attention_key_tile_of(a, unit, ROWS);
    if (tile.sequence < 0)
        return;
    const int64_t sequence = tile.sequence;
    const float scale = attention_scale(a, tile.keys);
    const int64_t first_key = tile.keys.first + tile.first, keys = tile.keys.n - tile.first;
    const int n_keys = keys < ROWS ? (int)(keys > 0 ? keys : 0) : ROWS;
    /* Keys past the length of a sequence get zero gradients. */
    const int64_t rows = MASKED ? a.n_keys - tile.first : keys;
    const int n_rows = rows < ROWS ? (int)rows : ROWS, row = threadIdx.x / 32 * 16;
    const struct attention_span span = queries_of<MASKED>(a, tile, chunk, n_keys, &document);
    const tile_mover<DP, THREADS> mover;
    query_stream<DP> queries = {};
    key_mask mask = {};
    key_rows<DP> r;

    auto load_queries = [&](int stage, int64_t left) {
        const int n = left < STEP ? (int)left : STEP;
        if (MASKED && threadIdx.x < STEP)
            seen[stage * STEP + threadIdx.x] =
                keys_seen_by(a, sequence, queries.at + threadIdx.x, queries.at + n, tile.keys.n);
        queries.load(a, mover, stage, n, statistics);
    };
    mover.template load<ROWS>(q_tile, attention_rows_at(a, a.k, sequence, shared, first_key), 0,
                              n_keys, 1, a.width);
    mover.template load<ROWS>(d_o_tile, attention_rows_at(a, a.v, sequence, shared, first_key), 0,
                              n_keys, 1, a.width);
    copies_wait();
    __syncthreads();
    load_fragment(r.k[0], q_tile + row * pitch);
    load_fragment(r.v[0], d_o_tile + row * pitch);
    clear_accumulators(r.dk);
    clear_accumulators(r.dv);
    const int64_t members = MASKED ? a.group : 1;
    for (int64_t head = shared * members; head < (shared + 1) * members; head++) {
        __syncthreads(); /* before the tiles are overwritten */
        queries.open(a, mover, sequence, head, span.begin, q_tile, d_o_tile);
        int stage = 0;
        if (MASKED) {
            mask.bias = attention_bias_of(a, sequence, head);
            mask.key = tile.first + row;
        }
        if (span.begin < span.end)
            load_queries(0, span.end - span.begin);
        for (int64_t at = span.begin; at < span.end; at += STEP, stage ^= 1) {
            copies_wait();
            __syncthreads(); /* this tile has arrived, and no warp still uses the previous one */
            if (at + STEP < span.end)
                load_queries(stage ^ 1, span.end - at - STEP);
            mask.query = at;
            mask.seen = seen + stage * STEP;
            if (row < n_rows)
                key_step<DP, MASKED>(r, a, q_tile + stage * step_tile<DP>,
                                     d_o_tile + stage * step_tile<DP>, statistics + stage * STEP,
                                     scale * ATTENTION_LOG2E, mask);
        }
    }
    if (a.partial) {
        int64_t all_rows = a.lens ? a.n_keys : a.n_sequences * a.n_keys;
        int64_t at = a.lens ? first_key : tile.sequence * a.n_keys + first_key;
        int64_t matrix = all_rows * a.n_shared * a.width;
        float *to = a.partial + chunk * 2 * matrix + ((at + row) * a.n_shared + shared) * a.width;
        put_partial<DP>(a, to, n_rows - row, r.dk, scale);
        put_partial<DP>(a, to + matrix, n_rows - row, r.dv, 1.f);
        return;
    }
    __syncthreads();
    put_accumulators<DP, 1>(q_tile + row * pitch, r.dk, scale);
    put_accumulators<DP, 1>(d_o_tile + row * pitch, r.dv, 1.f);
    __syncthreads();
    mover.template store<ROWS>(attention_rows_at(a, a.dk, sequence, shared, first_key), 0, n_rows,
                               1, a.width, q_tile, a.most[1]);
    mover.template store<ROWS>(attention_rows_at(a, a.dv, sequence, shared, first_key), 0, n_rows,
                               1, a.width, d_o_tile, a.most[2]);
}

/* The largest magnitude over a warp, as rounded to bf16, of the lanes for which `counts` is
 * true. */
template <int N>
__device__ __forceinline__ uint32_t largest_of_sums(const float (&sum)[N], bool counts)
{
    largest<bf16> amax;
#pragma unroll
    for (int n = 0; n < N; n++)
        amax.see(pack2(counts ? sum[n] : 0.f, 0.f));
    return warp_largest(amax);
}

/* Adds the chunks' sums of dk and dv, N adjacent elements per thread; packed rows that belong to no
 * sequence become zero. */
template <int N>
__global__ void __launch_bounds__(256)
    sum_chunks(const __grid_constant__ attention_args a, int64_t first_unit)
{
    __shared__ int64_t used;
    const int64_t rows = a.lens ? a.n_keys : a.n_sequences * a.n_keys;
    const int64_t matrix = rows * a.n_shared * a.width;
    const int64_t i = ((first_unit + blockIdx.x) * blockDim.x + threadIdx.x) * N;
    if (threadIdx.x == 0)
        used = a.lens ? attention_packed_rows(a) : rows;
    __syncthreads();
    const bool valid = i < 2 * matrix;
    int64_t index = valid ? i : 0, column = take_index(index, a.width);
    int64_t head = take_index(index, a.n_shared), row = take_index(index, rows), sequence = row;
    float sum[N] = {};
    if (valid && row < used) {
#pragma unroll 8
        for (int64_t c = 0; c < a.n_chunks; c++) {
            float x[N];
            load_floats(x, a.partial + c * 2 * matrix + i);
#pragma unroll
            for (int n = 0; n < N; n++)
                sum[n] += x[n];
        }
    }
    if (a.lens)
        sequence = 0;
    else
        row = take_index(sequence, a.n_keys);
    const struct attention_rows to = attention_rows_at(a, index ? a.dv : a.dk, sequence, head, row);
    if (valid && N == 1)
        attention_set_element(to, column, sum[0]);
    else if constexpr (N > 1)
        if (valid)
            store_floats((bf16 *)to.data + column, sum);
    for (int k = 1; k < ATTENTION_RESULTS; k++)
        if (a.most[k])
            warp_leave_largest(a.most[k], largest_of_sums(sum, index == k - 1));
}

template <int N> static void launch_sums(const struct attention_args &a, cudaStream_t stream)
{
    int64_t rows = a.lens ? a.n_keys : a.n_sequences * a.n_keys;
    attention_launch(sum_chunks<N>, attention_tile_count(2 * rows * a.n_shared * a.width, 256 * N),
                     256, 0, stream, a);
}

void attention_sum_chunks(const struct attention_args &a, cudaStream_t stream)
{
    if (a.partial && a.width % 4 == 0 && a.dk.vectors && a.dv.vectors)
        launch_sums<4>(a, stream);
    else if (a.partial)
        launch_sums<1>(a, stream);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <int DP> static void launch_queries(const struct attention_args &a, cudaStream_t stream)
{
    const int rows = block_rows<DP>;
    size_t tiles_size = sizeof(bf16) * tile_shape<DP>::rows(2 * rows + 4 * STEP);
    int64_t tiles = attention_tile_count(a.n_queries, rows);
    attention_launch(
        attention_is_masked(a) ? backward_queries<DP, true> : backward_queries<DP, false>,
        a.n_sequences * a.n_heads * tiles, THREADS, tiles_size + sizeof(float2) * rows, stream, a);
}

template <int DP> static void launch_keys(const struct attention_args &a, cudaStream_t stream)
{
    size_t shared = sizeof(bf16) * tile_shape<DP>::rows(4 * STEP) + sizeof(float2) * 2 * STEP;
    int64_t tiles = a.lens ? a.n_keys / CUDA_ATTENTION_KEYS + a.n_sequences
                           : a.n_sequences * attention_tile_count(a.n_keys, CUDA_ATTENTION_KEYS);
    attention_launch(attention_is_masked(a) ? backward_keys<DP, true> : backward_keys<DP, false>,
                     tiles * a.n_chunks * a.n_shared, THREADS, shared, stream, a);
}

void attention_tiles_backward(const struct attention_args &a, cudaStream_t stream)
{
    const bool launched = attention_cluster_takes(a) ? attention_cluster_backward(a, stream)
                          : attention_stationary_dx_takes(a)
                              ? attention_stationary_backward(a, stream)
                              : false;
    if (!launched)
        attention_with_width(a, [&](auto width) {
            launch_queries<width>(a, stream);
            launch_keys<width>(a, stream);
        });
    attention_sum_chunks(a, stream);
}
