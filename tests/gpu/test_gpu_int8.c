/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 8-bit codes of activations on a GPU: codes, scales and decoded values have the CPU's bits, for
 * sizes that do not fill a block, a word or a thread, for every largest magnitude of a block, for
 * zeros, huge values, infinity and NaN.  Memory after the results must stay unchanged.
 * "test_gpu_int8 times" prints the memory bandwidth.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/int8.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "int8.h"
#include "must.h"

enum { GUARD = 64, MOST = 1 << 22 };

/* Values, codes and decoded values on the host (0) and on the device (1), with bytes after each. */
struct buffers {
    int64_t n;
    uint8_t *x[2], *codes[2], *back[2];
};

static void make_pair(uint8_t *p[2], int64_t bytes)
{
    const size_t size = (size_t)(bytes + GUARD);
    p[0] = malloc(size);
    must(p[0] && !cudaMalloc((void **)&p[1], size) && !cudaMemset(p[1], 0xa5, size), "memory");
    memset(p[0], 0xa5, size);
}

static struct buffers make(int64_t n)
{
    struct buffers b = {.n = n};
    make_pair(b.x, 2 * n);
    make_pair(b.codes, 4 * int8_words(n));
    make_pair(b.back, 2 * n);
    return b;
}

static void drop_pair(uint8_t *p[2])
{
    free(p[0]);
    cudaFree(p[1]);
}

static void drop(struct buffers *b)
{
    drop_pair(b->x);
    drop_pair(b->codes);
    drop_pair(b->back);
}

static struct ckpt_view view(void *data, enum ckpt_dtype dtype, int64_t n)
{
    struct ckpt_view v = {data, {.dtype = dtype, .ndim = 1, .shape = {n}}};
    desc_dense(&v.desc);
    return v;
}

static void encode(const struct buffers *b, int on_gpu)
{
    const struct ckpt_view x = view(b->x[on_gpu], CKPT_BF16, b->n);
    const struct ckpt_view codes = view(b->codes[on_gpu], CKPT_I32, int8_words(b->n));
    struct ckpt_kernel_args a = {.n_in = 1, .n_out = 1, .in = &x, .out = &codes};
    must(!(on_gpu ? cuda_to_int8 : cpu_to_int8)(&a), "to_int8");
}

static void decode(const struct buffers *b, int on_gpu)
{
    const struct ckpt_view codes = view(b->codes[on_gpu], CKPT_I32, int8_words(b->n));
    const struct ckpt_view back = view(b->back[on_gpu], CKPT_BF16, b->n);
    const struct from_int8_attr attr = {b->n};
    struct ckpt_kernel_args a = {.n_in = 1, .n_out = 1, .in = &codes, .out = &back, .attr = &attr};
    must(!(on_gpu ? cuda_from_int8 : cpu_from_int8)(&a), "from_int8");
}

static bool same(uint8_t *const p[2], int64_t bytes)
{
    const size_t size = (size_t)(bytes + GUARD);
    uint8_t *got = malloc(size);
    must(got && !cudaMemcpy(got, p[1], size, cudaMemcpyDeviceToHost), "a copy");
    bool ok = !memcmp(got, p[0], size);
    free(got);
    return ok;
}

static void check(struct buffers *b, const char *what)
{
    must(!cudaMemcpy(b->x[1], b->x[0], (size_t)(2 * b->n), cudaMemcpyHostToDevice), "a copy");
    for (int on_gpu = 0; on_gpu < 2; on_gpu++) {
        encode(b, on_gpu);
        decode(b, on_gpu);
    }
    const bool codes = same(b->codes, 4 * int8_words(b->n)), back = same(b->back, 2 * b->n);
    if (!codes || !back)
        printf("FAIL %s of %lld values: %s differ from the CPU's\n", what, (long long)b->n,
               codes ? "values" : "codes");
    failures += !codes || !back;
    drop(b);
}

