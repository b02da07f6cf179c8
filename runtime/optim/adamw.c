/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW (Loshchilov & Hutter 2019) as an op that changes parameters and their state in place. */
#include <float.h>
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "attr.h"
#include "ops.h"
#include "optim/optim.h"

/* in: the states of one parameter. */
static int check_states(struct ckpt_call *call, const struct ckpt_desc *in)
{
    const struct ckpt_desc *value = &in[ADAMW_VALUE];
    if (value->dtype != CKPT_F32 && value->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "a parameter must be fp32 or bf16");
    if ((in[ADAMW_MASTER].ndim < 0) != (value->dtype == CKPT_F32))
        return ckpt_call_fail(call, "a bf16 parameter needs a master, an fp32 one has none");
    for (int i = ADAMW_MASTER; i < ADAMW_STATES; i++) {
        bool optional = i == ADAMW_MASTER || i == ADAMW_EMA;
        if (optional && in[i].ndim < 0)
            continue;
        if (in[i].dtype != CKPT_F32 || desc_numel(&in[i]) != desc_numel(value))
            return ckpt_call_fail(call, "state %d must be fp32 of the parameter's size", i);
    }
    return CKPT_OK;
}

static int adamw_shape(struct ckpt_call *call)
{
    const int n = adamw_params(call->n_in);
    const struct ckpt_desc *gradient = call->in + n * ADAMW_STATES, *clip = gradient + n;
    for (int k = 0; k < n; k++) {
        const struct ckpt_desc *states = call->in + k * ADAMW_STATES;
        if (check_states(call, states))
            return CKPT_ESHAPE;
        if ((states[ADAMW_EMA].ndim < 0) != (call->in[ADAMW_EMA].ndim < 0))
            return ckpt_call_fail(call, "either all parameters have an EMA or none");
        if (desc_numel(&gradient[k]) != desc_numel(&states[ADAMW_VALUE]) ||
            (gradient[k].dtype != CKPT_F32 && gradient[k].dtype != CKPT_BF16))
            return ckpt_call_fail(call, "a gradient must be fp32 or bf16 of the parameter's size");
    }
    if (clip->dtype != CKPT_F32 || desc_numel(clip) != CLIP_VALUES)
        return ckpt_call_fail(call, "the last operand must be fp32 [%d]", CLIP_VALUES);
    for (int i = 0; i < n * ADAMW_STATES; i++)
        call->out[i] = call->in[i];
    return CKPT_OK;
}

static void adamw_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){0};
    for (int i = 0; i < call->n_out; i += ADAMW_STATES)
        cost->flops += 18.0 * (double)desc_numel(&call->in[i]);
}

const struct ckpt_op_def op_adamw = {
    .size = sizeof(struct ckpt_op_def),
    .name = "adamw",
    .flags = CKPT_OP_INPLACE,
    .shape = adamw_shape,
    .cost = adamw_cost,
    .cpu = cpu_adamw,
    .cuda = CUDA_KERNEL(cuda_adamw),
};

/*
 * Parameters of one adamw.  Most of a model are small: one by one, their launches would cost more
 * than their bytes.  A large one stays alone, so that its state can come and go by itself.
 */
#define GROUP_NUMEL ((int64_t)1 << 22)
#define GROUP_LARGE (GROUP_NUMEL / 2) /* a parameter from here on is a group of its own */

struct group {
    int n;
    int64_t numel;
    int32_t param[ADAMW_PARAMS];
};

static void states_of(ckpt_tape *t, int32_t param, const struct ckpt_adamw *opt, ckpt_tensor *in)
{
    in[ADAMW_VALUE] = tape_updated_value(t, param);
    if (ckpt_desc_of(t, in[ADAMW_VALUE]).dtype == CKPT_BF16)
        in[ADAMW_MASTER] = tape_slot(t, param, STORAGE_MASTER);
    in[ADAMW_EXP_AVG] = tape_slot(t, param, STORAGE_EXP_AVG);
    in[ADAMW_EXP_AVG_SQ] = tape_slot(t, param, STORAGE_EXP_AVG_SQ);
    if (opt->ema_decay > 0.f)
        in[ADAMW_EMA] = tape_slot(t, param, STORAGE_EMA);
}

