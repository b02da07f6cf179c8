/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums that transformer blocks are made of: a modulated norm, a residual with a gate, a rotary
 * embedding (ops_rope.c).  Each becomes one op, as in hand-written models; values between are not
 * rounded.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"

/* ---- modulation and gates -------------------------------------------------------------------- */

/*
 * These are computed in a dtype that may be narrower than that of the sum: models take a norm, a
 * modulation or a residual in bf16 to fp32 and round its result.  The kernels compute in fp32
 * anyway, so that nothing is rounded but rows, such as a gate.
 */

static ckpt_tensor record_as(struct call *c, struct variable *v, int dtype)
{
    struct variable *narrow = pattern_narrow(v, dtype);
    struct tensor a = math_cast(c->r, *variable_read(c->r, narrow ? narrow : v), dtype);

    return tensor_record(c->r, &a);
}

/* Whether v has the shape of the result, and its values the dtype. */
static bool is_operand(struct variable *v, const struct call *c, int dtype)
{
    struct pt2_tensor facts = v ? *v->facts : (struct pt2_tensor){.ndim = 0};

    facts.dtype = c->facts->dtype;
    return pattern_narrow(v, dtype) && pattern_same_facts(&facts, c->facts);
}

static bool record_modulated(struct call *c, int dtype, struct tensor *y)
{
    struct modulation m;

    if (!pattern_modulation(c, &m))
        return false;
    struct call of = *m.norm;
    struct variable *input = call_variable(&of, "input");
    if (dtype != c->dtype && !pattern_narrow(input, dtype))
        return false;
    ckpt_tensor x = record_as(c, input, dtype);
    ckpt_tensor shift = record_as(c, m.shift, dtype), scale = record_as(c, m.scale, dtype);
    if (c->r->failed)
        return false;
    const float eps = (float)call_double(&of, "eps");
    *y = tensor_of(c->r, dtype, ckpt_layer_norm_modulate(c->r->t, x, shift, scale, eps));
    return !c->r->failed;
}

/* A row [.., D] for many rows of the result. */
static bool is_row(const struct variable *v, const struct call *c)
{
    return v && pattern_modulates(v, c->facts) && v->facts->dtype == c->dtype &&
           pattern_is_smaller(v->facts, c->facts);
}

static bool record_gated(struct call *c, int dtype, struct tensor *y)
{
    static const char *const sides[] = {"self", "other"};

    for (int k = 0; k < 4; k++) {
        struct variable *x = call_variable(c, sides[k & 1]);
        struct variable *product = call_variable(c, sides[1 - (k & 1)]);
        struct variable *gate = pattern_step(product, "aten.mul.Tensor", sides[k >> 1]);
        struct variable *a = pattern_step(product, "aten.mul.Tensor", sides[1 - (k >> 1)]);
        if (!is_row(gate, c) || !pattern_is_free(product) || !is_operand(a, c, dtype) ||
            !is_operand(x, c, dtype))
            continue;
        const ckpt_tensor to = record_as(c, x, dtype), by = record_as(c, gate, dtype);
        const ckpt_tensor of = record_as(c, a, dtype);
        if (c->r->failed)
            return false;
        *y = tensor_of(c->r, dtype, ckpt_gated_residual(c->r->t, to, by, of));
        return !c->r->failed;
    }
    return false;
}

static bool record_sum(struct call *c, int dtype, struct tensor *y)
{
    if (pt2_arg_find(c->node, "alpha") || c->r->failed)
        return false;
    return record_modulated(c, dtype, y) || record_gated(c, dtype, y);
}

bool record_block(struct call *c, struct tensor *y)
{
    if (!pt2_arg_find(c->node, "alpha") && !c->r->failed && record_rotary(c, y))
        return true;
    return record_sum(c, c->dtype, y);
}

bool record_narrow(struct call *c, struct tensor *y)
{
    const struct call *wide = c->r->failed ? NULL : pattern_wide(c);

    if (!wide)
        return false;
    struct call of = *wide;
    if (!strcmp(of.op->name, "aten.add.Tensor"))
        return record_sum(&of, c->dtype, y);
    if (strcmp(of.op->name, "aten.layer_norm.default") != 0 ||
        !pattern_narrow(call_variable(&of, "input"), c->dtype) ||
        !pattern_has_narrow(&of, "weight", c->dtype) || !pattern_has_narrow(&of, "bias", c->dtype))
        return false;
    of.dtype = c->dtype;
    *y = of.op->record(&of, 0);
    return !c->r->failed;
}
