/* SPDX-License-Identifier: Apache-2.0 */
/* Shape rules and helpers shared by self attention and cross attention. */
#ifndef CKPT_OPS_ATTENTION_H
#define CKPT_OPS_ATTENTION_H

#include "attr.h"
#include "ops.h"

/* Inputs 0 to 2 (q, k, v) must have one floating dtype, the given ranks and a dense last axis. */
int attention_check(struct ckpt_call *call, int q_ndim, int k_ndim);

/* out[1] is the log-sum-exp of the scores of each query: fp32, [..., H, L]. */
void attention_lse(struct ckpt_call *call);

/* Records attention, as ckpt_attention does. */
typedef ckpt_tensor attention_recorder(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                       ckpt_tensor bias, const struct ckpt_attention_spec *spec);

/* ckpt_attention of a spec with a sink, of which everything else was checked; attend records it
 * with one more key. */
ckpt_tensor attention_with_sink(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                ckpt_tensor bias, const struct ckpt_attention_spec *spec,
                                attention_recorder *attend);

/* x, or a copy with a dense last axis, as the kernels require of a gradient. */
ckpt_tensor attention_rows_dense(ckpt_tape *t, ckpt_tensor x);

#endif
