/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiled attention over many heads, forward and backward.  The score matrix of a head is never
 * materialised.  Self attention and cross attention provide the rows of each head.
 */
#ifndef CKPT_CPU_ATTENTION_CORE_H
#define CKPT_CPU_ATTENTION_CORE_H

#include "ckpt_op.h"

/* Rows of one head: dense vectors, `stride` elements apart. */
struct attention_rows {
    void *data;
    enum ckpt_dtype dtype;
    int64_t stride;
};

/* The bias of the scores of one head: strides `row` over queries and `column` over keys, in
 * elements. */
struct attention_bias {
    const void *data; /* NULL: no bias */
    enum ckpt_dtype dtype;
    int64_t row, column;
};

/* One head of one sequence.  The members after first_step are for the backward pass. */
struct attention_head {
    int64_t n_queries, n_keys;
    int64_t n_rows; /* rows of k and v; rows from n_keys on are not read and get gradient 0 */
    struct attention_rows q, k, v, o;
    float *lse; /* log-sum-exp of the scores, one per query */
    struct attention_bias bias;
    const int32_t *first; /* per query, stride first_step: its first visible key; NULL: key 0 */
    int64_t first_step;
    struct attention_rows d_o, dq, dk, dv;
};

struct attention_job {
    int64_t n_heads;           /* over all sequences */
    int64_t group;             /* number of consecutive heads that share keys and values */
    int64_t n_queries, n_keys; /* maximum over the heads */
    int64_t width;             /* D */
    float scale;
    bool causal, hidden;   /* hidden: some query does not see some key */
    int64_t window;        /* see struct attention_attr */
    enum ckpt_dtype dtype; /* of q, k, v and their gradients */
    void (*locate)(const struct ckpt_kernel_args *a, int64_t head, struct attention_head *h);
    const struct ckpt_kernel_args *args;
};

/* Workspace in bytes, a function of the sizes and the dtype of the job. */
int64_t attention_forward_workspace(const struct attention_job *job);
int64_t attention_backward_workspace(const struct attention_job *job);

/* Computes o and lse from q, k, v. */
void attention_forward(const struct attention_job *job, void *workspace);

/* Computes dq, dk, dv from q, k, v, o, lse and d_o.  One thread processes the heads of a group in
 * order. */
void attention_backward(const struct attention_job *job, void *workspace);

/* Computes the gradient of the bias: dense fp32 matrices [units, n_queries, n_keys], each the sum
 * over the heads of a unit, in order. */
struct attention_fold;
int64_t attention_bias_workspace(const struct attention_job *job, int64_t units);
void attention_bias_backward(const struct attention_job *job, const struct attention_fold *fold,
                             float *out, void *workspace);

#endif
