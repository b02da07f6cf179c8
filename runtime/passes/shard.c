/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Training on several ranks: the gradients of buckets (layout.h).  What a model reads of a bucket
 * is in ops/values.c, its update in optim/shares.c.
 *
 * Gradients are summed in the order of ranks once they are complete; each rank gets the sum of its
 * share (stage 0: of all).  With one micro-step the sum is in the backward pass, where the last
 * gradient of a bucket is made, and a rank then keeps only its share.  With several, the body of
 * the program is the same for each micro-step and cannot know which is the last; reducing in each
 * would multiply the bytes sent.  So the sum is in the update.
 */
#include <stdlib.h>
#include "collective.h"
#include "ops.h"
#include "dist/shard/layout.h"
#include "passes/passes.h"

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
    struct collective_attr attr = collective_of_bucket(t, bucket);
    int32_t label = tape_label_bucket(t, bucket);
    ckpt_tensor g = flat_gradient(t, &t->env.sharing.layout->buckets[bucket]);
    attr.replicas = t->env.sharing.replicas;
    if (g.id && attr.ranks > 1)
        g = OPS_RECORD(t, tape_has_all(t) ? &op_all_reduce : &op_reduce_scatter, &attr, g);
    t->param_gradient[tape_bucket_param(t, bucket)] = g.id;
    t->label = label;
}

void shard_watch(ckpt_tape *t)
{
    const struct layout *l = t->env.sharing.layout;
    for (int32_t i = 0; l && t->n_micro == 1 && i < l->n_params; i++) {
        const int32_t bucket = l->places[i].bucket;
        const int32_t u = bucket >= 0 ? uses_first(t, t->slots[i][SLOT_VALUE]) : -1;
        if (u >= 0 && (!t->first_reader[bucket] || uses_op(t, u) < t->first_reader[bucket]))
            t->first_reader[bucket] = uses_op(t, u);
    }
}

void shard_reversed(ckpt_tape *t, int32_t op)
{
    const struct layout *l = t->env.sharing.layout;
    for (int32_t b = 0; l && op && b < l->n_buckets && !t->error.code; b++) {
        const struct layout_bucket *bucket = &l->buckets[b];
        if (t->first_reader[b] != op)
            continue;
        for (int32_t i = 0; i < bucket->n; i++)
            passes_fetch_gradient(t, l->order[bucket->first + i]);
        reduce_bucket(t, b);
    }
}

int pass_shard(const struct compilation *c)
{
    ckpt_tape *t = c->tape;
    const struct layout *l = t->env.sharing.layout;
    for (int32_t i = 0; l && i < l->n_buckets && !t->error.code; i++)
        if (!t->param_gradient[tape_bucket_param(t, i)])
            reduce_bucket(t, i);
    return t->error.code;
}
