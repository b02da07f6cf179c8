/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss and gradient of rows of classes in one kernel on a GPU, against the two separate ops, bit
 * for bit: rows that fit in a block, in a cluster of blocks, or in neither; whole vectors or not;
 * every option; the gradient in its own memory and over the logits.  The gradient of a few rows is
 * also compared with the CPU's.
 */
#include <math.h>
#include <string.h>
#include "attr.h"
#include "core/bits.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "must.h"
#include "ops.h"

enum { GUARD = 4096, IGNORED = -100, CPU_ROWS = 40 };
enum operand_name { DLOSS, X, LABEL, WEIGHT, LOSS, DX, STATS, COUNT, OPERANDS };
enum place { DEVICE, HOST, PLACES };

struct shape {
    int64_t rows, n;
    enum ckpt_dtype dtype;
    float smoothing, z;
    bool weights;
    int32_t reduction;
};

struct data {
    struct shape s;
    struct cross_entropy_attr attr;
    struct ckpt_desc desc[OPERANDS];
    void *at[PLACES][OPERANDS], *workspace[PLACES];
};

static void check(bool ok, const char *what, const struct shape *s)
{
    expect(ok, "%s, %lld x %lld %s, smoothing %g, z %g, weights %d, reduction %d", what,
           (long long)s->rows, (long long)s->n, s->dtype == CKPT_BF16 ? "bf16" : "fp32",
           (double)s->smoothing, (double)s->z, s->weights, s->reduction);
}

/* ---- operands ------------------------------------------------------------------------------- */

static void *host(size_t bytes)
{
    void *p = malloc(bytes);
    must(p, "memory");
    return p;
}

static void describe(struct data *d, enum operand_name i, enum ckpt_dtype dtype, int64_t rows,
                     int64_t cols)
{
    d->desc[i] = (struct ckpt_desc){.dtype = dtype, .ndim = cols ? 2 : 1, .shape = {rows, cols}};
    desc_dense(&d->desc[i]);
    const size_t bytes = (size_t)desc_bytes(&d->desc[i]) + GUARD;
    d->at[HOST][i] = host(bytes);
    memset(d->at[HOST][i], 0xff, bytes);
    must(!cudaMalloc(&d->at[DEVICE][i], bytes), "device memory");
}

/* Values from -12 to 4. */
static float logit(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int)(*seed >> 12) % 4096) / 256.f - 12.f;
}

static void fill(struct data *d)
{
    const struct shape *s = &d->s;
    uint32_t seed = (uint32_t)s->n;
    for (int64_t i = 0; i < s->rows * s->n; i++) {
        const float x = logit(&seed);
        if (s->dtype == CKPT_BF16)
            ((uint16_t *)d->at[HOST][X])[i] = (uint16_t)(float_bits(x) >> 16);
        else
            ((float *)d->at[HOST][X])[i] = x;
    }
    for (int64_t i = 0; i < s->rows; i++)
        ((int32_t *)d->at[HOST][LABEL])[i] =
            i % 11 == 5 ? IGNORED : (int32_t)(i * 7919 * 101 % s->n);
    for (int64_t i = 0; i < s->n; i++)
        ((float *)d->at[HOST][WEIGHT])[i] = 0.5f + (float)(i % 7) / 8.f;
    for (int64_t i = 0; i < desc_numel(&d->desc[DLOSS]); i++)
        ((float *)d->at[HOST][DLOSS])[i] = 1.f + (float)i / 64.f;
}

static void send(const struct data *d, enum operand_name i)
{
    must(!cudaMemcpy(d->at[DEVICE][i], d->at[HOST][i], (size_t)desc_bytes(&d->desc[i]) + GUARD,
                     cudaMemcpyHostToDevice),
         "a copy");
}

static void create(struct data *d, const struct shape *s)
{
    const int64_t losses = s->reduction == CKPT_REDUCE_NONE ? s->rows : 1;
    *d = (struct data){.s = *s, .attr = {IGNORED, s->reduction, s->smoothing, s->z}};
    describe(d, DLOSS, CKPT_F32, losses, 0);
    describe(d, X, s->dtype, s->rows, s->n);
    describe(d, LABEL, CKPT_I32, s->rows, 0);
    describe(d, WEIGHT, CKPT_F32, s->n, 0);
    describe(d, LOSS, CKPT_F32, losses, 0);
    describe(d, DX, s->dtype, s->rows, s->n);
    describe(d, STATS, CKPT_F32, s->rows, 2);
    describe(d, COUNT, CKPT_F32, 2, 0);
    const size_t scratch = 2 * ((size_t)s->rows + 1) * sizeof(double);
    d->workspace[HOST] = host(scratch);
    must(!cudaMalloc(&d->workspace[DEVICE], scratch), "device memory");
    fill(d);
    for (int i = 0; i < OPERANDS; i++)
        send(d, i);
}

static void destroy(struct data *d)
{
    for (int i = 0; i < OPERANDS; i++) {
        free(d->at[HOST][i]);
        cudaFree(d->at[DEVICE][i]);
    }
    free(d->workspace[HOST]);
    cudaFree(d->workspace[DEVICE]);
}

/* ---- calls ---------------------------------------------------------------------------------- */

