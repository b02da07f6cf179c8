/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the host memory of a process, checked before the memory is used. */
#ifndef CKPT_TIER_HOST_LIMITS_H
#define CKPT_TIER_HOST_LIMITS_H

#include "core/base.h"

struct host_need {
    int64_t bytes;  /* of new memory */
    int64_t locked; /* how many of these count against RLIMIT_MEMLOCK */
    int node;       /* all of it on this NUMA node, or -1 */
};

/* A limit that is too low: its name, the bytes it leaves and the bytes that are missing. */
struct host_limit {
    char name[160];
    int64_t left, short_by;
};

/* The limit with the most missing bytes, or short_by 0.  root: prefix of /proc and /sys; "" is this
 * machine.  A limit that cannot be read does not apply. */
struct host_limit host_limits_check(const char *root, const struct host_need *need);

/* Bytes that may still be locked: the soft limit of locked memory minus what the process has
 * locked. INT64_MAX if there is no limit or the process may exceed it. */
int64_t host_limits_lockable(const char *root);

#endif
