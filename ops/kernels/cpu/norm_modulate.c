/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layer norm and modulation in one pass, and the gradient, which also serves a norm with weight and
 * bias.  The normalised value stays in a register: it is not rounded before it is scaled, and the
 * backward pass recomputes it from x and the statistics.
 */
#include "kernels.h"
#include "norm.h"
#include "row_sums.h"

/* Parameters of all rows.  most: where to store the largest magnitude of y if y is not written, or
 * NULL. */
struct norm_modulate {
    float eps;
    uint32_t *most;
};

/* run: x, y or NULL, stats or NULL, shift, scale */
ROWS_INLINE void norm_modulate_rows(const struct row_run *run, int64_t c,
                                    const struct norm_modulate *m, bool half)
{
    for (int64_t i = 0; i < run->n; i++) {
        const void *restrict x = run->at[0] + i * run->step[0];
        void *restrict y = run->at[1] + i * run->step[1];
        float *stats = (float *)(run->at[2] + i * run->step[2]);
        const void *restrict shift = run->at[3] + i * run->step[3];
        const void *restrict scale = run->at[4] + i * run->step[4];
        struct row_stats s = row_stats_of(x, c, m->eps, half);
        uint32_t most = 0;
#pragma omp simd
        for (int64_t j = 0; j < (run->at[1] ? c : 0); j++) {
            float n = (row_get(x, j, half) - s.mean) * s.rstd;
            row_put(y, j, n * (1.f + row_get(scale, j, half)) + row_get(shift, j, half), half);
        }
        for (int64_t j = 0; j < (run->at[1] ? 0 : c); j++) {
            float n = (row_get(x, j, half) - s.mean) * s.rstd, value;
            row_put(&value, 0, n * (1.f + row_get(scale, j, half)) + row_get(shift, j, half), half);
            const uint32_t bits = float_bits(row_get(&value, 0, half)) & 0x7fffffff;
            most = bits > most ? bits : most;
        }
        if (m->most)
            rows_raise_to(m->most, most);
        if (!run->at[2])
            continue;
        stats[0] = s.mean;
        stats[1] = s.rstd;
    }
}

ROWS_LEAVES(norm_modulate, norm_modulate_rows)

int cpu_layer_norm_modulate(const struct ckpt_kernel_args *a)
{
    const struct norm_attr *attr = a->attr;
    const struct ckpt_view *x = &a->in[0];
    const bool has_y = a->out[0].data;
    struct norm_modulate m = {attr->eps, has_y ? NULL : extra_output(a, EXTRA_LARGEST)};
    struct rows r;
    rows_begin(&r, x);
    for (int i = 0; i < 2; i++)
        if (a->out[i].data)
            rows_operand(&r, &a->out[i]);
        else
            rows_absent(&r);
    rows_operand(&r, &a->in[1]);
    rows_operand(&r, &a->in[2]);
    rows_finish(&r);
    if (m.most)
        *m.most = 0;
    rows_for_all(&r, x->desc.shape[x->desc.ndim - 1],
                 view_half(x) ? norm_modulate_bf16 : norm_modulate_f32, &m);
    return has_y ? cpu_write_extra(a, CKPT_OK) : CKPT_OK;
}

/* The factor of dy: 1 + scale, or the weight of an affine norm. */
ROWS_INLINE float factor_at(const void *scale, int64_t j, bool half, bool weight)
{
    return weight ? row_get(scale, j, half) : 1.f + row_get(scale, j, half);
}

/* mean(g) and mean(g n) of one row, with g = dy factor and n = (x - mean) rstd. */
struct row_means {
    float g, gn;
};

ROWS_INLINE struct row_means row_means_of(const void *restrict x, const void *restrict dy,
                                          const void *restrict scale, const float *stats, int64_t c,
                                          bool half, bool dy_half, bool weight)
{
    float mean = stats[0], sum = 0.f, dot = 0.f;
#pragma omp simd reduction(+ : sum, dot)
    for (int64_t j = 0; j < c; j++) {
        float g = row_get(dy, j, dy_half) * factor_at(scale, j, half, weight);
        sum += g;
        dot += g * (row_get(x, j, half) - mean);
    }
    return (struct row_means){.g = sum / (float)c, .gn = dot * stats[1] / (float)c};
}

