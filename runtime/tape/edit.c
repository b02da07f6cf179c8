/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that change a tape: operands and outputs, ops replaced, removed and moved. */
#include <stdlib.h>
#include <string.h>
#include "tape/tape.h"

int tape_reserve_operands(ckpt_tape *t, int32_t n)
{
    const int32_t all = t->n_operands + n;
    return ARRAY_RESERVE(&t->operands, all) | uses_reserve(&t->uses, all, 0, 0);
}

void tape_enter_reads(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    for (int k = 0; k < o->n_in; k++)
        if (op_in(t, o, k) > 0)
            uses_enter(&t->uses, o->operands + k, op_in(t, o, k), i);
}

void tape_leave_reads(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    for (int k = 0; k < o->n_in; k++)
        if (op_in(t, o, k) > 0)
            uses_leave(&t->uses, o->operands + k, op_in(t, o, k));
}

/* Moves the operands of op i to the end of the list, with one free entry after the first `before`.
 * They have left the lists of uses.  Returns that entry, or NULL with the tape's error. */
static int32_t *widen_operands(ckpt_tape *t, int32_t i, int32_t before)
{
    const int32_t n = t->ops.data[i].n_in + t->ops.data[i].n_out;
    if (tape_reserve_operands(t, n + 1)) {
        tape_fail(t, CKPT_ENOMEM, "no memory for an operand of op %d", i);
        return NULL;
    }
    tape_leave_reads(t, i);
    struct op *o = &t->ops.data[i];
    const int32_t *from = t->operands.data + o->operands;
    int32_t *to = t->operands.data + t->n_operands;
    memcpy(to, from, (size_t)before * sizeof *to);
    memcpy(to + before + 1, from + before, (size_t)(n - before) * sizeof *to);
    o->operands = t->n_operands;
    t->n_operands += n + 1;
    return to + before;
}

ckpt_tensor tape_add_extra(ckpt_tape *t, int32_t i, int what, const struct ckpt_desc *d)
{
    ckpt_tensor x = tape_new_tensor(t, d, tape_kind_of(t->ops.data[i].phase));
    int32_t *to = x.id ? widen_operands(t, i, t->ops.data[i].n_in + t->ops.data[i].n_out) : NULL;
    if (!to)
        return CKPT_NONE;
    struct op *o = &t->ops.data[i];
    int n = 0;
    while (o->extra >> 4 * n)
        n++;
    o->extra |= (uint32_t)what << 4 * n;
    *to = x.id;
    tape_enter_reads(t, i);
    t->tensors.data[x.id].op = i;
    t->tensors.data[x.id].index = o->n_out++;
    return x;
}

void tape_add_input(ckpt_tape *t, int32_t i, int32_t x)
{
    int32_t *to = t->error.code ? NULL : widen_operands(t, i, t->ops.data[i].n_in);
    if (!to)
        return;
    *to = x;
    t->ops.data[i].n_in++;
    tape_enter_reads(t, i);
}

void tape_set_input(ckpt_tape *t, int32_t i, int k, int32_t x)
{
    const int32_t at = t->ops.data[i].operands + k;
    if (t->operands.data[at] > 0)
        uses_leave(&t->uses, at, t->operands.data[at]);
    t->operands.data[at] = x;
    if (x > 0)
        uses_enter(&t->uses, at, x, i);
}

int tape_replace_op(ckpt_tape *t, int32_t i, const struct ckpt_op_def *def, const void *attr,
                    size_t attr_size, int n_in, const int32_t *in, int n_out, const int32_t *out)
{
    void *own = attr_size ? malloc(attr_size) : NULL;
    if ((attr_size && !own) || tape_reserve_operands(t, n_in + n_out)) {
        free(own);
        return tape_fail(t, CKPT_ENOMEM, "no memory to join the ops of a tape");
    }
    tape_leave_reads(t, i);
    struct op *o = &t->ops.data[i];
    if (attr_size)
        memcpy(own, attr, attr_size);
    for (int k = 0; k < o->n_out; k++)
        if (op_out(t, o, k) > 0)
            t->tensors.data[op_out(t, o, k)].op = -1;
    free(o->attr);
    o->attr = own;
    o->attr_size = attr_size;
    o->def = def;
    o->n_in = n_in;
    o->n_out = n_out;
    o->extra = 0;
    o->operands = t->n_operands;
    for (int k = 0; k < n_in; k++)
        t->operands.data[t->n_operands++] = in[k];
    for (int k = 0; k < n_out; k++) {
        t->operands.data[t->n_operands++] = out[k];
        t->tensors.data[out[k]].op = i;
        t->tensors.data[out[k]].index = k;
    }
    tape_enter_reads(t, i);
    return 0;
}

