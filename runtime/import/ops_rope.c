/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rotary embeddings written out, with constant angles: a sum of a tensor and its turned halves, as
 * in language models, or neighbouring pairs that are written into every other place of a new
 * tensor, as in Wan.  Each becomes one op.
 */
#include <string.h>
#include "import/math.h"
#include "import/ops.h"
#include "import/patterns.h"
#include "import/views.h"

/* ---- tables ---------------------------------------------------------------------------------- */

/* A table [rows, D/2, 2] of the library, and the constants that it is from. */
struct rope_table {
    const void *cosines, *sines;
    int64_t step[5]; /* strides of rows and columns, and the columns */
    struct tensor table;
    struct rope_table *before;
};

/* The axis of positions of a constant with `columns` angles in a row, counted from the end; 0: it
 * varies along another axis, too. */
static int position_axis(const struct tensor *a, int64_t columns)
{
    int axis = 0;

    if (!a->constant || a->ndim < 2 || a->shape[a->ndim - 1] != columns || !pt2_is_float(a->dtype))
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

struct rotary {
    struct variable *x, *cosines, *sines;
};

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
            if (a->shape[a->ndim - 1] > pairs &&
                angle_at(a, axis, i, k) != angle_at(a, axis, i, k + pairs))
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
    const int64_t step[5] = {cosines->stride[cosines->ndim - axis],
                             cosines->stride[cosines->ndim - 1], sines->stride[sines->ndim - axis],
                             sines->stride[sines->ndim - 1], cosines->shape[cosines->ndim - 1]};

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

/* x of d columns turned by angles in rows of `columns`: halves of x, or neighbours; false: the
 * angles are no constants of positions. */
static bool rotate(struct recording *r, struct tensor x, struct rotary p, int64_t columns,
                   struct tensor *y)
{
    const struct tensor *cosines = variable_read(r, p.cosines), *sines = variable_read(r, p.sines);
    int axes[TENSOR_AXES], inverse[TENSOR_AXES], axis = 0;

    const int from_end = r->failed || x.constant ? 0 : position_axis(cosines, columns);
    if (!from_end || from_end > x.ndim || position_axis(sines, columns) != from_end ||
        cosines->shape[cosines->ndim - from_end] != x.shape[x.ndim - from_end] ||
        sines->shape[sines->ndim - from_end] != x.shape[x.ndim - from_end])
        return false;
    const int64_t d = x.shape[x.ndim - 1];
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
    ckpt_tensor z = columns == d ? ckpt_rope_halves(r->t, plain.x, table->x, axis)
                                 : ckpt_rope(r->t, plain.x, table->x, axis);
    *y = view_permute(r, tensor_of(r, x.dtype, z), inverse);
    return !r->failed;
}

/* ---- halves ---------------------------------------------------------------------------------- */

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

bool record_rotary(struct call *c, struct tensor *y)
{
    struct rotary p;

    if (!pattern_rotary(c, &p) || !pattern_same_facts(p.x->facts, c->facts))
        return false;
    const struct tensor *x = variable_read(c->r, p.x);
    return !c->r->failed && rotate(c->r, *x, p, x->shape[x->ndim - 1], y);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* What v is the part of, of two along the last axis. */
static struct variable *of_pair(struct variable *v, int part)
{
    struct variable *x = pattern_step(v, "aten.unbind.int", "self");
    const int last = x ? x->facts->ndim - 1 : 0;

    if (!x || v->part != part || x->facts->size[last].n != 2)
        return NULL;
    struct call c = *v->call;
    const int64_t dim = call_int(&c, "dim");
    return dim == -1 || dim == last ? x : NULL;
}

/* v = x1 a - x2 b of a pair, or with a plus: gives the pair, a and b. */
static bool turned_pair(struct variable *v, const char *op, struct rotary *to)
{
    struct variable *one = pattern_step(v, op, "self"), *two = pattern_step(v, op, "other");

    to->cosines = pattern_step(one, "aten.mul.Tensor", "other");
    to->sines = pattern_step(two, "aten.mul.Tensor", "other");
    to->x = of_pair(pattern_step(one, "aten.mul.Tensor", "self"), 0);
    return to->x && to->cosines && to->sines && !pt2_arg_find(v->call->node, "alpha") &&
           of_pair(pattern_step(two, "aten.mul.Tensor", "self"), 1) == to->x;
}

/* The tensor that the copy in place writes every other place of, from `begin` on along its last
 * axis; NULL: it writes something else. */
static struct variable *every_other(struct call *c, int64_t begin)
{
    struct variable *self = call_variable(c, "self"), *whole = self ? self->parent : NULL;

    if (!whole || whole->parent || strcmp(self->call->op->name, "aten.slice.Tensor") != 0)
        return NULL;
    const int last = whole->facts->ndim - 1;
    struct call s = *self->call;
    const int64_t dim = call_int(&s, "dim"),
                  start = call_has(&s, "start") ? call_int(&s, "start") : 0;
    const bool fits = (dim == last || dim == -1) && start == begin && call_int(&s, "step") == 2 &&
                      self->facts->size[last].n * 2 == whole->facts->size[last].n;
    return fits ? whole : NULL;
}

static bool same_size(const struct pt2_size *a, const struct pt2_size *b)
{
    return a->expr && b->expr ? !strcmp(a->expr, b->expr) : !a->expr && !b->expr && a->n == b->n;
}

/* Whether `to` has the dtype of pairs, and their shape with the last two axes as one. */
static bool joins_pairs(const struct pt2_tensor *to, const struct pt2_tensor *pairs)
{
    const int last = to->ndim - 1;
    const struct pt2_size half = {to->size[last].n / 2, to->size[last].expr};
    bool joins = to->dtype == pairs->dtype && pairs->ndim == to->ndim + 1 && !half.expr &&
                 same_size(&half, &pairs->size[last]);

    for (int i = 0; joins && i < last; i++)
        joins = same_size(&to->size[i], &pairs->size[i]);
    return joins;
}

bool record_pairs(struct call *c)
{
    struct recording *r = c->r;
    const bool copies = !r->stops && !strcmp(c->op->name, "aten.copy.default");
    struct variable *v = copies ? call_variable(c, "src") : NULL;
    struct variable *to = v ? every_other(c, r->deferred != NULL) : NULL;
    struct rotary p, q;
    struct tensor y;

    if (!to || v->facts->dtype != c->dtype)
        return false;
    if (!r->deferred) {
        if (turned_pair(v, "aten.sub.Tensor", &p))
            variable_defer(c);
        return r->deferred != NULL;
    }
    struct call first = *r->deferred;
    if (every_other(&first, 0) != to ||
        !turned_pair(call_variable(&first, "src"), "aten.sub.Tensor", &p) ||
        !turned_pair(v, "aten.add.Tensor", &q) || p.x != q.x || p.cosines != q.sines ||
        p.sines != q.cosines || !joins_pairs(to->facts, p.x->facts))
        return false;
    struct tensor x = *variable_read(r, p.x);
    if (r->failed)
        return true;
    const int64_t columns = x.shape[x.ndim - 2];
    int64_t shape[TENSOR_AXES];
    memcpy(shape, x.shape, sizeof shape);
    shape[x.ndim - 2] *= 2;
    if (!rotate(r, view_reshape(r, x, x.ndim - 1, shape), p, columns, &y))
        return r->failed;
    r->deferred = NULL;
    variable_write(r, to, y);
    return true;
}
