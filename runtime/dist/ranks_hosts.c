/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host of each rank, and the ranks that share one copy of the model: all ranks, or the ranks of
 * each host.  In the second case every host holds a replica.  Gradients are summed within each
 * host, then between hosts, so only shares cross the network.
 */
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "dist/ranks.h"
#include "dist/shard/layout.h"

int ranks_sort_by_host(int n, const uint64_t *of, int *placements, int *hosts, int *most)
{
    int placed = 0, fewest = n;
    *hosts = *most = 0;
    for (int i = 0; i < n; i++) {
        int earlier = 0, count = 0;
        for (int k = 0; k < i; k++)
            earlier += of[k] == of[i];
        if (earlier)
            continue;
        for (int k = i; k < n; k++) {
            if (of[k] != of[i])
                continue;
            placements[placed++] = k;
            count++;
        }
        ++*hosts;
        *most = count > *most ? count : *most;
        fewest = count < fewest ? count : fewest;
    }
    return fewest == *most ? fewest : 0;
}

/* ---- what the ranks tell each other ---------------------------------------------------------- */

static const char *over_option(const struct ranks *job)
{
    return job->options->shard_over && *job->options->shard_over ? job->options->shard_over
                                                                 : "auto";
}

static bool same_stages(const struct rank_place *a, const struct rank_place *b)
{
    return a->stages == b->stages;
}

static bool same_sequence(const struct rank_place *a, const struct rank_place *b)
{
    return a->sequence == b->sequence;
}

static bool same_tensor(const struct rank_place *a, const struct rank_place *b)
{
    return a->tensor == b->tensor;
}

static bool same_saves(const struct rank_place *a, const struct rank_place *b)
{
    return a->save_async == b->save_async;
}

static bool same_over(const struct rank_place *a, const struct rank_place *b)
{
    return !strcmp(a->over, b->over);
}

/* All ranks must have the same value of an option that selects which groups and collectives
 * follow. */
static int compare_option(struct ranks *job, const char *option,
                          bool (*same)(const struct rank_place *a, const struct rank_place *b))
{
    bool *other = calloc((size_t)job->sharing.ranks, sizeof *other);
    char who[256];
    int n = 0;
    if (!other)
        return CKPT_ENOMEM;
    for (int r = 0; r < job->sharing.ranks; r++)
        n += other[r] = !same(&job->places[r], &job->places[0]);
    comm_name_ranks(who, sizeof who, other, job->sharing.ranks);
    free(other);
    return n ? error_set(CKPT_ECOMM, "%s started with another %s than rank 0", who, option) : 0;
}

static int set_placements(struct ranks *job)
{
    uint64_t *of = calloc((size_t)job->sharing.ranks, sizeof *of);
    int most;
    job->placements = calloc((size_t)job->sharing.ranks, sizeof *job->placements);
    if (of && job->placements) {
        for (int r = 0; r < job->sharing.ranks; r++)
            of[r] = job->places[r].host;
        job->per_host =
            ranks_sort_by_host(job->sharing.ranks, of, job->placements, &job->hosts, &most);
        if (!machine_is_foreign(job->options))
            job->machine->links.ranks_per_host = most;
    }
    free(of);
    return of && job->placements ? 0 : CKPT_ENOMEM;
}

static uint64_t mark_processors(void)
{
    cpu_set_t set;
    uint64_t mark = HASH_START;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (size_t i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set))
            mark = hash_mix(mark, (int64_t)i);
    return mark;
}

int ranks_beside(const struct ranks *job)
{
    int n = 0;
    for (int r = 0; r < job->sharing.ranks && job->places; r++) {
        const struct rank_place *own = &job->places[job->rank], *p = &job->places[r];
        n += p->host == own->host && p->node == own->node && p->processors == own->processors;
    }
    return n ? n : 1;
}

