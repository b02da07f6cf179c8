/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds out whether the loss of a step depends on how its batch is divided.
 *
 * It does not if the loss is a sum of means over samples.  To see which tensors have a part for
 * each sample, the model is recorded twice, with two sizes of the batch, and the two tapes are
 * compared from the loss back: a tensor that grows with the batch has parts, and one that keeps its
 * size is a value of the whole batch.  Up to the loss, values of the batch may be added and scaled,
 * and nothing else: a product, a quotient or a root of them, or a sample that reads one, couples
 * the samples.
 *
 * One quotient is a mean: by a count, a sum (or mean) over inputs alone, or a function of counts.
 * All parts get the count of the whole step (quotients.c), so it is a constant of the step here.
 *
 * A loss is divided only if it is seen to be such a sum: one that both tapes do not compute alike,
 * or from a few of the samples, couples them.  Samples that meet in a tensor of the right size
 * (experts with a capacity, an index over the batch) are not seen: ckpt_couple_samples().
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attr.h"
#include "collective.h"
#include "expr/expr.h"
#include "ops.h"
#include "passes/quotients.h"
#include "passes/passes.h"
#include "recorders.h"
#include "scan.h"

/* Sizes of a tensor on the two tapes. */
enum size { UNKNOWN, OF_BATCH, PER_SAMPLE, PER_PAIR };

/* Pairs the operands of ops whose results are paired, from the loss back. */
static void pair_tensors(struct coupling *u)
{
    const ckpt_tape *t = u->t, *other = u->other;
    for (int32_t i = t->n_ops - 1; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_out; k++) {
            const int32_t x = op_out(t, o, k), y = x > 0 ? u->pair[x] : 0;
            const int32_t at = y ? other->tensors.data[y].op : -1;
            const struct op *p = at >= 0 ? &other->ops.data[at] : NULL;
            if (!p || p->def != o->def || p->n_in != o->n_in)
                continue;
            for (int j = 0; j < o->n_in; j++)
                if (op_in(t, o, j) > 0 && op_in(other, p, j) > 0 && !u->pair[op_in(t, o, j)])
                    u->pair[op_in(t, o, j)] = op_in(other, p, j);
        }
    }
}

static enum size size_of(const struct coupling *u, int32_t x)
{
    const int32_t y = u->pair[x];
    if (!y)
        return UNKNOWN;
    const double a = (double)desc_numel(&u->t->tensors.data[x].desc);
    const double b = (double)desc_numel(&u->other->tensors.data[y].desc);
    const double ratio = (double)u->t->micro_batch / (double)u->other->micro_batch;
    return a == b                   ? OF_BATCH
           : a == b * ratio         ? PER_SAMPLE
           : a == b * ratio * ratio ? PER_PAIR
                                    : UNKNOWN;
}

static bool is_of_batch(const struct coupling *u, int32_t x)
{
    return x > 0 && u->depends[x] && size_of(u, x) == OF_BATCH;
}

/* ---- linear ops ------------------------------------------------------------------------------ */

static bool in_depends(const struct coupling *u, const struct op *o, int k)
{
    return op_in(u->t, o, k) > 0 && u->depends[op_in(u->t, o, k)];
}

/* Whether operand k is a value of samples, or a function of counts. */
static bool reads(const struct coupling *u, const struct op *o, int k)
{
    return in_depends(u, o, k) || (op_in(u->t, o, k) > 0 && u->count[op_in(u->t, o, k)] != ANY);
}