void tape_stand_at(ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    t->phase = o->phase;
    t->file = o->file;
    t->line = o->line;
    t->label = o->label;
}

/* ---- removed ops ----------------------------------------------------------------------------- */

/* An empty position: the op is now part of another one. */
static int no_shape(struct ckpt_call *call)
{
    return ckpt_call_fail(call, "it cannot be recorded");
}

const struct ckpt_op_def tape_removed = {
    .size = sizeof(struct ckpt_op_def),
    .name = "fused",
    .flags = CKPT_OP_VIEW,
    .shape = no_shape,
};

void tape_remove_op(ckpt_tape *t, int32_t i)
{
    struct op *o = &t->ops.data[i];
    tape_leave_reads(t, i);
    for (int k = 0; k < o->n_out; k++) {
        const int32_t x = op_out(t, o, k);
        if (x > 0 && t->tensors.data[x].op == i)
            t->tensors.data[x].op = -1;
    }
    free(o->attr);
    o->attr = NULL;
    o->attr_size = 0;
    o->def = &tape_removed;
    o->n_in = o->n_out = 0;
    o->extra = 0;
}

void tape_merge_lines(const struct op *a, struct op *b)
{
    if (!a->file || !b->file || strcmp(a->file, b->file))
        return;
    int32_t first = a->first_line ? a->first_line : a->line;
    if (!b->first_line || first < b->first_line)
        b->first_line = first;
    if (a->line > b->line)
        b->line = a->line;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* order[i] is the present position of the op that moves to position i. */
static void reorder(ckpt_tape *t, const int32_t *order)
{
    const size_t n = (size_t)t->n_ops;
    struct op *ops = malloc(n * sizeof *ops);
    int32_t *to = malloc(n * sizeof *to);
    if (ops && to) {
        for (int32_t i = 0; i < t->n_ops; i++) {
            ops[i] = t->ops.data[order[i]];
            to[order[i]] = i;
        }
        memcpy(t->ops.data, ops, n * sizeof *ops);
        for (int32_t x = 1; x < t->n_tensors; x++) {
            struct tensor *v = &t->tensors.data[x];
            v->op = v->op >= 0 ? to[v->op] : v->op;
            v->fp8_op = v->fp8_op ? to[v->fp8_op] : 0;
        }
        uses_clear(&t->uses, t->n_tensors);
        for (int32_t i = 0; i < t->n_ops; i++)
            tape_enter_reads(t, i);
    } else {
        tape_fail(t, CKPT_ENOMEM, "no memory to order %d ops", t->n_ops);
    }
    free(ops);
    free(to);
}

struct keyed_op {
    int64_t key;
    int32_t op;
};

static int by_key(const void *a, const void *b)
{
    const struct keyed_op *x = a, *y = b;
    return x->key != y->key ? (x->key < y->key ? -1 : 1) : (x->op > y->op) - (x->op < y->op);
}

int tape_sort(ckpt_tape *t, const int64_t *key)
{
    const int32_t n = t->n_ops;
    struct keyed_op *sorted = malloc((size_t)n * sizeof *sorted);
    int32_t *order = malloc((size_t)n * sizeof *order);
    if (sorted && order) {
        for (int32_t i = 0; i < n; i++)
            sorted[i] = (struct keyed_op){key[i], i};
        qsort(sorted, (size_t)n, sizeof *sorted, by_key);
        for (int32_t i = 0; i < n; i++)
            order[i] = sorted[i].op;
        reorder(t, order);
    } else {
        tape_fail(t, CKPT_ENOMEM, "no memory to order %d ops", n);
    }
    free(sorted);
    free(order);
    return t->error.code;
}
