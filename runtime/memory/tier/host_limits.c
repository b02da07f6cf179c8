/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of host memory as the kernel publishes them: available memory, and the control groups of
 * the process (both versions).  They are checked in advance, because a process that touches a page
 * too many is killed.
 */
#include <stdio.h>
#include "core/control_groups.h"
#include "memory/tier/host_limits.h"

#define KEEP_FREE (INT64_C(1) << 30) /* bytes left free; at most a 64th of the memory */
#define PATH      1024

/* Keeps the limit with the most missing bytes.  A part stays free, because the process uses more
 * memory than the tier, and a machine without free memory swaps. */
static void keep_worst(struct host_limit *worst, const char *name, int64_t left, int64_t all,
                       int64_t bytes)
{
    left = max_i64(0, left - min_i64(all / 64, KEEP_FREE));
    if (bytes - left <= worst->short_by)
        return;
    snprintf(worst->name, sizeof worst->name, "%s", name);
    worst->left = left;
    worst->short_by = bytes - left;
}

static void check_available(const char *root, int64_t bytes, struct host_limit *worst)
{
    char text[TEXT_BELOW];
    if (!text_below(root, "/proc/meminfo", text))
        return;
    int64_t left = number_after(text, "MemAvailable:", 1024, -1);
    if (left >= 0)
        keep_worst(worst, "available memory (MemAvailable)", left,
                   number_after(text, "MemTotal:", 1024, 0), bytes);
}

/* ---- control groups -------------------------------------------------------------------------- */

/* The file names of one version of control groups. */
struct group_files {
    const char *limit, *used, *active, *inactive;
};

static const struct group_files version1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                            "total_active_file ", "total_inactive_file "};
static const struct group_files version2 = {"memory.max", "memory.current", "active_file ",
                                            "inactive_file "};

/* The number in a file of a group; `otherwise` if it holds none, as with "max". */
static int64_t group_number(const char *root, const char *group, const char *file,
                            int64_t otherwise)
{
    char path[PATH], text[TEXT_BELOW];
    if (snprintf(path, sizeof path, "%s/%s", group, file) >= (int)sizeof path ||
        !text_below(root, path, text))
        return otherwise;
    return number_after(text, "", 1, otherwise);
}

struct check {
    int64_t bytes;
    struct host_limit *worst;
};

static void check_group(void *user, const char *root, const char *group, int version)
{
    const struct check *c = user;
    const struct group_files *files = version == 1 ? &version1 : &version2;
    char path[PATH], name[sizeof c->worst->name], text[TEXT_BELOW];
    int64_t limit = group_number(root, group, files->limit, INT64_MAX);
    int64_t used = group_number(root, group, files->used, 0);
    if (limit == INT64_MAX)
        return;
    /* The group's page cache counts as used, but can be reclaimed. */
    snprintf(path, sizeof path, "%.1000s/memory.stat", group);
    if (text_below(root, path, text)) {
        used -= number_after(text, files->active, 1, 0);
        used -= number_after(text, files->inactive, 1, 0);
    }
    snprintf(name, sizeof name, "control group limit %.80s/%s", group, files->limit);
    keep_worst(c->worst, name, limit - max_i64(used, 0), limit, c->bytes);
}

struct host_limit host_limits_check(const char *root, int64_t bytes)
{
    struct host_limit worst = {"", INT64_MAX, 0};
    check_available(root, bytes, &worst);
    control_groups_each(root, "memory", check_group, &(struct check){bytes, &worst});
    return worst;
}
