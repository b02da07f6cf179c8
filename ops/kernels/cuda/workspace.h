/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scratch sizes of the CUDA kernels.  They are functions of the shapes alone, so a plan made on a
 * machine without a GPU is valid on one with a GPU.  The rows of the table (table.c) call them.
 * The file also defines how a kernel partitions its work wherever the scratch size depends on it.
 */
#ifndef CKPT_CUDA_WORKSPACE_H
#define CKPT_CUDA_WORKSPACE_H

#include "core/base.h"
#include "shapes/conv.h"
#include "shapes/group_norm.h"
#include "shapes/reduction.h"

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
#define CUDA_EPILOGUE_ROWS 128
#define CUDA_EPILOGUE_COLS 192

/* They need Hopper (gemm_hopper.cuh).  With fewer tiles than an H100 or H200 has clusters of two,
 * cuBLASLt has smaller tiles, and a product and a separate pass take less time: backward GELU of
 * 300 x 1,152 x 4,608 0.0215 ms instead of 0.0227, a gate of 256 x 1,536 x 8,960 0.0209 instead of
 * 0.0290 (doc/bench/h200.md). */
enum { CUDA_EPILOGUE_CAPABILITY = 90, CUDA_EPILOGUE_TILES = 66 };

/* The number of work items for clusters: pairs of tiles. */
static inline int64_t cuda_epilogue_tiles(int64_t rows, int64_t cols)
{
    return (rows + 2 * CUDA_EPILOGUE_ROWS - 1) / (2 * CUDA_EPILOGUE_ROWS) *
           ((cols + CUDA_EPILOGUE_COLS - 1) / CUDA_EPILOGUE_COLS);
}

static inline int64_t cuda_gelu_sums_workspace(int64_t rows, int64_t cols)
{
    return (rows + CUDA_EPILOGUE_ROWS - 1) / CUDA_EPILOGUE_ROWS * cols * (int64_t)sizeof(float);
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
        int64_t sums =
            (chunks == 1 ? 0 : units * n) + (dx_sums ? min_i64(units, CUDA_ROW_BLOCKS) : 0);
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
