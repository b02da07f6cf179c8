/* SPDX-License-Identifier: Apache-2.0 */
/* Sinusoidal embedding of one number per sample (Vaswani et al. 2017): cosines, then sines. */
#include "embedding.h"
#include "ops.h"

static int timestep_embedding_shape(struct ckpt_call *call)
{
    const struct timestep_attr *attr = call->attr;
    const struct ckpt_desc *x = &call->in[0];
    if (x->ndim != 1 || x->dtype != CKPT_F32)
        return ckpt_call_fail(call, "x must be fp32 [B]");
    if (attr->dim < 2 || attr->dim % 2)
        return ckpt_call_fail(call, "dim is %lld and must be even and at least 2",
                              (long long)attr->dim);
    if (!(attr->max_period > 0.f))
        return ckpt_call_fail(call, "max_period is %g and must be positive",
                              (double)attr->max_period);
    if (attr->dtype != CKPT_F32 && attr->dtype != CKPT_BF16)
        return ckpt_call_fail(call, "the result must be fp32 or bf16");
    call->out[0] = (struct ckpt_desc){
        .dtype = (enum ckpt_dtype)attr->dtype, .ndim = 2, .shape = {x->shape[0], attr->dim}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

OPS_COST(timestep_embedding_cost, 20.0, out[0])

OPS_DEF(timestep_embedding, .shape = timestep_embedding_shape, .cost = timestep_embedding_cost);

ckpt_tensor ckpt_timestep_embedding(ckpt_tape *t, ckpt_tensor x, int64_t dim, float max_period,
                                    enum ckpt_dtype dtype)
{
    struct timestep_attr attr = {.dim = dim, .max_period = max_period, .dtype = (int32_t)dtype};
    return OPS_RECORD(t, &op_timestep_embedding, &attr, x);
}
