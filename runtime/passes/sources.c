/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What 8-bit copies are made of.  A GELU or a modulated norm whose result is read only to round it
 * is computed while it is rounded (enum fp8_source), and its result is never written.
 */
#include "attr.h"
#include "fp8.h"
#include "ops.h"
#include "passes/passes.h"

/* Whether no op reads the result of a GELU any more. */
static bool is_unread(const ckpt_tape *t, const struct op *o)
{
    return o->def == &op_gelu && o->accumulate == ACCUMULATE_NEVER &&
           !uses_count(t, op_out(t, o, 0));
}

/* Whether only ops that make copies in the forward pass read x. */
static bool is_only_copied(const ckpt_tape *t, int32_t x)
{
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const struct op *o = &t->ops.data[uses_op(t, u)];
        if (o->def != &op_to_fp8 || o->phase != PHASE_FORWARD)
            return false;
    }
    return true;
}

/* If x is the result of GELU, makes op i round from the input of GELU. */
static bool fuse_gelu(ckpt_tape *t, int32_t i, const struct op *gelu)
{
    const struct op *o = &t->ops.data[i];
    if (gelu->def != &op_gelu || !fp8_reads(t, op_in(t, gelu, 0)))
        return false;
    ((struct to_fp8_attr *)o->attr)->source = FP8_GELU;
    tape_set_input(t, i, FP8_FROM, op_in(t, gelu, 0));
    return true;
}

/* If x is the result of a modulated norm, makes op i round from the input and the statistics of the
 * norm.  The norm still runs for its statistics and for the largest magnitude. */
static bool fuse_norm(ckpt_tape *t, int32_t i, const struct op *norm)
{
    struct fp8_vector v;
    if (norm->def != &op_layer_norm_modulate || !fp8_reads(t, op_in(t, norm, 0)))
        return false;
    const struct ckpt_desc *x = &t->tensors.data[op_in(t, norm, 0)].desc;
    for (int k = 1; k <= 2; k++)
        if (!fp8_vector_of(&t->tensors.data[op_in(t, norm, k)].desc, x, &v))
            return false;
    while (t->ops.data[i].n_in < FP8_FROM_INPUTS && !t->error.code)
        tape_add_input(t, i, -1);
    if (t->error.code)
        return false;
    ((struct to_fp8_attr *)t->ops.data[i].attr)->source = FP8_NORM_MODULATE;
    tape_set_input(t, i, FP8_FROM, op_in(t, norm, 0));
    tape_set_input(t, i, FP8_SHIFT, op_in(t, norm, 1));
    tape_set_input(t, i, FP8_SCALE, op_in(t, norm, 2));
    tape_set_input(t, i, FP8_STATS, op_out(t, norm, 1));
    return true;
}

/* If only ops that make copies read the result of a GELU or a modulated norm, they compute it from
 * its inputs, and the result is never written. */
static void fuse_sources(ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def != &op_to_fp8 || ((const struct to_fp8_attr *)o->attr)->dtype != CKPT_F8E4M3)
            continue;
        const int32_t y = op_in(t, o, FP8_FROM), made = t->tensors.data[y].op;
        if (made >= 0 && t->tensors.data[y].index == 0 && is_only_copied(t, y) && fp8_reads(t, y) &&
            !fuse_gelu(t, i, &t->ops.data[made]))
            fuse_norm(t, i, &t->ops.data[made]);
    }
}

/* Removes GELU ops that are computed while rounding only. */
static void remove_unread(ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_ops; i++)
        if (is_unread(t, &t->ops.data[i]))
            tape_remove_op(t, i);
}

int pass_sources(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].def == &op_linear_fp8)
            for (int k = FP8_X; k <= FP8_W; k++)
                tape_set_input(t, i, k, -1);
    fuse_sources(t);
    if (!t->error.code)
        remove_unread(t);
    return t->error.code;
}
