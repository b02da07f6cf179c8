/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch sizes of the CUDA kernels.  They are functions of the shapes alone, so a plan made on a
 * machine without a GPU is valid on one with a GPU.  Shape rules call them if call->backend is
 * CKPT_ON_CUDA.  The file also defines how a kernel partitions its work wherever the scratch size
 * depends on it.
 */
#ifndef CKPT_CUDA_WORKSPACE_H
#define CKPT_CUDA_WORKSPACE_H

#include "core/base.h"
#include "conv.h"
#include "group_norm.h"
#include "reduction.h"

/* ---- sum, sum_to ---------------------------------------------------------------------------- */

/* Threads that share one result if the reduced elements are contiguous: a power of 2 up to 256. */
static inline int64_t cuda_reduce_lanes(const struct reduction *r)
{
    int64_t lanes = 1;
    while (lanes < 256 && lanes * 16 <= r->length)
        lanes *= 2;
    return lanes;
}

/* Parts into which the reduced range is split: enough thread blocks to fill any GPU, and enough
 * elements in each part to be worth a block. */
static inline int64_t cuda_reduce_parts(const struct reduction *r)
{
    int64_t blocks, worth;
    if (r->columns) {
        blocks = (r->results + 127) / 128;
        worth = r->length / 32;
    } else {
        blocks = (r->results * cuda_reduce_lanes(r) + 255) / 256;
        worth = r->length / 2048;
    }
    return max_i64(1, min_i64(worth, 1024 / blocks));
}

static inline int64_t cuda_reduce_workspace(const struct ckpt_desc *x, const struct ckpt_desc *y)
{
    struct reduction r;
    reduction_init(&r, x, y);
    int64_t parts = cuda_reduce_parts(&r);
    return parts > 1 ? parts * r.results * (int64_t)sizeof(double) : 0;
}

/* ---- products with fused epilogues ----------------------------------------------------------- */

/* A tile of the fused products; linear_dx_gelu writes one partial column sum per tile.  A cluster
 * of two blocks computes two tiles at a time, one below the other. */
#define CUDA_JOINED_ROWS 128
#define CUDA_JOINED_COLS 192

/* The number of work items for clusters: pairs of tiles. */
static inline int64_t cuda_joined_tiles(int64_t rows, int64_t cols)
{
    return (rows + 2 * CUDA_JOINED_ROWS - 1) / (2 * CUDA_JOINED_ROWS) *
           ((cols + CUDA_JOINED_COLS - 1) / CUDA_JOINED_COLS);
}

static inline int64_t cuda_gelu_sums_workspace(int64_t rows, int64_t cols)
{
    return (rows + CUDA_JOINED_ROWS - 1) / CUDA_JOINED_ROWS * cols * (int64_t)sizeof(float);
}

/* ---- losses --------------------------------------------------------------------------------- */

#define CUDA_MSE_CHUNK 2048 /* elements of one partial sum */

/* The number of chunks in one sample of pred [B, ...]. */
static inline int64_t cuda_mse_chunks(const struct ckpt_desc *pred)
{
    return (desc_numel(pred) / pred->shape[0] + CUDA_MSE_CHUNK - 1) / CUDA_MSE_CHUNK;
}

static inline int64_t cuda_mse_workspace(const struct ckpt_desc *pred)
{
    return pred->shape[0] * cuda_mse_chunks(pred) * (int64_t)sizeof(double);
}

/* ---- pack, unpack --------------------------------------------------------------------------- */

#define CUDA_PACK_ROWS 32 /* rows counted by one block */

static inline int64_t cuda_pack_workspace(int64_t rows)
{
    return (rows + CUDA_PACK_ROWS - 1) / CUDA_PACK_ROWS * (int64_t)sizeof(int32_t);
}

/* ---- optimizer ------------------------------------------------------------------------------ */

#define CUDA_SQUARES_CHUNK 16384 /* elements of one partial sum */

static inline int64_t cuda_squares_chunks(const struct ckpt_desc *g)
{
    return (desc_numel(g) + CUDA_SQUARES_CHUNK - 1) / CUDA_SQUARES_CHUNK;
}

