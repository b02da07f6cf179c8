/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epilogue fusion: GELU, gates and their gradients become part of adjacent matrix products.  This
 * file tests which ops of a complete tape can be fused, and rewrites them; products.c applies the
 * patterns in order.
 *
 * The tape alone determines what is fused, after differentiation.  Every value is rounded where it
 * was rounded before, so only the order of sums can change bits.  Fusion needs a device with such
 * kernels and products that are large enough (tape_env.epilogue_tiles).  Of 8-bit products only the
 * gradient of GELU is fused; the forward GELU is computed while its result is rounded (fp8.c).
 */
#include "expr/expr.h"
#include "kernels/kernel.h"
#include "passes/epilogue.h"
#include "shapes/linear.h"

/* For both matrix sizes of a layer: bulk tensor copies (TMA) need multiples of SIDE_UNIT; below
 * MIN_SIDE fusion does not pay. */
enum { MIN_SIDE = 64, SIDE_UNIT = 8 };

/* ---- tests ----------------------------------------------------------------------------------- */

const struct op *epilogue_producer(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct op *o = v->op >= 0 && !v->index ? &t->ops.data[v->op] : NULL;
    return o && o->def == def && o->accumulate == ACCUMULATE_NEVER ? o : NULL;
}

bool epilogue_is_plain(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->ndim >= 1 && d->offset == 0 && desc_is_dense(d);
}

/* A weight may share its storage with others, so its offset need not be 0. */
static bool is_weight(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && d->offset % SIDE_UNIT == 0 && desc_is_dense(d);
}

bool epilogue_is_before(const ckpt_tape *t, int32_t x, int32_t i)
{
    return t->tensors.data[x].op < i;
}

/* Whether the product that computes y from x is large enough. */
static bool is_large(const ckpt_tape *t, int32_t x, int32_t y)
{
    const struct ckpt_desc *dx = &t->tensors.data[x].desc, *dy = &t->tensors.data[y].desc;
    const int64_t inner = dx->shape[dx->ndim - 1], cols = dy->shape[dy->ndim - 1];
    return kernel_has_epilogue(t, linear_rows(dx), cols) && inner >= MIN_SIDE && cols >= MIN_SIDE &&
           inner % SIDE_UNIT == 0 && cols % SIDE_UNIT == 0;
}

/* Whether product o has no addend, and plain operand, weight and result. */
static bool can_have_epilogue(const ckpt_tape *t, const struct op *o, int addend)
{
    const int32_t x = op_in(t, o, 0), y = op_out(t, o, 0);
    return (o->n_in <= addend || op_in(t, o, addend) <= 0) && epilogue_is_plain(t, x) &&
           is_weight(t, op_in(t, o, 1)) && epilogue_is_plain(t, y) && is_large(t, x, y);
}

int32_t epilogue_layer(const ckpt_tape *t, int32_t x)
{
    const struct op *o = epilogue_producer(t, x, &op_linear);
    return o && can_have_epilogue(t, o, 3) ? t->tensors.data[x].op : -1;
}

int32_t epilogue_layer_dx(const ckpt_tape *t, int32_t dx, int32_t readers)
{
    const struct op *o = epilogue_producer(t, dx, &op_linear_dx);
    return o && can_have_epilogue(t, o, 2) && uses_count(t, dx) == readers ? t->tensors.data[dx].op
                                                                           : -1;
}

int32_t epilogue_reader(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def)
{
    int32_t last = -1;
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const struct op *o = &t->ops.data[uses_op(t, u)];
        last = o->def == def && o->phase == PHASE_FORWARD ? uses_op(t, u) : last;
    }
    return last;
}

int32_t epilogue_backward_read(const ckpt_tape *t, int32_t x)
{
    int32_t u = uses_first(t, x);
    while (u >= 0 && t->ops.data[uses_op(t, u)].phase == PHASE_FORWARD)
        u = uses_next(t, u);
    return u;
}

bool epilogue_can_redirect(const ckpt_tape *t, int32_t x, int32_t i)
{
    const int32_t first = epilogue_backward_read(t, x);
    if (!epilogue_is_plain(t, x))
        return false;
    for (int32_t y = uses_on(t, t->tensors.data[x].storage); y; y = uses_older(t, y))
        if (y != x && epilogue_backward_read(t, y) >= 0)
            return false;
    return first < 0 || uses_op(t, first) > i;
}

/* ---- rewriting ------------------------------------------------------------------------------- */

int epilogue_replace_op(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, uint32_t extra,
                        int n_in, const int32_t *in, int n_out, const int32_t *out)
{
    enum { MAX = 6 }; /* maximum number of operands and of results */
    struct ckpt_desc of_in[MAX], of_out[MAX];
    struct ckpt_call call;
    char message[CKPT_MESSAGE];
    if (tape_replace_op(t, i, def, NULL, 0, n_in, in, n_out, out))
        return t->error.code;
    t->ops.data[i].extra = extra;
    tape_call(t, &t->ops.data[i], &call, of_in, of_out);
    call.message = message;
    call.message_size = sizeof message;
    return def->shape(&call) ? tape_fail(t, CKPT_ESHAPE, "%s: %s", def->name, message) : CKPT_OK;
}

void epilogue_remove_op(ckpt_tape *t, int32_t i, int32_t by)
{
    tape_merge_lines(&t->ops.data[i], &t->ops.data[by]);
    tape_remove_op(t, i);
}

int32_t epilogue_redirect_reads(ckpt_tape *t, int32_t x)
{
    struct ckpt_desc d = t->tensors.data[x].desc;
    const int32_t again = tape_new_tensor(t, &d, STORAGE_TEMPORARY).id;
    for (int32_t u = epilogue_backward_read(t, x); again && u >= 0;
         u = epilogue_backward_read(t, x))
        tape_set_input(t, uses_op(t, u), uses_operand(t, u), again);
    return again;
}