static struct rank_place own_place(const struct ranks *job)
{
    struct rank_place p = {.host = job->host,
                           .processors = mark_processors(),
                           .node = -1,
                           .wants_copies = ranks_want_copies(job),
                           .sequence = job->sharing.sequence,
                           .tensor = job->sharing.tensor,
                           .stages = job->sharing.stages,
                           .save_async = job->options->save_async,
                           .flops = job->machine->flops};
    unsigned cpu, node;
    snprintf(p.over, sizeof p.over, "%s", over_option(job));
    if (job->memory->device)
        snprintf(p.gpu, sizeof p.gpu, "%s", job->memory->device->where);
    if (*p.gpu)
        p.node = job->memory->device->ops->numa_node(job->memory->device);
    else if (!getcpu(&cpu, &node))
        p.node = (int32_t)node;
    memcpy(p.routes, job->routes, sizeof p.routes);
    return p;
}

/* Hosts are numbered in order of first appearance. */
static void describe_places(struct ranks *job)
{
    for (int s = 0, host = -1; s < job->sharing.ranks; s++) {
        struct rank_place *p = &job->places[job->placements[s]];
        char gpu[48] = "", node[32] = "", routes[96] = "";
        if (!s || p->host != job->places[job->placements[s - 1]].host)
            host++;
        if (*p->gpu)
            snprintf(gpu, sizeof gpu, ", GPU at %s", p->gpu);
        if (p->node >= 0)
            snprintf(node, sizeof node, ", NUMA node %d", (int)p->node);
        if (*p->routes)
            snprintf(routes, sizeof routes, ", %s to the other GPUs there", p->routes);
        snprintf(p->text, sizeof p->text, "host %d%s%s%s", host, gpu, node, routes);
    }
}

/* The plan prices collectives by the hosts; the plan table and the groups use them too. */
static int find_hosts(struct ranks *job)
{
    struct comm *comm = ranks_hosts(job);
    struct rank_place own = own_place(job);
    job->places = calloc((size_t)job->sharing.ranks, sizeof own);
    int rc = job->places ? comm_gather(comm, &own, job->places, sizeof own, "hosts") : CKPT_ENOMEM;
    if (rc == CKPT_ECOMM)
        return error_set(rc, "%s", comm->reason);
    if (!rc)
        rc = set_placements(job);
    if (!rc)
        rc = compare_option(job, "--sequence", same_sequence);
    if (!rc)
        rc = compare_option(job, "--tensor", same_tensor);
    if (!rc)
        rc = compare_option(job, "--stages", same_stages);
    if (!rc)
        rc = compare_option(job, "--save-async", same_saves);
    if (!rc)
        rc = compare_option(job, "--shard-over", same_over);
    if (!rc)
        describe_places(job);
    return rc == CKPT_ENOMEM ? error_set(rc, "no memory for ranks") : rc;
}

/* Planned ranks that do not exist fill the hosts of the machine that the plan is for. */
static void plan_hosts(struct ranks *job)
{
    int64_t n = job->machine->links.ranks_per_host;
    job->per_host = n > 1 && job->sharing.ranks % n == 0 ? (int)n : 0;
}

int ranks_find_hosts(struct ranks *job)
{
    if (job->comm)
        return find_hosts(job);
    plan_hosts(job);
    return 0;
}

/* ---- what is shown --------------------------------------------------------------------------- */

static void print_nodes(const struct ranks *job, FILE *f)
{
    const struct rank_place *first = &job->places[job->placements[0]];
    fprintf(f, "NUMA nodes%s ", job->hosts > 1 ? " of the first host" : "");
    for (int s = 0; s < job->sharing.ranks && job->places[job->placements[s]].host == first->host;
         s++) {
        int32_t node = job->places[job->placements[s]].node;
        fputs(s ? "," : "", f);
        if (node < 0)
            fputc('?', f);
        else
            fprintf(f, "%d", (int)node);
    }
}

