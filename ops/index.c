/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups: index_select (used by embeddings) and gather, with their adjoints index_add and scatter.
 * The adjoints add in fp32 in the order of the indices, on any device, with any number of threads,
 * for any dtype.  Each pair is each other's gradient, so gradients of any order exist.
 */
#include "adapter.h"
#include "call.h"
#include "expr/expr.h"
#include "index_shape.h"
#include "ops.h"

static int check_index(struct ckpt_call *call, int k)
{
    if (call->in[k].ndim < 0)
        return ckpt_call_fail(call, "there is no index");
    if (call->in[k].dtype != CKPT_I32)
        return ckpt_call_fail(call, "the index must be i32");
    if (desc_numel(&call->in[k]) > INT32_MAX)
        return ckpt_call_fail(call, "the index has more than %d elements", INT32_MAX);
    return 0;
}

static int check_axis(struct ckpt_call *call, int64_t axis)
{
    const struct ckpt_desc *x = &call->in[0];
    if (x->ndim < 0)
        return ckpt_call_fail(call, "operand 0 is missing");
    if (axis < 0 || axis >= x->ndim)
        return ckpt_call_fail(call, "there is no axis %lld", (long long)axis);
    if (x->shape[axis] > INT32_MAX)
        return ckpt_call_fail(call, "axis %lld is too long for an i32 index", (long long)axis);
    return 0;
}

/* Replaces the axes [axis, axis + old) of d by the axes of `by`. */
static int replace_axes(struct ckpt_call *call, struct ckpt_desc *d, int64_t axis, int old,
                        const struct ckpt_desc *by)
{
    struct ckpt_desc x = *d;
    int ndim = x.ndim - old + by->ndim, at = (int)axis;
    if (ndim > CKPT_MAX_DIMS)
        return ckpt_call_fail(call, "the result would have %d axes; at most %d are possible", ndim,
                              CKPT_MAX_DIMS);
    for (int i = 0; i < by->ndim; i++)
        d->shape[at + i] = by->shape[i];
    for (int i = at + old; i < x.ndim; i++)
        d->shape[i - old + by->ndim] = x.shape[i];
    d->ndim = ndim;
    d->offset = 0;
    desc_dense(d);
    return 0;
}

static void moving_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    int64_t size = ckpt_dtype_size(call->out[0].dtype);
    *cost = (struct ckpt_cost){.bytes = 2. * (double)desc_numel(&call->out[0]) * (double)size};
}

/* ---- index_select, index_add ----------------------------------------------------------------- */

static int select_shape(struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    if (check_axis(call, attr->axis) || check_index(call, 1))
        return CKPT_ESHAPE;
    call->out[0] = call->in[0];
    return replace_axes(call, &call->out[0], attr->axis, 1, &call->in[1]);
}

static void select_grad(struct ckpt_grad *g)
{
    struct index_attr attr = *(const struct index_attr *)g->attr;
    attr.size = ckpt_desc_of(g->tape, g->in[0]).shape[attr.axis];
    g->din[0] = OPS_RECORD(g->tape, &op_index_add, &attr, g->dout[0], g->in[1]);
}

OPS_DEF(index_select, .shape = select_shape, .grad = select_grad, .cost = moving_cost);

/* {dy, index} -> dx */
static int add_shape(struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    const struct ckpt_desc *index = &call->in[1];
    struct ckpt_desc axis = {.ndim = 1, .shape = {attr->size}};
    if (call_float(call, 0) || check_index(call, 1))
        return CKPT_ESHAPE;
    call->out[0] = call->in[0];
    call->out[0].dtype = CKPT_F32;
    if (replace_axes(call, &call->out[0], attr->axis, index->ndim, &axis))
        return CKPT_ESHAPE;
    return 0;
}

/* Sets the gradient to 0 where the index is `skip`.  The index broadcasts to dy. */
static ckpt_tensor without(ckpt_tape *t, ckpt_tensor dy, ckpt_tensor index, int64_t skip)
{
    struct expr e;
    expr_init(&e, "skip", 2);
    e.operand[1] = EXPR_I32;
    int there = expr_binary(&e, EXPR_NE, 1, expr_constant(&e, (float)skip));
    expr_finish(&e, expr_where(&e, there, 0, expr_constant(&e, 0.f)), NULL);
    return expr_record(t, &e, (ckpt_tensor[]){dy, index});
}

static void add_grad(struct ckpt_grad *g)
{
    const struct index_attr *attr = g->attr;
    ckpt_tape *t = g->tape;
    struct ckpt_desc index = ckpt_desc_of(t, g->in[1]);
    ckpt_tensor dx = OPS_RECORD(t, &op_index_select, attr, g->dout[0], g->in[1]);
    int axes = ckpt_desc_of(t, dx).ndim - (int)attr->axis, ndim = index.ndim;
    for (; ndim < axes; ndim++)
        index.shape[ndim] = 1;
    if (attr->skip >= 0)
        dx = without(t, dx, ckpt_reshape(t, g->in[1], ndim, index.shape), attr->skip);
    g->din[0] = dx;
}

static void add_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct ckpt_desc *x = &call->in[0];
    double n = (double)desc_numel(x);
    *cost = (struct ckpt_cost){.flops = n,
                               .bytes = n * (double)(ckpt_dtype_size(x->dtype) + 4) +
                                        4. * (double)desc_numel(&call->out[0])};
}

