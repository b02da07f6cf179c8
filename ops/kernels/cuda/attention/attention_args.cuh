/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of libckpt's attention kernels, and functions that find a block's rows. */
#ifndef CKPT_CUDA_ATTENTION_ARGS_CUH
#define CKPT_CUDA_ATTENTION_ARGS_CUH

#include <type_traits>
#include "attention_fold.h"
#include "attr.h"
#include "kernels/cuda/cuda.cuh"

constexpr int ATTENTION_LEAD = CKPT_MAX_DIMS - 3;

/* One operand.  Strides are in elements; the stride of an axis of size 1 is 0. */
struct attention_operand {
    void *data;
    int64_t row, head, lead[ATTENTION_LEAD];
    bool vectors; /* bf16 whose rows can be accessed in pieces of 16 bytes */
    bool f32;
};

/* Which keys a query sees, and the bias of its scores: see struct ckpt_attention_spec. */
struct attention_mask {
    bool hidden; /* some query does not see some key */
    bool causal;
    int64_t window;
    struct attention_operand first, lengths; /* int32, data NULL if absent; row and lead only */
    struct attention_operand bias;           /* data NULL if absent; row: of queries */
    int64_t bias_column;
};

struct attention_args {
    struct attention_operand q, k, v, o, lse, d_o, dq, dk, dv;
    struct attention_mask mask;
    int64_t group;    /* query heads that share keys and values */
    int64_t n_shared; /* heads of keys and values */
    int n_lead;       /* axes that enumerate the sequences, without those of size 1 */
    int64_t lead[ATTENTION_LEAD];
    int64_t n_sequences, n_heads, n_queries;
    int64_t n_keys;      /* of a sequence, or all packed rows */
    const int32_t *lens; /* keys per sequence if they are packed, else NULL */
    int64_t lens_stride;
    int width;
    float scale;
    /* scratch [sequences, heads, queries]: lse in base 2, and delta.  For the kernels of
     * attention_onepass.cuh the queries are padded to whole tiles; sums of dq and their order are
     * per tile */
    float2 *statistics;
    float *sums;
    int *dq_order;
    float *partial; /* scratch [chunks, 2, packed rows or sequences x keys, heads, width] */
    int64_t n_chunks, chunk;
    /* Addresses for the largest magnitudes of o, or of dq, dk, dv (passes/extra.c); NULL: not
     * requested. */
    uint32_t *most[ATTENTION_RESULTS];
};

/* Is it anything else than every query seeing every key of its own head? */
static inline bool attention_is_masked(const struct attention_args &a)
{
    return a.mask.hidden || a.mask.bias.data || a.group != 1;
}

/* The kernels, by family; all launch on the stream.  All families but the plain one compute the
 * requested largest magnitudes. */
void attention_short_forward(const struct attention_args &a, cudaStream_t stream);
void attention_short_backward(const struct attention_args &a, cudaStream_t stream);
void attention_tiles_forward(const struct attention_args &a, cudaStream_t stream);
void attention_tiles_backward(const struct attention_args &a, cudaStream_t stream);
/* Adds the partial sums of dk and dv of the chunks of queries, if there are several. */
void attention_sum_chunks(const struct attention_args &a, cudaStream_t stream);
bool attention_on_hopper(void);
/* Packed keys on Hopper, for heads of 64 and 72: up to ATTENTION_STATIONARY keys stay in shared
 * memory.  The forward kernel requires this for all sequences together, since the host does not
 * know the length of each.  The launchers return false if they launched nothing. */
constexpr int ATTENTION_STATIONARY = 304;
bool attention_stationary_fits(const struct attention_args &a);
bool attention_stationary_takes(const struct attention_args &a);
bool attention_stationary_forward(const struct attention_args &a, cudaStream_t stream);
bool attention_stationary_dx_takes(const struct attention_args &a);
bool attention_stationary_backward(const struct attention_args &a, cudaStream_t stream);
/* Backward in one pass by clusters of two blocks, if all sequences together have at most
 * ATTENTION_CLUSTER keys. attention_cluster_divide chooses the chunks of queries, at most n_chunks.
 * The launcher returns false if it launched nothing. */
constexpr int ATTENTION_CLUSTER = 320;
bool attention_cluster_takes(const struct attention_args &a);
void attention_cluster_divide(struct attention_args &a);
bool attention_cluster_backward(const struct attention_args &a, cudaStream_t stream);
/* Forward for heads of 64, 72 and 128 on Hopper, with causal masks, windows and groups.  The
 * launcher returns false if it launched nothing. */
bool attention_pingpong_takes(const struct attention_args &a);
bool attention_pingpong_is_fast(const struct attention_args &a); /* compared with cuDNN */
bool attention_pingpong_forward(const struct attention_args &a, cudaStream_t stream);
/* Backward for the same calls except packed keys.  The launcher returns false if it launched
 * nothing. */
