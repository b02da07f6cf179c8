/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which inputs of a program its ops in place write, also through views: a slice of a transposed
 * buffer is memory of the buffer.  What is a view and what is a copy is decided as where the node
 * is recorded (node_call.h).
 */
#ifndef CKPT_IMPORT_MUTATION_H
#define CKPT_IMPORT_MUTATION_H

#include "import/program.h"

/*
 * writer: per value of the main graph the first node that writes the memory of this input in place,
 * or NULL; an array of the program's heap.  Returns 0 or a code with the sentence of the thread.
 */
int mutation_find(struct pt2_program *p, const struct pt2_node ***writer);

#endif
