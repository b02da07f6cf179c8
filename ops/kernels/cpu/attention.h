/* SPDX-License-Identifier: Apache-2.0 */
/* CPU attention: sizes, and the rows of a head. */
#ifndef CKPT_CPU_ATTENTION_H
#define CKPT_CPU_ATTENTION_H

#include "attention_core.h"

/* Sizes of self attention, from q [..., L, H, D] and k [..., M, H, D]. */
struct attention_job attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k);

/* Sizes of cross attention, from q [B, L, H, D] and packed k [R, H, D]. */
struct attention_job cross_attention_job_of(const struct ckpt_desc *q, const struct ckpt_desc *k);

/* The rows of one head of one sequence, along the axis before the heads.  `sequence` is the index
 * along the leading axes. */
struct attention_rows attention_rows_at(const struct ckpt_view *x, int64_t sequence, int64_t head);

/* The same for lse [..., H, L]. */
float *attention_lse_at(const struct ckpt_view *lse, int64_t sequence, int64_t head);

#endif
