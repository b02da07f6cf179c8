/* The global norm of all gradients, and the factor that clips them to it. */
#include <stdlib.h>
#include "cpu/kernels.h"
#include "ops.h"
#include "optim/optim.h"

static int sum_squares_shape(struct ckpt_call *call)
{
    int64_t n = desc_numel(&call->in[0]);
    if (call->in[0].dtype != CKPT_F32)
        return ckpt_call_fail(call, "a gradient must be fp32");
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {1}, .stride = {1}};
    call->workspace = (n + OPTIM_CHUNK - 1) / OPTIM_CHUNK * (int64_t)sizeof(double);
    return CKPT_OK;
}

static void sum_squares_cost(const struct ckpt_call *call, struct ckpt_cost *cost)
{
    *cost = (struct ckpt_cost){.flops = 2.0 * (double)desc_numel(&call->in[0])};
}

const struct ckpt_op_def op_sum_squares = {
    .size = sizeof(struct ckpt_op_def),
    .name = "sum_squares",
    .shape = sum_squares_shape,
    .cost = sum_squares_cost,
    .cpu = cpu_sum_squares,
};

static int clip_coefficient_shape(struct ckpt_call *call)
{
    const struct clip_attr *attr = call->attr;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].dtype != CKPT_F32 || desc_numel(&call->in[i]) != 1)
            return ckpt_call_fail(call, "operand %d must be one fp32 value", i);
    if (!(attr->clip_norm >= 0.f))
        return ckpt_call_fail(call, "clip_norm is %g and must be 0 or more",
                              (double)attr->clip_norm);
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 1, .shape = {2}, .stride = {1}};
    return CKPT_OK;
}

const struct ckpt_op_def op_clip_coefficient = {
    .size = sizeof(struct ckpt_op_def),
    .name = "clip_coefficient",
    .shape = clip_coefficient_shape,
    .cpu = cpu_clip_coefficient,
};

ckpt_tensor optim_clip(ckpt_tape *t, float clip_norm)
{
    struct clip_attr attr = {.clip_norm = clip_norm};
    ckpt_tensor *sums = calloc((size_t)t->n_params + 1, sizeof *sums);
    int n = 1;
    if (!sums) {
        tape_fail(t, CKPT_ENOMEM, "no memory for the norm of %d gradients", (int)t->n_params);
        return CKPT_NONE;
    }
    sums[0].id = t->loss;
    for (int32_t i = 0; i < t->n_params; i++)
        if (t->param_gradient[i])
            sums[n++] = OPS_RECORD(t, &op_sum_squares, (const char *)NULL,
                                   ((ckpt_tensor){t->param_gradient[i]}));
    ckpt_tensor clip = ops_record1(t, &op_clip_coefficient, n, sums, &attr, sizeof attr);
    free(sums);
    return clip;
}
