/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which part of each tensor a rank has where ranks split a sequence: a rule for each op that may
 * read tokens.  What has no rule is refused.
 */
#include "attr.h"
#include "ckpt_ops.h"
#include "expr/expr.h"
#include "index_shape.h"
#include "ops.h"
#include "rope.h"
#include "sequence.h"

/* An op, with what its results become.  A rule sets part, axis and first, or refuses; the first
 * reason stays. */
struct flow {
    ckpt_tape *t;
    const struct op *o;
    enum part part; /* of output 0; others are that of rows, unless a rule sets all */
    int axis;
    int64_t first;      /* of tokens, how many of the first all ranks have */
    const char *reason; /* why the op is refused; NULL: it is not */
};

typedef void flow_rule(struct flow *f);

static const struct tensor *operand(const struct flow *f, int k)
{
    const int32_t x = k < f->o->n_in ? op_in(f->t, f->o, k) : 0;
    return x > 0 ? &f->t->tensors.data[x] : NULL;
}

static const struct tensor *result(const struct flow *f)
{
    return &f->t->tensors.data[op_out(f->t, f->o, 0)];
}

static bool has_axis(const struct tensor *x)
{
    return x && (x->part == PART_TOKENS || x->part == PART_ROWS);
}

static bool is_part(const struct tensor *x)
{
    return x && (x->part == PART_SUM || x->part == PART_MEAN);
}

static bool any(const struct flow *f, bool (*is)(const struct tensor *x))
{
    bool found = false;
    for (int k = 0; k < f->o->n_in; k++)
        found |= is(operand(f, k));
    return found;
}

static void refuse(struct flow *f, const char *reason)
{
    f->reason = f->reason ? f->reason : reason;
}

static void keep(struct flow *f, const struct tensor *x, int axis)
{
    f->part = (enum part)x->part;
    f->axis = axis;
    f->first = has_axis(x) ? x->part_first : 0;
}

/* Whether x has the tokens that the result has: as many on an axis that counts from the end. */
static bool has_same(const struct flow *f, const struct tensor *x, int end)
{
    return f->part == (enum part)x->part && f->first == x->part_first &&
           end == x->desc.ndim - x->part_axis;
}

static bool are_alike(const struct tensor *a, const struct tensor *b)
{
    return b && a->part == b->part && a->part_axis == b->part_axis &&
           a->part_first == b->part_first;
}

static const char unlike[] = "the operands are split along different axes, or one is not split: "
                             "ckpt_sequence gives the tokens of a whole one";

/* ---- parts of sums and means ----------------------------------------------------------------- */

/* A function of all operands that is linear in the parts: they must be of one kind, and values that
 * all ranks have may be added to means alone. */
static void add_parts(struct flow *f)
{
    f->part = PART_ALL;
    for (int k = 0; k < f->o->n_in; k++) {
        const struct tensor *x = operand(f, k);
        if (is_part(x) && f->part != PART_ALL && f->part != (enum part)x->part)
            refuse(f, "a sum over tokens is added to a mean");
        f->part = is_part(x) ? (enum part)x->part : f->part;
    }
    for (int k = 0; k < f->o->n_in && f->part == PART_SUM; k++)
        if (operand(f, k) && !is_part(operand(f, k)))
            refuse(f, "a value that all ranks have is added to a sum over tokens");
}

static void multiply_parts(struct flow *f)
{
    const struct tensor *a = operand(f, 0), *b = operand(f, 1);
    if (is_part(a) == is_part(b))
        refuse(f, "a product of two sums over tokens");
    f->part = (enum part)(is_part(a) ? a->part : b->part);
}

/* A sum by the count of all tokens of the step is the part of a mean. */
static void divide_parts(struct flow *f)
{
    const struct tensor *a = operand(f, 0), *b = operand(f, 1);
    if (is_part(b))
        refuse(f, "it divides by a sum over tokens; ckpt_masked_mean divides by the count of all");
    const bool counts = b && (b->part == PART_COUNTS || b->of_step);
    f->part = a->part == PART_SUM && counts ? PART_MEAN : (enum part)a->part;
}