void ranks_print_places(const struct ranks *job, FILE *f)
{
    const char *routes = "";
    bool differ = false;
    if (!job->places)
        return;
    for (int r = 0; r < job->sharing.ranks; r++) {
        const char *own = job->places[r].routes;
        differ |= *own && *routes && strcmp(own, routes) != 0;
        routes = *own ? own : routes;
    }
    fprintf(f, "  %-24s %12s  ", "topology", *job->places[0].gpu ? "GPUs" : "CPUs");
    if (*routes)
        fprintf(f, "%s within a host; ", differ ? "unlike routes" : routes);
    print_nodes(job, f);
    fputc('\n', f);
    if (job->options->host && job->machine->host_copies > 0)
        fprintf(f, "  %-24s %7.3g GB/s  each way, of all ranks of a host together\n",
                "copies to the host", 1e-9 * job->machine->host_copies);
}

/* ---- groups ---------------------------------------------------------------------------------- */

bool ranks_may_share(const struct ranks *job, enum ranks_over over)
{
    const char *option = over_option(job);
    if (job->sharing.stages > 1)
        return over == OVER_ALL;
    if (job->sharing.ranks < 2 || job->groups_fixed)
        return (int)over == job->over;
    bool hosts = job->requested_zero && job->per_host && job->per_host < job->sharing.ranks &&
                 strcmp(option, "all") != 0 && job->sharing.tensor < 2;
    /* With one rank per host, sharing within a host means no sharing. */
    if (job->per_host == 1 && strcmp(option, "host") != 0 && job->options->zero != CKPT_AUTO)
        hosts = false;
    return over == OVER_HOST ? hosts : !hosts || strcmp(option, "host") != 0;
}

/* Sets the replica of this rank and its place in the replica. */
static void set_place(struct ranks *job)
{
    int at = 0;
    while (job->placements && job->placements[at] != job->rank)
        at++;
    job->sharing.replicas = job->sharing.ranks / job->sharing.group_ranks;
    job->sharing.replica = job->sharing.replicas > 1 ? at / job->sharing.group_ranks : 0;
    job->sharing.place = job->sharing.replicas > 1 ? at % job->sharing.group_ranks : job->rank;
}

static int open_groups(struct ranks *job)
{
    int *column = calloc((size_t)job->sharing.replicas, sizeof *column);
    int rc = column ? 0 : error_set(CKPT_ENOMEM, "no memory for a communicator");
    for (int k = 0; k < job->sharing.replicas && !rc; k++)
        column[k] = job->placements[k * job->sharing.group_ranks + job->sharing.place];
    ranks_hosts(job);
    if (!rc)
        rc = comm_open_group(job->comm, job->sharing.group_ranks,
                             job->placements + job->sharing.replica * job->sharing.group_ranks,
                             &job->within);
    if (!rc)
        rc = comm_open_group(job->comm, job->sharing.replicas, column, &job->across);
    free(column);
    return rc;
}

/* Opens the communicator of n ranks of `all` from `first` on, `step` apart, if those are some of
 * several. */
static int open_some_of(struct ranks *job, struct comm *all, int n, int first, int step,
                        struct comm **comm)
{
    if (!job->comm || n < 2 || n == job->sharing.ranks)
        return 0;
    int *member = calloc((size_t)n, sizeof *member);
    for (int k = 0; k < n && member; k++)
        member[k] = first + k * step;
    ranks_hosts(job);
    const int rc = member ? comm_open_group(all, n, member, comm)
                          : error_set(CKPT_ENOMEM, "no memory for a communicator");
    free(member);
    return rc;
}

static int open_some(struct ranks *job, int n, int first, int step, struct comm **comm)
{
    return open_some_of(job, job->comm, n, first, step, comm);
}

/* They are neighbours by number, as launchers put them on one host. */
int ranks_open_sequence(struct ranks *job)
{
    return open_some(job, job->sharing.sequence, job->rank - job->sharing.sequence_place, 1,
                     &job->sequence);
}

