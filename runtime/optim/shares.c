/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on several ranks: the parts of the update.
 *
 * A bucket (layout.h) is a parameter of its own, and the update knows only buckets.  Each rank
 * updates its share, at stage 0 all; stage 1 gathers new values in place.  The norm is computed
 * from the same partial sums at every stage, so the stage changes no bit.
 */
#include "collective.h"
#include "dist/shard/layout.h"
#include "ops.h"
#include "optim/optim.h"

int32_t optim_bucket_of(const ckpt_tape *t, int32_t param)
{
    int32_t bucket = param - (t->env.params->n - t->env.params->n_hidden);
    return t->env.sharing.layout ? bucket : -1;
}

static ckpt_tensor own_share(ckpt_tape *t, int32_t param, ckpt_tensor whole)
{
    const struct layout_bucket *b = &t->env.sharing.layout->buckets[optim_bucket_of(t, param)];
    int64_t begin = sharing_place(&t->env.sharing, b) * b->share;
    return ckpt_slice(t, whole, 0, begin, begin + b->share);
}

ckpt_tensor optim_norm_part(ckpt_tape *t, int32_t param, ckpt_tensor gradient)
{
    return optim_bucket_of(t, param) < 0 || !tape_has_all(t) ? gradient
                                                             : own_share(t, param, gradient);
}

ckpt_tensor optim_updated_value(ckpt_tape *t, int32_t param)
{
    ckpt_tensor value = tape_slot(t, param, STORAGE_VALUE);
    return t->env.params->data[param].place.part ? own_share(t, param, value) : value;
}

ckpt_tensor optim_updated_part(ckpt_tape *t, int32_t param, ckpt_tensor whole)
{
    return tape_has_all(t) ? whole : own_share(t, param, whole);
}

ckpt_tensor optim_whole_bucket(ckpt_tape *t, int32_t param, ckpt_tensor part)
{
    struct collective_attr attr = collective_of_bucket(t, optim_bucket_of(t, param));
    if (tape_has_all(t))
        return part;
    int32_t label = tape_label_bucket(t, optim_bucket_of(t, param));
    ckpt_tensor whole = OPS_RECORD(t, &op_all_gather_once, &attr, part);
    t->label = label;
    return whole;
}

void optim_gather_updated(ckpt_tape *t, int32_t param)
{
    if (!t->env.params->data[param].place.part)
        return;
    struct collective_attr attr = collective_of_bucket(t, optim_bucket_of(t, param));
    if (attr.ranks < 2)
        return;
    int32_t label = tape_label_bucket(t, optim_bucket_of(t, param));
    OPS_RECORD(t, &op_all_gather_in_place, &attr, tape_slot(t, param, STORAGE_VALUE));
    t->label = label;
}

/*
 * Replaces n <= FLATTEN_PARTS values by their sums over the ranks.  Values from `once` on are sums
 * over shares: each replica has its own place in the sum, and all ranks use the first replica's
 * result.  So no part of the norm counts twice, and the order of sums on another host does not
 * change it.
 */
static void sum_values(ckpt_tape *t, int n, int once, ckpt_tensor *x)
{
    const struct sharing *sharing = &t->env.sharing;
    int shares = n - once;
    struct flatten_attr attr = {.dtype = CKPT_F32,
                                .numel = once + (int64_t)sharing->replicas * shares};
    struct collective_attr ranks = {.ranks = sharing->ranks};
    for (int i = 0; i < n; i++)
        attr.offset[i] = i < once ? i : i + (int64_t)sharing->replica * shares;
    ckpt_tensor all = ops_record1(t, &op_flatten, n, x, &attr, sizeof attr);
    all = OPS_RECORD(t, &op_all_reduce, &ranks, all);
    for (int i = 0; i < n; i++)
        x[i] = ckpt_slice(t, all, 0, i, i + 1);
}

/* Replaces the values by their mean, computed with all_reduce, so it is the same on all ranks. */
static void average_values(ckpt_tape *t, int n, const int32_t *param)
{
    struct flatten_attr attr = {.dtype = CKPT_F32, .numel = 0};
    const struct collective_attr ranks = {.ranks = t->env.sharing.ranks};
    ckpt_tensor x[FLATTEN_PARTS];
    for (int i = 0; i < n; i++) {
        x[i] = tape_handle(t, t->param_next[param[i]]);
        attr.offset[i] = attr.numel;
        attr.numel += desc_numel(&t->env.params->data[param[i]].desc);
    }
    ckpt_tensor all = ops_record1(t, &op_flatten, n, x, &attr, sizeof attr);
    all = OPS_RECORD(t, &op_all_reduce, &ranks, all);
    all = ckpt_affine(t, all, 1.f / (float)t->env.sharing.ranks, 0.f);
    for (int i = 0; i < n; i++) {
        const struct ckpt_desc *d = &t->env.params->data[param[i]].desc;
        ckpt_tensor own = ckpt_slice(t, all, 0, attr.offset[i], attr.offset[i] + desc_numel(d));
        t->param_next[param[i]] = ckpt_reshape(t, own, d->ndim, d->shape).id;
    }
}

void optim_share_buffers(ckpt_tape *t)
{
    int32_t param[FLATTEN_PARTS];
    int n = 0;
    for (int32_t i = 0; i < t->n_params && t->env.sharing.ranks > 1; i++) {
        if (t->param_next[i])
            param[n++] = i;
        if (n && (n == FLATTEN_PARTS || i == t->n_params - 1)) {
            average_values(t, n, param);
            n = 0;
        }
    }
}

void optim_sum_over_ranks(ckpt_tape *t, int once, int n, ckpt_tensor *x)
{
    for (int i = 0; i < n; i += FLATTEN_PARTS)
        sum_values(t, (int)min_i64(FLATTEN_PARTS, n - i), i ? 0 : once, x + i);
}
