/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels: L1, KL divergence of a normal distribution, and a sample of it.  Sums are in double. */
#include "kernels.h"
#include "rows.h"
#include "vae_loss.h"
#include "vmath.h"

#define BUFFER 1024 /* elements per float buffer */

/* Loads values [i, i + n) of v as floats. */
static void load(float *dst, const struct ckpt_view *v, int64_t i, int64_t n)
{
    cpu_load(dst, (const char *)v->data + i * ckpt_dtype_size(v->desc.dtype), v->desc.dtype, n);
}

static void store(const struct ckpt_view *v, int64_t i, const float *src, int64_t n)
{
    cpu_store((char *)v->data + i * ckpt_dtype_size(v->desc.dtype), src, v->desc.dtype, n);
}

/* The sum of the loss over n elements of two operands. */
typedef double (*loss_fn)(const float *a, const float *b, int64_t n);

static double sum_chunk(const struct ckpt_kernel_args *k, loss_fn fn, int64_t begin, int64_t end)
{
    double sum = 0;
    for (int64_t i = begin; i < end; i += BUFFER) {
        float a[BUFFER], b[BUFFER];
        int64_t n = min_i64(BUFFER, end - i);
        load(a, &k->in[0], i, n);
        load(b, &k->in[1], i, n);
        sum += fn(a, b, n);
    }
    return sum;
}

/* *loss = scale times the sum over all elements, chunk by chunk. */
static void run_loss(const struct ckpt_kernel_args *k, loss_fn fn, double scale)
{
    int64_t n = desc_numel(&k->in[0].desc), chunks = vae_loss_chunks(n);
    double *partial = k->workspace, sum = 0;
#pragma omp parallel for schedule(static) if (chunks > 1)
    for (int64_t i = 0; i < chunks; i++)
        partial[i] = sum_chunk(k, fn, i * VAE_LOSS_CHUNK, min_i64(n, (i + 1) * VAE_LOSS_CHUNK));
    for (int64_t i = 0; i < chunks; i++)
        sum += partial[i];
    *(float *)k->out[0].data = (float)(scale * sum);
}

/* Computes n elements of y from up to three x; slope is the gradient of the loss. */
typedef void (*map_fn)(float *restrict y, float *const *x, int64_t n, float slope);

/* Computes output `out` from n_in operands starting with in[first]. */
static void run_map(const struct ckpt_kernel_args *k, int out, int first, int n_in, map_fn fn,
                    float slope)
{
    int64_t all = desc_numel(&k->out[out].desc), chunks = (all + BUFFER - 1) / BUFFER;
#pragma omp parallel for schedule(static) if (all > ROWS_CHUNK)
    for (int64_t i = 0; i < chunks; i++) {
        float x0[BUFFER], x1[BUFFER], x2[BUFFER], y[BUFFER], *x[] = {x0, x1, x2};
        int64_t at = i * BUFFER, n = min_i64(BUFFER, all - at);
        for (int j = 0; j < n_in; j++)
            load(x[j], &k->in[first + j], at, n);
        fn(y, x, n, slope);
        store(&k->out[out], at, y, n);
    }
}

/* ---- L1 ------------------------------------------------------------------------------------- */

CKPT_CLONES static double sum_distance(const float *a, const float *b, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += (double)fabsf(a[i] - b[i]);
    return sum;
}

CKPT_CLONES static void map_sign(float *restrict y, float *const *x, int64_t n, float slope)
{
    const float *a = x[0], *b = x[1];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float d = a[i] - b[i]; /* NaN passes through */
        y[i] = vmath_select(d < 0.f, -slope, vmath_select(d > 0.f, slope, d));
    }
}

int cpu_l1(const struct ckpt_kernel_args *k)
{
    run_loss(k, sum_distance, 1. / (double)desc_numel(&k->in[0].desc));
    return CKPT_OK;
}

int cpu_l1_dx(const struct ckpt_kernel_args *k)
{
    double slope = (double)*(const float *)k->in[0].data / (double)desc_numel(&k->in[1].desc);
    run_map(k, 0, 1, 2, map_sign, (float)slope);
    return CKPT_OK;
}

/* ---- normal distribution --------------------------------------------------------------------- */

static inline float clamp(float logvar)
{
    float v = vmath_select(logvar < LOGVAR_LOW, LOGVAR_LOW, logvar);
    return vmath_select(v > LOGVAR_HIGH, LOGVAR_HIGH, v);
}

/* 0 where the value is clamped. */
static inline float inside(float logvar, float slope)
{
    return vmath_select(logvar < LOGVAR_LOW || logvar > LOGVAR_HIGH, 0.f, slope);
}

CKPT_CLONES static double sum_divergence(const float *mean, const float *logvar, int64_t n)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++) {
        float v = clamp(logvar[i]);
        sum += (double)(mean[i] * mean[i]) + ((double)vexp(v) - 1. - (double)v);
    }
    return sum;
}

CKPT_CLONES static void map_scale(float *restrict y, float *const *x, int64_t n, float slope)
{
    const float *mean = x[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = slope * mean[i];
}

CKPT_CLONES static void map_dlogvar(float *restrict y, float *const *x, int64_t n, float slope)
{
    const float *logvar = x[0];
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = inside(logvar[i], 0.5f * slope * (vexp(clamp(logvar[i])) - 1.f));
}

int cpu_kl_normal(const struct ckpt_kernel_args *k)
{
    run_loss(k, sum_divergence, 0.5 / (double)k->in[0].desc.shape[0]);
    return CKPT_OK;
}

int cpu_kl_normal_dx(const struct ckpt_kernel_args *k)
{
    float slope = *(const float *)k->in[0].data / (float)k->in[1].desc.shape[0];
    run_map(k, 0, 1, 1, map_scale, slope);
    run_map(k, 1, 2, 1, map_dlogvar, slope);
    return CKPT_OK;
}

CKPT_CLONES static void map_sample(float *restrict y, float *const *x, int64_t n, float slope)
{
    const float *mean = x[0], *logvar = x[1], *noise = x[2];
    (void)slope;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = mean[i] + vexp(0.5f * clamp(logvar[i])) * noise[i];
}

CKPT_CLONES static void map_sample_dx(float *restrict y, float *const *x, int64_t n, float slope)
{
    const float *dz = x[0], *logvar = x[1], *noise = x[2];
    (void)slope;
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = inside(logvar[i], 0.5f * dz[i] * vexp(0.5f * clamp(logvar[i])) * noise[i]);
}

int cpu_sample_normal(const struct ckpt_kernel_args *k)
{
    run_map(k, 0, 0, 3, map_sample, 1.f);
    return CKPT_OK;
}

int cpu_sample_normal_dx(const struct ckpt_kernel_args *k)
{
    run_map(k, 0, 0, 3, map_sample_dx, 1.f);
    return CKPT_OK;
}
