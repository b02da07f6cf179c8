/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pairs: two adjacent expressions of the backward pass that read the same operands become one op
 * with two results, which reads them once.  Example: the two gradients of a gated activation,
 * act(x) u, both read the gradient of the product and x.  They must be adjacent, so that no tensor
 * is kept longer, and in the backward pass, where no plan recomputes one result without the other.
 * Each result is computed as before, so no bit changes.
 */
#include <string.h>
#include "passes/merge.h"
#include "passes/passes.h"

/* The program of an op that may be part of a pair, or NULL. */
static const struct expr *single(const ckpt_tape *t, int32_t i)
{
    const struct op *o = &t->ops.data[i];
    if (o->def != &op_expr || o->phase != PHASE_BACKWARD || o->n_out != 1)
        return NULL;
    const struct expr *e = o->attr;
    return e->reduced || e->largest || expr_has_place(e) ? NULL : e;
}

static const struct ckpt_desc *result(const ckpt_tape *t, int32_t i)
{
    return &t->tensors.data[op_out(t, &t->ops.data[i], 0)].desc;
}

static int32_t storage_of(const ckpt_tape *t, int32_t i)
{
    return t->tensors.data[op_out(t, &t->ops.data[i], 0)].storage;
}

/* Whether b reads a full-size operand of a, and no result of a or a later op. */
static bool share_operands(const ckpt_tape *t, int32_t a, int32_t b)
{
    const struct op *first = &t->ops.data[a], *other = &t->ops.data[b];
    bool shared = false;
    for (int k = 0; k < other->n_in; k++) {
        const int32_t x = op_in(t, other, k);
        if (x > 0 && t->tensors.data[x].op >= a)
            return false;
        for (int i = 0; i < first->n_in; i++)
            shared |=
                op_in(t, first, i) == x && desc_same_shape(&t->tensors.data[x].desc, result(t, a));
    }
    return shared;
}

/* The combined program.  Returns false if the two do not fit in one, or are equal.  The last node
 * is the first result: the result of b, unless they are swapped. */
static bool merge(const ckpt_tape *t, int32_t a, int32_t b, struct expr_merged *j, bool *swapped)
{
    const struct op *first = &t->ops.data[a], *other = &t->ops.data[b];
    const struct expr *ea = first->attr, *eb = other->attr;
    struct expr *e = &j->e;
    j->fits = true;
    expr_init(e, "", 0);
    const int x = expr_append(j, t, first, ea, -1, 0), y = expr_append(j, t, other, eb, -1, 0);
    /* The second result takes the position of an operand. */
    if (!j->fits || e->full || e->n_in == EXPR_INPUTS || e->n_nodes > EXPR_LIMIT || x == y)
        return false;
    *swapped = x > y;
    e->second = (uint8_t)(1 + (*swapped ? y : x));
    expr_finish(e, *swapped ? x : y, NULL);
    snprintf(e->name, sizeof e->name, "%.*s,%.*s", EXPR_NAME / 2 - 1, ea->name, EXPR_NAME / 2 - 1,
             eb->name);
    e->dtype = ea->dtype;
    e->ndim = ea->ndim;
    memcpy(e->shape, ea->shape, sizeof e->shape);
    return true;
}

/* Replaces op a by the pair and removes b. */
static int replace(ckpt_tape *t, int32_t a, int32_t b, const struct expr_merged *j, bool swapped)
{
    const int32_t x = op_out(t, &t->ops.data[a], 0), y = op_out(t, &t->ops.data[b], 0);
    const int32_t out[] = {swapped ? x : y, swapped ? y : x};
    int rc = expr_replace_op(t, a, j, out, 2);
    if (rc)
        return rc;
    tape_merge_lines(&t->ops.data[b], &t->ops.data[a]);
    tape_remove_op(t, b);
    return 0;
}

/* Whether op b writes its storage first.  Its result is written earlier in a pair, so nothing else
 * may use the storage until then. */
static bool is_first_on_storage(const ckpt_tape *t, int32_t b)
{
    for (int32_t x = uses_on(t, storage_of(t, b)); x; x = uses_older(t, x))
        if (t->tensors.data[x].op < b)
            return false;
    return true;
}

static int pair_op(ckpt_tape *t, int32_t a, int32_t b)
{
    const struct expr *x = single(t, a), *y = single(t, b);
    struct expr_merged j;
    bool swapped;
    if (!x || !y || x->dtype != y->dtype || !desc_same_shape(result(t, a), result(t, b)) ||
        !is_first_on_storage(t, b) || !share_operands(t, a, b) || !merge(t, a, b, &j, &swapped))
        return 0;
    return replace(t, a, b, &j, swapped);
}

int pass_pair(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    int rc = 0;
    for (int32_t a = 0; a < t->n_ops && !rc; a++) {
        int32_t b = a + 1;
        if (!single(t, a))
            continue;
        while (b < t->n_ops && t->ops.data[b].def == &tape_removed)
            b++;
        rc = b < t->n_ops ? pair_op(t, a, b) : 0;
    }
    return rc;
}
