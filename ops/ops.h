/* SPDX-License-Identifier: Apache-2.0 */
/* Every op of the library, and what their rules share. */
#ifndef CKPT_OPS_OPS_H
#define CKPT_OPS_OPS_H

#include "core/base.h"

/* One op_<name> per row of ops.def; a file per family in ops/. */
#define OP(name) extern const struct ckpt_op_def op_##name;
#include "ops.def"

/* Defines op_<op>, with this name and these rules. */
#define OPS_DEF(op, ...)                                                                           \
    const struct ckpt_op_def op_##op = {                                                           \
        .size = sizeof(struct ckpt_op_def), .name = #op, __VA_ARGS__}

/* Records a call with one output; errors report the caller's file and line.  For ops/ and tape/. */
ckpt_tensor ops_record1(ckpt_tape *t, const struct ckpt_op_def *def, int n_in,
                        const ckpt_tensor *in, const void *attr, size_t attr_size);
#define OPS_RECORD(t, def, attr, ...)                                                              \
    ops_record1((t), (def), (int)(sizeof((ckpt_tensor[]){__VA_ARGS__}) / sizeof(ckpt_tensor)),     \
                (ckpt_tensor[]){__VA_ARGS__}, (attr), ops_attr_size((attr), sizeof(*(attr))))

static inline size_t ops_attr_size(const void *attr, size_t size)
{
    return attr ? size : 0;
}

/* Name of a call for messages and tables, and a hash of what it computes.  They are per op, but
 * expressions have their own (expr/expr.h). */
const char *ops_name(const struct ckpt_op_def *def, const void *attr);
uint64_t ops_hash(const struct ckpt_op_def *def, const void *attr);

/* Shape-rule helpers.  call_like: out[i] gets the shape and dtype of in[j], dense.  call_float:
 * in[i] must be fp32 or bf16.  call_broadcast: out[i] is the NumPy broadcast of two inputs. */
void call_like(struct ckpt_call *call, int out, int in);
int call_float(struct ckpt_call *call, int in);
int call_broadcast(struct ckpt_call *call, int out, int a, int b);
/* Checks that eps is finite and not negative. */
int call_eps(struct ckpt_call *call, float eps);

/* Sets d to the broadcast shape of d and in[in]; strides are not set. */
int call_spread(struct ckpt_call *call, struct ckpt_desc *d, int in);

/* Sets dense strides of d with its axes in the memory order of `order`, which has the same rank. */
void desc_dense_as(struct ckpt_desc *d, const struct ckpt_desc *order);

/* Helpers for row-wise ops.  call_like_memory: out[i] gets the shape of in[j] and its memory order
 * of axes.  call_dense_rows: the last axis must be dense.  ops_dense_rows: x, or a copy with a
 * dense last axis. */
void call_like_memory(struct ckpt_call *call, int out, int in);
int call_dense_rows(struct ckpt_call *call, int in);
ckpt_tensor ops_dense_rows(ckpt_tape *t, ckpt_tensor x);

/* Row vectors (a shift, a scale, a gate).  call_row_vector: operand v must have the rank, dtype and
 * last axis of operand x, and on other axes the same size or 1.  call_sum_like: out[i] becomes the
 * fp32 gradient of in[v]. */
int call_row_vector(struct ckpt_call *call, int v, int x);
void call_sum_like(struct ckpt_call *call, int out, int v);

/* pad, the gradient of slice: x at `begin` on an axis of `size`, zeros elsewhere. */
struct pad_attr {
    int axis;
    int64_t begin, size;
};

/* Attributes of slice. */
struct slice_attr {
    int axis;
    int64_t begin, end;
};

/* The gradient of a slice. */
struct ops_part {
    struct slice_attr of;
    ckpt_tensor g;
};

/* The gradient of x from the gradients of n slices along one axis, which are sorted and do not
 * overlap. */
ckpt_tensor ops_unslice(ckpt_tape *t, const struct ckpt_desc *x, int64_t n,
                        const struct ops_part *parts);

/* ckpt_concat of any number of tensors; x is overwritten. */
ckpt_tensor ops_concat(ckpt_tape *t, int axis, int64_t n, ckpt_tensor *x);

/* Defines a cost: n flops for each element of an operand or result of the call, in[i] or out[i]. */
#define OPS_COST(rule, n, operand)                                                                 \
    static void rule(const struct ckpt_call *call, struct ckpt_cost *cost)                         \
    {                                                                                              \
        cost->flops = (n) * (double)desc_numel(&call->operand);                                    \
    }

/* Two flops for each element of the first operand and column of the first result. */
void linear_cost(const struct ckpt_call *call, struct ckpt_cost *cost);

/* The column sums of x. */
struct ckpt_desc column_sum_desc(const struct ckpt_desc *x);

/* `scale` times the sum of all elements of x, an fp32 scalar.  Rows of the last axes are summed
 * first, in fp32, and then in double: their sums are fused with what makes x, which need not be
 * written then, as it must for one long sum. */
ckpt_tensor ops_total(ckpt_tape *t, ckpt_tensor x, double scale);

/* cap tanh(x / cap) for each element; x itself if cap is 0. */
ckpt_tensor ops_soft_cap(ckpt_tape *t, ckpt_tensor x, float cap);

/* sum / count for single values; sum, which is 0 then, if count is 0. */
ckpt_tensor ops_over_count(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor count);

/* Helpers for gradient rules.  ops_axes: replaces CKPT_ALL_AXES by the mask of x's axes.
 * ops_sum_to: sums x to the shape of `like`, in fp32. */
unsigned ops_axes(ckpt_tape *t, ckpt_tensor x, unsigned mask);
ckpt_tensor ops_sum_to(ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *like);
ckpt_tensor ops_fill(ckpt_tape *t, float value, enum ckpt_dtype dtype, int ndim,
                     const int64_t *shape);

#endif
