/* SPDX-License-Identifier: Apache-2.0 */
/* The GPU of each rank, and the communicator for collectives between GPUs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "collective.h"
#include "dist/ranks.h"
#include "dist/through_host.h"

/* Host and GPU of a rank. */
struct placement {
    uint64_t host;
    char gpu[32];   /* PCI bus address, or "" */
    int64_t on_cpu; /* it has --device cpu */
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

static bool is_on_cpu(const struct ranks *job)
{
    return job->options->device && !strcmp(job->options->device, "cpu");
}

/* Ranks of a host use its GPUs in turn. */
static int check_devices(struct ranks *job, const struct ranks_first *all)
{
    const struct ranks_first *own = &all[job->rank];
    for (int r = 0; r < job->sharing.ranks; r++) {
        job->on_gpus |= !all[r].on_cpu;
        job->gpu += r < job->rank && all[r].host == own->host && !all[r].on_cpu;
    }
    if (all->on_cpu == own->on_cpu || job->options->stages > 1)
        return 0;
    return error_set(CKPT_EINVAL,
                     "--device %s: rank 0 has --device %s, and all ranks compute on GPUs or all on "
                     "CPUs, unless they are stages (--stages)",
                     job->options->device ? job->options->device : "auto",
                     all->on_cpu ? "cpu" : "auto or cuda");
}

int ranks_follow(struct ranks *job, struct ranks_first *first)
{
    if (!job->comm)
        return 0;
    struct comm *hosts = ranks_hosts(job);
    struct ranks_first *all = calloc((size_t)job->sharing.ranks, sizeof *all);
    first->host = ranks_host();
    first->on_cpu = is_on_cpu(job);
    int rc = all ? comm_gather(hosts, first, all, sizeof *first, "first options") : CKPT_ENOMEM;
    if (rc)
        error_set(rc, "%s", rc == CKPT_ECOMM ? hosts->reason : "no memory for ranks");
    else
        rc = check_devices(job, all);
    if (!rc)
        *first = *all;
    free(all);
    return rc;
}

/* Gathers the placement of every rank; the caller frees it.  NULL on failure, with the code in
 * *rc. */
static struct placement *gather_placements(struct ranks *job, int *rc)
{
    struct placement mine = {.host = ranks_host(), .on_cpu = is_on_cpu(job)};
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

/* All ranks compute the same result.  Stages may have unlike devices: those that ask for the CPU.
 */
static int check_placements(struct ranks *job, const struct placement *all)
{
    bool *without = calloc((size_t)job->sharing.ranks, sizeof *without);
    char who[256];
    int rc = without ? 0 : error_set(CKPT_ENOMEM, "no memory for a communicator"), n = 0, gpus = 0;
    for (int r = 0; r < job->sharing.ranks && !rc; r++) {
        gpus += *all[r].gpu != 0;
        without[r] = !*all[r].gpu && !(job->sharing.stages > 1 && all[r].on_cpu);
        n += without[r];
        for (int q = 0; q < r && !rc && *all[r].gpu; q++)
            if (all[q].host == all[r].host && !strcmp(all[q].gpu, all[r].gpu))
                rc = error_set(CKPT_EDEVICE,
                               "ranks %d and %d would share the GPU at %s: start no more ranks on "
                               "a host than it has GPUs (CUDA_VISIBLE_DEVICES counts)",
                               q, r, all[r].gpu);
    }
    job->sharing.unlike = gpus && gpus < job->sharing.ranks;
    if (!rc && n && gpus) {
        comm_name_ranks(who, sizeof who, without, job->sharing.ranks);
        rc = error_set(CKPT_EDEVICE, "no GPU for %s, but for others: give all one, or --device cpu",
                       who);
    }
    if (!rc && job->sharing.unlike && job->sharing.ranks > job->sharing.stages)
        rc = error_set(CKPT_EINVAL,
                       "--stages %d: stages on GPUs and on CPUs are one pipeline, of %d ranks, and "
                       "these are %d",
                       job->sharing.stages, job->sharing.stages, job->sharing.ranks);
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

/* What kernels around collectives write. */
static int make_notes(struct ranks *job)
{
    job->noted = job->memory->device->ops->host_alloc(job->memory->device,
                                                      NOTED_BYTES + (int64_t)sizeof job->pace.here);
    if (!job->noted)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    job->pace.waited = (int64_t *)(void *)((char *)job->noted + NOTED_BYTES);
    return 0;
}

static int open_nccl(struct ranks *job, const struct placement *all)
{
    struct comm *comm = NULL;
    /* A stage waits in a receive, which would hold all these multiprocessors. */
    bool together = job->sharing.stages < 2;
    for (int r = 0; r < job->sharing.ranks; r++)
        together = together && all[r].host == all[0].host;
    int rc = comm_open_nccl(&comm, job->comm, together);
    if (rc)
        return rc;
    job->comm = comm;
    return 0;
}

static int open_through_host(struct ranks *job)
{
    struct comm *comm = NULL;
    int rc = comm_open_through_host(&comm, job->comm, job->memory->device);
    if (rc)
        return rc;
    job->comm = comm;
    job->machine->links = machine_cpu.links; /* those of a GPU's figures are between GPUs */
    return 0;
}

int ranks_reserve(struct ranks *job, int64_t bytes)
{
    return comm_reserve_through_host(job->comm, bytes);
}

/* The communicator between devices, of a rank that has a GPU. */
static int open_between(struct ranks *job, const struct placement *all)
{
    int rc = make_notes(job);
    if (rc)
        return rc;
    return job->sharing.unlike ? open_through_host(job) : open_nccl(job, all);
}

int ranks_open_device(struct ranks *job)
{
    int rc = 0;
    if (!job->comm || !job->on_gpus)
        return 0;
    struct placement *all = gather_placements(job, &rc);
    if (all)
        rc = check_placements(job, all);
    if (!rc)
        note_routes(job, all);
    if (!rc && job->sharing.ranks > 1 && job->memory->device->ops->backend == CKPT_ON_CUDA &&
        *all[job->rank].gpu)
        rc = open_between(job, all);
    free(all);
    return rc;
}
