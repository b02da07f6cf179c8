/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masks and biases in the tensor core kernels: converts the products of a tile to scores in base 2,
 * adds the bias, and sets scores of hidden keys to -infinity, so that their probability is 0.
 * Tiles of keys that are hidden from all queries of a block are not loaded.
 */
#ifndef CKPT_CUDA_ATTENTION_SEEN_CUH
#define CKPT_CUDA_ATTENTION_SEEN_CUH

#include "kernels/cuda/attention/attention_mma.cuh"

/* The keys [begin, end) that are visible to a query. */
struct seen_keys {
    int begin, end;
};

/* A query past `end` sees no key. */
__device__ __forceinline__ struct seen_keys keys_seen_by(const struct attention_args &a,
                                                         int64_t sequence, int64_t query,
                                                         int64_t end, int64_t n_keys)
{
    struct seen_keys k = {0, 0};
    if (query >= end)
        return k;
    const struct attention_span s = attention_span_of(a, sequence, query, n_keys);
    k.begin = (int)s.begin;
    k.end = (int)s.end;
    return k;
}

/* The keys visible to the rows of a lane's accumulators, and those visible to all rows of its
 * warp. */
template <int M> struct seen_rows {
    struct seen_keys row[M][2];
    struct seen_keys all;
};

/* first: the warp's first query; end: one past the block's last.  A row that sees fewer than
 * `min_keys` keys is treated as if it saw none. */
template <int M>
__device__ __forceinline__ void find_seen_rows(seen_rows<M> &seen, const struct attention_args &a,
                                               int64_t sequence, int64_t first, int64_t end,
                                               int64_t n_keys, int min_keys)
{
    int begin = 0, stop = (int)n_keys;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            int64_t query = first + m * 16 + half * 8 + (threadIdx.x & 31) / 4;
            struct seen_keys k = keys_seen_by(a, sequence, query, end, n_keys);
            if (k.end - k.begin < min_keys)
                k.begin = k.end = 0;
            seen.row[m][half] = k;
            begin = max(begin, k.begin);
            stop = min(stop, k.end);
        }
    seen.all.begin = __reduce_max_sync(0xffffffffu, begin);
    seen.all.end = __reduce_min_sync(0xffffffffu, stop);
}

/* Adds the bias to the scores of a warp's rows.  For a row or key out of range it reads the bias of
 * the nearest valid one, so that no load depends on a condition. */
template <int M, int N>
__device__ __forceinline__ void add_bias(float (&s)[M][N][4], const struct attention_args &a,
                                         const struct attention_bias &bias, int64_t query, int key)
{
    const int lane = threadIdx.x & 31;
#pragma unroll
    for (int m = 0; m < M; m++) {
        float b[N][4];
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const int64_t row = query + m * 16 + i / 2 * 8 + lane / 4;
                const int64_t at = key + n * 8 + lane % 4 * 2 + i % 2;
                b[n][i] = attention_bias_at(bias, min(row, a.n_queries - 1), min(at, a.n_keys - 1));
            }
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] += b[n][i] * ATTENTION_LOG2E;
    }
}

template <int M, int N>
__device__ __forceinline__ void scale_scores(float (&s)[M][N][4], float scale)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                s[m][n][i] *= scale;
}

/* Converts products of queries and the keys from `key` on to scores in base 2 and hides keys;
 * scale: from products to scores in base 2. */
template <int M, int N>
__device__ __forceinline__ void
score_rows(float (&s)[M][N][4], const seen_rows<M> &seen, const struct attention_args &a,
           const struct attention_bias &bias, int64_t query, int key, float scale)
{
    scale_scores(s, scale);
    if (bias.data)
        add_bias(s, a, bias, query, key);
    if (key >= seen.all.begin && key + 8 * N <= seen.all.end)
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const struct seen_keys k = seen.row[m][i / 2];
                const int at = key + n * 8 + (threadIdx.x & 3) * 2 + i % 2;
                if (at < k.begin || at >= k.end)
                    s[m][n][i] = -INFINITY;
            }
}

/* The keys that any of the queries [first, end) may see.  All threads of a block must call it;
 * `shared` is an int in shared memory. */
__device__ __forceinline__ struct seen_keys keys_seen_by_block(const struct attention_args &a,
                                                               int64_t sequence, int64_t first,
                                                               int64_t end, int64_t n_keys,
                                                               int *shared)
{
    const struct attention_span s = attention_span_of_rows(a, first, end, n_keys);
    struct seen_keys k = {(int)s.begin, (int)s.end};
    if (!a.mask.first.data)
        return k;
    if (threadIdx.x == 0)
        *shared = k.end;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        atomicMin(shared, (int)attention_place(a, a.mask.first, sequence, i));
    __syncthreads();
    k.begin = max(k.begin, *shared);
    return k;
}

/* The queries of a block, all of one head, and the keys visible to them. */
template <int M> struct query_block {
    int64_t sequence, head, shared, first; /* shared: the head of keys and values */
    int n_rows, row;                       /* row: the warp's first row */
    struct attention_keys keys;
    struct seen_keys span; /* keys that are visible to at least one of them */
    seen_rows<M> seen;
    struct attention_bias bias;
};

/* Sets up block number `unit` of ROWS queries. min_keys: see find_seen_rows; document: an int in
 * shared memory. */
template <int M, int ROWS, bool MASKED>
__device__ __forceinline__ void find_queries(query_block<M> &b, const struct attention_args &a,
                                             int64_t unit, int min_keys, int *document)
{
    const int64_t n_tiles = (a.n_queries + ROWS - 1) / ROWS;
    b.head = take_index(unit, a.n_heads);
    const int64_t tile = take_index(unit, n_tiles);
    b.sequence = unit;
    /* The last rows of a causal mask see most keys: the longest blocks start first. */
    b.first = (MASKED && a.mask.causal ? n_tiles - 1 - tile : tile) * ROWS;
    b.shared = MASKED ? b.head / a.group : b.head;
    b.n_rows = a.n_queries - b.first < ROWS ? (int)(a.n_queries - b.first) : ROWS;
    b.row = threadIdx.x / 32 * 16 * M;
    b.keys = attention_keys_of(a, b.sequence);
    b.span = {0, (int)b.keys.n};
    if constexpr (MASKED) {
        const int64_t end = b.first + b.n_rows;
        b.bias = attention_bias_of(a, b.sequence, b.head);
        b.span = keys_seen_by_block(a, b.sequence, b.first, end, b.keys.n, document);
        find_seen_rows(b.seen, a, b.sequence, b.first + b.row, end, b.keys.n, min_keys);
    }
}

/* The rows of k or v that a block needs, starting with the first. */
template <int M>
__device__ __forceinline__ struct attention_rows
keys_of(const struct attention_args &a, const struct attention_operand &x, const query_block<M> &b)
{
    return attention_rows_at(a, x, b.sequence, b.shared, b.keys.first + b.span.begin);
}

/* The end of the queries of [first, end): one past the last query whose document begins before key
 * `stop`. */
__device__ __forceinline__ int64_t last_query_seeing(const struct attention_args &a,
                                                     int64_t sequence, int64_t first, int64_t end,
                                                     int64_t stop, int *shared)
{
    if (!a.mask.first.data)
        return end;
    if (threadIdx.x == 0)
        *shared = (int)first;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        if (attention_place(a, a.mask.first, sequence, i) < stop)
            atomicMax(shared, (int)i + 1);
    __syncthreads();
    const int last = *shared;
    __syncthreads(); /* before `shared` is used again */
    return last;
}

#endif