OPS_DEF(index_add, .flags = CKPT_OP_ACCUMULATE, .shape = add_shape, .grad = add_grad,
        .cost = add_cost);

ckpt_tensor ckpt_index_select(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index)
{
    struct index_attr attr = {.axis = axis, .skip = -1};
    return OPS_RECORD(t, &op_index_select, &attr, x, index);
}

ckpt_tensor ckpt_embedding(ckpt_tape *t, ckpt_tensor table, ckpt_tensor index, int64_t padding)
{
    OPS_CALL(t);
    struct index_attr attr = {.axis = 0, .skip = padding};
    struct ckpt_desc d = ckpt_desc_of(t, table);
    const struct param *adapted = find_adapter(t, table);
    if (adapted)
        ckpt_tape_fail(t, CKPT_EINVAL,
                       "embedding: '%s' has an adapter (ckpt_lora), which is for products alone",
                       adapted->name);
    else if (d.ndim != 2)
        ckpt_tape_fail(t, CKPT_ESHAPE, "embedding: the table must be [V, D]; it has %d axes",
                       d.ndim);
    else if (padding < -1 || padding >= d.shape[0])
        ckpt_tape_fail(t, CKPT_EINVAL, "embedding: padding is %lld; the table has %lld rows",
                       (long long)padding, (long long)d.shape[0]);
    else if (ckpt_desc_of(t, index).dtype != CKPT_I32)
        ckpt_tape_fail(t, CKPT_ESHAPE, "embedding: the index must be i32");
    return OPS_RECORD(t, &op_index_select, &attr, table, index);
}

/* ---- gather, scatter ------------------------------------------------------------------------- */

static int gather_shape(struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0], *index = &call->in[1];
    if (check_axis(call, attr->axis) || check_index(call, 1))
        return CKPT_ESHAPE;
    if (index->ndim != x->ndim)
        return ckpt_call_fail(call, "x and the index must have equally many axes");
    for (int i = 0; i < x->ndim; i++)
        if (i != attr->axis && index->shape[i] != x->shape[i])
            return ckpt_call_fail(call, "axis %d of x and of the index differ in size", i);
    call->out[0] = *index;
    call->out[0].dtype = x->dtype;
    call->out[0].offset = 0;
    desc_dense(&call->out[0]);
    return 0;
}

static void gather_grad(struct ckpt_grad *g)
{
    struct index_attr attr = *(const struct index_attr *)g->attr;
    attr.size = ckpt_desc_of(g->tape, g->in[0]).shape[attr.axis];
    g->din[0] = OPS_RECORD(g->tape, &op_scatter, &attr, g->dout[0], g->in[1]);
}

OPS_DEF(gather, .shape = gather_shape, .grad = gather_grad, .cost = moving_cost);

/* {source, index} -> zeros, with the source added at the indices. */
static int scatter_shape(struct ckpt_call *call)
{
    const struct index_attr *attr = call->attr;
    if (call_float(call, 0) || check_axis(call, attr->axis) || check_index(call, 1))
        return CKPT_ESHAPE;
    if (!desc_same_shape(&call->in[0], &call->in[1]))
        return ckpt_call_fail(call, "the source and the index must have the same shape");
    call->out[0] = call->in[0];
    call->out[0].dtype = CKPT_F32;
    call->out[0].offset = 0;
    call->out[0].shape[attr->axis] = attr->size;
    desc_dense(&call->out[0]);
    return 0;
}

static void scatter_grad(struct ckpt_grad *g)
{
    const struct index_attr *attr = g->attr;
    g->din[0] = OPS_RECORD(g->tape, &op_gather, attr, g->dout[0], g->in[1]);
}

OPS_DEF(scatter, .flags = CKPT_OP_ACCUMULATE, .shape = scatter_shape, .grad = scatter_grad,
        .cost = add_cost);

ckpt_tensor ckpt_gather(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index)
{
    struct index_attr attr = {.axis = axis, .skip = -1};
    return OPS_RECORD(t, &op_gather, &attr, x, index);
}

/* x plus the sums of `adjoint`, which are fp32; the result is rounded to the dtype of x. */
static ckpt_tensor add_sums(ckpt_tape *t, const struct ckpt_op_def *adjoint, ckpt_tensor x,
                            int axis, ckpt_tensor index, ckpt_tensor source)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct index_attr attr = {.axis = axis, .skip = -1};
    if (axis >= 0 && axis < d.ndim)
        attr.size = d.shape[axis];
    ckpt_tensor sums = OPS_RECORD(t, adjoint, &attr, source, index);
    struct ckpt_desc got = ckpt_desc_of(t, sums);
    if (sums.id && !desc_same_shape(&got, &d))
        ckpt_tape_fail(t, CKPT_ESHAPE,
                       "%s: x and the source must have the same sizes on all axes other than %d",
                       adjoint == &op_scatter ? "scatter_add" : "index_add", axis);
    return ckpt_cast(t, ckpt_add(t, x, sums), d.dtype);
}

ckpt_tensor ckpt_scatter_add(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index,
                             ckpt_tensor source)
{
    OPS_CALL(t);
    return add_sums(t, &op_scatter, x, axis, index, source);
}

ckpt_tensor ckpt_index_add(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index,
                           ckpt_tensor source)
{
    OPS_CALL(t);
    return add_sums(t, &op_index_add, x, axis, index, source);
}
