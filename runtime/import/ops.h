/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of ops: each family has one, whose last row has no name. */
#ifndef CKPT_IMPORT_OPS_H
#define CKPT_IMPORT_OPS_H

#include "import/node_call.h"

extern const struct op ops_unary[], ops_math[], ops_view[], ops_make[], ops_index[], ops_scatter[],
    ops_reduce[], ops_layer[], ops_norm[], ops_loss[], ops_picture[], ops_resize[], ops_window[],
    ops_attention[], ops_einsum[], ops_rnn[], ops_grid[], ops_special[], ops_order[], ops_complex[],
    ops_product[];

/* An operand with channels last, and the number of its spatial axes, 1 to 3; and a result in the
 * order of PyTorch. */
struct picture {
    struct tensor a;
    int spatial;
};
struct picture picture_read(struct call *c, const char *name);
struct tensor picture_of(struct call *c, ckpt_tensor y);

/* Records the layer of a call of linear, or of addmm with a bias, and adds `addend` if there is
 * one. The result has the shape of the addend, or of the layer. */
ckpt_tensor record_layer(const struct call *layer, ckpt_tensor addend);

/* The product of two matrices or vectors, or of many. */
struct tensor record_product(struct call *c, struct tensor a, struct tensor b);

/* The elements of an axis moved up by `shift`, the last ones to its begin. */
struct tensor index_roll(struct call *c, struct tensor a, int axis, int64_t shift);
/* beta self + alpha y. */
struct tensor add_product(struct call *c, struct tensor y);
/* The sum over the axes of a mask, which go. */
struct tensor reduce_sum(struct call *c, struct tensor a, unsigned mask);
/* The quotient of two complex numbers. */
struct tensor divide_complex(struct call *c);
/* log(exp(a) + exp(b)) */
struct tensor record_log_sum(struct call *c, struct tensor a, struct tensor b);
/* The largest along an axis, which goes; the first of equal ones has the gradient. */
struct tensor reduce_largest(struct call *c, struct tensor a, int axis);
/* The norm along the last axis, which goes or stays with size 1. */
struct tensor reduce_norm(struct call *c, struct tensor a, double order, bool keep);

/* Records a sum of floats that is a part of a transformer block: false if it is none. */
bool record_block(struct call *c, struct tensor *y);
/* The same of a rotary embedding in halves; and of one in pairs, written by two copies in place:
 * true if the copy of the call was recorded or deferred. */
bool record_rotary(struct call *c, struct tensor *y);
bool record_pairs(struct call *c);
/* Records in bf16 what the cast of the call rounds, if it is a part of a block in fp32 whose
 * operands are bf16: false if it is none. */
bool record_narrow(struct call *c, struct tensor *y);

/* The row of "aten.add.Tensor", or NULL. */
const struct op *op_find(const char *name);

#endif
