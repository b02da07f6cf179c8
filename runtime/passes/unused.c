/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops of the library whose results nothing reads are removed before there are gradients: a model
 * of PyTorch gives its logits beside its loss, and a step reads the loss.  Positions stay, so that
 * the random numbers of other ops do.  Ops of programs stay: they may do more than their results.
 */
#include <stdlib.h>
#include "ops.h"
#include "passes/passes.h"

/* An op of a program has its kernels in its struct. */
static bool is_own(const struct ckpt_op_def *def)
{
    return def != &tape_removed && def != &op_feed && def != &op_fetch && !def->cpu && !def->cuda &&
           !(def->flags & CKPT_OP_INPLACE);
}

/* Tensors that something other than an op reads. */
static void mark_read(const struct compilation *c, bool *read)
{
    const ckpt_tape *t = c->tape;

    read[max_i64(0, c->loss.id)] = true;
    for (int32_t i = 0; i < t->n_fetches; i++)
        read[max_i64(0, t->fetches.data[i].tensor)] = true;
    for (int32_t i = 0; i < t->n_params; i++)
        read[max_i64(0, t->param_next[i])] = true;
    for (int32_t i = 0; i < t->n_means; i++)
        read[max_i64(0, t->means.data[i].mean.id)] = true;
}

static bool is_unused(const ckpt_tape *t, const struct op *o, const bool *read)
{
    for (int k = 0; k < o->n_out; k++) {
        const int32_t x = op_out(t, o, k);
        if (x > 0 && (read[x] || t->uses.of.data[x].n || tape_param_of(t, x) >= 0))
            return false;
    }
    return true;
}

int pass_unused(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    bool *read = calloc((size_t)t->n_tensors, sizeof *read);

    if (!read)
        return tape_fail(t, CKPT_ENOMEM, "no memory to look for unused ops");
    mark_read(c, read);
    for (int32_t i = t->n_ops - 1; i >= 0; i--)
        if (is_own(t->ops.data[i].def) && is_unused(t, &t->ops.data[i], read))
            tape_remove_op(t, i);
    free(read);
    return t->error.code;
}
