/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch bytes of the CUDA kernels: functions of the shapes alone, so that a plan made on a
 * machine without a GPU holds on one that has it.  Shape rules ask where call->backend is
 * CKPT_ON_CUDA.  Here too stands how a kernel cuts its work, where its scratch follows from that.
 */
#ifndef CKPT_CUDA_WORKSPACE_H
#define CKPT_CUDA_WORKSPACE_H

#include "core/base.h"
#include "conv.h"
#include "group_norm.h"
#include "reduction.h"

/* ---- sum, sum_to ---------------------------------------------------------------------------- */

/* Threads that share a result whose elements lie side by side: a power of 2 up to 256. */
static inline int64_t cuda_reduce_lanes(const struct reduction *r)
{
    int64_t lanes = 1;
    while (lanes < 256 && lanes * 16 <= r->length)
        lanes *= 2;
    return lanes;
}

/* Parts of the reduced range: enough thread blocks to fill any GPU, none with next to nothing. */
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

/* ---- products with more at their end --------------------------------------------------------- */

/* Of a tile, of which linear_dx_gelu leaves sums first.  A cluster of two blocks takes two at a
 * time, one below the other. */
#define CUDA_JOINED_ROWS 128
#define CUDA_JOINED_COLS 192

/* What clusters share: pairs of tiles. */
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

/* Chunks of one sample of pred [B, ...]. */
static inline int64_t cuda_mse_chunks(const struct ckpt_desc *pred)
{
    return (desc_numel(pred) / pred->shape[0] + CUDA_MSE_CHUNK - 1) / CUDA_MSE_CHUNK;
}

static inline int64_t cuda_mse_workspace(const struct ckpt_desc *pred)
{
    return pred->shape[0] * cuda_mse_chunks(pred) * (int64_t)sizeof(double);
}

/* ---- pack, unpack --------------------------------------------------------------------------- */

#define CUDA_PACK_ROWS 32 /* of one count */

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

/* The sum over the operands so far, where one launch cannot take them all. */
static inline int64_t cuda_clip_workspace(void)
{
    return (int64_t)sizeof(double);
}

/* ---- convolutions -------------------------------------------------------------------------- */

#define CUDA_CONV_TILE 64 /* of the kernels without cuDNN: rows and columns of a tile */

/* Elements of the weight. */
static inline int64_t cuda_conv_weights(const struct conv_shape *s)
{
    return s->k * conv_volume(s->kernel) * conv_group_c(s);
}

/* Parts that the sum of a weight gradient is cut into, so that it fills the device. */
static inline int64_t cuda_conv_dw_splits(const struct conv_shape *s)
{
    int64_t places = s->n * conv_volume(s->out);
    int64_t rows = conv_group_k(s), columns = conv_volume(s->kernel) * conv_group_c(s);
    int64_t tiles = ((rows + CUDA_CONV_TILE - 1) / CUDA_CONV_TILE) *
                    ((columns + CUDA_CONV_TILE - 1) / CUDA_CONV_TILE) * s->groups;
    return max_i64(1, min_i64(512 / tiles, places / 1024));
}

/* Depthwise: a block has so many channels of y, and so many places at once. */
#define CUDA_DEPTHWISE_CHANNELS 32
#define CUDA_DEPTHWISE_PLACES   8

/* Parts of the sum of a depthwise weight gradient. */
static inline int64_t cuda_depthwise_parts(const struct conv_shape *s)
{
    int64_t places = s->n * conv_volume(s->out), across = CUDA_DEPTHWISE_CHANNELS;
    int64_t blocks = (s->k + across - 1) / across * conv_volume(s->kernel);
    return max_i64(1, min_i64(4096 / blocks, places / 256));
}

/* The weight gradient in bf16, before it is widened. */
static inline int64_t cuda_conv_dw_front(const struct conv_shape *s)
{
    return round_up(cuda_conv_weights(s) * 2, 512);
}

/* What engines of cuDNN may take: sums in parts, and copies of operands whose channels do not fill
 * 16 bytes.  Invariant convolutions are not summed in parts. */
