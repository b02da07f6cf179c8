/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is done at the end of products: ops behind a product go into it, where the device has a
 * kernel that does both (join.c).  A file for each pattern: linear_gelu.c, linear_gated.c, and of
 * 8-bit products fp8_gelu.c.
 */
#ifndef CKPT_OPS_JOIN_H
#define CKPT_OPS_JOIN_H

#include "ops.h"
#include "tape/tape.h"

/* How often a tensor is read, in all and in the backward pass, and by which op there first. */
struct reads {
    int32_t all, backward, first;
};

struct joining {
    ckpt_tape *t;
    struct reads *reads; /* per tensor */
    int32_t *backward;   /* per storage: how often the backward pass reads any tensor on it */
    int32_t *activation; /* per tensor: the GELU or SiLU of it in the forward pass, or 0 */
    int32_t *mul;        /* per tensor: the last product of it with another one there, or 0 */
};

/* ---- what may be joined ---------------------------------------------------------------------- */

/* The op that makes x, if it is such a one and does not add to it; or NULL. */
const struct op *join_maker(const ckpt_tape *t, int32_t x, const struct ckpt_op_def *def);

/* Whether x has rows of bf16 side by side that begin its storage. */
bool join_is_plain(const ckpt_tape *t, int32_t x);

/* Whether x is there before op i. */
bool join_is_before(const ckpt_tape *t, int32_t x, int32_t i);

/* The layer that makes x, if what is behind it can be done in it; or -1.  It may have a bias. */
int32_t join_layer(const ckpt_tape *t, int32_t x);

/* The gradient of a layer's operand that dx is, if what is behind it can be done in it and nobody
 * but so many readers needs it; or -1. */
int32_t join_layer_dx(const struct joining *j, int32_t dx, int32_t readers);

/* Whether all that the backward pass reads of x, if anything, it can read of what op i makes. */
bool join_can_leave(const struct joining *j, int32_t x, int32_t i);

/* ---- joining --------------------------------------------------------------------------------- */

/* Makes op i one of these operands and the attributes.  Returns 0 or the tape's error. */
int join_become(struct joining *j, int32_t i, const struct ckpt_op_def *def, const void *attr,
                size_t attr_size, int n_in, const int32_t *in, int n_out, const int32_t *out);

/* Op i, which is done in op `by` now, becomes a gap. */
void join_remove(struct joining *j, int32_t i, int32_t by);

/* A tensor like x, which all who read x in the backward pass read from now on; 0 on failure. */
int32_t join_read_again(struct joining *j, int32_t x);

/* ---- patterns -------------------------------------------------------------------------------- */

/* Op i is a gradient of GELU (SiLU) in the backward pass. */
void join_gelu_dx(struct joining *j, int32_t i);
void join_gelu_fp8_dx(struct joining *j, int32_t i);
void join_gate_dx(struct joining *j, int32_t i);

/* Op i is a GELU (SiLU) in the forward pass.  All gradients come first: what the backward pass
 * still reads stays. */
void join_gelu(struct joining *j, int32_t i);
void join_gate(struct joining *j, int32_t i);

#endif
