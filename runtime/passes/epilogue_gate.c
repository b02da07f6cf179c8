/* SPDX-License-Identifier: Apache-2.0 */
/* The gate of a gated MLP in the epilogue of its layers, and its gradient in that of the next
 * layer's gradient: see ops/linear_gated.c for what the ops compute. */
#include "passes/epilogue.h"

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
    const int32_t i = uses_next_reader(t, x, after);
    return i == but ? uses_next_reader(t, x, but) : i;
}

/* Matches op i = silu_dx(dh up, gate).  Returns whether it can be fused into the product that
 * computes dh. */
static bool find_gradient(const ckpt_tape *t, int32_t i, struct gate *g)
{
    const struct op *o = &t->ops.data[i], *mul_up = epilogue_producer(t, op_in(t, o, 0), &op_mul);
    g->gate = op_in(t, o, 1);
    g->dgate = op_out(t, o, 0);
    const int32_t silu = epilogue_reader(t, g->gate, &op_silu);
    if (!mul_up || uses_count(t, op_in(t, o, 0)) != 1 || silu < 0)
        return false;
    g->silu = op_out(t, &t->ops.data[silu], 0);
    g->mul_up = (int32_t)(mul_up - t->ops.data);
    for (int k = 0; k < 2; k++) {
        const int32_t dh = op_in(t, mul_up, k);
        g->up = op_in(t, mul_up, 1 - k);
        g->product = epilogue_layer_dx(t, dh, 2);
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
static bool is_plain(const ckpt_tape *t, const struct gate *g)
{
    const int32_t x[] = {g->gate, g->up, g->dgate, g->dup};
    bool plain =
        epilogue_is_before(t, g->gate, g->product) && epilogue_is_before(t, g->up, g->product);
    for (int k = 0; k < 4; k++)
        plain = plain && epilogue_is_plain(t, x[k]) &&
                desc_same_shape(&t->tensors.data[x[k]].desc, &t->tensors.data[g->gate].desc);
    return plain;
}

/* The result of the forward op silu times up, or 0. */
static int32_t find_h(const ckpt_tape *t, int32_t silu, int32_t up)
{
    const int32_t i = epilogue_reader(t, silu, &op_mul);
    const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
    return o && silu != up && other_factor(t, o, silu) == up ? op_out(t, o, 0) : 0;
}

/* Fuses op i, a gradient of SiLU, and both multiplications by dh into the product that computes dh.
 * The product also recomputes h if all its reads in the backward pass come later. */
void epilogue_gate_dx(ckpt_tape *t, int32_t i)
{
    struct gate g;
    if (!find_gradient(t, i, &g) || !is_plain(t, &g))
        return;
    const struct op *p = &t->ops.data[g.product];
    const int32_t in[] = {op_in(t, p, 0), op_in(t, p, 1), g.gate, g.up};
    int32_t out[] = {g.dgate, g.dup, 0}, n = 2;
    const int32_t h = find_h(t, g.silu, g.up);
    if (h && epilogue_backward_read(t, h) >= 0 && epilogue_can_redirect(t, h, g.product))
        out[n++] = epilogue_redirect_reads(t, h);
    if (t->error.code || epilogue_replace_op(t, g.product, &op_linear_dx_gated, 0, 4, in, n, out))
        return;
    epilogue_remove_op(t, g.mul_up, g.product);
    epilogue_remove_op(t, g.mul_silu, g.product);
    epilogue_remove_op(t, i, g.product);
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
void epilogue_gate(ckpt_tape *t, int32_t i)
{
    const int32_t gate = op_in(t, &t->ops.data[i], 0), silu = op_out(t, &t->ops.data[i], 0);
    const int32_t mul = epilogue_reader(t, silu, &op_mul);
    const int32_t up = mul >= 0 ? other_factor(t, &t->ops.data[mul], silu) : 0;
    const int32_t h = mul >= 0 ? find_h(t, silu, up) : 0;
    const int32_t of_gate = layer_without_bias(t, gate), of_up = h ? layer_without_bias(t, up) : -1;
    if (of_gate < 0 || of_up < 0 || of_gate == of_up || uses_count(t, silu) != 1 ||
        epilogue_backward_read(t, h) >= 0 || !epilogue_can_redirect(t, h, -1))
        return;
    const struct op *g = &t->ops.data[of_gate], *u = &t->ops.data[of_up];
    const int32_t first = of_gate < of_up ? of_gate : of_up, last = of_gate + of_up - first;
    if (op_in(t, g, 0) != op_in(t, u, 0) ||
        !desc_same_shape(&t->tensors.data[gate].desc, &t->tensors.data[up].desc) ||
        is_read_between(t, first == of_gate ? gate : up, first, last, i))
        return;
    const int32_t in[] = {op_in(t, g, 0), op_in(t, g, 1), op_in(t, u, 1)}, out[] = {gate, up, h};
    if (epilogue_replace_op(t, last, &op_linear_gated, 0, 3, in, 3, out))
        return;
    epilogue_remove_op(t, first, last);
    epilogue_remove_op(t, i, last);
    epilogue_remove_op(t, mul, last);
}
