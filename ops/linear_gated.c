/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gated MLPs (SwiGLU): the gate in the epilogue of the first two layers, and its gradient in the
 * epilogue of the third layer's gradient.
 *
 *   gate, up, h       = linear_gated(x, wg, wu)         gate = x wg^T, up = x wu^T,
 *                                                       h = silu(gate) up
 *   y                 = linear(h, wd)
 *   dgate, dup, h'    = linear_dx_gated(dy, wd, gate, up)
 *                                                       with dh = dy wd: dup = dh silu(gate),
 *                                                       dgate = silu'(gate) (dh up)
 *   dwd               = linear_dw(dy, h')
 *
 * Both fusions save a pass over the widest activations of a model.  h' is h recomputed where gate
 * and up are read anyway, so no plan keeps h, a third of the memory of these activations.  The
 * gradient is fused whether or not the forward pass is: layers with biases or adapters compute gate
 * and up separately.  epilogue.c describes where this is done.
 */
#include "passes/epilogue.h"

/* ---- shape rules ----------------------------------------------------------------------------- */

/* {x, wg, wu} -> {gate, up, h}.  Results without a reader are not written. */
static int linear_gated_shape(struct ckpt_call *call)
{
    const struct ckpt_desc none = {.ndim = -1}, of_linear[] = {call->in[0], call->in[1], none};
    struct ckpt_call linear = *call;
    linear.in = of_linear;
    const int rc = op_linear.shape(&linear);
    if (rc)
        return rc;
    if (call->out[0].dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the operands must be bf16");
    if (call->in[2].dtype != CKPT_BF16 || !desc_same_shape(&call->in[1], &call->in[2]))
        return ckpt_call_fail(call, "the weights must be of one shape and dtype");
    call->out[1] = call->out[2] = call->out[0];
    return CKPT_OK;
}

/* {dy, w, gate, up} -> {dgate, dup, and h if requested} */
static int linear_dx_gated_shape(struct ckpt_call *call)
{
    const int rc = op_linear_dx.shape(call);
    if (rc)
        return rc;
    for (int k = 2; k < 4; k++)
        if (call->in[k].dtype != CKPT_BF16 || !desc_same_shape(&call->in[k], &call->out[0]))
            return ckpt_call_fail(call, "gate and up must be bf16 and of the gradient's shape");
    for (int k = 1; k < call->n_out; k++)
        call->out[k] = call->out[0];
    return CKPT_OK;
}

/* The cost of two products. */
static void linear_gated_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    linear_cost(call, cost);
    cost->flops *= 2;
}

const struct ckpt_op_def op_linear_gated = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_gated",
    .flags = CKPT_OP_OPTIONAL_OUT,
    .shape = linear_gated_shape,
    .cost = linear_gated_cost,
};

const struct ckpt_op_def op_linear_dx_gated = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_dx_gated",
    .shape = linear_dx_gated_shape,
    .cost = linear_cost,
};

/* ---- fusion ---------------------------------------------------------------------------------- */

/* The operand of a mul op other than x. */
static int32_t other_factor(const ckpt_tape *t, const struct op *mul, int32_t x)
{
    return op_in(t, mul, op_in(t, mul, 0) == x);
}

/* The ops and tensors of the gradient of a gate. */
struct gate {
    int32_t gate, up, silu, dgate, dup; /* tensors; silu: silu(gate) */
    int32_t product;                    /* op that computes dh, the gradient of silu times up */
    int32_t mul_up, mul_silu;           /* ops that multiply dh by up, and by silu */
};

/* The first op after `after`, other than `but`, that reads x, or -1. */
static int32_t next_reader(const ckpt_tape *t, int32_t x, int32_t after, int32_t but)
{
    for (int32_t i = after + 1; i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in && i != but; k++)
            if (op_in(t, &t->ops.data[i], k) == x)
                return i;
    return -1;
}

/* Matches op i = silu_dx(dh up, gate).  Returns whether it can be fused into the product that
 * computes dh. */
static bool find_gradient(const struct epilogues *j, int32_t i, struct gate *g)
{
    const ckpt_tape *t = j->t;
    const struct op *o = &t->ops.data[i], *mul_up = epilogue_producer(t, op_in(t, o, 0), &op_mul);
    g->gate = op_in(t, o, 1);
    g->dgate = op_out(t, o, 0);
    const int32_t activation = j->activation[g->gate];
    if (!mul_up || j->reads[op_in(t, o, 0)].all != 1 || !activation ||
        t->ops.data[activation].def != &op_silu)
        return false;
    g->silu = op_out(t, &t->ops.data[activation], 0);
    g->mul_up = (int32_t)(mul_up - t->ops.data);
    for (int k = 0; k < 2; k++) {
        const int32_t dh = op_in(t, mul_up, k);
        g->up = op_in(t, mul_up, 1 - k);
        g->product = epilogue_layer_dx(j, dh, 2);
        g->mul_silu = g->product < 0 ? -1 : next_reader(t, dh, g->product, g->mul_up);
        const struct op *b = g->mul_silu < 0 ? NULL : &t->ops.data[g->mul_silu];
        if (b && b->def == &op_mul && b->accumulate == ACCUMULATE_NEVER &&
            other_factor(t, b, dh) == g->silu) {
            g->dup = op_out(t, b, 0);
            return true;
        }
    }
    return false;
}

