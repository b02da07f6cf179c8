/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums that transformer blocks are made of: a rotary embedding written out, a residual with a gate,
 * a layer norm that is scaled and shifted.  Each becomes one op, as in hand-written models; values
 * between are not rounded.
 */
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* A table [rows, D/2, 2] of the library, and the constants that it is from. */
struct rope_table {
    const void *cosines, *sines;
    struct tensor table;
    struct rope_table *before;
};

/* The axis of positions of a constant with D angles in a row, counted from the end; 0: it varies
 * along another axis, too. */
static int position_axis(const struct tensor *a, int64_t d)
{
    int axis = 0;

    if (!a->constant || a->ndim < 2 || a->shape[a->ndim - 1] != d || !pt2_is_float(a->dtype))
        return 0;
    for (int i = 0; i < a->ndim - 1; i++) {
        if (!a->stride[i])
            continue;
        if (axis)
            return 0;
        axis = a->ndim - i;
    }
    return axis ? axis : 2;
}

/* The element of a row of positions. */
static double angle_at(const struct tensor *a, int axis, int64_t row, int64_t k)
{
    return a->f[row * a->stride[a->ndim - axis] + k * a->stride[a->ndim - 1]];
}

static bool fill_table(const struct tensor *a, int axis, int part, struct tensor *to)
{
    const int64_t pairs = to->shape[1];

    for (int64_t i = 0; i < to->shape[0]; i++)
        for (int64_t k = 0; k < pairs; k++) {
            to->f[(i * pairs + k) * 2 + part] = angle_at(a, axis, i, k);
            if (angle_at(a, axis, i, k) != angle_at(a, axis, i, k + pairs))
                return false;
        }
    return true;
}

/* The table of two constants, made once; NULL: the halves of a row differ. */
static struct tensor *find_table(struct recording *r, const struct tensor *cosines,
                                 const struct tensor *sines, int axis, int64_t d)
{
    struct rope_table *t = r->ropes;
    const int64_t shape[3] = {cosines->shape[cosines->ndim - axis], d / 2, 2};

    while (t && (t->cosines != cosines->f || t->sines != sines->f || t->table.shape[0] != shape[0]))
        t = t->before;
    if (t)
        return &t->table;
    t = heap_zeros(&r->heap, 1, sizeof *t);
    if (!t) {
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
        return NULL;
    }
    *t = (struct rope_table){cosines->f, sines->f, tensor_zeros(r, PT2_F32, 3, shape), r->ropes};
    if (r->failed || !fill_table(cosines, axis, 0, &t->table) ||
        !fill_table(sines, axis, 1, &t->table))
        return NULL;
    r->ropes = t;
    return &t->table;
}

/* What v is the half [begin, end) of along its last axis. */
static struct variable *half_of(struct variable *v, bool second)
{
    struct variable *x = pattern_step(v, "aten.slice.Tensor", "self");
    const int64_t d = x ? x->facts->size[x->facts->ndim - 1].n : 0;

    if (!x || x->facts->ndim < 2 || d % 2)
        return NULL;
    struct call c = *v->call;
    const int64_t axis = call_int(&c, "dim"), last = x->facts->ndim - 1;
    const int64_t begin = call_has(&c, "start") ? call_int(&c, "start") : 0;
    const int64_t end = call_has(&c, "end") ? call_int(&c, "end") : d;
    const bool is = (axis == last || axis == -1) && call_int(&c, "step") == 1 &&
                    begin == (second ? d / 2 : 0) && (second ? end >= d : end == d / 2);
    return is ? x : NULL;
}

/* What v is the halves of, exchanged, with the first of them negated. */
static struct variable *turned(struct variable *v)
{
    const struct call *cat = pattern_call(v, "aten.cat.default");
    struct variable **part;

    if (!cat)
        return NULL;
    struct call c = *cat;
    const int64_t axis = call_int(&c, "dim");
    if (call_variables(&c, "tensors", &part) != 2 || !part[0] || !part[1] ||
        (axis != -1 && axis != v->facts->ndim - 1))
        return NULL;
    struct variable *x = half_of(pattern_step(part[0], "aten.neg.default", "self"), true);
    return x && half_of(part[1], false) == x ? x : NULL;
}

struct rotary {
    struct variable *x, *cosines, *sines;
};

/* x cos + turned(x) sin, each product with its operands in this order. */
static bool pattern_rotary(struct call *c, struct rotary *to)
{
    static const char *const sides[] = {"self", "other"};

    for (int k = 0; k < 2; k++) {
        struct variable *plain = call_variable(c, sides[k]),
                        *cross = call_variable(c, sides[1 - k]);
        to->x = turned(pattern_step(cross, "aten.mul.Tensor", "self"));
        to->sines = pattern_step(cross, "aten.mul.Tensor", "other");
        to->cosines = pattern_step(plain, "aten.mul.Tensor", "other");
        if (to->x && to->sines && to->cosines && to->x->facts->dtype == c->dtype &&
            pattern_step(plain, "aten.mul.Tensor", "self") == to->x)
            return true;
    }
    return false;
}

