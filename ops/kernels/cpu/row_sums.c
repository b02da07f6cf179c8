/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients with sums over rows: see row_sums.h. */
#include "row_sums.h"

#define TILE 2048 /* columns whose sums a leaf keeps in the first-level cache */

/* A gradient kernel: rows, sums and their division into chunks. */
struct backward {
    struct rows r;
    row_sums_leaf leaf;
    bool half, dy_half;
    int n_sums;
    int64_t c, vectors, rows_each, chunks; /* rows_each: rows per vector, divided into chunks */
};

/* Sums rows [row, end), which share a vector, into sum[n_sums][c]. */
static void backward_chunk(const struct backward *b, int64_t row, int64_t end, float *const *sum)
{
    float block[2][TILE];
    struct row_sums sums = {.first = block[0], .second = block[1], .width = b->c};
    for (int s = 0; s < b->n_sums; s++)
        memset(sum[s], 0, (size_t)b->c * sizeof *sum[s]);
    for (int64_t column = 0; column < b->c; column += TILE) {
        int64_t n = min_i64(TILE, b->c - column);
        struct row_run run;
        for (int64_t first = row; first < end; first += run.n) {
            rows_run(&b->r, first, min_i64(end, first + ROW_SUMS_BLOCK), &run);
            for (int s = 0; s < b->n_sums; s++)
                memset(block[s], 0, (size_t)n * sizeof block[s][0]);
            b->leaf(&run, column, n, b->half, b->dy_half, &sums);
            for (int s = 0; s < b->n_sums; s++)
                for (int64_t j = 0; j < n; j++)
                    sum[s][column + j] += block[s][j];
        }
    }
}

/* Finds the gradients of a vector: operands 4 and 5 move along with the vector. */
static void gradient_rows(const struct backward *b, int64_t vector, float **sum)
{
    struct row_run run;
    int64_t row = vector * b->rows_each;
    rows_run(&b->r, row, row + 1, &run);
    for (int s = 0; s < b->n_sums; s++)
        sum[s] = (float *)run.at[4 + s];
}

/* Adds the chunks of one vector in order. */
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

int row_sums_backward(const struct ckpt_kernel_args *a, const struct ckpt_view *x,
                      const struct ckpt_view *v, int n_more, const struct ckpt_view *const *more,
                      int n_sums, row_sums_leaf leaf)
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
    for (int i = 0; i < n_more; i++)
        rows_operand(&b.r, more[i]);
    b.rows_each = rows_finish_reduction(&b.r, 4);
    b.vectors = b.r.count / b.rows_each;
    b.chunks = rows_vector_chunks(b.vectors, b.rows_each);
    backward_run(&b, a->workspace);
    return CKPT_OK;
}
