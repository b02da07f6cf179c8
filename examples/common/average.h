/* SPDX-License-Identifier: Apache-2.0 */
/* Swaps the weights temporarily with their moving average. */
#ifndef EXAMPLES_AVERAGE_H
#define EXAMPLES_AVERAGE_H

#include "ckpt.h"

/*
 * Exchanges the value of every trained parameter with its moving average, bit for bit: a second
 * call undoes the first.  Needs host memory for two copies of the largest parameter.  All ranks
 * must call it, with no step under way.  Returns 0, or -1 after an error message; all parameters
 * are then unchanged.
 */
int average_swap(ckpt *c);

#endif
