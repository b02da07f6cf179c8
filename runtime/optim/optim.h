/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update: clipping by the global norm and the optimizer's ops, appended to a differentiated
 * tape.  Settings and which parameter has which are optimizer.h's.
 *
 * The optim room decides what becomes of gradients: how the norm is summed (in parts whose size
 * does not depend on threads, in the order of parameters, over ranks in the order of ranks), what
 * makes a step change nothing (a loss or a norm that is not finite), and the arithmetic of an
 * update, one rounding per operation, in one header for every processor (update_math.h).
 * host_update.h is the same update as a plain function for state that stays in host memory; it
 * gives the same bits.
 *
 * Large parameters have an update op each, so that their state can come and go alone; small ones
 * share ops, whose launches would cost more than their bytes.
 *
 * The room records ops and supplies kernels.  It may know the core, the tape and the table of ops;
 * nothing of plans or devices: that an update runs on the host or streams its state is the
 * planner's choice and no other arithmetic.
 */
#ifndef CKPT_OPTIM_OPTIM_H
#define CKPT_OPTIM_OPTIM_H

#include "optim/optimizer.h"
#include "tape/tape.h"

/* Elements of one partial sum of squares, and of one parallel piece of an update. */
#define OPTIM_CHUNK 16384

static inline int64_t optim_chunks(const struct ckpt_desc *d)
{
    return (desc_numel(d) + OPTIM_CHUNK - 1) / OPTIM_CHUNK;
}

/*
 * Records the sums of squares of all gradients, a group of parameters at a time and in the order of
 * their creation; then the clip values of all of them, the norm first, which become the output
 * "ckpt.grad_norm"; then the values of buffers; then the updates: one op per large parameter and
 * one per group of small ones, or what a kind that looks at whole matrices records.  Where the norm
 * is not finite they change nothing.  of: the group of each parameter, as optim_resolve has it.
 * t->phase must be PHASE_UPDATE.  Returns 0 or the tape's error.
 */
int optim_append(ckpt_tape *t, const struct ckpt_optimizer *o, const int32_t *of);

/* [clip_values(attr)] of ops/attr.h.  Operand 0 of the op is the loss: where it is not finite the
 * norm is made NaN, so that nothing is updated, nor by the steps behind it until run.halt is set
 * back. */
ckpt_tensor optim_clip(ckpt_tape *t, const struct clip_attr *attr);

/*
 * Buffers that the forward pass updates (buffers.c).  The first gives sums for the norm, 0 each, or
 * NaN where a next value is not finite or above 1e19, and returns how many.  The second writes the
 * next values, unless the norm is not finite.
 */
int optim_check_buffers(ckpt_tape *t, ckpt_tensor *sums);
void optim_assign_buffers(ckpt_tape *t, ckpt_tensor clip);

/* State in bf16 (rounding.c): of how many parts a parameter or bucket is; and what those of operand
 * k are, behind operand k - 1. */
int optim_parts(const ckpt_tape *t, int32_t param);
void optim_round(const ckpt_tape *t, int32_t param, int k, struct rounding *r);

/* ---- kinds that look at whole matrices ------------------------------------------------------- */

/* One parameter, while its update is recorded. */
struct optim_param {
    const struct optim_rule *rule;
    const struct clip_attr *clip_attr;
    ckpt_tensor clip;
    int32_t param;
    ckpt_tensor gradient; /* in fp32, clipped; of the shape that follows */
    ckpt_tensor weight;   /* in fp32, as the gradient; none for muon */
    int64_t rows, cols;   /* cols 0: it is no matrix, and has rows elements */
};

/* State in fp32, in the shape of like. */
ckpt_tensor optim_state(ckpt_tape *t, ckpt_tensor state, ckpt_tensor like);

/* Clip value i as [1]. */
ckpt_tensor optim_scalar(ckpt_tape *t, const struct optim_param *p, int i);

/* The sum of the squares of all elements, as [1], without a tensor of them. */
ckpt_tensor optim_sum_squares(ckpt_tape *t, ckpt_tensor x);

/* State becomes x, rounded stochastically where it is bf16, unless the norm is not finite. */
void optim_assign(ckpt_tape *t, const struct optim_param *p, ckpt_tensor state, ckpt_tensor x);

/* Element by element, of any shape: moves the momentum, and returns what optim_muon makes nearly
 * orthogonal where it stands for the gradient. */
ckpt_tensor optim_muon_momentum(ckpt_tape *t, const struct optim_param *p);

/* x of the `step` of a kind.  Adafactor moves its state. */
ckpt_tensor optim_muon(ckpt_tape *t, const struct optim_param *p);
ckpt_tensor optim_adafactor(ckpt_tape *t, const struct optim_param *p);

#endif