static inline int64_t cuda_sum_squares_workspace(const struct ckpt_desc *in, int n_in)
{
    int64_t chunks = 0;
    for (int i = 0; i < n_in; i++)
        chunks += cuda_squares_chunks(&in[i]);
    return chunks * (int64_t)sizeof(double);
}

/* The running sum over operands, for norms whose operands do not fit in one launch. */
static inline int64_t cuda_clip_workspace(void)
{
    return (int64_t)sizeof(double);
}

/* ---- convolutions -------------------------------------------------------------------------- */

#define CUDA_CONV_TILE 64 /* rows and columns of a tile, in the kernels that do not use cuDNN */

/* The number of elements of the weight. */
static inline int64_t cuda_conv_weights(const struct conv_shape *s)
{
    return s->k * conv_volume(s->kernel) * conv_group_c(s);
}

/* Parts into which the sum of a weight gradient is split, to fill the device. */
static inline int64_t cuda_conv_dw_splits(const struct conv_shape *s)
{
    int64_t places = s->n * conv_volume(s->out);
    int64_t rows = conv_group_k(s), columns = conv_volume(s->kernel) * conv_group_c(s);
    int64_t tiles = ((rows + CUDA_CONV_TILE - 1) / CUDA_CONV_TILE) *
                    ((columns + CUDA_CONV_TILE - 1) / CUDA_CONV_TILE) * s->groups;
    return max_i64(1, min_i64(512 / tiles, places / 1024));
}

/* Depthwise: channels of y per block, and output positions that it processes at once. */
#define CUDA_DEPTHWISE_CHANNELS 32
#define CUDA_DEPTHWISE_PLACES   8

/* Parts into which the sum of a depthwise weight gradient is split. */
static inline int64_t cuda_depthwise_parts(const struct conv_shape *s)
{
    int64_t places = s->n * conv_volume(s->out), across = CUDA_DEPTHWISE_CHANNELS;
    int64_t blocks = (s->k + across - 1) / across * conv_volume(s->kernel);
    return max_i64(1, min_i64(4096 / blocks, places / 256));
}

/* Bytes of the weight gradient in bf16, before it is converted to fp32. */
static inline int64_t cuda_conv_dw_front(const struct conv_shape *s)
{
    return round_up(cuda_conv_weights(s) * 2, 512);
}

/* An upper bound of the scratch of cuDNN's engines: split sums, and copies of operands whose
 * channels do not fill 16 bytes.  Invariant convolutions use no split sums. */
static inline int64_t cuda_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    int64_t size = ckpt_dtype_size(dtype), unit = 16 / size, bytes = INT64_C(8) << 20;
    if (conv_is_depthwise(s)) /* uses kernels of libckpt */
        return 0;
    if (s->invariant) {
        bytes = 4096;
        if (s->c % unit || s->k % unit)
            bytes += round_up(s->k, unit) * round_up(s->c, unit) * conv_volume(s->kernel) * size;
    }
    if (s->c % unit)
        bytes += s->n * conv_volume(s->in) * round_up(s->c, unit) * size;
    if (s->k % unit)
        bytes += s->n * conv_volume(s->out) * round_up(s->k, unit) * size;
    return bytes;
}

static inline int64_t cuda_conv_dw_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    if (conv_is_depthwise(s))
        return cuda_depthwise_parts(s) * cuda_conv_weights(s) * 4;
    int64_t direct = cuda_conv_dw_splits(s) * cuda_conv_weights(s) * 4;
    int64_t front = dtype == CKPT_BF16 ? cuda_conv_dw_front(s) : 0;
    return max_i64(direct, front + cuda_conv_workspace(s, dtype));
}

/* ---- group norm ---------------------------------------------------------------------------- */

/*
 * A block has 256 threads: `lanes` along the channels, with `vector` adjacent channels each, times
 * `at_once` rows.  A block works on one tile of channels of one chunk of rows of one sample.
 */
struct group_norm_cut {
    int vector, lanes, at_once;
    int64_t tiles, chunks, chunk_rows;
};

