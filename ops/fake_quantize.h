/* SPDX-License-Identifier: Apache-2.0 */
/* Quantization-aware training (fake_quantize.c). */
#ifndef CKPT_OPS_FAKE_QUANTIZE_H
#define CKPT_OPS_FAKE_QUANTIZE_H

#include "tape/tape.h"

enum qat_layer { QAT_LINEAR, QAT_CONV, QAT_CONV_TRANSPOSE };

/* Replaces the operand and the weight of a layer by rounded ones if the weight is one that --qat
 * rounds.  Call it first: shape rules of the layer then see the same shapes and dtypes. */
void qat_round(ckpt_tape *t, enum qat_layer layer, ckpt_tensor *x, ckpt_tensor *w);

#endif
