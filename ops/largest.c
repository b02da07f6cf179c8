/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes from the ops that make them.
 *
 * to_fp8 needs the largest magnitude of its operand before it can round the first element, which
 * costs a pass over it.  An op that knows how leaves it as one more output, a single fp32, behind
 * those of its rule; its kernel sees that there is one (n_out).  Which ops do follows from the tape
 * alone, when it is complete and chains are fused, and the largest is the same whoever finds it: no
 * bit of a step depends on this.  Where the op does not know how, as attention, products and
 * updates do not, to_fp8_largest reads the operand.
 *
 * The op that made an operand is found through views of all its elements.  Its result must fill its
 * storage, so that where the elements lie does not matter.
 */
#include <stdlib.h>
#include "expr/expr.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

/* The kernels that can. */
static const struct ckpt_op_def *const able[] = {&op_gelu,
                                                 &op_gelu_dx,
                                                 &op_gelu_dx_sums,
                                                 &op_layer_norm,
                                                 &op_layer_norm_dx,
                                                 &op_layer_norm_affine_dx,
                                                 &op_layer_norm_modulate,
                                                 &op_layer_norm_modulate_dx,
                                                 &op_modulate,
                                                 &op_modulate_dx,
                                                 &op_gated_residual,
                                                 &op_gated_residual_dx,
                                                 &op_rms_norm,
                                                 &op_rms_norm_dx,
                                                 &op_layer_norm_dx_sums,
                                                 &op_layer_norm_affine_dx_sums,
                                                 &op_layer_norm_modulate_dx_sums,
                                                 &op_rms_norm_dx_sums,
                                                 &op_gated_residual_dx_sums,
                                                 &op_silu,
                                                 &op_silu_dx,
                                                 &op_expr};

static bool is_able(const struct op *o)
{
    if (o->def == &op_expr && ((const struct expr *)o->attr)->reduced)
        return false;
    for (size_t i = 0; i < sizeof able / sizeof *able; i++)
        if (o->def == able[i])
            return true;
    return false;
}

static bool fills_storage(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    return v->desc.offset == 0 && desc_bytes(&v->desc) == t->storages.data[v->storage].bytes;
}

/* The op whose first output has all elements of x, and nothing else; or -1. */
static int32_t maker_of(const ckpt_tape *t, int32_t x)
{
    int32_t i = t->tensors.data[x].op;
    if (!fills_storage(t, x))
        return -1;
    while (i >= 0 && t->ops.data[i].def->flags & CKPT_OP_VIEW && t->ops.data[i].n_in > 0) {
        x = op_in(t, &t->ops.data[i], 0);
        i = t->tensors.data[x].op;
    }
    return i >= 0 && t->tensors.data[x].index == 0 && fills_storage(t, x) &&
                   is_able(&t->ops.data[i])
               ? i
               : -1;
}

/* The output of op i that is its largest magnitude, added if it is not there.  largest: per op. */
static int32_t leave(ckpt_tape *t, int32_t i, int32_t *largest)
{
    struct op *o = &t->ops.data[i];
    if (largest[i])
        return largest[i];
    if (o->def == &op_expr)
        ((struct expr *)o->attr)->largest = 1;
    return largest[i] = tape_add_output(t, i, &(struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0}).id;
}

int ops_leave_largest(ckpt_tape *t)
{
    if (t->error.code)
        return t->error.code;
    int32_t *largest = calloc((size_t)t->n_ops + 1, sizeof *largest);
    if (!largest)
        return tape_fail(t, CKPT_ENOMEM, "no memory for the largest magnitudes of a tape");
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++) {
        const struct op *o = &t->ops.data[i];
        const struct to_fp8_attr *attr = o->attr;
        if (o->def != &op_to_fp8 || attr->source == FP8_GELU)
            continue;
        const int32_t maker = attr->source ? t->tensors.data[op_in(t, o, FP8_STATS)].op
                                           : maker_of(t, op_in(t, o, FP8_FROM));
        const int32_t x = maker < 0 ? 0 : leave(t, maker, largest);
        if (x)
            t->operands.data[t->ops.data[i].operands + FP8_MOST] = x;
    }
    free(largest);
    return t->error.code;
}

static bool lacks_largest(const ckpt_tape *t, int32_t i)
{
    return t->ops.data[i].def == &op_to_fp8 && op_in(t, &t->ops.data[i], FP8_MOST) <= 0;
}

/* Records the op that finds it for op i, at the end of the tape. */
static void find_for(ckpt_tape *t, int32_t i)
{
    const struct to_fp8_attr *of = t->ops.data[i].attr;
    const struct to_fp8_largest_attr attr = {.source = of->source};
    ckpt_tensor x = tape_handle(t, op_in(t, &t->ops.data[i], FP8_FROM));
    tape_stand_at(t, i);
    x = ops_record1(t, &op_to_fp8_largest, 1, &x, &attr, sizeof attr);
    if (t->error.code)
        return;
    t->ops.data[t->n_ops - 1].first_line = t->ops.data[i].first_line;
    t->operands.data[t->ops.data[i].operands + FP8_MOST] = x.id;
}

int ops_find_largest(ckpt_tape *t)
{
    const enum phase phase = t->phase;
    const int32_t n_ops = t->n_ops;
    int32_t *order = malloc((2 * (size_t)n_ops + 1) * sizeof *order), n = 0;
    if (!order)
        return tape_fail(t, CKPT_ENOMEM, "no memory to order the ops of a tape");
    for (int32_t i = 0; i < n_ops && !t->error.code; i++) {
        if (lacks_largest(t, i)) {
            find_for(t, i);
            order[n++] = t->n_ops - 1;
        }
        order[n++] = i;
    }
    if (!t->error.code && n > n_ops)
        tape_reorder(t, order);
    free(order);
    t->phase = phase;
    return t->error.code;
}
