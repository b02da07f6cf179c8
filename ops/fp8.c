/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers with 8-bit matrix products (--matmul fp8): y = x w^T + b, and gradients.
 *
 * A separate op, to_fp8, rounds an operand to 8 bits.  Its scale is one power of two for the whole
 * tensor, from the largest magnitude (core/fp8.h).  x and w become e4m3; dy becomes e5m2, because
 * gradients need the range.  Hopper multiplies 8-bit matrices only where the summed axis of both is
 * dense, so the gradients need transposed copies, which the same op writes while it has the values:
 *
 *   y  = qx qw^T           x [M, K], w [N, K]
 *   dx = qdy (qw^T)^T      transposed copy of w, [K, N]
 *   dw = qdy^T (qx^T)^T    transposed copies of dy and x, [N, M'] and [K, M']
 *
 * M' is M padded with zeros to whole cache lines.  Copies and scale are tensors like any other: the
 * plan keeps them for the backward pass, recomputes or offloads them.  A kept copy of x takes one
 * byte per element instead of two.  A tensor that several layers read is rounded once.
 *
 * The tape alone, never a plan, determines which layers use 8 bits: bf16 operands, a 2-D parameter,
 * sizes of at least FP8_MIN_SIDE, some parameter upstream of x (so not the first layers of a
 * model), and no ckpt_full_precision (used for the last layers).
 *
 * The largest magnitude of an operand is an output of the op that produced it, or of to_fp8_largest
 * (passes/extra.c).  It is a tensor of four bytes, and is kept where a plan recomputes copies.
 */
#include <stdlib.h>
#include "fp8.h"
#include "core/fp8.h"
#include "extra.h"
#include "shapes/linear.h"
#include "expr/expr.h"
#include "ops.h"
#include "tape/tape.h"

/* ---- to_fp8 ---------------------------------------------------------------------------------- */

/* Flops per element of the source function and the rounding. */
static double source_flops(int32_t source)
{
    return source == FP8_OPERAND ? 1 : source == FP8_NORM_MODULATE ? 6 : 25;
}

bool fp8_vector_of(const struct ckpt_desc *v, const struct ckpt_desc *x, struct fp8_vector *to)
{
    int last = x->ndim - 2;
    *to = (struct fp8_vector){.share = 1};
    if (v->ndim != x->ndim || v->dtype != CKPT_BF16 || v->offset % 8 ||
        v->stride[v->ndim - 1] != 1 || v->shape[v->ndim - 1] != x->shape[x->ndim - 1])
        return false;
    for (; last >= 0 && v->shape[last] == 1; last--)
        to->share *= x->shape[last];
    int64_t rows = 1;
    for (int i = last; i >= 0; i--) {
        if (v->shape[i] != x->shape[i] || (i < last && v->stride[i] != rows * to->step))
            return false;
        to->step = i == last ? v->stride[i] : to->step;
        rows *= v->shape[i];
    }
    return to->step % 8 == 0 && linear_rows(x) <= INT32_MAX;
}

/* {x [..., K], the largest magnitude (added by passes/extra.c), shift, scale and statistics of a
 * norm or none} -> {scale, the requested copies [..., K] and [K, M']} */
static int to_fp8_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    const struct to_fp8_attr *attr = call->attr;
    int n = 0;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (x->ndim < 1 || x->shape[x->ndim - 1] % FP8_SIDE)
        return ckpt_call_fail(call, "the last axis must have a multiple of %d elements", FP8_SIDE);
    call->out[n++] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    if (attr->copies & FP8_ROWS) {
        call_like(call, n, 0);
        call->out[n++].dtype = (enum ckpt_dtype)attr->dtype;
    }
    if (attr->copies & FP8_COLUMNS) {
        call->out[n] = (struct ckpt_desc){.dtype = (enum ckpt_dtype)attr->dtype, .ndim = 2};
        call->out[n].shape[0] = x->shape[x->ndim - 1];
        call->out[n].shape[1] = fp8_pitch(linear_rows(x), attr);
        desc_dense(&call->out[n]);
    }
    return CKPT_OK;
}

static void to_fp8_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct to_fp8_attr *attr = call->attr;
    cost->flops = source_flops(attr->source) * (double)desc_numel(&call->in[0]);
}

