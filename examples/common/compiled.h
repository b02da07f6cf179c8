/* SPDX-License-Identifier: Apache-2.0 */
/* What a program says when the library refuses to compile one of its programs. */
#ifndef EXAMPLES_COMPILED_H
#define EXAMPLES_COMPILED_H

#include "ckpt.h"

/*
 * rc is that of ckpt_compile, which set *p.  Returns 0, or -1 after a message that begins with
 * what, such as "validation: ".  While the context gathers refusals (training_setup_begin), the
 * message of a refusal is kept instead, and 0 returned: the next program is compiled, and the last
 * message names a budget for all of them.
 */
int compiled(ckpt *c, int rc, const ckpt_program *p, const char *what);

/* After the last of them: returns 0 if all fit, or -1 after the message that was kept last. */
int compiled_all(ckpt *c);

/* The message of the refusal; "" if there was none. */
const char *compiled_refusal(void);

/* Prints what this process and the arena of a program that ran took of memory. */
void compiled_memory(const ckpt_program *p);

#endif
