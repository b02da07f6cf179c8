/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of host memory as the kernel publishes them: available memory, and the control groups of
 * the process (both versions).  They are checked in advance, because a process that touches a page
 * too many is killed.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "memory/tier/host_limits.h"

#define KEEP_FREE (INT64_C(1) << 30) /* bytes left free; at most a 64th of the memory */
#define TEXT      8192
#define PATH      1024

/* Reads the beginning of a file below root as text; false if it cannot be read. */
static bool read_text(const char *root, const char *path, char text[TEXT])
{
    char name[PATH];
    if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name)
        return false;
    FILE *f = fopen(name, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, TEXT - 1, f);
    fclose(f);
    text[n] = 0;
    return n > 0;
}

/* The number after a word times unit, or `otherwise` if there is none. */
static int64_t number_after(const char *text, const char *word, int64_t unit, int64_t otherwise)
{
    const char *p = strstr(text, word);
    char *end;
    while (p && p != text && !strchr(" \n", p[-1]))
        p = strstr(p + 1, word);
    if (!p)
        return otherwise;
    p += strlen(word);
    errno = 0;
    long long value = strtoll(p, &end, 10);
    if (end == p || errno || value < 0 || value > INT64_MAX / unit)
        return otherwise;
    return value * unit;
}

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
    char text[TEXT];
    if (!read_text(root, "/proc/meminfo", text))
        return;
    int64_t left = number_after(text, "MemAvailable:", 1024, -1);
    if (left >= 0)
        keep_worst(worst, "available memory (MemAvailable)", left,
                   number_after(text, "MemTotal:", 1024, 0), bytes);
}

/* ---- control groups -------------------------------------------------------------------------- */

/* The file names of one version of control groups. */
struct group_files {
    const char *mount, *limit, *used, *active, *inactive;
};

static const struct group_files version1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                            "memory.usage_in_bytes", "total_active_file ",
                                            "total_inactive_file "};
static const struct group_files version2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                            "active_file ", "inactive_file "};

/* The number in a file of a group; `otherwise` if it holds none, as with "max". */
static int64_t group_number(const char *root, const char *group, const char *file,
                            int64_t otherwise)
{
    char path[PATH], text[TEXT];
    if (snprintf(path, sizeof path, "%s/%s", group, file) >= (int)sizeof path ||
        !read_text(root, path, text))
        return otherwise;
    return number_after(text, "", 1, otherwise);
}

static void check_one_group(const char *root, const struct group_files *files, const char *group,
                            int64_t bytes, struct host_limit *worst)
{
    char path[PATH], name[sizeof worst->name], text[TEXT];
    int64_t limit = group_number(root, group, files->limit, INT64_MAX);
    int64_t used = group_number(root, group, files->used, 0);
    if (limit == INT64_MAX)
        return;
    /* The group's page cache counts as used, but can be reclaimed. */
    snprintf(path, sizeof path, "%.1000s/memory.stat", group);
    if (read_text(root, path, text)) {
        used -= number_after(text, files->active, 1, 0);
        used -= number_after(text, files->inactive, 1, 0);
    }
    snprintf(name, sizeof name, "control group limit %.80s/%s", group, files->limit);
    keep_worst(worst, name, limit - max_i64(used, 0), limit, bytes);
}

/* Checks the group and all its ancestors.  In a container the path may be the host's, which is not
 * visible inside; the loop then ends at the mount, which is the container's own group. */
static void check_groups(const char *root, const struct group_files *files, const char *path,
                         int64_t bytes, struct host_limit *worst)
{
    char group[PATH];
    size_t mount = strlen(files->mount);
    if (snprintf(group, sizeof group, "%s%s", files->mount, path) >= (int)sizeof group)
        return;
    for (;;) {
        check_one_group(root, files, group, bytes, worst);
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < mount)
            return;
        *slash = 0;
    }
}

/* Whether a list with commas between names holds "memory". */
static bool has_memory(const char *names, const char *end)
{
    static const char word[] = "memory";
    size_t n = strlen(word);
    for (const char *p = names; p < end; p++) {
        if ((size_t)(end - p) >= n && !memcmp(p, word, n) && (p[n] == ',' || p + n == end))
            return true;
        p = memchr(p, ',', (size_t)(end - p));
        if (!p)
            return false;
    }
    return false;
}

/* Lines of /proc/self/cgroup are number:controllers:path; version 2 names no controllers. */
static void check_control_groups(const char *root, int64_t bytes, struct host_limit *worst)
{
    char text[TEXT], *rest = text;
    if (!read_text(root, "/proc/self/cgroup", text))
        return;
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        if (path == names + 1)
            check_groups(root, &version2, path + 1, bytes, worst);
        else if (has_memory(names + 1, path))
            check_groups(root, &version1, path + 1, bytes, worst);
    }
}

struct host_limit host_limits_check(const char *root, int64_t bytes)
{
    struct host_limit worst = {"", INT64_MAX, 0};
    check_available(root, bytes, &worst);
    check_control_groups(root, bytes, &worst);
    return worst;
}
