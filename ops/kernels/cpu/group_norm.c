/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: group norm and SiLU.  A sample is a matrix of rows (positions) and channels.  Statistics
 * are computed per block of rows, first the mean, then squared deviations from it, while the block
 * is in the cache.  Blocks are merged in order (Chan et al. 1983), so x is read from memory once,
 * and a large mean costs no precision.
 */
#include "shapes/group_norm.h"
#include "kernels.h"
#include "workspace.h"
#include "rows.h"
#include "vmath.h"

#define BLOCK_ELEMENTS 32768 /* approximate elements of a block */
#define MIN_ROWS       64    /* minimum and maximum rows of a block */
#define MAX_ROWS       512

/* How the rows of all samples are divided: `blocks` per sample, processed by `slots` workers in
 * order. */
struct division {
    int64_t rows, blocks, slots; /* rows per block */
};

static struct division division_of(const struct group_norm_shape *s)
{
    struct division c = {.rows = max_i64(MIN_ROWS, min_i64(MAX_ROWS, BLOCK_ELEMENTS / s->c))};
    c.blocks = (s->rows + c.rows - 1) / c.rows;
    c.slots = cpu_slots(s->n * c.blocks, (double)s->n * (double)s->rows * (double)s->c);
    return c;
}

/* A call of a kernel.  coefficients: rows of c floats per sample. */
struct task {
    struct group_norm_shape s;
    struct division division;
    const char *x, *dy;
    char *out;
    bool half, silu;
    float *coefficients; /* [n, COEFFICIENTS, c] */
};

enum { MEAN, SLOPE, BIAS, SHIFT, CURVE, COEFFICIENTS };

static struct task task_of(const struct ckpt_kernel_args *a, const struct ckpt_view *x)
{
    const struct group_norm_attr *attr = a->attr;
    struct task t = {.s = group_norm_shape(&x->desc, attr), .x = x->data, .out = a->out[0].data};
    t.division = division_of(&t.s);
    t.half = view_half(x);
    t.silu = attr->silu;
    t.coefficients = a->workspace;
    return t;
}

static int64_t coefficients_bytes(const struct group_norm_shape *s)
{
    return round_up(s->n * COEFFICIENTS * s->c * (int64_t)sizeof(float), 64);
}

/* The memory after the coefficients: results of the blocks. */
static float *after_coefficients(const struct task *t)
{
    return t->coefficients + coefficients_bytes(&t->s) / (int64_t)sizeof(float);
}

/* The number of rows of a block; *at becomes its first element in the tensor. */
static int64_t block_rows(const struct task *t, int64_t block, int64_t *at)
{
    int64_t first = block % t->division.blocks * t->division.rows;
    *at = (block / t->division.blocks * t->s.rows + first) * t->s.c;
    return min_i64(t->division.rows, t->s.rows - first);
}

static const char *element_at(const struct task *t, const char *base, int64_t at)
{
    return base + at * (t->half ? 2 : 4);
}

typedef void (*block_fn)(const struct task *t, int64_t block, float *scratch);

/* Runs fn on every block of every sample; each slot has `floats` floats of scratch. */
static void for_all_blocks(const struct task *t, block_fn fn, float *scratch, int64_t floats)
{
    int64_t blocks = t->s.n * t->division.blocks, slots = t->division.slots;
#pragma omp parallel for schedule(static) if (slots > 1)
    for (int64_t i = 0; i < slots; i++)
        for (int64_t k = i * blocks / slots; k < (i + 1) * blocks / slots; k++)
            fn(t, k, scratch + i * floats);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* sum[j] = sum over rows of x[j] - mean[j], squared if `square` */
ROWS_INLINE void sum_rows(float *restrict sum, const void *restrict x, const float *restrict mean,
                          int64_t rows, int64_t c, bool square, bool half)
{
    memset(sum, 0, (size_t)c * sizeof *sum);
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(x, i * c + j, half) - mean[j];
            sum[j] += square ? d * d : d;
        }
}

CKPT_CLONES static void sum_leaf(float *sum, const void *x, const float *mean, int64_t rows,
                                 int64_t c, bool square, bool half)
{
    WITH_FLAGS(square, half, sum_rows, sum, x, mean, rows, c);
}

