/* SPDX-License-Identifier: Apache-2.0 */
/* Activations in 8 bits (--activations 8bit): see int8.c and compress.c. */
#ifndef CKPT_OPS_INT8_H
#define CKPT_OPS_INT8_H

#include "core/base.h"

/* from_int8: number of values. */
struct from_int8_attr {
    int64_t n;
};

/* int8_encode records the codes of a dense x; int8_decode the n values of codes. */
ckpt_tensor int8_encode(ckpt_tape *t, ckpt_tensor x);
ckpt_tensor int8_decode(ckpt_tape *t, ckpt_tensor codes, int64_t n);

#endif
