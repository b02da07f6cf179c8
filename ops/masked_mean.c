/* SPDX-License-Identifier: Apache-2.0 */
/* The mean of the elements that a mask selects, or that weights weigh. */
#include "call.h"
#include "decompose.h"
#include "ops.h"
#include "recorders.h"

ckpt_tensor ops_over_count(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor count)
{
    /* if nothing counts the sum is 0, so any divisor other than 0 works */
    return ckpt_div(t, sum,
                    ckpt_where(t, ckpt_eq(t, count, ckpt_affine(t, count, 0, 0)),
                               ckpt_affine(t, count, 0, 1), count));
}

/* Whether d broadcasts to the shape of x. */
static bool spreads_to(const struct ckpt_desc *d, const struct ckpt_desc *x)
{
    const int missing = x->ndim - d->ndim;
    for (int i = 0; i < d->ndim && missing >= 0; i++)
        if (d->shape[i] != 1 && d->shape[i] != x->shape[i + missing])
            return false;
    return missing >= 0;
}

static ckpt_tensor sum_all(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, ckpt_sum(t, x, CKPT_ALL_AXES), 0, NULL);
}

/* The sum of the weights of all elements; an element of the mask counts `times` times. */
static ckpt_tensor count_mask(ckpt_tape *t, ckpt_tensor mask, double times)
{
    ckpt_tensor in[] = {mask};
    ckpt_tape *on = tape_count_on(t, "masked_mean", 1, in);
    ckpt_tensor one = in[0];
    if (ckpt_desc_of(on, one).dtype == CKPT_I32)
        one = ckpt_ne(on, one, ops_scalar(on, 0));
    ckpt_tensor count = sum_all(on, ckpt_cast(on, one, CKPT_F32));
    return tape_mean_count(t, on, ckpt_affine(on, count, (float)times, 0));
}

ckpt_tensor ckpt_masked_mean(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask)
{
    OPS_CALL(t);
    const struct ckpt_desc d = ckpt_desc_of(t, x), m = ckpt_desc_of(t, mask);
    if (!spreads_to(&m, &d) || d.dtype == CKPT_I32) {
        ops_refuse(t, 2, (ckpt_tensor[]){x, mask},
                   "x must be a float tensor and the mask broadcast to its shape");
        return CKPT_NONE;
    }
    mask = ckpt_stop_gradient(t, mask);
    x = ckpt_cast(t, x, CKPT_F32);
    x = m.dtype == CKPT_I32 ? ckpt_where(t, mask, x, ops_scalar(t, 0))
                            : ckpt_mul(t, x, ckpt_cast(t, mask, CKPT_F32));
    const double times = (double)desc_numel(&d) / (double)desc_numel(&m);
    ckpt_tensor sum = sum_all(t, x); /* before the count, whatever the compiler */
    return ops_over_count(t, sum, count_mask(t, mask, times));
}
