/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums that transformer blocks are made of: a rotary embedding written out, and a residual with a
 * gate.  Each becomes one op, as in hand-written models; values between are not rounded.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- rotary embedding ------------------------------------------------------------------------ */

/* A table [rows, D/2, 2] of the library, and the constants that it is from. */
struct rope_table {
    const void *cosines, *sines;
    int64_t step[4]; /* strides of rows and columns */
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
    const int64_t step[4] = {cosines->stride[cosines->ndim - axis],
                             cosines->stride[cosines->ndim - 1], sines->stride[sines->ndim - axis],
                             sines->stride[sines->ndim - 1]};

    while (t && (t->cosines != cosines->f || t->sines != sines->f ||
                 memcmp(t->step, step, sizeof step) != 0 ||
                 memcmp(t->table.shape, shape, sizeof shape) != 0))
        t = t->before;
    if (t)
        return &t->table;
    t = heap_zeros(&r->heap, 1, sizeof *t);
    if (!t) {
        recording_fail(r, CKPT_ENOMEM, "%s", error_get());
        return NULL;
    }
    *t = (struct rope_table){.cosines = cosines->f,
                             .sines = sines->f,
                             .table = tensor_zeros(r, PT2_F32, 3, shape),
                             .before = r->ropes};
    memcpy(t->step, step, sizeof step);
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

    if (!pattern_rotary(c, &p) || !pattern_same_facts(p.x->facts, c->facts))
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

bool record_block(struct call *c, struct tensor *y)
{
    if (pt2_arg_find(c->node, "alpha") || c->r->failed)
        return false;
    return record_rotary(c, y) || record_gated(c, y);
}
