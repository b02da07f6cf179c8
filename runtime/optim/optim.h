/* The update: clipping by the global norm and AdamW, appended to a differentiated tape. */
#ifndef CKPT_OPTIM_H
#define CKPT_OPTIM_H

#include "tape/tape.h"

/* Elements of one partial sum of squares, and of one parallel piece of an update. */
#define OPTIM_CHUNK 16384

static inline int64_t optim_chunks(const struct ckpt_desc *d)
{
    return (desc_numel(d) + OPTIM_CHUNK - 1) / OPTIM_CHUNK;
}

/*
 * Records the sums of squares of all gradients, a group of parameters at a time and in the order of
 * their creation; then the clip coefficient of all of them, [norm, factor], which becomes the
 * output "ckpt.grad_norm"; then an AdamW update per parameter.  Where the norm is not finite the
 * update changes nothing.  t->phase must be PHASE_UPDATE.  Returns 0 or the tape's error.
 */
int optim_append(ckpt_tape *t, const struct ckpt_adamw *opt);

/* [norm of all gradients, factor that clips them].  Operand 0 of the op is the loss: where it is
 * not finite the norm is made NaN, so that nothing is updated. */
ckpt_tensor optim_clip(ckpt_tape *t, float clip_norm);

#endif
