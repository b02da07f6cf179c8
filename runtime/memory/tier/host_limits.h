/* SPDX-License-Identifier: Apache-2.0 */
/* Limits on the host memory of a process, checked before the memory is used. */
#ifndef CKPT_TIER_HOST_LIMITS_H
#define CKPT_TIER_HOST_LIMITS_H

#include "core/base.h"

/* A limit that is too low: its name, the bytes it leaves and the bytes that are missing. */
struct host_limit {
    char name[160];
    int64_t left, short_by;
};

/* The limit that lacks the most of these bytes, or short_by 0.  root: prefix of /proc and /sys; ""
 * is this machine.  A limit that cannot be read does not apply. */
struct host_limit host_limits_check(const char *root, int64_t bytes);

#endif