#define GROUP_NORM_BLOCKS 2048 /* the approximate number of blocks of a grid */
#define GROUP_NORM_STEP   8    /* rows that a thread loads together */

static inline struct group_norm_cut group_norm_cut(const struct group_norm_shape *s, int vector)
{
    struct group_norm_cut k = {.vector = vector, .lanes = 1};
    while (k.lanes < 32 && k.lanes * vector < s->c)
        k.lanes *= 2;
    k.at_once = 256 / k.lanes;
    k.tiles = (s->c + k.lanes * vector - 1) / (k.lanes * vector);
    int64_t chunks = max_i64(1, GROUP_NORM_BLOCKS / (s->n * k.tiles));
    k.chunk_rows = round_up((s->rows + chunks - 1) / chunks, k.at_once * GROUP_NORM_STEP);
    k.chunks = (s->rows + k.chunk_rows - 1) / k.chunk_rows;
    return k;
}

/* The partition for moments of rows: each row is a single chunk, whatever its length. */
static inline struct group_norm_cut group_norm_row_cut(const struct group_norm_shape *s, int vector)
{
    struct group_norm_cut k = group_norm_cut(s, vector);
    k.chunk_rows = round_up(s->rows, k.at_once * GROUP_NORM_STEP);
    k.chunks = 1;
    return k;
}

static inline int64_t cuda_group_norm_rows_workspace(const struct group_norm_shape *s)
{
    return s->n * 2 * s->c * (int64_t)sizeof(float);
}

/* Two floats per sample, chunk and channel.  Backward adds their sums, in double, per sample and
 * channel, and two floats per sample and group.  Large enough for access by vectors of 16 bytes and
 * by single elements. */
static inline int64_t cuda_group_norm_workspace(const struct group_norm_shape *s,
                                                enum ckpt_dtype dtype)
{
    int64_t wide = group_norm_cut(s, (int)(16 / ckpt_dtype_size(dtype))).chunks;
    int64_t chunks = max_i64(wide, group_norm_cut(s, 1).chunks);
    return s->n * chunks * 2 * s->c * (int64_t)sizeof(float);
}

static inline int64_t cuda_group_norm_dx_workspace(const struct group_norm_shape *s,
                                                   enum ckpt_dtype dtype)
{
    return round_up(cuda_group_norm_workspace(s, dtype), 16) +
           s->n * 2 * s->c * (int64_t)sizeof(double) +
           s->n * s->groups * 2 * (int64_t)sizeof(float);
}

/*
 * Matrix products: fp32 partial results of eight splits of the summed axis, at most 32 MiB.  Eight
 * is the largest number of splits that cuBLASLt uses for results too small to fill the GPU; 32 MiB
 * is the workspace for which its kernels for Hopper are tuned.
 */
static inline int64_t cuda_gemm_workspace(int64_t rows, int64_t cols)
{
    const int64_t limit = (int64_t)32 << 20, each = 8 * (int64_t)sizeof(float);
    if (rows >= limit / each || cols >= limit / each)
        return limit;
    return min_i64(limit, round_up(rows * cols * each, 4096));
}

/*
 * libckpt's own attention kernels (attention_core.h).  The forward pass needs no scratch.  In the
 * backward pass the tensor core kernels keep two floats per query and, if blocks of keys alone
 * would leave most of the device idle, partial sums of dk and dv per chunk of queries.
 */
enum {
    CUDA_ATTENTION_WIDTH = 128,  /* widest head of the tensor core kernels */
    CUDA_ATTENTION_SHORT = 32,   /* most queries and keys of a head that one warp computes alone */
    CUDA_ATTENTION_KEYS = 64,    /* keys of one block of the kernel for dk and dv */
    CUDA_ATTENTION_BLOCKS = 750, /* blocks that fill a device about twice */
    CUDA_ATTENTION_CHUNK = 256   /* fewest queries of a chunk */
};

struct cuda_attention_sizes {
    enum ckpt_dtype dtype;
    int64_t n_sequences, n_heads, n_queries, width;
    int64_t n_shared; /* heads of the keys and values */
    int64_t n_keys;   /* keys of a sequence; if packed, all rows */
    bool packed;
};

