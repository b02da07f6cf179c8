/* SPDX-License-Identifier: Apache-2.0 */
/* The table of bench_tiers: one file for each topic. */
#ifndef TESTS_BENCH_TIERS_H
#define TESTS_BENCH_TIERS_H

#include "core/base.h"

#define BENCH_PIECE (INT64_C(8) << 20) /* that the executor reads and writes at a time */

struct bench_options {
    const char *dir, *device;
    int64_t bytes, rounds;
};

/* Prints one line, bytes a second with and without the tier, and counts a miss. least 0: no target.
 * */
void bench_row(const char *what, double ours, const char *peer, double theirs, double least);
/* The same for a ratio that does not follow from these two rates. */
void bench_row_ratio(const char *what, double ours, const char *peer, double theirs, double ratio,
                     double least);
/* Prints an error and exits. */
_Noreturn void bench_stop(const char *what);
/* Bytes that a drive cannot compress. */
void bench_draw(char *dst, int64_t bytes);

void bench_device(const struct bench_options *o);
void bench_disk(const struct bench_options *o);

#endif
