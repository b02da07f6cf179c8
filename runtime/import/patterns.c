/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>
#include "import/patterns.h"

static bool is_whole(struct variable *v)
{
    return v && variable_storage(v)->version == 1;
}

const struct call *pattern_call(struct variable *v, const char *op)
{
    return is_whole(v) && v->call && !strcmp(v->call->op->name, op) ? v->call : NULL;
}

struct variable *pattern_step(struct variable *v, const char *op, const char *argument)
{
    const struct call *made = pattern_call(v, op);
    struct variable *from = NULL;

    if (made && pt2_arg_find(made->node, argument)) {
        struct call c = *made;
        from = call_variable(&c, argument);
    }
    return is_whole(from) ? from : NULL;
}

struct variable *pattern_plain(struct variable *v)
{
    static const char *const same[] = {"aten.to.dtype",        "aten.to.dtype_layout",
                                       "aten.type_as.default", "aten.reshape.default",
                                       "aten.view.default",    "aten._unsafe_view.default",
                                       "aten.alias.default",   "aten.contiguous.default"};

    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        struct variable *from = pattern_step(v, same[i], "self");
        if (from) {
            v = from;
            i = (size_t)-1;
        }
    }
    return v;
}

/* ---- RMS norm -------------------------------------------------------------------------------- */

/* The variable before changes of dtype alone. */
static struct variable *before_casts(struct variable *v)
{
    static const char *const casts[] = {"aten.to.dtype", "aten.to.dtype_layout",
                                        "aten.type_as.default"};

    for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++) {
        struct variable *from = pattern_step(v, casts[i], "self");
        if (from) {
            v = from;
            i = (size_t)-1;
        }
    }
    return v;
}

static bool is_last_axis(const struct call *mean)
{
    struct call c = *mean;
    int64_t axis[2] = {0, 0};

    return call_ints(&c, "dim", axis, 2) == 1 && axis[0] == -1 && call_bool(&c, "keepdim");
}

/* rsqrt(mean(x^2, -1) + eps): gives x and eps. */
static struct variable *inverse_root(struct variable *v, double *eps)
{
    struct variable *sum = pattern_step(v, "aten.rsqrt.default", "self");
    struct variable *mean = pattern_step(sum, "aten.add.Tensor", "self");
    struct variable *square = pattern_step(mean, "aten.mean.dim", "self");
    struct variable *x = pattern_step(square, "aten.pow.Tensor_Scalar", "self");

    if (!x || !is_last_axis(mean->call))
        return NULL;
    const struct pt2_arg *e = pt2_arg_find(sum->call->node, "other");
    const struct pt2_arg *power = pt2_arg_find(square->call->node, "exponent");
    const bool two = power && ((power->kind == ARG_INT && power->i == 2) ||
                               (power->kind == ARG_FLOAT && power->f == 2));
    if (!two || !e || e->kind != ARG_FLOAT || pt2_arg_find(sum->call->node, "alpha"))
        return NULL;
    *eps = e->f;
    return x;
}

/* x * inverse_root(x) */
static struct variable *normalised(struct variable *v, double *eps)
{
    struct variable *a = pattern_step(v, "aten.mul.Tensor", "self");
    struct variable *b = pattern_step(v, "aten.mul.Tensor", "other");
    struct variable *x = b ? inverse_root(b, eps) : NULL;

    return x && before_casts(x) == before_casts(a) ? before_casts(a) : NULL;
}

static bool is_weight(const struct variable *w, const struct variable *x)
{
    return w->facts->ndim == 1 && x->facts->ndim > 0 && !w->facts->size[0].expr &&
           !x->facts->size[x->facts->ndim - 1].expr &&
           w->facts->size[0].n == x->facts->size[x->facts->ndim - 1].n;
}

bool pattern_rms_norm(struct call *c, struct rms_norm *to)
{
    struct variable *operand[2] = {call_variable(c, "self"), call_variable(c, "other")};

    for (int k = 0; k < 2; k++) {
        struct variable *w = operand[k], *y = operand[1 - k];
        struct variable *x = w && y ? normalised(before_casts(y), &to->eps) : NULL;
        if (!x || !is_weight(w, x))
            continue;
        to->x = x;
        to->weight = w;
        /* Where the file rounds before the product with the weight, or nothing is rounded. */
        return x->facts->dtype == c->dtype && y->facts->dtype == c->dtype;
    }
    return false;
}
