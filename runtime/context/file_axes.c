/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters whose values are stored in another axis order in files. */
#include <string.h>
#include "ckpt_files.h"
#include "context/context.h"

static bool is_permutation(int ndim, const int *axes)
{
    bool seen[CKPT_MAX_DIMS] = {false};

    for (int i = 0; i < ndim; i++) {
        if (axes[i] < 0 || axes[i] >= ndim || seen[axes[i]])
            return false;
        seen[axes[i]] = true;
    }
    return true;
}

/* Makes the dense view of that shape; false if its number of elements differs. */
static bool make_view(const struct param *p, int ndim, const int64_t *shape, struct ckpt_desc *view)
{
    int64_t n = 1;

    *view = (struct ckpt_desc){.dtype = p->desc.dtype, .ndim = ndim};
    for (int i = ndim; i-- > 0;) {
        view->shape[i] = shape[i];
        view->stride[i] = n;
        if (shape[i] < 1 || __builtin_mul_overflow(n, shape[i], &n))
            return false;
    }
    return n == desc_numel(&p->desc);
}

int ckpt_param_file_axes(ckpt *c, ckpt_tensor x, int ndim, const int64_t *shape, const int *axes)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    NOT_NULL(axes);
    struct param *p = params_at(&c->params, x);
    struct ckpt_desc view = {.ndim = 0};

    if (!p)
        return error_set(CKPT_ENAME, "ckpt_param_file_axes: no such parameter");
    if (p->file_parts)
        return error_set(CKPT_EINVAL, "parameter '%s': files have parts of it, in its own order",
                         p->name);
    if (ndim < 1 || ndim > CKPT_MAX_DIMS || (!shape && ndim != p->desc.ndim) ||
        !is_permutation(ndim, axes))
        return error_set(CKPT_EINVAL,
                         "parameter '%s': the axes of files are no permutation of its own",
                         p->name);
    if (shape && !make_view(p, ndim, shape, &view))
        return error_set(CKPT_EINVAL,
                         "parameter '%s': the view that files have has another number of elements",
                         p->name);
    struct param moved = *p;
    int of_parts[CKPT_MAX_DIMS];
    memcpy(moved.file_axes, axes, (size_t)ndim * sizeof *axes);
    moved.file_view = view;
    moved.reordered = true;
    if (p->split.ranks > 1 && !param_split_view(&moved, &view, of_parts))
        return error_set(CKPT_EINVAL,
                         "parameter '%s': ranks have parts of it (ckpt_param_split), which cut the "
                         "axes of files",
                         p->name);
    memcpy(p->file_axes, axes, (size_t)ndim * sizeof *axes);
    p->file_view = moved.file_view;
    p->reordered = true;
    return 0;
}
