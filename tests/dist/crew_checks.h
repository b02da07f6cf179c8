/* SPDX-License-Identifier: Apache-2.0 */
/* Expected outcomes of a crew that trains.  A failed check fails the test. */
#ifndef TESTS_DIST_CREW_CHECKS_H
#define TESTS_DIST_CREW_CHECKS_H

#include "dist/crew.h"

/* Every rank completes; the caller frees r. */
void crew_expect_end(const struct crew *crew, struct crew_result *r);

/* Every rank that still runs returns this code, with a sentence that contains all the words (up to
 * a NULL). */
void crew_expect_code(const struct crew *crew, int code, const char *const *words);

/* A fault of rank crew.faulty towards rank `to`, in a collective of so many, counted from the
 * first, which is one of step `step`: every rank says what it was.  `late` seconds are too long. */
void crew_expect_fault(struct crew crew, enum comm_fault_kind kind, int64_t call, int to, int step,
                       double late);

#endif
