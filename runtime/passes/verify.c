/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verifier of a tape, which --verify runs after each pass:
 *
 * - SSA: a tensor is the result of at most one op, whose list of results has it where it says;
 * - an op reads no result of a later one;
 * - the elements of a tensor lie within its storage, and a view is on the storage of its operand;
 * - an in-place op comes after all that read the value it overwrites;
 * - results have the dtype and shape that the rule of their op gives;
 * - the uses of the tape (uses.h) are those of its ops.
 *
 * A fault is an error of this library: the sentence names the pass and the op.
 */
#include <stdlib.h>
#include "passes/dump.h"

struct verifier {
    ckpt_tape *t;
    const char *pass;
    int32_t op;
};

static int fault(const struct verifier *v, const char *what, int k)
{
    char name[256];
    tape_op_name(v->t, v->op, name, sizeof name);
    v->t->file = NULL;
    return tape_fail(v->t, CKPT_EPLAN, "after the pass '%s' op %d, %s: %s %d", v->pass, v->op, name,
                     what, k);
}

/* Whether all elements of x lie in its storage. */
static bool is_within(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    int64_t last = v->desc.offset;
    for (int i = 0; i < v->desc.ndim; i++)
        last += (v->desc.shape[i] - 1) * v->desc.stride[i];
    return v->storage >= 0 && v->storage < t->n_storages && v->desc.offset >= 0 &&
           (last + 1) * ckpt_dtype_size(v->desc.dtype) <= t->storages.data[v->storage].bytes;
}

static int check_input(const struct verifier *v, const struct op *o, int k)
{
    const ckpt_tape *t = v->t;
    const int32_t x = op_in(t, o, k);
    if (x >= t->n_tensors)
        return fault(v, "there is no tensor for operand", k);
    if (x > 0 && t->tensors.data[x].op >= v->op)
        return fault(v, "it is before the op that makes operand", k);
    if (x > 0 && !is_within(t, x))
        return fault(v, "elements are outside of their storage in operand", k);
    return 0;
}

static int check_output(const struct verifier *v, const struct op *o, int k)
{
    const ckpt_tape *t = v->t;
    const int32_t y = op_out(t, o, k), x = o->n_in ? op_in(t, o, 0) : 0;
    if (y <= 0)
        return 0;
    const struct tensor *made = &t->tensors.data[y];
    if (y >= t->n_tensors || made->op != v->op || made->index != k)
        return fault(v, "another op makes result", k);
    if (!is_within(t, y))
        return fault(v, "elements are outside of their storage in result", k);
    if (o->def->flags & CKPT_OP_VIEW && (x <= 0 || t->tensors.data[x].storage != made->storage))
        return fault(v, "it is a view and has a storage of its own for result", k);
    return 0;
}

/* An in-place result has the storage of its operand, which no later op reads. */
static int check_in_place(const struct verifier *v, const struct op *o, int k)
{
    const ckpt_tape *t = v->t;
    const int32_t x = k < o->n_in ? op_in(t, o, k) : 0, y = op_out(t, o, k);
    if (x <= 0 || y <= 0)
        return 0;
    if (t->tensors.data[x].storage != t->tensors.data[y].storage)
        return fault(v, "it works in place and has another storage for result", k);
    if (uses_next_reader(t, x, v->op) >= 0)
        return fault(v, "a later op reads the value that it overwrites, operand", k);
    return 0;
}

/* Whether result k, which the rule describes as d, can be tensor y. */
static bool is_like(const ckpt_tape *t, int32_t y, const struct ckpt_desc *d)
{
    const struct ckpt_desc *made = &t->tensors.data[y].desc;
    return made->dtype == d->dtype && desc_same_shape(made, d);
}

/* Extra outputs come after those of the rule. */
static int check_shapes(const struct verifier *v, const struct op *o)
{
    ckpt_tape *t = v->t;
    char reason[CKPT_MESSAGE / 4] = "";
    struct ckpt_call call;
    const size_t n = (size_t)(o->n_in + o->n_out) + 1;
    struct ckpt_desc *d = calloc(2 * n, sizeof *d);
    if (!d)
        return tape_fail(t, CKPT_ENOMEM, "no memory to verify a tape");
    tape_call(t, o, &call, d, d + o->n_in);
    for (int k = 0; k < o->n_out; k++)
        call.out[k] = (struct ckpt_desc){.ndim = -1};
    call.threads = (int)max_i64(1, t->env.threads);
    call.message = reason;
    call.message_size = sizeof reason;
    int rc = o->def->shape(&call)
                 ? fault(v, "its rule refuses its operands, of which there are", o->n_in)
                 : 0;
    for (int k = 0; k < o->n_out && !rc; k++)
        if (op_out(t, o, k) > 0 && call.out[k].ndim >= 0 &&
            !is_like(t, op_out(t, o, k), &call.out[k]))
            rc = fault(v, "its rule gives another shape for result", k);
    free(d);
    return rc;
}

static int check_op(const struct verifier *v)
{
    const struct op *o = &v->t->ops.data[v->op];
    int rc = 0;
    for (int k = 0; k < o->n_in && !rc; k++)
        rc = check_input(v, o, k);
    for (int k = 0; k < o->n_out && !rc; k++)
        rc = check_output(v, o, k);
    for (int k = 0; k < o->n_out && !rc && o->def->flags & CKPT_OP_INPLACE; k++)
        rc = check_in_place(v, o, k);
    const bool ruled = o->feed < 0 && o->fetch < 0 && o->def != &tape_removed;
    return rc || !ruled ? rc : check_shapes(v, o);
}

/* Whether the lists of tensor x have what they should, and reads in the order of ops. */
static bool is_current(const ckpt_tape *t, int32_t x)
{
    int32_t n = 0, op = 0;
    for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u)) {
        const struct op *o = &t->ops.data[uses_op(t, u)];
        const int k = uses_operand(t, u);
        if (uses_op(t, u) < op || k < 0 || k >= o->n_in || op_in(t, o, k) != x)
            return false;
        op = uses_op(t, u);
        n++;
    }
    int32_t y = uses_on(t, t->tensors.data[x].storage);
    while (y && y != x)
        y = uses_older(t, y);
    return y && n == uses_count(t, x);
}

/* Each list has only reads of ops, and all together as many as the ops have. */
static int check_uses(const struct verifier *v)
{
    const ckpt_tape *t = v->t;
    int64_t listed = 0, read = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++)
            read += op_in(t, &t->ops.data[i], k) > 0;
    for (int32_t x = 1; x < t->n_tensors; x++) {
        if (!is_current(t, x))
            return fault(v, "the uses are not current of tensor", x);
        listed += uses_count(t, x);
    }
    return listed == read ? 0 : fault(v, "a read is in no list of uses; ops have", (int)read);
}

int passes_verify(ckpt_tape *t, const char *pass)
{
    struct verifier v = {.t = t, .pass = pass};
    int rc = t->n_ops ? check_uses(&v) : 0;
    for (v.op = 0; v.op < t->n_ops && !rc; v.op++)
        rc = check_op(&v);
    return rc;
}
