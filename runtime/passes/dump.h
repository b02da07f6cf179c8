/* SPDX-License-Identifier: Apache-2.0 */
/* A look at the tape between two passes: its verifier (verify.c) and its text (dump.c). */
#ifndef CKPT_PASSES_DUMP_H
#define CKPT_PASSES_DUMP_H

#include <stdio.h>
#include "tape/tape.h"

/* Checks the tape after a pass (--verify).  Returns 0 or the tape's error, which names the pass. */
int passes_verify(ckpt_tape *t, const char *pass);

/* Writes the tape, one op a line (--dump-tape). */
void passes_dump(const ckpt_tape *t, const char *pass, FILE *f);

#endif
