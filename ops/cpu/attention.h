/* SPDX-License-Identifier: Apache-2.0 */
/* What the shape rules of attention ask of its CPU kernels. */
#ifndef CKPT_CPU_ATTENTION_H
#define CKPT_CPU_ATTENTION_H

#include "attention_core.h"

/* The sizes of self attention, from q [..., L, H, D] and k [..., M, H, D]. */
struct attention_job attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k);

/* The sizes of cross attention, from q [B, L, H, D] and packed k [R, H, D]. */
struct attention_job cross_attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k);

/* Head `head` of one sequence, whose index along the leading axes is `sequence`: the rows along
 * the axis before the heads. */
struct attention_rows attention_rows_at(const struct ckpt_view *x, int64_t sequence, int64_t head);

/* The same of lse [..., H, L]. */
float *attention_lse_at(const struct ckpt_view *lse, int64_t sequence, int64_t head);

#endif
