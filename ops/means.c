/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Means over unequal parts.
 *
 * The loss of a step is the mean over its parts: its micro-steps, on every rank.  A mean over some
 * elements (targets that are not ignored, a mask, weights) divides by a count, and parts have
 * unequal counts.  So all parts divide by the same number, the mean of their counts.  The mean over
 * the parts is then the mean over all elements of the step, however it is split.  If the counts are
 * equal, each part divides by its own.
 *
 * That number is needed before the first backward pass.  A count that depends on inputs and
 * constants alone is recorded on a tape of its own.  When a step is submitted, the host computes it
 * for all micro-steps, from the bytes that were fed (exec/host_counts.c): this takes no device
 * memory, so the budget plays no part.  The tape of the step has the result as an input.  Ranks add
 * theirs by an all_reduce.
 *
 * A count that depends on a parameter stays the count of its micro-step, and the tape notes that
 * its samples are coupled.
 */
#include <stdlib.h>
#include <string.h>
#include "collective.h"
#include "decompose.h"
#include "ops.h"
#include "recorders.h"

void ckpt_couple_samples(ckpt_tape *t, const char *reason)
{
    if (!t || t->error.code)
        return;
    if (!reason || !*reason)
        tape_fail(t, CKPT_EINVAL, "couple_samples: it needs a reason, which the plan table shows");
    else
        tape_couple(t, "%s", reason);
}

static bool ranks_train(const ckpt_tape *t)
{
    return t->trains && sharing_losses(&t->env.sharing) > 1;
}

bool tape_has_parts(const ckpt_tape *t)
{
    return t->n_micro > 1 || ranks_train(t);
}

/* ---- the tape of the counts ------------------------------------------------------------------ */

/* The tape of the counts, with an entry of `copy` per tensor of t.  NULL with the tape's error. */
static struct counting *open_counting(ckpt_tape *t)
{
    struct counting *c = t->counting ? t->counting : calloc(1, sizeof *c);
    struct tape_env env = {
        .calls = t->env.calls, .backend = CKPT_ON_CPU, .threads = 1, .params = t->env.params};
    t->counting = c;
    int rc = c && !c->tape ? tape_new(&c->tape, &env, t->micro_batch, t->n_micro) : 0;
    int32_t *copy = c && !rc ? realloc(c->copy, (size_t)t->n_tensors * sizeof *copy) : NULL;
    if (!copy) {
        tape_fail(t, CKPT_ENOMEM, "no memory to record a count");
        return NULL;
    }
    memset(copy + c->n_copy, 0, (size_t)(t->n_tensors - c->n_copy) * sizeof *copy);
    c->copy = copy;
    c->n_copy = t->n_tensors;
    c->tape->file = t->file; /* an error there is an error of the call */
    c->tape->line = t->line;
    return c;
}

/* Whether the host can run op o from the inputs alone.  The last bits of normal values and of
 * products differ between devices, and a mask made of them might have another count.  Products need
 * OpenBLAS, which only a CPU device loads. */
static bool can_count(const ckpt_tape *t, const struct op *o)
{
    static const struct ckpt_op_def *const others[] = {
        &op_randn,           &op_linear, &op_linear_fp8,     &op_matmul,        &op_attention,
        &op_cross_attention, &op_conv,   &op_conv_transpose, &op_grouped_matmul};
    const uint32_t flags = o->def->flags;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (o->def == others[i])
            return false;
    return o->feed >= 0 || (!(flags & CKPT_OP_INPLACE) &&
                            (flags & CKPT_OP_VIEW || (t->env.on_host && t->env.on_host(o->def))));
}

/* Marks the ops that tensor x of t follows from.  Returns false if it does not follow from inputs
 * and constants alone. */
static bool mark_ancestors(const ckpt_tape *t, int32_t x, bool *op)
{
    if (x <= 0)
        return true;
    const struct tensor *v = &t->tensors.data[x];
    if (v->op < 0)
        return t->storages.data[v->storage].feed >= 0;
    op[v->op] = true;
    for (int32_t i = v->op; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        if (op[i] && !can_count(t, o))
            return false;
        for (int k = 0; k < o->n_in && op[i]; k++) {
            const int32_t in = op_in(t, o, k);
            const struct tensor *of = &t->tensors.data[max_i64(0, in)];
            if (in > 0 && of->op < 0 && t->storages.data[of->storage].feed < 0)
                return false;
            if (in > 0 && of->op >= 0)
                op[of->op] = true;
        }
    }
    return true;
}

bool tape_can_count(ckpt_tape *t, int32_t x)
{
    bool *op = calloc((size_t)t->n_ops + 1, sizeof *op);
    const bool counts = op && mark_ancestors(t, x, op);
    free(op);
    return counts;
}