static inline struct cuda_attention_sizes
cuda_attention_sizes_of(const struct ckpt_desc *q, const struct ckpt_desc *k, bool packed)
{
    struct cuda_attention_sizes s;
    s.dtype = q->dtype;
    s.n_heads = q->shape[q->ndim - 2];
    s.n_queries = q->shape[q->ndim - 3];
    s.width = q->shape[q->ndim - 1];
    s.n_shared = k->shape[k->ndim - 2];
    s.n_keys = k->shape[k->ndim - 3];
    s.n_sequences = 1;
    s.packed = packed;
    for (int i = 0; i < q->ndim - 3; i++)
        s.n_sequences *= q->shape[i];
    return s;
}

/* Can the tensor core kernels compute this attention?  Can the kernel for short sequences? */
static inline bool cuda_attention_on_tensor_cores(const struct cuda_attention_sizes *s)
{
    return s->dtype == CKPT_BF16 && s->width <= CUDA_ATTENTION_WIDTH;
}

static inline bool cuda_attention_is_short(const struct cuda_attention_sizes *s)
{
    return cuda_attention_on_tensor_cores(s) && !s->packed &&
           s->n_queries <= CUDA_ATTENTION_SHORT && s->n_keys <= CUDA_ATTENTION_SHORT;
}

/* An upper bound of the tiles of `tile` keys over all sequences.  Packed sequences begin
 * anywhere. */
static inline int64_t cuda_attention_key_tiles(const struct cuda_attention_sizes *s, int64_t tile)
{
    if (s->packed)
        return s->n_keys / tile + s->n_sequences;
    return s->n_sequences * ((s->n_keys + tile - 1) / tile);
}

/* Chunks into which the queries of a sequence are split for dk and dv. */
static inline int64_t cuda_attention_chunks(const struct cuda_attention_sizes *s)
{
    int64_t blocks = s->n_shared * cuda_attention_key_tiles(s, CUDA_ATTENTION_KEYS);
    int64_t limit = s->n_queries / CUDA_ATTENTION_CHUNK;
    return max_i64(1, min_i64(limit, CUDA_ATTENTION_BLOCKS / max_i64(blocks, 1)));
}

/* The statistics cover whole tiles of queries, since some kernels index them so. */
static inline int64_t cuda_attention_statistics_bytes(const struct cuda_attention_sizes *s)
{
    const int64_t rows = round_up(s->n_queries, CUDA_ATTENTION_KEYS);
    return round_up(s->n_sequences * s->n_heads * rows * 8, 256);
}

/* If packed, dk and dv go through partial sums even with one chunk: the pass that adds them also
 * clears rows that belong to no sequence. */
static inline int64_t cuda_attention_partial_bytes(const struct cuda_attention_sizes *s)
{
    int64_t chunks = cuda_attention_chunks(s), rows = s->n_keys * (s->packed ? 1 : s->n_sequences);
    return chunks > 1 || s->packed ? chunks * 2 * rows * s->n_shared * s->width * 4 : 0;
}

/*
 * The one-pass backward kernel for Hopper (attention_turns.cuh).  Tiles of keys add to dq in a
 * fixed order.  Scratch: statistics of whole tiles of queries; fp32 sums of dq if the keys have
 * several tiles; and the counters of the order.
 */
enum { CUDA_ATTENTION_TURN_QUERIES = 64, CUDA_ATTENTION_TURN_KEYS = 128 };

static inline bool cuda_attention_turn_width(int64_t width)
{
    static const int64_t widths[] = {32, 40, 48, 64, 72, 80, 96, 128};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (width == widths[i])
            return true;
    return false;
}

static inline bool cuda_attention_may_turn(const struct cuda_attention_sizes *s)
{
    return !s->packed && cuda_attention_turn_width(s->width);
}

static inline int64_t cuda_attention_turn_tiles(const struct cuda_attention_sizes *s)
{
    const int64_t tile = CUDA_ATTENTION_TURN_QUERIES;
    return s->n_sequences * s->n_heads * ((s->n_queries + tile - 1) / tile);
}

