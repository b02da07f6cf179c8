/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What 8-bit copies are made of.  A GELU or a modulated norm whose result is read only to round it
 * is computed while it is rounded (enum fp8_source), and its result is never written.
 */
#include <stdlib.h>
#include "attr.h"
#include "fp8.h"
#include "ops.h"
#include "passes/passes.h"

/* Whether no op reads the result of a GELU any more. */
static bool is_unread(const ckpt_tape *t, const struct op *o, const int32_t *reads)
{
    return o->def == &op_gelu && o->accumulate == ACCUMULATE_NEVER && !reads[op_out(t, o, 0)];
}

/* Counts the reads of each tensor: all, or those by ops that make copies in the forward pass. */
static int32_t *count_reads(ckpt_tape *t, bool all)
{
    int32_t *reads = calloc((size_t)t->n_tensors + 1, sizeof *reads);
    if (!reads)
        tape_fail(t, CKPT_ENOMEM, "no memory for the readers of tensors");
    for (int32_t i = 0; reads && i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++) {
            const int32_t x = op_in(t, &t->ops.data[i], k);
            const struct op *o = &t->ops.data[i];
            if (x > 0 && (all || (o->def == &op_to_fp8 && o->phase == PHASE_FORWARD)))
                reads[x]++;
        }
    return reads;
}

/* If x is the result of GELU, makes op i round from the input of GELU. */
static bool fuse_gelu(ckpt_tape *t, int32_t i, const struct op *gelu)
{
    const struct op *o = &t->ops.data[i];
    if (gelu->def != &op_gelu || !fp8_reads(t, op_in(t, gelu, 0)))
        return false;
    ((struct to_fp8_attr *)o->attr)->source = FP8_GELU;
    t->operands.data[o->operands + FP8_FROM] = op_in(t, gelu, 0);
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
    int32_t *in = t->operands.data + t->ops.data[i].operands;
    ((struct to_fp8_attr *)t->ops.data[i].attr)->source = FP8_NORM_MODULATE;
    in[FP8_FROM] = op_in(t, norm, 0);
    in[FP8_SHIFT] = op_in(t, norm, 1);
    in[FP8_SCALE] = op_in(t, norm, 2);
    in[FP8_STATS] = op_out(t, norm, 1);
    return true;
}

/* If only ops that make copies read the result of a GELU or a modulated norm, they compute it from
 * its inputs, and the result is never written. */
static void fuse_sources(ckpt_tape *t)
{
    int32_t *all = count_reads(t, true), *copies = count_reads(t, false);
    for (int32_t i = 0; all && copies && i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def != &op_to_fp8 || ((const struct to_fp8_attr *)o->attr)->dtype != CKPT_F8E4M3)
            continue;
        const int32_t y = op_in(t, o, FP8_FROM), made = t->tensors.data[y].op;
        if (made >= 0 && t->tensors.data[y].index == 0 && all[y] == copies[y] && fp8_reads(t, y) &&
            !fuse_gelu(t, i, &t->ops.data[made]))
            fuse_norm(t, i, &t->ops.data[made]);
    }
    free(all);
    free(copies);
}

/* Removes GELU ops that are computed while rounding only. */
static void remove_unread(ckpt_tape *t)
{
    int32_t *reads = count_reads(t, true);
    for (int32_t i = 0; reads && i < t->n_ops; i++)
        if (is_unread(t, &t->ops.data[i], reads))
            tape_remove_op(t, i);
    free(reads);
}

int pass_sources(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].def == &op_linear_fp8)
            for (int k = FP8_X; k <= FP8_W; k++)
                t->operands.data[t->ops.data[i].operands + k] = -1;
    fuse_sources(t);
    if (!t->error.code)
        remove_unread(t);
    return t->error.code;
}