static void scale_part(struct flow *f)
{
    const struct tensor *a = operand(f, 0);
    f->part = (enum part)a->part;
    if (a->part == PART_SUM && ((const struct affine_attr *)f->o->attr)->b != 0)
        refuse(f, "a number is added to a sum over tokens");
}

/* ---- element-wise ops ------------------------------------------------------------------------ */

/* Operands broadcast from the last axis on: those with tokens must have them on one axis, and the
 * others must be the same for all tokens. */
static void align(struct flow *f)
{
    int end = 0;
    for (int k = 0; k < f->o->n_in; k++) {
        const struct tensor *x = operand(f, k);
        if (!has_axis(x))
            continue;
        if (end && !has_same(f, x, end))
            refuse(f, unlike);
        keep(f, x, 0);
        end = x->desc.ndim - x->part_axis;
    }
    for (int k = 0; k < f->o->n_in; k++) {
        const struct tensor *x = operand(f, k);
        if (x && !has_axis(x) && x->desc.ndim >= end && x->desc.shape[x->desc.ndim - end] != 1)
            refuse(f, unlike);
        if (is_part(x))
            refuse(f, "tokens read a sum or mean over the tokens of one rank");
    }
    f->axis = result(f)->desc.ndim - end;
}

static void elements(struct flow *f)
{
    if (any(f, has_axis))
        align(f);
    else
        refuse(f, "it is not linear in a sum over tokens");
}

static void sum_of_two(struct flow *f)
{
    (any(f, has_axis) ? align : add_parts)(f);
}

static void product(struct flow *f)
{
    (any(f, has_axis) ? align : multiply_parts)(f);
}

static void one_operand(struct flow *f)
{
    if (any(f, has_axis))
        align(f);
    else
        keep(f, operand(f, 0), 0);
}

static void affine(struct flow *f)
{
    (any(f, has_axis) ? align : scale_part)(f);
}

static bool is_quotient(const struct expr *e)
{
    return e->n_in == 2 && e->n_nodes == 3 && e->node[2].code == EXPR_DIV &&
           e->node[2].arg[0] == 0 && e->node[2].arg[1] == 1;
}

