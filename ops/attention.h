/* SPDX-License-Identifier: Apache-2.0 */
/* What self attention and cross attention share in their rules. */
#ifndef CKPT_OPS_ATTENTION_H
#define CKPT_OPS_ATTENTION_H

#include "attr.h"
#include "ops.h"

/* q, k, v (inputs 0 to 2) must be of one floating dtype, of the given ranks, last axis dense. */
int attention_check(struct ckpt_call *call, int q_ndim, int k_ndim);

/* out[i] gets the shape of in[j], dense in the memory order of its axes. */
void attention_like(struct ckpt_call *call, int out, int in);

/* out[i] is the lse of q: fp32, [..., H, L]. */
void attention_lse(struct ckpt_call *call, int out);

/* x, or a copy whose last axis is dense: what a gradient needs to enter a kernel. */
ckpt_tensor attention_rows_dense(ckpt_tape *t, ckpt_tensor x);

#endif
