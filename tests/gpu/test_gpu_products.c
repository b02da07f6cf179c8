/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The linear ops on a GPU against the CPU's kernels: with the algorithm that is proposed first, of
 * cuBLASLt or libckpt's own, with the fastest measured one, and with the algorithms from measuring,
 * which must give the same bits.  "test_gpu_products times" prints times of a large model's
 * products instead.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/gemm.h"
#include "shapes/linear.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libs.h"
#include "kernels/cuda/workspace.h"
#include "must.h"

enum tensor_name { X, W, B, DY, Y, DX, DW, DB, NARROW_DW, Y_SUM, DX_SUM, TENSORS };

struct shape {
    int64_t rows, inner, cols;
};

struct data {
    struct ckpt_desc desc[TENSORS];
    void *host[TENSORS], *device[TENSORS];
    char *workspace;
};

enum { INPUTS = 4 };

static const struct kind {
    const char *name;
    ckpt_kernel cuda, cpu;
    int n_in;
    enum tensor_name in[INPUTS], out;
    bool adds;
} kinds[] = {
    {"linear", cuda_linear, cpu_linear, 3, {X, W, B}, Y, false},
    {"linear_add", cuda_linear, cpu_linear, 4, {X, W, B, DY}, Y_SUM, false},
    {"linear_dx", cuda_linear_dx, cpu_linear_dx, 2, {DY, W}, DX, false},
    {"linear_dx that adds", cuda_linear_dx, cpu_linear_dx, 3, {DY, W, X}, DX_SUM, false},
    {"linear_dw", cuda_linear_dw, cpu_linear_dw, 2, {DY, X}, DW, true},
    {"linear_dw in the dtype of w", cuda_linear_dw, cpu_linear_dw, 2, {DY, X}, NARROW_DW, false},
    {"column_sum", cuda_column_sum, cpu_column_sum, 1, {DY}, DB, true},
};

enum { KINDS = sizeof kinds / sizeof *kinds, WORKSPACE = 64 << 20 };

static void check(bool ok, const char *what, const struct shape *s, const char *mode)
{
    expect(ok, "%s, %lld x %lld x %lld, %s", what, (long long)s->rows, (long long)s->inner,
           (long long)s->cols, mode);
}

/* ---- operands ------------------------------------------------------------------------------- */

static void describe(struct data *d, const struct shape *s, enum ckpt_dtype dtype)
{
    const int64_t R = s->rows, K = s->inner, N = s->cols;
    const int64_t size[TENSORS][2] = {{R, K}, {N, K}, {N, 0}, {R, N}, {R, N}, {R, K},
                                      {N, K}, {N, 0}, {N, K}, {R, N}, {R, K}};
    for (int i = 0; i < TENSORS; i++) {
        d->desc[i] = (struct ckpt_desc){.dtype = i == DW || i == DB ? CKPT_F32 : dtype,
                                        .ndim = size[i][1] ? 2 : 1,
                                        .shape = {size[i][0], size[i][1]}};
        desc_dense(&d->desc[i]);
    }
}

static void create(struct data *d, const struct shape *s, enum ckpt_dtype dtype)
{
    describe(d, s, dtype);
    for (int i = 0; i < TENSORS; i++) {
        int64_t n = desc_numel(&d->desc[i]), bytes = desc_bytes(&d->desc[i]);
        float *values = malloc((size_t)n * sizeof *values);
        d->host[i] = malloc((size_t)bytes);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(7, 0, (uint32_t)i, values, n);
        if (d->desc[i].dtype == CKPT_BF16)
            ckpt_to_bf16(values, d->host[i], n);
        else
            memcpy(d->host[i], values, (size_t)bytes);
        free(values);
        must(!cudaMalloc(&d->device[i], (size_t)bytes) &&
                 !cudaMemcpy(d->device[i], d->host[i], (size_t)bytes, cudaMemcpyHostToDevice),
             "device memory");
    }
    must(!cudaMalloc((void **)&d->workspace, WORKSPACE), "device memory");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
    cudaFree(d->workspace);
}

static int64_t workspace_of(const struct data *d, const struct kind *k)
{
    const struct ckpt_desc *out = &d->desc[k->out];
    if (k->out == DB)
        return cuda_column_sum_workspace(d->desc[DY].shape[0], out->shape[0]);
    return cuda_gemm_workspace(out->shape[0], out->shape[1]);
}

