/* SPDX-License-Identifier: Apache-2.0 */
/* What may keep a process from more host memory, asked before the memory is taken. */
#ifndef CKPT_TIER_HOST_LIMITS_H
#define CKPT_TIER_HOST_LIMITS_H

#include "core/base.h"

struct host_need {
    int64_t bytes;  /* of new memory */
    int64_t locked; /* of it that count against RLIMIT_MEMLOCK */
    int node;       /* all of it on this NUMA node, or -1 */
};

/* A limit that is too low: its name, what it leaves and what it lacks. */
struct host_limit {
    char name[160];
    int64_t left, short_by;
};

/* The limit that lacks most, or short_by 0.  root: where proc and sys stand; "" is this machine.
 * A limit that cannot be read is none. */
struct host_limit host_limits_check(const char *root, const struct host_need *need);

/* Bytes that may still be locked: the soft limit of memory locks less what the process has locked.
 * INT64_MAX where there is no limit or the process may pass it. */
int64_t host_limits_lockable(const char *root);

#endif
