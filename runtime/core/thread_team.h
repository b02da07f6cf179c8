/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads for work that comes once, such as filling memory before the first step.  They end with
 * the call: a pool of OpenMP threads that stayed would compete with those of the kernels, and a
 * child of fork could not use it.
 */
#ifndef CKPT_THREAD_TEAM_H
#define CKPT_THREAD_TEAM_H

#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { THREAD_TEAM_MOST = 16 };

/* Threads for n bytes or elements: so many, or one per core where that is 0, but no more than
 * THREAD_TEAM_MOST, and none for fewer than `least` of them; at least 1. */
int thread_team_size(int threads, int64_t n, int64_t least);

/* Cuts 0 .. n into one share per thread, which begin at multiples of unit, and calls run for each.
 * A single share is the caller's, as is what no thread could be had for.  Returns when all is done.
 */
void thread_team_run(int threads, int64_t n, int64_t unit,
                     void (*run)(void *user, int64_t from, int64_t end), void *user);

#ifdef __cplusplus
}
#endif
#endif
