/* SPDX-License-Identifier: Apache-2.0 */
/* --balance: what the parts of a step that its ranks compute have in common. */
#ifndef EXAMPLES_BALANCE_H
#define EXAMPLES_BALANCE_H

#include <stdint.h>

enum balance { BALANCE_NONE, BALANCE_TOKENS, BALANCE_TIME };

/* Reads the option; NULL: none.  Returns 0, or -1 after an error message. */
int balance_read(const char *text, enum balance *kind);

/*
 * Deals n samples to ranks, n / ranks to each: the heaviest first, to the rank with the least
 * weight so far that has room; of equal samples, and of equal ranks, the first.  dealt[r * n /
 * ranks] and on: the samples of rank r, in that order.  Returns 0, or -1 after an error message.
 */
int balance_deal(const double *weight, int64_t n, int ranks, int64_t *dealt);

#endif
