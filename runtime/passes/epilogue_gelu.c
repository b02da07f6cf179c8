/* SPDX-License-Identifier: Apache-2.0 */
/* GELU in the epilogue of a layer, and its gradient in that of the next layer's gradient: see
 * ops/linear_gelu.c for what the ops compute. */
#include "extra.h"
#include "passes/epilogue.h"

/* Fuses op i, a gradient of GELU, into the product that computes its dy.  The product also
 * recomputes the result of GELU if all its reads in the backward pass come later. */
void epilogue_gelu_dx(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    const int32_t pre = op_in(t, o, 1), gelu = epilogue_reader(t, pre, &op_gelu);
    const int32_t product = epilogue_layer_dx(t, op_in(t, o, 0), 1);
    if (product < 0 || !epilogue_is_plain(t, pre) || !epilogue_is_before(t, pre, product) ||
        !epilogue_is_plain(t, op_out(t, o, 0)))
        return;
    const struct op *p = &t->ops.data[product];
    const bool layer = gelu >= 0 && epilogue_layer(t, pre) >= 0;
    const int32_t post = layer ? op_out(t, &t->ops.data[gelu], 0) : 0;
    uint32_t extra = o->extra; /* column sums, or nothing */
    const int32_t in[] = {op_in(t, p, 0), op_in(t, p, 1), pre};
    int32_t out[3], n = 0;
    for (; n < o->n_out; n++)
        out[n] = op_out(t, o, n);
    if (post && epilogue_backward_read(t, post) >= 0 && epilogue_can_redirect(t, post, product)) {
        extra |= EXTRA_GELU << 4 * extra_count(extra);
        out[n++] = epilogue_redirect_reads(t, post);
    }
    if (!t->error.code &&
        !epilogue_replace_op(t, product, &op_linear_dx_gelu, extra, 3, in, n, out))
        epilogue_remove_op(t, i, product);
}

/* Fuses op i, a GELU whose result the backward pass does not read, into its layer. */
void epilogue_gelu(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    const int32_t pre = op_in(t, o, 0), post = op_out(t, o, 0), layer = epilogue_layer(t, pre);
    if (layer < 0 || epilogue_backward_read(t, post) >= 0 || !epilogue_can_redirect(t, post, -1))
        return;
    const struct op *l = &t->ops.data[layer];
    const int32_t in[] = {op_in(t, l, 0), op_in(t, l, 1), op_in(t, l, 2)}, out[] = {pre, post};
    if (!epilogue_replace_op(t, layer, &op_linear_gelu, 0, 3, in, 2, out))
        epilogue_remove_op(t, i, layer);
}
