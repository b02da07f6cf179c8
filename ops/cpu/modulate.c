/*
 * x (1 + scale) + shift and x + gate a, with the gradients.  The gradients of shift, scale and gate
 * are sums over the axes on which they stand still: fixed chunks of rows, added in order.
 */
#include "kernels.h"
#include "rows.h"

#define TILE  2048 /* columns whose sums a leaf keeps in the first-level cache */
#define BLOCK 64   /* rows added in fp32 before the sum moves to the next level */

typedef void (*forward_leaf)(const struct row_run *run, int64_t c, bool half);

static void for_all_rows(const struct rows *r, int64_t c, bool half, forward_leaf leaf)
{
    int64_t per = rows_per_chunk(c), chunks = (r->count + per - 1) / per;
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++) {
        struct row_run run;
        int64_t end = min_i64(r->count, (i + 1) * per);
        for (int64_t row = i * per; row < end; row += run.n) {
            rows_run(r, row, end, &run);
            leaf(&run, c, half);
        }
    }
}

/* One op of three operands and a result of the same dtype. */
static int forward(const struct ckpt_kernel_args *a, forward_leaf leaf)
{
    const struct ckpt_view *x = &a->in[0];
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[1]);
    rows_operand(&r, &a->in[2]);
    rows_operand(&r, &a->out[0]);
    rows_finish(&r);
    for_all_rows(&r, x->desc.shape[x->desc.ndim - 1], view_half(x), leaf);
    return CKPT_OK;
}

/* run: x, shift, scale, y */
ROWS_INLINE void modulate_rows(const struct row_run *run, int64_t c, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict shift = run->at[1] + i * run->step[1];
        const void *restrict scale = run->at[2] + i * run->step[2];
        void *restrict y = run->at[3] + i * run->step[3];
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            row_put(y, j,
                    row_get(x, j, half) * (1.f + row_get(scale, j, half)) + row_get(shift, j, half),
                    half);
    }
}

CKPT_CLONES static void modulate_leaf(const struct row_run *run, int64_t c, bool half)
{
    if (half)
        modulate_rows(run, c, true);
    else
        modulate_rows(run, c, false);
}

int cpu_modulate(const struct ckpt_kernel_args *a)
{
    return forward(a, modulate_leaf);
}

/* run: x, gate, a, y */
ROWS_INLINE void gated_residual_rows(const struct row_run *run, int64_t c, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict gate = run->at[1] + i * run->step[1];
        const void *restrict a = run->at[2] + i * run->step[2];
        void *restrict y = run->at[3] + i * run->step[3];
#pragma omp simd
        for (int64_t j = 0; j < c; j++)
            row_put(y, j, row_get(x, j, half) + row_get(gate, j, half) * row_get(a, j, half), half);
    }
}

CKPT_CLONES static void gated_residual_leaf(const struct row_run *run, int64_t c, bool half)
{
    if (half)
        gated_residual_rows(run, c, true);
    else
        gated_residual_rows(run, c, false);
}

int cpu_gated_residual(const struct ckpt_kernel_args *a)
{
    return forward(a, gated_residual_leaf);
}

/*
 * Sums of a leaf over the rows of one run, c <= TILE columns from a first one.
 * run: x, dy, the vector (scale or gate), dx, and the sums of vector 0 and 1.
 */
struct sums {
    float *first, *second; /* += sum dy, += sum dy x (modulate); += sum dy a, unused (gate) */
};

typedef void (*backward_leaf)(const struct row_run *run, int64_t column, int64_t c, bool half,
                              bool dy_half, const struct sums *sums);

/* dx = dy (1 + scale), dshift += dy, dscale += dy x */
ROWS_INLINE void modulate_dx_rows(const struct row_run *run, int64_t column, int64_t c, bool half,
                                  bool dy_half, const struct sums *sums)
{
    float *restrict dshift = sums->first, *restrict dscale = sums->second;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0] + skip;
        const void *restrict dy = run->at[1] + i * run->step[1] + dy_skip;
        const void *restrict scale = run->at[2] + i * run->step[2] + skip;
        void *restrict dx = run->at[3] + i * run->step[3] + skip;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half);
            row_put(dx, j, d * (1.f + row_get(scale, j, half)), half);
            dshift[j] += d;
            dscale[j] += d * row_get(x, j, half);
        }
    }
}

CKPT_CLONES static void modulate_dx_leaf(const struct row_run *run, int64_t column, int64_t c,
                                         bool half, bool dy_half, const struct sums *sums)
{
    if (half && dy_half)
        modulate_dx_rows(run, column, c, true, true, sums);
    else if (half)
        modulate_dx_rows(run, column, c, true, false, sums);
    else if (dy_half)
        modulate_dx_rows(run, column, c, false, true, sums);
    else
        modulate_dx_rows(run, column, c, false, false, sums);
}

/* da = dy gate, dgate += dy a */
ROWS_INLINE void gated_residual_dx_rows(const struct row_run *run, int64_t column, int64_t c,
                                        bool half, bool dy_half, const struct sums *sums)
{
    float *restrict dgate = sums->first;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict a = run->at[0] + i * run->step[0] + skip;
        const void *restrict dy = run->at[1] + i * run->step[1] + dy_skip;
        const void *restrict gate = run->at[2] + i * run->step[2] + skip;
        void *restrict da = run->at[3] + i * run->step[3] + skip;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half);
            row_put(da, j, d * row_get(gate, j, half), half);
            dgate[j] += d * row_get(a, j, half);
        }
    }
}

