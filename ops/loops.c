/* SPDX-License-Identifier: Apache-2.0 */
/* Loops over views of any strides: which axes to walk, and where. */
#include "loops.h"

/* What operand d moves per step of the axis that is `back` axes from the last. */
static int64_t broadcast_stride(const struct ckpt_desc *d, int back)
{
    int axis = d->ndim - 1 - back;
    return axis < 0 || d->shape[axis] == 1 ? 0 : d->stride[axis];
}

/* Outermost first means the largest step of operand 0 first; ties keep their order. */
static void insert_axis(struct loops *l, int64_t size, const int64_t *stride)
{
    int at = l->ndim++;
    for (; at > 0 && l->stride[0][at - 1] < stride[0]; at--) {
        l->shape[at] = l->shape[at - 1];
        for (int k = 0; k < l->n; k++)
            l->stride[k][at] = l->stride[k][at - 1];
    }
    l->shape[at] = size;
    for (int k = 0; k < l->n; k++)
        l->stride[k][at] = stride[k];
}

static bool mergeable(const struct loops *l, int outer, int inner)
{
    for (int k = 0; k < l->n; k++)
        if (l->stride[k][outer] != l->stride[k][inner] * l->shape[inner])
            return false;
    return true;
}

static void merge_axes(struct loops *l)
{
    int last = 0;
    for (int i = 1; i < l->ndim; i++) {
        bool merge = mergeable(l, last, i);
        if (!merge)
            last++;
        l->shape[last] = merge ? l->shape[last] * l->shape[i] : l->shape[i];
        for (int k = 0; k < l->n; k++)
            l->stride[k][last] = l->stride[k][i];
    }
    l->ndim = last + 1;
}

void loops_init(struct loops *l, int n, const struct ckpt_desc *const *d)
{
    *l = (struct loops){.n = n};
    for (int i = 0; i < d[0]->ndim; i++) {
        int64_t stride[LOOPS_OPERANDS];
        for (int k = 0; k < n; k++)
            stride[k] = broadcast_stride(d[k], d[0]->ndim - 1 - i);
        if (d[0]->shape[i] != 1)
            insert_axis(l, d[0]->shape[i], stride);
    }
    if (l->ndim == 0)
        insert_axis(l, 1, (int64_t[LOOPS_OPERANDS]){0});
    merge_axes(l);
}

void loops_seek(const struct loops *l, int axes, int64_t i, int64_t *offset)
{
    for (int k = 0; k < l->n; k++)
        offset[k] = 0;
    for (int axis = axes - 1; axis >= 0; axis--) {
        int64_t at = i % l->shape[axis];
        i /= l->shape[axis];
        for (int k = 0; k < l->n; k++)
            offset[k] += at * l->stride[k][axis];
    }
}

int64_t loops_count(const struct loops *l, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= l->shape[i];
    return n;
}

int loops_dense_axis(const struct loops *l, int k)
{
    for (int i = l->ndim - 1; i >= 0; i--)
        if (l->stride[k][i] == 1)
            return i;
    return -1;
}

void loops_move_axis(struct loops *l, int i)
{
    struct loops old = *l;
    for (int to = i; to < l->ndim - 2; to++) {
        l->shape[to] = old.shape[to + 1];
        for (int k = 0; k < l->n; k++)
            l->stride[k][to] = old.stride[k][to + 1];
    }
    l->shape[l->ndim - 2] = old.shape[i];
    for (int k = 0; k < l->n; k++)
        l->stride[k][l->ndim - 2] = old.stride[k][i];
}
