/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linear layers whose products have 8-bit operands (--matmul fp8): y = x w^T + b, and gradients.
 *
 * An operand is rounded to 8 bits by an op of its own, to_fp8, times one power of two for the whole
 * tensor that follows from its largest magnitude (core/fp8.h): x and w to e4m3, dy to e5m2, for
 * gradients need the range.  Hopper multiplies 8-bit matrices only where the summed axis of both is
 * dense, so the gradients need transposed copies, which the same op makes while it has the values:
 *
 *   y  = qx qw^T           x [M, K], w [N, K]
 *   dx = qdy (qw^T)^T      the copy of w as [K, N]
 *   dw = qdy^T (qx^T)^T    those of dy and x as [N, M'] and [K, M']
 *
 * M' is M filled up to whole lines of the cache with zeros, which add nothing.  Copies and scale
 * are tensors like any other: kept for the backward pass, recomputed or offloaded, as the plan has
 * it, and what is kept of x is a byte an element where it was two.  A tensor that several layers
 * read is rounded once.
 *
 * Which layers are done so follows from the tape alone, never from a plan: bf16 operands, a
 * parameter of two axes, sizes worth it, some parameter before x (so not the first layers of a
 * model), and not where the model said ckpt_full_precision (the last ones).
 */
#include "fp8.h"
#include "core/fp8.h"
#include "cpu/kernels.h"
#include "cpu/linear.h"
#include "cuda/kernels.h"
#include "cuda/workspace.h"
#include "ops.h"
#include "tape/tape.h"

/* ---- to_fp8 ---------------------------------------------------------------------------------- */

/* {x [..., K], its largest magnitude or none} -> {scale, the copies asked for}: [..., K], [K, M']
 */
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
        desc_dense(&call->out[n++]);
    }
    call->workspace = FP8_PARTS * (int64_t)sizeof(uint32_t);
    return CKPT_OK;
}

/* It is read twice, for its largest magnitude first, unless that is known. */
static void to_fp8_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    const double passes = call->n_in > 1 && call->in[1].ndim >= 0 ? 1 : 2;
    cost->flops = passes * (double)desc_numel(&call->in[0]);
    cost->bytes = passes * (double)desc_bytes(&call->in[0]);
    for (int i = 1; i < call->n_out; i++)
        cost->bytes += (double)desc_bytes(&call->out[i]);
}

const struct ckpt_op_def op_to_fp8 = {
    .size = sizeof(struct ckpt_op_def),
    .name = "to_fp8",
    .shape = to_fp8_shape,
    .cost = to_fp8_cost,
    .cpu = cpu_to_fp8,
    .cuda = CUDA_KERNEL(cuda_to_fp8),
};

/* ---- products -------------------------------------------------------------------------------- */

/* The result of operands a and b, from a on. */
static int product_shape(struct ckpt_call *call, int a)
{
    const struct ckpt_desc *qa = &call->in[a], *qb = &call->in[a + 2];
    const struct linear_fp8_attr *attr = call->attr;
    struct ckpt_desc *y = &call->out[0];
    if (!dtype_is_fp8(qa->dtype) || !dtype_is_fp8(qb->dtype) || qa->ndim < 1 || qb->ndim != 2 ||
        qa->shape[qa->ndim - 1] != qb->shape[1])
        return ckpt_call_fail(call, "its operands are not two 8-bit matrices of as many columns");
    *y = *qa;
    y->dtype = (enum ckpt_dtype)attr->dtype;
    y->offset = 0;
    y->shape[y->ndim - 1] = qb->shape[0];
    desc_dense(y);
    const struct ckpt_view in[] = {{.desc = *qa}, {NULL}, {.desc = *qb}, {NULL}};
    const struct gemm g = fp8_gemm(in, y->dtype);
    call->workspace =
        call->backend == CKPT_ON_CUDA ? cuda_gemm_workspace(g.rows, g.cols) : gemm_workspace(&g);
    return CKPT_OK;
}

static int linear_fp8_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *b = &call->in[FP8_BIAS], *a = &call->in[FP8_ADDEND];
    int rc = product_shape(call, FP8_QX);
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
    return product_shape(call, 0);
}

