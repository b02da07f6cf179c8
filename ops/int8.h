/* SPDX-License-Identifier: Apache-2.0 */
/* Activations in 8 bits (--activations 8bit): see int8.c and compress.c. */
#ifndef CKPT_OPS_INT8_H
#define CKPT_OPS_INT8_H

#include "core/base.h"

/* from_int8: how many values there are. */
struct from_int8_attr {
    int64_t n;
};

/* Records the codes of x, dense, and the n values that codes stand for. */
ckpt_tensor int8_encode(ckpt_tape *t, ckpt_tensor x);
ckpt_tensor int8_decode(ckpt_tape *t, ckpt_tensor codes, int64_t n);

/*
 * On a complete tape, behind fusion: storages of the forward pass that the backward pass may read
 * in 8 bits are so.  Returns 0 or the tape's error.
 */
int ops_compress(ckpt_tape *t);

#endif
