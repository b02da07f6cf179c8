/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: optimizers.  A part of ckpt.h, which includes it.
 */
#ifndef CKPT_OPTIM_H
#define CKPT_OPTIM_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An optimizer: what ckpt_compile() is given to train.  It belongs to its context and may be given
 * to several programs of it; ckpt_close() frees it.
 */
typedef struct ckpt_optimizer ckpt_optimizer;

/*
 * AdamW (Loshchilov & Hutter 2019) on fp32 master weights, moments fp32, after clipping by the
 * global L2 norm of all gradients:
 *   g *= min(1, clip_norm / (norm + 1e-6));  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^k) / (sqrt(v / (1-b2^k)) + eps) + weight_decay w)
 *   ema = ema_decay ema + (1 - ema_decay) w
 * Gradients are fp32.  With grad_dtype CKPT_BF16 those of bf16 matrices that one ckpt_linear uses,
 * in one micro-step, are rounded once; and ranks exchange those of all bf16 parameters in bf16.
 */
struct ckpt_adamw {
    size_t size;
    float lr, beta1, beta2, eps, weight_decay;
    float clip_norm;            /* 0: no clipping */
    float ema_decay;            /* 0: no EMA is kept */
    enum ckpt_dtype grad_dtype; /* CKPT_F32 or CKPT_BF16 */
};

#define CKPT_ADAMW_INIT                                                                            \
    {                                                                                              \
        sizeof(struct ckpt_adamw), 1e-4f, 0.9f, 0.999f, 1e-8f, 0.f, 0.f, 0.f, CKPT_F32             \
    }

/*
 * Makes an AdamW of these settings, which are copied.  Like ckpt_param() it does not fail visibly:
 * NULL or settings without a size stick to the context, and ckpt_compile() returns CKPT_EINVAL.
 */
CKPT_API ckpt_optimizer *ckpt_adamw(ckpt *c, const struct ckpt_adamw *settings);

#ifdef __cplusplus
}
#endif
#endif