/* Mean and sum of squared deviations of each group in a block, to partial [n blocks, groups, 2]. */
static void block_statistics(const struct task *t, int64_t block, float *scratch)
{
    int64_t c = t->s.c, at, rows = block_rows(t, block, &at);
    const char *x = element_at(t, t->x, at);
    float *sum = scratch, *mean = scratch + c;
    float *partial = after_coefficients(t) + block * t->s.groups * 2;
    memset(mean, 0, (size_t)c * sizeof *mean);
    sum_leaf(sum, x, mean, rows, c, false, t->half);
    for (int64_t g = 0; g < t->s.groups; g++) {
        double total = 0;
        for (int64_t j = g * t->s.width; j < (g + 1) * t->s.width; j++)
            total += (double)sum[j];
        partial[2 * g] = (float)(total / (double)(rows * t->s.width));
        for (int64_t j = g * t->s.width; j < (g + 1) * t->s.width; j++)
            mean[j] = partial[2 * g];
    }
    sum_leaf(sum, x, mean, rows, c, true, t->half);
    for (int64_t g = 0; g < t->s.groups; g++) {
        double total = 0;
        for (int64_t j = g * t->s.width; j < (g + 1) * t->s.width; j++)
            total += (double)sum[j];
        partial[2 * g + 1] = (float)total;
    }
}

/* Merged moments of parts of a group. */
struct moments {
    double mean, squares, count;
};

static void merge(struct moments *all, double mean, double squares, double count)
{
    double away = mean - all->mean, total = all->count + count;
    all->squares += squares + away * away * all->count * count / total;
    all->mean += away * count / total;
    all->count = total;
}

/* Merges the blocks of group g of sample n. */
static struct moments merge_blocks(const struct task *t, const float *partial, int64_t n, int64_t g)
{
    struct moments all = {0, 0, 0};
    for (int64_t i = 0; i < t->division.blocks; i++) {
        const float *p = partial + ((n * t->division.blocks + i) * t->s.groups + g) * 2;
        int64_t rows = min_i64(t->division.rows, t->s.rows - i * t->division.rows);
        merge(&all, (double)p[0], (double)p[1], (double)(rows * t->s.width));
    }
    return all;
}

/* Writes mean and 1 / sqrt(variance + eps). */
static void store_stats(float *stats, const struct moments *all, float eps)
{
    stats[0] = (float)all->mean;
    stats[1] = (float)(1 / sqrt(all->squares / all->count + (double)eps));
}

/* Computes the statistics of all blocks, after the coefficients, and returns them. */
static const float *find_partials(const struct task *t)
{
    float *partial = after_coefficients(t);
    for_all_blocks(t, block_statistics, partial + t->s.n * t->division.blocks * t->s.groups * 2,
                   2 * t->s.c);
    return partial;
}

/* y = silu(slope (x - mean) + bias) */
ROWS_INLINE void map_rows(const void *restrict x, void *restrict y, const float *restrict k,
                          int64_t rows, int64_t c, bool silu, bool half)
{
    const float *mean = k + MEAN * c, *slope = k + SLOPE * c, *bias = k + BIAS * c;
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float z = (row_get(x, i * c + j, half) - mean[j]) * slope[j] + bias[j];
            row_put(y, i * c + j, silu ? z * vsigmoid(z) : z, half);
        }
}

CKPT_CLONES static void map_leaf(const void *x, void *y, const float *k, int64_t rows, int64_t c,
                                 bool silu, bool half)
{
    WITH_FLAGS(silu, half, map_rows, x, y, k, rows, c);
}

static void map_block(const struct task *t, int64_t block, float *scratch)
{
    int64_t at, rows = block_rows(t, block, &at);
    const float *k = t->coefficients + block / t->division.blocks * COEFFICIENTS * t->s.c;
    (void)scratch;
    map_leaf(element_at(t, t->x, at), (char *)element_at(t, t->out, at), k, rows, t->s.c, t->silu,
             t->half);
}

/* Sets mean, slope and bias of each channel of sample n. */
static void set_coefficients(const struct task *t, const struct ckpt_view *w,
                             const struct ckpt_view *b, const float *stats, int64_t n)
{
    int64_t c = t->s.c;
    float *k = t->coefficients + n * COEFFICIENTS * c;
    for (int64_t j = 0; j < c; j++) {
        const float *of_group = stats + (n * t->s.groups + j / t->s.width) * 2;
        k[MEAN * c + j] = of_group[0];
        k[SLOPE * c + j] = of_group[1] * row_get(w->data, j, t->half);
        k[BIAS * c + j] = row_get(b->data, j, t->half);
    }
}

int64_t cpu_group_norm_workspace(const struct group_norm_shape *s)
{
    struct division division = division_of(s);
    int64_t floats = s->n * division.blocks * s->groups * 2 + division.slots * 2 * s->c;
    return coefficients_bytes(s) + floats * (int64_t)sizeof(float);
}

