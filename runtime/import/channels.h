/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pictures have channels at axis 1 in PyTorch and last here.  Every op that needs them last
 * permutes its operand and its result: neighbours cancel (views.h), so that values lie with
 * channels last from the first picture to the last one.
 */
#ifndef CKPT_IMPORT_CHANNELS_H
#define CKPT_IMPORT_CHANNELS_H

#include "import/node_call.h"

/* [N, C, ...] to [N, ..., C], and back. */
struct tensor channels_last(struct recording *r, struct tensor a);
struct tensor channels_first(struct recording *r, struct tensor a);

#endif
