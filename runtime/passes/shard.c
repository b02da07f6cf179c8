/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on several ranks, on the tape.  The parameters of a block form a bucket (layout.h),
 * which is a parameter of its own: the update knows only buckets.  The model reads a view: at
 * stages 0 and 1 of the bucket itself, since every rank has all of it (at stage 1 each rank updates
 * its share, and new values are gathered in place); at stages 2 and 3 of the result of an
 * all_gather of the shares.  Freeing that result between its uses is ZeRO-3, keeping it ZeRO-2, and
 * the planner treats it like anything else that can be recomputed.
 *
 * Gradients are summed in the order of ranks once they are complete; each rank gets the sum of its
 * share (stage 0: of all).  The norm is computed from the same partial sums at every stage, so the
 * stage changes no bit.  With one micro-step the sum is in the backward pass, where the last
 * gradient of a bucket is made, and a rank then keeps only its share.  With several, the body of
 * the program is the same for each micro-step and cannot know which is the last; reducing in each
 * would multiply the bytes sent.  So the sum is in the update.
 */
#include <stdlib.h>
#include "collective.h"
#include "ops.h"
#include "dist/shard/layout.h"
#include "tape/tape.h"

/* Whether every rank has all values; whether it also has all gradients and state. */
static bool has_values(const ckpt_tape *t)
{
    return t->env.sharing.zero <= 1;
}

static bool has_all(const ckpt_tape *t)
{
    return t->env.sharing.zero == 0;
}

static int32_t bucket_param(const ckpt_tape *t, int32_t bucket)
{
    return t->env.params->n - t->env.params->n_hidden + bucket;
}

/* Sets the bucket's label; returns the caller's, to be assigned to t->label afterwards. */
static int32_t label_bucket(ckpt_tape *t, int32_t bucket)
{
    int32_t before = t->label;
    ckpt_label(t, "%s", t->env.sharing.layout->buckets[bucket].name);
    return before;
}

/* The whole bucket as the model reads it. */
static ckpt_tensor full_bucket(ckpt_tape *t, int32_t bucket)
{
    if (t->buckets[bucket])
        return tape_handle(t, t->buckets[bucket]);
    const bool averaged = tape_reads_ema(t, bucket_param(t, bucket));
    ckpt_tensor full =
        tape_slot(t, bucket_param(t, bucket), averaged ? STORAGE_EMA : STORAGE_VALUE);
    struct collective_attr attr = {.ranks = t->env.sharing.group_ranks,
                                   .drop_after_forward = t->env.sharing.drop_after_forward};
    if (averaged ? !has_all(t) : !has_values(t)) {
        int32_t label = label_bucket(t, bucket);
        const struct ckpt_op_def *def =
            t->env.sharing.zero == 3 ? &op_all_gather : &op_all_gather_once;
        full = OPS_RECORD(t, def, &attr, full);
        t->label = label;
    }
    t->buckets[bucket] = full.id;
    return full;
}

ckpt_tensor tape_sharded_value(ckpt_tape *t, int32_t param)
{
    const struct layout_place *place = &t->env.sharing.layout->places[param];
    struct ckpt_desc d = t->env.params->data[param].desc;
    int32_t number = tape_number(t);
    ckpt_tensor full = full_bucket(t, place->bucket);
    ckpt_tensor part = ckpt_slice(t, full, 0, place->offset, place->offset + place->numel);
    ckpt_tensor x = ckpt_reshape(t, part, d.ndim, d.shape);
    if (x.id)
        t->tensors.data[x.id].needs_grad = tape_trains(t, param);
    t->slots[param][SLOT_VALUE] = x.id;
    tape_set_number(t, number);
    return x;
}

bool tape_is_sharded(const ckpt_tape *t, int32_t param)
{
    const struct layout *l = t->env.sharing.layout;
    return l && param < l->n_params && l->places[param].bucket >= 0;
}

