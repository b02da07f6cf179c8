/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that are on the host and on the GPU, and kernels that run on either. */
#ifndef CKPT_TESTS_FP8_BUFFERS_H
#define CKPT_TESTS_FP8_BUFFERS_H

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cuda_runtime_api.h>
#include "ckpt_tools.h"
#include "core/fp8.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cuda/gemm.h"
#include "cuda/kernels.h"
#include "cuda/libs.h"
#include "cuda/workspace.h"
#include "fp8.h"

enum { WORKSPACE = 64 << 20, OPERANDS = FP8_INPUTS + 3 };

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

/* ---- buffers on both ------------------------------------------------------------------------- */

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

/* N(0, scale) in its dtype, on both. */
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

/* Runs a kernel on the CPU, where libs is NULL, or on the GPU.  Absent operands have no place. */
static int run(ckpt_kernel kernel, struct cuda_libs *libs, const void *attr, int n_in, int n_out,
               const struct buffer *const *operand, bool accumulate)
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
                                 .in = views,
                                 .out = views + n_in,
                                 .attr = attr,
                                 .workspace = scratch[libs != NULL],
                                 .workspace_bytes = 32 << 20,
                                 .accumulate = accumulate,
                                 .device = libs};
    return kernel(&a);
}

#endif
