/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Views of tensors, the same for constants and on the tape: what PyTorch calls permute, view,
 * expand, slice.  Shapes are whole: no size is -1.
 */
#ifndef CKPT_IMPORT_VIEWS_H
#define CKPT_IMPORT_VIEWS_H

#include "import/tensor.h"

struct tensor view_permute(struct recording *r, struct tensor a, const int *axes);
struct tensor view_swap(struct recording *r, struct tensor a, int axis, int other);
struct tensor view_reshape(struct recording *r, struct tensor a, int ndim, const int64_t *shape);
struct tensor view_expand(struct recording *r, struct tensor a, int ndim, const int64_t *shape);
/* Every step-th element of [begin, end), which lies inside the axis. */
struct tensor view_slice(struct recording *r, struct tensor a, int axis, int64_t begin, int64_t end,
                         int64_t step);
struct tensor view_unsqueeze(struct recording *r, struct tensor a, int axis);
struct tensor view_squeeze(struct recording *r, struct tensor a, int axis);
struct tensor join_tensors(struct recording *r, int axis, int n, struct tensor *a);

/*
 * The order of a tensor's axes in memory, outermost first, as axes for view_permute; of those that
 * repeat elements and of constants the given order.  An op that works on elements records operands
 * in the order of the first, so that channels that are last in memory stay so.
 */
void axes_in_memory(struct recording *r, const struct tensor *a, int *axes);
/* The permutation that undoes axes. */
void inverse_axes(int ndim, const int *axes, int *inverse);

#endif
