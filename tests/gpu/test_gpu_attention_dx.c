/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention backward on a GPU against the CPU's kernel: heads of the widths that have kernels of
 * their own, lengths on both sides of their tiles, fewer and more queries than keys, causal,
 * windows, grouped heads, leading axes in either order.  Both the kernel that is chosen and our
 * own.  Ours gives the same bits every time, with copies beside it, and writes nothing behind the
 * scratch that shapes say it has.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "core/bits.h"
#include "cpu/blas.h"
#include "cpu/kernels.h"
#include "cuda/attention/attention_core.h"
#include "cuda/kernels.h"
#include "cuda/libs.h"
#include "cuda/workspace.h"

enum { Q, K, V, O, LSE, D_O, DQ, DK, DV, TENSORS, INPUTS = DQ, RESULTS = TENSORS - DQ };
enum { AGAIN = 20, GUARD = 4096, BESIDE = 32 << 20, SCRATCH = 64 << 20 };

struct shape {
    int64_t outer, inner, queries, keys, heads, shared, width;
    bool causal, swapped; /* swapped: the leading axes */
    int64_t window;
};

struct data {
    struct ckpt_desc desc[TENSORS];
    void *host[TENSORS], *device[TENSORS];
    int64_t bytes[TENSORS];
    char *workspace;
    int64_t workspace_bytes;
};

static int failures;
static struct cuda_libs *libs;
static cudaStream_t stream, other;
static char *beside;

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

static void check(bool ok, const char *what, const struct shape *s)
{
    if (ok)
        return;
    printf("FAIL %s: [%lld, %lld], %lld x %lld, heads %lld of %lld, width %lld, causal %d, "
           "window %lld, swapped %d\n",
           what, (long long)s->outer, (long long)s->inner, (long long)s->queries,
           (long long)s->keys, (long long)s->heads, (long long)s->shared, (long long)s->width,
           s->causal, (long long)s->window, s->swapped);
    failures++;
}

/* ---- operands ------------------------------------------------------------------------------- */

/* [outer, inner, rows, heads, width]. */
static struct ckpt_desc rows_desc(const struct shape *s, int64_t rows, int64_t heads)
{
    struct ckpt_desc d = {
        .dtype = CKPT_BF16, .ndim = 5, .shape = {s->outer, s->inner, rows, heads, s->width}};
    desc_dense(&d);
    if (s->swapped) {
        d.stride[0] = d.stride[1];
        d.stride[1] *= s->outer;
    }
    return d;
}

static void describe(struct data *d, const struct shape *s)
{
    d->desc[Q] = d->desc[O] = d->desc[D_O] = d->desc[DQ] = rows_desc(s, s->queries, s->heads);
    d->desc[K] = d->desc[V] = d->desc[DK] = d->desc[DV] = rows_desc(s, s->keys, s->shared);
    d->desc[LSE] = (struct ckpt_desc){
        .dtype = CKPT_F32, .ndim = 4, .shape = {s->outer, s->inner, s->heads, s->queries}};
    desc_dense(&d->desc[LSE]);
}

static int call(const struct data *d, const struct shape *s, ckpt_kernel kernel, bool forward,
                bool on_device)
{
    void *const *at = on_device ? d->device : d->host;
    const struct attention_attr attr = {
        .scale = (float)(1 / sqrt((double)s->width)), .causal = s->causal, .window = s->window};
    struct ckpt_view view[TENSORS];
    for (int i = 0; i < TENSORS; i++)
        view[i] = (struct ckpt_view){at[i], d->desc[i]};
    struct ckpt_kernel_args a = {.n_in = forward ? O : INPUTS,
                                 .n_out = forward ? 2 : RESULTS,
                                 .in = view,
                                 .out = view + (forward ? O : DQ),
                                 .attr = &attr,
                                 .workspace = d->workspace,
                                 .workspace_bytes = d->workspace_bytes,
                                 .device = on_device ? libs : NULL,
                                 .stream = on_device ? stream : NULL,
                                 .threads = 1};
    if (!on_device) {
        a.workspace = calloc(1, SCRATCH);
        a.workspace_bytes = SCRATCH;
    }
    int rc = kernel(&a);
    if (!on_device)
        free(a.workspace);
    return rc;
}

static void create(struct data *d, const struct shape *s)
{
    describe(d, s);
    d->workspace_bytes = cuda_attention_dx_workspace(&d->desc[Q], &d->desc[K]);
    for (int i = 0; i < TENSORS; i++) {
        const int64_t n = desc_numel(&d->desc[i]);
        float *values = malloc((size_t)n * sizeof *values);
        d->bytes[i] = n * ckpt_dtype_size(d->desc[i].dtype);
        d->host[i] = calloc(1, (size_t)d->bytes[i]);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(17, 0, (uint32_t)i, values, n);
        if (i <= V || i == D_O)
            ckpt_to_bf16(values, d->host[i], n);
        free(values);
    }
    check(!call(d, s, cpu_attention, true, false), "cpu forward", s);
    check(!call(d, s, cpu_attention_dx, false, false), "cpu backward", s);
    for (int i = 0; i < TENSORS; i++)
        must(!cudaMalloc(&d->device[i], (size_t)d->bytes[i]) &&
                 !cudaMemcpy(d->device[i], d->host[i], (size_t)d->bytes[i], cudaMemcpyHostToDevice),
             "device memory");
    must(!cudaMalloc((void **)&d->workspace, (size_t)d->workspace_bytes + GUARD), "workspace");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
    cudaFree(d->workspace);
}

