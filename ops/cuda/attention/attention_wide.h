/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of wide heads: matrix products of cuBLASLt over tiles of queries, whose scores lie in
 * scratch memory, and kernels that make probabilities and their gradients of them.  The order of
 * all sums follows from the shapes and the algorithms of the products.
 */
#ifndef CKPT_CUDA_ATTENTION_WIDE_H
#define CKPT_CUDA_ATTENTION_WIDE_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether shapes, strides and addresses allow it; q, k, v first among the operands. */
bool cuda_attention_wide_takes(const struct ckpt_kernel_args *a);

int cuda_attention_wide(const struct ckpt_kernel_args *a);
int cuda_attention_wide_dx(const struct ckpt_kernel_args *a);

/* ---- the kernels, in attention_wide.cu ------------------------------------------------------ */

/* A matrix, or several `step` elements apart. */
struct wide_matrix {
    void *data;
    int64_t row, step; /* elements from row to row, from matrix to matrix */
};

/*
 * Scores of n keys, `matrices` times `rows` rows that lie `pitch` elements apart: multiples of 8.
 * What stands beyond n is anything.  probabilities has the dtype of the operands.
 */
struct wide_scores {
    enum ckpt_dtype dtype;
    int64_t matrices, rows, n, pitch;
    float scale;
    float *scores; /* q k^T, or d_o v^T */
    void *probabilities;
    struct wide_matrix lse; /* fp32; a row is one number */
};

/* probabilities = softmax(scale scores), and lse. */
int cuda_wide_softmax(const struct wide_scores *w, void *stream);
/* probabilities = exp(scale scores - lse). */
int cuda_wide_probabilities(const struct wide_scores *w, void *stream);
/* probabilities become scale times the gradient of the scaled scores; scores: d_o v^T. */
int cuda_wide_gradient(const struct wide_scores *w, void *stream);
/* to [rows, width], of dtype, = the dense fp32 sums; width a multiple of 4. */
int cuda_wide_store(const struct wide_matrix *to, enum ckpt_dtype dtype, const float *sums,
                    int64_t rows, int64_t width, void *stream);

#ifdef __cplusplus
}
#endif
#endif
