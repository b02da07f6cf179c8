/* SPDX-License-Identifier: Apache-2.0 */
/* Gradients of gradient ops by decomposition: see decompose.h. */
#include "decompose.h"
#include "ops.h"
#include "recorders.h"

static bool is_float(ckpt_tape *t, ckpt_tensor x)
{
    return x.id && ckpt_desc_of(t, x).dtype != CKPT_I32;
}

/* The operand in fp32.  An fp32 operand becomes a view, because two operands may be the same tensor
 * and need separate gradients. */
static ckpt_tensor separate_operand(ckpt_tape *t, ckpt_tensor x)
{
    int axes[CKPT_MAX_DIMS];
    if (!is_float(t, x))
        return x;
    if (ckpt_desc_of(t, x).dtype != CKPT_F32)
        return ckpt_cast(t, x, CKPT_F32);
    for (int i = 0; i < CKPT_MAX_DIMS; i++)
        axes[i] = i;
    return ckpt_permute(t, x, axes);
}

/*
 * Converts a gradient for operand x: an activation gets the dtype of x, a parameter fp32, the dtype
 * in which parameter gradients are summed.  The tape may accumulate into the tensor that a rule
 * returns, so a tensor with another reader is copied.
 */
static ckpt_tensor finish(ckpt_tape *t, ckpt_tensor x, ckpt_tensor g)
{
    if (!g.id || t->error.code)
        return CKPT_NONE;
    if (tape_param_of(t, x.id) < 0)
        g = ckpt_cast(t, g, ckpt_desc_of(t, x).dtype);
    return g.id && uses_count(t, g.id) ? ops_record1(t, &op_copy, 1, &g, NULL, 0) : g;
}

void ops_grad_decomposed(struct ckpt_grad *g, ops_decomposition decomposition)
{
    ckpt_tape *t = g->tape;
    const bool before = t->in_gradients;
    ckpt_tensor in[DECOMPOSED_OPERANDS] = {CKPT_NONE}, out[DECOMPOSED_RESULTS] = {CKPT_NONE};
    ckpt_tensor y[DECOMPOSED_RESULTS], dy[DECOMPOSED_RESULTS], x[DECOMPOSED_OPERANDS],
        dx[DECOMPOSED_OPERANDS];
    int n = 0, n_wanted = 0, place[DECOMPOSED_OPERANDS];
    t->in_gradients = true;
    for (int i = 0; i < g->n_in; i++)
        in[i] = separate_operand(t, g->in[i]);
    const int32_t first = t->n_ops;
    decomposition(g, in, out);
    for (int i = 0; i < g->n_out && !t->error.code; i++) {
        if (!out[i].id || !g->dout[i].id)
            continue;
        y[n] = out[i];
        dy[n++] = ckpt_cast(t, g->dout[i], CKPT_F32);
    }
    for (int i = 0; i < g->n_in; i++) {
        if (!g->need[i] || !is_float(t, in[i]))
            continue;
        place[n_wanted] = i;
        x[n_wanted++] = in[i];
    }
    if (!t->error.code && !tape_pull(t, first, n, y, dy, n_wanted, x, dx))
        for (int i = 0; i < n_wanted; i++)
            g->din[place[i]] = finish(t, g->in[place[i]], dx[i]);
    t->in_gradients = before;
}

void ops_pull(ckpt_tape *t, int first_op, ckpt_tensor y, ckpt_tensor dy, int n,
              const ckpt_tensor *x, ckpt_tensor *dx)
{
    if (!t->error.code)
        tape_pull(t, first_op, 1, &y, &dy, n, x, dx);
}

int ops_count(const ckpt_tape *t)
{
    return t->n_ops;
}

ckpt_tensor ops_scalar(ckpt_tape *t, float value)
{
    return ckpt_full(t, value, CKPT_F32, 0, NULL);
}

ckpt_tensor ops_zeros_like(ckpt_tape *t, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    return d.ndim < 0 ? CKPT_NONE : ops_fill(t, 0.f, CKPT_F32, d.ndim, d.shape);
}

ckpt_tensor ops_normalised(ckpt_tape *t, ckpt_tensor x, unsigned mask, float eps, bool centred)
{
    if (centred)
        x = ckpt_sub(t, x, ckpt_mean(t, x, mask));
    ckpt_tensor square = ckpt_mean(t, ckpt_mul(t, x, x), mask);
    return ckpt_mul(t, x, ckpt_rsqrt(t, ckpt_affine(t, square, 1.f, eps)));
}
