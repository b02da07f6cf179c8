/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops without a gradient rule on the way from a parameter to the loss.  They count as constants.
 *
 * - The loss depends on a parameter through such ops alone: that is an error, since training would
 *   leave the parameter as it is.
 * - There is another path beside such an op, which makes a float tensor: the plan table names it.
 *
 * ckpt_stop_gradient says what it means, so paths through it do not count.
 */
#include <stdlib.h>
#include "ops.h"
#include "passes/passes.h"

/* Per tensor: whether the loss depends on it, and whether it gets a gradient; x is derived from the
 * parameter in question. */
struct paths {
    bool *depends, *graded, *derived;
};

static bool has_rule(const struct op *o)
{
    return o->def->grad || o->of_gradients;
}

/* Whether any input or output of an op is marked. */
static bool any_marked(const ckpt_tape *t, const struct op *o, int first, int n, const bool *marks)
{
    for (int k = 0; k < n; k++) {
        int32_t x = t->operands.data[o->operands + first + k];
        if (x > 0 && marks[x])
            return true;
    }
    return false;
}

static void mark(const ckpt_tape *t, const struct op *o, int first, int n, bool *marks)
{
    for (int k = 0; k < n; k++) {
        int32_t x = t->operands.data[o->operands + first + k];
        if (x > 0)
            marks[x] = true;
    }
}

/* Whether the op gathers or decodes a parameter: the tensor that models read is then its output. */
static bool brings_parameter(const ckpt_tape *t, const struct op *o)
{
    return o->n_out == 1 && op_out(t, o, 0) > 0 && tape_param_of(t, op_out(t, o, 0)) >= 0;
}

static void go_back(const ckpt_tape *t, struct paths *p, int32_t loss)
{
    p->depends[loss] = p->graded[loss] = true;
    for (int32_t i = t->n_ops - 1; i >= 0; i--) {
        const struct op *o = &t->ops.data[i];
        if (o->def == &op_stop_gradient || brings_parameter(t, o))
            continue;
        if (any_marked(t, o, o->n_in, o->n_out, p->depends))
            mark(t, o, 0, o->n_in, p->depends);
        if (has_rule(o) && any_marked(t, o, o->n_in, o->n_out, p->graded))
            mark(t, o, 0, o->n_in, p->graded);
    }
}

/* The first op without a rule between parameter tensor x and the loss. */
static int32_t find_end(const ckpt_tape *t, struct paths *p, int32_t x)
{
    p->derived[x] = true;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def == &op_stop_gradient || !any_marked(t, o, 0, o->n_in, p->derived))
            continue;
        if (!has_rule(o) && any_marked(t, o, o->n_in, o->n_out, p->depends))
            return i;
        mark(t, o, o->n_in, o->n_out, p->derived);
    }
    return -1;
}

/* Whether an output of op o would have had a gradient, and an input passed it on to a parameter. */
static bool cuts(const ckpt_tape *t, const struct op *o, const struct paths *p)
{
    bool any = false, needs = false;
    for (int k = 0; k < o->n_out; k++) {
        int32_t x = op_out(t, o, k);
        enum ckpt_dtype dtype = t->tensors.data[max_i64(0, x)].desc.dtype;
        any |= x > 0 && p->graded[x] && (dtype == CKPT_F32 || dtype == CKPT_BF16);
    }
    for (int k = 0; k < o->n_in; k++)
        needs |= op_in(t, o, k) > 0 && t->tensors.data[op_in(t, o, k)].needs_grad;
    return any && needs && !has_rule(o) && o->def != &op_stop_gradient;
}

static void refuse(ckpt_tape *t, struct paths *p, int32_t x)
{
    char name[128] = "an op";
    int32_t end = find_end(t, p, x);
    if (end >= 0)
        tape_op_name(t, end, name, sizeof name);
    t->file = NULL;
    tape_fail(t, CKPT_EINVAL,
              "the loss depends on parameter '%.200s' only through %s, which has no gradient: give "
              "the op a rule (ckpt_op_def.grad), or pass the parameter through ckpt_stop_gradient "
              "if it should not be trained by this loss",
              t->env.params->data[tape_param_of(t, x)].name, name);
}

int passes_check_rules(ckpt_tape *t, ckpt_tensor loss)
{
    const size_t n = (size_t)t->n_tensors;
    bool *marks = calloc(3 * n, sizeof *marks);
    struct paths p = {marks, marks + n, marks + 2 * n};
    if (!marks)
        return tape_fail(t, CKPT_ENOMEM, "no memory to differentiate %d ops", t->n_ops);
    go_back(t, &p, loss.id);
    for (int32_t x = 1; x < t->n_tensors && !t->error.code; x++)
        if (p.depends[x] && !p.graded[x] && t->tensors.data[x].needs_grad &&
            tape_param_of(t, x) >= 0)
            refuse(t, &p, x);
    for (int32_t i = 0; i < t->n_ops; i++)
        if (cuts(t, &t->ops.data[i], &p) && !t->constant_ops++)
            tape_op_name(t, i, t->constant_op, sizeof t->constant_op);
    free(marks);
    return t->error.code;
}