/* Those with the same stage, or the same parts of split parameters. */
static int open_data(struct ranks *job)
{
    const int n = sharing_stride(&job->sharing);
    return open_some(job, job->sharing.ranks / n, job->rank % n, n, &job->data);
}

int ranks_open_tensor(struct ranks *job)
{
    const int n = job->sharing.tensor;
    if (n < 2)
        return 0;
    const int rc = open_some(job, n, job->rank - job->rank % n, 1, &job->tensor);
    return rc ? rc : open_data(job);
}

/* The ranks of a stage wait for the slowest of them. */
static double slowest_of(const struct ranks *job, int stage)
{
    double flops = INFINITY;
    for (int r = stage; r < job->sharing.ranks; r += job->sharing.stages)
        flops = fmin(flops, job->places[r].flops);
    return flops;
}

void ranks_free_cut(struct ranks *job)
{
    double fastest = 0;
    for (int r = 0; r < job->sharing.ranks && job->places; r++)
        fastest = job->places[r].flops > fastest ? job->places[r].flops : fastest;
    for (int s = 0; s < job->sharing.stages && job->limits; s++)
        job->limits[s] = (struct stage_limit){
            .speed = fastest > 0 ? slowest_of(job, s) / fastest : 1, .most = INT64_MAX};
    job->sharing.n_tries = 0;
}

/* In the order of ranks: the first of two is in the pair before it. */
int ranks_open_stages(struct ranks *job)
{
    const int n = job->sharing.stages, own = job->sharing.stage;
    int rc = 0;
    if (n < 2)
        return 0;
    if (!job->limits) /* else an attempt before this one failed later */
        job->limits = calloc((size_t)n, sizeof *job->limits);
    job->sharing.limits = job->limits;
    if (!job->limits)
        return error_set(CKPT_ENOMEM, "no memory for the stages of a pipeline");
    if (own > 0)
        rc = open_some(job, 2, job->rank - 1, 1, &job->previous);
    if (!rc && own < n - 1)
        rc = open_some(job, 2, job->rank, 1, &job->next);
    if (!rc && job->comm) /* no step has a collective of these */
        rc = open_some_of(job, comm_of_hosts(job->comm), n, job->rank - own, 1, &job->pipeline);
    return rc ? rc : open_data(job);
}

void ranks_close_groups(struct ranks *job)
{
    comm_close(job->within);
    comm_close(job->across);
    job->within = job->across = NULL;
}

int ranks_choose_group(struct ranks *job, enum ranks_over over)
{
    bool hosts = over == OVER_HOST;
    job->over = over;
    job->sharing.zero = hosts && job->per_host == 1 ? 0 : job->requested_zero;
    job->sharing.group_ranks = hosts && job->per_host > 1 ? job->per_host : job->sharing.ranks;
    set_place(job);
    return job->comm && job->sharing.replicas > 1 && !job->within ? open_groups(job) : 0;
}

struct comm *ranks_alike(struct ranks *job)
{
    if (job->sharing.stages < 2)
        return ranks_all(job);
    ranks_all(job); /* sets the step */
    return job->data ? comm_of_hosts(job->data) : NULL;
}

struct comm *ranks_pipeline(struct ranks *job)
{
    struct comm *all = job->sharing.stages > 1 ? ranks_all(job) : NULL;
    return all && job->pipeline ? job->pipeline : all;
}

int ranks_number(const struct ranks *job, int i)
{
    return job->sharing.stages > 1 ? i * job->sharing.stages + job->sharing.stage : i;
}

bool ranks_lead(const struct ranks *job)
{
    return job->sharing.stages > 1 ? !job->sharing.place : !job->rank;
}

int ranks_owner(const struct ranks *job, int place)
{
    return job->sharing.replicas > 1 ? job->placements[place] : place;
}