bool attention_onepass_takes(const struct attention_args &a);
bool attention_onepass_is_fast(const struct attention_args &a); /* compared with cuDNN */
bool attention_onepass_backward(const struct attention_args &a, cudaStream_t stream);
/* dk and dv alone, for packed keys, in at most n_chunks chunks of queries. */
bool attention_onepass_takes_keys(const struct attention_args &a);
int64_t attention_onepass_key_chunks(const struct attention_args &a);
bool attention_onepass_keys(const struct attention_args &a, cudaStream_t stream);
void attention_plain_forward(const struct attention_args &a, cudaStream_t stream);
void attention_plain_backward(const struct attention_args &a, cudaStream_t stream);
/* The gradient of the bias: fp32 [units, queries, keys]. */
void attention_tiles_bias(const struct attention_args &a, const struct attention_fold &fold,
                          float *out, cudaStream_t stream);
void attention_plain_bias(const struct attention_args &a, const struct attention_fold &fold,
                          float *out, cudaStream_t stream);

/* Launches kernel(args..., first unit) with one block per unit. */
template <typename K, typename... ARGS>
static void attention_launch(K kernel, int64_t units, int threads, size_t shared,
                             cudaStream_t stream, const ARGS &...args)
{
    const int64_t limit = 0x7fffffff;
    if (shared > 48 * 1024)
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared);
    for (int64_t first = 0; first < units; first += limit) {
        int64_t n = units - first < limit ? units - first : limit;
        kernel<<<(unsigned)n, threads, shared, stream>>>(args..., first);
    }
}

/* Calls launch with the narrowest compiled width of tiles, a constant, that these heads fit in. */
template <typename F> static void attention_with_width(const struct attention_args &a, F launch)
{
    if (a.width <= 64)
        launch(std::integral_constant<int, 64>());
    else if (a.width <= 72)
        launch(std::integral_constant<int, 72>());
    else
        launch(std::integral_constant<int, 128>());
}

