/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>
#include "import/math.h"
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

/* Calls that change no value but its dtype; then those that change the shape alone, too. */
static const char *const plain_calls[] = {"aten.to.dtype",        "aten.to.dtype_layout",
                                          "aten.type_as.default", "aten.reshape.default",
                                          "aten.view.default",    "aten._unsafe_view.default",
                                          "aten.alias.default",   "aten.contiguous.default"};
enum { CASTS = 3, PLAIN_CALLS = sizeof plain_calls / sizeof plain_calls[0] };

/* The variable before all calls of the first n kinds. */
static struct variable *before_calls(struct variable *v, int n)
{
    for (int i = 0; i < n; i++) {
        struct variable *from = pattern_step(v, plain_calls[i], "self");
        if (from) {
            v = from;
            i = -1;
        }
    }
    return v;
}

struct variable *pattern_plain(struct variable *v)
{
    return before_calls(v, PLAIN_CALLS);
}

/* ---- RMS norm -------------------------------------------------------------------------------- */

/* The variable before changes of dtype alone. */
static struct variable *before_casts(struct variable *v)
{
    return before_calls(v, CASTS);
}

/* The variable before casts to the dtype that it has, where nothing else reads what is between. */
static struct variable *before_idle_casts(struct variable *v)
{
    for (int i = 0; v && i < CASTS; i++) {
        struct variable *from = pattern_step(v, plain_calls[i], "self");
        if (from && from->facts->dtype == v->facts->dtype && v->uses == 1 && v->seen == 0) {
            v = from;
            i = -1;
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

/* ---- sums ------------------------------------------------------------------------------------ */

bool pattern_same_facts(const struct pt2_tensor *a, const struct pt2_tensor *b)
{
    bool same = a->ndim == b->ndim && a->dtype == b->dtype;

    for (int i = 0; same && i < a->ndim; i++)
        same = a->size[i].n == b->size[i].n;
    return same;
}

bool pattern_is_free(const struct variable *v)
{
    return !v->parent && v->uses == 1 && v->seen == 0;
}

/* The same of a view. */
static bool is_free_view(const struct variable *v)
{
    return v->uses == 1 && v->seen == 0;
}

/* The variable before dropout that drops nothing. */
static struct variable *before_dropout(struct variable *v)
{
    const struct call *dropout = pattern_call(v, "aten.dropout.default");
    struct variable *from = pattern_step(v, "aten.dropout.default", "input");

    if (!from || !is_free_view(v))
        return v;
    struct call c = *dropout;
    return call_double(&c, "p") == 0 ? from : v;
}

/* A view of addmm with a bias. */
static const struct call *free_matrices(struct variable *v)
{
    struct variable *y = pattern_step(v, "aten.view.default", "self");
    struct variable *bias = pattern_step(y, "aten.addmm.default", "self");
    const bool plain = bias && bias->facts->ndim == 1 && !pt2_arg_find(y->call->node, "alpha") &&
                       !pt2_arg_find(y->call->node, "beta");

    return plain && is_free_view(v) && pattern_is_free(y) ? y->call : NULL;
}

static const struct call *free_layer(struct variable *v, const struct pt2_tensor *facts)
{
    v = before_dropout(v);
    const struct call *layer = pattern_call(v, "aten.linear.default");
    if (!pattern_same_facts(v->facts, facts))
        return NULL;
    return layer && pattern_is_free(v) ? layer : free_matrices(v);
}

static bool is_plain_sum(struct call *c)
{
    return !pt2_arg_find(c->node, "alpha");
}

bool pattern_layer_sum(struct call *c, struct layer_sum *to)
{
    struct variable *operand[2] = {call_variable(c, "other"), call_variable(c, "self")};

    for (int k = 0; k < 2 && is_plain_sum(c); k++) {
        const struct call *layer = operand[k] ? free_layer(operand[k], c->facts) : NULL;
        if (!layer || !operand[1 - k] || !pattern_same_facts(operand[1 - k]->facts, c->facts))
            continue;
        *to = (struct layer_sum){.layer = layer, .rest = operand[1 - k]};
        return true;
    }
    return false;
}

/* What 1 is added to, or NULL. */
static struct variable *above_one(struct variable *v)
{
    static const char *const sides[] = {"self", "other"};

    for (int k = 0; k < 2; k++) {
        struct variable *from = pattern_step(v, "aten.add.Tensor", sides[k]);
        const struct pt2_arg *one = from ? pt2_arg_find(v->call->node, sides[1 - k]) : NULL;
        if (one && !pt2_arg_find(v->call->node, "alpha") &&
            ((one->kind == ARG_INT && one->i == 1) || (one->kind == ARG_FLOAT && one->f == 1)))
            return from;
    }
    return NULL;
}

/* A layer norm over the last axis without weights. */
static const struct call *bare_norm(struct variable *v)
{
    const struct call *norm = pattern_call(v, "aten.layer_norm.default");
    int64_t shape[2];

    if (!norm || !pattern_is_free(v))
        return NULL;
    struct call c = *norm;
    const bool bare = !call_has(&c, "weight") && !call_has(&c, "bias");
    return bare && call_ints(&c, "normalized_shape", shape, 2) == 1 ? norm : NULL;
}

/* [.., 1 or the size, .., D] of the dtype of the result. */
bool pattern_modulates(const struct variable *v, const struct pt2_tensor *facts)
{
    const struct pt2_tensor *f = v->facts;
    bool fits = f->ndim == facts->ndim && f->dtype == facts->dtype && f->ndim > 1;

    for (int i = 0; fits && i < f->ndim; i++)
        fits = f->size[i].n == facts->size[i].n || (i < f->ndim - 1 && f->size[i].n == 1);
    return fits;
}

bool pattern_is_smaller(const struct pt2_tensor *a, const struct pt2_tensor *b)
{
    bool smaller = false;

    for (int i = 0; i < a->ndim && i < b->ndim; i++)
        smaller |= a->size[i].n < b->size[i].n;
    return smaller;
}

bool pattern_modulation(struct call *c, struct modulation *to)
{
    struct variable *product = call_variable(c, "self"), *shift = call_variable(c, "other");
    static const char *const sides[] = {"self", "other"};

    if (!product || !shift || !is_plain_sum(c) || !pattern_is_free(product))
        return false;
    for (int k = 0; k < 2; k++) {
        struct variable *norm =
            before_idle_casts(pattern_step(product, "aten.mul.Tensor", sides[k]));
        struct variable *scale = above_one(pattern_step(product, "aten.mul.Tensor", sides[1 - k]));
        to->norm = norm ? bare_norm(norm) : NULL;
        if (!to->norm || !scale || to->norm->dtype != c->dtype ||
            !pattern_modulates(scale, c->facts) || !pattern_modulates(shift, c->facts))
            continue;
        to->scale = scale;
        to->shift = shift;
        return true;
    }
    return false;
}

/* ---- what is computed in fp32 alone ---------------------------------------------------------- */

struct variable *pattern_narrow(struct variable *v, int dtype)
{
    for (int i = 0; v && v->facts->dtype == PT2_F32 && dtype == PT2_BF16 && i < CASTS; i++) {
        struct variable *from = pattern_step(v, plain_calls[i], "self");
        i = from ? -1 : i;
        v = from ? from : v;
    }
    return v && v->facts->dtype == dtype ? v : NULL;
}

struct tensor pattern_operand(struct call *c, const char *name, int dtype)
{
    struct variable *v = pattern_narrow(call_variable(c, name), dtype);

    return math_cast(c->r, v ? *variable_read(c->r, v) : call_tensor(c, name), dtype);
}

bool pattern_has_narrow(struct call *c, const char *name, int dtype)
{
    return dtype != PT2_BF16 || !call_has(c, name) || pattern_narrow(call_variable(c, name), dtype);
}

const struct call *pattern_wide(struct call *c)
{
    struct variable *v = before_idle_casts(call_variable(c, "self"));

    if (!v || c->dtype != PT2_BF16 || v->facts->dtype != PT2_F32 || !pattern_is_free(v) ||
        variable_storage(v)->version != 1)
        return NULL;
    return v->call;
}

/* ---- GELU ------------------------------------------------------------------------------------ */

/* The other operand of an op that has this number as one, or NULL. */
static struct variable *beside_number(struct variable *v, const char *op, double number)
{
    struct variable *from = pattern_step(v, op, "self");
    const struct pt2_arg *a = from ? pt2_arg_find(v->call->node, "other") : NULL;
    const double have = !a                     ? NAN
                        : a->kind == ARG_FLOAT ? a->f
                        : a->kind == ARG_INT   ? (double)a->i
                                               : NAN;

    return fabs(have - number) < 1e-6 && !pt2_arg_find(v->call->node, "alpha") ? from : NULL;
}

/* x + 0.044715 x^3 */
static struct variable *cubic(struct variable *v)
{
    struct variable *x = pattern_step(v, "aten.add.Tensor", "self");
    struct variable *scaled = pattern_step(v, "aten.add.Tensor", "other");
    struct variable *cube = beside_number(scaled, "aten.mul.Tensor", 0.044715);
    struct variable *of = pattern_step(cube, "aten.pow.Tensor_Scalar", "self");
    const struct pt2_arg *p = of ? pt2_arg_find(cube->call->node, "exponent") : NULL;
    const bool third =
        p && ((p->kind == ARG_FLOAT && p->f == 3) || (p->kind == ARG_INT && p->i == 3));

    return third && of == x ? x : NULL;
}

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
struct variable *pattern_gelu(struct call *c)
{
    struct variable *half = call_variable(c, "self"), *one = call_variable(c, "other");
    struct variable *x = half ? beside_number(half, "aten.mul.Tensor", 0.5) : NULL;
    struct variable *tanh_of = one ? beside_number(one, "aten.add.Tensor", 1) : NULL;
    struct variable *scaled = pattern_step(tanh_of, "aten.tanh.default", "self");
    struct variable *sum = beside_number(scaled, "aten.mul.Tensor", 0.7978845608028654);

    return x && sum && cubic(sum) == x && x->facts->dtype == c->dtype ? x : NULL;
}
