/* SPDX-License-Identifier: Apache-2.0 */
/* Binds threads of the host update to the processors of a NUMA node: see host_update.h. */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "optim/host_update.h"

#define SPARE 2 /* processors left for other threads */

/* Parses "0-3,8,10-11"; false if the text has another form. */
static bool parse_list(const char *text, cpu_set_t *set)
{
    CPU_ZERO(set);
    for (const char *at = text; *at && *at != '\n';) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at)
            return false;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at)
                return false;
        }
        if (first < 0 || last < first || last >= CPU_SETSIZE || (*end && !strchr(",\n", *end)))
            return false;
        for (long i = first; i <= last; i++)
            CPU_SET((size_t)i, set);
        at = *end == ',' ? end + 1 : end;
    }
    return true;
}

/* The processors of a node that this thread is allowed to use. */
static int read_node(int node, const char *nodes, cpu_set_t *set)
{
    char path[4096], text[4096] = "";
    cpu_set_t allowed;
    snprintf(path, sizeof path, "%s/node%d/cpulist", nodes ? nodes : "/sys/devices/system/node",
             node);
    FILE *f = fopen(path, "r");
    bool ok = f && fgets(text, sizeof text, f) && parse_list(text, set);
    if (f)
        fclose(f);
    if (!ok)
        return error_set(CKPT_EIO, "node %d: %s does not list its processors", node, path);
    if (sched_getaffinity(0, sizeof allowed, &allowed))
        return error_set(CKPT_EIO, "the processors of this thread are not known");
    CPU_AND(set, set, &allowed);
    return CPU_COUNT(set) ? 0
                          : error_set(CKPT_EIO, "node %d has no processor that may be used", node);
}

int host_update_bind(int node, int processes, const char *nodes)
{
    cpu_set_t set;
    int rc = node < 0 ? 0 : read_node(node, nodes, &set);
    if (!rc && node >= 0 && sched_setaffinity(0, sizeof set, &set))
        rc = error_set(CKPT_EIO, "a thread cannot be kept on node %d", node);
    if (!rc && node < 0 && sched_getaffinity(0, sizeof set, &set))
        rc = error_set(CKPT_EIO, "the processors of this thread are not known");
    if (rc)
        return rc;
    int part = (int)max_i64(1, CPU_COUNT(&set) / processes);
    int threads = part - (int)min_i64(part / 2, SPARE);
    return threads;
}
