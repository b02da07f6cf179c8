/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU in the epilogue of a linear layer, and its gradient in the epilogue of the next layer's
 * gradient.
 *
 *   pre, post         = linear_gelu(x, w1, b1)          pre = x w1^T + b1, post = gelu(pre)
 *   y                 = linear(post, w2, b2)
 *   dpre, sums, post' = linear_dx_gelu(dy, w2, pre)     dpre = gelu'(pre) (dy w2)
 *   dw2               = linear_dw(dy, post')
 *
 * The first product has pre in registers when it computes post.  The gradient's product has dy w2
 * in registers when it computes dpre, and all inputs to recompute post.  Both save passes over the
 * widest activations of a model.  post' is post, recomputed where the backward pass reads pre
 * anyway, so no plan keeps post for the backward pass: half of the memory of such a layer.
 *
 * epilogue.c describes where this is done.
 */
#include "attr.h"
#include "passes/epilogue.h"

/* ---- shape rules ----------------------------------------------------------------------------- */

/* {x, w, b} -> {pre, post}.  A result without a reader is not written. */
static int linear_gelu_shape(struct ckpt_call *call)
{
    const int rc = op_linear.shape(call);
    if (rc)
        return rc;
    if (call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operands must be bf16");
    call->out[1] = call->out[0];
    return CKPT_OK;
}

/* {dy, w, pre} -> {dpre, and if requested its column sums, post} */
static int linear_dx_gelu_shape(struct ckpt_call *call)
{
    const struct linear_dx_gelu_attr *attr = call->attr;
    const struct ckpt_desc *pre = &call->in[2];
    int n = 1;
    const int rc = op_linear_dx.shape(call);
    if (rc)
        return rc;
    if (!desc_same_shape(pre, &call->out[0]) || pre->dtype != CKPT_BF16 ||
        call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operand of gelu must be bf16 and of the gradient's shape");
    if (attr->sums)
        call_column_sum(call, n++, pre);
    if (attr->post)
        call->out[n] = call->out[0];
    return CKPT_OK;
}

const struct ckpt_op_def op_linear_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_gelu",
    .flags = CKPT_OP_OPTIONAL_OUT,
    .shape = linear_gelu_shape,
    .cost = linear_cost,
};

const struct ckpt_op_def op_linear_dx_gelu = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_dx_gelu",
    .shape = linear_dx_gelu_shape,
    .cost = linear_cost,
};

/* ---- fusion ---------------------------------------------------------------------------------- */

/* Fuses op i, a gradient of GELU, into the product that computes its dy.  The product also
 * recomputes the result of GELU if all its reads in the backward pass come later. */
void epilogue_gelu_dx(struct epilogues *j, int32_t i)
{
    ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i];
    const int32_t pre = op_in(t, o, 1), gelu = j->activation[pre];
    const int32_t product = epilogue_layer_dx(j, op_in(t, o, 0), 1);
    if (product < 0 || !epilogue_is_plain(t, pre) || !epilogue_is_before(t, pre, product) ||
        !epilogue_is_plain(t, op_out(t, o, 0)))
        return;
    const struct op *p = &t->ops.data[product];
    const bool layer = gelu && t->ops.data[gelu].def == &op_gelu && epilogue_layer(t, pre) >= 0;
    const int32_t post = layer ? op_out(t, &t->ops.data[gelu], 0) : 0;
    struct linear_dx_gelu_attr attr = {.sums = o->def == &op_gelu_dx_sums};
    const int32_t in[] = {op_in(t, p, 0), op_in(t, p, 1), pre};
    int32_t out[3], n = 0;
    out[n++] = op_out(t, o, 0);
    if (attr.sums)
        out[n++] = op_out(t, o, 1);
    if (post && j->reads[post].backward && epilogue_can_redirect(j, post, product)) {
        attr.post = 1;
        out[n++] = epilogue_redirect_reads(j, post);
    }
    if (!t->error.code &&
        !epilogue_replace_op(j, product, &op_linear_dx_gelu, &attr, sizeof attr, 3, in, n, out))
        epilogue_remove_op(j, i, product);
}

/* Fuses op i, a GELU whose result the backward pass does not read, into its layer. */
void epilogue_gelu(struct epilogues *j, int32_t i)
{
    ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i];
    const int32_t pre = op_in(t, o, 0), post = op_out(t, o, 0), layer = epilogue_layer(t, pre);
    if (layer < 0 || j->reads[post].backward || !epilogue_can_redirect(j, post, -1))
        return;
    const struct op *l = &t->ops.data[layer];
    const int32_t in[] = {op_in(t, l, 0), op_in(t, l, 1), op_in(t, l, 2)}, out[] = {pre, post};
    if (!epilogue_replace_op(j, layer, &op_linear_gelu, NULL, 0, 3, in, 2, out))
        epilogue_remove_op(j, i, layer);
}
