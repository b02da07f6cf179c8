/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products with fused epilogues on a GPU, against the separate ops: operands, results of both, and
 * the tested sizes.  Operands of products are small multiples of a power of two, so sums are exact
 * in any order and all results have the same bits.  Memory after operands is NaN; memory after
 * results must stay unchanged.
 */
#ifndef CKPT_TESTS_GPU_GEMM_DATA_H
#define CKPT_TESTS_GPU_GEMM_DATA_H

#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "core/bits.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libs.h"
#include "must.h"

enum { PLAIN, OURS, KINDS };
enum { MOST_TENSORS = 16, MOST_OPERANDS = 6 };
enum { WORKSPACE = 64 << 20, GUARD = 64 << 10 }; /* bytes */

struct shape {
    int64_t rows, inner, cols;
};

struct data {
    struct shape s;
    int n;
    struct ckpt_desc desc[MOST_TENSORS];
    void *at[KINDS][MOST_TENSORS]; /* operands are the plain ones */
    char *workspace;
};

static void check(bool ok, const char *what, const struct shape *s)
{
    expect(ok, "%s, %lld x %lld x %lld", what, (long long)s->rows, (long long)s->inner,
           (long long)s->cols);
}

/* ---- operands ------------------------------------------------------------------------------- */

static uint16_t bits_of(double x)
{
    return (uint16_t)(float_bits((float)x) >> 16);
}

/* Multiples of 1/8 from -4/8 to 4/8. */
static void fill_exact(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = bits_of(((int)(seed >> 16) % 9 - 4) / 8.);
    }
}

/* Values from -4 to 4 in steps of 1/64, which bf16 represents exactly up to 4. */
static void fill_moderate(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = bits_of(((int)(seed >> 16) % 513 - 256) / 64.);
    }
}

static void fill_all_values(uint16_t *x, int64_t n, uint32_t seed)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = (uint16_t)(i + seed);
}

static void set(struct data *d, int t, void (*fill)(uint16_t *x, int64_t n, uint32_t seed))
{
    const int64_t n = desc_numel(&d->desc[t]);
    uint16_t *x = malloc((size_t)n * sizeof *x);
    must(x, "memory");
    fill(x, n, (uint32_t)t + 1);
    must(!cudaMemcpy(d->at[PLAIN][t], x, (size_t)n * sizeof *x, cudaMemcpyHostToDevice), "a copy");
    free(x);
}

static void clear_result(const struct data *d, int t)
{
    must(!cudaMemset(d->at[OURS][t], 0xff, (size_t)desc_bytes(&d->desc[t]) + GUARD), "a result");
}

/* Makes bf16 tensors of these sizes; one axis if the second size is 0. */
static void create(struct data *d, const struct shape *s, int n, const int64_t (*size)[2])
{
    *d = (struct data){.s = *s, .n = n};
    for (int t = 0; t < n; t++) {
        d->desc[t] = (struct ckpt_desc){
            .dtype = CKPT_BF16, .ndim = size[t][1] ? 2 : 1, .shape = {size[t][0], size[t][1]}};
        desc_dense(&d->desc[t]);
        const size_t bytes = 2 * (size_t)desc_bytes(&d->desc[t]) + GUARD; /* may be fp32 */
        for (int k = 0; k < KINDS; k++)
            must(!cudaMalloc(&d->at[k][t], bytes) && !cudaMemset(d->at[k][t], 0xff, bytes),
                 "device memory");
    }
    must(!cudaMalloc((void **)&d->workspace, WORKSPACE), "device memory");
}

static void destroy(struct data *d)
{
    for (int t = 0; t < d->n; t++)
        for (int k = 0; k < KINDS; k++)
            cudaFree(d->at[k][t]);
    cudaFree(d->workspace);
}

/* ---- the separate ops ------------------------------------------------------------------------ */

struct call {
    ckpt_kernel kernel;
    int n_in, n_out;
    int operand[MOST_OPERANDS]; /* a tensor, or -1 for one that is absent */
    const void *attr;
};

