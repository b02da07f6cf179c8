/* SPDX-License-Identifier: Apache-2.0 */
/* Layers that several ranks split (ckpt_param_split): which part of each tensor a rank has. */
#ifndef CKPT_OPS_TENSOR_PARTS_H
#define CKPT_OPS_TENSOR_PARTS_H

#include "tape/tape.h"

/* x is what the model reads of a parameter: ops that read it are followed if it is a part. */
void tensor_mark(ckpt_tape *t, int32_t param, ckpt_tensor x);

/* As sequence_follow: sets which part a rank has of the results of the op that was recorded last,
 * or fails the tape if the op would compute something else than on one rank. */
void tensor_follow(ckpt_tape *t, int32_t op);

/* Fails the tape if a rank has only a part of the loss. */
int tensor_check(ckpt_tape *t, ckpt_tensor loss);

/* Whether w has the columns of a weight for this rank's part of what it multiplies, so that the
 * results of all ranks are terms of a sum; and the layer with the sum, + b + a where they are. */
bool tensor_gives_terms(ckpt_tape *t, ckpt_tensor w);
ckpt_tensor tensor_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor a);

/* The heads, of so many, that this rank has where w makes them. */
int64_t tensor_own(ckpt_tape *t, ckpt_tensor w, int64_t heads);

/* x [..., heads, width of a head], which a width of whole heads became. */
ckpt_tensor tensor_heads(ckpt_tape *t, ckpt_tensor x);

#endif
