/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the plan table about what is in 8 bits for the backward pass (--activations 8bit). */
#ifndef CKPT_REPORT_SAVED_H
#define CKPT_REPORT_SAVED_H

#include <stdio.h>
#include "tape/tape.h"

void saved_print(const ckpt_tape *t, FILE *f);

#endif
