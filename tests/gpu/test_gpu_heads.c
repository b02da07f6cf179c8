/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Norms of short rows, such as a token's heads, and their gradients on a GPU against the CPU's
 * kernels: one row and many, widths that are multiples of 16 bytes and others, dense operands, a
 * part of a projection, also permuted, in both dtypes.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/base.h"
#include "core/bits.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cuda/kernels.h"
#include "must.h"
#include "norm.h"
#include "rope.h"

/* X and DX have `parts` times the size of the others, which are dense; ABSENT: no addend. */
enum tensor_name { X, DY, W, B, TABLE, Y, STATS, DX, DB, DW, TENSORS, ABSENT = TENSORS };

struct shape {
    int64_t outer, tokens, heads, width;
};

enum layout { DENSE, PART, PERMUTED, LAYOUTS };

struct data {
    struct ckpt_desc desc[TENSORS];
    int64_t n[TENSORS]; /* elements in memory */
    void *host[TENSORS], *device[TENSORS];
    void *workspace[2]; /* of the host, of the device */
};

enum { INPUTS = 5, OUTPUTS = 3, WORKSPACE = 16 << 20 };

/* Kinds in order: a gradient reads the statistics that its norm wrote before. */
static const struct kind {
    const char *name;
    ckpt_kernel cuda, cpu;
    int stats; /* numbers a row */
    bool turned;
    enum tensor_name in[INPUTS], out[OUTPUTS];
    int n_in, n_out;
} kinds[] = {
    {"layer_norm", cuda_layer_norm, cpu_layer_norm, 2, false, {X, W, B}, {Y, STATS}, 3, 2},
    {"layer_norm_affine_dx",
     cuda_layer_norm_affine_dx,
     cpu_layer_norm_affine_dx,
     2,
     false,
     {DY, X, W, STATS, ABSENT},
     {DX, DB, DW},
     5,
     3},
    {"rms_norm", cuda_rms_norm, cpu_rms_norm, 1, false, {X, W}, {Y, STATS}, 2, 2},
    {"rms_norm_dx",
     cuda_rms_norm_dx,
     cpu_rms_norm_dx,
     1,
     false,
     {DY, X, W, STATS, ABSENT},
     {DX, DW},
     5,
     2},
    {"rms_norm_rope",
     cuda_rms_norm_rope,
     cpu_rms_norm_rope,
     1,
     true,
     {X, W, TABLE},
     {Y, STATS},
     3,
     2},
    {"rms_norm_rope_dx",
     cuda_rms_norm_rope_dx,
     cpu_rms_norm_rope_dx,
     1,
     true,
     {DY, X, W, STATS, TABLE},
     {DX, DW},
     5,
     2},
};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- operands ------------------------------------------------------------------------------- */

/* [outer, tokens, heads, last] inside rows `parts` times as long; permuted: the first two axes are
 * swapped, in the same memory. */
static struct ckpt_desc rows_of(const struct shape *s, int64_t last, int64_t parts, bool permuted,
                                enum ckpt_dtype dtype)
{
    const int64_t token = parts * s->heads * last;
    const int first = permuted ? 1 : 0, second = 1 - first;
    struct ckpt_desc d = {.dtype = dtype, .ndim = 4};
    d.shape[first] = s->outer, d.stride[first] = s->tokens * token;
    d.shape[second] = s->tokens, d.stride[second] = token;
    d.shape[2] = s->heads, d.stride[2] = last;
    d.shape[3] = last, d.stride[3] = 1;
    return d;
}

static struct ckpt_desc dense(enum ckpt_dtype dtype, int ndim, int64_t a, int64_t b, int64_t c)
{
    struct ckpt_desc d = {.dtype = dtype, .ndim = ndim, .shape = {a, b, c}};
    desc_dense(&d);
    return d;
}

static void describe(struct data *d, const struct shape *s, enum layout layout,
                     enum ckpt_dtype dtype)
{
    const bool permuted = layout == PERMUTED;
    const int64_t parts = layout == DENSE ? 1 : 3, D = s->width;
    d->desc[X] = d->desc[DX] = rows_of(s, D, parts, permuted, dtype);
    d->desc[Y] = d->desc[DY] = rows_of(s, D, 1, permuted, dtype);
    d->desc[STATS] = rows_of(s, 2, 1, permuted, CKPT_F32);
    d->desc[W] = d->desc[B] = dense(dtype, 1, D, 1, 1);
    d->desc[DW] = d->desc[DB] = dense(CKPT_F32, 1, D, 1, 1);
    d->desc[TABLE] = dense(CKPT_F32, 3, s->tokens, D / 2, 2);
    for (int i = 0; i < TENSORS; i++)
        d->n[i] = desc_numel(&d->desc[i]) * (i == X || i == DX ? parts : 1);
}

