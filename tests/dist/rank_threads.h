/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process, for tests that train a model of their own; uses what is
 * inside. */
#ifndef CKPT_TESTS_RANK_THREADS_H
#define CKPT_TESTS_RANK_THREADS_H

#include "context/context.h"

struct rank_thread {
    struct comm *comm; /* NULL: alone */
    int rank, rc;      /* rc of the thread's work, which it sets */
};

/* A context of the CPU, one thread, that verifies and compares the ranks after every step.
 * per_host: ranks of a host, or 0.  Sets rc and returns NULL where there is none. */
ckpt *rank_open(struct rank_thread *r, struct ckpt_options o, int zero, int per_host);

/* Runs `work` for n members at once, each of which begins with its struct rank_thread; their ranks
 * count from `first`.  The test fails where the rc of one is not 0. */
void run_ranks(void *members, size_t size, int n, int first, void *(*work)(void *));

#endif
