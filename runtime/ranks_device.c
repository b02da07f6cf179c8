/* Which GPU a rank takes, and what carries collectives between them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "exec/program.h"
#include "ranks.h"

/* Where a rank runs. */
struct seat {
    uint64_t host;
    char gpu[32]; /* its place on the bus, or "" */
};

uint64_t ranks_host(void)
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

/* Every rank's seat, to be freed; or NULL, the code in *rc. */
static struct seat *gather_seats(ckpt *c, int *rc)
{
    struct seat mine = {.host = ranks_host()};
    struct seat *all = calloc((size_t)c->sharing.ranks, sizeof *all);
    if (c->device)
        snprintf(mine.gpu, sizeof mine.gpu, "%s", c->device->where);
    *rc = all ? comm_gather(c->comm, &mine, all, sizeof mine, "seats") : CKPT_ENOMEM;
    if (!*rc)
        return all;
    error_set(*rc, "%s", *rc == CKPT_ECOMM ? c->comm->reason : "no memory for a communicator");
    free(all);
    return NULL;
}

int ranks_seat(ckpt *c, int *index)
{
    int rc = 0;
    *index = 0;
    if (!c->comm)
        return 0;
    struct seat *all = gather_seats(c, &rc);
    for (int r = 0; all && r < c->rank; r++)
        *index += all[r].host == all[c->rank].host;
    free(all);
    return rc;
}

/* All ranks come to the same answer. */
static int check_seats(const ckpt *c, const struct seat *all)
{
    bool *without = calloc((size_t)c->sharing.ranks, sizeof *without);
    char who[256];
    int rc = without ? 0 : error_set(CKPT_ENOMEM, "no memory for a communicator"), n = 0;
    for (int r = 0; r < c->sharing.ranks && !rc; r++) {
        without[r] = !*all[r].gpu;
        n += without[r];
        for (int q = 0; q < r && !rc && *all[r].gpu; q++)
            if (all[q].host == all[r].host && !strcmp(all[q].gpu, all[r].gpu))
                rc = error_set(CKPT_EDEVICE,
                               "ranks %d and %d would share the GPU at %s: start no more ranks on "
                               "a host than it has GPUs (CUDA_VISIBLE_DEVICES counts)",
                               q, r, all[r].gpu);
    }
    if (!rc && n && n < c->sharing.ranks) {
        comm_name_ranks(who, sizeof who, without, c->sharing.ranks);
        rc = error_set(CKPT_EDEVICE, "no GPU for %s, but for others: give all one, or --device cpu",
                       who);
    }
    free(without);
    return rc;
}

/* The ways from this rank's GPU to those of the others on its host, each kind once. */
static void note_routes(ckpt *c, const struct seat *all)
{
    char text[DEVICE_ROUTE];
    for (int r = 0; r < c->sharing.ranks && c->device->ops->route; r++) {
        size_t n = strlen(c->routes);
        if (r == c->rank || all[r].host != all[c->rank].host || !*all[r].gpu)
            continue;
        c->device->ops->route(c->device, all[r].gpu, text);
        if (*text && !strstr(c->routes, text))
            snprintf(c->routes + n, sizeof c->routes - n, "%s%s", n ? " or " : "", text);
    }
}

static int open_nccl(ckpt *c, const struct seat *all)
{
    struct comm *comm = NULL;
    bool together = true;
    for (int r = 0; r < c->sharing.ranks; r++)
        together = together && all[r].host == all[0].host;
    c->noted = c->device->ops->host_alloc(c->device, 2 * (int64_t)sizeof *c->noted);
    if (!c->noted)
        return error_set(CKPT_ENOMEM, "no memory for a communicator");
    int rc = comm_open_nccl(&comm, c->comm, together);
    if (rc)
        return rc;
    c->comm = comm;
    c->device->look = program_look;
    c->device->look_user = c;
    return 0;
}

int ranks_open_device(ckpt *c)
{
    int rc = 0;
    if (!c->comm || (c->options.device && !strcmp(c->options.device, "cpu")))
        return 0;
    struct seat *all = gather_seats(c, &rc);
    if (all)
        rc = check_seats(c, all);
    if (!rc)
        note_routes(c, all);
    if (!rc && c->sharing.ranks > 1 && c->backend == CKPT_ON_CUDA && *all[c->rank].gpu)
        rc = open_nccl(c, all);
    free(all);
    return rc;
}
