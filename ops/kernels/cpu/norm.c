/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and RMS norm over dense rows.  Statistics and sums are fp32.  A row fits the cache, so
 * mean and variance take one pass each.
 */
#include "kernels.h"
#include "rms_norm.h"

static int64_t last_axis(const struct ckpt_view *v)
{
    return v->desc.shape[v->desc.ndim - 1];
}

struct layer_norm {
    float eps;
    const void *w, *b; /* or NULL; b only with w */
};

/* run: x, y, stats */
ROWS_INLINE void layer_norm_rows(const struct row_run *run, int64_t c, const struct layer_norm *p,
                                 bool half, bool affine, bool bias)
{
    const float eps = p->eps;
    const void *restrict w = p->w, *restrict b = p->b;
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        void *restrict y = run->at[1] + i * run->step[1];
        float *stats = (float *)(run->at[2] + i * run->step[2]);
        struct row_stats s = row_stats_of(x, c, eps, half);
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float n = (row_get(x, j, half) - s.mean) * s.rstd;
            float scaled = affine ? n * row_get(w, j, half) : n;
            row_put(y, j, bias ? scaled + row_get(b, j, half) : scaled, half);
        }
        stats[0] = s.mean;
        stats[1] = s.rstd;
    }
}

ROWS_INLINE void layer_norm_any(const struct row_run *run, int64_t c, const struct layer_norm *p,
                                bool half)
{
    if (p->b)
        layer_norm_rows(run, c, p, half, true, true);
    else if (p->w)
        layer_norm_rows(run, c, p, half, true, false);
    else
        layer_norm_rows(run, c, p, half, false, false);
}

ROWS_LEAVES(layer_norm, layer_norm_any)

int cpu_layer_norm(const struct ckpt_kernel_args *a)
{
    const struct norm_attr *attr = a->attr;
    struct layer_norm p = {.eps = attr->eps, .w = a->in[1].data, .b = a->in[2].data};
    struct rows r;
    rows_begin(&r, &a->in[0]);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &a->out[1]);
    rows_finish(&r);
    rows_for_all(&r, last_axis(&a->in[0]), view_half(&a->in[0]) ? layer_norm_bf16 : layer_norm_f32,
                 &p);
    return cpu_write_extra(a, CKPT_OK);
}

/*
 * run: x, dy, stats, dx, and the addend if `has_addend`.  With n = (x - mean) rstd:
 *
 *   dx = rstd (dy - mean(dy) - n mean(dy n)) + addend
 */
ROWS_INLINE void layer_norm_dx_rows(const struct row_run *run, int64_t c, bool has_addend,
                                    bool half, bool dy_half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict dy = run->at[1] + i * run->step[1];
        const float *stats = (const float *)(run->at[2] + i * run->step[2]);
        void *restrict dx = run->at[3] + i * run->step[3];
        const void *restrict addend = has_addend ? run->at[4] + i * run->step[4] : NULL;
        float mean = stats[0], rstd = stats[1], sum = 0.f, dot = 0.f;
#pragma omp simd reduction(+ : sum, dot)
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half);
            sum += d;
            dot += d * (row_get(x, j, half) - mean);
        }
        float shift = sum / (float)c, slope = dot * rstd * rstd / (float)c;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half) - shift;
            float before = has_addend ? row_get(addend, j, half) : 0.f;
            row_put(dx, j, rstd * (d - (row_get(x, j, half) - mean) * slope) + before, half);
        }
    }
}

struct layer_norm_dx {
    bool half, dy_half, has_addend;
};

CKPT_CLONES static void layer_norm_dx_leaf(const struct row_run *run, int64_t c, const void *extra)
{
    const struct layer_norm_dx *p = extra;
    if (p->has_addend)
        WITH_FLAGS(p->half, p->dy_half, layer_norm_dx_rows, run, c, true);
    else
        WITH_FLAGS(p->half, p->dy_half, layer_norm_dx_rows, run, c, false);
}

int cpu_layer_norm_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *x = &a->in[1];
    struct layer_norm_dx p = {
        .half = view_half(x), .dy_half = view_half(&a->in[0]), .has_addend = a->in[3].data != NULL};
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[0]);
    rows_operand(&r, &a->in[2]);
    rows_operand(&r, &a->out[0]);
    if (p.has_addend)
        rows_operand(&r, &a->in[3]);
    rows_finish(&r);
    rows_for_all(&r, last_axis(x), layer_norm_dx_leaf, &p);
    return cpu_write_extra(a, CKPT_OK);
}

/* run: x, y, rstd */
ROWS_INLINE void rms_norm_rows(const struct row_run *run, int64_t c, const struct rms_norm *p,
                               bool half)
{
    const void *restrict w = p->w;
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        void *restrict y = run->at[1] + i * run->step[1];
        float rstd = row_rstd(x, c, p->eps, half);
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float n = rms_normalized(row_get(x, j, half), rstd, half);
            row_put(y, j, n * row_get(w, j, half), half);
        }
        *(float *)(run->at[2] + i * run->step[2]) = rstd;
    }
}