static void expression(struct flow *f)
{
    const struct expr *e = f->o->attr;
    if (!any(f, has_axis)) {
        if (is_quotient(e))
            divide_parts(f);
        else
            refuse(f, "it is not linear in a sum over tokens");
        return;
    }
    align(f);
    if (f->axis >= result(f)->desc.ndim - e->reduced)
        refuse(f, "it reduces the axis of tokens");
    for (int i = 0; i < e->n_nodes; i++) {
        if (e->node[i].code == EXPR_UNIFORM)
            refuse(f, "random numbers are drawn for whole samples");
        if (e->node[i].code == EXPR_INDEX && e->node[i].arg[0] == f->axis)
            refuse(f, "it reads the index along the axis of tokens");
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Operand 0 has tokens, before its last axis, and the others are the same for all. */
static void rows(struct flow *f)
{
    const struct tensor *x = operand(f, 0);
    if (!has_axis(x) || x->part_axis >= x->desc.ndim - 1)
        refuse(f, "the tokens must be on an axis of operand 0 before the last");
    for (int k = 1; k < f->o->n_in; k++)
        if (operand(f, k) && operand(f, k)->part > PART_COUNTS)
            refuse(f, "an operand that all tokens share has tokens itself");
    keep(f, x, x->part_axis);
}

static void linear(struct flow *f)
{
    const struct tensor *x = operand(f, 0), *added = operand(f, 3);
    if (!has_axis(x) || x->part_axis >= x->desc.ndim - 1)
        refuse(f, "the tokens must be on an axis of x before the last");
    for (int k = 1; k < 3; k++)
        if (operand(f, k) && operand(f, k)->part > PART_COUNTS)
            refuse(f, "the weight has tokens");
    if (added && !are_alike(x, added))
        refuse(f, unlike);
    keep(f, x, x->part_axis);
}

/* Operands that broadcast along other axes than the last, over which a row is normalised. */
static void modulated(struct flow *f)
{
    align(f);
    if (f->axis == result(f)->desc.ndim - 1)
        refuse(f, "the tokens are on the axis that it normalises");
}

static void turned(struct flow *f, int table, int axis)
{
    const struct tensor *x = operand(f, 0), *angles = operand(f, table);
    const bool own = has_axis(angles) && angles->part_axis == 0;
    const bool same = !own || angles->part_first == x->part_first;
    if (!has_axis(x) || x->part_axis >= x->desc.ndim - 1)
        refuse(f, "the tokens must be on an axis of x before the last");
    else if ((x->part_axis == axis) != own || !same)
        refuse(f, "the table must have the angles of the same tokens (ckpt_sequence)");
    keep(f, x, x->part_axis);
}

static void rope(struct flow *f)
{
    turned(f, 1, ((const struct rope_attr *)f->o->attr)->axis);
}

static void rms_norm_rope(struct flow *f)
{
    if (operand(f, 1) && operand(f, 1)->part > PART_COUNTS)
        refuse(f, "the weight has tokens");
    turned(f, 2, ((const struct rms_norm_rope_attr *)f->o->attr)->axis);
}

static void lookup(struct flow *f)
{
    const struct tensor *table = operand(f, 0), *index = operand(f, 1);
    if (!has_axis(index) || table->part > PART_COUNTS) {
        refuse(f, "tokens are looked up by index");
        return;
    }
    keep(f, index, (int)((const struct index_attr *)f->o->attr)->axis + index->part_axis);
}

/* Attention to keys that all ranks have, as those of a caption: each query is a row. */
static void attention(struct flow *f)
{
    const struct tensor *q = operand(f, ATTENTION_Q), *k = operand(f, ATTENTION_K),
                        *v = operand(f, ATTENTION_V);
    const int axis = q->part_axis, places = q->desc.ndim - 3;
    if (!has_axis(q) || axis > places) {
        refuse(f, "the queries must have the tokens, before their heads");
        return;
    }
    for (int i = ATTENTION_PLAIN; i < f->o->n_in; i++)
        if (operand(f, i) && (operand(f, i)->part > PART_COUNTS || axis < places ||
                              i != ATTENTION_PLAIN + ATTENTION_LENGTHS))
            refuse(f, "keys of another rank, a bias or boundaries");
    if (axis == places &&
        (has_axis(k) || has_axis(v) || ((const struct attention_attr *)f->o->attr)->causal))
        refuse(f, "all of q, k and v must have the tokens, or q alone without causal");
    if (axis < places && (!are_alike(q, k) || !are_alike(q, v)))
        refuse(f, unlike);
    keep(f, q, axis);
}

/* ---- losses and sums ------------------------------------------------------------------------- */

/* The first tokens would count once for each rank. */
static void only_own(struct flow *f, const struct tensor *x)
{
    if (has_axis(x) && x->part_first)
        refuse(f, "it adds up tokens of which all ranks have the first, since they do not divide "
                  "into equal parts; ckpt_sequence_all gives all to each");
}

static void cross_entropy(struct flow *f)
{
    const struct tensor *x = operand(f, 0), *label = operand(f, 1);
    const int reduction = ((const struct cross_entropy_attr *)f->o->attr)->reduction;
    if (!has_axis(x) || !has_axis(label) || x->part_axis != label->part_axis ||
        x->part_axis >= x->desc.ndim - 1) {
        refuse(f, "x and the labels must have the same tokens (ckpt_sequence)");
        return;
    }
    if (reduction == CKPT_REDUCE_MEAN)
        refuse(f, "it divides by the labels of one rank");
    only_own(f, x);
    only_own(f, label);
    keep(f, x, x->part_axis);
    f->part = reduction == CKPT_REDUCE_NONE ? f->part : PART_SUM;
}

static void count(struct flow *f)
{
    only_own(f, operand(f, 0));
    f->part = PART_SUM;
}

/* The scale tells a mean from a sum. */
static void sum(struct flow *f)
{
    const struct sum_attr *a = f->o->attr;
    const struct tensor *x = operand(f, 0);
    const double n = (double)desc_numel(&x->desc) / (double)desc_numel(&result(f)->desc);
    keep(f, x, x->part_axis);
    if (has_axis(x) && a->mask >> x->part_axis & 1) {
        only_own(f, x);
        f->part = sequence_part_of_sum((double)a->scale * n);
    }
}

static void sum_of_ranks(struct flow *f)
{
    if (operand(f, 0)->part == PART_MEAN || has_axis(operand(f, 0)))
        refuse(f, "only sums over tokens are counted");
    f->part = PART_COUNTS;
}

/* ---- views ----------------------------------------------------------------------------------- */

/* Elements of d before an axis, in order. */
static int64_t before(const struct ckpt_desc *d, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++)
        n *= d->shape[i];
    return n;
}

static void reshape(struct flow *f)
{
    const struct tensor *x = operand(f, 0);
    const struct ckpt_desc *to = &result(f)->desc;
    if (!has_axis(x)) {
        keep(f, x, 0);
        return;
    }
    const int64_t n = before(&x->desc, x->part_axis), size = x->desc.shape[x->part_axis];
    for (int i = 0; i < to->ndim; i++)
        if (before(to, i) == n && to->shape[i] == size) {
            keep(f, x, i);
            return;
        }
    f->part = PART_ROWS;
    f->axis = 0;
    if (!f->t->as_rows || to->ndim < 1 || to->shape[0] != n * size)
        refuse(f, "it joins the axis of tokens with others or cuts it");
    only_own(f, x);
}

static void permute(struct flow *f)
{
    const struct tensor *x = operand(f, 0);
    const int *from = f->o->attr; /* struct permute_attr begins with the axes */
    keep(f, x, 0);
    for (int i = 0; i < x->desc.ndim && has_axis(x); i++)
        f->axis = from[i] == x->part_axis ? i : f->axis;
}

/* Cuts of other axes. */
static void cut(struct flow *f, int axis)
{
    const struct tensor *x = operand(f, 0);
    keep(f, x, x->part_axis);
    if (!has_axis(x) || axis != x->part_axis)
        return;
    if (f->t->as_rows)
        f->part = PART_ROWS;
    else
        refuse(f, "it cuts the axis of tokens, of which a rank has its own");
}

/* Between the tokens that all ranks have and those of this rank. */
static void slice(struct flow *f)
{
    const struct slice_attr *a = f->o->attr;
    const struct tensor *x = operand(f, 0);
    if (!has_axis(x) || a->axis != x->part_axis || !x->part_first) {
        cut(f, a->axis);
        return;
    }
    keep(f, x, a->axis);
    f->first -= a->begin;
    if (a->end <= x->part_first)
        f->part = PART_ALL;
    else if (a->begin > x->part_first || a->end < x->desc.shape[a->axis])
        refuse(f, "it cuts the tokens of which a rank has its own");
}

static void pad(struct flow *f)
{
    cut(f, ((const struct pad_attr *)f->o->attr)->axis);
}

static void split(struct flow *f)
{
    cut(f, *(const int *)f->o->attr);
    for (int k = 0; k < f->o->n_out; k++) {
        struct tensor *x = &f->t->tensors.data[op_out(f->t, f->o, k)];
        x->part = (uint8_t)f->part;
        x->part_axis = (int8_t)f->axis;
        x->part_first = (int32_t)f->first;
    }
}

/* What all ranks have, then tokens. */
static bool is_before_tokens(const struct flow *f, int axis)
{
    const struct tensor *last = operand(f, f->o->n_in - 1);
    bool before = last->part == PART_TOKENS && last->part_axis == axis;
    for (int k = 0; k < f->o->n_in - 1; k++)
        before &= operand(f, k)->part == PART_ALL;
    return before;
}

static void concat(struct flow *f)
{
    const struct tensor *x = operand(f, 0), *last = operand(f, f->o->n_in - 1);
    const int axis = *(const int *)f->o->attr;
    if (is_before_tokens(f, axis)) {
        keep(f, last, axis);
        f->first += result(f)->desc.shape[axis] - last->desc.shape[axis];
        return;
    }
    for (int k = 0; k < f->o->n_in; k++)
        if (!has_axis(x) || !are_alike(x, operand(f, k)) || axis == x->part_axis)
            refuse(f, "parts must have the same tokens, on another axis");
    keep(f, x, x->part_axis);
}

/* ---- following ------------------------------------------------------------------------------- */

static const struct row {
    const struct ckpt_op_def *def;
    flow_rule *rule;
} table[] = {{&op_add, sum_of_two},
             {&op_sub, sum_of_two},
             {&op_mul, product},
             {&op_affine, affine},
             {&op_cast, one_operand},
             {&op_copy, one_operand},
             {&op_broadcast, one_operand},
             {&op_expand, one_operand},
             {&op_stop_gradient, one_operand},
             {&op_expr, expression},
             {&op_where, elements},
             {&op_gelu, elements},
             {&op_silu, elements},
             {&op_relu, elements},
             {&op_linear, linear},
             {&op_layer_norm, rows},
             {&op_rms_norm, rows},
             {&op_softmax, rows},
             {&op_layer_norm_modulate, modulated},
             {&op_modulate, modulated},
             {&op_gated_residual, modulated},
             {&op_rope, rope},
             {&op_rms_norm_rope, rms_norm_rope},
             {&op_index_select, lookup},
             {&op_attention, attention},
             {&op_cross_entropy, cross_entropy},
             {&op_cross_entropy_count, count},
             {&op_sum, sum},
             {&op_all_reduce, sum_of_ranks},
             {&op_reshape, reshape},
             {&op_permute, permute},
             {&op_slice, slice},
             {&op_split, split},
             {&op_pad, pad},
             {&op_concat, concat},
             {&op_join, concat}};

static flow_rule *rule_of(const struct ckpt_op_def *def)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].def == def)
            return table[i].rule;
    return NULL;
}

