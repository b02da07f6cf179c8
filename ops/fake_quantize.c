/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fake quantization (Jacob et al. 2018) and quantization-aware training (--qat int8).
 *
 * A value is divided by a scale, rounded to an integer, clamped, and multiplied again; the gradient
 * passes the rounding as if it were not there (Bengio et al. 2013), and is 0 where a value was
 * clamped.  It is one expression, so it fuses with its neighbours, and plans recompute it like any
 * other: nothing but its operands is needed for the gradient.
 *
 * With --qat every linear layer and convolution whose weight is a trained parameter reads rounded
 * operands.  context/qat.c has marked these weights and made what is remembered of ranges:
 *
 *   weights       -128 to 127, a scale for each row of the weight, from its largest magnitude; one
 *                 scale for the weight of a transposed convolution
 *   average       one scale and zero point for the layer's operand, from moving averages of its
 *                 least and largest element; a step rounds with the averages that include it
 *   learned       one scale, trained by the gradient of the rounding (Esser et al. 2020)
 *   dynamic       -127 to 127, a scale for each row of a linear layer's operand, and for each
 *                 sample of a convolution's: nothing is remembered
 *
 * Formulas and their order are those of PyTorch's observers, so that codes are equal.  What other
 * ops do with such a weight reads it unrounded.
 */
#include <float.h>
#include "call.h"
#include "expr/expr.h"
#include "fake_quantize.h"
#include "recorders.h"

enum { LOW = -128, HIGH = 127 };

#define MIDDLE    ((HIGH - LOW) / 2.f) /* the code of the largest magnitude, halfway to the next */
#define AVERAGING 0.01f                /* PyTorch's averaging_constant */

ckpt_tensor ckpt_fake_quantize(ckpt_tape *t, ckpt_tensor x, ckpt_tensor scale, ckpt_tensor zero,
                               int low, int high)
{
    OPS_CALL(t);
    const ckpt_tensor in[] = {x, scale, zero};
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    struct expr e;
    if (low >= high) {
        ckpt_tape_fail(t, CKPT_EINVAL, "fake_quantize: the codes are from %d to %d", low, high);
        return CKPT_NONE;
    }
    expr_init(&e, "fake_quantize", zero.id ? 3 : 2);
    e.dtype = (int32_t)d.dtype;
    e.exact = 1;
    int inverse = expr_binary(&e, EXPR_DIV, expr_constant(&e, 1.f), 1);
    int q = expr_node(&e, EXPR_ROUND, expr_binary(&e, EXPR_MUL, 0, inverse), 0, 0, 1.f, 0.f);
    q = zero.id ? expr_binary(&e, EXPR_ADD, q, 2) : q;
    q = expr_node(&e, EXPR_CLAMP, q, 0, 0, (float)low, (float)high);
    q = zero.id ? expr_binary(&e, EXPR_SUB, q, 2) : q;
    expr_finish(&e, expr_binary(&e, EXPR_MUL, q, 1), NULL);
    const ckpt_tensor y = expr_record(t, &e, in);
    const struct ckpt_desc dy = ckpt_desc_of(t, y);
    if (y.id && !desc_same_shape(&dy, &d))
        ckpt_tape_fail(t, CKPT_ESHAPE, "fake_quantize: scale and zero must broadcast to x");
    return t && !t->error.code ? y : CKPT_NONE;
}

/* ---- scales and ranges ----------------------------------------------------------------------- */

static ckpt_tensor record_fp32(ckpt_tape *t, struct expr *e, int result, const ckpt_tensor *in)
{
    e->dtype = CKPT_F32;
    expr_finish(e, result, NULL);
    return expr_record(t, e, in);
}

static int at_least(struct expr *e, int scale)
{
    return expr_binary(e, EXPR_MAXIMUM, scale, expr_constant(e, FLT_EPSILON));
}

