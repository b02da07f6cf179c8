/* SPDX-License-Identifier: Apache-2.0 */
/* All collectives on awkward sizes; each result must equal the expected one bit by bit. */
#ifndef TESTS_DIST_EXERCISE_H
#define TESTS_DIST_EXERCISE_H

#include "dist/comm/comm.h"

/* Returns 0, or the code of the first call that failed, with its sentence in wrong; or CKPT_ENAN
 * and a sentence if a result differs. digest: of all results of this rank. */
int exercise(struct comm *c, uint64_t *digest, char *wrong, size_t size);

/* The same in groups of two ranks, neighbours and every other one, all open at once.  A rank
 * without a partner has no group, and fewer than three ranks have none. */
enum { EXERCISE_GROUPS = 2 };
int exercise_open_groups(struct comm *c, struct comm *groups[EXERCISE_GROUPS], char *wrong,
                         size_t size);
int exercise_groups(struct comm *c, uint64_t *digest, char *wrong, size_t size);

/* Calls that exercise() makes. */
int64_t exercise_calls(void);

#endif