static inline int64_t cuda_attention_turn_statistics_bytes(const struct cuda_attention_sizes *s)
{
    return cuda_attention_turn_tiles(s) * CUDA_ATTENTION_TURN_QUERIES * 8;
}

static inline int64_t cuda_attention_turn_sums_bytes(const struct cuda_attention_sizes *s)
{
    const int64_t rows = cuda_attention_turn_tiles(s) * CUDA_ATTENTION_TURN_QUERIES;
    return s->n_keys > CUDA_ATTENTION_TURN_KEYS ? rows * s->width * 4 : 0;
}

static inline int64_t cuda_attention_turns_bytes(const struct cuda_attention_sizes *s)
{
    if (!cuda_attention_may_turn(s))
        return 0;
    return cuda_attention_turn_statistics_bytes(s) + cuda_attention_turn_sums_bytes(s) +
           cuda_attention_partial_bytes(s) + cuda_attention_turn_tiles(s) * 4;
}

/* The scratch of cuda_attention_own_dx or, if packed, of cuda_cross_attention_own_dx. */
static inline int64_t cuda_attention_own_dx_workspace(const struct ckpt_desc *q,
                                                      const struct ckpt_desc *k, bool packed)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, packed);
    if (!cuda_attention_on_tensor_cores(&s) || cuda_attention_is_short(&s))
        return 0;
    return max_i64(cuda_attention_statistics_bytes(&s) + cuda_attention_partial_bytes(&s),
                   cuda_attention_turns_bytes(&s));
}

/*
 * Self attention of heads wider than CUDA_ATTENTION_WIDTH (attention_wide.h).  Scratch: fp32 scores
 * of a tile; probabilities in the operands' dtype; fp32 sums of dk and dv if a sequence has several
 * tiles; and the workspace of the products.  A tile is large enough for its products to fill a
 * device, and small enough that decoding a large frame needs little scratch.
 */
enum {
    CUDA_WIDE_SCORES = 1 << 24, /* scores of a tile, approximately */
    CUDA_WIDE_ROWS = 128,       /* rows of a tile are a multiple of it */
    CUDA_WIDE_BATCH = 65535     /* most matrices of one batched product */
};

static inline bool cuda_attention_is_wide(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    const int64_t width = q->shape[q->ndim - 1];
    return width > CUDA_ATTENTION_WIDTH && width % (16 / ckpt_dtype_size(q->dtype)) == 0 &&
           desc_numel(q) > 0 && desc_numel(k) > 0;
}

/* A tile has some queries of one matrix (a head of a sequence), or all queries of several
 * matrices. */
struct cuda_wide_cut {
    int64_t pitch; /* elements from one row of scores to the next */
    int64_t rows, matrices;
};

static inline struct cuda_wide_cut cuda_wide_cut_of(const struct cuda_attention_sizes *s)
{
    const int64_t matrices = s->n_sequences * s->n_heads;
    struct cuda_wide_cut c = {round_up(s->n_keys, 8), s->n_queries, 1};
    const int64_t limit = CUDA_WIDE_SCORES / c.pitch; /* most rows of a tile */
    if (s->n_queries > max_i64(limit, CUDA_WIDE_ROWS)) {
        int64_t rows = max_i64(CUDA_WIDE_ROWS, limit / CUDA_WIDE_ROWS * CUDA_WIDE_ROWS);
        int64_t tiles = (s->n_queries + rows - 1) / rows;
        c.rows = round_up((s->n_queries + tiles - 1) / tiles, CUDA_WIDE_ROWS);
        return c;
    }
    int64_t at_once = max_i64(1, min_i64(CUDA_WIDE_BATCH, limit / s->n_queries));
    int64_t tiles = (matrices + at_once - 1) / at_once;
    c.matrices = (matrices + tiles - 1) / tiles;
    return c;
}

static inline int64_t cuda_wide_scores_bytes(const struct cuda_wide_cut *c)
{
    return round_up(c->matrices * c->rows * c->pitch * 4, 256);
}

static inline int64_t cuda_wide_probabilities_bytes(const struct cuda_wide_cut *c,
                                                    enum ckpt_dtype dtype)
{
    return round_up(c->matrices * c->rows * c->pitch * ckpt_dtype_size(dtype), 256);
}