/* The symmetric scale of x over some axes: its largest magnitude is code `top`. */
static ckpt_tensor scale_of(ckpt_tape *t, ckpt_tensor x, unsigned axes, float top)
{
    const ckpt_tensor largest = ckpt_amax(t, ckpt_abs(t, ckpt_stop_gradient(t, x)), axes);
    struct expr e;
    expr_init(&e, "scale", 1);
    int scale = expr_binary(&e, EXPR_DIV, 0, expr_constant(&e, top));
    return record_fp32(t, &e, at_least(&e, scale), &largest);
}

/* The range, of shape [1] each, that the moving averages `old` (their least above their largest: no
 * step yet) and this operand give. */
static void average(ckpt_tape *t, ckpt_tensor x, const ckpt_tensor old[2], ckpt_tensor range[2])
{
    const ckpt_tensor v = ckpt_stop_gradient(t, x);
    for (int i = 0; i < 2; i++) {
        const ckpt_tensor now = i ? ckpt_amax(t, v, CKPT_ALL_AXES) : ckpt_amin(t, v, CKPT_ALL_AXES);
        const ckpt_tensor in[] = {old[0], old[1], ckpt_reshape(t, now, 1, (int64_t[]){1})};
        struct expr e;
        expr_init(&e, "range", 3);
        int step = expr_node(&e, EXPR_SCALE, expr_binary(&e, EXPR_SUB, 2, i), 0, 0, AVERAGING, 0.f);
        int moved = t->updates_buffers ? expr_binary(&e, EXPR_ADD, i, step) : i;
        int next = expr_where(&e, expr_binary(&e, EXPR_LT, 1, 0), 2, moved);
        range[i] = record_fp32(t, &e, next, in);
    }
}

/* Nodes of the least value of a range that is extended to include 0, and of the scale. */
static int range_scale(struct expr *e, int *least)
{
    *least = expr_binary(e, EXPR_MINIMUM, 0, expr_constant(e, 0.f));
    const int largest = expr_binary(e, EXPR_MAXIMUM, 1, expr_constant(e, 0.f));
    const int width = expr_binary(e, EXPR_SUB, largest, *least);
    return at_least(e, expr_binary(e, EXPR_DIV, width, expr_constant(e, HIGH - LOW)));
}

/* {scale, code of 0} of the values in a range */
static void scale_of_range(ckpt_tape *t, const ckpt_tensor range[2], ckpt_tensor by[2])
{
    struct expr scale, zero;
    int least;
    expr_init(&scale, "scale", 2);
    by[0] = record_fp32(t, &scale, range_scale(&scale, &least), range);
    expr_init(&zero, "zero_point", 2);
    int below = range_scale(&zero, &least);
    below = expr_unary(&zero, EXPR_ROUND, expr_binary(&zero, EXPR_DIV, least, below));
    below = expr_node(&zero, EXPR_AFFINE, below, 0, 0, -1.f, LOW);
    by[1] = record_fp32(t, &zero, expr_node(&zero, EXPR_CLAMP, below, 0, 0, LOW, HIGH), range);
}

static void keep(ckpt_tape *t, ckpt_tensor buffer, ckpt_tensor value)
{
    struct ckpt_buffer_update once = CKPT_BUFFER_UPDATE_INIT;
    once.momentum = 1.f;
    once.once = true;
    ckpt_update_buffer_by(t, buffer, value, &once);
}

/* What one weight's layers have recorded; a layer that is applied again continues its averages. */
static struct rounded *rounded_of(ckpt_tape *t, const struct param *p)
{
    return &t->rounded[p - t->env.params->data];
}

static void average_scale(ckpt_tape *t, const struct param *p, ckpt_tensor x, ckpt_tensor by[2])
{
    const ckpt_tensor buffer = params_handle(t->env.params, p->training.qat.range);
    struct rounded *r = rounded_of(t, p);
    ckpt_tensor old[2], range[2];
    for (int i = 0; i < 2; i++)
        old[i] = r->range[i] ? tape_handle(t, r->range[i]) : ckpt_slice(t, buffer, 0, i, i + 1);
    tape_couple(t, "--qat-ranges average rounds with the range of a micro-step");
    average(t, x, old, range);
    scale_of_range(t, range, by);
    keep(t, buffer, ckpt_concat(t, 0, 2, range));
    for (int i = 0; i < 2; i++)
        r->range[i] = range[i].id;
}