int cpu_group_norm(const struct ckpt_kernel_args *a)
{
    const struct group_norm_attr *attr = a->attr;
    struct task t = task_of(a, &a->in[0]);
    float *stats = a->out[1].data;
    const float *partial = find_partials(&t);
    for (int64_t n = 0; n < t.s.n; n++) {
        for (int64_t g = 0; g < t.s.groups; g++) {
            struct moments all = merge_blocks(&t, partial, n, g);
            store_stats(stats + (n * t.s.groups + g) * 2, &all, attr->eps);
        }
        set_coefficients(&t, &a->in[1], &a->in[2], stats, n);
    }
    for_all_blocks(&t, map_block, NULL, 0);
    return CKPT_OK;
}

/* ---- in parts -------------------------------------------------------------------------------- */

int cpu_group_norm_moments(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[0]);
    t.s = group_norm_row_shape(&a->in[0].desc, a->attr);
    t.division = division_of(&t.s);
    const float *partial = find_partials(&t);
    float *moments = a->out[0].data;
    for (int64_t i = 0; i < t.s.n * t.s.groups; i++) {
        struct moments all = merge_blocks(&t, partial, i / t.s.groups, i % t.s.groups);
        moments[i * MOMENTS + MOMENT_MEAN] = (float)all.mean;
        moments[i * MOMENTS + MOMENT_SQUARES] = (float)all.squares;
        moments[i * MOMENTS + MOMENT_COUNT] = (float)all.count;
    }
    return CKPT_OK;
}

/* Merges the rows of a part, in order, into the moments of group g of sample n. */
static void merge_rows(struct moments *all, const struct ckpt_view *part, int64_t n, int64_t g)
{
    const int64_t rows = part->desc.shape[1], groups = part->desc.shape[2];
    for (int64_t row = n * rows; row < (n + 1) * rows; row++) {
        const float *m = (const float *)part->data + (row * groups + g) * MOMENTS;
        merge(all, (double)m[MOMENT_MEAN], (double)m[MOMENT_SQUARES], (double)m[MOMENT_COUNT]);
    }
}

int cpu_group_norm_join(const struct ckpt_kernel_args *a)
{
    const struct group_norm_attr *attr = a->attr;
    int64_t n = a->out[0].desc.shape[0], groups = a->out[0].desc.shape[1];
    for (int64_t i = 0; i < n * groups; i++) {
        struct moments all = {0, 0, 0};
        for (int k = 0; k < a->n_in; k++)
            merge_rows(&all, &a->in[k], i / groups, i % groups);
        store_stats((float *)a->out[0].data + 2 * i, &all, attr->eps);
    }
    return CKPT_OK;
}

int64_t cpu_group_norm_apply_workspace(const struct group_norm_shape *s)
{
    return coefficients_bytes(s);
}

int cpu_group_norm_apply(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[0]);
    for (int64_t n = 0; n < t.s.n; n++)
        set_coefficients(&t, &a->in[2], &a->in[3], a->in[1].data, n);
    for_all_blocks(&t, map_block, NULL, 0);
    return CKPT_OK;
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The gradient before SiLU, at z = slope (x - mean) + bias. */
ROWS_INLINE float before_silu(float dy, float z, bool silu)
{
    return silu ? dy * vsigmoid(z) * (1.f + z * vsigmoid(-z)) : dy;
}

/* da[j] = sum over rows of d, dm[j] = sum of d (x - mean), where d is the gradient before SiLU. */
ROWS_INLINE void sum_slopes(const void *restrict x, const void *restrict dy,
                            const float *restrict k, float *restrict da, float *restrict dm,
                            int64_t rows, int64_t c, bool silu, bool half)
{
    const float *mean = k + MEAN * c, *slope = k + SLOPE * c, *bias = k + BIAS * c;
    memset(da, 0, (size_t)c * sizeof *da);
    memset(dm, 0, (size_t)c * sizeof *dm);
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float m = row_get(x, i * c + j, half) - mean[j];
            float d = before_silu(row_get(dy, i * c + j, half), m * slope[j] + bias[j], silu);
            da[j] += d;
            dm[j] += d * m;
        }
}

CKPT_CLONES static void slopes_leaf(const void *x, const void *dy, const float *k, float *da,
                                    float *dm, int64_t rows, int64_t c, bool silu, bool half)
{
    WITH_FLAGS(silu, half, sum_slopes, x, dy, k, da, dm, rows, c);
}

/* The sums of a block, to [n blocks, 2, c]. */
static void block_slopes(const struct task *t, int64_t block, float *scratch)
{
    int64_t c = t->s.c, at, rows = block_rows(t, block, &at);
    const float *k = t->coefficients + block / t->division.blocks * COEFFICIENTS * c;
    float *sums = after_coefficients(t) + block * 2 * c;
    (void)scratch;
    slopes_leaf(element_at(t, t->x, at), element_at(t, t->dy, at), k, sums, sums + c, rows, c,
                t->silu, t->half);
}

