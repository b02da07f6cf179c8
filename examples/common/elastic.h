/* SPDX-License-Identifier: Apache-2.0 */
/* --elastic: a trainer goes on without a rank that is lost. */
#ifndef EXAMPLES_ELASTIC_H
#define EXAMPLES_ELASTIC_H

#include "trainer.h"

/* Checks what the options ask for and makes the library's of it, before the context is opened.
 * argv: of the whole program, which it executes again.  Returns 0, or -1 after an error message. */
int elastic_begin(const struct trainer *t, char *const *argv);

/* The job has formed: divides the samples of a step among the ranks that are there.  Returns 0, or
 * -1 after an error message. */
int elastic_formed(const struct trainer *t);

/* Executes the program again if a rank is lost, or the job grows, and returns otherwise. */
void elastic_end(const struct trainer *t, char *const *argv);

#endif