/* Whether a program is linear in the operands that depend on the samples. */
static bool is_linear_expr(const struct coupling *u, const struct op *o)
{
    const struct expr *e = o->attr;
    bool depends[EXPR_NODES];
    for (int i = 0; i < e->n_nodes; i++) {
        const struct expr_node *n = &e->node[i];
        const bool leaf = n->code <= EXPR_UNIFORM;
        const bool a = !leaf && depends[n->arg[0]], b = !leaf && depends[n->arg[1]],
                   c = n->code == EXPR_WHERE && depends[n->arg[2]];
        depends[i] = leaf ? n->code == EXPR_INPUT && reads(u, o, n->arg[0]) : a;
        if (n->code == EXPR_ADD || n->code == EXPR_SUB || n->code == EXPR_MUL)
            depends[i] = a || b;
        else if (n->code == EXPR_WHERE)
            depends[i] = b || c;
        else if (a && n->code != EXPR_SCALE && n->code != EXPR_AFFINE && n->code != EXPR_BF16 &&
                 n->code != EXPR_DIV && n->code != EXPR_SUM)
            return false;
        if ((n->code == EXPR_MUL && a && b) || (n->code == EXPR_DIV && b) ||
            (n->code == EXPR_WHERE && a) || (n->code >= EXPR_POW && n->code != EXPR_WHERE && b))
            return false;
    }
    return true;
}

/* Whether op o, which reads values of the batch, is linear in them. */
static bool is_linear(const struct coupling *u, const struct op *o)
{
    static const struct ckpt_op_def *const linear[] = {
        &op_add,       &op_sub,    &op_affine, &op_copy, &op_cast,  &op_sum,     &op_sum_to,
        &op_broadcast, &op_concat, &op_join,   &op_pad,  &op_split, &op_flatten, NULL};
    int n = 0;
    if (o->def == &op_expr)
        return is_linear_expr(u, o);
    for (int k = 0; k < o->n_in; k++)
        n += reads(u, o, k);
    if (o->def == &op_mul || o->def == &op_linear || o->def == &op_matmul)
        return n == 1;
    if (o->def == &op_where)
        return !reads(u, o, 0);
    for (int i = 0; linear[i]; i++)
        if (o->def == linear[i])
            return true;
    return o->def->flags & CKPT_OP_VIEW;
}

/* Whether op o, which reduces samples to a value of the batch, adds something up. */
static bool is_sum(const struct op *o)
{
    return o->def != &op_amax && o->def != &op_amin && o->def != &op_prod &&
           o->def != &op_logsumexp && o->def != &op_argmax;
}

/* ---- sums and means -------------------------------------------------------------------------- */

/* The growth after a factor that is `a` on this tape and `b` on the other. */
static enum growth scaled(const struct coupling *u, enum growth from, float a, float b)
{
    const double m = (double)u->t->micro_batch, n = (double)u->other->micro_batch;
    if (a == b)
        return from;
    return from == SUM && fabs(a * m - b * n) <= 1e-5 * fabs(a * m) ? MEAN : ANY;
}

/* The value of tensor x of t, made by ckpt_full(); NAN if it is no such number. */
static float number_of(const ckpt_tape *t, int32_t x)
{
    const int32_t i = x > 0 ? t->tensors.data[x].op : -1;
    const struct op *o = i >= 0 ? &t->ops.data[i] : NULL;
    const struct expr *e = o && o->def == &op_expr ? o->attr : NULL;
    return e && e->n_nodes == 1 && e->node[0].code == EXPR_CONSTANT ? e->node[0].p : NAN;
}

/* The growth of a quotient or product of `from` and operand k, which does not depend on samples. */
static enum growth by_factor(const struct coupling *u, const struct op *o, int k, enum growth from)
{
    const int32_t x = op_in(u->t, o, k);
    const float a = number_of(u->t, x), b = number_of(u->other, u->pair[x]);
    const bool div = o->def != &op_mul;
    if (!isnan(a) && !isnan(b))
        return div ? scaled(u, from, 1 / a, 1 / b) : scaled(u, from, a, b);
    if (u->factor[x] == OF_STEP)
        return div && from == SUM ? MEAN : ANY;
    return u->factor[x] == EQUAL ? from : ANY;
}

