/* SPDX-License-Identifier: Apache-2.0 */
/* Softmax and log-softmax over rows (another axis is transposed to the end), and cumsum over any
 * axis. */
#include "call.h"
#include "ops.h"
#include "scan.h"

static int same_rule(struct ckpt_call *call)
{
    call_like(call, 0, 0);
    return call_float(call, 0);
}

OPS_COST(softmax_cost, 40., out[0])

/* Second gradients are recorded ops.  dx is y (dy - sum(dy y)), or dy - exp(y) sum(dy) for the
 * logarithm. */
static void softmax_dx_grad(struct ckpt_grad *g)
{
    ckpt_tape *t = g->tape;
    ckpt_tensor dy = g->in[0], y = g->in[1], v = g->dout[0];
    struct ckpt_desc d = ckpt_desc_of(t, y);
    unsigned last = 1u << (d.ndim - 1);
    if (((const struct softmax_attr *)g->attr)->log) {
        ckpt_tensor p = ckpt_exp(t, y), sum = ckpt_sum(t, ckpt_mul(t, v, p), last);
        g->din[0] = ckpt_sub(t, v, sum);
        g->din[1] = ckpt_neg(t, ckpt_mul(t, ckpt_mul(t, v, p), ckpt_sum(t, dy, last)));
        return;
    }
    ckpt_tensor vy = ckpt_sum(t, ckpt_mul(t, v, y), last);
    ckpt_tensor dot = ckpt_sum(t, ckpt_mul(t, dy, y), last);
    g->din[0] = ckpt_mul(t, y, ckpt_sub(t, v, vy));
    g->din[1] = ckpt_sub(t, ckpt_mul(t, v, ckpt_sub(t, dy, dot)), ckpt_mul(t, dy, vy));
}

/* {dy, y} -> dx */
static int softmax_dx_rule(struct ckpt_call *call)
{
    call_like(call, 0, 1);
    return call_float(call, 0) || call_float(call, 1) ? CKPT_ESHAPE : 0;
}

OPS_DEF(softmax_dx, .shape = softmax_dx_rule, .grad = softmax_dx_grad, .cost = softmax_cost);

static void softmax_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_softmax_dx, (const struct softmax_attr *)g->attr,
                           g->dout[0], g->out[0]);
}

OPS_DEF(softmax, .shape = same_rule, .grad = softmax_grad, .cost = softmax_cost);

static bool axis_is_there(ckpt_tape *t, const struct ckpt_desc *d, int axis, const char *name)
{
    if (d->ndim >= 0 && axis >= 0 && axis < d->ndim)
        return true;
    ckpt_tape_fail(t, CKPT_ESHAPE, "%s: there is no axis %d", name, axis);
    return false;
}

static ckpt_tensor softmax(ckpt_tape *t, ckpt_tensor x, int axis, bool log)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct softmax_attr attr = {log};
    if (!axis_is_there(t, &d, axis, log ? "log_softmax" : "softmax"))
        return CKPT_NONE;
    if (axis == d.ndim - 1)
        return OPS_RECORD(t, &op_softmax, &attr, x);
    ckpt_tensor y = OPS_RECORD(t, &op_softmax, &attr, ckpt_transpose(t, x, axis, d.ndim - 1));
    return ckpt_transpose(t, y, axis, d.ndim - 1);
}

ckpt_tensor ckpt_softmax(ckpt_tape *t, ckpt_tensor x, int axis)
{
    return softmax(t, x, axis, false);
}

ckpt_tensor ckpt_log_softmax(ckpt_tape *t, ckpt_tensor x, int axis)
{
    OPS_CALL(t);
    return softmax(t, x, axis, true);
}

/* ---- cumsum
 * ------------------------------------------------------------------------------------*/

static void cumsum_grad(struct ckpt_grad *g)
{
    struct cumsum_attr attr = *(const struct cumsum_attr *)g->attr;
    attr.reverse = !attr.reverse;
    g->din[0] = OPS_RECORD(g->tape, &op_cumsum, &attr, g->dout[0]);
}

OPS_DEF(cumsum, .shape = same_rule, .grad = cumsum_grad);

ckpt_tensor ckpt_cumsum(ckpt_tape *t, ckpt_tensor x, int axis)
{
    struct ckpt_desc d = ckpt_desc_of(t, x);
    struct cumsum_attr attr = {axis, 0};
    if (!axis_is_there(t, &d, axis, "cumsum"))
        return CKPT_NONE;
    return OPS_RECORD(t, &op_cumsum, &attr, x);
}