/*
 * Rates of machines are those of bf16 products; on a GPU 8 bits take half of the time, so they
 * count half.  The emulation on the CPU gains nothing.
 */
static double product_flops(const struct ckpt_call *call, int a)
{
    const double flops = 2. * (double)desc_numel(&call->in[a]) * (double)call->in[a + 2].shape[0];
    return call->backend == CKPT_ON_CUDA ? flops / 2 : flops;
}

/* Without what only its rule reads. */
static void linear_fp8_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = product_flops(call, FP8_QX);
    cost->bytes = (double)desc_bytes(&call->out[0]);
    for (int i = FP8_BIAS; i < call->n_in; i++)
        cost->bytes += call->in[i].ndim >= 0 ? (double)desc_bytes(&call->in[i]) : 0;
}

static void gradient_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    cost->flops = product_flops(call, 0);
}

/* ---- recording ------------------------------------------------------------------------------- */

/* scale, and the copies as they were asked for, or none. */
struct fp8_copies {
    ckpt_tensor scale, rows, columns;
};

static struct fp8_copies record_copies(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype,
                                       int copies, int fill)
{
    struct to_fp8_attr attr = {dtype, copies, fill};
    ckpt_tensor in[2] = {x, CKPT_NONE}, out[3] = {CKPT_NONE, CKPT_NONE, CKPT_NONE};
    const bool both = copies == (FP8_ROWS | FP8_COLUMNS);
    ckpt_record(t, &op_to_fp8, 2, in, both ? 3 : 2, out, &attr, sizeof attr);
    return (struct fp8_copies){out[0], copies & FP8_ROWS ? out[1] : CKPT_NONE,
                               both                ? out[2]
                               : copies & FP8_ROWS ? CKPT_NONE
                                                   : out[1]};
}

/* The copies that an op made. */
static struct fp8_copies copies_of(const ckpt_tape *t, const struct op *o)
{
    const struct to_fp8_attr *attr = o->attr;
    struct fp8_copies c = {tape_handle(t, op_out(t, o, 0)), CKPT_NONE, CKPT_NONE};
    int n = 1;
    if (attr->copies & FP8_ROWS)
        c.rows = tape_handle(t, op_out(t, o, n++));
    if (attr->copies & FP8_COLUMNS)
        c.columns = tape_handle(t, op_out(t, o, n));
    return c;
}

/* The e4m3 copies of a dense tensor of the tape, made at its first use in a product.  A tape that
 * will be differentiated wants the transposed one, too. */
static struct fp8_copies copies_for(ckpt_tape *t, ckpt_tensor x, bool transposed, int fill)
{
    const int32_t op = t->tensors.data[x.id].fp8_op;
    if (t->error.code)
        return (struct fp8_copies){CKPT_NONE, CKPT_NONE, CKPT_NONE};
    if (op > 0 && ((const struct to_fp8_attr *)t->ops.data[op].attr)->fill == fill)
        return copies_of(t, &t->ops.data[op]);
    struct fp8_copies c = record_copies(
        t, x, CKPT_F8E4M3, FP8_ROWS | (t->trains && transposed ? FP8_COLUMNS : 0), fill);
    if (c.scale.id)
        t->tensors.data[x.id].fp8_op = t->tensors.data[c.scale.id].op;
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
    const struct fp8_copies qw = copies_for(t, w, needs_grad(t, x), FP8_SIDE);
    const struct fp8_copies qx = copies_for(t, x, needs_grad(t, w), FP8_LINE);
    const ckpt_tensor in[FP8_INPUTS] = {x, w, b, a, qx.rows, qx.scale, qw.rows, qw.scale};
    return ops_record1(t, &op_linear_fp8, FP8_INPUTS, in, &attr, sizeof attr);
}

/* Whether a parameter, trained or not, takes part in x. */
static bool is_learned(ckpt_tape *t, ckpt_tensor x)
{
    const struct tensor *v = tape_tensor(t, x);
    return v && (v->learned || t->storages.data[v->storage].kind == STORAGE_VALUE);
}