/* The growth of a linear function of operands that grow, and of others. */
static enum growth joined(const struct coupling *u, const struct op *o)
{
    int all = -1;
    for (int k = 0; k < o->n_in; k++) {
        const int32_t x = op_in(u->t, o, k);
        const int one = x > 0 ? u->growth[x] : ANY;
        if (x > 0 && !reads(u, o, k) && u->factor[x] != EQUAL)
            return ANY;
        if (!reads(u, o, k))
            continue;
        all = all < 0 || all == one ? one : all == ANY || one == ANY ? ANY : MIXED;
    }
    return all < 0 ? ANY : (enum growth)all;
}

static bool is_same(const struct op *o, const struct op *p)
{
    return o->def == p->def && o->attr_size == p->attr_size &&
           (!o->attr_size || !memcmp(o->attr, p->attr, (size_t)o->attr_size));
}

/* Op o on the other tape; NULL without one of the same kind. */
static const struct op *on_other(const struct coupling *u, const struct op *o)
{
    const int32_t y = u->pair[op_out(u->t, o, 0)], at = y ? u->other->tensors.data[y].op : -1;
    const struct op *p = at >= 0 ? &u->other->ops.data[at] : NULL; /* negative: a parameter */
    return p && p->def == o->def ? p : NULL;
}

/* The growth of a sum of elements of `from`. */
static enum growth summed(const struct coupling *u, int32_t from)
{
    return u->count[from] != ANY || is_of_batch(u, from) ? u->growth[from]
           : size_of(u, from) == PER_SAMPLE              ? SUM
                                                         : ANY;
}

