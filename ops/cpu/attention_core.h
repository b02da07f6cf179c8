/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of many heads, forward and backward, tile by tile: the score matrix of a head never
 * exists as a whole.  Self attention and cross attention say where the rows of each head are.
 */
#ifndef CKPT_CPU_ATTENTION_CORE_H
#define CKPT_CPU_ATTENTION_CORE_H

#include "ckpt_op.h"

/* Rows of one head: dense vectors, stride elements apart. */
struct attention_rows {
    void *data;
    enum ckpt_dtype dtype;
    int64_t stride;
};

/* What is added to the scores of one head: elements `row` apart for queries, `column` for keys. */
struct attention_bias {
    const void *data; /* NULL: nothing */
    enum ckpt_dtype dtype;
    int64_t row, column;
};

/* One head of one sequence.  The last four are used going backward only. */
struct attention_head {
    int64_t n_queries, n_keys;
    int64_t n_rows; /* of k and v; those from n_keys on are not read, and get zero gradients */
    struct attention_rows q, k, v, o;
    float *lse; /* log of the sum of exp(score), one per query */
    struct attention_bias bias;
    const int32_t *first; /* per query, first_step apart: the first key that it sees; or NULL */
    int64_t first_step;
    struct attention_rows d_o, dq, dk, dv;
};

struct attention_job {
    int64_t n_heads;           /* over all sequences */
    int64_t group;             /* so many heads in a row share keys and values */
    int64_t n_queries, n_keys; /* of each head, at most */
    int64_t width;             /* D */
    float scale;
    bool causal, hidden;   /* hidden: not every query sees every key */
    int64_t window;        /* see struct attention_attr */
    enum ckpt_dtype dtype; /* of q, k, v and their gradients */
    void (*locate)(const struct ckpt_kernel_args *a, int64_t head, struct attention_head *h);
    const struct ckpt_kernel_args *args;
};

/* Scratch bytes; they follow from the sizes and the dtype of the job. */
int64_t attention_forward_workspace(const struct attention_job *job);
int64_t attention_backward_workspace(const struct attention_job *job);

/* o and lse from q, k, v. */
void attention_forward(const struct attention_job *job, void *workspace);

/* dq, dk, dv from q, k, v, o, lse and d_o.  The heads of a group are the work of one thread, in one
 * order. */
void attention_backward(const struct attention_job *job, void *workspace);

/* The gradient of the bias: dense fp32 matrices [units, n_queries, n_keys], each the sum over the
 * heads of a unit, in order. */
struct attention_fold;
int64_t attention_bias_workspace(const struct attention_job *job, int64_t units);
void attention_bias_backward(const struct attention_job *job, const struct attention_fold *fold,
                             float *out, void *workspace);

#endif
