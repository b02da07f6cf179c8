/* SPDX-License-Identifier: Apache-2.0 */
/* Attention in ops that have gradients of gradients (again.h). */
#ifndef CKPT_OPS_ATTENTION_AGAIN_H
#define CKPT_OPS_ATTENTION_AGAIN_H

#include "attr.h"

/* Its result, of fp32 operands; extra: the ATTENTION_EXTRAS, any absent, or NULL. */
ckpt_tensor attention_again(ckpt_tape *t, const struct attention_attr *a, ckpt_tensor q,
                            ckpt_tensor k, ckpt_tensor v, const ckpt_tensor *extra);
ckpt_tensor cross_attention_again(ckpt_tape *t, float scale, ckpt_tensor q, ckpt_tensor k,
                                  ckpt_tensor v, ckpt_tensor lens);

#endif