OPS_DEF(to_fp8, .flags = CKPT_OP_OPTIONAL_OUT, .shape = to_fp8_shape, .cost = to_fp8_cost);

/* {x} -> its largest magnitude, fp32 */
static int to_fp8_largest_shape(struct ckpt_call *call)
{
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    return CKPT_OK;
}

static void to_fp8_largest_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const struct to_fp8_largest_attr *attr = call->attr;
    cost->flops = source_flops(attr->source) * (double)desc_numel(&call->in[0]);
}

OPS_DEF(to_fp8_largest, .shape = to_fp8_largest_shape, .cost = to_fp8_largest_cost);

/* ---- products -------------------------------------------------------------------------------- */

int fp8_product_shape(struct ckpt_call *call, int a, int32_t dtype)
{
    const struct ckpt_desc *qa = &call->in[a], *qb = &call->in[a + 2];
    struct ckpt_desc *y = &call->out[0];
    if (!dtype_is_fp8(qa->dtype) || !dtype_is_fp8(qb->dtype) || qa->ndim < 1 || qb->ndim != 2 ||
        qa->shape[qa->ndim - 1] != qb->shape[1])
        return ckpt_call_fail(call,
                              "the operands must be 8-bit matrices with equally many columns");
    *y = *qa;
    y->dtype = (enum ckpt_dtype)dtype;
    y->offset = 0;
    y->shape[y->ndim - 1] = qb->shape[0];
    desc_dense(y);
    return CKPT_OK;
}

static int linear_fp8_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *b = &call->in[FP8_BIAS], *a = &call->in[FP8_ADDEND];
    int rc = fp8_product_shape(call, FP8_QX, ((const struct linear_fp8_attr *)call->attr)->dtype);
    const struct ckpt_desc *y = &call->out[0];
    if (rc)
        return rc;
    if (b->ndim >= 0 &&
        (b->ndim != 1 || b->shape[0] != y->shape[y->ndim - 1] || b->dtype != y->dtype))
        return ckpt_call_fail(call,
                              "the bias must have one axis of size %lld, the rows of w, and "
                              "its dtype",
                              (long long)y->shape[y->ndim - 1]);
    if (a->ndim >= 0 && (!desc_same_shape(a, y) || a->dtype != y->dtype))
        return ckpt_call_fail(call,
                              "a must have the shape of the result, with a last axis of size "
                              "%lld, and the dtype of x",
                              (long long)y->shape[y->ndim - 1]);
    return CKPT_OK;
}

static int gradient_shape(struct ckpt_call *call)
{
    return fp8_product_shape(call, 0, ((const struct linear_fp8_attr *)call->attr)->dtype);
}

/*
 * Machine rates are for bf16 products.  8-bit products run twice as fast on a GPU, so their flops
 * count half.  The emulation on the CPU gains nothing.
 */
static double product_flops(const struct ckpt_call *call, int a)
{
    const double flops = 2. * (double)desc_numel(&call->in[a]) * (double)call->in[a + 2].shape[0];
    return call->backend == CKPT_ON_CUDA ? flops / 2 : flops;
}

/* Without x and w, which only the gradient rule reads. */
static void linear_fp8_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = product_flops(call, FP8_QX);
    cost->bytes = (double)desc_bytes(&call->out[0]);
    for (int i = FP8_BIAS; i < call->n_in; i++)
        cost->bytes += call->in[i].ndim >= 0 ? (double)desc_bytes(&call->in[i]) : 0;
}

void fp8_gradient_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = product_flops(call, 0);
}

/* ---- recording ------------------------------------------------------------------------------- */

/* The requested copies, or CKPT_NONE, with the scale of both. */
struct fp8_copies {
    ckpt_tensor scale, rows, columns, sums;
};

/* Assigns the outputs of an op to the fields. */
static struct fp8_copies copies_in(const ckpt_tensor *out, int copies)
{
    struct fp8_copies c = {CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE};
    int n = 0;
    c.scale = out[n++];
    if (copies & FP8_ROWS)
        c.rows = out[n++];
    if (copies & FP8_COLUMNS)
        c.columns = out[n++];
    c.sums = out[n];
    return c;
}