static void draw(uint16_t *x, int64_t n, float scale)
{
    float *v = malloc((size_t)n * sizeof *v);
    must(v, "memory");
    ckpt_fill_normal(7, (uint64_t)n, 3, v, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = bf16_round(v[i] * scale);
    free(v);
}

static void test_sizes(void)
{
    static const int64_t sizes[] = {1,    2,    7,     8,     9,         127,      128,  129,
                                    255,  256,  1000,  2047,  2048,      8191,     8192, 8193,
                                    8320, 8321, 16383, 99999, MOST - 64, MOST + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int e = -120; e <= 120; e += 60) {
            struct buffers b = make(sizes[i]);
            draw((uint16_t *)(void *)b.x[0], b.n, ldexpf(1.f, e));
            check(&b, "normal values");
        }
}

/* Every bf16 value of either sign is the largest one of some block. */
static void test_scales(void)
{
    struct buffers b = make((int64_t)INT8_BLOCK << 16);
    uint16_t *x = (uint16_t *)(void *)b.x[0];
    draw(x, b.n, 0.25f);
    for (int64_t i = 0; i < b.n; i++) {
        const uint16_t most = (uint16_t)(i / INT8_BLOCK);
        x[i] = i % INT8_BLOCK == 77 ? most : bf16_round(bf16_load(x[i]) * bf16_load(most));
    }
    check(&b, "all largest values");
}

/* Every bf16 value with all others, and ties between two codes. */
static void test_values(void)
{
    struct buffers b = make(1 << 16);
    uint16_t *x = (uint16_t *)(void *)b.x[0];
    for (int i = 0; i < 1 << 16; i++)
        x[i] = (uint16_t)i;
    check(&b, "all bf16 values");
    b = make(1 << 12);
    x = (uint16_t *)(void *)b.x[0];
    for (int i = 0; i < 1 << 12; i++)
        x[i] = bf16_round(i % INT8_BLOCK ? (float)(i % INT8_BLOCK) - 64.5f : 127.f);
    check(&b, "ties");
}

/* ---- times ----------------------------------------------------------------------------------- */

static double milliseconds(const struct buffers *b, void (*op)(const struct buffers *, int))
{
    enum { RUNS = 50 };
    cudaEvent_t begin, end;
    float ms = 0;
    op(b, 1);
    must(!cudaEventCreate(&begin) && !cudaEventCreate(&end) && !cudaEventRecord(begin, NULL),
         "events");
    for (int i = 0; i < RUNS; i++)
        op(b, 1);
    must(!cudaEventRecord(end, NULL) && !cudaEventSynchronize(end) &&
             !cudaEventElapsedTime(&ms, begin, end),
         "a run");
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms / RUNS;
}

/* Rows of a model's width and of its MLP; all are larger than the cache. */
static void print_times(void)
{
    static const int64_t sizes[] = {16384 * 1152, 16384 * 4608, 65536 * 4608};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buffers b = make(sizes[i]);
        draw((uint16_t *)(void *)b.x[0], b.n, 1.f);
        must(!cudaMemcpy(b.x[1], b.x[0], (size_t)(2 * b.n), cudaMemcpyHostToDevice), "a copy");
        const double bytes = 2. * (double)b.n + 4. * (double)int8_words(b.n);
        const double to = milliseconds(&b, encode), from = milliseconds(&b, decode);
        printf("%lld values: to_int8 %.4f ms, %.0f GB/s; from_int8 %.4f ms, %.0f GB/s\n",
               (long long)b.n, to, bytes / to * 1e-6, from, bytes / from * 1e-6);
        drop(&b);
    }
}

int main(int argc, char **argv)
{
    int devices;
    if (cudaGetDeviceCount(&devices) || !devices)
        return 77;
    if (argc > 1 && !strcmp(argv[1], "times")) {
        print_times();
        return 0;
    }
    test_sizes();
    test_scales();
    test_values();
    printf(failures ? "%d failures\n" : "all codes have the CPU's bits\n", failures);
    return failures != 0;
}