/* Records the update of a group and empties it. */
static void close_group(ckpt_tape *t, struct group *g, const struct ckpt_adamw *opt,
                        ckpt_tensor clip)
{
    ckpt_tensor in[ADAMW_PARAMS * (ADAMW_STATES + 1) + 1] = {CKPT_NONE};
    ckpt_tensor out[ADAMW_PARAMS * ADAMW_STATES];
    const int n = g->n, n_out = n * ADAMW_STATES;
    if (!n)
        return;
    for (int k = 0; k < n; k++) {
        states_of(t, g->param[k], opt, in + k * ADAMW_STATES);
        in[n_out + k] = tape_handle(t, t->param_gradient[g->param[k]]);
    }
    in[n_out + n] = clip;
    const char *first = t->env.params->data[g->param[0]].name;
    if (n > 1)
        ckpt_label(t, "%s and %d more", first, n - 1);
    else
        ckpt_label(t, "%s", first);
    ckpt_record(t, &op_adamw, n_out + n + 1, in, n_out, out, opt, sizeof *opt);
    for (int k = 0; k < n; k++)
        tape_gather_updated(t, g->param[k]);
    *g = (struct group){0};
}

static void append_updates(ckpt_tape *t, const struct ckpt_adamw *opt, ckpt_tensor clip)
{
    struct group small = {0};
    for (int32_t i = 0; i < t->n_params && !t->error.code; i++) {
        if (!t->param_gradient[i])
            continue;
        int64_t numel = desc_numel(&t->env.params->data[i].desc);
        if (numel >= GROUP_LARGE) {
            struct group large = {.n = 1, .param = {i}};
            close_group(t, &large, opt, clip);
            continue;
        }
        if (small.n == ADAMW_PARAMS || small.numel + numel > GROUP_NUMEL)
            close_group(t, &small, opt, clip);
        small.param[small.n++] = i;
        small.numel += numel;
    }
    close_group(t, &small, opt, clip);
}

/* NaN compares with nothing. */
static bool is_size(float x)
{
    return x >= 0.f && x <= FLT_MAX;
}

static int check_options(ckpt_tape *t, const struct ckpt_adamw *o)
{
    if (!is_size(o->lr))
        return tape_fail(t, CKPT_EINVAL, "adamw: lr is %g and must be finite, 0 or more",
                         (double)o->lr);
    if (!(o->beta1 >= 0.f && o->beta1 < 1.f && o->beta2 >= 0.f && o->beta2 < 1.f))
        return tape_fail(t, CKPT_EINVAL, "adamw: beta1 is %g and beta2 %g; both must be in [0, 1)",
                         (double)o->beta1, (double)o->beta2);
    if (!is_size(o->eps) || !is_size(o->weight_decay) || !is_size(o->clip_norm))
        return tape_fail(t, CKPT_EINVAL,
                         "adamw: eps is %g, weight_decay %g and clip_norm %g; none may be "
                         "negative, infinite or NaN",
                         (double)o->eps, (double)o->weight_decay, (double)o->clip_norm);
    if (!(o->ema_decay >= 0.f && o->ema_decay < 1.f))
        return tape_fail(t, CKPT_EINVAL, "adamw: ema_decay is %g and must be in [0, 1)",
                         (double)o->ema_decay);
    if (o->grad_dtype != CKPT_F32 && o->grad_dtype != CKPT_BF16)
        return tape_fail(t, CKPT_EINVAL, "adamw: grad_dtype is neither CKPT_F32 nor CKPT_BF16");
    return t->error.code;
}

int optim_append(ckpt_tape *t, const struct ckpt_adamw *opt)
{
    if (t->error.code || check_options(t, opt))
        return t->error.code;
    ckpt_label(t, "optimizer");
    ckpt_tensor clip = optim_clip(t, opt);
    ckpt_output(t, "ckpt.grad_norm", clip);
    append_updates(t, opt, clip);
    return t->error.code;
}