__host__ __device__ static inline int64_t attention_tile_count(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* The number of parts into which the `tiles` tiles of each of `units` heads are split, such that a
 * device with one block on each of 132 multiprocessors finishes first.  A block processes `at_once`
 * tiles per step; its start takes the time of three steps. */
static inline int64_t attention_parts(int64_t units, int64_t tiles, int64_t at_once, int64_t limit)
{
    int64_t best = 1, best_time = INT64_MAX;
    for (int64_t parts = 1; parts <= limit && parts <= tiles; parts++) {
        int64_t waves = (units * parts + 131) / 132;
        int64_t each = (tiles + parts - 1) / parts;
        int64_t time = waves * ((each + at_once - 1) / at_once + 3);
        if (time < best_time) {
            best_time = time;
            best = parts;
        }
    }
    return best;
}

/* Returns index mod n; sets index to the quotient. */
__device__ __forceinline__ int64_t take_index(int64_t &index, int64_t n)
{
    int64_t whole = ((index | n) >> 32) == 0 ? (uint32_t)index / (uint32_t)n : index / n;
    int64_t rest = index - whole * n;
    index = whole;
    return rest;
}

/* Elements from the start of x to the first row of a head. */
__device__ __forceinline__ int64_t attention_offset(const struct attention_args &a,
                                                    const struct attention_operand &x,
                                                    int64_t sequence, int64_t head)
{
    int64_t offset = head * x.head;
#pragma unroll 1
    for (int i = a.n_lead - 1; i > 0; i--)
        offset += take_index(sequence, a.lead[i]) * x.lead[i];
    return offset + sequence * x.lead[0];
}

/* Rows of one head, or of several adjacent heads. */
struct attention_rows {
    void *data;
    int64_t row;
    bool vectors, f32;
};

/* The rows from number `first` on. */
__device__ __forceinline__ struct attention_rows
attention_rows_at(const struct attention_args &a, const struct attention_operand &x,
                  int64_t sequence, int64_t head, int64_t first)
{
    int64_t offset = attention_offset(a, x, sequence, head) + first * x.row;
    struct attention_rows r = {(char *)x.data + offset * (x.f32 ? 4 : 2), x.row, x.vectors, x.f32};
    return r;
}

__device__ __forceinline__ float attention_element(const struct attention_rows &r, int64_t at)
{
    return r.f32 ? ((const float *)r.data)[at] : to_float(((const bf16 *)r.data)[at]);
}

__device__ __forceinline__ void attention_set_element(const struct attention_rows &r, int64_t at,
                                                      float x)
{
    if (r.f32)
        ((float *)r.data)[at] = x;
    else
        ((bf16 *)r.data)[at] = from_float<bf16>(x);
}

__device__ __forceinline__ float *attention_lse_at(const struct attention_args &a, int64_t sequence,
                                                   int64_t head)
{
    return (float *)a.lse.data + attention_offset(a, a.lse, sequence, head);
}

/* ---- keys visible to a query ----------------------------------------------------------------- */

/* The first key of a sequence among the packed rows, and the number of its keys. */
struct attention_keys {
    int64_t first, n;
};

/* The keys [begin, end) of a sequence. */
struct attention_span {
    int64_t begin, end;
};

__device__ __forceinline__ int64_t attention_place(const struct attention_args &a,
                                                   const struct attention_operand &x,
                                                   int64_t sequence, int64_t row)
{
    return ((const int32_t *)x.data)[attention_offset(a, x, sequence, 0) + row * x.row];
}

/* The keys, of n, that are visible to a query. */
__device__ __forceinline__ struct attention_span
attention_span_of(const struct attention_args &a, int64_t sequence, int64_t query, int64_t n)
{
    const int64_t place = n - a.n_queries + query;
    struct attention_span s = {0, n};
    if (a.mask.causal && place + 1 < n)
        s.end = place + 1;
    if (a.mask.window && place + 1 > a.mask.window)
        s.begin = place + 1 - a.mask.window;
    if (a.mask.first.data) {
        int64_t first = attention_place(a, a.mask.first, sequence, query);
        s.begin = first > s.begin ? first : s.begin;
    }
    return s;
}

/* The keys that queries [first, end) may see according to causal and window. */
__device__ __forceinline__ struct attention_span
attention_span_of_rows(const struct attention_args &a, int64_t first, int64_t end, int64_t n)
{
    const int64_t place = n - a.n_queries;
    struct attention_span s = {0, n};
    if (a.mask.causal && place + end < n)
        s.end = place + end;
    if (a.mask.window && place + first + 1 > a.mask.window)
        s.begin = place + first + 1 - a.mask.window;
    return s;
}

/* The queries that may see any of the keys [first, end) according to causal and window. */
__device__ __forceinline__ struct attention_span
attention_queries_of_keys(const struct attention_args &a, int64_t first, int64_t end, int64_t n)
{
    const int64_t place = n - a.n_queries;
    struct attention_span s = {0, a.n_queries};
    if (a.mask.causal && first > place)
        s.begin = first - place;
    if (a.mask.window && end - 1 + a.mask.window - place < s.end)
        s.end = end - 1 + a.mask.window - place;
    return s;
}

/* The bias of one head; data is its first element, or NULL. */
struct attention_bias {
    const void *data;
    int64_t row, column;
    bool f32;
};

__device__ __forceinline__ struct attention_bias attention_bias_of(const struct attention_args &a,
                                                                   int64_t sequence, int64_t head)
{
    const struct attention_operand &x = a.mask.bias;
    struct attention_bias b = {NULL, x.row, a.mask.bias_column, x.f32};
    if (x.data)
        b.data = (const char *)x.data + attention_offset(a, x, sequence, head) * (x.f32 ? 4 : 2);
    return b;
}

__device__ __forceinline__ float attention_bias_at(const struct attention_bias &b, int64_t query,
                                                   int64_t key)
{
    int64_t at = query * b.row + key * b.column;
    return b.f32 ? ((const float *)b.data)[at] : to_float(((const bf16 *)b.data)[at]);
}

__device__ __forceinline__ int64_t attention_length(const struct attention_args &a, int64_t i,
                                                    int64_t first)
{
    int64_t n = a.lens[i * a.lens_stride];
    n = n < 0 ? 0 : n;
    return n < a.n_keys - first ? n : a.n_keys - first;
}

__device__ __forceinline__ struct attention_keys attention_keys_of(const struct attention_args &a,
                                                                   int64_t sequence)
{
    struct attention_keys k = {0, a.n_keys};
    if (a.mask.lengths.data) {
        int64_t n = attention_place(a, a.mask.lengths, sequence, 0);
        k.n = n < 0 ? 0 : n < k.n ? n : k.n;
    }
    if (!a.lens)
        return k;
    for (int64_t i = 0; i < sequence; i++)
        k.first += attention_length(a, i, k.first);
    k.n = attention_length(a, sequence, k.first);
    return k;
}

/* Returns 0 if there is a single key: its probability is exactly 1 whatever its score, and
 * gradients of the score are 0. */
__device__ __forceinline__ float attention_scale(const struct attention_args &a,
                                                 const struct attention_keys &keys)
{
    return keys.n == 1 ? 0.f : a.scale;
}

/* The number of packed rows that belong to a sequence. */
__device__ __forceinline__ int64_t attention_packed_rows(const struct attention_args &a)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < a.n_sequences; i++)
        sum += attention_length(a, i, sum);
    return sum;
}

/* Tile number `tile` of all tiles of `size` keys, enumerated sequence after sequence. */
struct attention_key_tile {
    int64_t sequence; /* negative if there are fewer tiles */
    struct attention_keys keys;
    int64_t first; /* first key, within the sequence */
};

__device__ __forceinline__ struct attention_key_tile
attention_key_tile_of(const struct attention_args &a, int64_t tile, int64_t size)
{
    struct attention_key_tile t = {0, {0, a.n_keys}, 0};
    if (!a.lens) {
        t.first = take_index(tile, (a.n_keys + size - 1) / size) * size;
        t.sequence = tile;
        t.keys = attention_keys_of(a, tile);
        return t;
    }
    for (; t.sequence < a.n_sequences; t.sequence++) {
        t.keys.n = attention_length(a, t.sequence, t.keys.first);
        if (tile * size < t.keys.n) {
            t.first = tile * size;
            return t;
        }
        tile -= (t.keys.n + size - 1) / size;
        t.keys.first += t.keys.n;
    }
    t.sequence = -1;
    return t;
}

#endif
