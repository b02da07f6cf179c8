/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank and size of a process from the environment variables of its launcher.  The first launcher
 * that names a rank wins.  Incomplete variables are an error: a process that wrongly takes itself
 * for rank 0 of 1 would train alone without notice.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "dist/comm/comm.h"

enum { MAX_RANKS = 1 << 20 };

static const struct launcher {
    const char *rank, *size;
    /* Slurm sets the number of tasks in an allocation too, where srun started nothing. */
    bool size_alone;
} launchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", false},
    {"PMI_RANK", "PMI_SIZE", false},
    {"SLURM_PROCID", "SLURM_NTASKS", true},
    /* PMIx alone says no size: then the user does. */
    {"PMIX_RANK", "WORLD_SIZE", true},
    {"RANK", "WORLD_SIZE", false},
};

/* An empty variable counts as unset. */
static const char *find(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static int read_number(const char *name, const char *text, int min, int *number)
{
    char *end;
    errno = 0;
    long n = *text >= '0' && *text <= '9' ? strtol(text, &end, 10) : -1;
    if (n < min || errno || *end || n > MAX_RANKS)
        return error_set(CKPT_EINVAL,
                         "%s=%.40s in the environment: it must be a number from %d to %d", name,
                         text, min, MAX_RANKS);
    *number = (int)n;
    return 0;
}

static int read_launcher(const struct launcher *l, int *rank, int *size)
{
    const char *r = find(l->rank), *s = find(l->size);
    if (!r || !s)
        return error_set(CKPT_EINVAL,
                         "%s is set in the environment and %s is not: give both, or none for one "
                         "rank alone",
                         r ? l->rank : l->size, r ? l->size : l->rank);
    int rc = read_number(l->size, s, 1, size);
    if (!rc)
        rc = read_number(l->rank, r, 0, rank);
    if (!rc && *rank >= *size)
        rc = error_set(CKPT_EINVAL, "%s=%d of %s=%d in the environment: ranks are numbered 0 to %d",
                       l->rank, *rank, l->size, *size, *size - 1);
    return rc;
}

/* The launcher whose variables are set; NULL: none. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        const struct launcher *l = &launchers[i];
        if (find(l->rank) || (find(l->size) && !l->size_alone))
            return l;
    }
    return NULL;
}

bool comm_is_launched(void)
{
    return find_launcher() != NULL;
}

int comm_launched_as(int *rank, int *size)
{
    const struct launcher *l = find_launcher();

    *rank = 0;
    *size = 1;
    return l ? read_launcher(l, rank, size) : 0;
}

/* ---- where ----------------------------------------------------------------------------------- */

/* Ports that neither services nor outgoing connections usually have. */
enum { PORTS_FROM = 20000, PORTS = 10000 };

/* The first host of a list of Slurm's: "node[01-04,7],gpu2" is node01, "r[1-2]n[3-4]-ib" is
 * r1n3-ib. */
static void first_host(const char *list, char *dst, size_t size)
{
    size_t n = 0;

    for (const char *at = list; *at && *at != ',' && n + 1 < size; at++) {
        if (*at != '[') {
            dst[n++] = *at;
            continue;
        }
        for (at++; *at >= '0' && *at <= '9' && n + 1 < size; at++)
            dst[n++] = *at;
        at += strcspn(at, "]");
        if (!*at)
            break;
    }
    dst[n] = '\0';
}

/* torchrun listens at MASTER_PORT itself, for its own use. */
static int where_of_torch(const char *host, const char *port, char *dst, size_t size)
{
    const char *used = find("TORCHELASTIC_USE_AGENT_STORE");
    const bool v6 = strchr(host, ':') != NULL;
    int n, rc = read_number("MASTER_PORT", port, 1, &n);

    if (!rc)
        snprintf(dst, size, "tcp:%s%.200s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "",
                 n + (used && !strcmp(used, "True")));
    return rc;
}

int comm_launched_where(char *dst, size_t size)
{
    const char *host = find("MASTER_ADDR"), *port = find("MASTER_PORT"), *job, *list;
    char first[128];

    if (host && port)
        return where_of_torch(host, port, dst, size);
    list = find("SLURM_STEP_NODELIST");
    list = list ? list : find("SLURM_JOB_NODELIST");
    job = find("SLURM_JOB_ID");
    if (!list || !job)
        return error_set(CKPT_EINVAL,
                         "--ranks env: neither MASTER_ADDR and MASTER_PORT nor Slurm's "
                         "SLURM_JOB_NODELIST and SLURM_JOB_ID are in the environment: give "
                         "tcp:HOST:PORT, or mpi under mpirun");
    first_host(list, first, sizeof first);
    snprintf(dst, size, "tcp:%s:%d", first, PORTS_FROM + (int)(strtoul(job, NULL, 10) % PORTS));
    return 0;
}
