/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that are threads of one process. */
#ifndef TESTS_DIST_COMM_THREADS_H
#define TESTS_DIST_COMM_THREADS_H

#include "dist/comm/linked.h"

/* Fills ranks[0 .. size-1]; each is used by one thread and closed separately.  Returns 0 or
 * CKPT_ENOMEM, the sentence in error_get(). */
int comm_open_threads(struct comm **ranks, int size, double deadline);

#endif