bool fp8_reads(const ckpt_tape *t, int32_t x)
{
    const struct ckpt_desc *d = &t->tensors.data[x].desc;
    return d->dtype == CKPT_BF16 && desc_is_dense(d);
}

/* What is rounded: a weight, an activation with a row per token, or a gradient. */
enum fp8_kind { FP8_WEIGHT, FP8_TOKENS, FP8_GRADIENT };

/* sums: also output the column sums of x. */
static struct fp8_copies record_copies(ckpt_tape *t, ckpt_tensor x, enum fp8_kind kind, int copies,
                                       bool sums)
{
    const struct to_fp8_attr attr = {.dtype = kind == FP8_GRADIENT ? CKPT_F8E5M2 : CKPT_F8E4M3,
                                     .copies = copies,
                                     .fill = kind == FP8_WEIGHT ? FP8_SIDE : FP8_LINE};
    const ckpt_tensor in[FP8_FROM_INPUTS] = {x, CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE};
    ckpt_tensor out[4] = {CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE};
    const int n = copies == (FP8_ROWS | FP8_COLUMNS) ? 3 : 2;
    const int rc = ckpt_record(t, &op_to_fp8, FP8_FROM_INPUTS, in, n, out, &attr, sizeof attr);
    const struct ckpt_desc d = column_sum_desc(&t->tensors.data[x.id].desc);
    if (sums && !rc)
        out[n] = tape_add_extra(t, t->n_ops - 1, EXTRA_SUMS, &d);
    return copies_in(out, copies);
}

/* The copies that an op wrote. */
static struct fp8_copies copies_of(const ckpt_tape *t, const struct op *o)
{
    const struct to_fp8_attr *attr = o->attr;
    ckpt_tensor out[4] = {CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE};
    for (int i = 0; i < o->n_out && i < 4; i++)
        out[i] = tape_handle(t, op_out(t, o, i));
    return copies_in(out, attr->copies);
}

static enum fp8_kind kind_of(const struct op *o)
{
    return ((const struct to_fp8_attr *)o->attr)->fill == FP8_SIDE ? FP8_WEIGHT : FP8_TOKENS;
}

/* The e4m3 copies of a dense tensor, recorded at its first use in a product.  A tape that will be
 * differentiated needs the transposed copy, too. */
static struct fp8_copies copies_for(ckpt_tape *t, ckpt_tensor x, bool transposed,
                                    enum fp8_kind kind)
{
    const int32_t op = t->tensors.data[x.id].fp8_op;
    if (t->error.code)
        return (struct fp8_copies){CKPT_NONE, CKPT_NONE, CKPT_NONE, CKPT_NONE};
    if (op > 0 && kind_of(&t->ops.data[op]) == kind)
        return copies_of(t, &t->ops.data[op]);
    struct fp8_copies c =
        record_copies(t, x, kind, FP8_ROWS | (t->trains && transposed ? FP8_COLUMNS : 0), false);
    if (c.rows.id)
        t->tensors.data[x.id].fp8_op = t->tensors.data[c.rows.id].op;
    return c;
}

static bool needs_grad(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v = tape_tensor(t, x);
    return v && v->needs_grad;
}

ckpt_tensor fp8_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor a)
{
    struct linear_fp8_attr attr = {CKPT_BF16};
    x = ckpt_contiguous(t, tape_resolve(t, x));
    w = tape_resolve(t, w);
    const struct fp8_copies qw = copies_for(t, w, needs_grad(t, x), FP8_WEIGHT);
    const struct fp8_copies qx = copies_for(t, x, needs_grad(t, w), FP8_TOKENS);
    const ckpt_tensor in[FP8_INPUTS] = {x, w, b, a, qx.rows, qx.scale, qw.rows, qw.scale};
    return ops_record1(t, &op_linear_fp8, FP8_INPUTS, in, &attr, sizeof attr);
}

/* Whether x is a parameter, trained or not, or depends on one. */
static bool is_learned(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v = tape_tensor(t, x);
    return v && (v->learned || t->storages.data[v->storage].kind == STORAGE_VALUE);
}

