/* SPDX-License-Identifier: Apache-2.0 */
/* --sequence auto: how many ranks split the tokens of a sample. */
#ifndef EXAMPLES_SEQUENCE_AUTO_H
#define EXAMPLES_SEQUENCE_AUTO_H

#include "trainer.h"

/*
 * Sets --sequence where it is auto, before the context is opened: that of the state to resume, if
 * it divides the ranks, else of the divisors whose plans fit the budget the one with the least time
 * for each sample.  Rank 0 plans each in a process of its own and prints what it finds; the other
 * ranks get its number when the job forms.  argv: of the whole program.  Returns 0, or -1 after an
 * error message.
 */
int sequence_choose(const struct trainer *t, char *const *argv);

/* In such a process: says what the plan is, for the one that waits. */
void sequence_tell(const struct trainer *t);

#endif