static bool record_rotary(struct call *c, struct tensor *y)
{
    struct recording *r = c->r;
    struct rotary p;
    int axes[TENSOR_AXES], inverse[TENSOR_AXES], axis = 0;

    if (!pattern_rotary(c, &p))
        return false;
    const struct tensor *cosines = variable_read(r, p.cosines), *sines = variable_read(r, p.sines);
    struct tensor x = *variable_read(r, p.x);
    const int64_t d = x.shape[x.ndim - 1];
    const int from_end = r->failed || x.constant ? 0 : position_axis(cosines, d);
    if (!from_end || from_end > x.ndim || position_axis(sines, d) != from_end ||
        cosines->shape[cosines->ndim - from_end] != x.shape[x.ndim - from_end] ||
        sines->shape[sines->ndim - from_end] != x.shape[x.ndim - from_end])
        return false;
    struct tensor *table = find_table(r, cosines, sines, from_end, d);
    if (!table)
        return false;
    axes_in_memory(r, &x, axes);
    inverse_axes(x.ndim, axes, inverse);
    if (axes[x.ndim - 1] != x.ndim - 1)
        for (int i = 0; i < x.ndim; i++)
            axes[i] = inverse[i] = i;
    for (int i = 0; i < x.ndim; i++)
        axis = axes[i] == x.ndim - from_end ? i : axis;
    struct tensor plain = view_permute(r, x, axes);
    tensor_record(r, table);
    if (r->failed)
        return false;
    ckpt_tensor z = ckpt_rope_halves(r->t, plain.x, table->x, axis);
    *y = view_permute(r, tensor_of(r, c->dtype, z), inverse);
    return !r->failed;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A row [.., D] for many rows of the result. */
static bool is_row(const struct variable *v, const struct call *c)
{
    return v && pattern_modulates(v, c->facts) && v->facts->dtype == c->dtype &&
           pattern_is_smaller(v->facts, c->facts);
}

static ckpt_tensor record_row(struct call *c, struct variable *v)
{
    struct tensor a = *variable_read(c->r, v);

    return tensor_record(c->r, &a);
}

/* ---- residual with a gate -------------------------------------------------------------------- */

static bool record_gated(struct call *c, struct tensor *y)
{
    static const char *const sides[] = {"self", "other"};

    for (int k = 0; k < 4; k++) {
        struct variable *x = call_variable(c, sides[k & 1]);
        struct variable *product = call_variable(c, sides[1 - (k & 1)]);
        struct variable *gate = pattern_step(product, "aten.mul.Tensor", sides[k >> 1]);
        struct variable *a = pattern_step(product, "aten.mul.Tensor", sides[1 - (k >> 1)]);
        if (!a || !x || !is_row(gate, c) || !pattern_is_free(product) ||
            !pattern_same_facts(a->facts, c->facts) || !pattern_same_facts(x->facts, c->facts))
            continue;
        const ckpt_tensor to = record_row(c, x), by = record_row(c, gate), of = record_row(c, a);
        if (c->r->failed)
            return false;
        *y = tensor_of(c->r, c->dtype, ckpt_gated_residual(c->r->t, to, by, of));
        return !c->r->failed;
    }
    return false;
}

/* ---- layer norm with scale and shift --------------------------------------------------------- */

/* A layer norm over the last axis that only this reads. */
static const struct call *norm_of(struct variable *v, const struct call *c)
{
    const struct call *norm = pattern_call(v, "aten.layer_norm.default");
    int64_t shape[2];

    if (!norm || !pattern_is_free(v) || norm->dtype != c->dtype)
        return NULL;
    struct call of = *norm;
    return call_ints(&of, "normalized_shape", shape, 2) == 1 ? norm : NULL;
}

/* (LN(x) w + b) factor + shift is LN(x) W + B of rows W = w factor and B = b factor + shift, which
 * are computed in fp32 and rounded once. */
static ckpt_tensor record_scaled(struct call *norm, ckpt_tensor factor, ckpt_tensor shift)
{
    ckpt_tape *t = norm->r->t;
    const enum ckpt_dtype dtype = tape_dtype(norm->dtype);
    const ckpt_tensor x = call_operand(norm, "input", norm->dtype);
    const ckpt_tensor w = call_operand(norm, "weight", norm->dtype);
    const ckpt_tensor b = call_operand(norm, "bias", norm->dtype);

    if (norm->r->failed)
        return CKPT_NONE;
    factor = ckpt_cast(t, factor, CKPT_F32);
    ckpt_tensor scale = ckpt_affine(t, w.id ? ckpt_mul(t, factor, w) : factor, 1.f, -1.f);
    if (b.id)
        shift = ckpt_cast(t, ckpt_add(t, ckpt_mul(t, factor, b), shift), dtype);
    return ckpt_layer_norm_modulate(t, x, shift, ckpt_cast(t, scale, dtype),
                                    (float)call_double(norm, "eps"));
}

static bool record_modulated(struct call *c, struct tensor *y)
{
    static const char *const sides[] = {"self", "other"};

    for (int k = 0; k < 4; k++) {
        struct variable *shift = call_variable(c, sides[k & 1]);
        struct variable *product = call_variable(c, sides[1 - (k & 1)]);
        struct variable *factor = pattern_step(product, "aten.mul.Tensor", sides[k >> 1]);
        struct variable *of = pattern_step(product, "aten.mul.Tensor", sides[1 - (k >> 1)]);
        const struct call *norm = of ? norm_of(of, c) : NULL;
        if (!norm || !is_row(factor, c) || !is_row(shift, c) || !pattern_is_free(product))
            continue;
        struct call copy = *norm;
        const ckpt_tensor by = record_row(c, factor), add = record_row(c, shift);
        if (c->r->failed)
            return false;
        *y = tensor_of(c->r, c->dtype, record_scaled(&copy, by, add));
        return !c->r->failed;
    }
    return false;
}

bool record_block(struct call *c, struct tensor *y)
{
    if (pt2_arg_find(c->node, "alpha") || c->r->failed)
        return false;
    return record_rotary(c, y) || record_modulated(c, y) || record_gated(c, y);
}
