/* SPDX-License-Identifier: Apache-2.0 */
/* The op table: every op of the library, for its gradient rules and for the bench tool. */
#ifndef CKPT_OPS_OPS_H
#define CKPT_OPS_OPS_H

#include "core/base.h"

/* One op_<name> per op; one file per family in ops/, kernels in ops/cpu and ops/cuda. */
#define OPS(X)                                                                                     \
    X(linear)                                                                                      \
    X(linear_dx)                                                                                   \
    X(linear_dw)                                                                                   \
    X(linear_gelu)                                                                                 \
    X(linear_dx_gelu)                                                                              \
    X(linear_gated)                                                                                \
    X(linear_dx_gated)                                                                             \
    X(to_fp8)                                                                                      \
    X(to_fp8_largest)                                                                              \
    X(to_fp8_blocks)                                                                               \
    X(linear_fp8)                                                                                  \
    X(linear_fp8_dx)                                                                               \
    X(linear_fp8_dx_gelu)                                                                          \
    X(linear_fp8_dw)                                                                               \
    X(dequantize)                                                                                  \
    X(to_int8)                                                                                     \
    X(from_int8)                                                                                   \
    X(column_sum)                                                                                  \
    X(add)                                                                                         \
    X(sub)                                                                                         \
    X(mul)                                                                                         \
    X(affine)                                                                                      \
    X(where) X(sum_to) X(accumulate) X(accumulate_narrow) X(gelu) X(gelu_dx) X(gelu_dx_sums)       \
        X(silu) X(silu_dx) X(layer_norm) X(layer_norm_dx) X(rms_norm) X(rms_norm_dx) X(modulate)   \
            X(modulate_dx) X(gated_residual) X(layer_norm_modulate) X(layer_norm_modulate_dx)      \
                X(rms_norm_rope) X(rms_norm_rope_dx) X(gated_residual_dx) X(rope) X(attention)     \
                    X(attention_dx) X(cross_attention) X(cross_attention_dx) X(pack) X(unpack)     \
                        X(timestep_embedding) X(patchify) X(unpatchify) X(reshape) X(permute)      \
                            X(slice) X(split) X(concat) X(join) X(copy) X(pad) X(cast) X(sum)      \
                                X(broadcast) X(randn) X(fill) X(mse) X(mse_dx) X(cross_entropy)    \
                                    X(cross_entropy_dx) X(sum_squares) X(clip_coefficient)         \
                                        X(adamw) X(sgd) X(lion) X(step) X(assign) X(feed) X(fetch) \
                                            X(expr)

/* Those of language models. */
#define OPS_LANGUAGE(X)                                                                            \
    X(attention_dbias) X(cross_entropy_both) X(cross_entropy_count) X(cache_append)

/* Those of video autoencoders. */
#define OPS_VAE(X)                                                                                 \
    X(conv)                                                                                        \
    X(conv_dx)                                                                                     \
    X(conv_dw)                                                                                     \
    X(group_norm)                                                                                  \
    X(group_norm_dx)                                                                               \
    X(upsample_nearest)                                                                            \
    X(upsample_nearest_dx)                                                                         \
    X(l1)                                                                                          \
    X(l1_dx) X(kl_normal) X(kl_normal_dx) X(sample_normal) X(sample_normal_dx) X(relu) X(relu_dx)  \
        X(max_pool) X(max_pool_dx) X(feature_distance) X(feature_distance_dx) X(quantize)          \
            X(quantize_dx) X(group_norm_moments) X(group_norm_join) X(group_norm_apply)

/* Convolutions and pools, but for those above. */
#define OPS_CONV(X) X(conv_transpose) X(avg_pool) X(avg_pool_dx)

/* Lookup, order, reductions, products: what models of any kind need. */
#define OPS_GENERAL(X)                                                                             \
    X(layer_norm_affine_dx)                                                                        \
    X(layer_norm_dx_sums)                                                                          \
    X(layer_norm_affine_dx_sums)                                                                   \
    X(layer_norm_modulate_dx_sums)                                                                 \
    X(rms_norm_dx_sums)                                                                            \
    X(gated_residual_dx_sums)                                                                      \
    X(index_select)                                                                                \
    X(index_add)                                                                                   \
    X(gather)                                                                                      \
    X(scatter)                                                                                     \
    X(amax)                                                                                        \
    X(amin)                                                                                        \
    X(prod)                                                                                        \
    X(logsumexp)                                                                                   \
    X(argmax)                                                                                      \
    X(softmax)                                                                                     \
    X(softmax_dx)                                                                                  \
    X(cumsum)                                                                                      \
    X(argsort)                                                                                     \
    X(matmul)                                                                                      \
    X(expand)                                                                                      \
    X(moving_average)                                                                              \
    X(stop_gradient)

#define X(name) extern const struct ckpt_op_def op_##name;
OPS(X)
OPS_VAE(X)
OPS_LANGUAGE(X)
OPS_CONV(X)
OPS_GENERAL(X)
#undef X

/* Every op above, ended by NULL. */
extern const struct ckpt_op_def *const ops_table[];

/* Records a call with one output, keeping the caller's place.  For ops/ and tape/. */
ckpt_tensor ops_record1(ckpt_tape *t, const struct ckpt_op_def *def, int n_in,
                        const ckpt_tensor *in, const void *attr, size_t attr_size);
