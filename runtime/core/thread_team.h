/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of the library, and teams of them for one-time work, such as filling memory before the
 * first step.  The threads of a team end with the call: a permanent pool of OpenMP threads would
 * compete with those of the kernels, and a child of fork could not use it.
 */
#ifndef CKPT_THREAD_TEAM_H
#define CKPT_THREAD_TEAM_H

#include <pthread.h>
#include "core/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* pthread_create with a stack that the kernels need: the default is that of the shell (ulimit -s),
 * or 128 KiB with musl. */
int thread_start(pthread_t *thread, void *(*run)(void *), void *arg);

enum { THREAD_TEAM_MAX = 16 };

/* Number of threads for n bytes or elements: `threads`, or one per core if that is 0, at most
 * THREAD_TEAM_MAX, and at least `min_share` bytes or elements each; at least 1. */
int thread_team_size(int threads, int64_t n, int64_t min_share);

/* Cuts 0 .. n into one share per thread, which begin at multiples of unit, and calls run for each.
 * The caller runs a single share, and shares for which no thread could be started.  Returns when
 * all are done. */
void thread_team_run(int threads, int64_t n, int64_t unit,
                     void (*run)(void *user, int64_t from, int64_t end), void *user);

#ifdef __cplusplus
}
#endif
#endif
