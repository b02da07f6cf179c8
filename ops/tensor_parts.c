/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor parallelism: the ranks of a group have the same samples, and a part each of the parameters
 * of wide layers (ckpt_param_split).
 *
 * A model is recorded as for one rank, with narrower layers.  A weight whose rows are split gives
 * this rank's part of a width; ops that treat its elements alike keep the part; a weight whose
 * columns are split reads it and gives a term of the result, and the terms are added up at once
 * (Shoeybi et al. 2019).  Each op in between is followed: one that would relate parts to each other
 * has no rule that allows it, and is refused where it is recorded.
 *
 * Gradients need no rule.  A step differentiates the mean over all ranks of what each computes, so
 * a tensor that all ranks have has a gradient that is a part, and only their sum is the gradient of
 * one rank: bucket gradients are summed over all ranks anyway.  The sum of terms is its own
 * adjoint; what it gives the layers before it is whole, and so are the gradients of split
 * parameters, which are summed over the ranks with the same part alone.
 */
#include "attr.h"
#include "ckpt_ops.h"
#include "collective.h"
#include "expr/expr.h"
#include "ops.h"
#include "rope.h"
#include "tensor_parts.h"

/* An op, with what its results become. */
struct width {
    ckpt_tape *t;
    const struct op *o;
    int part;
    int axis, blocks;   /* of a width */
    const char *reason; /* why the op is refused; NULL: it is not */
};

typedef void width_rule(struct width *f);

static const struct tensor *operand(const struct width *f, int k)
{
    const int32_t x = k < f->o->n_in ? op_in(f->t, f->o, k) : 0;
    return x > 0 ? &f->t->tensors.data[x] : NULL;
}

static const struct tensor *result(const struct width *f)
{
    return &f->t->tensors.data[op_out(f->t, f->o, 0)];
}

static bool is_width(const struct tensor *x)
{
    return x && x->part == PART_WIDTH;
}

static void refuse(struct width *f, const char *reason)
{
    f->reason = f->reason ? f->reason : reason;
}

static void keep(struct width *f, const struct tensor *x, int axis)
{
    f->part = x->part;
    f->axis = axis;
    f->blocks = x->part_first;
}

static bool are_alike(const struct tensor *a, const struct tensor *b)
{
    return b && a->part == b->part && a->part_axis == b->part_axis &&
           a->part_first == b->part_first;
}

/* ---- rules ----------------------------------------------------------------------------------- */

/* Operands broadcast from the last axis on: parts must be of one axis, and what all ranks have must
 * be the same along it. */
static void elements(struct width *f)
{
    int end = 0;
    for (int k = 0; k < f->o->n_in; k++) {
        const struct tensor *x = operand(f, k);
        if (!is_width(x))
            continue;
        if (end && (end != x->desc.ndim - x->part_axis || f->blocks != x->part_first))
            refuse(f, "its operands are parts of different axes");
        keep(f, x, 0);
        end = x->desc.ndim - x->part_axis;
    }
    for (int k = 0; k < f->o->n_in; k++) {
        const struct tensor *x = operand(f, k);
        if (x && !is_width(x) && x->desc.ndim >= end && x->desc.shape[x->desc.ndim - end] != 1)
            refuse(f, "one operand is a part and one is whole: split it too (ckpt_param_split)");
    }
    f->axis = result(f)->desc.ndim - end;
}

static void expression(struct width *f)
{
    const struct expr *e = f->o->attr;
    elements(f);
    if (f->axis >= result(f)->desc.ndim - e->reduced)
        refuse(f, "it reduces the axis that is split");
    for (int i = 0; i < e->n_nodes; i++) {
        if (e->node[i].code == EXPR_UNIFORM)
            refuse(f, "random numbers are drawn for whole layers");
        if (e->node[i].code == EXPR_INDEX && e->node[i].arg[0] == f->axis)
            refuse(f, "it reads the index along the axis that is split");
    }
}

/* Rows with their parts before the last axis: whole heads. */
static void rows(struct width *f)
{
    const struct tensor *x = operand(f, 0);
    if (!is_width(x) || x->part_axis >= x->desc.ndim - 1)
        refuse(f, "it relates the elements of an axis that is split");
    for (int k = 1; k < f->o->n_in; k++)
        if (is_width(operand(f, k)))
            refuse(f, "an operand that all heads share is a part");
    if (is_width(x))
        keep(f, x, x->part_axis);
}

static void turned(struct width *f, int axis)
{
    rows(f);
    if (f->axis == axis)
        refuse(f, "its table has the angles of another axis");
}

static void rope(struct width *f)
{
    turned(f, ((const struct rope_attr *)f->o->attr)->axis);
}

static void rms_norm_rope(struct width *f)
{
    turned(f, ((const struct rms_norm_rope_attr *)f->o->attr)->axis);
}