/* Runs on the device, or on the CPU if libs is NULL. */
static int run(const struct data *d, const struct kind *k, struct cuda_libs *libs, bool accumulate)
{
    void *const *at = libs ? d->device : d->host;
    struct ckpt_view in[INPUTS] = {0}, out = {at[k->out], d->desc[k->out]};
    for (int i = 0; i < k->n_in; i++)
        in[i] = (struct ckpt_view){at[k->in[i]], d->desc[k->in[i]]};
    struct ckpt_kernel_args a = {.n_in = k->n_in,
                                 .n_out = 1,
                                 .in = in,
                                 .out = &out,
                                 .accumulate = accumulate,
                                 .device = libs};
    a.workspace = libs ? d->workspace : calloc(1, WORKSPACE);
    a.workspace_bytes = workspace_of(d, k);
    int rc = (libs ? k->cuda : k->cpu)(&a);
    if (!libs)
        free(a.workspace);
    return rc;
}

/* ---- results -------------------------------------------------------------------------------- */

static double value(const void *p, enum ckpt_dtype dtype, int64_t i)
{
    if (dtype == CKPT_F32)
        return ((const float *)p)[i];
    return float_of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
}

static double relative_error(const void *a, const void *b, const struct ckpt_desc *d)
{
    double error = 0, norm = 0;
    for (int64_t i = 0; i < desc_numel(d); i++) {
        double x = value(a, d->dtype, i), y = value(b, d->dtype, i);
        error += (x - y) * (x - y);
        norm += y * y;
    }
    return sqrt(error / norm);
}

/* Runs every kind once; kinds that can accumulate run once more on top.  Copies outputs to result.
 */
static void run_all(const struct data *d, const struct shape *s, struct cuda_libs *libs,
                    const char *mode, void *result[KINDS])
{
    for (int i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        size_t bytes = (size_t)desc_bytes(&d->desc[k->out]);
        int rc = run(d, k, libs, false);
        if (!rc && k->adds)
            rc = run(d, k, libs, true);
        if (rc)
            printf("%s\n", cuda_libs_reason(libs));
        check(!rc, k->name, s, mode);
        result[i] = malloc(bytes);
        must(result[i] && !cudaMemcpy(result[i], d->device[k->out], bytes, cudaMemcpyDeviceToHost),
             k->name);
        double limit = d->desc[X].dtype == CKPT_F32 ? 1e-5 : 1e-2;
        check(relative_error(result[i], d->host[k->out], &d->desc[k->out]) < limit, k->name, s,
              mode);
    }
}

static void free_results(void *result[KINDS])
{
    for (int i = 0; i < KINDS; i++)
        free(result[i]);
}

/* Passes the algorithms as text; damaged: with another library version, so that they must be
 * rejected. */
static void take_algorithms(struct cuda_libs *from, struct cuda_libs *to, bool damaged)
{
    char *text = NULL;
    size_t size = 0;
    bool is_algorithm;
    FILE *f = open_memstream(&text, &size);
    must(f && !algorithms_write(cuda_libs_algorithms(from), f) && !fclose(f), "algorithms");
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (damaged) /* pin KEY LIBRARY VERSION ... */
            strchr(strchr(strchr(line, ' ') + 1, ' ') + 1, ' ')[1] = '0';
        must(!algorithms_read(cuda_libs_algorithms(to), line, &is_algorithm) && is_algorithm, line);
    }
    free(text);
}

static void check_algorithms(const struct data *d, const struct shape *s,
                             struct cuda_libs *measured, void *expected[KINDS])
{
    void *result[KINDS];
    struct cuda_libs *libs;
    must(!cuda_libs_open(&libs), "libs");
    take_algorithms(measured, libs, false);
    run_all(d, s, libs, "recorded", result);
    check(cuda_libs_algorithms(libs)->ignored == 0, "an algorithm was ignored", s, "recorded");
    for (int i = 0; i < KINDS; i++)
        check(!memcmp(result[i], expected[i], (size_t)desc_bytes(&d->desc[kinds[i].out])),
              kinds[i].name, s, "bits of the recorded run");
    free_results(result);
    cuda_libs_close(libs);
    must(!cuda_libs_open(&libs), "libs");
    take_algorithms(measured, libs, true);
    run_all(d, s, libs, "algorithms of another version", result);
    check(cuda_libs_algorithms(libs)->ignored == cuda_libs_algorithms(libs)->n,
          "algorithms not ignored", s, "algorithms of another version");
    free_results(result);
    cuda_libs_close(libs);
}

/* With so many tiles libckpt's own kernels are the default on Hopper, with and without an addend.
 */