/*
 * run: x, dy, scale, dx, two sums, stats, and the addend if `has_addend`.
 *
 *   dx = rstd (g - mean(g) - n mean(g n)) + addend, dshift += dy, dscale += dy n
 */
ROWS_INLINE void norm_modulate_dx_rows(const struct row_run *run, int64_t column, int64_t c,
                                       bool has_addend, bool weight, const struct row_sums *sums,
                                       bool half, bool dy_half)
{
    float *restrict dshift = sums->first, *restrict dscale = sums->second;
    int64_t skip = column * (half ? 2 : 4), dy_skip = column * (dy_half ? 2 : 4);
    for (int64_t i = 0; i < run->n; i++) {
        const char *x = run->at[0] + i * run->step[0], *dy = run->at[1] + i * run->step[1];
        const char *scale = run->at[2] + i * run->step[2];
        const float *stats = (const float *)(run->at[6] + i * run->step[6]);
        struct row_means m = row_means_of(x, dy, scale, stats, sums->width, half, dy_half, weight);
        const void *restrict x1 = x + skip, *restrict dy1 = dy + dy_skip;
        const void *restrict scale1 = scale + skip;
        const void *restrict addend = has_addend ? run->at[7] + i * run->step[7] + skip : NULL;
        void *restrict dx = run->at[3] + i * run->step[3] + skip;
        float mean = stats[0], rstd = stats[1];
#pragma omp simd
        for (int64_t j = 0; j < c; j++) {
            float d = row_get(dy1, j, dy_half), n = (row_get(x1, j, half) - mean) * rstd;
            float g = d * factor_at(scale1, j, half, weight);
            float before = has_addend ? row_get(addend, j, half) : 0.f;
            row_put(dx, j, rstd * (g - m.g - n * m.gn) + before, half);
            dshift[j] += d;
            dscale[j] += d * n;
        }
    }
}

#define LEAF(name, has_addend, weight)                                                             \
    CKPT_CLONES static void name(const struct row_run *run, int64_t column, int64_t c, bool half,  \
                                 bool dy_half, const struct row_sums *sums)                        \
    {                                                                                              \
        WITH_FLAGS(half, dy_half, norm_modulate_dx_rows, run, column, c, has_addend, weight,       \
                   sums);                                                                          \
    }
LEAF(norm_modulate_dx_leaf, false, false)
LEAF(norm_modulate_dx_add_leaf, true, false)
LEAF(affine_dx_leaf, false, true)
LEAF(affine_dx_add_leaf, true, true)

int cpu_layer_norm_modulate_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *kept[] = {&a->in[3], &a->in[4]};
    bool has_addend = a->in[4].data != NULL;
    return cpu_write_extra(
        a, row_sums_backward(a, &a->in[1], &a->in[2], has_addend ? 2 : 1, kept, 2,
                             has_addend ? norm_modulate_dx_add_leaf : norm_modulate_dx_leaf));
}

int cpu_layer_norm_affine_dx(const struct ckpt_kernel_args *a)
{
    const struct ckpt_view *kept[] = {&a->in[3], &a->in[4]};
    const int ndim = a->in[1].desc.ndim;
    bool has_addend = a->in[4].data != NULL;
    struct ckpt_view w = rows_vector(a->in[2], ndim);
    struct ckpt_view out[] = {a->out[0], rows_vector(a->out[1], ndim),
                              rows_vector(a->out[2], ndim)};
    struct ckpt_kernel_args spread = *a;
    spread.out = out;
    return cpu_write_extra(a, row_sums_backward(&spread, &a->in[1], &w, has_addend ? 2 : 1, kept, 2,
                                                has_addend ? affine_dx_add_leaf : affine_dx_leaf));
}
