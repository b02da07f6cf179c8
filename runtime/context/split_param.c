/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of which each rank of a tensor group has a part. */
#include "ckpt_dist.h"
#include "context/context.h"

static int refuse(const struct param *p, const char *why)
{
    return error_set(CKPT_EINVAL, "parameter '%s' cannot be split over ranks (--tensor): %s",
                     p->name, why);
}

/* Why a parameter that has values, or is not like others, is not split; or NULL. */
static const char *fault_of(const struct ckpt *c, const struct param *p)
{
    return c->ranks.sharing.layout                   ? "a program was compiled before"
           : p->place.initial                        ? "its values were set before"
           : p->split.ranks > 1                      ? "it is split already"
           : p->training.codes                       ? "it is kept in codes"
           : p->training.qat.ranges                  ? "layers round it (--qat)"
           : p->file_parts                           ? "files have parts of it"
           : p->training.lora || p->training.adapter ? "it has an adapter (LoRA)"
                                                     : NULL;
}

int ckpt_param_split(ckpt *c, ckpt_tensor x, int axis, int64_t blocks)
{
    ERRORS_TO(context_error(c));
    NOT_NULL(c);
    struct param *p = params_at(&c->params, x);
    const int ranks = c->ranks.sharing.tensor;
    struct ckpt_desc view;
    int axes[CKPT_MAX_DIMS];

    if (!p)
        return error_set(CKPT_ENAME, "ckpt_param_split: no such parameter");
    if (axis < 0 || axis >= p->desc.ndim || blocks < 1 || p->desc.shape[axis] % blocks)
        return error_set(CKPT_EINVAL, "parameter '%s' has no axis %d of %lld equal blocks", p->name,
                         axis, (long long)blocks);
    if (ranks < 2)
        return 0;
    if (fault_of(c, p))
        return refuse(p, fault_of(c, p));
    if (p->desc.shape[axis] / blocks % ranks)
        return error_set(CKPT_ESHAPE,
                         "parameter '%s': axis %d, %lld block%s of %lld, does not divide into %d "
                         "equal parts (--tensor %d)",
                         p->name, axis, (long long)blocks, blocks > 1 ? "s" : "",
                         (long long)(p->desc.shape[axis] / blocks), ranks, ranks);
    p->split = (struct param_split){.ranks = ranks, .axis = axis, .blocks = blocks};
    if (param_split_view(p, &view, axes))
        return 0;
    p->split = (struct param_split){.ranks = 0};
    return refuse(p, "files have another order of its axes");
}