static void check_own(const struct shape *s, struct cuda_libs *libs, enum ckpt_dtype dtype)
{
    enum { ROWS = 4096, LONGEST = 1024 };
    const struct algorithms *algorithms = cuda_libs_algorithms(libs);
    struct cudaDeviceProp device;
    int own = 0, expected = 0;
    must(!cudaGetDeviceProperties(&device, 0), "properties");
    for (int64_t i = 0; i < algorithms->n; i++)
        own += !strncmp(algorithms->data[i].choice, "libckpt ", 8);
    if (dtype == CKPT_BF16 && s->rows >= ROWS && device.major == 9 && device.minor == 0)
        expected = 2 * ((s->inner <= LONGEST) + (s->cols <= LONGEST));
    check(own == expected, "products of our own", s, "proposed");
}

static void test(const struct shape *s, enum ckpt_dtype dtype)
{
    struct data d;
    void *result[KINDS];
    create(&d, s, dtype);
    for (int i = 0; i < KINDS; i++) {
        run(&d, &kinds[i], NULL, false);
        if (kinds[i].adds)
            run(&d, &kinds[i], NULL, true);
    }
    for (int measuring = 0; measuring < 2; measuring++) {
        struct cuda_libs *libs;
        must(!cuda_libs_open(&libs), "libs");
        cuda_libs_set_measuring(libs, measuring, NULL, 0);
        run_all(&d, s, libs, measuring ? "measured" : "proposed", result);
        if (!measuring)
            check_own(s, libs, dtype);
        if (measuring)
            check_algorithms(&d, s, libs, result);
        free_results(result);
        cuda_libs_close(libs);
    }
    destroy(&d);
}

/* ---- times ---------------------------------------------------------------------------------- */

static double milliseconds(const struct data *d, const struct kind *k, struct cuda_libs *libs)
{
    enum { RUNS = 20 };
    cudaEvent_t begin, end;
    float ms = 0;
    run(d, k, libs, false);
    must(!cudaEventCreate(&begin) && !cudaEventCreate(&end) && !cudaEventRecord(begin, NULL),
         "events");
    for (int i = 0; i < RUNS; i++)
        run(d, k, libs, false);
    must(!cudaEventRecord(end, NULL) && !cudaEventSynchronize(end) &&
             !cudaEventElapsedTime(&ms, begin, end),
         k->name);
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return (double)ms / RUNS;
}

static void print_times(const struct shape *s)
{
    struct data d;
    struct cuda_libs *libs[2];
    create(&d, s, CKPT_BF16);
    for (int m = 0; m < 2; m++) {
        must(!cuda_libs_open(&libs[m]), "libs");
        cuda_libs_set_measuring(libs[m], m, NULL, 0);
    }
    for (int i = 0; i < KINDS; i++) {
        double first = milliseconds(&d, &kinds[i], libs[0]);
        double best = milliseconds(&d, &kinds[i], libs[1]);
        bool sum = kinds[i].out == DB;
        double work = sum ? (double)desc_bytes(&d.desc[DY])
                          : 2. * (double)s->rows * (double)s->inner * (double)s->cols;
        printf("%-10s %6lld x %4lld x %4lld  proposed %7.4f ms %6.0f %s  measured %7.4f ms %6.0f\n",
               kinds[i].name, (long long)s->rows, (long long)s->inner, (long long)s->cols, first,
               work / first * (sum ? 1e-6 : 1e-9), sum ? "GB/s   " : "TFLOP/s", best,
               work / best * (sum ? 1e-6 : 1e-9));
    }
    cuda_libs_close(libs[0]);
    cuda_libs_close(libs[1]);
    destroy(&d);
}

int main(int argc, char **argv)
{
    static const struct shape shapes[] = {
        {1, 1, 1},      {7, 5, 3},     {1, 256, 1152},  {3, 33, 77},      {300, 64, 40},
        {513, 72, 136}, {999, 31, 65}, {2048, 96, 192}, {5103, 72, 2312}, {5103, 2312, 72}};
    static const struct shape large[] = {{13800, 1152, 3456}, {13800, 1152, 1152},
                                         {300, 1152, 2304},   {13800, 1152, 4608},
                                         {13800, 4608, 1152}, {1, 1152, 6912}};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    if (argc > 1 && !strcmp(argv[1], "times")) {
        for (size_t i = 0; i < sizeof large / sizeof *large; i++)
            print_times(&large[i]);
        return 0;
    }
    if (blas_open(1)) { /* no CPU device does */
        printf("%s\n", error_get());
        return 1;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        test(&shapes[i], CKPT_F32);
        test(&shapes[i], CKPT_BF16);
    }
    return test_result();
}