/* Rows of the weight are parts of the result, which the bias has, too.  Columns are parts of x. */
static void linear(struct width *f)
{
    const struct tensor *x = operand(f, 0), *w = operand(f, 1), *b = operand(f, 2);
    const bool ends = is_width(x) && x->part_axis == x->desc.ndim - 1;
    if (operand(f, 3) && operand(f, 3)->part > PART_COUNTS)
        refuse(f, "a part is added to the result of a layer");
    if (!is_width(w)) {
        if (ends)
            refuse(f, "x is a part and the weight is whole: split it along axis 1 "
                      "(ckpt_param_split)");
        rows(f);
    } else if (w->part_axis == 0) {
        if (is_width(x))
            refuse(f, "x is a part already, and the rows of the weight are split");
        if (b && (!is_width(b) || b->part_first != w->part_first))
            refuse(f, "the bias is not split as the rows of the weight are");
        keep(f, w, result(f)->desc.ndim - 1);
    } else {
        if (!ends || x->part_first != w->part_first)
            refuse(f, "the columns of the weight are split, and x is no part of that width");
        f->part = PART_TERM; /* tensor_linear adds the bias to the sum */
    }
}

static void attention(struct width *f)
{
    const struct tensor *q = operand(f, ATTENTION_Q);
    const int heads = q->desc.ndim - 2;
    if (!is_width(q) || q->part_axis != heads || !are_alike(q, operand(f, ATTENTION_K)) ||
        !are_alike(q, operand(f, ATTENTION_V)))
        refuse(f, "q, k and v must all be parts of their heads");
    if (operand(f, ATTENTION_PLAIN + ATTENTION_BIAS))
        refuse(f, "a bias is that of all heads");
    keep(f, q, heads);
}

/* Elements of d before an axis, in order. */
static int64_t before(const struct ckpt_desc *d, int axis)
{
    int64_t n = 1;
    for (int i = 0; i < axis; i++)
        n *= d->shape[i];
    return n;
}

/* A width of one block may be the first of several axes that it is cut into, or that are joined;
 * one of several blocks may become [blocks, width].  An axis of one element does not count, since
 * it may be one that all ranks have: tensor_heads says where a rank has one head. */
static void reshape(struct width *f)
{
    const struct tensor *x = operand(f, 0);
    const struct ckpt_desc *to = &result(f)->desc;
    if (x->part == PART_TERM) {
        f->part = PART_TERM;
        return;
    }
    const int64_t n = before(&x->desc, x->part_axis), size = x->desc.shape[x->part_axis];
    f->part = PART_WIDTH;
    for (int i = 0; i < to->ndim; i++) {
        f->axis = i;
        f->blocks = x->part_first;
        if (before(to, i) == n && to->shape[i] == size)
            return;
        f->blocks = 1;
        const bool cut = size % to->shape[i] == 0 && to->shape[i] > 1;
        const bool joined = to->shape[i] % size == 0;
        if (before(to, i) == n && x->part_first == 1 && (cut || joined))
            return;
        const int64_t block = size / x->part_first;
        if (before(to, i) == n * x->part_first && x->part_first > 1 && block % to->shape[i] == 0 &&
            (to->shape[i] > 1 || block == 1))
            return;
    }
    refuse(f, "it joins parts with other elements");
}

static void permute(struct width *f)
{
    const struct tensor *x = operand(f, 0);
    const int *from = f->o->attr; /* struct permute_attr begins with the axes */
    keep(f, x, 0);
    for (int i = 0; i < x->desc.ndim; i++)
        f->axis = from[i] == x->part_axis ? i : f->axis;
}

static void slice(struct width *f)
{
    const struct slice_attr *a = f->o->attr;
    const struct tensor *x = operand(f, 0);
    keep(f, x, x->part_axis);
    if (a->axis == x->part_axis)
        refuse(f, "it cuts the axis that is split");
}

/* The blocks of a width are parts of a width each. */
static void split(struct width *f)
{
    const struct tensor *x = operand(f, 0);
    const int axis = *(const int *)f->o->attr;
    keep(f, x, x->part_axis);
    if (axis == x->part_axis && x->part_first == f->o->n_out)
        f->blocks = 1;
    else if (axis == x->part_axis)
        refuse(f, "it cuts the axis that is split");
}

static void concat(struct width *f)
{
    const struct tensor *x = operand(f, 0);
    const int axis = *(const int *)f->o->attr;
    for (int k = 0; k < f->o->n_in; k++)
        if (!is_width(x) || !are_alike(x, operand(f, k)) || axis == x->part_axis)
            refuse(f, "its operands must be the same parts, on another axis");
    keep(f, x, x->part_axis);
}

static void sum_of_terms(struct width *f)
{
    if (operand(f, 0)->part != PART_TERM)
        refuse(f, "it adds up parts that are no terms");
    f->part = PART_ALL;
}

/* ---- following ------------------------------------------------------------------------------- */

static const struct row {
    const struct ckpt_op_def *def;
    width_rule *rule;
} table[] = {{&op_add, elements},        {&op_sub, elements},
             {&op_mul, elements},        {&op_affine, elements},
             {&op_cast, elements},       {&op_copy, elements},
             {&op_broadcast, elements},  {&op_stop_gradient, elements},
             {&op_where, elements},      {&op_gelu, elements},
             {&op_silu, elements},       {&op_relu, elements},
             {&op_expr, expression},     {&op_linear, linear},
             {&op_layer_norm, rows},     {&op_rms_norm, rows},
             {&op_rope, rope},           {&op_rms_norm_rope, rms_norm_rope},
             {&op_attention, attention}, {&op_reshape, reshape},
             {&op_permute, permute},     {&op_slice, slice},
             {&op_split, split},         {&op_concat, concat},
             {&op_join, concat},         {&op_tensor_sum, sum_of_terms}};

