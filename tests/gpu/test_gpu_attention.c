/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention forward on a GPU against the CPU's kernel: heads of the widths that have kernels of
 * their own, lengths on both sides of their tiles, causal, windows, grouped heads, several leading
 * axes, operands cut out of one projection, and packed keys whose spare rows are NaN.  Both the
 * kernel that is chosen and our own; ours gives the same bits every time.  "test_gpu_attention 72"
 * looks at that width alone.
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

enum { Q, K, V, LENS, O, LSE, TENSORS, INPUTS = LENS + 1, AGAIN = 20, WORKSPACE = 64 << 20 };

/* How operands lie in memory. */
enum layout { DENSE, FUSED, SWAPPED };

struct shape {
    int64_t outer, inner, queries, keys, heads, shared, width;
    bool causal;
    int64_t window;
    enum layout layout; /* FUSED: q, k and v side by side; SWAPPED: the leading axes */
    int lens[4];        /* packed keys, where the first is not negative */
};

struct data {
    struct ckpt_desc desc[TENSORS];
    void *host[TENSORS], *device[TENSORS];
    int64_t bytes[TENSORS];
};

static int failures;
static struct cuda_libs *libs;
static void *workspace;

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
           "window %lld, layout %d, lens %d\n",
           what, (long long)s->outer, (long long)s->inner, (long long)s->queries,
           (long long)s->keys, (long long)s->heads, (long long)s->shared, (long long)s->width,
           s->causal, (long long)s->window, s->layout, s->lens[0]);
    failures++;
}

/* ---- operands ------------------------------------------------------------------------------- */

static bool is_packed(const struct shape *s)
{
    return s->lens[0] >= 0;
}

/* [outer, inner, rows, heads, width]; SWAPPED: inner before outer in memory; FUSED: one of three
 * groups of heads. */
static struct ckpt_desc rows_desc(const struct shape *s, int64_t rows, int64_t heads, bool fused)
{
    struct ckpt_desc d = {
        .dtype = CKPT_BF16, .ndim = 5, .shape = {s->outer, s->inner, rows, heads, s->width}};
    desc_dense(&d);
    for (int i = 0; fused && i < 3; i++)
        d.stride[i] *= 3;
    if (s->layout == SWAPPED) {
        d.stride[0] = d.stride[1];
        d.stride[1] *= s->outer;
    }
    return d;
}

static void describe(struct data *d, const struct shape *s)
{
    const bool fused = s->layout == FUSED;
    d->desc[Q] = rows_desc(s, s->queries, s->heads, fused);
    d->desc[K] = d->desc[V] = rows_desc(s, s->keys, s->shared, fused);
    d->desc[O] = rows_desc(s, s->queries, s->heads, false);
    d->desc[LSE] = (struct ckpt_desc){
        .dtype = CKPT_F32, .ndim = 4, .shape = {s->outer, s->inner, s->heads, s->queries}};
    desc_dense(&d->desc[LSE]);
    d->desc[LENS] = (struct ckpt_desc){.dtype = CKPT_I32, .ndim = 1, .shape = {s->outer}};
    desc_dense(&d->desc[LENS]);
    if (!is_packed(s))
        return;
    d->desc[K] =
        (struct ckpt_desc){.dtype = CKPT_BF16, .ndim = 3, .shape = {s->keys, s->shared, s->width}};
    desc_dense(&d->desc[K]);
    d->desc[V] = d->desc[K];
    for (int i = Q; i <= O; i += O - Q) { /* one leading axis */
        struct ckpt_desc *q = &d->desc[i];
        memmove(q->shape + 1, q->shape + 2, 3 * sizeof *q->shape);
        q->ndim = 4;
        desc_dense(q);
    }
    d->desc[LSE].ndim = 3;
    memcpy(d->desc[LSE].shape, (int64_t[]){s->outer, s->heads, s->queries}, 3 * sizeof(int64_t));
    desc_dense(&d->desc[LSE]);
}

/* Rows of nobody are NaN: 0xff in every byte. */
static void spoil_spare_rows(struct data *d, const struct shape *s)
{
    int64_t used = 0;
    for (int i = 0; i < s->outer; i++)
        used += s->lens[i];
    used *= 2 * s->shared * s->width;
    for (int i = K; i <= V && used < d->bytes[i]; i++)
        memset((char *)d->host[i] + used, 0xff, (size_t)(d->bytes[i] - used));
}

static void create(struct data *d, const struct shape *s)
{
    describe(d, s);
    for (int i = 0; i < TENSORS; i++) {
        int64_t n = 3 * desc_numel(&d->desc[i]); /* enough for what is fused */
        float *values = malloc((size_t)n * sizeof *values);
        d->bytes[i] =
            (i < LENS && s->layout == FUSED ? n : n / 3) * ckpt_dtype_size(d->desc[i].dtype);
        d->host[i] = calloc(1, (size_t)n * 4);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(11, 0, (uint32_t)i, values, n);
        if (i < LENS)
            ckpt_to_bf16(values, d->host[i], d->bytes[i] / 2);
        free(values);
    }
    if (is_packed(s)) {
        memcpy(d->host[LENS], s->lens, (size_t)s->outer * sizeof(int));
        spoil_spare_rows(d, s);
    }
    for (int i = 0; i < TENSORS; i++)
        must(!cudaMalloc(&d->device[i], (size_t)d->bytes[i]) &&
                 !cudaMemcpy(d->device[i], d->host[i], (size_t)d->bytes[i], cudaMemcpyHostToDevice),
             "device memory");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
}