static void create(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = (size_t)(d->n[i] * ckpt_dtype_size(d->desc[i].dtype));
        float *values = malloc((size_t)d->n[i] * sizeof *values);
        d->host[i] = malloc(bytes);
        must(values && d->host[i], "memory");
        ckpt_fill_normal(7, 0, (uint32_t)i, values, d->n[i]);
        if (d->desc[i].dtype == CKPT_BF16)
            ckpt_to_bf16(values, d->host[i], d->n[i]);
        else
            memcpy(d->host[i], values, bytes);
        free(values);
        must(!cudaMalloc(&d->device[i], bytes) &&
                 !cudaMemcpy(d->device[i], d->host[i], bytes, cudaMemcpyHostToDevice),
             "device memory");
    }
    d->workspace[0] = malloc(WORKSPACE);
    must(d->workspace[0] && !cudaMalloc(&d->workspace[1], WORKSPACE), "workspace");
}

static void destroy(struct data *d)
{
    for (int i = 0; i < TENSORS; i++) {
        free(d->host[i]);
        cudaFree(d->device[i]);
    }
    free(d->workspace[0]);
    cudaFree(d->workspace[1]);
}

/* ---- one kind ------------------------------------------------------------------------------- */

static struct ckpt_view view(const struct data *d, enum tensor_name name, int stats, bool device)
{
    if (name == ABSENT)
        return (struct ckpt_view){NULL, {.ndim = -1}};
    struct ckpt_view v = {device ? d->device[name] : d->host[name], d->desc[name]};
    if (name == STATS && stats == 1) { /* one number a row, in half of the memory */
        v.desc.shape[3] = 1;
        for (int i = 0; i < 3; i++)
            v.desc.stride[i] /= 2;
    }
    return v;
}

static int run(const struct data *d, const struct kind *k, enum layout layout, bool device)
{
    const struct norm_attr norm = {.eps = 1e-5f};
    const struct rms_norm_rope_attr turned = {.eps = 1e-5f, .axis = layout == PERMUTED ? 0 : 1};
    struct ckpt_view in[INPUTS], out[OUTPUTS];
    for (int i = 0; i < k->n_in; i++)
        in[i] = view(d, k->in[i], k->stats, device);
    for (int i = 0; i < k->n_out; i++)
        out[i] = view(d, k->out[i], k->stats, device);
    struct ckpt_kernel_args a = {.n_in = k->n_in,
                                 .n_out = k->n_out,
                                 .in = in,
                                 .out = out,
                                 .attr = k->turned ? (const void *)&turned : &norm,
                                 .workspace = d->workspace[device],
                                 .workspace_bytes = WORKSPACE,
                                 .threads = 1};
    return (device ? k->cuda : k->cpu)(&a);
}

static double value(const void *p, enum ckpt_dtype dtype, int64_t i)
{
    if (dtype == CKPT_F32)
        return ((const float *)p)[i];
    return float_of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
}

/* Compares all memory of a result: bytes between its rows must stay unchanged. */
static void compare(const struct data *d, const struct kind *k, enum tensor_name name,
                    const struct shape *s, enum layout layout)
{
    const enum ckpt_dtype dtype = d->desc[name].dtype;
    const size_t bytes = (size_t)(d->n[name] * ckpt_dtype_size(dtype));
    void *back = malloc(bytes);
    double error = 0, norm = 1e-30;
    must(back && !cudaMemcpy(back, d->device[name], bytes, cudaMemcpyDeviceToHost), k->name);
    for (int64_t i = 0; i < d->n[name]; i++) {
        double x = value(back, dtype, i), y = value(d->host[name], dtype, i);
        error += (x - y) * (x - y);
        norm += y * y;
    }
    free(back);
    if (sqrt(error / norm) < (d->desc[X].dtype == CKPT_F32 ? 1e-5 : 5e-3))
        return;
    printf("FAIL %s, tensor %d, %lld x %lld x %lld x %lld, layout %d: %g\n", k->name, name,
           (long long)s->outer, (long long)s->tokens, (long long)s->heads, (long long)s->width,
           layout, sqrt(error / norm));
    failures++;
}

static void test(const struct shape *s, enum layout layout, enum ckpt_dtype dtype)
{
    struct data d;
    describe(&d, s, layout, dtype);
    create(&d);
    for (int i = 0; i < KINDS; i++) {
        const struct kind *k = &kinds[i];
        if (k->turned && s->width % 2)
            continue;
        must(!run(&d, k, layout, true) && !run(&d, k, layout, false), k->name);
        for (int j = 0; j < k->n_out; j++)
            compare(&d, k, k->out[j], s, layout);
    }
    destroy(&d);
}

int main(void)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 8},   {3, 5, 1, 16},   {1, 3, 5, 11},     {1, 4, 3, 40},  {1, 13, 7, 72},
        {2, 9, 40, 72}, {2, 31, 48, 64}, {1, 100, 21, 128}, {2, 3, 2, 264}, {1, 30, 161, 8},
    };
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || !n) {
        printf("skipped: no GPU\n");
        return 77;
    }
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int layout = 0; layout < LAYOUTS; layout++)
            for (int half = 0; half < 2; half++)
                test(&shapes[i], (enum layout)layout, half ? CKPT_BF16 : CKPT_F32);
    printf("%d differ\n", failures);
    return failures > 0;
}
