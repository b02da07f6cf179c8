/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quotients by counts, recorded in single ops: see quotients.h.
 *
 * Functions of counts are computed from the counts of the step: a guard such as max(count, 1) acts
 * on the count of the whole batch.  With n parts the sum of a part is an n-th of the mean over the
 * parts, so it is divided by an n-th of that function.
 */
#include <stdlib.h>
#include "decompose.h"
#include "expr/expr.h"
#include "ops.h"
#include "passes/quotients.h"
#include "recorders.h"

enum growth quotient_count(const struct coupling *u, const struct op *o)
{
    enum growth all = ANY;
    for (int k = 0; k < o->n_in; k++) {
        const enum growth one = op_in(u->t, o, k) > 0 ? u->count[op_in(u->t, o, k)] : ANY;
        if (one != ANY)
            all = all == ANY || all == one ? one : MIXED;
    }
    return all;
}

bool quotient_is_div(const struct op *o)
{
    const struct expr *e = o->def == &op_expr ? o->attr : NULL;
    return e && o->n_in == 2 && e->n_nodes == 3 && e->node[2].code == EXPR_DIV &&
           e->node[2].arg[0] == 0 && e->node[2].arg[1] == 1;
}

int quotient_operand(const struct coupling *u, const struct op *o)
{
    const bool product = o->def == &op_mul;
    if (!product && !quotient_is_div(o))
        return -1;
    for (int k = product ? 0 : 1; k < 2; k++)
        if (op_in(u->t, o, k) > 0 && u->count[op_in(u->t, o, k)] != ANY)
            return op_in(u->t, o, 1 - k) > 0 && u->depends[op_in(u->t, o, 1 - k)] ? k : -1;
    return -1;
}

int quotient_note(struct coupling *u, int32_t i, int by)
{
    if (ARRAY_RESERVE(&u->quotients, u->n_quotients))
        return tape_fail(u->t, CKPT_ENOMEM, "no memory to find means");
    u->quotients.data[u->n_quotients++] = (struct quotient){i, by};
    return 0;
}

/* ---- replacing ------------------------------------------------------------------------------- */

/* What is recorded anew: per tensor of the first n, its value of the step; per op, its sort key. */
struct replacing {
    const struct coupling *u;
    ckpt_tape *t;
    int32_t *of_step;
    int64_t *key;
    int32_t n_keys;
};

static float parts_of_step(const ckpt_tape *t)
{
    return (float)t->n_micro * (float)sharing_losses(&t->env.sharing);
}

/* Ops recorded since the last call come just before or after op i. */
static int place_at(struct replacing *r, int32_t i, int side)
{
    int64_t *key = realloc(r->key, ((size_t)r->t->n_ops + 1) * sizeof *key);
    if (!key)
        return tape_fail(r->t, CKPT_ENOMEM, "no memory to order means");
    r->key = key;
    while (r->n_keys < r->t->n_ops)
        key[r->n_keys++] = tape_key(i, side);
    return r->t->error.code;
}

/* The count x of the whole step. */
static ckpt_tensor total_of(struct replacing *r, int32_t x)
{
    ckpt_tape *t = r->t;
    const struct ckpt_desc d = t->tensors.data[x].desc;
    ckpt_tensor in[] = {tape_handle(t, x)};
    ckpt_tape *on = tape_count_on(t, "a quotient", 1, in);
    ckpt_tensor count = tape_mean_count(t, on, ckpt_reshape(on, in[0], 0, NULL));
    if (r->u->count[x] == SUM)
        count = ckpt_affine(t, count, parts_of_step(t), 0);
    return ckpt_reshape(t, count, d.ndim, d.shape);
}

/* Tensor x, a function of counts, as a function of counts of the step: its op, recorded again. */
static int32_t value_of_step(struct replacing *r, int32_t x)
{
    ckpt_tape *t = r->t;
    const int32_t i = t->tensors.data[x].op;
    if (r->of_step[x] || t->error.code)
        return r->of_step[x];
    const struct op o = t->ops.data[i];
    tape_stand_at(t, i);
    if (!quotient_count(r->u, &o)) {
        r->of_step[x] = total_of(r, x).id;
        place_at(r, i, 1);
        return r->of_step[x];
    }
    ckpt_tensor *in = calloc((size_t)(o.n_in + o.n_out), sizeof *in);
    if (!in)
        return tape_fail(t, CKPT_ENOMEM, "no memory to find means"), 0;
    for (int k = 0; k < o.n_in; k++) {
        const int32_t from = op_in(t, &o, k);
        const bool counts = from > 0 && r->u->count[from] != ANY;
        in[k] = from > 0 ? tape_handle(t, counts ? value_of_step(r, from) : from) : CKPT_NONE;
    }
    tape_stand_at(t, i);
    ckpt_record(t, o.def, o.n_in, in, o.n_out, in + o.n_in, o.attr, o.attr_size);
    r->of_step[x] = in[o.n_in].id;
    free(in);
    place_at(r, i, 1);
    return r->of_step[x];
}

static void replace(struct replacing *r, const struct quotient *q)
{
    ckpt_tape *t = r->t;
    const int32_t x = op_in(t, &t->ops.data[q->op], q->by);
    const bool product = t->ops.data[q->op].def == &op_mul, sum = r->u->count[x] == SUM;
    ckpt_tensor by = tape_handle(t, value_of_step(r, x));
    tape_stand_at(t, q->op);
    if (sum && product)
        by = ckpt_affine(t, by, parts_of_step(t), 0);
    else if (sum)
        by = ckpt_div(t, by, ops_scalar(t, parts_of_step(t)));
    if (!place_at(r, q->op, -1))
        tape_set_input(t, q->op, q->by, by.id);
}

int quotients_of_step(struct coupling *u)
{
    ckpt_tape *t = u->t;
    struct replacing r = {.u = u, .t = t};
    const char *file = t->file;
    const int line = t->line;
    const int32_t number = tape_number(t);
    if (!u->n_quotients || !tape_has_parts(t))
        return t->error.code;
    r.of_step = calloc((size_t)t->n_tensors, sizeof *r.of_step);
    if (!r.of_step)
        return tape_fail(t, CKPT_ENOMEM, "no memory to find means");
    place_at(&r, 0, 0);
    for (int32_t i = 0; i < r.n_keys; i++)
        r.key[i] = tape_key(i, 0);
    for (int32_t i = 0; i < u->n_quotients && !t->error.code; i++)
        replace(&r, &u->quotients.data[i]);
    tape_set_number(t, number);
    t->file = file;
    t->line = line;
    if (!t->error.code)
        tape_sort(t, r.key);
    free(r.of_step);
    free(r.key);
    return t->error.code;
}