/* The scale of the first step, which stays, plus what was learned since.  An optimizer moves it by
 * its rate whatever the size of the scale: it never falls below a part of the first one, so no
 * operand becomes 0 throughout. */
static ckpt_tensor learned_scale(ckpt_tape *t, const struct param *p, ckpt_tensor x)
{
    const ckpt_tensor buffer = params_handle(t->env.params, p->training.qat.range);
    struct rounded *r = rounded_of(t, p);
    struct expr e;
    if (!r->range[0]) {
        const ckpt_tensor now = scale_of(t, x, CKPT_ALL_AXES, HIGH);
        const ckpt_tensor in[] = {buffer, ckpt_reshape(t, now, 1, (int64_t[]){1})};
        expr_init(&e, "first_scale", 2);
        int none = expr_binary(&e, EXPR_EQ, 0, expr_constant(&e, 0.f));
        const ckpt_tensor first = record_fp32(t, &e, expr_where(&e, none, 1, 0), in);
        tape_couple(t, "--qat-ranges learned begins with the range of a micro-step");
        keep(t, buffer, first);
        r->range[0] = first.id;
    }
    const ckpt_tensor in[] = {tape_handle(t, r->range[0]),
                              params_handle(t->env.params, p->training.qat.learned)};
    expr_init(&e, "scale", 2);
    const int scale = expr_binary(&e, EXPR_ADD, 0, 1);
    const int least = expr_node(&e, EXPR_SCALE, 0, 0, 0, QAT_LEAST, 0.f);
    return record_fp32(t, &e, at_least(&e, expr_binary(&e, EXPR_MAXIMUM, scale, least)), in);
}

/* ---- layers ---------------------------------------------------------------------------------- */

static ckpt_tensor round_operand(ckpt_tape *t, const struct param *p, ckpt_tensor x, unsigned row)
{
    ckpt_tensor by[2] = {CKPT_NONE, CKPT_NONE};
    if (p->training.qat.ranges == QAT_AVERAGE)
        average_scale(t, p, x, by);
    else if (p->training.qat.ranges == QAT_LEARNED)
        by[0] = learned_scale(t, p, x);
    else
        by[0] = scale_of(t, x, row, HIGH);
    return ckpt_fake_quantize(t, x, by[0], by[1],
                              p->training.qat.ranges == QAT_DYNAMIC ? -HIGH : LOW, HIGH);
}

static ckpt_tensor round_weight(ckpt_tape *t, const struct param *p, ckpt_tensor w, unsigned row)
{
    struct rounded *r = rounded_of(t, p);
    if (!r->weight)
        r->weight = ckpt_fake_quantize(t, w, scale_of(t, w, row, MIDDLE), CKPT_NONE, LOW, HIGH).id;
    r->whole = row == CKPT_ALL_AXES;
    return t->error.code ? w : tape_handle(t, r->weight);
}

static unsigned all_but_first(int ndim)
{
    return (1u << ndim) - 2;
}

void qat_round(ckpt_tape *t, enum qat_layer layer, ckpt_tensor *x, ckpt_tensor *w)
{
    const struct param *p = t && t->env.params ? params_at(t->env.params, *w) : NULL;
    if (!p || t->error.code || p - t->env.params->data >= t->n_params || !p->training.qat.ranges ||
        t->full_precision || t->phase != PHASE_FORWARD || t->in_gradients)
        return;
    const struct ckpt_desc d = ckpt_desc_of(t, *x);
    if (d.ndim < (layer == QAT_LINEAR ? 1 : 2) || d.dtype != p->desc.dtype)
        return; /* the rule of the layer says what is wrong */
    *x = round_operand(t, p, *x, layer == QAT_LINEAR ? 1u << (d.ndim - 1) : all_but_first(d.ndim));
    *w = round_weight(t, p, *w,
                      layer == QAT_CONV_TRANSPOSE ? CKPT_ALL_AXES : all_but_first(p->desc.ndim));
}
