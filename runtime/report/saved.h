/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the plan table about activations in 8 bits (--activations 8bit). */
#ifndef CKPT_REPORT_SAVED_H
#define CKPT_REPORT_SAVED_H

#include <stdio.h>
#include "tape/tape.h"

void saved_print(const ckpt_tape *t, FILE *f);

#endif
