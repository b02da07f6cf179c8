/* SPDX-License-Identifier: Apache-2.0 */
/* Divides the axes of a summed tensor into kept and reduced ones. */
#include "shapes/reduction.h"

/* x with its kept axes only, or with its reduced axes only. */
static struct ckpt_desc select_axes(const struct ckpt_desc *x, const struct ckpt_desc *y, bool kept)
{
    struct ckpt_desc d = {.dtype = x->dtype};
    for (int i = 0; i < x->ndim; i++) {
        int axis = i - (x->ndim - y->ndim);
        if ((axis >= 0 && y->shape[axis] == x->shape[i]) != kept)
            continue;
        d.shape[d.ndim] = x->shape[i];
        d.stride[d.ndim++] = x->stride[i];
    }
    return d;
}

/* Kept axes keep the order of the results, so only adjacent ones merge.  Reduced axes may be
 * reordered. */
static void kept_init(struct loops *l, const struct ckpt_desc *x)
{
    struct ckpt_desc order = *x;
    desc_dense(&order);
    loops_init(l, 2, (const struct ckpt_desc *[]){&order, x});
}

void reduction_init(struct reduction *r, const struct ckpt_desc *x, const struct ckpt_desc *y)
{
    struct ckpt_desc kept = select_axes(x, y, true), reduced = select_axes(x, y, false);
    kept_init(&r->kept, &kept);
    loops_init(&r->reduced, 1, (const struct ckpt_desc *[]){&reduced});
    r->results = desc_numel(&kept);
    r->length = desc_numel(&reduced);
    int64_t kept_step = r->kept.stride[1][r->kept.ndim - 1];
    int64_t reduced_step = r->reduced.stride[0][r->reduced.ndim - 1];
    r->columns = r->length == 1 || (r->results > 1 && kept_step < reduced_step);
}
