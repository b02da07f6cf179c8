/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The update: clipping by the global norm and the optimizer's ops, appended to a differentiated
 * tape. optimizer.h holds the settings and the rule of each parameter.
 *
 * The optim room decides how gradients become updates.  The norm is summed in parts whose size does
 * not depend on threads, in the order of parameters, and over ranks in the order of ranks.  A step
 * with a loss or a norm that is not finite changes nothing.  An update rounds every operation
 * separately; one header holds this arithmetic for all processors (update_math.h). host_update.h is
 * the same update as a plain function for state in host memory; it gives the same bits.
 *
 * Large parameters have an update op each, so that their state can be offloaded separately; small
 * parameters share ops, because one launch each would cost more than their bytes.
 *
 * The room records ops and provides kernels.  It may use the core, the tape and the table of ops,
 * but not plans or devices: the planner decides whether an update runs on the host or streams its
 * state, and the arithmetic is the same.
 */
#ifndef CKPT_OPTIM_OPTIM_H
#define CKPT_OPTIM_OPTIM_H

#include "optim/optimizer.h"
#include "tape/tape.h"

/* Elements of one partial sum of squares, and of one parallel chunk of an update. */
#define OPTIM_CHUNK 16384

static inline int64_t optim_chunks(const struct ckpt_desc *d)
{
    return (desc_numel(d) + OPTIM_CHUNK - 1) / OPTIM_CHUNK;
}

/*
 * Records, in this order: the sums of squares of all gradients, in groups of parameters in order of
 * creation; the clip values, with the norm first (the output "ckpt.grad_norm"); the new values of
 * buffers; and the updates: one op per large parameter, one per group of small ones, and for matrix
 * optimizers the ops they need.  If the norm is not finite, the updates change nothing. of: the
 * group of each parameter, from optim_resolve. t->phase must be PHASE_UPDATE.  Returns 0 or the
 * tape's error.
 */
int optim_append(ckpt_tape *t, const struct ckpt_optimizer *o, const int32_t *of);

/* [clip_values(attr)] of ops/attr.h.  Operand 0 of the op is the loss: if it is not finite, the
 * norm becomes NaN, so that this step and the following ones change nothing until run.halt is
 * reset. */
ckpt_tensor optim_clip(ckpt_tape *t, const struct clip_attr *attr);

/*
 * Buffers that the forward pass updates (buffers.c).  The first call records sums for the norm: 0,
 * or NaN if a new value is not finite or above 1e19. It returns the number of sums.  The second
 * call records the assignment of the new values, unless the norm is not finite.
 */
int optim_check_buffers(ckpt_tape *t, ckpt_tensor *sums);
void optim_assign_buffers(ckpt_tape *t, ckpt_tensor clip);

/* For bf16 state (rounding.c): the number of parts of a parameter or bucket; and the parts of
 * operand k, appended to those of operand k - 1. */
int optim_parts(const ckpt_tape *t, int32_t param);
void optim_round(const ckpt_tape *t, int32_t param, int k, struct rounding *r);

/* ---- kinds that look at whole matrices ------------------------------------------------------- */

/* One parameter whose update is being recorded. */
struct optim_param {
    const struct optim_rule *rule;
    const struct clip_attr *clip_attr;
    ckpt_tensor clip;
    int32_t param;
    ckpt_tensor gradient; /* fp32, clipped, in the shape given by rows and cols */
    ckpt_tensor weight;   /* fp32, in the gradient's shape; none for muon */
    int64_t rows, cols;   /* cols 0: not a matrix, with `rows` elements */
};

/* The state as fp32, in the shape of like. */
ckpt_tensor optim_state(ckpt_tape *t, ckpt_tensor state, ckpt_tensor like);

/* Clip value i as [1]. */
ckpt_tensor optim_scalar(ckpt_tape *t, const struct optim_param *p, int i);

/* The sum of the squares of all elements, as [1], without storing the squares. */
ckpt_tensor optim_sum_squares(ckpt_tape *t, ckpt_tensor x);

/* Assigns x to the state, rounded stochastically if it is bf16, unless the norm is not finite. */
void optim_assign(ckpt_tape *t, const struct optim_param *p, ckpt_tensor state, ckpt_tensor x);

/* Updates the momentum, element-wise and for any shape.  Returns the matrix to orthogonalize, which
 * optim_muon takes as the gradient. */
ckpt_tensor optim_muon_momentum(ckpt_tape *t, const struct optim_param *p);

/* The operand x of the `step` op.  Adafactor also updates its state. */
ckpt_tensor optim_muon(ckpt_tape *t, const struct optim_param *p);
ckpt_tensor optim_adafactor(ckpt_tape *t, const struct optim_param *p);

/* Several ranks (shares.c).  The part of a gradient, of a parameter or bucket, that this rank adds
 * to the norm. */
ckpt_tensor optim_norm_part(ckpt_tape *t, int32_t param, ckpt_tensor gradient);
/* optim_updated_value: the part of the value of a parameter or bucket that this rank updates.
 * optim_gather_updated: gathers the parts that other ranks updated, if there are any. */
ckpt_tensor optim_updated_value(ckpt_tape *t, int32_t param);
void optim_gather_updated(ckpt_tape *t, int32_t param);
/* On flat tensors of a bucket: gathers the whole from the parts of all ranks; takes from the whole
 * the part that this rank updates.  optim_bucket_of: its number, below 0 if it is not a bucket. */
ckpt_tensor optim_whole_bucket(ckpt_tape *t, int32_t param, ckpt_tensor part);
ckpt_tensor optim_updated_part(ckpt_tape *t, int32_t param, ckpt_tensor whole);
int32_t optim_bucket_of(const ckpt_tape *t, int32_t param);
/* Replaces the next value of each buffer by its mean over the ranks. */
void optim_share_buffers(ckpt_tape *t);
/* Replaces each of n single values by its sum over the ranks: the first `once` values belong to one
 * rank each, the others are sums over its shares. */
void optim_sum_over_ranks(ckpt_tape *t, int once, int n, ckpt_tensor *x);

#endif