/* Class weights, the last operand, are passed only if used. */
static void call(const struct data *d, enum place where, ckpt_kernel kernel, int n_in, int n_out,
                 const enum operand_name *operand)
{
    struct ckpt_view views[OPERANDS] = {{NULL}};
    const struct ckpt_run run = {.n_micro = 1};
    const bool spare = operand[n_in - 1] == WEIGHT && !d->s.weights;
    for (int i = 0; i < n_in + n_out; i++)
        views[i] = (struct ckpt_view){d->at[where][operand[i]], d->desc[operand[i]]};
    const struct ckpt_kernel_args a = {.n_in = n_in - spare,
                                       .n_out = n_out,
                                       .in = views,
                                       .out = views + n_in,
                                       .attr = &d->attr,
                                       .workspace = d->workspace[where],
                                       .run = &run,
                                       .threads = 1};
    must(!kernel(&a) && !cudaDeviceSynchronize(), "a kernel");
}

static void run_both(const struct data *d, enum place where, ckpt_kernel kernel,
                     enum operand_name x)
{
    const enum operand_name operand[] = {DLOSS, x, LABEL, WEIGHT, LOSS, DX};
    call(d, where, kernel, 4, 2, operand);
}

static void run_two(const struct data *d)
{
    const enum operand_name loss[] = {X, LABEL, WEIGHT, LOSS, STATS, COUNT};
    const enum operand_name slope[] = {DLOSS, X, LABEL, STATS, COUNT, WEIGHT, DX};
    call(d, DEVICE, cuda_cross_entropy, 3, 3, loss);
    call(d, DEVICE, cuda_cross_entropy_dx, 6, 1, slope);
}

/* ---- results -------------------------------------------------------------------------------- */

static void *fetch(const struct data *d, enum operand_name i)
{
    const size_t bytes = (size_t)desc_bytes(&d->desc[i]) + GUARD;
    void *to = host(bytes);
    must(!cudaMemcpy(to, d->at[DEVICE][i], bytes, cudaMemcpyDeviceToHost), "a copy");
    return to;
}

/* Compares the result and the memory after it. */
static void check_same(const struct data *d, enum operand_name i, const void *expected,
                       const char *what)
{
    void *found = fetch(d, i);
    check(!memcmp(found, expected, (size_t)desc_bytes(&d->desc[i]) + GUARD), what, &d->s);
    free(found);
}

static double value(const void *x, enum ckpt_dtype dtype, int64_t i)
{
    return dtype == CKPT_BF16 ? (double)float_of_bits((uint32_t)((const uint16_t *)x)[i] << 16)
                              : (double)((const float *)x)[i];
}

/* The norm of the difference is small relative to the norm of the CPU's result, or to 1 for each
 * row: the gradient of a likely class is a difference of numbers near 1. */
static void check_near(const struct data *d, enum operand_name i, const void *found)
{
    double apart = 0, all = 0;
    for (int64_t k = 0; k < desc_numel(&d->desc[i]); k++) {
        const double x = value(d->at[HOST][i], d->desc[i].dtype, k);
        const double e = value(found, d->desc[i].dtype, k) - x;
        apart += e * e;
        all += x * x;
    }
    const double limit = (d->desc[i].dtype == CKPT_BF16 ? 4e-3 : 1e-5) * sqrt(all);
    check(sqrt(apart) <= limit + 1e-6 * sqrt((double)d->s.rows), "CPU", &d->s);
}

static void test(const struct shape *s)
{
    struct data d;
    create(&d, s);
    run_two(&d);
    void *loss = fetch(&d, LOSS), *dx = fetch(&d, DX);
    if (s->rows <= CPU_ROWS) {
        run_both(&d, HOST, cpu_cross_entropy_both, X);
        check_near(&d, LOSS, loss);
        check_near(&d, DX, dx);
        memset(d.at[HOST][LOSS], 0xff, (size_t)desc_bytes(&d.desc[LOSS]));
        memset(d.at[HOST][DX], 0xff, (size_t)desc_bytes(&d.desc[DX]));
    }
    send(&d, LOSS);
    send(&d, DX);
    run_both(&d, DEVICE, cuda_cross_entropy_both, X);
    check_same(&d, LOSS, loss, "loss");
    check_same(&d, DX, dx, "gradient");
    must(!cudaMemcpy(d.at[DEVICE][DX], d.at[DEVICE][X], (size_t)desc_bytes(&d.desc[X]),
                     cudaMemcpyDeviceToDevice),
         "a copy");
    run_both(&d, DEVICE, cuda_cross_entropy_both, DX);
    check_same(&d, LOSS, loss, "loss in place");
    check_same(&d, DX, dx, "gradient in place");
    free(loss);
    free(dx);
    destroy(&d);
}

/* For bf16 on Hopper: a block holds up to 115,000 classes, a cluster of two, four or eight blocks
 * up to 920,000. */
static void test_classes(int64_t n, enum ckpt_dtype dtype)
{
    const struct shape shapes[] = {
        {1, n, dtype, 0, 0, false, CKPT_REDUCE_MEAN},
        {33, n, dtype, 0, 0, false, CKPT_REDUCE_SUM},
        {12, n, dtype, 0.1f, 1e-3f, true, CKPT_REDUCE_NONE},
        {150, n, dtype, 0, 0, true, CKPT_REDUCE_MEAN},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        test(&shapes[i]);
}

int main(void)
{
    int n = 0;
    if (cudaGetDeviceCount(&n) || !n)
        return 77;
    const int64_t classes[] = {5, 200, 4097, 30011, 57344, 116003, 151936, 260001};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        test_classes(classes[i], CKPT_BF16);
        test_classes(classes[i], CKPT_F32);
    }
    test_classes(500009, CKPT_BF16);
    const struct shape wider = {2, 1000003, CKPT_BF16, 0, 0, false, CKPT_REDUCE_MEAN};
    test(&wider);
    if (!failures)
        printf("ok\n");
    return failures != 0;
}
