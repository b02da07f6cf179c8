/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of wide heads: matrix products by cuBLASLt over tiles of queries, whose scores are in
 * scratch memory, and kernels that convert them to probabilities and gradients.  The order of all
 * sums follows from the shapes and the algorithms of the products.
 */
#ifndef CKPT_CUDA_ATTENTION_WIDE_H
#define CKPT_CUDA_ATTENTION_WIDE_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Do shapes, strides and addresses allow it?  The first operands are q, k, v. */
bool cuda_attention_wide_takes(const struct ckpt_kernel_args *a);

int cuda_attention_wide(const struct ckpt_kernel_args *a);
int cuda_attention_wide_dx(const struct ckpt_kernel_args *a);

/* ---- the kernels, in attention_wide.cu ------------------------------------------------------- */

/* A matrix, or several that are `step` elements apart. */
struct wide_matrix {
    void *data;
    int64_t row, step; /* elements from one row, and from one matrix, to the next */
};

/*
 * Scores of n keys: `matrices` times `rows` rows, `pitch` elements apart, a multiple of 8.
 * Elements from n on are undefined. probabilities has the dtype of the operands.
 */
struct wide_scores {
    enum ckpt_dtype dtype;
    int64_t matrices, rows, n, pitch;
    float scale;
    float *scores; /* q k^T, or d_o v^T */
    void *probabilities;
    struct wide_matrix lse; /* fp32; a row is one number */
};

/* probabilities = softmax(scale scores); also stores lse. */
int cuda_wide_softmax(const struct wide_scores *w, void *stream);
/* probabilities = exp(scale scores - lse). */
int cuda_wide_probabilities(const struct wide_scores *w, void *stream);
/* Replaces probabilities by scale times the gradients of the scaled scores; scores: d_o v^T. */
int cuda_wide_gradient(const struct wide_scores *w, void *stream);
/* to [rows, width], of dtype, = the dense fp32 sums; width a multiple of 4. */
int cuda_wide_store(const struct wide_matrix *to, enum ckpt_dtype dtype, const float *sums,
                    int64_t rows, int64_t width, void *stream);

#ifdef __cplusplus
}
#endif
#endif