/* extra: the last outputs (ops/extra.h). */
static void run_extra(const struct data *d, struct cuda_libs *libs, const struct call *c,
                      uint32_t extra)
{
    struct ckpt_view views[MOST_OPERANDS] = {{NULL}};
    const struct ckpt_run of_step = {.n_micro = 1};
    for (int i = 0; i < c->n_in + c->n_out; i++)
        if (c->operand[i] >= 0)
            views[i] = (struct ckpt_view){d->at[PLAIN][c->operand[i]], d->desc[c->operand[i]]};
        else
            views[i].desc.ndim = -1;
    struct ckpt_kernel_args a = {.n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .extra = extra,
                                 .in = views,
                                 .out = views + c->n_in,
                                 .attr = c->attr,
                                 .workspace = d->workspace,
                                 .workspace_bytes = 32 << 20,
                                 .run = &of_step,
                                 .device = libs};
    must(!c->kernel(&a), "an op");
}

static void run(const struct data *d, struct cuda_libs *libs, const struct call *c)
{
    run_extra(d, libs, c, 0);
}

/* ---- results -------------------------------------------------------------------------------- */

static void *fetch(const void *from, size_t bytes)
{
    void *to = malloc(bytes);
    must(to && !cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "a copy");
    return to;
}

/* Prints how many of the 16-bit values differ, and the first one. */
static void show_difference(const uint16_t *x, const uint16_t *y, size_t n, int64_t cols)
{
    size_t differ = 0, first = 0;
    for (size_t i = n; i-- > 0;)
        if (x[i] != y[i]) {
            differ++;
            first = i;
        }
    printf("%zu of %zu differ, first at %zu, %zu: %04x for %04x\n", differ, n, first / (size_t)cols,
           first % (size_t)cols, y[first], x[first]);
}

/* Checks that the memory at `at` has the bits of the plain result and is unchanged after it. */
static bool same_at(const struct data *d, int t, const void *at)
{
    const size_t bytes = (size_t)desc_bytes(&d->desc[t]);
    unsigned char *x = fetch(d->at[PLAIN][t], bytes), *y = fetch(at, bytes + GUARD);
    bool ok = !memcmp(x, y, bytes);
    if (!ok)
        show_difference((uint16_t *)(void *)x, (uint16_t *)(void *)y, bytes / 2, d->s.cols);
    for (size_t i = bytes; i < bytes + GUARD; i++)
        ok &= y[i] == 0xff;
    free(x), free(y);
    return ok;
}

static bool same(const struct data *d, int t)
{
    return same_at(d, t, d->at[OURS][t]);
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Checks that `takes` accepts exactly the supported sizes. */
static void test_takes(bool (*takes)(int64_t rows, int64_t inner, int64_t cols))
{
    static const struct shape large = {65536, 768, 3072};
    static const struct shape shapes[] = {{0, 64, 64},  {64, 0, 64},  {64, 64, 0},
                                          {64, 60, 64}, {64, 64, 60}, {(int64_t)1 << 31, 64, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check(!takes(shapes[i].rows, shapes[i].inner, shapes[i].cols), "takes", &shapes[i]);
    check(takes(large.rows, large.inner, large.cols), "does not take", &large);
}

static void test_all_shapes(void (*test)(const struct shape *s, struct cuda_libs *libs),
                            struct cuda_libs *libs)
{
    static const int64_t rows[] = {1, 127, 129, 4097}, inner[] = {8, 72, 768, 1152},
                         cols[] = {8, 136, 4608};
    static const struct shape more[] = {{300, 64, 65536}, {70000, 72, 200}};
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            for (int k = 0; k < 3; k++)
                test(&(struct shape){rows[i], inner[j], cols[k]}, libs);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        test(&more[i], libs);
}

/* The body of main().  With three numbers only this shape is tested, as for a sanitizer. */
static int test_shapes(int argc, char **argv,
                       void (*test)(const struct shape *s, struct cuda_libs *libs),
                       bool (*takes)(int64_t rows, int64_t inner, int64_t cols))
{
    struct cuda_libs *libs;
    struct cudaDeviceProp card;
    if (cudaGetDeviceProperties(&card, 0) != cudaSuccess) {
        printf("no GPU here\n");
        return 77;
    }
    if (card.major != 9 || card.minor != 0) {
        printf("another card: compute capability %d.%d\n", card.major, card.minor);
        return takes(65536, 768, 3072) ? 1 : 77;
    }
    must(!cuda_libs_open(&libs), "libs");
    if (argc == 4)
        test(&(struct shape){atoll(argv[1]), atoll(argv[2]), atoll(argv[3])}, libs);
    else
        test_all_shapes(test, libs);
    test_takes(takes);
    cuda_libs_close(libs);
    return test_result();
}

#endif