#define OPS_RECORD(t, def, attr, ...)                                                              \
    ops_record1((t), (def), (int)(sizeof((ckpt_tensor[]){__VA_ARGS__}) / sizeof(ckpt_tensor)),     \
                (ckpt_tensor[]){__VA_ARGS__}, (attr), ops_attr_size((attr), sizeof(*(attr))))

static inline size_t ops_attr_size(const void *attr, size_t size)
{
    return attr ? size : 0;
}

/* What a call is named in messages and tables, and a number for what it computes: those of the op,
 * but expressions have their own (expr/expr.h). */
const char *ops_name(const struct ckpt_op_def *def, const void *attr);
uint64_t ops_hash(const struct ckpt_op_def *def, const void *attr);

/* Shape-rule helpers: out[i] as in[j]; check a dtype is floating; NumPy broadcasting. */
void call_like(struct ckpt_call *call, int out, int in);
int call_float(struct ckpt_call *call, int in);
int call_broadcast(struct ckpt_call *call, int out, int a, int b);
/* Makes d the shape that d and in[in] broadcast to; strides are not set. */
int call_spread(struct ckpt_call *call, struct ckpt_desc *d, int in);

/* Dense strides for d whose axes lie in memory in the order of those of `order` (same rank). */
void desc_dense_as(struct ckpt_desc *d, const struct ckpt_desc *order);

/* Rows: out[i] as in[j] with the memory order of its axes kept; check that the last axis is dense;
 * a copy of x if its last axis is not. */
void call_like_memory(struct ckpt_call *call, int out, int in);
int call_dense_rows(struct ckpt_call *call, int in);
ckpt_tensor ops_dense_rows(ckpt_tape *t, ckpt_tensor x);

/* Row vectors of x (a shift, a scale, a gate): check that operand v has the rank and dtype of
 * operand x, its last axis, and elsewhere its size or 1; out[i] as the gradient of in[v], fp32. */
int call_row_vector(struct ckpt_call *call, int v, int x);
void call_sum_like(struct ckpt_call *call, int out, int v);

/* Attributes of pad: zeros of `size` along axis with x placed at begin; the gradient of slice. */
struct pad_attr {
    int axis;
    int64_t begin, size;
};

/* Attributes of slice. */
struct slice_attr {
    int axis;
    int64_t begin, end;
};

/* A gradient of a slice. */
struct ops_part {
    struct slice_attr of;
    ckpt_tensor g;
};

/* The gradient of x, of which n parts along one axis, in order and apart, have these gradients. */
ckpt_tensor ops_unslice(ckpt_tape *t, const struct ckpt_desc *x, int64_t n,
                        const struct ops_part *parts);

/* ckpt_concat of any number of tensors; x is overwritten. */
ckpt_tensor ops_concat(ckpt_tape *t, int axis, int64_t n, ckpt_tensor *x);

/*
 * The gradient of a bias is the sum over the rows of what reaches its linear layer.  An op that
 * makes that may sum it on the way: it asks whether x, whose gradient it is, is the result of a
 * layer with a bias to train, and gives the sums as one more output; the layer's rule finds them.
 */
bool ops_sums_wanted(const ckpt_tape *t, ckpt_tensor x);

/* Two operations for each element of the first operand and column of the first result. */
void linear_cost(const struct ckpt_call *call, struct ckpt_cost *cost);

/* out[out] as the sums over the rows of x, and the scratch that column_sum takes. */
void call_column_sum(struct ckpt_call *call, int out, const struct ckpt_desc *x);

/* out[out] as the sums over the rows of out[0].  On the CPU the scratch is for them as well. */
void call_dx_sums(struct ckpt_call *call, int out);

/* Behind differentiation: 8-bit products no longer read what only their gradient rule asked for,
 * and GELUs of which nobody reads anything but 8-bit copies are done where these are made. */
void ops_forget_sources(ckpt_tape *t);

/* Behind differentiation: GELU, gates and their gradients come into the products of layers beside
 * them, where the device has such products (join.c).  Returns 0 or the tape's error. */
int ops_join_products(ckpt_tape *t);

/* Behind differentiation: losses of rows of classes come to where the backward pass begins, one by
 * one with their gradients (loss_at_turn.c).  Returns 0 or the tape's error. */
int ops_turn_losses(ckpt_tape *t);

/* Scratch of a loss of so many rows with its gradient: of each the loss and two floats, then two
 * counts. */
static inline int64_t cross_entropy_both_workspace(const struct ckpt_desc *label)
{
    return 2 * (desc_numel(label) + 1) * (int64_t)sizeof(double);
}

/* Behind fusion: what makes an operand of to_fp8 leaves its largest magnitude where it can; then an
 * op of its own finds those that nobody leaves (largest.c).  Return 0 or the tape's error. */
int ops_leave_largest(ckpt_tape *t);
int ops_find_largest(ckpt_tape *t);

/* Recorded by gradient rules. */
unsigned ops_axes(ckpt_tape *t, ckpt_tensor x, unsigned mask); /* CKPT_ALL_AXES: those of x */
ckpt_tensor ops_sum_to(ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *like); /* fp32 result */
ckpt_tensor ops_fill(ckpt_tape *t, float value, enum ckpt_dtype dtype, int ndim,
                     const int64_t *shape);

#endif
