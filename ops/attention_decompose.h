/* SPDX-License-Identifier: Apache-2.0 */
/* Attention decomposed into ops that have second gradients (decompose.h). */
#ifndef CKPT_OPS_ATTENTION_DECOMPOSE_H
#define CKPT_OPS_ATTENTION_DECOMPOSE_H

#include "attr.h"

/* The result of attention; scores and softmax are fp32.  extra: ATTENTION_EXTRAS optional operands,
 * each possibly CKPT_NONE, or NULL for none.  cap: of the scores; 0: none. */
ckpt_tensor attention_decomposed(ckpt_tape *t, const struct attention_attr *a, float cap,
                                 ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                 const ckpt_tensor *extra);
ckpt_tensor cross_attention_decomposed(ckpt_tape *t, float scale, ckpt_tensor q, ckpt_tensor k,
                                       ckpt_tensor v, ckpt_tensor lens);

#endif
