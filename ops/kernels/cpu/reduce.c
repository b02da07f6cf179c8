/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels: sum and sum_to.  The axes of x are kept or reduced; the reduced range is divided into
 * parts.  A task sums one part for a block of results in fp64.  Several parts are collected in the
 * workspace and added in order.  The shape alone determines blocks and parts.
 */
#include "attr.h"
#include "kernels.h"
#include "map.h"
#include "workspace.h"
#include "shapes/reduction.h"

#define BLOCK 4096  /* maximum results per task */
#define ROWS  4     /* rows added to the sums in one pass */
#define WORK  65536 /* elements that justify another task */
#define PARTS 64    /* maximum number of parts */
#define LANES 16    /* running sums along a dense row */

/* A reduction and its division into tasks. */
struct task_plan {
    struct reduction r;
    int64_t blocks, parts, block; /* results per block; the last may have fewer */
    const char *x;
    enum ckpt_dtype dtype;
};

static struct task_plan plan_tasks(const struct ckpt_desc *x, const struct ckpt_desc *y)
{
    struct task_plan p = {.dtype = x->dtype};
    reduction_init(&p.r, x, y);
    int64_t results = p.r.results, length = p.r.length;
    int64_t most = p.r.columns ? BLOCK : max_i64(1, min_i64(BLOCK, WORK / length));
    p.blocks = (results + most - 1) / most;
    p.block = (results + p.blocks - 1) / p.blocks;
    p.parts = results * length / WORK / p.blocks;
    p.parts = max_i64(1, min_i64(min_i64(p.parts, PARTS), length));
    return p;
}

int64_t cpu_reduce_workspace(const struct ckpt_desc *x, const struct ckpt_desc *y)
{
    struct task_plan p = plan_tasks(x, y);
    return p.parts > 1 ? p.parts * p.r.results * (int64_t)sizeof(double) : 0;
}

static inline float element(const struct task_plan *p, int64_t i)
{
    if (p->dtype == CKPT_BF16)
        return bf16_load(((const uint16_t *)p->x)[i]);
    return ((const float *)p->x)[i];
}

CKPT_CLONES static void reduce_rows_f32(double *sum, const float *x, int64_t stride, int64_t n)
{
    const float *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += ((double)x[i] + (double)x1[i]) + ((double)x2[i] + (double)x3[i]);
}

CKPT_CLONES static void reduce_rows_bf16(double *sum, const uint16_t *x, int64_t stride, int64_t n)
{
    const uint16_t *x1 = x + stride, *x2 = x1 + stride, *x3 = x2 + stride;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        sum[i] += ((double)bf16_load(x[i]) + (double)bf16_load(x1[i])) +
                  ((double)bf16_load(x2[i]) + (double)bf16_load(x3[i]));
}

/* sum[i] += x[at + i step] for all rows, `stride` apart; ROWS rows at a time if they are dense. */
static void add_rows(const struct task_plan *p, double *sum, int64_t at, int64_t stride,
                     int64_t rows, int64_t step, int64_t n)
{
    int64_t row = 0;
    for (; step == 1 && row + ROWS <= rows; row += ROWS)
        if (p->dtype == CKPT_F32)
            reduce_rows_f32(sum, (const float *)p->x + at + row * stride, stride, n);
        else
            reduce_rows_bf16(sum, (const uint16_t *)p->x + at + row * stride, stride, n);
    for (; row < rows; row++)
        for (int64_t i = 0; i < n; i++)
            sum[i] += (double)element(p, at + row * stride + i * step);
}

/* lane[i mod LANES] += x[i]; n is a multiple of LANES. */
CKPT_CLONES static void add_lanes_f32(double *lane, const float *x, int64_t n)
{
    double sum[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)x[i + k];
    for (int k = 0; k < LANES; k++)
        lane[k] += sum[k];
}

CKPT_CLONES static void add_lanes_bf16(double *lane, const uint16_t *x, int64_t n)
{
    double sum[LANES] = {0};
    for (int64_t i = 0; i < n; i += LANES)
#pragma omp simd
        for (int k = 0; k < LANES; k++)
            sum[k] += (double)bf16_load(x[i + k]);
    for (int k = 0; k < LANES; k++)
        lane[k] += sum[k];
}

