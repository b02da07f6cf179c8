/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors with a copy on the host and one on the GPU, kernels that run on either, and 8-bit copies.
 */
#ifndef CKPT_TESTS_FP8_BUFFERS_H
#define CKPT_TESTS_FP8_BUFFERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "kernels/cpu/blas.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/gemm.h"
#include "shapes/linear.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/libs.h"
#include "kernels/cuda/workspace.h"
#include "fp8.h"
#include "must.h"
#include "norm.h"

enum { WORKSPACE = 64 << 20, OPERANDS = FP8_INPUTS + 3 };

/* ---- buffers on host and GPU ----------------------------------------------------------------- */

struct buffer {
    struct ckpt_desc desc;
    void *host, *device;
};

static struct buffer make(enum ckpt_dtype dtype, int ndim, int64_t rows, int64_t cols)
{
    struct buffer b = {.desc = {.dtype = dtype, .ndim = ndim, .shape = {rows, cols}}};
    desc_dense(&b.desc);
    b.host = calloc(1, (size_t)desc_bytes(&b.desc));
    must(b.host && !cudaMalloc(&b.device, (size_t)desc_bytes(&b.desc)) &&
             !cudaMemset(b.device, 0xa5, (size_t)desc_bytes(&b.desc)),
         "memory");
    return b;
}

static void drop(struct buffer *b)
{
    free(b->host);
    cudaFree(b->device);
}

static void send(const struct buffer *b)
{
    must(!cudaMemcpy(b->device, b->host, (size_t)desc_bytes(&b->desc), cudaMemcpyHostToDevice),
         "a copy");
}

/* N(0, scale) in the given dtype, on host and GPU. */
static struct buffer draw(enum ckpt_dtype dtype, int ndim, int64_t rows, int64_t cols,
                          uint32_t stream, float scale)
{
    struct buffer b = make(dtype, ndim, rows, cols);
    const int64_t n = desc_numel(&b.desc);
    float *x = malloc((size_t)n * sizeof *x);
    must(x, "memory");
    ckpt_fill_normal(7, 0, stream, x, n);
    for (int64_t i = 0; i < n; i++)
        x[i] *= scale;
    cpu_store(b.host, x, dtype, n);
    free(x);
    send(&b);
    return b;
}

/* Runs a kernel on the CPU (libs NULL) or on the GPU.  Absent operands are not passed.  extra: the
 * last outputs (ops/extra.h). */
static int run_extra(ckpt_kernel kernel, struct cuda_libs *libs, const void *attr, int n_in,
                     int n_out, const struct buffer *const *operand, uint32_t extra,
                     bool accumulate)
{
    static void *scratch[2];
    struct ckpt_view views[OPERANDS] = {{NULL}};
    for (int i = 0; i < n_in + n_out; i++) {
        views[i].desc.ndim = -1;
        if (operand[i])
            views[i] =
                (struct ckpt_view){libs ? operand[i]->device : operand[i]->host, operand[i]->desc};
    }
    if (!scratch[0])
        must((scratch[0] = calloc(1, WORKSPACE)) && !cudaMalloc(&scratch[1], WORKSPACE), "scratch");
    struct ckpt_kernel_args a = {.n_in = n_in,
                                 .n_out = n_out,
                                 .extra = extra,
                                 .in = views,
                                 .out = views + n_in,
                                 .attr = attr,
                                 .workspace = scratch[libs != NULL],
                                 .workspace_bytes = 32 << 20,
                                 .accumulate = accumulate,
                                 .device = libs};
    return kernel(&a);
}

static int run(ckpt_kernel kernel, struct cuda_libs *libs, const void *attr, int n_in, int n_out,
               const struct buffer *const *operand, bool accumulate)
{
    return run_extra(kernel, libs, attr, n_in, n_out, operand, 0, accumulate);
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct copies {
    struct buffer scale, by_rows, by_columns;
};

/* Selects a kind of fill by the number of rows, so that tests use both kinds. */
static int fill_of(int64_t rows)
{
    return rows % 3 || rows > 1000 ? FP8_LINE : FP8_SIDE;
}

static struct to_fp8_attr attr_of(const struct copies *c, int64_t rows, int which)
{
    return (struct to_fp8_attr){
        .dtype = c->by_rows.desc.dtype, .copies = which, .fill = fill_of(rows)};
}

static struct copies make_copies(const struct ckpt_desc *x, enum ckpt_dtype dtype)
{
    const int64_t rows = x->shape[0], cols = x->shape[1];
    struct copies c = {.scale = make(CKPT_F32, 0, 0, 0), .by_rows = make(dtype, 2, rows, cols)};
    const struct to_fp8_attr attr = attr_of(&c, rows, 0);
    c.by_columns = make(dtype, 2, cols, fp8_pitch(rows, &attr));
    return c;
}

static void drop_copies(struct copies *c)
{
    drop(&c->scale);
    drop(&c->by_rows);
    drop(&c->by_columns);
}

static int find_largest(const struct buffer *x, const struct buffer *most, int source,
                        struct cuda_libs *libs)
{
    const struct to_fp8_largest_attr attr = {source};
    const struct buffer *operand[] = {x, most};
    return run(libs ? cuda_to_fp8_largest : cpu_to_fp8_largest, libs, &attr, 1, 1, operand, false);
}

/* most: buffer with the largest magnitude of x; NULL: it is computed. */
static int round_to(const struct buffer *x, const struct buffer *most, const struct copies *c,
                    struct cuda_libs *libs, int which)
{
    static struct buffer found;
    const struct to_fp8_attr attr = attr_of(c, x->desc.shape[0], which);
    if (!found.host)
        found = make(CKPT_F32, 0, 0, 0);
    if (!most && find_largest(x, most = &found, FP8_OPERAND, libs))
        return 1;
    const struct buffer *operand[5] = {x, most, &c->scale};
    int n = 3;
    if (which & FP8_ROWS)
        operand[n++] = &c->by_rows;
    if (which & FP8_COLUMNS)
        operand[n++] = &c->by_columns;
    return run(libs ? cuda_to_fp8 : cpu_to_fp8, libs, &attr, 2, n - 2, operand, false);
}

static void fill_copies(const struct buffer *x, const struct buffer *most, const struct copies *c,
                        struct cuda_libs *libs, int which)
{
    must(!round_to(x, most, c, libs, which), "to_fp8");
}

static bool same(const struct buffer *b)
{
    const size_t bytes = (size_t)desc_bytes(&b->desc);
    void *got = malloc(bytes);
    must(got && !cudaMemcpy(got, b->device, bytes, cudaMemcpyDeviceToHost), "a copy");
    bool ok = !memcmp(got, b->host, bytes);
    free(got);
    return ok;
}

/* The relative error, a root mean square. */
static double error_of(const struct buffer *b)
{
    const int64_t n = desc_numel(&b->desc);
    const size_t bytes = (size_t)desc_bytes(&b->desc);
    void *got = malloc(bytes);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    double square = 0, norm = 0;
    must(got && x && y && !cudaMemcpy(got, b->device, bytes, cudaMemcpyDeviceToHost), "a copy");
    cpu_load(x, b->host, b->desc.dtype, n);
    cpu_load(y, got, b->desc.dtype, n);
    for (int64_t i = 0; i < n; i++) {
        square += (double)(y[i] - x[i]) * (double)(y[i] - x[i]);
        norm += (double)x[i] * (double)x[i];
    }
    free(got), free(x), free(y);
    return sqrt(square / norm);
}

#endif