static void set_results(struct flow *f)
{
    for (int k = 0; k < f->o->n_out && f->o->def != &op_split; k++) {
        const int32_t x = op_out(f->t, f->o, k);
        if (x <= 0)
            continue;
        f->t->tensors.data[x].part = (uint8_t)(k ? PART_ROWS : f->part);
        f->t->tensors.data[x].part_axis = (int8_t)(k ? 0 : f->axis);
        f->t->tensors.data[x].part_first = (int32_t)(k || f->part != PART_TOKENS ? 0 : f->first);
    }
}

void sequence_follow(ckpt_tape *t, int32_t op)
{
    struct flow f = {.t = t, .o = &t->ops.data[op]};
    flow_rule *rule = rule_of(f.o->def);
    enum part most = PART_ALL;
    for (int k = 0; k < f.o->n_in; k++) {
        const struct tensor *x = operand(&f, k);
        const enum part one = !x ? PART_ALL : x->of_step ? PART_COUNTS : (enum part)x->part;
        most = one > most ? one : most;
    }
    f.part = most;
    if (most > PART_COUNTS && !rule)
        refuse(&f, "it may relate tokens to each other");
    else if (most > PART_COUNTS)
        rule(&f);
    else if (most == PART_COUNTS && f.o->n_out)
        for (int k = 0; k < f.o->n_out; k++)
            if (op_out(t, f.o, k) > 0)
                t->tensors.data[op_out(t, f.o, k)].part = PART_COUNTS;
    if (f.reason)
        tape_fail(t, CKPT_EINVAL,
                  "%s: the ranks split the tokens that it reads (--sequence %d): %s",
                  t->env.calls->name(f.o->def, f.o->attr), t->env.sharing.sequence, f.reason);
    else if (most > PART_COUNTS)
        set_results(&f);
}

int sequence_check(ckpt_tape *t, ckpt_tensor loss)
{
    static const char *const wrong[] = {
        [PART_TOKENS] = "has a value for each token",
        [PART_ROWS] = "has a value for each token",
        [PART_SUM] = "is a sum over the tokens, not a mean that counts those of all ranks"};
    const bool splits = t->splits;
    t->splits = false;
    t->file = NULL;
    if (t->error.code)
        return t->error.code;
    if (!splits)
        return tape_fail(t, CKPT_EINVAL,
                         "--sequence %d: the program does not say which axis of its inputs is the "
                         "sequence (ckpt_sequence)",
                         t->env.sharing.sequence);
    const enum part part = loss.id > 0 ? (enum part)t->tensors.data[loss.id].part : PART_ALL;
    return part == PART_ALL || part == PART_COUNTS || part == PART_MEAN
               ? 0
               : tape_fail(t, CKPT_EINVAL, "--sequence %d: the loss %s", t->env.sharing.sequence,
                           wrong[part]);
}