ROWS_LEAVES(rms_norm, rms_norm_rows)

int cpu_rms_norm(const struct ckpt_kernel_args *a)
{
    const struct norm_attr *attr = a->attr;
    struct rms_norm p = {.w = a->in[1].data, .eps = attr->eps};
    struct rows r;
    rows_begin(&r, &a->in[0]);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &a->out[1]);
    rows_finish(&r);
    rows_for_all(&r, last_axis(&a->in[0]), view_half(&a->in[0]) ? rms_norm_bf16 : rms_norm_f32, &p);
    return cpu_write_extra(a, CKPT_OK);
}

/*
 * run: x, dy, rstd, dx, and the addend if `has_addend`.  With n = x rstd and g = dy w:
 *
 *   dx = rstd (g - n mean(g n)) + addend, dw += dy n
 *
 * The gradient treats the rounding of the normalised value as the identity, like automatic
 * differentiation does.
 */
ROWS_INLINE void rms_norm_dx_rows(const struct row_run *run, int64_t c, const void *restrict w,
                                  float *restrict dw, bool has_addend, bool half, bool dy_half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        const void *restrict dy = run->at[1] + i * run->step[1];
        float rstd = *(const float *)(run->at[2] + i * run->step[2]);
        void *restrict dx = run->at[3] + i * run->step[3];
        const void *restrict addend = has_addend ? run->at[4] + i * run->step[4] : NULL;
        float dot = 0.f;
#pragma omp simd reduction(+ : dot)
        for (int64_t j = 0; j < c; j++)
            dot += row_get(dy, j, dy_half) * row_get(w, j, half) * row_get(x, j, half);
        float slope = dot * rstd * rstd / (float)c;
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy, j, dy_half), v = row_get(x, j, half);
            float before = has_addend ? row_get(addend, j, half) : 0.f;
            row_put(dx, j, rstd * (d * row_get(w, j, half) - v * slope) + before, half);
            dw[j] += d * rms_normalized(v, rstd, half);
        }
    }
}

CKPT_CLONES static void rms_norm_dx_leaf(const struct row_run *run, int64_t c, const void *w,
                                         float *dw, bool half, bool dy_half)
{
    WITH_FLAGS(half, dy_half, rms_norm_dx_rows, run, c, w, dw, false);
}

CKPT_CLONES static void rms_norm_dx_add_leaf(const struct row_run *run, int64_t c, const void *w,
                                             float *dw, bool half, bool dy_half)
{
    WITH_FLAGS(half, dy_half, rms_norm_dx_rows, run, c, w, dw, true);
}

/* Processes rows [row, end) in blocks of at most 64: two levels of summation lose less
 * precision. */
static void rms_norm_chunk(const struct ckpt_kernel_args *a, const struct rows *r, int64_t row,
                           int64_t end, rms_norm_leaf leaf, float *total)
{
    int64_t c = last_axis(&a->in[1]);
    float *block = total + c;
    struct row_run run;
    memset(total, 0, (size_t)c * sizeof *total);
    for (; row < end; row += run.n) {
        rows_run(r, row, min_i64(end, row + 64), &run);
        memset(block, 0, (size_t)c * sizeof *block);
        leaf(&run, c, a->in[2].data, block, view_half(&a->in[1]), view_half(&a->in[0]));
        for (int64_t j = 0; j < c; j++)
            total[j] += block[j];
    }
}

int rms_norm_backward(const struct ckpt_kernel_args *a, const struct ckpt_view *more,
                      rms_norm_leaf leaf)
{
    const struct ckpt_view *x = &a->in[1];
    int64_t c = last_axis(x);
    float *partial = a->workspace, *dw = a->out[1].data;
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->in[0]);
    rows_operand(&r, &a->in[3]);
    rows_operand(&r, &a->out[0]);
    if (more)
        rows_operand(&r, more);
    rows_finish(&r);
    int64_t chunks = rows_sum_chunks(r.count), per = (r.count + chunks - 1) / chunks;
#pragma omp parallel for schedule(static) if (r.count * c > ROWS_CHUNK)
    for (int64_t i = 0; i < chunks; i++)
        rms_norm_chunk(a, &r, i * per, min_i64(r.count, (i + 1) * per), leaf, partial + i * 2 * c);
    for (int64_t j = 0; j < c; j++) {
        double sum = 0;
        for (int64_t i = 0; i < chunks; i++)
            sum += partial[i * 2 * c + j];
        dw[j] = (float)sum;
    }
    return CKPT_OK;
}

int cpu_rms_norm_dx(const struct ckpt_kernel_args *a)
{
    if (a->in[4].data)
        return cpu_write_extra(a, rms_norm_backward(a, &a->in[4], rms_norm_dx_add_leaf));
    return cpu_write_extra(a, rms_norm_backward(a, NULL, rms_norm_dx_leaf));
}