static inline int64_t cuda_wide_sums_bytes(const struct cuda_attention_sizes *s,
                                           const struct cuda_wide_cut *c)
{
    return c->rows < s->n_queries ? round_up(2 * s->n_keys * s->width * 4, 256) : 0;
}

static inline int64_t cuda_attention_wide_workspace(const struct ckpt_desc *q,
                                                    const struct ckpt_desc *k, bool backward)
{
    const struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, false);
    if (!cuda_attention_is_wide(q, k))
        return 0;
    const struct cuda_wide_cut c = cuda_wide_cut_of(&s);
    const int64_t results = c.matrices * (backward ? max_i64(c.rows, s.n_keys) : c.rows);
    return cuda_wide_scores_bytes(&c) + cuda_wide_probabilities_bytes(&c, s.dtype) +
           (backward ? cuda_wide_sums_bytes(&s, &c) : 0) + cuda_gemm_workspace(results, s.width);
}

/*
 * Self attention runs in cuDNN where it is fast (attention.c), and in libckpt's kernels elsewhere
 * and where cuDNN refuses.  Only the device knows whether cuDNN refuses, so the scratch serves
 * both.
 *
 * In the backward pass cuDNN accumulates dq in fp32.  Its own workspace is limited to
 * CUDA_ATTENTION_CUDNN, which is enough on Hopper and Blackwell.  If heads share keys, the scratch
 * also holds bf16 dk and dv of every head.
 */
enum {
    CUDA_ATTENTION_LONG = 129, /* fewest queries or keys for which cuDNN is used */
    CUDA_ATTENTION_CUDNN = 65536,
    CUDA_ATTENTION_CUDNN_WIDTH = 256,
    CUDA_ATTENTION_CUDNN_ALIGN = 256
};

static inline bool cuda_attention_in_cudnn(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, false);
    return s.dtype == CKPT_BF16 && max_i64(s.n_queries, s.n_keys) >= CUDA_ATTENTION_LONG &&
           s.n_keys > 1 && /* else the scale is 0, and cuDNN's internal mask would yield NaN */
           s.width % 8 == 0 && s.width <= CUDA_ATTENTION_CUDNN_WIDTH;
}

static inline int64_t cuda_attention_cudnn_workspace(const struct ckpt_desc *q,
                                                     const struct ckpt_desc *k)
{
    return cuda_attention_in_cudnn(q, k) ? CUDA_ATTENTION_CUDNN + CUDA_ATTENTION_CUDNN_ALIGN : 0;
}

static inline int64_t cuda_attention_workspace(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    const int64_t wide = cuda_attention_wide_workspace(q, k, false);
    return max_i64(wide, cuda_attention_cudnn_workspace(q, k));
}

/* The first two parts of the scratch of cuDNN's unordered backward pass: fp32 sums of dq, and
 * delta. */
static inline int64_t cuda_attention_dq_bytes(int64_t n_rows, int64_t width)
{
    return round_up(n_rows * width * 4, CUDA_ATTENTION_CUDNN_ALIGN);
}

static inline int64_t cuda_attention_delta_bytes(int64_t n_rows)
{
    return round_up(n_rows * 4, CUDA_ATTENTION_CUDNN_ALIGN);
}

/* Bytes of dk and dv of `heads` heads, if several heads share keys and values. */
static inline int64_t cuda_attention_shared_bytes(const struct cuda_attention_sizes *s,
                                                  int64_t heads)
{
    return s->n_shared == s->n_heads ? 0 : 2 * 2 * heads * s->n_keys * s->width;
}

/*
 * cuDNN's ordered backward pass, for heads of widths without a kernel in attention_turns.cuh.  It
 * writes the gradients of scores to scratch, in bf16: so a launch has some sequences, or some heads
 * of one, whose scores take at most CUDA_ATTENTION_ORDERED bytes; at least the heads that share
 * keys.  If these take more than CUDA_ATTENTION_ORDERED_GROUP, heads that our tiles take go there.
 */