static bool is_large_enough(const struct ckpt_desc *x, const struct ckpt_desc *w)
{
    return w->ndim == 2 && x->ndim >= 1 && x->shape[x->ndim - 1] == w->shape[1] &&
           w->shape[0] % FP8_SIDE == 0 && w->shape[1] % FP8_SIDE == 0 &&
           w->shape[0] >= FP8_MIN_SIDE && w->shape[1] >= FP8_MIN_SIDE &&
           linear_rows(x) >= FP8_MIN_SIDE;
}

bool fp8_applies(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w)
{
    if (t->error.code || !t->env.matmul || t->full_precision || t->phase != PHASE_FORWARD ||
        t->in_gradients || !params_at(t->env.params, w))
        return false;
    const struct ckpt_desc dx = ckpt_desc_of(t, x), dw = ckpt_desc_of(t, w);
    return dx.dtype == CKPT_BF16 && dw.dtype == CKPT_BF16 && is_large_enough(&dx, &dw) &&
           is_learned(t, x);
}

void ckpt_full_precision(ckpt_tape *t, bool on)
{
    if (t)
        t->full_precision = on;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The transposed copy of operand x, from the op that wrote the other copy, or from one more
 * rounding with the same bits. */
static struct fp8_copies transposed(ckpt_tape *t, ckpt_tensor rows, ckpt_tensor x)
{
    const struct op *o = &t->ops.data[t->tensors.data[rows.id].op];
    struct fp8_copies c = copies_of(t, o);
    return c.columns.id ? c : record_copies(t, x, kind_of(o), FP8_COLUMNS, false);
}

/* Whether the op that rounds dy also sums its rows.  This saves a pass over dy where the producer
 * of dy wrote no sums. */
static bool should_sum_rows(const ckpt_tape *t, ckpt_tensor dy)
{
    return !linear_column_sums_of(t, dy).id && t->tensors.data[dy.id].desc.dtype == CKPT_BF16;
}

/* Gradients recorded by ckpt_gradients are differentiated again, so they are not in 8 bits. */
static void linear_fp8_grad(struct ckpt_grad *g)
{
    ckpt_tape *t = g->tape;
    const ckpt_tensor dy = g->dout[0];
    const int copies = (g->need[FP8_X] ? FP8_ROWS : 0) | (g->need[FP8_W] ? FP8_COLUMNS : 0);
    struct linear_fp8_attr dx = {CKPT_BF16}, dw = {g->want_bf16[FP8_W] ? CKPT_BF16 : CKPT_F32};
    if (t->in_gradients) {
        linear_grad(g);
        return;
    }
    const bool sums = copies && g->need[FP8_BIAS] && should_sum_rows(t, dy);
    if (g->need[FP8_BIAS] && !sums)
        g->din[FP8_BIAS] = linear_bias_gradient(t, dy);
    if (g->need[FP8_ADDEND])
        g->din[FP8_ADDEND] = dy;
    if (!copies)
        return;
    const struct fp8_copies q = record_copies(t, dy, FP8_GRADIENT, copies, sums);
    if (sums)
        g->din[FP8_BIAS] = q.sums;
    if (g->need[FP8_X]) {
        const struct fp8_copies w = transposed(t, g->in[FP8_QW], g->in[FP8_W]);
        g->din[FP8_X] =
            OPS_RECORD(t, &op_linear_fp8_dx, &dx, q.rows, q.scale, w.columns, w.scale, CKPT_NONE);
    }
    if (g->need[FP8_W]) {
        const struct fp8_copies x = transposed(t, g->in[FP8_QX], g->in[FP8_X]);
        g->din[FP8_W] =
            OPS_RECORD(t, &op_linear_fp8_dw, &dw, q.columns, q.scale, x.columns, x.scale);
    }
}

OPS_DEF(linear_fp8, .shape = linear_fp8_shape, .grad = linear_fp8_grad, .cost = linear_fp8_cost);

/* {qdy, scale, transposed qw, scale, addend or none} -> dx */
OPS_DEF(linear_fp8_dx, .flags = CKPT_OP_ADDEND, .shape = gradient_shape, .cost = fp8_gradient_cost);

/* {transposed qdy, scale, transposed qx, scale} -> dw */
OPS_DEF(linear_fp8_dw, .flags = CKPT_OP_ACCUMULATE, .shape = gradient_shape,
        .cost = fp8_gradient_cost);
