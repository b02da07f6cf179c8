/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of tokens that the ranks of a group split (sequence.h). */
#ifndef CKPT_OPS_ATTENTION_SEQUENCE_H
#define CKPT_OPS_ATTENTION_SEQUENCE_H

#include "attention.h"

/* ckpt_attention where q, k and v have tokens on the axis before their heads; the bias is not in
 * the spec. */
ckpt_tensor attention_of_sequence(ckpt_tape *t, const ckpt_tensor qkv[3], ckpt_tensor bias,
                                  const struct ckpt_attention_spec *spec,
                                  attention_recorder *attend);

#endif