static inline int64_t cuda_conv_workspace(const struct conv_shape *s, enum ckpt_dtype dtype)
{
    int64_t size = ckpt_dtype_size(dtype), unit = 16 / size, bytes = INT64_C(8) << 20;
    if (conv_is_depthwise(s)) /* kernels of our own */
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
 * A block has 256 threads: `lanes` across, of `vector` neighbouring channels each, times
 * `at_once` rows.  It works on one tile of channels of one chunk of rows of one sample.
 */
struct group_norm_cut {
    int vector, lanes, at_once;
    int64_t tiles, chunks, chunk_rows;
};

#define GROUP_NORM_BLOCKS 2048 /* about so many in all */
#define GROUP_NORM_STEP   8    /* rows of a thread that are loaded together */

static inline struct group_norm_cut group_norm_cut(const struct group_norm_shape *s, int vector)
{
    struct group_norm_cut k = {.vector = vector, .lanes = 1};
    while (k.lanes < 32 && k.lanes * vector < s->c)
        k.lanes *= 2;
    k.at_once = 256 / k.lanes;
    k.tiles = (s->c + k.lanes * vector - 1) / (k.lanes * vector);
    int64_t wanted = max_i64(1, GROUP_NORM_BLOCKS / (s->n * k.tiles));
    k.chunk_rows = round_up((s->rows + wanted - 1) / wanted, k.at_once * GROUP_NORM_STEP);
    k.chunks = (s->rows + k.chunk_rows - 1) / k.chunk_rows;
    return k;
}

/* For moments of rows: a row is one chunk, however many there are. */
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

/* Two numbers per sample, chunk and channel; backward also their sums, double, per sample and
 * channel, and two numbers per sample and group.  For vectors of 16 bytes or none. */
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
 * Matrix products: room for the partial results of eight splits of the summed axis in fp32, which
 * is as far as cuBLASLt goes for results that are too small to fill the chip, up to the 32 MiB that
 * its kernels are made for on Hopper.
 */
static inline int64_t cuda_gemm_workspace(int64_t rows, int64_t cols)
{
    const int64_t most = (int64_t)32 << 20, each = 8 * (int64_t)sizeof(float);
    if (rows >= most / each || cols >= most / each)
        return most;
    return min_i64(most, round_up(rows * cols * each, 4096));
}

/*
 * Our own attention (attention_core.h).  Going forward it needs no scratch; going backward the
 * tensor core kernels keep two floats per query and, where the keys alone would leave most of the
 * device idle, partial sums of dk and dv per chunk of queries.
 */
enum {
    CUDA_ATTENTION_WIDTH = 128,  /* the widest head of the tensor core kernels */
    CUDA_ATTENTION_SHORT = 32,   /* up to so many queries and keys a warp does a head alone */
    CUDA_ATTENTION_KEYS = 64,    /* of one block of the kernel for dk and dv */
    CUDA_ATTENTION_BLOCKS = 750, /* that fill a device about twice */
    CUDA_ATTENTION_CHUNK = 256   /* the fewest queries worth a chunk */
};

struct cuda_attention_sizes {
    enum ckpt_dtype dtype;
    int64_t n_sequences, n_heads, n_queries, width;
    int64_t n_shared; /* heads of keys */
    int64_t n_keys;   /* of a sequence, or all packed rows */
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

/* Do the tensor core kernels take it, and is it short? */
static inline bool cuda_attention_on_tensor_cores(const struct cuda_attention_sizes *s)
{
    return s->dtype == CKPT_BF16 && s->width <= CUDA_ATTENTION_WIDTH;
}

static inline bool cuda_attention_is_short(const struct cuda_attention_sizes *s)
{
    return cuda_attention_on_tensor_cores(s) && !s->packed &&
           s->n_queries <= CUDA_ATTENTION_SHORT && s->n_keys <= CUDA_ATTENTION_SHORT;
}

/* Tiles of `tile` keys that all sequences fall into, at most: packed sequences begin anywhere. */
static inline int64_t cuda_attention_key_tiles(const struct cuda_attention_sizes *s, int64_t tile)
{
    if (s->packed)
        return s->n_keys / tile + s->n_sequences;
    return s->n_sequences * ((s->n_keys + tile - 1) / tile);
}

/* Chunks that the queries of a sequence are cut into for dk and dv. */
static inline int64_t cuda_attention_chunks(const struct cuda_attention_sizes *s)
{
    int64_t blocks = s->n_shared * cuda_attention_key_tiles(s, CUDA_ATTENTION_KEYS);
    int64_t most = s->n_queries / CUDA_ATTENTION_CHUNK;
    return max_i64(1, min_i64(most, CUDA_ATTENTION_BLOCKS / max_i64(blocks, 1)));
}

/* Of whole tiles of queries, as some kernels number them. */
static inline int64_t cuda_attention_statistics_bytes(const struct cuda_attention_sizes *s)
{
    const int64_t rows = round_up(s->n_queries, CUDA_ATTENTION_KEYS);
    return round_up(s->n_sequences * s->n_heads * rows * 8, 256);
}

/* Packed dk and dv are summed up even of one chunk: that pass also clears the rows of nobody. */
static inline int64_t cuda_attention_partial_bytes(const struct cuda_attention_sizes *s)
{
    int64_t chunks = cuda_attention_chunks(s), rows = s->n_keys * (s->packed ? 1 : s->n_sequences);
    return chunks > 1 || s->packed ? chunks * 2 * rows * s->n_shared * s->width * 4 : 0;
}

/*
 * On Hopper the same in one pass (attention_turns.cuh), tiles of keys taking turns at adding to dq:
 * statistics of whole tiles of queries, sums of their dq in fp32 where keys have several tiles, and
 * whose turn it is.
 */
enum { CUDA_ATTENTION_TURN_QUERIES = 64, CUDA_ATTENTION_TURN_KEYS = 128 };

static inline bool cuda_attention_may_turn(const struct cuda_attention_sizes *s)
{
    return !s->packed && (s->width == 64 || s->width == 72 || s->width == 128);
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

/* The scratch of cuda_attention_own_dx, or packed that of cuda_cross_attention_own_dx. */
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
 * Self attention of heads wider than our kernels take (attention_wide.h): scores of a tile in
 * fp32, probabilities in the dtype of the operands, where a sequence has several tiles fp32 sums of
 * dk and dv, and what the products want.  Tiles are so large that the products fill a device, and
 * so small that decoding a large frame needs little more than that.
 */
enum {
    CUDA_WIDE_SCORES = 1 << 24, /* of a tile, about */
    CUDA_WIDE_ROWS = 128,       /* tiles have multiples of it */
    CUDA_WIDE_BATCH = 65535     /* matrices of one product */
};

static inline bool cuda_attention_is_wide(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    const int64_t width = q->shape[q->ndim - 1];
    return width > CUDA_ATTENTION_WIDTH && width % (16 / ckpt_dtype_size(q->dtype)) == 0 &&
           desc_numel(q) > 0 && desc_numel(k) > 0;
}

/* A tile has some queries of one matrix (a head of a sequence), or all of several matrices. */
struct cuda_wide_cut {
    int64_t pitch; /* from row to row of scores */
    int64_t rows, matrices;
};

static inline struct cuda_wide_cut cuda_wide_cut_of(const struct cuda_attention_sizes *s)
{
    const int64_t matrices = s->n_sequences * s->n_heads;
    struct cuda_wide_cut c = {round_up(s->n_keys, 8), s->n_queries, 1};
    const int64_t most = CUDA_WIDE_SCORES / c.pitch; /* rows */
    if (s->n_queries > max_i64(most, CUDA_WIDE_ROWS)) {
        int64_t rows = max_i64(CUDA_WIDE_ROWS, most / CUDA_WIDE_ROWS * CUDA_WIDE_ROWS);
        int64_t tiles = (s->n_queries + rows - 1) / rows;
        c.rows = round_up((s->n_queries + tiles - 1) / tiles, CUDA_WIDE_ROWS);
        return c;
    }
    int64_t at_once = max_i64(1, min_i64(CUDA_WIDE_BATCH, most / s->n_queries));
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
 * Self attention: cuDNN where it is fast (attention.c), our kernels elsewhere and where cuDNN
 * refuses, which is known on the device only: so room for both.  Going backward cuDNN sums dq up in
 * fp32; it gets no more scratch of its own than CUDA_ATTENTION_CUDNN, which Hopper and Blackwell
 * are content with, and where heads share keys dk and dv of each in bf16.
 */
enum {
    CUDA_ATTENTION_LONG = 129, /* queries or keys from which on cuDNN is asked */
    CUDA_ATTENTION_CUDNN = 65536,
    CUDA_ATTENTION_CUDNN_WIDTH = 256,
    CUDA_ATTENTION_CUDNN_ALIGN = 256
};

static inline bool cuda_attention_in_cudnn(const struct ckpt_desc *q, const struct ckpt_desc *k)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, false);
    return s.dtype == CKPT_BF16 && max_i64(s.n_queries, s.n_keys) >= CUDA_ATTENTION_LONG &&
           s.n_keys > 1 && /* else the scale is 0, and what is masked inside would become NaN */
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

/* The first two parts of cuDNN's scratch going backward: the sums of dq, and delta. */
static inline int64_t cuda_attention_dq_bytes(int64_t n_rows, int64_t width)
{
    return round_up(n_rows * width * 4, CUDA_ATTENTION_CUDNN_ALIGN);
}

static inline int64_t cuda_attention_delta_bytes(int64_t n_rows)
{
    return round_up(n_rows * 4, CUDA_ATTENTION_CUDNN_ALIGN);
}

/* dk and dv of every head of `batch` sequences, where several share keys and values. */
static inline int64_t cuda_attention_shared_bytes(const struct ckpt_desc *q,
                                                  const struct ckpt_desc *k, int64_t batch)
{
    const int64_t heads = q->shape[q->ndim - 2], n_keys = k->shape[k->ndim - 3];
    return k->shape[k->ndim - 2] == heads ? 0
                                          : 2 * 2 * batch * n_keys * heads * q->shape[q->ndim - 1];
}

static inline int64_t cuda_attention_dx_workspace(const struct ckpt_desc *q,
                                                  const struct ckpt_desc *k)
{
    struct cuda_attention_sizes s = cuda_attention_sizes_of(q, k, false);
    int64_t own = max_i64(cuda_attention_own_dx_workspace(q, k, false),
                          cuda_attention_wide_workspace(q, k, true));
    int64_t n_rows = s.n_sequences * s.n_heads * s.n_queries;
    if (!cuda_attention_in_cudnn(q, k))
        return own;
    return max_i64(own, cuda_attention_dq_bytes(n_rows, s.width) +
                            cuda_attention_delta_bytes(n_rows) +
                            cuda_attention_shared_bytes(q, k, s.n_sequences) +
                            cuda_attention_cudnn_workspace(q, k));
}

/*
 * column_sum: chunks of rows whose partial sums are added afterwards; one chunk needs no scratch.
 * All chunks of all strips of columns together are one wave of blocks on a large device; a chunk
 * has at least what a block reads at once.
 */
enum { CUDA_COLUMN_STRIP = 128, CUDA_COLUMN_WAVE = 528, CUDA_COLUMN_ROWS = 128 };

static inline int64_t cuda_column_sum_chunks(int64_t rows, int64_t cols)
{
    int64_t strips = (cols + CUDA_COLUMN_STRIP - 1) / CUDA_COLUMN_STRIP;
    int64_t most = (rows + CUDA_COLUMN_ROWS - 1) / CUDA_COLUMN_ROWS;
    return rows <= 2 * CUDA_COLUMN_ROWS ? 1 : min_i64(most, max_i64(1, CUDA_COLUMN_WAVE / strips));
}

static inline int64_t cuda_column_sum_workspace(int64_t rows, int64_t cols)
{
    int64_t chunks = cuda_column_sum_chunks(rows, cols);
    return chunks > 1 ? chunks * cols * (int64_t)sizeof(float) : 0;
}

/*
 * Sums over rows: how many chunks the rows that share one of `vectors` vectors are cut into.  All
 * chunks together are one block for each multiprocessor of a large device, or two and so on; where
 * rows go element by element, more blocks the shorter they are.  A chunk has at least 4 rows, and
 * so few that fp32 sums lose nothing that counts.  Chunks of row_chunk rows leave none empty.
 */
enum {
    CUDA_ROW_WAVE = 132,    /* multiprocessors; each takes a block that sums rows */
    CUDA_ROW_BLOCKS = 1056, /* at most; more chunks are done in turns */
    CUDA_WEIGHT_WAVE = 528, /* blocks that sum for the weights of norms of short rows */
    CUDA_CHUNK_ROWS = 1024,
    CUDA_ELEMENT_COLUMNS = 1024 /* of a row that a block is busy with */
};

/* Rows of a chunk; all chunks are `wave` blocks, or as many again. */
static inline int64_t cuda_chunk(int64_t wave, int64_t rows)
{
    int64_t waves = (rows + wave * CUDA_CHUNK_ROWS - 1) / (wave * CUDA_CHUNK_ROWS);
    int64_t blocks = wave * max_i64(1, waves);
    return max_i64(4, (rows + blocks - 1) / blocks);
}

/* The wave for rows of c elements, in pieces or one by one. */
static inline int64_t cuda_row_wave(int64_t c, bool pieces)
{
    int64_t more = pieces ? 1 : max_i64(1, min_i64(8, CUDA_ELEMENT_COLUMNS / c));
    return CUDA_ROW_WAVE * more;
}

static inline int64_t cuda_row_chunk(int64_t wave, int64_t vectors, int64_t rows)
{
    return cuda_chunk(max_i64(1, wave / vectors), rows);
}

/* n sums of vectors over so many rows each: a partial sum per chunk, none for a single one; and
 * where dx_sums are wanted, sums over all rows: one per block. */
static inline int64_t cuda_sums_workspace(int64_t vectors, int64_t rows, int64_t c, int n,
                                          bool dx_sums)
{
    int64_t most = 0;
    for (int pieces = 0; pieces < 2; pieces++) {
        int64_t each = cuda_row_chunk(cuda_row_wave(c, pieces), vectors, rows);
        int64_t chunks = (rows + each - 1) / each, units = vectors * chunks;
        int64_t sums = (chunks == 1 ? 0 : units * n) +
                       (dx_sums ? min_i64(units, CUDA_ROW_BLOCKS) : 0);
        most = max_i64(most, sums * c * (int64_t)sizeof(float));
    }
    return most;
}

/* The same for sums of the shape of v over the rows of x. */
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

/* The sum of one vector of c over all rows: chunks as above. */
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
