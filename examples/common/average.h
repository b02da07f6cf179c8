/* SPDX-License-Identifier: Apache-2.0 */
/* The moving average of the weights in their place, for a while. */
#ifndef EXAMPLES_AVERAGE_H
#define EXAMPLES_AVERAGE_H

#include "ckpt.h"

/*
 * Exchanges the value of every trained parameter with its moving average, bit for bit: a second
 * call undoes the first.  Takes the memory of two copies of the largest parameter.  A call of all
 * ranks, with no step under way.  Returns 0, or -1 after a sentence: all parameters are as they
 * were then.
 */
int average_swap(ckpt *c);

#endif
