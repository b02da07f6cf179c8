/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads and writes a storage, and whether a tensor can be moved to another one. */
#include "tape/tape.h"

int32_t uses_next_reader(const ckpt_tape *t, int32_t x, int32_t after)
{
    int32_t u = uses_first(t, x);
    while (u >= 0 && uses_op(t, u) <= after)
        u = uses_next(t, u);
    return u >= 0 ? uses_op(t, u) : -1;
}

bool uses_is_alone(const ckpt_tape *t, int32_t x)
{
    return uses_on(t, t->tensors.data[x].storage) == x && !uses_older(t, x);
}

int32_t uses_last_reader(const ckpt_tape *t, int32_t storage)
{
    int32_t last = -1;
    for (int32_t x = uses_on(t, storage); x; x = uses_older(t, x)) {
        const int32_t u = t->uses.of.data[x].last;
        last = u >= 0 && uses_op(t, u) > last ? uses_op(t, u) : last;
    }
    return last;
}

bool uses_is_written(const ckpt_tape *t, int32_t storage, int32_t after, int32_t before)
{
    for (int32_t x = uses_on(t, storage); x; x = uses_older(t, x)) {
        const int32_t i = t->tensors.data[x].op;
        if (i > after && i < before && !(t->ops.data[i].def->flags & CKPT_OP_VIEW))
            return true;
    }
    return false;
}

bool uses_has_reader_but(const ckpt_tape *t, int32_t storage, int32_t i)
{
    for (int32_t x = uses_on(t, storage); x; x = uses_older(t, x))
        for (int32_t u = uses_first(t, x); u >= 0; u = uses_next(t, u))
            if (uses_op(t, u) != i)
                return true;
    return false;
}

/* ---- moving tensors ---------------------------------------------------------------------------
 */

/* Divides an axis of `size` elements at `stride` among axes of `to` from i on, the last of which
 * has that stride.  Returns the axis behind them, or -1 where their product is another. */
static int divide_axis(int64_t size, int64_t stride, struct ckpt_desc *to, int i)
{
    int end = i;
    int64_t n = 1;
    while (end < to->ndim && n < size)
        n *= to->shape[end++];
    for (int k = end - 1; k >= i && n == size; stride *= to->shape[k--])
        if (to->shape[k] > 1)
            to->stride[k] = stride;
    return n == size ? end : -1;
}

/* Copies the strides of axes with more than one element, each of which may be several in `to`;
 * false if their sizes differ. */
static bool match_axes(const struct ckpt_desc *from, struct ckpt_desc *to)
{
    int at = 0;
    for (int k = 0; k < from->ndim && at >= 0; k++)
        if (from->shape[k] > 1)
            at = divide_axis(from->shape[k], from->stride[k], to, at);
    while (at >= 0 && at < to->ndim && to->shape[at] == 1)
        at++;
    to->offset = from->offset;
    return at == to->ndim;
}

/* The tensor that x only renames: its source if x is a reshape that adds or drops axes of size 1 or
 * joins neighbouring axes; else x itself. */
static int32_t renamed(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct op *o = &t->ops.data[v->op];
    if (!(o->def->flags & CKPT_OP_VIEW) || o->n_in != 1)
        return x;
    const struct ckpt_desc *from = &t->tensors.data[op_in(t, o, 0)].desc;
    struct ckpt_desc d = *from;
    bool same = match_axes(&v->desc, &d) && d.offset == from->offset;
    for (int i = 0; same && i < d.ndim; i++) /* a square may have been transposed */
        same = d.stride[i] == from->stride[i];
    return same ? op_in(t, o, 0) : x;
}

/* Whether root has no other tensor on its storage, and no reader, but x. */
static bool is_fresh(const ckpt_tape *t, int32_t root, int32_t x)
{
    for (int32_t i = uses_on(t, t->tensors.data[root].storage); i; i = uses_older(t, i))
        if (i > root && i != x)
            return false;
    return x == root ? !uses_count(t, x) : uses_count(t, root) == 1 && !uses_count(t, x);
}

bool tape_is_fresh(const ckpt_tape *t, ckpt_tensor x)
{
    return is_fresh(t, x.id, x.id);
}

/* Whether a kernel can write an output with the strides of d; none can beside extra outputs. */
static bool can_write(const struct op *o, const struct ckpt_desc *d)
{
    int last = d->ndim - 1;
    bool rows = last >= 0 && (d->shape[last] == 1 || d->stride[last] == 1);
    unsigned flags = CKPT_OP_STRIDED_OUT | (rows ? CKPT_OP_STRIDED_ROWS : 0u);
    return desc_is_dense(d) || (!o->extra && o->def->flags & flags);
}

bool tape_can_rehome(const ckpt_tape *t, ckpt_tensor x, const struct ckpt_desc *as)
{
    if (t->tensors.data[x.id].op < 0)
        return false;
    int32_t root = renamed(t, x.id);
    const struct tensor *v = &t->tensors.data[root];
    if (v->op < 0)
        return false;
    const struct op *o = &t->ops.data[v->op];
    struct ckpt_desc d = v->desc; /* the op's own output; x may only rename it */
    match_axes(as, &d);
    if (o->feed >= 0 || o->accumulate != ACCUMULATE_NEVER ||
        (o->def->flags & (CKPT_OP_VIEW | CKPT_OP_INPLACE)) || !can_write(o, &d))
        return false;
    return is_fresh(t, root, x.id);
}

static void move_tensor(ckpt_tape *t, int32_t x, int32_t storage)
{
    uses_move_tensor(&t->uses, x, t->tensors.data[x].storage, storage);
    t->tensors.data[x].storage = storage;
}

void tape_rehome(ckpt_tape *t, ckpt_tensor x, ckpt_tensor onto, const struct ckpt_desc *as)
{
    int32_t root = renamed(t, x.id);
    int32_t storage = t->tensors.data[onto.id].storage;
    if (root != x.id) {
        match_axes(as, &t->tensors.data[root].desc);
        move_tensor(t, root, storage);
    }
    move_tensor(t, x.id, storage);
    t->tensors.data[x.id].desc = *as;
}

void tape_move_storage(ckpt_tape *t, int32_t from, int32_t to)
{
    while (uses_on(t, from))
        move_tensor(t, uses_on(t, from), to);
}