enum { CUDA_ATTENTION_ORDERED = 256 << 20, CUDA_ATTENTION_ORDERED_GROUP = 1 << 30 };

struct cuda_attention_part {
    int64_t sequences, heads;
};

/* Bytes of one head, whose rows and columns cuDNN rounds up. */
static inline int64_t cuda_attention_ordered_bytes(const struct cuda_attention_sizes *s)
{
    return round_up(s->n_queries, 128) * round_up(s->n_keys, 128) * 2;
}

/* For sizes that cuDNN may take (cuda_attention_in_cudnn()). */
static inline bool cuda_attention_in_ordered(const struct cuda_attention_sizes *s)
{
    if (cuda_attention_turn_width(s->width) || !s->n_shared || !s->n_queries || !s->n_keys)
        return false;
    return s->width > CUDA_ATTENTION_WIDTH ||
           s->n_heads / s->n_shared * cuda_attention_ordered_bytes(s) <=
               CUDA_ATTENTION_ORDERED_GROUP;
}

/* The largest divisor of n up to `limit`, at least 1. */
static inline int64_t cuda_largest_divisor(int64_t n, int64_t limit)
{
    int64_t d = max_i64(1, min_i64(n, limit));
    while (n % d)
        d--;
    return d;
}

static inline struct cuda_attention_part
cuda_attention_ordered_part(const struct cuda_attention_sizes *s, int64_t sequences)
{
    const int64_t heads = CUDA_ATTENTION_ORDERED / cuda_attention_ordered_bytes(s);
    const int64_t group = s->n_heads / s->n_shared;
    struct cuda_attention_part p = {1, s->n_heads};
    if (heads < s->n_heads)
        p.heads = group * cuda_largest_divisor(s->n_shared, heads / group);
    else
        p.sequences = cuda_largest_divisor(sequences, heads / s->n_heads);
    return p;
}

static inline int64_t cuda_attention_ordered_workspace(const struct cuda_attention_sizes *s)
{
    const struct cuda_attention_part p = cuda_attention_ordered_part(s, s->n_sequences);
    const int64_t heads = p.sequences * p.heads;
    return cuda_attention_delta_bytes(heads * s->n_queries) +
           cuda_attention_shared_bytes(s, heads) + heads * cuda_attention_ordered_bytes(s) +
           CUDA_ATTENTION_CUDNN + CUDA_ATTENTION_CUDNN_ALIGN;
}

static inline int64_t cuda_attention_dx_workspace(const struct ckpt_desc *q,
                                                  const struct ckpt_desc *k, bool unordered)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, false);
    int64_t own = max_i64(cuda_attention_own_dx_workspace(q, k, false),
                          cuda_attention_wide_workspace(q, k, true));
    int64_t n_rows = s.n_sequences * s.n_heads * s.n_queries;
    if (!cuda_attention_in_cudnn(q, k))
        return own;
    if (!unordered)
        return cuda_attention_in_ordered(&s) ? max_i64(own, cuda_attention_ordered_workspace(&s))
                                             : own;
    return max_i64(own, cuda_attention_dq_bytes(n_rows, s.width) +
                            cuda_attention_delta_bytes(n_rows) +
                            cuda_attention_shared_bytes(&s, s.n_sequences * s.n_heads) +
                            cuda_attention_cudnn_workspace(q, k));
}

/*
 * column_sum: chunks of rows have partial sums, which a second kernel adds; a single chunk needs no
 * scratch.  All chunks of all strips of columns are one wave of blocks on a large device.  A chunk
 * has at least as many rows as a block loads at once.
 */
enum { CUDA_COLUMN_STRIP = 128, CUDA_COLUMN_WAVE = 528, CUDA_COLUMN_ROWS = 128 };

static inline int64_t cuda_column_sum_chunks(int64_t rows, int64_t cols)
{
    int64_t strips = (cols + CUDA_COLUMN_STRIP - 1) / CUDA_COLUMN_STRIP;
    int64_t limit = (rows + CUDA_COLUMN_ROWS - 1) / CUDA_COLUMN_ROWS;
    return rows <= 2 * CUDA_COLUMN_ROWS ? 1 : min_i64(limit, max_i64(1, CUDA_COLUMN_WAVE / strips));
}

