/* SPDX-License-Identifier: Apache-2.0 */
/* Workspace of reductions, for the shape rules. */
#ifndef CKPT_CPU_REDUCE_H
#define CKPT_CPU_REDUCE_H

#include "ckpt_op.h"

/* Bytes of partial sums to reduce x to the shape of y (aligned at the last axis). */
int64_t cpu_reduce_workspace(const struct ckpt_desc *x, const struct ckpt_desc *y);

#endif
