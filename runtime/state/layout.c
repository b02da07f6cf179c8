/* Parameters whose axes stand in another order in files. */
#include <string.h>
#include "ckpt_file.h"
#include "context.h"
#include "state/safetensors.h"

int ckpt_param_file_axes(ckpt *c, ckpt_tensor x, const int *axes)
{
    NOT_NULL(c, c);
    NOT_NULL(c, axes);
    struct param *p = context_param(c, x);
    bool seen[CKPT_MAX_DIMS] = {false};

    if (!p)
        return context_fail(c, CKPT_ENAME, "ckpt_param_file_axes: no such parameter");
    for (int i = 0; i < p->desc.ndim; i++) {
        if (axes[i] < 0 || axes[i] >= p->desc.ndim || seen[axes[i]])
            return context_fail(c, CKPT_EINVAL,
                                "parameter '%s': the axes of files are no permutation of its own",
                                p->name);
        seen[axes[i]] = true;
    }
    for (int i = 0; i < p->desc.ndim; i++)
        p->file_axes[i] = axes[i];
    p->reordered = true;
    return 0;
}

struct ckpt_desc param_file_desc(const struct param *p)
{
    struct ckpt_desc d = p->desc;

    for (int i = 0; i < d.ndim && p->reordered; i++) {
        d.shape[i] = p->desc.shape[p->file_axes[i]];
        d.stride[i] = p->desc.stride[p->file_axes[i]];
    }
    return d;
}

/* Walks the values in the order of a file and hands over where each stands in the parameter. */
static void walk(const struct param *p, const float *src, float *dst, bool to_file)
{
    struct ckpt_desc d = param_file_desc(p);
    int64_t index[CKPT_MAX_DIMS] = {0}, n = desc_numel(&d), row = d.shape[d.ndim - 1];
    int64_t step = d.stride[d.ndim - 1];

    for (int64_t at = 0; at < n; at += row) {
        int64_t place = 0;
        for (int i = 0; i < d.ndim - 1; i++)
            place += index[i] * d.stride[i];
        for (int64_t i = 0; i < row; i++) {
            if (to_file)
                dst[at + i] = src[place + i * step];
            else
                dst[place + i * step] = src[at + i];
        }
        for (int i = d.ndim - 2; i >= 0 && ++index[i] == d.shape[i]; i--)
            index[i] = 0;
    }
}

void param_to_file(const struct param *p, const float *src, float *dst)
{
    walk(p, src, dst, true);
}

void param_from_file(const struct param *p, const float *src, float *dst)
{
    walk(p, src, dst, false);
}