static bool is_worth_it(const struct ckpt_desc *x, const struct ckpt_desc *w)
{
    return w->ndim == 2 && x->ndim >= 1 && x->shape[x->ndim - 1] == w->shape[1] &&
           w->shape[0] % FP8_SIDE == 0 && w->shape[1] % FP8_SIDE == 0 && w->shape[0] >= FP8_LEAST &&
           w->shape[1] >= FP8_LEAST && linear_rows(x) >= FP8_LEAST;
}

bool fp8_takes(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w)
{
    if (t->error.code || !t->env.fp8 || t->full_precision || t->phase != PHASE_FORWARD ||
        t->in_gradients || !params_at(t->env.params, w))
        return false;
    const struct ckpt_desc dx = ckpt_desc_of(t, x), dw = ckpt_desc_of(t, w);
    return dx.dtype == CKPT_BF16 && dw.dtype == CKPT_BF16 && is_worth_it(&dx, &dw) &&
           is_learned(t, x);
}

void ckpt_full_precision(ckpt_tape *t, bool on)
{
    if (t)
        t->full_precision = on;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The transposed copy of an operand, of whose op the scale is an output, or one more rounding of
 * it: the same bits. */
static struct fp8_copies transposed(ckpt_tape *t, ckpt_tensor scale, ckpt_tensor x)
{
    const struct op *o = &t->ops.data[t->tensors.data[scale.id].op];
    struct fp8_copies c = copies_of(t, o);
    return c.columns.id ? c
                        : record_copies(t, x, CKPT_F8E4M3, FP8_COLUMNS,
                                        ((const struct to_fp8_attr *)o->attr)->fill);
}

/* What ckpt_gradients records is differentiated once more, so it is not of 8 bits. */
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
    if (g->need[FP8_BIAS])
        g->din[FP8_BIAS] = linear_bias_gradient(t, dy);
    if (g->need[FP8_ADDEND])
        g->din[FP8_ADDEND] = dy;
    if (!copies)
        return;
    const struct fp8_copies q = record_copies(t, dy, CKPT_F8E5M2, copies, FP8_LINE);
    if (g->need[FP8_X]) {
        const struct fp8_copies w = transposed(t, g->in[FP8_SW], g->in[FP8_W]);
        g->din[FP8_X] =
            OPS_RECORD(t, &op_linear_fp8_dx, &dx, q.rows, q.scale, w.columns, w.scale, CKPT_NONE);
    }
    if (g->need[FP8_W]) {
        const struct fp8_copies x = transposed(t, g->in[FP8_SX], g->in[FP8_X]);
        g->din[FP8_W] =
            OPS_RECORD(t, &op_linear_fp8_dw, &dw, q.columns, q.scale, x.columns, x.scale);
    }
}

void ops_forget_sources(ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].def == &op_linear_fp8)
            for (int k = FP8_X; k <= FP8_W; k++)
                t->operands.data[t->ops.data[i].operands + k] = -1;
}

const struct ckpt_op_def op_linear_fp8 = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_fp8",
    .shape = linear_fp8_shape,
    .grad = linear_fp8_grad,
    .cost = linear_fp8_cost,
    .cpu = cpu_linear_fp8,
    .cuda = CUDA_KERNEL(cuda_linear_fp8),
};

/* {qdy, scale, qw transposed, scale, addend or none} -> dx */
const struct ckpt_op_def op_linear_fp8_dx = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_fp8_dx",
    .flags = CKPT_OP_ADDEND,
    .shape = gradient_shape,
    .cost = gradient_cost,
    .cpu = cpu_linear_fp8_dx,
    .cuda = CUDA_KERNEL(cuda_linear_fp8_dx),
};

/* {qdy transposed, scale, qx transposed, scale} -> dw */
const struct ckpt_op_def op_linear_fp8_dw = {
    .size = sizeof(struct ckpt_op_def),
    .name = "linear_fp8_dw",
    .flags = CKPT_OP_ACCUMULATE,
    .shape = gradient_shape,
    .cost = gradient_cost,
    .cpu = cpu_linear_fp8_dw,
    .cuda = CUDA_KERNEL(cuda_linear_fp8_dw),
};