CKPT_CLONES static void gated_residual_dx_leaf(const struct row_run *run, int64_t column, int64_t c,
                                               bool half, bool dy_half, const struct sums *sums)
{
    if (half && dy_half)
        gated_residual_dx_rows(run, column, c, true, true, sums);
    else if (half)
        gated_residual_dx_rows(run, column, c, true, false, sums);
    else if (dy_half)
        gated_residual_dx_rows(run, column, c, false, true, sums);
    else
        gated_residual_dx_rows(run, column, c, false, false, sums);
}

/* A gradient kernel: its rows, its sums and how they are cut. */
struct backward {
    struct rows r;
    backward_leaf leaf;
    bool half, dy_half;
    int n_sums;
    int64_t c, vectors, rows_each, chunks; /* rows_each rows to a vector, in chunks */
};

/* Sums rows [row, end), which share a vector, into sum[n_sums][c]. */
static void backward_chunk(const struct backward *b, int64_t row, int64_t end, float *const *sum)
{
    float block[2][TILE];
    struct sums sums = {.first = block[0], .second = block[1]};
    for (int s = 0; s < b->n_sums; s++)
        memset(sum[s], 0, (size_t)b->c * sizeof *sum[s]);
    for (int64_t column = 0; column < b->c; column += TILE) {
        int64_t n = min_i64(TILE, b->c - column);
        struct row_run run;
        for (int64_t first = row; first < end; first += run.n) {
            rows_run(&b->r, first, min_i64(end, first + BLOCK), &run);
            for (int s = 0; s < b->n_sums; s++)
                memset(block[s], 0, (size_t)n * sizeof block[s][0]);
            b->leaf(&run, column, n, b->half, b->dy_half, &sums);
            for (int s = 0; s < b->n_sums; s++)
                for (int64_t j = 0; j < n; j++)
                    sum[s][column + j] += block[s][j];
        }
    }
}

/* The place of a vector in the gradients: operands 4 and 5 follow the vector. */
static void gradient_rows(const struct backward *b, int64_t vector, float **sum)
{
    struct row_run run;
    int64_t row = vector * b->rows_each;
    rows_run(&b->r, row, row + 1, &run);
    for (int s = 0; s < b->n_sums; s++)
        sum[s] = (float *)run.at[4 + s];
}

/* Adds the chunks of one vector, in order. */
static void add_partials(const struct backward *b, int64_t vector, const float *partial)
{
    float *sum[2];
    gradient_rows(b, vector, sum);
    for (int s = 0; s < b->n_sums; s++)
        for (int64_t j = 0; j < b->c; j++) {
            float total = 0.f;
            for (int64_t i = 0; i < b->chunks; i++)
                total += partial[((vector * b->chunks + i) * b->n_sums + s) * b->c + j];
            sum[s][j] = total;
        }
}

static void backward_run(const struct backward *b, float *partial)
{
    int64_t per = (b->rows_each + b->chunks - 1) / b->chunks;
#pragma omp parallel for schedule(static) if (b->r.count * b->c > ROWS_CHUNK)
    for (int64_t i = 0; i < b->vectors * b->chunks; i++) {
        int64_t vector = i / b->chunks, chunk = i % b->chunks, base = vector * b->rows_each;
        float *sum[2];
        if (b->chunks == 1)
            gradient_rows(b, vector, sum);
        for (int s = 0; s < b->n_sums && b->chunks > 1; s++)
            sum[s] = partial + (i * b->n_sums + s) * b->c;
        backward_chunk(b, base + chunk * per, base + min_i64(b->rows_each, (chunk + 1) * per), sum);
    }
    if (b->chunks == 1)
        return;
#pragma omp parallel for schedule(static) if (b->vectors * b->chunks * b->c > ROWS_CHUNK)
    for (int64_t v = 0; v < b->vectors; v++)
        add_partials(b, v, partial);
}

/* x: the operand of dx; v: the vector; out[0] is dx, the sums follow. */
static int backward(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                    const struct ckpt_view *v, int n_sums, backward_leaf leaf)
{
    struct backward b = {.leaf = leaf,
                         .half = view_half(x),
                         .dy_half = view_half(&a->in[0]),
                         .n_sums = n_sums,
                         .c = x->desc.shape[x->desc.ndim - 1]};
    rows_begin(&b.r, x);
    rows_operand(&b.r, &a->in[0]);
    rows_operand(&b.r, v);
    rows_operand(&b.r, &a->out[0]);
    for (int s = 0; s < n_sums; s++)
        rows_operand(&b.r, &a->out[1 + s]);
    b.rows_each = rows_finish_reduction(&b.r, 4);
    b.vectors = b.r.count / b.rows_each;
    b.chunks = rows_vector_chunks(b.vectors, b.rows_each);
    backward_run(&b, a->workspace);
    return CKPT_OK;
}

int cpu_modulate_dx(const struct ckpt_kernel_args *a)
{
    return backward(a, &a->in[1], &a->in[2], 2, modulate_dx_leaf);
}

int cpu_gated_residual_dx(const struct ckpt_kernel_args *a)
{
    return backward(a, &a->in[2], &a->in[1], 1, gated_residual_dx_leaf);
}
