/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of bf16 or 8 bits on Hopper that do GELU or its gradient in their epilogue
 * (gemm_gelu.cu).  All matrices are dense and row-major, at multiples of 16 bytes.  Sums have an
 * order that depends on the sizes alone, and are fp32; those of 8-bit operands keep 14 bits.  The
 * functions have the bits of the ops gelu and gelu_dx.
 */
#ifndef CKPT_CUDA_GEMM_GELU_H
#define CKPT_CUDA_GEMM_GELU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What 8-bit operands are multiplied by, each a float of the device, and where the largest
 * magnitude of a result goes, as bits of an fp32, unless it is NULL.  No scales: operands of bf16.
 */
struct gemm_gelu_fp8 {
    const float *scale[2];
    uint32_t *largest;
};

/* pre [rows, cols] = x [rows, inner] w^T + bias, post = gelu(pre) of the rounded pre; w [cols,
 * inner], bias [cols] or NULL.  pre or post may be NULL: it is not written.  Of 8 bits, both e4m3,
 * post is not written; the largest magnitude is that of it. */
struct gemm_gelu {
    int64_t rows, inner, cols;
    const void *x, *w, *bias;
    void *pre, *post;
    struct gemm_gelu_fp8 fp8;
};

/* dpre [rows, cols] = gelu'(pre) * v, v being the rounded dy [rows, inner] w, w [inner, cols].
 * Where they are not NULL: post = gelu(pre), and sums [cols], fp32, of the rounded dpre over all
 * rows, which need a workspace (cuda_gelu_sums_workspace()).  dpre may be pre.  Of 8 bits, e5m2 and
 * e4m3, w is [cols, inner] and post is not written; the largest magnitude is that of dpre. */
struct gemm_gelu_dx {
    int64_t rows, inner, cols;
    const void *dy, *w, *pre;
    void *dpre, *post;
    float *sums;
    void *workspace;
    struct gemm_gelu_fp8 fp8;
};

/* Whether the current device has these products. */
bool cuda_gemm_gelu_takes(int64_t rows, int64_t inner, int64_t cols);

/* Any sizes of at least 1 on such a device, inner and cols being multiples of 8, inner of 16 where
 * operands have 8 bits.  Return 0 or CKPT_EDEVICE. */
int cuda_gemm_gelu(const struct gemm_gelu *g, void *stream);
int cuda_gemm_gelu_dx(const struct gemm_gelu_dx *g, void *stream);

#ifdef __cplusplus
}
#endif
#endif
