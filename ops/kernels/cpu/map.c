/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise maps: the loops are divided into tiles of at most TILE elements over two axes, which
 * fit the first-level cache as floats.  A dense fp32 operand is used in place.
 */
#include "map.h"

#define TILE 1024

/* A tile of one operand: rows x cols elements of a dtype, strides in elements. */
struct tile {
    const struct map_source *source;
    char *data;
    enum ckpt_dtype dtype;
    int64_t rows, cols, row_stride, col_stride;
    int64_t at; /* index of the first element, for sources without memory */
};

static bool tile_dense(const struct tile *t)
{
    return (t->cols == 1 || t->col_stride == 1) && (t->rows == 1 || t->row_stride == t->cols);
}

static float load_one(const char *p, enum ckpt_dtype dtype)
{
    if (dtype == CKPT_BF16)
        return bf16_load(*(const uint16_t *)p);
    return dtype == CKPT_F32 ? *(const float *)p : (float)*(const int32_t *)p;
}

static void store_one(char *p, enum ckpt_dtype dtype, float v)
{
    if (dtype == CKPT_BF16)
        *(uint16_t *)p = bf16_round(v);
    else if (dtype == CKPT_F32)
        *(float *)p = v;
    else /* clamped to the range of i32; NaN is 0 */
        *(int32_t *)p = v >= 2147483648.f    ? INT32_MAX
                        : v >= -2147483648.f ? (int32_t)v
                        : v < 0.f            ? INT32_MIN
                                             : 0;
}

static void load_row(float *dst, const char *src, enum ckpt_dtype dtype, int64_t stride, int64_t n)
{
    int64_t step = stride * ckpt_dtype_size(dtype);
    if (stride == 1 && dtype != CKPT_I32) {
        cpu_load(dst, src, dtype, n);
    } else if (stride == 0) {
        float v = load_one(src, dtype);
#pragma omp simd
        for (int64_t i = 0; i < n; i++)
            dst[i] = v;
    } else {
        for (int64_t i = 0; i < n; i++)
            dst[i] = load_one(src + i * step, dtype);
    }
}