/* dx = slope d - shift - curve (x - mean) */
ROWS_INLINE void dx_rows(const void *restrict x, const void *restrict dy, void *restrict dx,
                         const float *restrict k, int64_t rows, int64_t c, bool silu, bool half)
{
    const float *mean = k + MEAN * c, *slope = k + SLOPE * c, *bias = k + BIAS * c;
    const float *shift = k + SHIFT * c, *curve = k + CURVE * c;
    for (int64_t i = 0; i < rows; i++)
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float m = row_get(x, i * c + j, half) - mean[j];
            float d = before_silu(row_get(dy, i * c + j, half), m * slope[j] + bias[j], silu);
            row_put(dx, i * c + j, slope[j] * d - shift[j] - curve[j] * m, half);
        }
}

CKPT_CLONES static void dx_leaf(const void *x, const void *dy, void *dx, const float *k,
                                int64_t rows, int64_t c, bool silu, bool half)
{
    WITH_FLAGS(silu, half, dx_rows, x, dy, dx, k, rows, c);
}

static void dx_block(const struct task *t, int64_t block, float *scratch)
{
    int64_t at, rows = block_rows(t, block, &at);
    const float *k = t->coefficients + block / t->division.blocks * COEFFICIENTS * t->s.c;
    (void)scratch;
    dx_leaf(element_at(t, t->x, at), element_at(t, t->dy, at), (char *)element_at(t, t->out, at), k,
            rows, t->s.c, t->silu, t->half);
}

/* total[2 c] = sums of the blocks of sample n, added in order. */
static void add_blocks(const struct task *t, int64_t n, double *total)
{
    const float *sums = after_coefficients(t) + n * t->division.blocks * 2 * t->s.c;
    memset(total, 0, (size_t)(2 * t->s.c) * sizeof *total);
    for (int64_t i = 0; i < t->division.blocks; i++)
        for (int64_t j = 0; j < 2 * t->s.c; j++)
            total[j] += (double)sums[i * 2 * t->s.c + j];
}

/*
 * Adds sample n to dw and db and sets its coefficients SHIFT and CURVE.  With h = (x - mean) rstd
 * and z = w h + b, over the m elements of a group:
 *   db = sum d,  dw = sum d h,  dx = rstd (w d - sum(w d) / m - h sum(w d h) / m)
 */
static void finish_gradients(const struct task *t, const struct ckpt_kernel_args *a, int64_t n,
                             const double *total)
{
    const float *stats = (const float *)a->in[4].data + n * t->s.groups * 2;
    float *dw = a->out[1].data, *db = a->out[2].data;
    float *k = t->coefficients + n * COEFFICIENTS * t->s.c;
    double m = (double)(t->s.rows * t->s.width);
    for (int64_t g = 0; g < t->s.groups; g++) {
        double rstd = (double)stats[2 * g + 1], sum_wd = 0, sum_wdh = 0;
        int64_t first = g * t->s.width, end = first + t->s.width;
        for (int64_t j = first; j < end; j++) {
            double w = (double)row_get(a->in[2].data, j, t->half);
            double shift = total[j], slope = total[t->s.c + j] * rstd;
            sum_wd += w * shift;
            sum_wdh += w * slope;
            db[j] = (float)shift + (n ? db[j] : 0.f);
            dw[j] = (float)slope + (n ? dw[j] : 0.f);
        }
        for (int64_t j = first; j < end; j++) {
            k[SHIFT * t->s.c + j] = (float)(rstd * sum_wd / m);
            k[CURVE * t->s.c + j] = (float)(rstd * rstd * sum_wdh / m);
        }
    }
}

/* The sums of the blocks, and their total in double. */
int64_t cpu_group_norm_dx_workspace(const struct group_norm_shape *s)
{
    return coefficients_bytes(s) +
           s->n * division_of(s).blocks * 2 * s->c * (int64_t)sizeof(float) +
           2 * s->c * (int64_t)sizeof(double);
}

int cpu_group_norm_dx(const struct ckpt_kernel_args *a)
{
    struct task t = task_of(a, &a->in[1]);
    double *total = (double *)(after_coefficients(&t) + t.s.n * t.division.blocks * 2 * t.s.c);
    t.dy = a->in[0].data;
    for (int64_t n = 0; n < t.s.n; n++)
        set_coefficients(&t, &a->in[2], &a->in[3], a->in[4].data, n);
    for_all_blocks(&t, block_slopes, NULL, 0);
    for (int64_t n = 0; n < t.s.n; n++) {
        add_blocks(&t, n, total);
        finish_gradients(&t, a, n, total);
    }
    for_all_blocks(&t, dx_block, NULL, 0);
    return CKPT_OK;
}