/* ---- results -------------------------------------------------------------------------------- */

static double value(const void *p, int64_t i)
{
    return float_of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
}

/* Of the difference to what is expected, against that; NaN stays. */
static double relative(const void *x, const void *expected, int64_t n)
{
    double apart = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double y = value(expected, i), e = value(x, i) - y;
        apart += e * e;
        size += y * y;
    }
    return size > 0 ? sqrt(apart / size) : apart;
}

static void run(const struct data *d, const struct shape *s, ckpt_kernel kernel, const char *what,
                void *const result[RESULTS])
{
    char guard[GUARD];
    for (int i = DQ; i < TENSORS; i++)
        must(!cudaMemset(d->device[i], 0xff, (size_t)d->bytes[i]), what);
    must(!cudaMemset(d->workspace, 0xff, (size_t)d->workspace_bytes + GUARD), what);
    must(!cudaDeviceSynchronize(), what);
    cudaMemcpyAsync(beside, beside + BESIDE, BESIDE, cudaMemcpyDeviceToDevice, other);
    check(!call(d, s, kernel, false, true), what, s);
    must(!cudaDeviceSynchronize(), what);
    for (int i = 0; i < RESULTS; i++)
        must(!cudaMemcpy(result[i], d->device[DQ + i], (size_t)d->bytes[DQ + i],
                         cudaMemcpyDeviceToHost),
             what);
    must(!cudaMemcpy(guard, d->workspace + d->workspace_bytes, GUARD, cudaMemcpyDeviceToHost),
         what);
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != (char)0xff) {
            check(false, "scratch", s);
            break;
        }
}

/* Entries have 8 bits of mantissa, and so have the factors of their products. */
static void check_results(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                          const char *what, void *const result[RESULTS])
{
    static const char *const name[RESULTS] = {"dq", "dk", "dv"};
    run(d, s, kernel, what, result);
    for (int i = 0; i < RESULTS; i++) {
        const double apart = relative(result[i], d->host[DQ + i], desc_numel(&d->desc[DQ + i]));
        check(apart < 0.012, name[i], s);
        if (!(apart < 0.012))
            printf("%s: %g\n", what, apart);
    }
}

static void check_bits(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                       void *const expected[RESULTS], int times)
{
    void *again[RESULTS];
    for (int i = 0; i < RESULTS; i++)
        must((again[i] = malloc((size_t)d->bytes[DQ + i])) != NULL, "memory");
    for (int k = 0; k < times; k++) {
        run(d, s, kernel, "again", again);
        for (int i = 0; i < RESULTS; i++)
            check(!memcmp(again[i], expected[i], (size_t)d->bytes[DQ + i]), "bits", s);
    }
    for (int i = 0; i < RESULTS; i++)
        free(again[i]);
}

static void test(const struct shape *s, int times)
{
    struct data d;
    void *result[RESULTS];
    create(&d, s);
    for (int i = 0; i < RESULTS; i++)
        must((result[i] = malloc((size_t)d.bytes[DQ + i])) != NULL, "memory");
    check_results(&d, s, cuda_attention_dx, "chosen", result);
    check_results(&d, s, cuda_attention_own_dx, "own", result);
    check_bits(&d, s, cuda_attention_own_dx, result, times);
    for (int i = 0; i < RESULTS; i++)
        free(result[i]);
    destroy(&d);
}

/* ---- shapes --------------------------------------------------------------------------------- */

static void test_width(int64_t width)
{
    static const int64_t lengths[] = {1, 63, 65, 119, 184, 185, 920, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const int64_t n = lengths[i], m = lengths[(i + 3) % 8];
        const int64_t most = n > m ? n : m, least = n < m ? n : m;
        const struct shape shapes[] = {
            {2, 1, n, m, 4, 2, width, false, false, 0},
            {2, 2, n, n, 2, 2, width, true, true, 0},
            {1, 1, least, most, 4, 1, width, true, false, 0},
            {1, 1, most, least, 2, 1, width, true, false, 0},
            {1, 2, n, n, 2, 1, width, true, false, 1 + n / 3},
            {1, 1, n, n, 2, 2, width, true, false, 1},
        };
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            test(&shapes[k], 2);
    }
    /* More blocks than multiprocessors, so that some wait for others that are long under way. */
    test(&(struct shape){3, 5, 300, 920, 16, 16, width, false, true, 0}, AGAIN);
    test(&(struct shape){3, 5, 515, 515, 16, 4, width, true, false, 0}, AGAIN);
    /* One head alone, whose queries are cut into chunks. */
    test(&(struct shape){1, 1, 2100, 200, 1, 1, width, false, false, 0}, AGAIN);
}

int main(void)
{
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    must(!blas_open(1), "blas"); /* no CPU device does it */
    must(!cuda_libs_open(&libs) && !cudaStreamCreate(&stream) && !cudaStreamCreate(&other) &&
             !cudaMalloc((void **)&beside, 2 * BESIDE),
         "device");
    test_width(64);
    test_width(72);
    test_width(128);
    cuda_libs_close(libs);
    printf("%s\n", failures ? "FAIL" : "ok");
    return failures != 0;
}