/* The sum of n elements `step` apart: element i is added to running sum i mod LANES. */
static double sum_run(const struct task_plan *p, int64_t at, int64_t step, int64_t n)
{
    double lane[LANES] = {0};
    int64_t i = step == 1 ? n / LANES * LANES : 0;
    if (i && p->dtype == CKPT_F32)
        add_lanes_f32(lane, (const float *)p->x + at, i);
    else if (i)
        add_lanes_bf16(lane, (const uint16_t *)p->x + at, i);
    for (; i < n; i++)
        lane[i % LANES] += (double)element(p, at + i * step);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] += lane[k + half];
    return lane[0];
}

/* sum[0 .. n - 1]: results from `first` on, summed over the reduced positions [from, to). */
static void sum_rows(const struct task_plan *p, double *sum, int64_t first, int64_t n, int64_t from,
                     int64_t to)
{
    int last = p->r.reduced.ndim - 1;
    int64_t width = p->r.reduced.shape[last], step = p->r.reduced.stride[0][last], base[2], at;
    for (int64_t m = 0; m < n; m++) {
        sum[m] = 0;
        loops_seek(&p->r.kept, p->r.kept.ndim, first + m, base);
        for (int64_t i = from, run; i < to; i += run) {
            run = min_i64(width - i % width, to - i);
            loops_seek(&p->r.reduced, p->r.reduced.ndim, i, &at);
            sum[m] += sum_run(p, base[1] + at, step, run);
        }
    }
}

/* The same where results are contiguous: runs along the last kept axis are added as rows. */
static void sum_columns(const struct task_plan *p, double *sum, int64_t first, int64_t n,
                        int64_t from, int64_t to)
{
    int last = p->r.kept.ndim - 1, down = p->r.reduced.ndim - 1;
    int64_t width = p->r.kept.shape[last], height = p->r.reduced.shape[down], base[2], at;
    memset(sum, 0, (size_t)n * sizeof *sum);
    for (int64_t m = 0, cols; m < n; m += cols) {
        cols = min_i64(width - (first + m) % width, n - m);
        loops_seek(&p->r.kept, p->r.kept.ndim, first + m, base);
        for (int64_t i = from, rows; i < to; i += rows) {
            rows = min_i64(height - i % height, to - i);
            loops_seek(&p->r.reduced, p->r.reduced.ndim, i, &at);
            add_rows(p, sum + m, base[1] + at, p->r.reduced.stride[0][down], rows,
                     p->r.kept.stride[1][last], cols);
        }
    }
}

static void sum_task(const struct task_plan *p, double *sum, int64_t first, int64_t n, int64_t part)
{
    int64_t from = p->r.length * part / p->parts, to = p->r.length * (part + 1) / p->parts;
    if (p->r.columns)
        sum_columns(p, sum, first, n, from, to);
    else
        sum_rows(p, sum, first, n, from, to);
}

/* Writes a block of results from its partial sums, which are `stride` apart. */
static void finish(float *y, const double *sum, int64_t n, int64_t parts, int64_t stride,
                   double scale, bool accumulate)
{
    for (int64_t m = 0; m < n; m++) {
        double total = 0;
        for (int64_t part = 0; part < parts; part++)
            total += sum[part * stride + m];
        y[m] = (float)((accumulate ? (double)y[m] : 0.0) + scale * total);
    }
}

static void reduce(const struct ckpt_kernel_args *a, double scale)
{
    struct task_plan p = plan_tasks(&a->in[0].desc, &a->out[0].desc);
    p.x = a->in[0].data;
    float *y = a->out[0].data;
    double *partial = a->workspace;
    int64_t tasks = p.blocks * p.parts;
#pragma omp parallel for schedule(static) if (loops_parallel(p.r.results * p.r.length))
    for (int64_t i = 0; i < tasks; i++) {
        _Alignas(64) double sum[BLOCK];
        int64_t block = i / p.parts, part = i % p.parts;
        int64_t first = block * p.block, n = min_i64(p.block, p.r.results - first);
        sum_task(&p, sum, first, n, part);
        if (p.parts == 1)
            finish(y + first, sum, n, 1, 0, scale, a->accumulate);
        else
            memcpy(partial + part * p.r.results + first, sum, (size_t)n * sizeof *sum);
    }
    if (p.parts > 1)
        finish(y, partial, p.r.results, p.parts, p.r.results, scale, a->accumulate);
}

int cpu_sum(const struct ckpt_kernel_args *a)
{
    reduce(a, (double)((const struct sum_attr *)a->attr)->scale);
    return CKPT_OK;
}

int cpu_sum_to(const struct ckpt_kernel_args *a)
{
    reduce(a, 1.0);
    return CKPT_OK;
}
