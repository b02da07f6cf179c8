/* SPDX-License-Identifier: Apache-2.0 */
/* Scratch sizes of attention on CUDA, and how its kernels partition their work: see
 * cuda/workspace.h. */
#ifndef CKPT_CUDA_ATTENTION_WORKSPACE_H
#define CKPT_CUDA_ATTENTION_WORKSPACE_H

#include "kernels/cuda/workspace.h"

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
 * The one-pass backward kernel for Hopper (attention_onepass.cuh).  Tiles of keys add to dq in a
 * fixed order.  Scratch: statistics of whole tiles of queries; fp32 sums of dq if the keys have
 * several tiles; and the counters of the order.
 */
enum { CUDA_ATTENTION_ONEPASS_QUERIES = 64, CUDA_ATTENTION_ONEPASS_KEYS = 128 };

static inline bool cuda_attention_onepass_width(int64_t width)
{
    static const int64_t widths[] = {32, 40, 48, 64, 72, 80, 96, 128};
    for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
        if (width == widths[i])
            return true;
    return false;
}

static inline bool cuda_attention_may_onepass(const struct cuda_attention_sizes *s)
{
    return !s->packed && cuda_attention_onepass_width(s->width);
}

static inline int64_t cuda_attention_onepass_tiles(const struct cuda_attention_sizes *s)
{
    const int64_t tile = CUDA_ATTENTION_ONEPASS_QUERIES;
    return s->n_sequences * s->n_heads * ((s->n_queries + tile - 1) / tile);
}

static inline int64_t cuda_attention_onepass_statistics_bytes(const struct cuda_attention_sizes *s)
{
    return cuda_attention_onepass_tiles(s) * CUDA_ATTENTION_ONEPASS_QUERIES * 8;
}

static inline int64_t cuda_attention_onepass_sums_bytes(const struct cuda_attention_sizes *s)
{
    const int64_t rows = cuda_attention_onepass_tiles(s) * CUDA_ATTENTION_ONEPASS_QUERIES;
    return s->n_keys > CUDA_ATTENTION_ONEPASS_KEYS ? rows * s->width * 4 : 0;
}

/* Blocks of a last wave that are split into pairs, since they would leave half of a large device
 * idle: at most CUDA_ATTENTION_ONEPASS_PAIRS.  A pair has a counter, and sums of dk and dv of both.
 */
enum {
    CUDA_ATTENTION_WAVE = 132,
    CUDA_ATTENTION_ONEPASS_PAIRS = CUDA_ATTENTION_WAVE / 2,
    CUDA_ATTENTION_ONEPASS_UNPAIRED = 72 /* heads up to this width have no pairs */
};

static inline int64_t cuda_attention_onepass_pairs(int64_t blocks)
{
    const int64_t rest = blocks % CUDA_ATTENTION_WAVE;
    return blocks > CUDA_ATTENTION_WAVE && rest <= CUDA_ATTENTION_ONEPASS_PAIRS ? rest : 0;
}

static inline int64_t cuda_attention_onepass_pairs_bytes(const struct cuda_attention_sizes *s)
{
    const int64_t tile = CUDA_ATTENTION_ONEPASS_KEYS;
    const int64_t tiles = s->n_sequences * s->n_shared * ((s->n_keys + tile - 1) / tile);
    const int64_t pairs =
        s->width > CUDA_ATTENTION_ONEPASS_UNPAIRED ? cuda_attention_onepass_pairs(tiles) : 0;
    return CUDA_ATTENTION_ONEPASS_PAIRS * 4 + 16 + pairs * 4 * tile * s->width * 4;
}

static inline int64_t cuda_attention_onepass_bytes(const struct cuda_attention_sizes *s)
{
    if (!cuda_attention_may_onepass(s))
        return 0;
    return cuda_attention_onepass_statistics_bytes(s) + cuda_attention_onepass_sums_bytes(s) +
           cuda_attention_partial_bytes(s) + cuda_attention_onepass_tiles(s) * 4 +
           cuda_attention_onepass_pairs_bytes(s);
}

/* The scratch of cuda_attention_own_dx or, if packed, of cuda_cross_attention_own_dx. */
static inline int64_t cuda_attention_own_dx_workspace(const struct ckpt_desc *q,
                                                      const struct ckpt_desc *k, bool packed)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, packed);
    if (!cuda_attention_on_tensor_cores(&s) || cuda_attention_is_short(&s))
        return 0;
    return max_i64(cuda_attention_statistics_bytes(&s) + cuda_attention_partial_bytes(&s),
                   cuda_attention_onepass_bytes(&s));
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
 * cuDNN's ordered backward pass, for heads of widths without a kernel in attention_onepass.cuh.  It
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
    if (cuda_attention_onepass_width(s->width) || !s->n_shared || !s->n_queries || !s->n_keys)
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

#endif