static void store_row(char *dst, const float *src, enum ckpt_dtype dtype, int64_t stride, int64_t n)
{
    int64_t step = stride * ckpt_dtype_size(dtype);
    if (stride == 1 && dtype != CKPT_I32) {
        cpu_store(dst, src, dtype, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        store_one(dst + i * step, dtype, src[i]);
}

/* Generates n values of a source without memory. */
static void make_row(float *dst, const struct map_source *s, int64_t at, int64_t stride, int64_t n)
{
    if (s->kind == MAP_UNIFORM && (stride == 1 || n == 1)) {
        random_uniform(&s->stream, s->first + at, dst, n);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (s->kind == MAP_UNIFORM)
            random_uniform(&s->stream, s->first + at + i * stride, dst + i, 1);
        else
            dst[i] = (float)(at + i * stride);
}

static const float *tile_make(const struct tile *t, float *buffer)
{
    if (tile_dense(t))
        make_row(buffer, t->source, t->at, 1, t->rows * t->cols);
    else
        for (int64_t r = 0; r < t->rows; r++)
            make_row(buffer + r * t->cols, t->source, t->at + r * t->row_stride, t->col_stride,
                     t->cols);
    return buffer;
}

/* The tile as dense floats: the operand itself if it is dense fp32, else a copy in buffer. */
static const float *tile_load(const struct tile *t, float *buffer)
{
    int64_t step = t->row_stride * ckpt_dtype_size(t->dtype);
    bool dense = tile_dense(t);
    if (t->source && t->source->kind != MAP_MEMORY)
        return tile_make(t, buffer);
    if (dense && t->dtype == CKPT_F32)
        return (const float *)t->data;
    if (dense) {
        load_row(buffer, t->data, t->dtype, 1, t->rows * t->cols);
        return buffer;
    }
    for (int64_t r = 0; r < t->rows; r++)
        if (r > 0 && step == 0)
            memcpy(buffer + r * t->cols, buffer, (size_t)t->cols * sizeof *buffer);
        else
            load_row(buffer + r * t->cols, t->data + r * step, t->dtype, t->col_stride, t->cols);
    return buffer;
}

static void tile_store(const struct tile *t, const float *buffer)
{
    int64_t step = t->row_stride * ckpt_dtype_size(t->dtype);
    if (tile_dense(t)) {
        store_row(t->data, buffer, t->dtype, 1, t->rows * t->cols);
        return;
    }
    for (int64_t r = 0; r < t->rows; r++)
        store_row(t->data + r * step, buffer + r * t->cols, t->dtype, t->col_stride, t->cols);
}

static void tile_map(const struct tile *t, int n_in, map_fn fn, const void *ctx)
{
    _Alignas(64) float buffer[LOOPS_OPERANDS][TILE];
    const float *x[LOOPS_OPERANDS - 1] = {NULL};
    bool in_place = t->dtype == CKPT_F32 && tile_dense(t);
    for (int k = 0; k < n_in; k++)
        x[k] = tile_load(&t[k + 1], buffer[k + 1]);
    fn(in_place ? (float *)t->data : buffer[0], x, t->rows * t->cols, ctx);
    if (!in_place)
        tile_store(t, buffer[0]);
}

/* Division of the loops: the last two axes into tiles, the outer axes element by element. */
struct division {
    int64_t outer, rows, cols;    /* sizes in elements */
    int64_t tile_rows, tile_cols; /* sizes of a full tile */
    int64_t across, down;         /* number of tiles along cols and rows */
};

static struct division divide_tiles(const struct loops *l)
{
    struct division c = {.cols = l->shape[l->ndim - 1],
                         .rows = l->ndim > 1 ? l->shape[l->ndim - 2] : 1};
    c.outer = loops_count(l, l->ndim - 2);
    c.tile_cols = max_i64(1, min_i64(c.cols, TILE));
    c.tile_rows = max_i64(1, min_i64(c.rows, TILE / c.tile_cols));
    c.across = (c.cols + c.tile_cols - 1) / c.tile_cols;
    c.down = (c.rows + c.tile_rows - 1) / c.tile_rows;
    return c;
}

static void find_tile(const struct loops *l, const struct division *c, int64_t i,
                      const struct ckpt_view *y, const struct map_source *x, struct tile *t)
{
    int64_t offset[LOOPS_OPERANDS] = {0};
    int64_t col = i % c->across * c->tile_cols, row = i / c->across % c->down * c->tile_rows;
    int last = l->ndim - 1;
    loops_seek(l, l->ndim - 2, i / c->across / c->down, offset);
    for (int k = 0; k < l->n; k++) {
        int64_t row_stride = last > 0 ? l->stride[k][last - 1] : 0;
        int64_t at = offset[k] + row * row_stride + col * l->stride[k][last];
        const struct ckpt_view *v = k ? &x[k - 1].view : y;
        t[k] = (struct tile){.source = k ? &x[k - 1] : NULL,
                             .at = at,
                             .data = (char *)v->data + at * ckpt_dtype_size(v->desc.dtype),
                             .dtype = v->desc.dtype,
                             .rows = min_i64(c->tile_rows, c->rows - row),
                             .cols = min_i64(c->tile_cols, c->cols - col),
                             .row_stride = row_stride,
                             .col_stride = l->stride[k][last]};
    }
}

void cpu_map_sources(const struct ckpt_view *y, int n_in, const struct map_source *x, map_fn fn,
                     const void *ctx)
{
    const struct ckpt_desc *desc[LOOPS_OPERANDS] = {&y->desc};
    struct loops l;
    for (int k = 0; k < n_in; k++)
        desc[k + 1] = &x[k].view.desc;
    loops_init(&l, n_in + 1, desc);
    struct division c = divide_tiles(&l);
    int64_t n = c.outer * c.down * c.across;
#pragma omp parallel for schedule(static) if (loops_parallel(n * TILE))
    for (int64_t i = 0; i < n; i++) {
        struct tile t[LOOPS_OPERANDS];
        find_tile(&l, &c, i, y, x, t);
        tile_map(t, n_in, fn, ctx);
    }
}

/* ---- with values of rows --------------------------------------------------------------------- */

/* Initialises loops over axes [from, to) of operands that broadcast to `domain`. */
static void init_axes(struct loops *l, const struct ckpt_desc *domain, int from, int to, int n_in,
                      const struct map_source *x)
{
    struct ckpt_desc part[LOOPS_OPERANDS];
    const struct ckpt_desc *desc[LOOPS_OPERANDS];
    for (int k = 0; k <= n_in; k++) {
        const struct ckpt_desc *d = k ? &x[k - 1].view.desc : domain;
        int missing = domain->ndim - d->ndim; /* leading axes that it does not have */
        part[k] = (struct ckpt_desc){.dtype = d->dtype};
        for (int i = from > missing ? from : missing; i < to; i++) {
            part[k].shape[part[k].ndim] = d->shape[i - missing];
            part[k].stride[part[k].ndim++] = d->stride[i - missing];
        }
        desc[k] = &part[k];
    }
    loops_init(l, n_in + 1, desc);
}

struct row_map {
    struct loops kept, reduced; /* operand 0: y, or the domain if y has one element per row */
    const struct map_rows *rows;
    const struct ckpt_view *y;
    int n_in;
    const struct map_source *x;
};

enum { ROW_BUFFERS = LOOPS_OPERANDS + MAP_REDUCTIONS };

/* Applies fn to n elements along the last axis of a row, from these offsets on.  value: of the row;
 * those not yet known are never used. */
static void map_segment(const struct row_map *s, const int64_t *at, int64_t n, const float *value,
                        map_fn fn, const void *ctx, float *y)
{
    _Alignas(64) float buffer[ROW_BUFFERS][TILE];
    const float *x[ROW_BUFFERS];
    int last = s->reduced.ndim - 1;
    for (int k = 0; k < s->n_in; k++) {
        const struct map_source *source = &s->x[k];
        enum ckpt_dtype dtype = source->view.desc.dtype;
        struct tile t = {.source = source,
                         .at = at[k + 1],
                         .data = (char *)source->view.data + at[k + 1] * ckpt_dtype_size(dtype),
                         .dtype = dtype,
                         .rows = 1,
                         .cols = n,
                         .col_stride = s->reduced.stride[k + 1][last]};
        x[k] = tile_load(&t, buffer[k]);
    }
    for (int k = 0; k < s->rows->n_values; k++) {
        x[s->n_in + k] = buffer[s->n_in + k];
        for (int64_t i = 0; i < n; i++)
            buffer[s->n_in + k][i] = value[k];
    }
    fn(y, x, n, ctx);
}

/* The running sums and the largest element of a row. */
struct row_value {
    double lane[16], sum;
    float largest;
};

static void add_values(struct row_value *v, const float *x, int64_t n, bool max)
{
    for (int64_t i = 0; i < n && !max; i++)
        v->lane[i % 16] += (double)x[i];
    for (int64_t i = 0; i < n && max; i++)
        if (x[i] > v->largest || (x[i] != x[i] && v->largest == v->largest))
            v->largest = x[i];
}

static void fold_lanes(struct row_value *v)
{
    for (int half = 8; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            v->lane[k] += v->lane[k + half];
    v->sum += v->lane[0];
    memset(v->lane, 0, sizeof v->lane);
}

/* Applies fn to a row, in segments, and writes the results, or reduces them to *v. */
static void map_row(const struct row_map *s, int64_t row, const float *value, map_fn fn,
                    const void *ctx, struct row_value *v, bool max)
{
    _Alignas(64) float result[TILE];
    int64_t base[LOOPS_OPERANDS], at[LOOPS_OPERANDS];
    int last = s->reduced.ndim - 1;
    int64_t width = s->reduced.shape[last], outer = loops_count(&s->reduced, last);
    enum ckpt_dtype dtype = s->y->desc.dtype;
    loops_seek(&s->kept, s->kept.ndim, row, base);
    for (int64_t i = 0; i < outer; i++) {
        for (int64_t col = 0, n; col < width; col += n) {
            n = min_i64(TILE, width - col);
            loops_seek(&s->reduced, last, i, at);
            for (int k = 0; k <= s->n_in; k++)
                at[k] += base[k] + col * s->reduced.stride[k][last];
            map_segment(s, at, n, value, fn, ctx, result);
            if (v)
                add_values(v, result, n, max);
            else
                store_row((char *)s->y->data + at[0] * ckpt_dtype_size(dtype), result, dtype,
                          s->reduced.stride[0][last], n);
        }
        if (v)
            fold_lanes(v);
    }
}

/* The values of a row in order, then its results. */
static void run_row(const struct row_map *s, int64_t row, map_fn fn, const void *ctx)
{
    float value[MAP_REDUCTIONS] = {0}, result;
    for (int k = 0; k < s->rows->n_values; k++) {
        const struct map_reduction *r = &s->rows->value[k];
        struct row_value v = {.largest = -INFINITY};
        map_row(s, row, value, r->fn, r->ctx, &v, r->max);
        value[k] = r->max ? v.largest : (float)((double)r->scale * v.sum);
    }
    if (!s->rows->per_row) {
        map_row(s, row, value, fn, ctx, NULL, false);
        return;
    }
    int64_t base[LOOPS_OPERANDS];
    enum ckpt_dtype dtype = s->y->desc.dtype;
    loops_seek(&s->kept, s->kept.ndim, row, base);
    map_segment(s, base, 1, value, fn, ctx, &result);
    store_one((char *)s->y->data + row * ckpt_dtype_size(dtype), dtype, result);
}

void cpu_map_rows(const struct ckpt_view *y, const struct map_rows *rows, int n_in,
                  const struct map_source *x, map_fn fn, const void *ctx)
{
    struct row_map s = {.rows = rows, .y = y, .n_in = n_in, .x = x};
    const struct ckpt_desc *first = rows->per_row ? rows->domain : &y->desc;
    int split = first->ndim - rows->reduced;
    init_axes(&s.kept, first, 0, split, n_in, x);
    init_axes(&s.reduced, first, split, first->ndim, n_in, x);
    int64_t n = loops_count(&s.kept, s.kept.ndim);
#pragma omp parallel for schedule(static) if (loops_parallel(desc_numel(first)))
    for (int64_t row = 0; row < n; row++)
        run_row(&s, row, fn, ctx);
}

void cpu_map(const struct ckpt_view *y, int n_in, const struct ckpt_view *x, map_fn fn,
             const void *ctx)
{
    struct map_source source[LOOPS_OPERANDS - 1];
    for (int k = 0; k < n_in; k++)
        source[k] = (struct map_source){.view = x[k]};
    cpu_map_sources(y, n_in, source, fn, ctx);
}
