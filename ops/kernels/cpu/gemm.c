/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products.
 *
 * The result is divided into tiles that depend on the shape alone.  fp32 operands are passed to
 * OpenBLAS directly.  Others are converted, or filled, block by block into a slot of the workspace.
 * A slot processes its tiles in order, so neither the workspace nor the order of any sum depends on
 * the number of threads.
 */
#include "blas.h"
#include "cpu.h"
#include "gemm.h"

enum {
    TILE = 256, /* maximum rows and columns of a tile */
    TILE_MIN = 64,
    MIN_TILES = 8, /* tiles are halved until there are this many */
    INNER = 256    /* maximum length of a converted block along the summed axis */
};

struct layout {
    int64_t tile_rows, tile_cols, inner; /* sizes of a tile, and of a step along the summed axis */
    int64_t unit, down;                  /* rows that are divided alike, and tiles of such a unit */
    int64_t tiles, across;               /* tiles in all, and per row of tiles */
    int64_t slots;
    int64_t a_floats, b_floats, c_floats; /* parts of a slot, in floats */
};

static int64_t tile_count(int64_t n, int64_t tile)
{
    return (n + tile - 1) / tile;
}

/* Tiles of nearly equal size, so that no thread gets a much smaller one. */
static int64_t even_tile(int64_t n, int64_t tile)
{
    int64_t even = (n + tile_count(n, tile) - 1) / tile_count(n, tile);
    return min_i64(round_up(even, 16), n);
}

static bool in_blocks(const struct gemm_operand *m)
{
    return m->dtype != CKPT_F32 || m->fill;
}

static struct layout layout_of(const struct gemm *g)
{
    bool a = in_blocks(&g->a), b = in_blocks(&g->b), c = g->c_dtype != CKPT_F32;
    struct layout l = {.tile_rows = TILE, .tile_cols = TILE, .unit = g->unit ? g->unit : g->rows};
    while (!g->unit &&
           tile_count(g->rows, l.tile_rows) * tile_count(g->cols, l.tile_cols) < MIN_TILES) {
        int64_t *longer = min_i64(g->rows, l.tile_rows) > min_i64(g->cols, l.tile_cols)
                              ? &l.tile_rows
                              : &l.tile_cols;
        if (*longer <= TILE_MIN)
            break;
        *longer /= 2;
    }
    l.tile_rows = even_tile(l.unit, l.tile_rows);
    l.tile_cols = even_tile(g->cols, l.tile_cols);
    l.inner = a || b ? even_tile(g->inner, INNER) : g->inner;
    l.down = tile_count(l.unit, l.tile_rows);
    l.across = tile_count(g->cols, l.tile_cols);
    l.tiles = g->rows / l.unit * l.down * l.across;
    l.slots = l.tiles;
    if (a || b || c)
        l.slots = cpu_slots(l.slots, (double)g->rows * (double)g->cols * (double)g->inner);
    l.a_floats = a ? round_up(l.tile_rows * l.inner, 16) : 0;
    l.b_floats = b ? round_up(l.tile_cols * l.inner, 16) : 0;
    l.c_floats = c ? round_up(l.tile_rows * l.tile_cols, 16) : 0;
    return l;
}

int64_t gemm_workspace(const struct gemm *g)
{
    struct layout l = layout_of(g);
    return l.slots * (l.a_floats + l.b_floats + l.c_floats) * (int64_t)sizeof(float);
}

/* Tiles and steps of a smaller product may be larger, up to the limits of both. */
int64_t gemm_workspace_within(const struct gemm *g)
{
    const int64_t rows = min_i64(g->rows, TILE), cols = min_i64(g->cols, TILE);
    const int64_t inner = min_i64(g->inner, INNER);
    int64_t floats = in_blocks(&g->a) ? round_up(rows * inner, 16) : 0;
    floats += in_blocks(&g->b) ? round_up(cols * inner, 16) : 0;
    floats += g->c_dtype != CKPT_F32 ? round_up(rows * cols, 16) : 0;
    return cpu_slots(INT64_MAX, (double)g->rows * (double)g->cols * (double)g->inner) * floats *
           (int64_t)sizeof(float);
}

struct block {
    const float *data;
    int64_t ld;
};

CKPT_CLONES static void scale_values(float *x, float scale, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
}

/* The stored block n_rows x n_cols at (row, col) of a matrix with pitch ld, as fp32. */
static struct block block_of(const struct gemm_operand *m, int64_t ld, int64_t row, int64_t col,
                             int64_t n_rows, int64_t n_cols, float *scratch)
{
    if (m->dtype == CKPT_F32)
        return (struct block){(const float *)m->data + row * ld + col, ld};
    const int64_t size = ckpt_dtype_size(m->dtype);
    const char *src = (const char *)m->data + (row * ld + col) * size;
    for (int64_t i = 0; i < n_rows; i++)
        cpu_load(scratch + i * n_cols, src + i * ld * size, m->dtype, n_cols);
    if (m->scale)
        scale_values(scratch, *m->scale, n_rows * n_cols);
    return (struct block){scratch, n_cols};
}

