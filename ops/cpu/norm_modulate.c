/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and modulation in one pass.  The normalised value lives in a register: it is not
 * rounded before it is scaled, and the way back makes it again from x and the statistics.
 */
#include "kernels.h"
#include "norm.h"
#include "row_sums.h"

/* run: x, y, stats, shift, scale */
ROWS_INLINE void norm_modulate_rows(const struct row_run *run, int64_t c, float eps, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        void *restrict y = run->at[1] + i * run->step[1];
        float *stats = (float *)(run->at[2] + i * run->step[2]);
        const void *restrict shift = run->at[3] + i * run->step[3];
        const void *restrict scale = run->at[4] + i * run->step[4];
        struct row_stats s = row_stats_of(x, c, eps, half);
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float n = (row_get(x, j, half) - s.mean) * s.rstd;
            row_put(y, j, n * (1.f + row_get(scale, j, half)) + row_get(shift, j, half), half);
        }
        stats[0] = s.mean;
        stats[1] = s.rstd;
    }
}

CKPT_CLONES static void norm_modulate_bf16(const struct row_run *run, int64_t c, const void *eps)
{
    norm_modulate_rows(run, c, *(const float *)eps, true);
}

CKPT_CLONES static void norm_modulate_f32(const struct row_run *run, int64_t c, const void *eps)
{
    norm_modulate_rows(run, c, *(const float *)eps, false);
}

int cpu_layer_norm_modulate(const struct ckpt_kernel_args *a)
{
    const struct norm_attr *attr = a->attr;
    const struct ckpt_view *x = &a->in[0];
    struct rows r;
    rows_begin(&r, x);
    rows_operand(&r, &a->out[0]);
    rows_operand(&r, &a->out[1]);
    rows_operand(&r, &a->in[1]);
    rows_operand(&r, &a->in[2]);
    rows_finish(&r);
    rows_for_all(&r, x->desc.shape[x->desc.ndim - 1],
                 view_half(x) ? norm_modulate_bf16 : norm_modulate_f32, &attr->eps);
    return CKPT_OK;
}

/* mean(g) and mean(g n) of one row, with g = dy (1 + scale) and n = (x - mean) rstd. */
struct row_means {
    float g, gn;
};

ROWS_INLINE struct row_means row_means_of(const void *restrict x, const void *restrict dy,
                                          const void *restrict scale, const float *stats, int64_t c,
                                          bool half, bool dy_half)
{
    float mean = stats[0], sum = 0.f, dot = 0.f;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t j = 0; j < c; j++) {
        float g = row_get(dy, j, dy_half) * (1.f + row_get(scale, j, half));
        sum += g;
        dot += g * (row_get(x, j, half) - mean);
    }
    return (struct row_means){.g = sum / (float)c, .gn = dot * stats[1] / (float)c};
}

/*
 * run: x, dy, scale, dx, the sums, stats, the addend if adds.
 *   dx = rstd (g - mean(g) - n mean(g n)) + addend, dshift += dy, dscale += dy n
 */
ROWS_INLINE void norm_modulate_dx_rows(const struct row_run *run, int64_t column, int64_t c,
                                       bool half, bool dy_half, bool adds,
                                       const struct row_sums *sums)
{
    float *restrict dshift = sums->first, *restrict dscale = sums->second;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const char *x = run->at[0] + i * run->step[0], *dy = run->at[1] + i * run->step[1];
        const char *scale = run->at[2] + i * run->step[2];
        const float *stats = (const float *)(run->at[6] + i * run->step[6]);
        struct row_means m = row_means_of(x, dy, scale, stats, sums->width, half, dy_half);
        const void *restrict x1 = x + skip, *restrict dy1 = dy + dy_skip;
        const void *restrict scale1 = scale + skip;
        const void *restrict addend = adds ? run->at[7] + i * run->step[7] + skip : NULL;
        void *restrict dx = run->at[3] + i * run->step[3] + skip;
        float mean = stats[0], rstd = stats[1];
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy1, j, dy_half), n = (row_get(x1, j, half) - mean) * rstd;
            float g = d * (1.f + row_get(scale1, j, half));
            float before = adds ? row_get(addend, j, half) : 0.f;
            row_put(dx, j, rstd * (g - m.g - n * m.gn) + before, half);
            dshift[j] += d;
            dscale[j] += d * n;
        }
    }
}

ROWS_INLINE void norm_modulate_dx_any(const struct row_run *run, int64_t column, int64_t c,
                                      bool half, bool dy_half, bool adds,
                                      const struct row_sums *sums)
{
    if (half && dy_half)
        norm_modulate_dx_rows(run, column, c, true, true, adds, sums);
    else if (half)
        norm_modulate_dx_rows(run, column, c, true, false, adds, sums);
    else if (dy_half)
        norm_modulate_dx_rows(run, column, c, false, true, adds, sums);
    else
        norm_modulate_dx_rows(run, column, c, false, false, adds, sums);
}

CKPT_CLONES static void norm_modulate_dx_leaf(const struct row_run *run, int64_t column, int64_t c,
                                              bool half, bool dy_half, const struct row_sums *sums)
{
    norm_modulate_dx_any(run, column, c, half, dy_half, false, sums);
}

CKPT_CLONES static void norm_modulate_dx_adding(const struct row_run *run, int64_t column,
                                                int64_t c, bool half, bool dy_half,
                                                const struct row_sums *sums)
{
    norm_modulate_dx_any(run, column, c, half, dy_half, true, sums);
}

int cpu_layer_norm_modulate_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *kept[] = {&a->in[3], &a->in[4]};
    bool adds = a->in[4].data != NULL;
    return row_sums_backward(a, &a->in[1], &a->in[2], adds ? 2 : 1, kept, 2,
                             adds ? norm_modulate_dx_adding : norm_modulate_dx_leaf);
}
