/* SPDX-License-Identifier: Apache-2.0 */
/* Cores that this process may use: see cores.h. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "core/control_groups.h"
#include "core/cores.h"

/* The number at the beginning of a file of a group, or -1. */
static int64_t number_in(const char *root, const char *group, const char *file)
{
    char path[1100], text[TEXT_BELOW];
    snprintf(path, sizeof path, "%s/%s", group, file);
    return text_below(root, path, text) ? number_after(text, "", 1, -1) : -1;
}

/* Microseconds of a period and of the time in it: "200000 100000" in version 2, where "max" is no
 * limit; in version 1 two files, where -1 is none. */
static void read_quota(const char *root, const char *group, int version, int64_t *quota,
                       int64_t *period)
{
    char path[1100], text[TEXT_BELOW];
    *quota = *period = -1;
    if (version == 1) {
        *quota = number_in(root, group, "cpu.cfs_quota_us");
        *period = number_in(root, group, "cpu.cfs_period_us");
        return;
    }
    snprintf(path, sizeof path, "%s/cpu.max", group);
    if (!text_below(root, path, text))
        return;
    const char *second = strchr(text, ' ');
    *quota = number_after(text, "", 1, -1);
    *period = second ? number_after(second + 1, "", 1, -1) : -1;
}

static void keep_smallest(void *user, const char *root, const char *group, int version)
{
    int *cores = user;
    int64_t quota, period;
    read_quota(root, group, version, &quota, &period);
    if (quota <= 0 || period <= 0)
        return;
    const int64_t n = min_i64(1 << 20, (quota + period - 1) / period);
    if (!*cores || n < *cores)
        *cores = (int)n;
}

int cores_quota(const char *root)
{
    int cores = 0;
    control_groups_each(root, "cpu", keep_smallest, &cores);
    return cores;
}

static int quota;

static void read_once(void)
{
    quota = cores_quota("");
}

int cores_allowed(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    cpu_set_t set;
    pthread_once(&once, read_once);
    const int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return quota && quota < n ? quota : n;
}
