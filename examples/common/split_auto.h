/* SPDX-License-Identifier: Apache-2.0 */
/* --sequence auto, --tensor auto, --stages auto: how many ranks split the tokens of a sample, wide
 * layers, or the list of layers. */
#ifndef EXAMPLES_SPLIT_AUTO_H
#define EXAMPLES_SPLIT_AUTO_H

#include "trainer.h"

/*
 * Sets --sequence, --tensor and --stages where they are auto, before the context is opened: those
 * of the state to resume, if they divide the ranks, else of the divisors whose plans fit the budget
 * the one with the least time for each sample.  Rank 0 plans each in a process of its own and
 * prints what it finds; the other ranks get its numbers when the job forms (split_take).  argv: of
 * the whole program.  Returns 0, or -1 after an error message.
 */
int split_choose(const struct trainer *t, char *const *argv);

/* After the ranks have met: sets the options that are auto to those of rank 0.  Returns 0, or -1
 * after an error message. */
int split_take(const struct trainer *t);

/* In such a process: says what the plan is, for the one that waits. */
void split_tell(const struct trainer *t);

#endif