int32_t tape_param_of(const ckpt_tape *t, int32_t x)
{
    const struct tensor *v = &t->tensors.data[x];
    const struct storage *s = &t->storages.data[v->storage];
    if (v->op < 0)
        return s->kind == STORAGE_VALUE ? s->param : -1;
    if (!t->env.sharing.layout || !v->learned || t->ops.data[v->op].def != &op_reshape)
        return -1;
    for (int32_t i = 0; i < t->env.sharing.layout->n_params; i++)
        if (t->slots[i][SLOT_VALUE] == x)
            return i;
    return -1;
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* The gradients of a bucket as one flat tensor, or none if no parameter of it has one.  Ranks
 * exchange them in bf16 if that was requested. */
static ckpt_tensor flat_gradient(ckpt_tape *t, const struct layout_bucket *b)
{
    const struct layout *l = t->env.sharing.layout;
    struct flatten_attr attr = {.dtype = b->dtype == CKPT_BF16 ? t->grad_dtype : CKPT_F32,
                                .numel = b->padded};
    ckpt_tensor in[FLATTEN_PARTS];
    int32_t missing = -1, found = 0;
    _Static_assert((int)FLATTEN_PARTS >= (int)LAYOUT_PARTS, "a bucket is flattened at once");
    for (int32_t i = 0; i < b->n; i++) {
        int32_t param = l->order[b->first + i];
        in[i] = tape_handle(t, t->param_gradient[param]);
        attr.offset[i] = l->places[param].offset;
        t->param_gradient[param] = 0;
        found += in[i].id != 0;
        if (!in[i].id)
            missing = param;
    }
    if (!found)
        return CKPT_NONE;
    if (missing >= 0) {
        tape_fail(t, CKPT_EINVAL,
                  "parameter '%s' takes no part in the loss, others of block '%s' do: ranks train "
                  "a block as one",
                  t->env.params->data[missing].name, b->name);
        return CKPT_NONE;
    }
    return ops_record1(t, &op_flatten, b->n, in, &attr, sizeof attr);
}

static void reduce_bucket(ckpt_tape *t, int32_t bucket)
{
    struct collective_attr attr = {.ranks = t->env.sharing.group_ranks,
                                   .replicas = t->env.sharing.replicas};
    int32_t label = label_bucket(t, bucket);
    ckpt_tensor g = flat_gradient(t, &t->env.sharing.layout->buckets[bucket]);
    if (g.id)
        g = OPS_RECORD(t, has_all(t) ? &op_all_reduce : &op_reduce_scatter, &attr, g);
    t->param_gradient[bucket_param(t, bucket)] = g.id;
    t->label = label;
}

void tape_watch_buckets(ckpt_tape *t)
{
    const struct layout *l = t->env.sharing.layout;
    for (int32_t i = 0; l && t->n_micro == 1 && i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_in; k++) {
            int32_t x = op_in(t, o, k), param = x > 0 ? tape_param_of(t, x) : -1;
            if (param >= 0 && param < l->n_params && l->places[param].bucket >= 0 &&
                !t->first_reader[l->places[param].bucket])
                t->first_reader[l->places[param].bucket] = i;
        }
    }
}

void tape_reversed(ckpt_tape *t, int32_t op)
{
    const struct layout *l = t->env.sharing.layout;
    for (int32_t b = 0; l && op && b < l->n_buckets && !t->error.code; b++) {
        const struct layout_bucket *bucket = &l->buckets[b];
        if (t->first_reader[b] != op)
            continue;
        for (int32_t i = 0; i < bucket->n; i++)
            tape_fetch_gradient(t, l->order[bucket->first + i]);
        reduce_bucket(t, b);
    }
}

int tape_shard_gradients(ckpt_tape *t)
{
    const struct layout *l = t->env.sharing.layout;
    for (int32_t i = 0; l && i < l->n_buckets && !t->error.code; i++)
        if (!t->param_gradient[bucket_param(t, i)])
            reduce_bucket(t, i);
    return t->error.code;
}

int32_t tape_bucket_of(const ckpt_tape *t, int32_t param)
{
    int32_t bucket = param - (t->env.params->n - t->env.params->n_hidden);
    return t->env.sharing.layout ? bucket : -1;
}

static ckpt_tensor own_share(ckpt_tape *t, int32_t param, ckpt_tensor whole)
{
    int64_t share = t->env.sharing.layout->buckets[tape_bucket_of(t, param)].share;
    int64_t begin = t->env.sharing.place * share;
    return ckpt_slice(t, whole, 0, begin, begin + share);
}

ckpt_tensor tape_norm_part(ckpt_tape *t, int32_t param, ckpt_tensor gradient)
{
    return tape_bucket_of(t, param) < 0 || !has_all(t) ? gradient : own_share(t, param, gradient);
}

ckpt_tensor tape_updated_value(ckpt_tape *t, int32_t param)
{
    ckpt_tensor value = tape_slot(t, param, STORAGE_VALUE);
    return t->env.params->data[param].place.part ? own_share(t, param, value) : value;
}

ckpt_tensor tape_updated_part(ckpt_tape *t, int32_t param, ckpt_tensor whole)
{
    return has_all(t) ? whole : own_share(t, param, whole);
}

ckpt_tensor tape_whole_bucket(ckpt_tape *t, int32_t param, ckpt_tensor part)
{
    struct collective_attr attr = {.ranks = t->env.sharing.group_ranks};
    if (has_all(t))
        return part;
    int32_t label = label_bucket(t, tape_bucket_of(t, param));
    ckpt_tensor whole = OPS_RECORD(t, &op_all_gather_once, &attr, part);
    t->label = label;
    return whole;
}

void tape_gather_updated(ckpt_tape *t, int32_t param)
{
    struct collective_attr attr = {.ranks = t->env.sharing.group_ranks};
    if (!t->env.params->data[param].place.part)
        return;
    int32_t label = label_bucket(t, tape_bucket_of(t, param));
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

void tape_share_buffers(ckpt_tape *t)
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

void tape_sum_over_ranks(ckpt_tape *t, int once, int n, ckpt_tensor *x)
{
    for (int i = 0; i < n; i += FLATTEN_PARTS)
        sum_values(t, (int)min_i64(FLATTEN_PARTS, n - i), i ? 0 : once, x + i);
}
