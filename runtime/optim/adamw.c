/* AdamW (Loshchilov & Hutter 2019) as an op that changes a parameter and its state in place. */
#include "cpu/kernels.h"
#include "cuda/kernels.h"
#include "context.h"
#include "ops.h"
#include "optim/optim.h"

enum { VALUE, MASTER, EXP_AVG, EXP_AVG_SQ, EMA, GRADIENT, CLIP, OPERANDS, STATES = EMA + 1 };

static int adamw_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *in = call->in;
    if (call_float(call, VALUE))
        return CKPT_ESHAPE;
    if ((in[MASTER].ndim < 0) != (in[VALUE].dtype == CKPT_F32))
        return ckpt_call_fail(call, "a bf16 parameter needs a master, an fp32 one has none");
    for (int i = MASTER; i <= GRADIENT; i++) {
        bool optional = i == MASTER || i == EMA;
        if (optional && in[i].ndim < 0)
            continue;
        if (in[i].dtype != CKPT_F32 || desc_numel(&in[i]) != desc_numel(&in[VALUE]))
            return ckpt_call_fail(call, "operand %d must be fp32 of the parameter's size", i);
    }
    if (in[CLIP].dtype != CKPT_F32 || desc_numel(&in[CLIP]) != 2)
        return ckpt_call_fail(call, "operand %d must be fp32 [2]", CLIP);
    for (int i = 0; i < STATES; i++)
        call->out[i] = in[i];
    return CKPT_OK;
}

static void adamw_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 18.0 * (double)desc_numel(&call->in[VALUE])};
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

static void append_update(ckpt_tape *t, int32_t param, const struct ckpt_adamw *opt,
                          ckpt_tensor clip)
{
    ckpt_tensor in[OPERANDS] = {CKPT_NONE}, out[STATES];
    in[VALUE] = tape_slot(t, param, STORAGE_VALUE);
    if (ckpt_desc_of(t, in[VALUE]).dtype == CKPT_BF16)
        in[MASTER] = tape_slot(t, param, STORAGE_MASTER);
    in[EXP_AVG] = tape_slot(t, param, STORAGE_EXP_AVG);
    in[EXP_AVG_SQ] = tape_slot(t, param, STORAGE_EXP_AVG_SQ);
    if (opt->ema_decay > 0.f)
        in[EMA] = tape_slot(t, param, STORAGE_EMA);
    in[GRADIENT].id = t->param_gradient[param];
    in[CLIP] = clip;
    ckpt_label(t, "%s", t->context->params.data[param].name);
    ckpt_record(t, &op_adamw, OPERANDS, in, STATES, out, opt, sizeof *opt);
}

static int check_options(ckpt_tape *t, const struct ckpt_adamw *o)
{
    if (!(o->beta1 >= 0.f && o->beta1 < 1.f && o->beta2 >= 0.f && o->beta2 < 1.f))
        return tape_fail(t, CKPT_EINVAL, "adamw: beta1 is %g and beta2 %g; both must be in [0, 1)",
                         (double)o->beta1, (double)o->beta2);
    if (!(o->eps >= 0.f && o->weight_decay >= 0.f && o->clip_norm >= 0.f))
        return tape_fail(t, CKPT_EINVAL,
                         "adamw: eps is %g, weight_decay %g and clip_norm %g; none may be negative",
                         (double)o->eps, (double)o->weight_decay, (double)o->clip_norm);
    if (!(o->ema_decay >= 0.f && o->ema_decay < 1.f))
        return tape_fail(t, CKPT_EINVAL, "adamw: ema_decay is %g and must be in [0, 1)",
                         (double)o->ema_decay);
    return t->error;
}

int optim_append(ckpt_tape *t, const struct ckpt_adamw *opt)
{
    if (t->error || check_options(t, opt))
        return t->error;
    ckpt_label(t, "optimizer");
    ckpt_tensor clip = optim_clip(t, opt->clip_norm);
    ckpt_output(t, "ckpt.grad_norm", clip);
    for (int32_t i = 0; i < t->n_params && !t->error; i++)
        if (t->param_gradient[i])
            append_update(t, i, opt, clip);
    return t->error;
}
