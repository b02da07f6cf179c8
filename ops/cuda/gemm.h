/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrix products by cuBLASLt, or by our own kernel where that is faster as a rule (gemm_plain.h).
 * A product is prepared when it runs for the first time: described, and given an algorithm by its
 * pin, by measuring, by the rule, or as the library proposes (see libs.h).  From then on running it
 * is one call.
 */
#ifndef CKPT_CUDA_GEMM_H
#define CKPT_CUDA_GEMM_H

#include <cublasLt.h>
#include "cpu/gemm.h"
#include "cuda/libs.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A prepared product.  cuBLASLt's matrices are column-major: to it ours are transposed, so that it
 * computes c^T = b^T a^T and its first operand is our b. */
struct product {
    cublasLtMatmulDescOpaque_t task;
    cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* that the algorithm uses */
    bool own;         /* our kernel instead of an algorithm */
    uint64_t key;
    bool spread_bias; /* no algorithm adds this bias: it is copied into c first and added to */
};

/* The largest power of two that divides an address, at most the 256 that cuBLASLt can use. */
static inline uint32_t gemm_alignment(const void *p)
{
    uintptr_t bits = (uintptr_t)p | 256;
    return (uint32_t)(bits & (~bits + 1));
}

/* Many products of one size at once: elements from row to row as the matrices a, b and c are
 * stored, and from one product's to the next's. */
struct gemm_batch {
    int64_t count, row[3], step[3];
};

/* Runs g, its data set, on the stream and with the workspace of a.  Returns 0 or CKPT_EDEVICE. */
int cuda_gemm(const struct ckpt_kernel_args *a, const struct gemm *g);

/* The same for a batch, whose first matrices are those of g; without a bias. */
int cuda_gemm_batch(const struct ckpt_kernel_args *a, const struct gemm *g,
                    const struct gemm_batch *batch);

/* One launch of a prepared product. */
cublasStatus_t gemm_launch(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                           const struct ckpt_kernel_args *a);

/* Chooses the algorithm of a described product, or our kernel where that takes it, and pins it.
 * Returns false where none runs in this workspace and at these addresses. */
bool gemm_choose(cublasLtHandle_t handle, struct product *p, const struct gemm *g,
                 const struct ckpt_kernel_args *a, bool own_takes);

/* dst [rows, cols] = row [cols], all of one dtype.  In column_sum.cu.  Returns 0 or CKPT_EDEVICE.
 */
int cuda_spread_row(void *dst, const void *row, int64_t rows, int64_t cols, enum ckpt_dtype dtype,
                    void *stream);

#ifdef __cplusplus
}
#endif
#endif
