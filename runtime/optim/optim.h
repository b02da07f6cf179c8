/* The update: clipping by the global norm and AdamW, appended to a differentiated tape. */
#ifndef CKPT_OPTIM_H
#define CKPT_OPTIM_H

#include "tape/tape.h"

/* Attributes of sum_squares' reader; those of adamw are struct ckpt_adamw itself. */
struct clip_attr {
    float clip_norm; /* 0: no clipping */
};

/* Elements of one partial sum of squares, and of one parallel piece of an update. */
#define OPTIM_CHUNK 16384

/*
 * Records, for every parameter with a gradient and in the order of creation, the sum of squares of
 * the gradient; then the clip coefficient of all of them, [norm, factor], which becomes the output
 * "ckpt.grad_norm"; then an AdamW update per parameter.  Where the norm is not finite the update
 * changes nothing.  t->phase must be PHASE_UPDATE.  Returns 0 or the tape's error.
 */
int optim_append(ckpt_tape *t, const struct ckpt_adamw *opt);

/* [norm of all gradients, factor that clips them].  Operand 0 of the op is the loss: where it is
 * not finite the norm is made NaN, so that nothing is updated. */
ckpt_tensor optim_clip(ckpt_tape *t, float clip_norm);

#endif
