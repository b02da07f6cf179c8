/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process, for tests that train their own model; uses internal
 * headers. */
#ifndef CKPT_TESTS_RANK_THREADS_H
#define CKPT_TESTS_RANK_THREADS_H

#include "context/context.h"

struct rank_thread {
    struct comm *comm; /* NULL: alone */
    int rank, rc;      /* rc of the thread's work, which it sets */
};

/* A CPU context with one thread that verifies plans and compares the ranks after every step.
 * It does not search for the smallest budget (ckpt_plan_in_full): callers that read it ask for it.
 * per_host: ranks of a host, or 0.  Sets rc and returns NULL after an error. */
ckpt *rank_open(struct rank_thread *r, struct ckpt_options o, int zero, int per_host);

/* Runs `work` in n threads at once, each with its struct rank_thread; their ranks count from
 * `first`.  The test fails if the rc of one is not 0. */
void run_ranks(void *members, size_t size, int n, int first, void *(*work)(void *));

#endif
