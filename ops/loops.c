/* SPDX-License-Identifier: Apache-2.0 */
/* Loop nests over views of any strides: see loops.h. */
#include "axes.h"
#include "loops.h"

/* The stride of operand d on the axis `back` axes before the last, 0 where it broadcasts. */
static int64_t broadcast_stride(const struct ckpt_desc *d, int back)
{
    int axis = d->ndim - 1 - back;
    return axis < 0 || d->shape[axis] == 1 ? 0 : d->stride[axis];
}

void loops_init(struct loops *l, int n, const struct ckpt_desc *const *d)
{
    *l = (struct loops){.n = n};
    for (int i = 0; i < d[0]->ndim; i++) {
        l->shape[i] = d[0]->shape[i];
        for (int k = 0; k < n; k++)
            l->stride[k][i] = broadcast_stride(d[k], d[0]->ndim - 1 - i);
    }
    l->ndim = axes_simplify(d[0]->ndim, l->shape, n, l->stride, -1);
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

int64_t loops_count(const struct loops *l, int axes)
{
    int64_t n = 1;
    for (int i = 0; i < axes; i++)
        n *= l->shape[i];
    return n;
}

int loops_dense_axis(const struct loops *l)
{
    for (int i = l->ndim - 1; i >= 0; i--)
        if (l->stride[1][i] == 1)
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
