/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of each rank, and the communicator for collectives between GPUs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "collective.h"
#include "dist/ranks.h"

/* Host and GPU of a rank. */
struct placement {
    uint64_t host;
    char gpu[32]; /* PCI bus address, or "" */
};

/* Identifies this host: the same for all ranks under one kernel, also in containers. */
static uint64_t ranks_host(void)
{
    char text[256] = "";
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!f || !fgets(text, sizeof text, f))
        gethostname(text, sizeof text - 1);
    if (f)
        fclose(f);
    return hash_text(text);
}

uint64_t ranks_host_name(void)
{
    const char *name = getenv("CKPT_HOST_NAME");
    return name && *name ? hash_text(name) : ranks_host();
}

/* Gathers the placement of every rank; the caller frees it.  NULL on failure, with the code in
 * *rc. */
static struct placement *gather_placements(struct ranks *job, int *rc)
{
    struct placement mine = {.host = ranks_host()};
    struct placement *all = calloc((size_t)job->sharing.ranks, sizeof *all);
    if (job->memory->device)
        snprintf(mine.gpu, sizeof mine.gpu, "%s", job->memory->device->where);
    *rc = all ? comm_gather(job->comm, &mine, all, sizeof mine, "placements") : CKPT_ENOMEM;
    if (!*rc)
        return all;
    error_set(*rc, "%s", *rc == CKPT_ECOMM ? job->comm->reason : "no memory for a communicator");
    free(all);
    return NULL;
}

int ranks_placement(struct ranks *job, int *index)
{
    int rc = 0;
    *index = 0;
    if (!job->comm)
        return 0;
    struct placement *all = gather_placements(job, &rc);
    for (int r = 0; all && r < job->rank; r++)
        *index += all[r].host == all[job->rank].host;
    free(all);
    return rc;
}

/* All ranks compute the same result. */
static int check_placements(const struct ranks *job, const struct placement *all)
{
    bool *without = calloc((size_t)job->sharing.ranks, sizeof *without);
    char who[256];
    int rc = without ? 0 : error_set(CKPT_ENOMEM, "no memory for a communicator"), n = 0;
    for (int r = 0; r < job->sharing.ranks && !rc; r++) {
        without[r] = !*all[r].gpu;
        n += without[r];
        for (int q = 0; q < r && !rc && *all[r].gpu; q++)
            if (all[q].host == all[r].host && !strcmp(all[q].gpu, all[r].gpu))
                rc = error_set(CKPT_EDEVICE,
                               "ranks %d and %d would share the GPU at %s: start no more ranks on "
                               "a host than it has GPUs (CUDA_VISIBLE_DEVICES counts)",
                               q, r, all[r].gpu);
    }
    if (!rc && n && n < job->sharing.ranks) {
        comm_name_ranks(who, sizeof who, without, job->sharing.ranks);
        rc = error_set(CKPT_EDEVICE, "no GPU for %s, but for others: give all one, or --device cpu",
                       who);
    }
    free(without);
    return rc;
}

/* Lists the kinds of links from this rank's GPU to the other GPUs of its host. */
static void note_routes(struct ranks *job, const struct placement *all)
{
    char text[DEVICE_ROUTE];
    for (int r = 0; r < job->sharing.ranks && job->memory->device->ops->route; r++) {
        size_t n = strlen(job->routes);
        if (r == job->rank || all[r].host != all[job->rank].host || !*all[r].gpu)
            continue;
        job->memory->device->ops->route(job->memory->device, all[r].gpu, text);
        if (*text && !strstr(job->routes, text))
            snprintf(job->routes + n, sizeof job->routes - n, "%s%s", n ? " or " : "", text);
    }
}

static int open_nccl(struct ranks *job, const struct placement *all)
{
    struct comm *comm = NULL;
    /* A stage waits in a receive, which would hold all these multiprocessors. */
    bool together = job->sharing.stages < 2;
    for (int r = 0; r < job->sharing.ranks; r++)
        together = together && all[r].host == all[0].host;
    job->noted = job->memory->device->ops->host_alloc(job->memory->device,
                                                      NOTED_BYTES + (int64_t)sizeof job->pace.here);
    if (!job->noted)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    job->pace.waited = (int64_t *)(void *)((char *)job->noted + NOTED_BYTES);
    int rc = comm_open_nccl(&comm, job->comm, together);
    if (rc)
        return rc;
    job->comm = comm;
    return 0;
}

int ranks_open_device(struct ranks *job)
{
    int rc = 0;
    if (!job->comm || (job->options->device && !strcmp(job->options->device, "cpu")))
        return 0;
    struct placement *all = gather_placements(job, &rc);
    if (all)
        rc = check_placements(job, all);
    if (!rc)
        note_routes(job, all);
    if (!rc && job->sharing.ranks > 1 && job->memory->device->ops->backend == CKPT_ON_CUDA &&
        *all[job->rank].gpu)
        rc = open_nccl(job, all);
    free(all);
    return rc;
}
