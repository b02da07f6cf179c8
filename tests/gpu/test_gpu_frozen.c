/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frozen weights in codes on a GPU: dequantize has the CPU's bits for both formats and dtypes, for
 * sizes that do not fill a thread block, and for scales of zero and NaN.  "test_gpu_frozen times"
 * prints times for CogVideoX-5B weights, and their fraction of the copy bandwidth.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "core/frozen.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "must.h"

/* A weight in codes and its dequantized value, on host and device. */
struct weight {
    struct dequantize_attr attr;
    int64_t n;
    struct ckpt_view in[2], out[2]; /* on the host, on the device */
};

static void *device_copy(const void *host, size_t bytes)
{
    void *device;
    must(!cudaMalloc(&device, bytes) && !cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice),
         "memory");
    return device;
}

/* N(0, 0.02), with one block of zeros and one NaN block. */
static struct weight make(int format, enum ckpt_dtype dtype, int64_t rows, int64_t cols)
{
    struct weight w = {{format, (int32_t)dtype, rows, cols}, rows * cols, {{NULL}}, {{NULL}}};
    const size_t words = (size_t)frozen_words(format, w.n) * 4;
    const size_t bytes = (size_t)(w.n * ckpt_dtype_size(dtype));
    float *values = malloc((size_t)w.n * sizeof *values);
    must(values, "memory");
    ckpt_fill_normal(7, 0, 1, values, w.n);
    for (int64_t i = 0; i < w.n; i++)
        values[i] *= i / FROZEN_BLOCK == 1 ? 0.f : 0.02f;
    values[2 * FROZEN_BLOCK + 3] = NAN;
    w.in[0].data = calloc(1, words);
    w.out[0].data = calloc(1, bytes);
    must(w.in[0].data && w.out[0].data, "memory");
    frozen_encode(values, w.n, format, w.in[0].data);
    free(values);
    w.in[0].desc = (struct ckpt_desc){
        .dtype = CKPT_I32, .ndim = 1, .shape = {(int64_t)words / 4}, .stride = {1}};
    w.out[0].desc = (struct ckpt_desc){.dtype = dtype, .ndim = 2, .shape = {rows, cols}};
    desc_dense(&w.out[0].desc);
    w.in[1] = w.in[0];
    w.out[1] = w.out[0];
    w.in[1].data = device_copy(w.in[0].data, words);
    w.out[1].data = device_copy(w.out[0].data, bytes);
    return w;
}

static void drop(struct weight *w)
{
    free(w->in[0].data), free(w->out[0].data);
    cudaFree(w->in[1].data), cudaFree(w->out[1].data);
}

static int run(struct weight *w, bool gpu)
{
    struct ckpt_kernel_args a = {.n_in = 1,
                                 .n_out = 1,
                                 .in = &w->in[gpu],
                                 .out = &w->out[gpu],
                                 .attr = &w->attr,
                                 .threads = 1};
    return (gpu ? cuda_dequantize : cpu_dequantize)(&a);
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* Processors differ in the bits of NaN. */
static bool same(const struct weight *w, const void *host, const void *got)
{
    const int64_t size = ckpt_dtype_size(w->out[0].desc.dtype);
    const int64_t odd = 2 * FROZEN_BLOCK * size, behind = 3 * FROZEN_BLOCK * size;
    const char *a = host, *b = got;
    float x;
    if (size == 2)
        ckpt_from_bf16((const uint16_t *)(const void *)(b + odd), &x, 1);
    else
        memcpy(&x, b + odd, sizeof x);
    return isnan(x) && !memcmp(a, b, (size_t)odd) &&
           !memcmp(a + behind, b + behind, (size_t)(w->n * size - behind));
}

static void check(int format, enum ckpt_dtype dtype, int64_t rows, int64_t cols)
{
    struct weight w = make(format, dtype, rows, cols);
    const size_t bytes = (size_t)(w.n * ckpt_dtype_size(dtype));
    void *got = malloc(bytes);
    must(got && !run(&w, false) && !run(&w, true) && !cudaDeviceSynchronize() &&
             !cudaMemcpy(got, w.out[1].data, bytes, cudaMemcpyDeviceToHost),
         "dequantize");
    bool ok = same(&w, w.out[0].data, got);
    if (!ok)
        printf("FAIL %s to %d bytes, %lld x %lld: other bits than on the CPU\n",
               frozen_name(format), (int)ckpt_dtype_size(dtype), (long long)rows, (long long)cols);
    failures += !ok;
    free(got);
    drop(&w);
}

/* ---- times ----------------------------------------------------------------------------------- */

/* Milliseconds of one of many calls, each on memory that is not in a cache. */
static float time_of(struct weight *w, int kind, int64_t bytes)
{
    enum { TIMES = 50 };
    cudaEvent_t begin, end;
    float ms = 0;
    must(!cudaEventCreate(&begin) && !cudaEventCreate(&end), "events");
    for (int i = -3; i < TIMES; i++) {
        if (i == 0)
            cudaEventRecord(begin, NULL);
        if (kind == FROZEN_PLAIN)
            cudaMemcpyAsync(w->out[1].data, (char *)w->out[1].data + bytes / 2, (size_t)bytes / 2,
                            cudaMemcpyDeviceToDevice, NULL);
        else
            run(w, true);
    }
    cudaEventRecord(end, NULL);
    must(!cudaEventSynchronize(end) && !cudaEventElapsedTime(&ms, begin, end), "times");
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return ms / TIMES;
}

/* Larger than the L2 cache, as eight such weights in turn would be. */
static void print_times(int64_t rows, int64_t cols)
{
    for (int format = FROZEN_INT8; format <= FROZEN_NF4; format++) {
        struct weight w = make(format, CKPT_BF16, rows, cols);
        const int64_t written = w.n * 2;
        const double bytes = (double)(written + frozen_words(format, w.n) * 4);
        const double ms = (double)time_of(&w, format, 0);
        const double copy = (double)time_of(&w, FROZEN_PLAIN, written);
        const double rate = bytes / ms * 1e-6, most = (double)written / copy * 1e-6;
        printf("%s, %lld x %lld: %.4f ms, %.0f GB/s, %.0f %% of a copy's %.0f\n",
               frozen_name(format), (long long)rows, (long long)cols, ms, rate, 100 * rate / most,
               most);
        drop(&w);
    }
}

int main(int argc, char **argv)
{
    static const int64_t shapes[][2] = {{64, 64}, {65, 64}, {4160, 1}, {100, 1152}, {3072, 513}};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) || !devices) {
        printf("no GPU\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "times")) {
        print_times(3072, 3072);
        print_times(12288, 3072);
        print_times(8 * 12288, 3072);
        return 0;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int format = FROZEN_INT8; format <= FROZEN_NF4; format++) {
            check(format, CKPT_BF16, shapes[i][0], shapes[i][1]);
            check(format, CKPT_F32, shapes[i][0], shapes[i][1]);
        }
    printf("%s\n", failures ? "failed" : "dequantize has the bits of the CPU");
    return failures ? 1 : 0;
}