static enum growth growth_of(const struct coupling *u, const struct op *o)
{
    const struct op *p = on_other(u, o);
    const int32_t from = o->n_in ? op_in(u->t, o, 0) : 0;
    if (o->def == &op_cross_entropy)
        return ((const struct cross_entropy_attr *)o->attr)->reduction == CKPT_REDUCE_SUM ? SUM
                                                                                          : MEAN;
    if (!p)
        return ANY;
    if (o->def == &op_sum)
        return scaled(u, summed(u, from), ((const struct sum_attr *)o->attr)->scale,
                      ((const struct sum_attr *)p->attr)->scale);
    if (o->def == &op_affine) {
        const struct affine_attr *s = o->attr, *r = p->attr;
        return s->b == r->b ? scaled(u, u->growth[from], s->a, r->a) : ANY;
    }
    if (o->def == &op_mul || quotient_is_div(o))
        for (int k = 0; k < 2; k++)
            if (reads(u, o, k) && op_in(u->t, o, 1 - k) > 0 && !reads(u, o, 1 - k))
                return by_factor(u, o, 1 - k, u->growth[op_in(u->t, o, k)]);
    return is_linear(u, o) && is_same(o, p) ? joined(u, o) : ANY;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static bool draws(const struct op *o)
{
    return o->def == &op_randn || (o->def == &op_expr && expr_draws(o->attr));
}

/* Whether the results of op i depend on the samples of a part.  Random numbers do: each sample has
 * its own, and those of the whole batch are drawn once for each part. */
static bool op_depends(const struct coupling *u, const struct op *o)
{
    const struct feed *f = o->feed >= 0 ? &u->t->feeds.data[o->feed] : NULL;
    bool any = f ? !f->constant && !f->counted : draws(o);
    for (int k = 0; k < o->n_in; k++)
        any |= in_depends(u, o, k);
    return any && o->def != &op_all_reduce;
}

/* Whether op o computes along an axis on which samples lie.  Of a row of another size than on the
 * other tape they meet; a part of the samples that is not as many times smaller there is some of
 * them, as in a roll. */
static bool relates_samples(const struct coupling *u, const struct op *o)
{
    static const struct ckpt_op_def *const of_rows[] = {&op_softmax, &op_argsort, &op_layer_norm,
                                                        &op_rms_norm, NULL};
    const int32_t x = o->n_in ? op_in(u->t, o, 0) : 0, y = x > 0 ? u->pair[x] : 0;
    int axis = o->def == &op_cumsum ? ((const struct cumsum_attr *)o->attr)->axis : -1;
    for (int k = 0; k < o->n_in; k++)
        if (in_depends(u, o, k) && u->pair[op_in(u->t, o, k)] &&
            size_of(u, op_in(u->t, o, k)) == UNKNOWN)
            return true;
    if (!y)
        return false;
    const struct ckpt_desc *d = &u->t->tensors.data[x].desc;
    for (int i = 0; of_rows[i]; i++)
        axis = o->def == of_rows[i] ? d->ndim - 1 : axis;
    return axis >= 0 && d->shape[axis] != u->other->tensors.data[y].desc.shape[axis];
}

/* Sets the reason if op i couples samples.  The scales of 8-bit products are common to the samples
 * of a part: with others a value is rounded differently, and stays the same value. */
static void judge(struct coupling *u, int32_t i)
{
    const ckpt_tape *t = u->t;
    const struct op *o = &t->ops.data[i];
    if (o->def == &op_linear_fp8)
        return;
    const enum size size = size_of(u, op_out(t, o, 0));
    bool reads_batch = false;
    char name[100];
    for (int k = 0; k < o->n_in; k++)
        reads_batch |= is_of_batch(u, op_in(t, o, k));
    tape_op_name(t, i, name, sizeof name);
    if (size == PER_PAIR || (size == PER_SAMPLE && relates_samples(u, o)))
        tape_couple(u->t, "%s relates samples to each other", name);
    else if (reads_batch && size == PER_SAMPLE)
        tape_couple(u->t, "in %s samples read a value of the whole batch", name);
    else if (reads_batch && size == OF_BATCH && !is_linear(u, o))
        tape_couple(u->t, "%s is no sum of means over samples", name);
    else if (!reads_batch && size == OF_BATCH && !is_sum(o))
        tape_couple(u->t, "%s over the batch is no sum over samples", name);
}

/* Whether op i makes a count: the sum or mean of something that follows from inputs alone. */
static bool makes_count(const struct coupling *u, const struct op *o)
{
    const int32_t x = op_out(u->t, o, 0);
    return o->def == &op_sum && size_of(u, x) == OF_BATCH && !is_of_batch(u, op_in(u->t, o, 0)) &&
           desc_numel(&u->t->tensors.data[x].desc) == 1 && growth_of(u, o) != ANY &&
           tape_can_count(u->t, x);
}

/* Op i, which depends on the samples, reads a function of counts.  Sets the reason if that is no
 * quotient or product that quotients.c makes one of the step, and not linear either. */
static void judge_quotient(struct coupling *u, int32_t i, enum growth count)
{
    const struct op *o = &u->t->ops.data[i];
    const int32_t x = op_out(u->t, o, 0);
    const int by = quotient_operand(u, o);
    const enum growth from = by >= 0 ? u->growth[max_i64(0, op_in(u->t, o, 1 - by))] : ANY;
    const bool of_batch = size_of(u, x) == OF_BATCH;
    char name[100];
    if (of_batch && (from == count || (from == SUM && count == MEAN)) &&
        (count == SUM || count == MEAN) && !quotient_note(u, i, by)) {
        u->growth[x] = (uint8_t)(count == SUM ? MEAN : from);
        return;
    }
    u->growth[x] = (uint8_t)(of_batch ? growth_of(u, o) : ANY);
    if (u->growth[x] != ANY)
        return;
    tape_op_name(u->t, i, name, sizeof name);
    tape_couple(u->t, "%s is no mean over samples", name);
}

/* What op o, which does not depend on samples, makes. */
static enum factor factor_of(const struct coupling *u, const struct op *o)
{
    const struct op *p = on_other(u, o);
    enum factor all = p && is_same(o, p) ? EQUAL : DIFFERENT;
    for (int k = 0; k < o->n_in; k++)
        if (op_in(u->t, o, k) > 0 && u->factor[op_in(u->t, o, k)] > all)
            all = u->factor[op_in(u->t, o, k)];
    return all;
}

/* Op o makes x of parameters, numbers and counts. */
static void visit_constant(struct coupling *u, const struct op *o, int32_t x)
{
    const enum growth count = quotient_count(u, o);
    if (u->t->tensors.data[x].of_step) {
        u->factor[x] = OF_STEP;
        return;
    }
    u->factor[x] = (uint8_t)factor_of(u, o);
    if (count == ANY)
        return;
    u->growth[x] = (uint8_t)growth_of(u, o);
    u->count[x] = (uint8_t)(u->factor[x] == EQUAL ? count : MIXED);
}

static void visit(struct coupling *u, int32_t i)
{
    const ckpt_tape *t = u->t;
    const struct op *o = &t->ops.data[i];
    const int32_t x = o->n_out ? op_out(t, o, 0) : 0;
    const bool depends = op_depends(u, o);
    const enum growth count = quotient_count(u, o);
    for (int k = 0; k < o->n_out; k++)
        if (op_out(t, o, k) > 0)
            u->depends[op_out(t, o, k)] = depends && !t->tensors.data[op_out(t, o, k)].of_step;
    if (x > 0 && !u->depends[x])
        visit_constant(u, o, x);
    if (x <= 0 || !u->depends[x] || !u->pair[x])
        return;
    if (makes_count(u, o)) {
        u->count[x] = u->growth[x] = (uint8_t)growth_of(u, o);
        u->depends[x] = false;
        return;
    }
    if (count != ANY) {
        judge_quotient(u, i, count);
    } else {
        judge(u, i);
        if (size_of(u, x) == OF_BATCH)
            u->growth[x] = (uint8_t)growth_of(u, o);
    }
    if (!u->lost && size_of(u, x) == OF_BATCH && u->growth[x] == ANY)
        u->lost = i + 1;
}

/* The reason that lies in the loss. */
static void judge_loss(struct coupling *u, int32_t loss)
{
    char name[100] = "the loss";
    if (u->growth[loss] == SUM)
        tape_couple(u->t, "the loss is a sum over the batch, not a mean");
    if (u->growth[loss] == MIXED)
        tape_couple(u->t, "the loss adds a sum over the batch to a mean");
    if (u->growth[loss] != ANY || !u->depends[loss])
        return;
    if (u->lost)
        tape_op_name(u->t, u->lost - 1, name, sizeof name);
    tape_couple(u->t, "%s is not seen to be a mean over samples", name);
}

static int walk(struct coupling *u, int32_t loss)
{
    for (int32_t i = 0; i < u->t->n_ops; i++)
        visit(u, i);
    judge_loss(u, loss);
    return *u->t->coupled ? 0 : quotients_of_step(u);
}

int pass_counts(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    const ckpt_tape *other = c->other;
    const ckpt_tensor loss = c->loss, again = c->again;
    struct coupling u = {.t = t, .other = other};
    if (other->error.code || loss.id <= 0 || again.id <= 0)
        return t->error.code;
    if (*other->coupled)
        tape_couple(t, "%s", other->coupled);
    u.pair = calloc((size_t)t->n_tensors, sizeof *u.pair);
    u.depends = calloc((size_t)t->n_tensors, sizeof *u.depends);
    u.growth = calloc((size_t)t->n_tensors, sizeof *u.growth);
    u.count = calloc((size_t)t->n_tensors, sizeof *u.count);
    u.factor = calloc((size_t)t->n_tensors, sizeof *u.factor);
    if (!u.pair || !u.depends || !u.growth || !u.count || !u.factor) {
        tape_fail(t, CKPT_ENOMEM, "no memory to compare two recordings");
    } else {
        u.pair[loss.id] = again.id;
        pair_tensors(&u);
        walk(&u, loss.id);
    }
    free(u.pair);
    free(u.depends);
    free(u.growth);
    free(u.count);
    free(u.factor);
    free(u.quotients.data);
    return t->error.code;
}
