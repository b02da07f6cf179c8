/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by cuBLASLt, or by libckpt's kernel where that is usually faster (gemm_plain.h).
 * The first run of a product prepares it: it is described, and its algorithm is a recorded choice,
 * by measuring, by a rule, or by cuBLASLt's heuristics (see libs.h).  Later runs are a single call.
 */
#ifndef CKPT_CUDA_GEMM_H
#define CKPT_CUDA_GEMM_H

#include <cublasLt.h>
#include "shapes/gemm.h"
#include "kernels/cuda/libs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A prepared product. cuBLASLt's matrices are column-major, so libckpt's are transposed for it: it
 * computes c^T = b^T a^T, and its first operand is b. */
struct product {
    cublasLtMatmulDescOpaque_t task;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes that the algorithm uses */
    bool own;         /* libckpt's kernel instead of cuBLASLt */
    uint64_t key;
    bool spread_bias; /* no algorithm adds this bias: it is copied to all rows of c first, and the
                         product adds to c */
};

/* The largest power of two that divides an address, at most 256, beyond which cuBLASLt has no use
 * for it. */
static inline uint32_t gemm_alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* A batch of products of one size. row[i], step[i]: elements from one row, and from one product, to
 * the next in matrix a, b or c as it is stored. */
struct gemm_batch {
    int64_t count, row[3], step[3];
};

/* Runs g on a's stream, with a's workspace.  Returns 0 or CKPT_EDEVICE. */
int cuda_gemm(const struct ckpt_kernel_args *a, const struct gemm *g);

/* The same for a batch; g describes the first product, without a bias. */
int cuda_gemm_batch(const struct ckpt_kernel_args *a, const struct gemm *g,
                    const struct gemm_batch *batch);

/* Launches a prepared product. */
cublasStatus_t gemm_launch(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                           const struct ckpt_kernel_args *a);

/* Selects the algorithm of a described product, or libckpt's kernel if own_takes, and records it.
 * Returns false if none runs with this workspace and these addresses. */
bool gemm_choose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                 const struct ckpt_kernel_args *a, bool own_takes);

/* dst [rows, cols] = row [cols], all of one dtype.  Defined in column_sum.cu.  Returns 0 or
 * CKPT_EDEVICE. */
int cuda_spread_row(void *dst, const void *row, int64_t rows, int64_t cols, enum ckpt_dtype dtype,
                    void *stream);

#ifdef __cplusplus
}
#endif
#endif