static inline int64_t cuda_column_sum_workspace(int64_t rows, int64_t cols)
{
    int64_t chunks = cuda_column_sum_chunks(rows, cols);
    return chunks > 1 ? chunks * cols * (int64_t)sizeof(float) : 0;
}

/*
 * Sums over rows: the number of rows per chunk, for rows that share one of `vectors` vectors.
 *
 * All chunks together are a whole number of blocks per multiprocessor of a large device; if rows
 * are processed one element at a time, shorter rows get more blocks.  A chunk has at least 4 rows,
 * and at most CUDA_CHUNK_ROWS, which keeps the error of fp32 sums negligible.  No chunk of
 * row_chunk rows is empty.
 */
enum {
    CUDA_ROW_WAVE = 132,    /* multiprocessors of a large device, one block on each */
    CUDA_ROW_BLOCKS = 1056, /* most blocks; each loops over several chunks if there are more */
    CUDA_WEIGHT_WAVE = 528, /* blocks that sum the weight gradients of norms of short rows */
    CUDA_CHUNK_ROWS = 1024,
    CUDA_ELEMENT_COLUMNS = 1024 /* columns of a row that keep a block busy */
};

/* Rows of a chunk, so that the chunks are a multiple of `wave` blocks. */
static inline int64_t cuda_chunk(int64_t wave, int64_t rows)
{
    int64_t waves = (rows + wave * CUDA_CHUNK_ROWS - 1) / (wave * CUDA_CHUNK_ROWS);
    int64_t blocks = wave * max_i64(1, waves);
    return max_i64(4, (rows + blocks - 1) / blocks);
}

/* The wave for rows of c elements, in pieces of 16 bytes or one element at a time. */
static inline int64_t cuda_row_wave(int64_t c, bool pieces)
{
    int64_t more = pieces ? 1 : max_i64(1, min_i64(8, CUDA_ELEMENT_COLUMNS / c));
    return CUDA_ROW_WAVE * more;
}

static inline int64_t cuda_row_chunk(int64_t wave, int64_t vectors, int64_t rows)
{
    return cuda_chunk(max_i64(1, wave / vectors), rows);
}

/* The scratch of n sums of `vectors` vectors over `rows` rows each: a partial sum per chunk, none
 * if there is a single chunk; with dx_sums also sums over all rows, one per block. */
static inline int64_t cuda_sums_workspace(int64_t vectors, int64_t rows, int64_t c, int n,
                                          bool dx_sums)
{
    int64_t limit = 0;
    for (int pieces = 0; pieces < 2; pieces++) {
        int64_t each = cuda_row_chunk(cuda_row_wave(c, pieces), vectors, rows);
        int64_t chunks = (rows + each - 1) / each, units = vectors * chunks;
        int64_t sums = (chunks == 1 ? 0 : units * n) +
                       (dx_sums ? min_i64(units, CUDA_ROW_BLOCKS) : 0);
        limit = max_i64(limit, sums * c * (int64_t)sizeof(float));
    }
    return limit;
}

/* The scratch of sums of the shape of v over the rows of x. */
static inline int64_t cuda_row_sums_workspace(const struct ckpt_desc *x, const struct ckpt_desc *v,
                                              int n, bool dx_sums)
{
    int64_t c = x->shape[x->ndim - 1], vectors = 1, rows = 1;
    for (int i = 0; i < x->ndim - 1; i++) {
        vectors *= v->shape[i];
        rows *= x->shape[i];
    }
    return cuda_sums_workspace(vectors, rows / vectors, c, n, dx_sums);
}

/* Chunks for the sum of one vector of c elements over all rows. */
static inline int64_t cuda_weight_chunks(int64_t rows)
{
    int64_t each = cuda_chunk(CUDA_WEIGHT_WAVE, rows);
    return (rows + each - 1) / each;
}

static inline int64_t cuda_weight_sums_workspace(int64_t rows, int64_t c)
{
    return cuda_weight_chunks(rows) * c * (int64_t)sizeof(float);
}

#endif