/* A block by its logical position, for either storage order. */
static struct block block_at(const struct gemm_operand *m, int64_t rows, int64_t cols, int64_t row,
                             int64_t col, int64_t n_rows, int64_t n_cols, float *scratch)
{
    if (m->fill) {
        m->fill(m->ctx, scratch, row, col, n_rows, n_cols);
        return (struct block){scratch, n_cols};
    }
    if (m->transposed)
        return block_of(m, m->ld ? m->ld : rows, col, row, n_cols, n_rows, scratch);
    return block_of(m, m->ld ? m->ld : cols, row, col, n_rows, n_cols, scratch);
}

static void fill_bias(const struct gemm *g, int64_t col, int64_t n_rows, int64_t n_cols, float *c,
                      int64_t ldc)
{
    const char *bias = (const char *)g->bias + col * ckpt_dtype_size(g->c_dtype);
    cpu_load(c, bias, g->c_dtype, n_cols);
    for (int64_t i = 1; i < n_rows; i++)
        memcpy(c + i * ldc, c, (size_t)n_cols * sizeof *c);
}

static void add_row(float *c, const void *from, enum ckpt_dtype dtype, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        c[j] +=
            dtype == CKPT_BF16 ? bf16_load(((const uint16_t *)from)[j]) : ((const float *)from)[j];
}

/* Adds to the bias if there is one, else sets c. */
static void fill_addend(const struct gemm *g, int64_t row, int64_t col, int64_t n_rows,
                        int64_t n_cols, float *c, int64_t ldc)
{
    for (int64_t i = 0; i < n_rows; i++) {
        int64_t at = ((row + i) * g->cols + col) * ckpt_dtype_size(g->c_dtype);
        const char *from = (const char *)g->addend + at;
        if (g->bias)
            add_row(c + i * ldc, from, g->c_dtype, n_cols);
        else
            cpu_load(c + i * ldc, from, g->c_dtype, n_cols);
    }
}

static void run_tile(const struct gemm *g, const struct layout *l, int64_t tile, float *slot)
{
    int64_t in_unit = tile / l->across % l->down * l->tile_rows;
    int64_t row = tile / l->across / l->down * l->unit + in_unit;
    int64_t col = tile % l->across * l->tile_cols;
    int64_t n_rows = min_i64(l->tile_rows, l->unit - in_unit);
    int64_t n_cols = min_i64(l->tile_cols, g->cols - col);
    float *a_scratch = slot, *b_scratch = slot + l->a_floats;
    bool direct = g->c_dtype == CKPT_F32, filled = g->bias || g->addend || g->accumulate;
    float *c = direct ? (float *)g->c + row * g->cols + col : b_scratch + l->b_floats;
    int64_t ldc = direct ? g->cols : n_cols;
    if (g->bias)
        fill_bias(g, col, n_rows, n_cols, c, ldc);
    if (g->addend)
        fill_addend(g, row, col, n_rows, n_cols, c, ldc);
    for (int64_t k = 0; k < g->inner; k += l->inner) {
        int64_t n_k = min_i64(l->inner, g->inner - k);
        struct block a = block_at(&g->a, g->rows, g->inner, row, k, n_rows, n_k, a_scratch);
        struct block b = block_at(&g->b, g->inner, g->cols, k, col, n_k, n_cols, b_scratch);
        blas_sgemm(n_rows, n_cols, n_k, 1.f, (struct blas_matrix){a.data, a.ld, g->a.transposed},
                   (struct blas_matrix){b.data, b.ld, g->b.transposed}, k || filled ? 1.f : 0.f, c,
                   ldc);
    }
    for (int64_t i = 0; !direct && i < n_rows; i++)
        cpu_store((uint16_t *)g->c + (row + i) * g->cols + col, c + i * ldc, g->c_dtype, n_cols);
}

void gemm_run(const struct gemm *g, void *workspace)
{
    const struct layout l = layout_of(g);
    const int64_t stride = l.a_floats + l.b_floats + l.c_floats;
#pragma omp parallel for schedule(static) if (l.slots > 1)
    for (int64_t s = 0; s < l.slots; s++) {
        float *slot = stride ? (float *)workspace + s * stride : NULL;
        for (int64_t i = s * l.tiles / l.slots; i < (s + 1) * l.tiles / l.slots; i++)
            run_tile(g, &l, i, slot);
    }
}
