/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 or 8-bit products on Hopper that compute GELU or its gradient in their epilogue
 * (gemm_gelu.cu).  All matrices are dense and row-major, aligned to 16 bytes.  Sums are fp32, in an
 * order that depends on the sizes alone; sums of 8-bit operands keep 14 bits.  The functions have
 * the bits of the ops gelu and gelu_dx.
 */
#ifndef CKPT_CUDA_GEMM_GELU_H
#define CKPT_CUDA_GEMM_GELU_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The scales of 8-bit operands, device addresses of a float each; and the device address for the
 * largest magnitude of a result, as the bits of an fp32, or NULL. bf16 operands have no scales. */
struct gemm_gelu_fp8 {
    const float *scale[2];
    uint32_t *largest;
};

/* pre [rows, cols] = x [rows, inner] w^T + bias, post = gelu(pre) of the rounded pre; w [cols,
 * inner], bias [cols] or NULL.  A result that is NULL is not written.  With 8-bit operands, both
 * e4m3, post is not written, but fp8.largest receives its largest magnitude. */
struct gemm_gelu {
    int64_t rows, inner, cols;
    const void *x, *w, *bias;
    void *pre, *post;
    struct gemm_gelu_fp8 fp8;
};

/* dpre [rows, cols] = gelu'(pre) * v with v = dy [rows, inner] w, rounded; w [inner, cols].  If
 * they are not NULL: post = gelu(pre), and sums [cols], the fp32 sums of the rounded dpre over all
 * rows, which need a workspace (cuda_gelu_sums_workspace()). dpre may be pre.  With 8-bit operands,
 * e5m2 and e4m3, w is [cols, inner] and post is not written; fp8.largest is of dpre. */
struct gemm_gelu_dx {
    int64_t rows, inner, cols;
    const void *dy, *w, *pre;
    void *dpre, *post;
    float *sums;
    void *workspace;
    struct gemm_gelu_fp8 fp8;
};

/* Can the current device compute these products? */
bool cuda_gemm_gelu_takes(int64_t rows, int64_t inner, int64_t cols);

/* All sizes must be at least 1, inner and cols multiples of 8 (inner of 16 for 8-bit operands), and
 * cuda_gemm_gelu_takes true.  Return 0 or CKPT_EDEVICE. */
int cuda_gemm_gelu(const struct gemm_gelu *g, void *stream);
int cuda_gemm_gelu_dx(const struct gemm_gelu_dx *g, void *stream);

#ifdef __cplusplus
}
#endif
#endif