/* Records op i of t on the tape of the counts. */
static void copy_op(ckpt_tape *t, struct counting *c, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    ckpt_tensor *x = calloc((size_t)(o->n_in + o->n_out), sizeof *x);
    if (!x) {
        tape_fail(t, CKPT_ENOMEM, "no memory to record a count");
        return;
    }
    for (int k = 0; k < o->n_in; k++)
        if (op_in(t, o, k) > 0)
            x[k] = tape_handle(c->tape, c->copy[op_in(t, o, k)]);
    ckpt_record(c->tape, o->def, o->n_in, x, o->n_out, x + o->n_in, o->attr, o->attr_size);
    if (!c->tape->error.code) /* it draws the same random numbers */
        c->tape->ops.data[c->tape->n_ops - 1].number = o->number;
    for (int k = 0; k < o->n_out; k++)
        if (op_out(t, o, k) > 0)
            c->copy[op_out(t, o, k)] = x[o->n_in + k].id;
    free(x);
}

static void copy_feed(ckpt_tape *t, struct counting *c, int32_t x)
{
    if (c->copy[x])
        return;
    c->copy[x] = tape_copy_feed(c->tape, t, t->storages.data[t->tensors.data[x].storage].feed);
    if (c->copy[x])
        tape_use_feed(c->tape, c->tape->n_feeds - 1);
}

/* Copies the marked ops, in order, and the inputs that they and x read. */
static void copy_ops(ckpt_tape *t, struct counting *c, const bool *op)
{
    for (int32_t i = 0; i < t->n_ops && !t->error.code; i++) {
        const struct op *o = &t->ops.data[i];
        if (!op[i] || !o->n_out)
            continue;
        if (o->feed >= 0)
            copy_feed(t, c, op_out(t, o, 0));
        else if (op_out(t, o, 0) > 0 && !c->copy[op_out(t, o, 0)])
            copy_op(t, c, i);
    }
}

/* Replaces the n tensors of x by those of the tape of the counts.  Returns false if that fails, or
 * if one does not follow from inputs and constants alone. */
static bool copy_tensors(ckpt_tape *t, int n, ckpt_tensor *x)
{
    struct counting *c = open_counting(t);
    bool *op = c ? calloc((size_t)t->n_ops + 1, sizeof *op) : NULL;
    bool counts = op;
    for (int k = 0; k < n && counts; k++)
        counts = mark_ancestors(t, x[k].id, op);
    if (counts)
        copy_ops(t, c, op);
    free(op);
    for (int k = 0; k < n && counts; k++) {
        if (x[k].id && t->tensors.data[x[k].id].op < 0)
            copy_feed(t, c, x[k].id);
        x[k] = x[k].id ? tape_handle(c->tape, c->copy[x[k].id]) : CKPT_NONE;
    }
    if (counts)
        c->number = tape_number(c->tape);
    return counts;
}

ckpt_tape *tape_count_on(ckpt_tape *t, const char *what, int n, ckpt_tensor *x)
{
    if (t->n_micro == 1 || t->error.code)
        return t;
    for (int k = 0; k < n; k++)
        x[k] = tape_resolve(t, x[k]);
    if (copy_tensors(t, n, x))
        return t->counting->tape;
    tape_couple(t, "the count of %s depends on more than inputs and constants", what);
    return t;
}

/* ---- the mean of the counts ------------------------------------------------------------------ */

/* The input of t to which the host gives the mean of a count over the micro-steps. */
static ckpt_tensor input_of(ckpt_tape *t, ckpt_tensor count)
{
    struct counting *c = t->counting;
    if (c->tape->error.code || ARRAY_RESERVE(&c->counts, c->n_counts)) {
        if (c->tape->error.code)
            t->error = c->tape->error;
        tape_fail(t, CKPT_ENOMEM, "no memory to record a count");
        return CKPT_NONE;
    }
    const ckpt_tensor x = tape_count_feed(t);
    c->counts.data[c->n_counts++] =
        (struct host_count){count.id, t->storages.data[t->tensors.data[x.id].storage].feed};
    return x;
}

/* The mean of a count over the ranks. */
static ckpt_tensor over_ranks(ckpt_tape *t, ckpt_tensor count)
{
    const struct sharing *s = &t->env.sharing;
    const struct collective_attr ranks = {.ranks = sharing_losses(s),
                                          .group = sharing_has_pipelines(s) ? GROUP_DATA
                                                                            : GROUP_BY_NUMBER};
    count = ckpt_reshape(t, count, 1, (int64_t[]){1});
    count = OPS_RECORD(t, &op_all_reduce, &ranks, count);
    return ckpt_div(t, ckpt_reshape(t, count, 0, NULL), ops_scalar(t, (float)ranks.ranks));
}

ckpt_tensor tape_mean_count(ckpt_tape *t, const ckpt_tape *on, ckpt_tensor count)
{
    int32_t number = tape_number(t); /* later ops draw as if the count were recorded here */
    if (on == t && t->n_micro > 1)
        return count;
    if (on != t) {
        number += tape_number(on) - t->counting->number;
        count = input_of(t, count);
    }
    if (ranks_train(t))
        count = over_ranks(t, count);
    tape_set_number(t, number);
    if (count.id > 0)
        t->tensors.data[count.id].of_step = true;
    return count;
}
