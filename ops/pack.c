/* SPDX-License-Identifier: Apache-2.0 */
/* Packing of masked rows to the front, and unpacking, which is its gradient. */
#include "ops.h"

static int check_mask(struct ckpt_call *call, int64_t batch, int64_t length)
{
    const struct ckpt_desc *mask = &call->in[1];
    if (mask->dtype != CKPT_I32 || mask->ndim != 2 || mask->shape[0] != batch ||
        mask->shape[1] != length)
        return ckpt_call_fail(call, "the mask must be i32 [%lld, %lld]", (long long)batch,
                              (long long)length);
    return CKPT_OK;
}

static int pack_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *x = &call->in[0];
    if (x->ndim != 3)
        return ckpt_call_fail(call, "x must be [B, L, C]");
    if (check_mask(call, x->shape[0], x->shape[1]))
        return CKPT_ESHAPE;
    call->out[0] = (struct ckpt_desc){
        .dtype = x->dtype, .ndim = 2, .shape = {x->shape[0] * x->shape[1], x->shape[2]}};
    call->out[1] = (struct ckpt_desc){.dtype = CKPT_I32, .ndim = 1, .shape = {x->shape[0]}};
    desc_dense(&call->out[0]);
    desc_dense(&call->out[1]);
    return CKPT_OK;
}

static int unpack_shape(struct ckpt_call *call)
{
    const struct ckpt_desc *packed = &call->in[0], *mask = &call->in[1];
    call->out[0] = (struct ckpt_desc){.dtype = packed->dtype,
                                      .ndim = 3,
                                      .shape = {mask->shape[0], mask->shape[1], packed->shape[1]}};
    desc_dense(&call->out[0]);
    return CKPT_OK;
}

static void pack_grad(struct ckpt_grad *grad)
{
    if (grad->need[0] && grad->dout[0].id)
        grad->din[0] = ops_record1(grad->tape, &op_unpack, 2,
                                   (ckpt_tensor[]){grad->dout[0], grad->in[1]}, NULL, 0);
}

OPS_DEF(pack, .shape = pack_shape, .grad = pack_grad);

static void unpack_grad(struct ckpt_grad *grad)
{
    ckpt_tensor lens;
    if (grad->need[0])
        grad->din[0] = ckpt_pack(grad->tape, grad->dout[0], grad->in[1], &lens);
}

OPS_DEF(unpack, .shape = unpack_shape, .grad = unpack_grad);

ckpt_tensor ckpt_pack(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask, ckpt_tensor *lens)
{
    ckpt_tensor out[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &op_pack, 2, (ckpt_tensor[]){x, mask}, 2, out, NULL, 0);
    if (lens)
        *lens = out[1];
    else
        ckpt_tape_fail(t, CKPT_EINVAL, "pack: lens is NULL");
    return out[0];
}
