/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a recording and compares the numbers: see trial.c. */
#ifndef CKPT_TESTS_TRIAL_H
#define CKPT_TESTS_TRIAL_H

#include "recording.h"

/* What fails: bits differ, numbers are off or not finite, a call is refused with `code`. */
enum failure { FAIL_NONE, FAIL_BITS, FAIL_NUMBER, FAIL_CODE };

struct verdict {
    enum failure failure;
    char text[600];
    int code;
    double excess; /* FAIL_NUMBER: error divided by its bound */
    bool checked;  /* else it is too close to a branch, or too large, to be compared */
};

/* Compares what trial.c lists. */
void trial(const struct recording *r, struct verdict *v);

/* Removes calls while the failure stays. */
void shrink(struct recording *r, struct verdict *v);

#endif
