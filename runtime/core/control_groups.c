/* SPDX-License-Identifier: Apache-2.0 */
/* Control groups of this process: see control_groups.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "core/control_groups.h"

#define PATH 1024

bool text_below(const char *root, const char *path, char text[TEXT_BELOW])
{
    char name[PATH];
    if (snprintf(name, sizeof name, "%s%s", root, path) >= (int)sizeof name)
        return false;
    FILE *f = fopen(name, "r");
    if (!f)
        return false;
    size_t n = fread(text, 1, TEXT_BELOW - 1, f);
    fclose(f);
    text[n] = 0;
    return n > 0;
}

int64_t number_after(const char *text, const char *word, int64_t unit, int64_t otherwise)
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

/* The group at `path` below the mount, and all its ancestors.  In a container the path may be the
 * host's, which is not visible inside; the loop then ends at the mount, which is the container's
 * own group. */
static void visit(const char *root, const char *mount, const char *path, int version,
                  control_group_fn *fn, void *user)
{
    char group[PATH];
    if (snprintf(group, sizeof group, "%s%s", mount, path) >= (int)sizeof group)
        return;
    for (;;) {
        fn(user, root, group, version);
        char *slash = strrchr(group, '/');
        if (!slash || (size_t)(slash - group) < strlen(mount))
            return;
        *slash = 0;
    }
}

/* Whether a list with commas between names holds the word. */
static bool has_word(const char *names, const char *end, const char *word)
{
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
void control_groups_each(const char *root, const char *controller, control_group_fn *fn,
                         void *user)
{
    char text[TEXT_BELOW], mount[PATH], *rest = text;
    if (!text_below(root, "/proc/self/cgroup", text))
        return;
    snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
    for (char *line; (line = strsep(&rest, "\n"));) {
        char *names = strchr(line, ':');
        char *path = names ? strchr(names + 1, ':') : NULL;
        if (!path)
            continue;
        if (path == names + 1)
            visit(root, "/sys/fs/cgroup", path + 1, 2, fn, user);
        else if (has_word(names + 1, path, controller))
            visit(root, mount, path + 1, 1, fn, user);
    }
}
