/* SPDX-License-Identifier: Apache-2.0 */
/* The global norm of all gradients, and the scalars that all updates share: see ops/attr.h. */
#include <stdlib.h>
#include "attr.h"
#include "collective.h"
#include "ops.h"
#include "optim/optim.h"

static int sum_squares_shape(struct ckpt_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call_float(call, i))
            return CKPT_ESHAPE;
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {1}, .stride = {1}};
    return CKPT_OK;
}

static void sum_squares_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){0};
    for (int i = 0; i < call->n_in; i++)
        cost->flops += 2.0 * (double)desc_numel(&call->in[i]);
}

OPS_DEF(sum_squares, .shape = sum_squares_shape, .cost = sum_squares_cost);

static int clip_coefficient_shape(struct ckpt_call *call)
{
    const struct clip_attr *attr = call->attr;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype != CKPT_F32 || desc_numel(&call->in[i]) != 1)
            return ckpt_call_fail(call, "operand %d must be one fp32 value", i);
    if (!(attr->clip_norm >= 0.f))
        return ckpt_call_fail(call, "clip_norm is %g and must be 0 or more",
                              (double)attr->clip_norm);
    call->out[0] = (struct ckpt_desc){
        .dtype = CKPT_F32, .ndim = 1, .shape = {clip_values(attr)}, .stride = {1}};
    return CKPT_OK;
}

OPS_DEF(clip_coefficient, .shape = clip_coefficient_shape);

/*
 * Limits of one sum_squares op.  Most parameters of a model are small, and one launch each would
 * cost more than reading their bytes.  The limits bound how many gradients must be in memory at
 * once.
 */
#define GROUP_TENSORS 64
#define GROUP_NUMEL   ((int64_t)1 << 26)

struct group {
    int n;
    int64_t numel;
    ckpt_tensor gradient[GROUP_TENSORS];
};

static ckpt_tensor close_group(ckpt_tape *t, struct group *g)
{
    ckpt_tensor sum = ops_record1(t, &op_sum_squares, g->n, g->gradient, NULL, 0);
    g->n = 0;
    g->numel = 0;
    return sum;
}

/* Records the sums of squares of all gradients; returns the number of sums. */
static int record_sums(ckpt_tape *t, ckpt_tensor *sums)
{
    struct group g = {0};
    int n = 0;
    for (int32_t i = 0; i < t->n_params; i++) {
        ckpt_tensor gradient = tape_handle(t, t->param_gradient[i]);
        if (!gradient.id)
            continue;
        gradient = optim_norm_part(t, i, gradient);
        struct ckpt_desc d = ckpt_desc_of(t, gradient);
        int64_t numel = desc_numel(&d);
        if (g.n == GROUP_TENSORS || (g.n && g.numel + numel > GROUP_NUMEL))
            sums[n++] = close_group(t, &g);
        g.gradient[g.n++] = gradient;
        g.numel += numel;
    }
    if (g.n)
        sums[n++] = close_group(t, &g);
    return n + optim_check_buffers(t, sums + n);
}

/* Stages have different numbers of sums, and ranks add up as many as the others: one. */
static int add_sums(ckpt_tape *t, ckpt_tensor *own, int n)
{
    for (int i = 2; i < n; i++)
        own[1] = ckpt_add(t, own[1], own[i]);
    if (n < 2)
        own[1] = ops_fill(t, 0.f, CKPT_F32, 1, (const int64_t[]){1});
    return 2;
}

ckpt_tensor optim_clip(ckpt_tape *t, const struct clip_attr *attr)
{
    ckpt_tensor *sums = calloc((size_t)t->n_params + CKPT_REQUESTS + 2, sizeof *sums);
    ckpt_tensor *own = sums ? sums + CKPT_REQUESTS : NULL;
    bool shared = t->env.sharing.ranks > 1;
    if (!sums) {
        tape_fail(t, CKPT_ENOMEM, "no memory for the norm of %d gradients", (int)t->n_params);
        return CKPT_NONE;
    }
    own[0] = t->loss ? tape_handle(t, t->loss) : ops_fill(t, 0.f, CKPT_F32, 0, NULL);
    int n = 1 + record_sums(t, own + 1);
    if (t->env.sharing.stages > 1)
        n = add_sums(t, own, n);
    if (shared) {
        ckpt_tensor requests = ops_record1(t, &op_requests, 0, NULL, NULL, 0);
        for (int i = 0; i < CKPT_REQUESTS; i++)
            sums[i] = ckpt_slice(t, requests, 0, i, i + 1);
        optim_sum_over_ranks(t, CKPT_REQUESTS + 1, CKPT_REQUESTS + n, sums);
        ckpt_output(t, "ckpt.stop", sums[CKPT_REQUEST_STOP]);
        ckpt_output(t, "ckpt.save", sums[CKPT_REQUEST_SAVE]);
        ckpt_output(t, "ckpt.abandon", sums[CKPT_REQUEST_ABANDON]);
        ckpt_output(t, "ckpt.loss", own[0]);
        own[n++] = sums[CKPT_REQUEST_ABANDON]; /* 0, or NaN: then nothing is updated */
    }
    ckpt_tensor clip = ops_record1(t, &op_clip_coefficient, n, own, attr, sizeof *attr);
    free(sums);
    return clip;
}