/* Whether the operands and results have the layout and shape that the kernel requires. */
static bool is_plain(const struct epilogues *j, const struct gate *g)
{
    const ckpt_tape *t = j->t;
    const int32_t x[] = {g->gate, g->up, g->dgate, g->dup};
    bool plain =
        epilogue_is_before(t, g->gate, g->product) && epilogue_is_before(t, g->up, g->product);
    for (int k = 0; k < 4; k++)
        plain = plain && epilogue_is_plain(t, x[k]) &&
                desc_same_shape(&t->tensors.data[x[k]].desc, &t->tensors.data[g->gate].desc);
    return plain;
}

/* The result of the forward op silu times up, or 0. */
static int32_t find_h(const struct epilogues *j, int32_t silu, int32_t up)
{
    const ckpt_tape *t = j->t;
    const int32_t i = j->mul[silu];
    const struct op *o = i ? &t->ops.data[i] : NULL;
    return o && o->def == &op_mul && silu != up && other_factor(t, o, silu) == up ? op_out(t, o, 0)
                                                                                  : 0;
}

/* Fuses op i, a gradient of SiLU, and both multiplications by dh into the product that computes dh.
 * The product also recomputes h if all its reads in the backward pass come later. */
void epilogue_gate_dx(struct epilogues *j, int32_t i)
{
    ckpt_tape *t = j->t;
    struct gate g;
    if (!find_gradient(j, i, &g) || !is_plain(j, &g))
        return;
    const struct op *p = &t->ops.data[g.product];
    const int32_t in[] = {op_in(t, p, 0), op_in(t, p, 1), g.gate, g.up};
    int32_t out[] = {g.dgate, g.dup, 0}, n = 2;
    const int32_t h = find_h(j, g.silu, g.up);
    if (h && j->reads[h].backward && epilogue_can_redirect(j, h, g.product))
        out[n++] = epilogue_redirect_reads(j, h);
    if (t->error.code ||
        epilogue_replace_op(j, g.product, &op_linear_dx_gated, NULL, 0, 4, in, n, out))
        return;
    epilogue_remove_op(j, g.mul_up, g.product);
    epilogue_remove_op(j, g.mul_silu, g.product);
    epilogue_remove_op(j, i, g.product);
}

/* Whether an op in the open interval (after, before) other than `but` reads x. */
static bool is_read_between(const ckpt_tape *t, int32_t x, int32_t after, int32_t before,
                            int32_t but)
{
    const int32_t i = next_reader(t, x, after, but);
    return i >= 0 && i < before;
}

/* The linear op without bias that produces x if an epilogue can be fused into it, else -1. */
static int32_t layer_without_bias(const ckpt_tape *t, int32_t x)
{
    const int32_t i = epilogue_layer(t, x);
    return i >= 0 && op_in(t, &t->ops.data[i], 2) <= 0 ? i : -1;
}

/* Fuses op i, the SiLU of a gate, and the multiplication by up into the two layers that compute
 * gate and up, if the backward pass does not read h.  The later layer does all the work; the other
 * ops are removed. */
void epilogue_gate(struct epilogues *j, int32_t i)
{
    ckpt_tape *t = j->t;
    const int32_t gate = op_in(t, &t->ops.data[i], 0), silu = op_out(t, &t->ops.data[i], 0);
    const int32_t mul = j->mul[silu], up = mul ? other_factor(t, &t->ops.data[mul], silu) : 0;
    const int32_t h = mul ? find_h(j, silu, up) : 0;
    const int32_t of_gate = layer_without_bias(t, gate), of_up = h ? layer_without_bias(t, up) : -1;
    if (of_gate < 0 || of_up < 0 || of_gate == of_up || j->reads[silu].all != 1 ||
        j->reads[h].backward || !epilogue_can_redirect(j, h, -1))
        return;
    const struct op *g = &t->ops.data[of_gate], *u = &t->ops.data[of_up];
    const int32_t first = of_gate < of_up ? of_gate : of_up, last = of_gate + of_up - first;
    if (op_in(t, g, 0) != op_in(t, u, 0) ||
        !desc_same_shape(&t->tensors.data[gate].desc, &t->tensors.data[up].desc) ||
        is_read_between(t, first == of_gate ? gate : up, first, last, i))
        return;
    const int32_t in[] = {op_in(t, g, 0), op_in(t, g, 1), op_in(t, u, 1)}, out[] = {gate, up, h};
    if (epilogue_replace_op(j, last, &op_linear_gated, NULL, 0, 3, in, 3, out))
        return;
    epilogue_remove_op(j, first, last);
    epilogue_remove_op(j, i, last);
    epilogue_remove_op(j, mul, last);
}
