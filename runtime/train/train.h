/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The train room has the public calls by which a program says how its parameters are trained:
 * optimizers and their groups, low-rank adapters, weights that are kept in codes, and the check of
 * gradients.  They set what the context keeps about parameters, before the first program is
 * compiled; the rules of an update are in the optim room.
 *
 * It uses the context, and the public calls for the rest.
 */
#ifndef CKPT_TRAIN_H
#define CKPT_TRAIN_H

#include "ckpt.h"

/* Adds the product of a weight's adapter, if it has one, to its values.  All ranks call it.
 * Returns 0 or a code, the sentence in the context. */
int lora_add(ckpt *c, ckpt_tensor weight, float *values);

#endif
