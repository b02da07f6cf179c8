/* SPDX-License-Identifier: Apache-2.0 */
/* Rotary embedding: attributes and the table of angles. */
#ifndef CKPT_OPS_ROPE_H
#define CKPT_OPS_ROPE_H

#include "ckpt_op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rope_attr {
    int32_t axis;
    int32_t inverse; /* 1: rotate by the negative angles */
    int32_t halves;  /* 1: pair k is elements k and k + D/2; 0: 2k and 2k + 1 */
};

/* Of an RMS norm with the embedding. */
struct rms_norm_rope_attr {
    float eps;
    int32_t axis;
};

/* Checks axis, the last axis of in[0] and the table in[table]. */
int rope_check(struct ckpt_call *call, int table, int axis);

/* The table [n, D/2, 2] as rows of D that vary along one axis of x only. */
struct ckpt_view rope_table_rows(const struct ckpt_view *table, const struct ckpt_desc *x,
                                 int axis);

#ifdef __cplusplus
}
#endif
#endif