static width_rule *rule_of(const struct ckpt_op_def *def)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].def == def)
            return table[i].rule;
    return NULL;
}

/* Outputs beside the first, such as statistics of rows, are for the op's own gradient. */
static void set_results(struct width *f)
{
    for (int k = 0; k < f->o->n_out; k++) {
        const int32_t x = op_out(f->t, f->o, k);
        if (x <= 0 || (k && f->o->def != &op_split))
            continue;
        f->t->tensors.data[x].part = (uint8_t)f->part;
        f->t->tensors.data[x].part_axis = (int8_t)f->axis;
        f->t->tensors.data[x].part_first = f->blocks;
    }
}

void tensor_follow(ckpt_tape *t, int32_t op)
{
    struct width f = {.t = t, .o = &t->ops.data[op]};
    width_rule *rule = rule_of(f.o->def);
    bool parts = false, terms = false;
    for (int k = 0; k < f.o->n_in; k++) {
        const struct tensor *x = operand(&f, k);
        parts |= x && x->part > PART_COUNTS;
        terms |= x && x->part == PART_TERM;
    }
    if (!parts)
        return;
    if (!rule || (terms && f.o->def != &op_reshape && f.o->def != &op_tensor_sum))
        refuse(&f, "it may relate parts to each other");
    else
        rule(&f);
    if (f.reason)
        tape_fail(t, CKPT_EINVAL,
                  "%s: the ranks split the layer whose result it reads (--tensor "
                  "%d): %s",
                  t->env.calls->name(f.o->def, f.o->attr), t->env.sharing.tensor, f.reason);
    else
        set_results(&f);
}

void tensor_mark(ckpt_tape *t, int32_t param, ckpt_tensor x)
{
    const struct param_split *s = &t->env.params->data[param].split;
    if (s->ranks < 2 || !x.id || t->error.code)
        return;
    struct tensor *v = &t->tensors.data[x.id];
    v->part = PART_WIDTH;
    v->part_axis = (int8_t)s->axis;
    v->part_first = (int32_t)s->blocks;
    t->splits = true;
}

int tensor_check(ckpt_tape *t, ckpt_tensor loss)
{
    const struct tensor *v = tape_tensor(t, loss);
    if (v && v->part > PART_COUNTS)
        return tape_fail(t, CKPT_EINVAL,
                         "the loss is a part of a layer that ranks split (--tensor "
                         "%d)",
                         t->env.sharing.tensor);
    if (!t->splits)
        return tape_fail(t, CKPT_EINVAL,
                         "no layer of this model is split, and --tensor %d gives "
                         "several ranks the same samples: see ckpt_param_split",
                         t->env.sharing.tensor);
    t->splits = false;
    return 0;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static const struct tensor *part_of_weight(ckpt_tape *t, ckpt_tensor w)
{
    const struct tensor *v =
        t && !t->error.code && w.id && t->env.sharing.tensor > 1 ? tape_tensor(t, w) : NULL;
    return is_width(v) ? v : NULL;
}

bool tensor_gives_terms(ckpt_tape *t, ckpt_tensor w)
{
    const struct tensor *v = part_of_weight(t, w);
    return v && v->part_axis == 1;
}

ckpt_tensor tensor_heads(ckpt_tape *t, ckpt_tensor x)
{
    struct tensor *v = t->splits && !t->error.code && x.id > 0 ? tape_tensor(t, x) : NULL;
    const int last = v ? v->desc.ndim - 1 : 0;
    if (is_width(v) && v->part_axis == last && last > 0 && v->desc.shape[last - 1] == 1)
        v->part_axis = (int8_t)(last - 1);
    return x;
}

int64_t tensor_own(ckpt_tape *t, ckpt_tensor w, int64_t heads)
{
    return part_of_weight(t, w) ? heads / t->env.sharing.tensor : heads;
}

/* The ops beside the product do not change the random numbers of later ones. */
ckpt_tensor tensor_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor a)
{
    const struct collective_attr attr = {.ranks = t->env.sharing.tensor, .group = GROUP_TENSOR};
    ckpt_tensor y = ops_record1(t, &op_linear, 3, (ckpt_tensor[]){x, w, CKPT_NONE}, NULL, 0);
    const int32_t number = tape_number(t);
    const struct ckpt_desc d = ckpt_desc_of(t, y);
    y = ckpt_reshape(t, y, 1, (int64_t[]){desc_numel(&d)});
    y = ckpt_reshape(t, OPS_RECORD(t, &op_tensor_sum, &attr, y), d.ndim, d.shape);
    if (b.id)
        y = ckpt_add(t, y, b);
    if (a.id)
        y = ckpt_add(t, y, a);
    tape_set_number(t, number);
    return y;
}
