/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU beside products of 8 bits (--matmul fp8): which products do a part of it in their epilogue.
 *
 *   pre, its largest    = linear_fp8(x, w1, b1)         of gelu(pre), as to_fp8 rounds that
 *   y                   = linear_fp8(gelu(pre), w2, b2)
 *   dpre, sums, largest = linear_fp8_dx_gelu(dy, w2, pre)     dpre = gelu'(pre) (dy w2)
 *
 * GELU itself is done where its result is rounded (fp8.c), so the forward pass is spared the pass
 * that finds its largest magnitude.  That is one more output of linear_fp8, which ops_leave_largest
 * asks for.  The backward pass is spared reading and writing the gradient of gelu(pre).
 *
 * As in linear_gelu.c what is joined follows from the tape and the device alone.  The products are
 * kernels of our own, which sum as cuBLASLt's do where it may sum in the accumulators of the tensor
 * cores (FP8_SHORT_SUMS); longer sums are left to that.  So are products of blocks.
 */
#include <stdlib.h>
#include "attr.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"
#include "expr/expr.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

/* {qdy, scale, qw transposed, scale, pre} -> {dpre, its sums over the rows where asked for} */
static int linear_fp8_dx_gelu_shape(struct ckpt_call *call)
{
    const struct linear_dx_gelu_attr *attr = call->attr;
    const struct ckpt_desc *pre = &call->in[FP8_DX_PRE];
    const int rc = fp8_product_shape(call, 0, CKPT_BF16);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    const int64_t product = call->workspace;
    if (attr->sums) {
        call_column_sum(call, 1, pre);
        if (call->backend == CKPT_ON_CUDA)
            call->workspace =
                max_i64(call->workspace,
                        cuda_gelu_sums_workspace(linear_rows(pre), pre->shape[pre->ndim - 1]));
    }
    call->workspace = max_i64(call->workspace, product);
    return CKPT_OK;
}

const struct ckpt_op_def op_linear_fp8_dx_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_fp8_dx_gelu",
    .shape = linear_fp8_dx_gelu_shape,
    .cost = fp8_gradient_cost,
    .cpu = cpu_linear_fp8_dx_gelu,
    .cuda = CUDA_KERNEL(cuda_linear_fp8_dx_gelu),
};

/* ---- what is joined -------------------------------------------------------------------------- */

/* Of bf16, side by side, from the beginning of its storage. */
static bool is_plain(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->ndim >= 1 && d->offset == 0 && desc_is_dense(d);
}

/* Whether a product of codes q with result y has a kernel of ours, and is worth it. */
static bool is_ours(const ckpt_tape *t, int32_t q, int32_t y)
{
    const struct ckpt_desc *dq = &t->tensors.data[q].desc, *dy = &t->tensors.data[y].desc;
    return t->env.gelu_tiles && t->env.matmul == MATMUL_FP8 && is_plain(t, y) &&
           dq->shape[dq->ndim - 1] <= FP8_SHORT_SUMS &&
           cuda_gelu_tiles(linear_rows(dy), dy->shape[dy->ndim - 1]) >= t->env.gelu_tiles;
}

bool fp8_leaves_gelu(const ckpt_tape *t, const struct op *o)
{
    return o->def == &op_linear_fp8 && op_in(t, o, FP8_ADDEND) <= 0 &&
           is_ours(t, op_in(t, o, FP8_QX), op_out(t, o, 0));
}

/* The product that makes the gradient that op i, of GELU, reads, if it can do that as well; or -1.
 * reads: of each tensor. */
static int32_t product_of(const ckpt_tape *t, int32_t i, const int32_t *reads)
{
    const struct op *o = &t->ops.data[i];
    const int32_t dy = op_in(t, o, 0), product = t->tensors.data[dy].op;
    const struct op *p = product >= 0 ? &t->ops.data[product] : NULL;
    if (!p || p->def != &op_linear_fp8_dx || p->accumulate != ACCUMULATE_NEVER ||
        op_in(t, p, FP8_DX_PRE) > 0 || reads[dy] != 1 || !is_plain(t, op_in(t, o, 1)) ||
        !is_plain(t, op_out(t, o, 0)) || !is_ours(t, op_in(t, p, 0), dy))
        return -1;
    return product;
}

static int join(ckpt_tape *t, int32_t i, int32_t product)
{
    const struct op *o = &t->ops.data[i], *p = &t->ops.data[product];
    const struct linear_dx_gelu_attr attr = {.sums = o->def == &op_gelu_dx_sums};
    int32_t in[FP8_DX_INPUTS], out[2];
    for (int k = 0; k < FP8_DX_PRE; k++)
        in[k] = op_in(t, p, k);
    in[FP8_DX_PRE] = op_in(t, o, 1);
    for (int k = 0; k < 1 + attr.sums; k++)
        out[k] = op_out(t, o, k);
    expr_join_lines(o, &t->ops.data[product]);
    const int rc = ops_become(t, product, &op_linear_fp8_dx_gelu, &attr, sizeof attr, FP8_DX_INPUTS,
                              in, 1 + attr.sums, out);
    if (!rc)
        expr_remove_op(t, i);
    return rc;
}

static int32_t *count_reads(ckpt_tape *t)
{
    int32_t *reads = calloc((size_t)t->n_tensors + 1, sizeof *reads);
    for (int32_t i = 0; reads && i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++)
            if (op_in(t, &t->ops.data[i], k) > 0)
                reads[op_in(t, &t->ops.data[i], k)]++;
    if (!reads)
        tape_fail(t, CKPT_ENOMEM, "no memory to join the products of a tape");
    return reads;
}

int ops_join_gelu_fp8(ckpt_tape *t)
{
    if (t->error.code || !t->env.gelu_tiles || t->env.matmul != MATMUL_FP8 || t->env.int8)
        return t->error.code;
    int32_t *reads = count_reads(t);
    for (int32_t i = 0; reads && i < t->n_ops && !t->error.code; i++) {
        const struct op *o = &t->ops.data[i];
        if ((o->def != &op_gelu_dx && o->def != &op_gelu_dx_sums) || o->phase != PHASE_BACKWARD)
            continue;
        const int32_t product = product_of(t, i, reads);
        if (product >= 0)
            join(t, i, product);
    }
    free(reads);
    return t->error.code;
}