static int run(const struct data *d, const struct shape *s, ckpt_kernel kernel, bool on_device)
{
    void *const *at = on_device ? d->device : d->host;
    /* As the op records it: of a single key the score has no part. */
    const double scale = s->keys == 1 ? 0 : 1 / sqrt((double)s->width);
    const struct attention_attr attr = {
        .scale = (float)scale, .causal = s->causal, .window = s->window};
    struct ckpt_view in[INPUTS], out[2] = {{at[O], d->desc[O]}, {at[LSE], d->desc[LSE]}};
    for (int i = 0; i < INPUTS; i++)
        in[i] = (struct ckpt_view){at[i], d->desc[i]};
    struct ckpt_kernel_args a = {.n_in = is_packed(s) ? INPUTS : LENS,
                                 .n_out = 2,
                                 .in = in,
                                 .out = out,
                                 .attr = &attr,
                                 .workspace = workspace,
                                 .workspace_bytes = WORKSPACE,
                                 .device = on_device ? libs : NULL,
                                 .threads = 1};
    if (!on_device)
        a.workspace = calloc(1, WORKSPACE);
    int rc = kernel(&a);
    if (!on_device)
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

/* Largest difference; NaN differs. */
static double difference(const void *x, const void *y, const struct ckpt_desc *d)
{
    double most = 0;
    for (int64_t i = 0; i < desc_numel(d); i++) {
        double apart = fabs(value(x, d->dtype, i) - value(y, d->dtype, i));
        if (!(apart <= most))
            most = apart;
    }
    return most;
}

/* o has entries about 1 and 8 bits of mantissa; lse is fp32 of products that are rounded alike. */
static void check_results(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                          const char *what, void *const result[2])
{
    for (int i = 0; i < 2; i++)
        cudaMemset(d->device[O + i], 0xff, (size_t)d->bytes[O + i]);
    check(!run(d, s, kernel, true), what, s);
    for (int i = 0; i < 2; i++)
        must(!cudaMemcpy(result[i], d->device[O + i], (size_t)d->bytes[O + i],
                         cudaMemcpyDeviceToHost),
             what);
    check(difference(result[0], d->host[O], &d->desc[O]) < 0.03, what, s);
    check(difference(result[1], d->host[LSE], &d->desc[LSE]) < 1e-3, what, s);
}

static void check_bits(const struct data *d, const struct shape *s, ckpt_kernel kernel,
                       void *const expected[2])
{
    void *o = malloc((size_t)d->bytes[O]);
    must(o, "memory");
    for (int i = 0; i < AGAIN; i++) {
        cudaMemset(d->device[O], 0xff, (size_t)d->bytes[O]);
        run(d, s, kernel, true);
        must(!cudaMemcpy(o, d->device[O], (size_t)d->bytes[O], cudaMemcpyDeviceToHost), "o");
        check(!memcmp(o, expected[0], (size_t)d->bytes[O]), "bits", s);
    }
    free(o);
}

static void test(const struct shape *s)
{
    struct data d;
    create(&d, s);
    void *result[2] = {malloc((size_t)d.bytes[O]), malloc((size_t)d.bytes[LSE])};
    must(result[0] && result[1], "memory");
    check(!run(&d, s, is_packed(s) ? cpu_cross_attention : cpu_attention, false), "cpu", s);
    if (is_packed(s)) {
        check_results(&d, s, cuda_cross_attention, "cross attention", result);
        check_bits(&d, s, cuda_cross_attention, result);
    } else {
        check_results(&d, s, cuda_attention, "chosen", result);
        check_results(&d, s, cuda_attention_own, "own", result);
        check_bits(&d, s, cuda_attention_own, result);
    }
    free(result[0]);
    free(result[1]);
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
            {1, 2, n, n, 2, 2, width, false, 0, FUSED, {-1}},
            {2, 1, n, m, 4, 2, width, false, 0, DENSE, {-1}},
            {2, 2, n, n, 2, 2, width, true, 0, SWAPPED, {-1}},
            {1, 1, least, most, 4, 1, width, true, 0, DENSE, {-1}},
            {1, 2, n, n, 2, 1, width, true, 1 + n / 3, DENSE, {-1}},
            {3, 1, n, 2 * m + 5, 2, 2, width, false, 0, DENSE, {(int)m, 0, (int)(m / 2 + 1)}},
        };
        for (size_t k = 0; k < sizeof shapes / sizeof *shapes; k++)
            test(&shapes[k]);
    }
    /* More heads than multiprocessors, so that blocks have several items. */
    test(&(struct shape){3, 4, 193, 150, 12, 12, width, false, 0, SWAPPED, {-1}});
    test(&(struct shape){3, 4, 257, 257, 12, 4, width, true, 0, DENSE, {-1}});
}

int main(int argc, char **argv)
{
    const int64_t widths[] = {64, 72, 128};
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || !devices) {
        printf("no GPU here\n");
        return 77;
    }
    must(!blas_open(1), "blas"); /* no CPU device does it */
    must(!cuda_libs_open(&libs) && !cudaMalloc(&workspace, WORKSPACE), "device");
    for (int i = 0; i < 3; i++)
        if (argc < 2 || strtol(argv[1], NULL, 10) == widths[i])
            test_width(widths[i]);
    cuda_libs_close(libs);
    cudaFree(workspace);
    printf("%s\n", failures ? "FAIL" : "ok");
    return failures != 0;
}
