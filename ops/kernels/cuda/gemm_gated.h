/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bf16 products on Hopper that compute a gate, h = silu(gate) up, or its gradient in their epilogue
 * (gemm_gated.cu).  All matrices are dense and row-major, aligned to 16 bytes.  Sums are fp32, in
 * an order that depends on the sizes alone.  Values are rounded like those of the separate ops
 * silu, silu_dx and mul.
 */
#ifndef CKPT_CUDA_GEMM_GATED_H
#define CKPT_CUDA_GEMM_GATED_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gate [rows, cols] = x [rows, inner] wg^T, up = x wu^T, h = silu(gate) up; wg, wu [cols, inner].
 * A result that is NULL is not written. */
struct gemm_gated {
    int64_t rows, inner, cols;
    const void *x, *wg, *wu;
    void *gate, *up, *h;
};

/* With dh = dy [rows, inner] w, rounded, w [inner, cols], the gradients of h's operands: dgate
 * [rows, cols] = silu_dx(dh up, gate), dup = dh silu(gate).  Also recomputes h unless it is NULL.
 * dgate may be gate, dup may be up. */
struct gemm_gated_dx {
    int64_t rows, inner, cols;
    const void *dy, *w, *gate, *up;
    void *dgate, *dup, *h;
};

/* Can the current device compute these products? */
bool cuda_gemm_gated_takes(int64_t rows, int64_t inner, int64_t cols);

/* All sizes must be at least 1, inner and cols multiples of 8, and cuda_gemm_gated_takes true.
 * Return 0 or CKPT_EDEVICE. */
int cuda_gemm_gated(const struct gemm_gated *g, void *stream);
int cuda_gemm_gated_dx(const struct gemm_gated_dx *g, void *stream);

#ifdef __cplusplus
}
#endif
#endif
