/* SPDX-License-Identifier: Apache-2.0 */
/* Nearest-neighbour upsampling by integer factors, channels last. */
#include "ops.h"
#include "upsample.h"

#define MAX_FACTOR ((int64_t)1 << 12)

/* out[0] gets the shape of in[0] with its spatial axes multiplied (up) or divided by the
 * factors. */
static void scale_out(struct ckpt_call *call, bool up)
{
    const struct upsample_attr *attr = call->attr;
    struct ckpt_desc *d = &call->out[0];
    call_like(call, 0, 0);
    for (int i = 1; i < d->ndim - 1; i++) {
        int64_t f = attr->factor[i - 1 + 5 - d->ndim];
        d->shape[i] = up ? d->shape[i] * f : d->shape[i] / f;
    }
    desc_dense(d);
}

static int upsample_rule(struct ckpt_call *call)
{
    const struct upsample_attr *attr = call->attr;
    if (call_float(call, 0))
        return CKPT_ESHAPE;
    if (call->in[0].ndim < 3 || call->in[0].ndim > 5)
        return ckpt_call_fail(call, "x must be [N, ..., C] with one to three axes between");
    for (int i = 0; i < 3; i++)
        if (attr->factor[i] < 1 || attr->factor[i] > MAX_FACTOR)
            return ckpt_call_fail(call, "a factor is %lld; factors are 1 to %lld",
                                  (long long)attr->factor[i], (long long)MAX_FACTOR);
    scale_out(call, true);
    return CKPT_OK;
}

static void upsample_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_upsample_nearest_dx, (const struct upsample_attr *)g->attr,
                           g->dout[0]);
}

OPS_DEF(upsample_nearest, .shape = upsample_rule, .grad = upsample_grad);

static int upsample_dx_rule(struct ckpt_call *call)
{
    scale_out(call, false);
    return CKPT_OK;
}

static void upsample_dx_grad(struct ckpt_grad *g)
{
    g->din[0] = OPS_RECORD(g->tape, &op_upsample_nearest, (const struct upsample_attr *)g->attr,
                           g->dout[0]);
}

OPS_DEF(upsample_nearest_dx, .shape = upsample_dx_rule, .grad = upsample_dx_grad);

ckpt_tensor ckpt_upsample_nearest(ckpt_tape *t, ckpt_tensor x, const int64_t *factors)
{
    struct upsample_attr attr = {.factor = {1, 1, 1}};
    int spatial = ckpt_desc_of(t, x).ndim - 2;
    if (!factors)
        ckpt_tape_fail(t, CKPT_EINVAL, "upsample_nearest: no factors");
    for (int i = 0; factors && i < spatial && spatial <= 3; i++) /* else the shape rule fails */
        attr.factor[3 - spatial + i] = factors[i];
    return OPS_RECORD(t, &op_upsample_nearest, &attr, x);
}
