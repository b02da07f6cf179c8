/*
 * Where ranks run, and so which of them share: all, or those of each host, of which then every one
 * has a copy of everything in shares.  Gradients are summed within a host and those sums over the
 * hosts, so that only shares cross what is between them.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_ranks.h"
#include "ranks.h"
#include "shard/layout.h"

int ranks_sort_by_host(int n, const uint64_t *of, int *seats, int *hosts, int *most)
{
    int seated = 0, least = n;
    *hosts = *most = 0;
    for (int i = 0; i < n; i++) {
        int before = 0, with = 0;
        for (int k = 0; k < i; k++)
            before += of[k] == of[i];
        if (before)
            continue;
        for (int k = i; k < n; k++) {
            if (of[k] != of[i])
                continue;
            seats[seated++] = k;
            with++;
        }
        ++*hosts;
        *most = with > *most ? with : *most;
        least = with < least ? with : least;
    }
    return least == *most ? least : 0;
}

/* ---- what the ranks tell each other ---------------------------------------------------------- */

static const char *over_option(const ckpt *c)
{
    return c->options.shard_over && *c->options.shard_over ? c->options.shard_over : "auto";
}

/* All must be told the same: else they would go different ways from here on. */
static int compare_orders(ckpt *c)
{
    bool *other = calloc((size_t)c->sharing.ranks, sizeof *other);
    char who[256];
    int n = 0;
    if (!other)
        return CKPT_ENOMEM;
    for (int r = 0; r < c->sharing.ranks; r++)
        n += other[r] = strcmp(c->places[r].over, c->places[0].over) != 0;
    comm_name_ranks(who, sizeof who, other, c->sharing.ranks);
    free(other);
    return n ? context_fail(c, CKPT_ECOMM, "%s started with another --shard-over than rank 0", who)
             : 0;
}

static int take_seats(ckpt *c)
{
    uint64_t *of = calloc((size_t)c->sharing.ranks, sizeof *of);
    int most;
    c->seats = calloc((size_t)c->sharing.ranks, sizeof *c->seats);
    if (of && c->seats) {
        for (int r = 0; r < c->sharing.ranks; r++)
            of[r] = c->places[r].host;
        c->per_host = ranks_sort_by_host(c->sharing.ranks, of, c->seats, &c->hosts, &most);
        if (!context_plans_for_another(c))
            c->machine.links.ranks_per_host = most;
    }
    free(of);
    return of && c->seats ? 0 : CKPT_ENOMEM;
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

int ranks_beside(const ckpt *c)
{
    int n = 0;
    for (int r = 0; r < c->sharing.ranks && c->places; r++) {
        const struct rank_place *own = &c->places[c->rank], *p = &c->places[r];
        n += p->host == own->host && p->node == own->node && p->processors == own->processors;
    }
    return n ? n : 1;
}

static struct rank_place own_place(const ckpt *c)
{
    struct rank_place p = {.host = c->host,
                           .processors = mark_processors(),
                           .node = -1,
                           .wants_copies = ranks_want_copies(c)};
    unsigned cpu, node;
    snprintf(p.over, sizeof p.over, "%s", over_option(c));
    if (c->device)
        snprintf(p.gpu, sizeof p.gpu, "%s", c->device->where);
    if (*p.gpu)
        p.node = c->device->ops->numa_node(c->device);
    else if (!getcpu(&cpu, &node))
        p.node = (int32_t)node;
    memcpy(p.routes, c->routes, sizeof p.routes);
    return p;
}

/* Hosts are numbered in the order in which they are met. */
static void describe_places(ckpt *c)
{
    for (int s = 0, host = -1; s < c->sharing.ranks; s++) {
        struct rank_place *p = &c->places[c->seats[s]];
        char gpu[48] = "", node[32] = "", routes[96] = "";
        if (!s || p->host != c->places[c->seats[s - 1]].host)
            host++;
        if (*p->gpu)
            snprintf(gpu, sizeof gpu, ", GPU at %s", p->gpu);
        if (p->node >= 0)
            snprintf(node, sizeof node, ", NUMA node %d", (int)p->node);
        if (*p->routes)
            snprintf(routes, sizeof routes, ", %s to others there", p->routes);
        snprintf(p->text, sizeof p->text, "host %d%s%s%s", host, gpu, node, routes);
    }
}

/* For the plan, which prices collectives by it, its table, and the groups. */
static int find_hosts(ckpt *c)
{
    struct comm *comm = ranks_hosts(c);
    struct rank_place own = own_place(c);
    c->places = calloc((size_t)c->sharing.ranks, sizeof own);
    int rc = c->places ? comm_gather(comm, &own, c->places, sizeof own, "hosts") : CKPT_ENOMEM;
    if (rc == CKPT_ECOMM)
        return context_fail(c, rc, "%s", comm->reason);
    if (!rc)
        rc = take_seats(c);
    if (!rc)
        rc = compare_orders(c);
    if (!rc)
        describe_places(c);
    return rc == CKPT_ENOMEM ? context_fail(c, rc, "no memory for ranks") : rc;
}

/* Ranks that are not there fill hosts of the machine they are planned for. */
static void imagine_hosts(ckpt *c)
{
    int64_t n = c->machine.links.ranks_per_host;
    c->per_host = n > 1 && c->sharing.ranks % n == 0 ? (int)n : 0;
}

int ranks_find_hosts(ckpt *c)
{
    if (c->comm)
        return find_hosts(c);
    imagine_hosts(c);
    return 0;
}

/* ---- what is shown --------------------------------------------------------------------------- */

const char *ckpt_rank_place(const ckpt *c, int rank)
{
    if (!c)
        return "";
    return c->places && rank >= 0 && rank < c->sharing.ranks ? c->places[rank].text : "";
}

static void print_nodes(const ckpt *c, FILE *f)
{
    const struct rank_place *first = &c->places[c->seats[0]];
    fprintf(f, "NUMA nodes%s ", c->hosts > 1 ? " of the first host" : "");
    for (int s = 0; s < c->sharing.ranks && c->places[c->seats[s]].host == first->host; s++) {
        int32_t node = c->places[c->seats[s]].node;
        fputs(s ? "," : "", f);
        if (node < 0)
            fputc('?', f);
        else
            fprintf(f, "%d", (int)node);
    }
}

void ranks_print_places(const ckpt *c, FILE *f)
{
    const char *routes = "";
    bool differ = false;
    if (!c->places)
        return;
    for (int r = 0; r < c->sharing.ranks; r++) {
        const char *own = c->places[r].routes;
        differ |= *own && *routes && strcmp(own, routes) != 0;
        routes = *own ? own : routes;
    }
    fprintf(f, "  %-24s %12s  ", "topology", *c->places[0].gpu ? "GPUs" : "CPUs");
    if (*routes)
        fprintf(f, "%s within a host; ", differ ? "unlike routes" : routes);
    print_nodes(c, f);
    fputc('\n', f);
    if (c->options.host && c->machine.host_copies > 0)
        fprintf(f, "  %-24s %7.3g GB/s  each way, of all ranks of a host together\n",
                "copies to the host", 1e-9 * c->machine.host_copies);
}

/* ---- groups ---------------------------------------------------------------------------------- */

bool ranks_may_share(const ckpt *c, enum ranks_over over)
{
    const char *told = over_option(c);
    if (c->sharing.ranks < 2 || c->settled)
        return (int)over == c->over;
    bool hosts =
        c->asked_zero && c->per_host && c->per_host < c->sharing.ranks && strcmp(told, "all") != 0;
    /* Where each host has one rank, to share within it is not to share at all. */
    if (c->per_host == 1 && strcmp(told, "host") != 0 && c->options.zero != CKPT_AUTO)
        hosts = false;
    return over == OVER_HOST ? hosts : !hosts || strcmp(told, "host") != 0;
}

/* Which share of which copy this rank has. */
static void take_place(ckpt *c)
{
    int at = 0;
    while (c->seats && c->seats[at] != c->rank)
        at++;
    c->sharing.replicas = c->sharing.ranks / c->sharing.sharers;
    c->sharing.replica = c->sharing.replicas > 1 ? at / c->sharing.sharers : 0;
    c->sharing.place = c->sharing.replicas > 1 ? at % c->sharing.sharers : c->rank;
}

static int open_groups(ckpt *c)
{
    int *column = calloc((size_t)c->sharing.replicas, sizeof *column);
    int rc = column ? 0 : error_set(CKPT_ENOMEM, "no memory for a communicator");
    for (int k = 0; k < c->sharing.replicas && !rc; k++)
        column[k] = c->seats[k * c->sharing.sharers + c->sharing.place];
    c->comm->step = comm_of_hosts(c->comm)->step = c->updates;
    if (!rc)
        rc = comm_open_group(c->comm, c->sharing.sharers,
                             c->seats + c->sharing.replica * c->sharing.sharers, &c->within);
    if (!rc)
        rc = comm_open_group(c->comm, c->sharing.replicas, column, &c->across);
    free(column);
    return rc ? context_fail(c, rc, "%s", error_get()) : 0;
}

void ranks_close_groups(ckpt *c)
{
    comm_close(c->within);
    comm_close(c->across);
    c->within = c->across = NULL;
}

int ranks_choose_sharers(ckpt *c, enum ranks_over over)
{
    bool hosts = over == OVER_HOST;
    c->over = over;
    c->sharing.zero = hosts && c->per_host == 1 ? 0 : c->asked_zero;
    c->sharing.sharers = hosts && c->per_host > 1 ? c->per_host : c->sharing.ranks;
    take_place(c);
    return c->comm && c->sharing.replicas > 1 && !c->within ? open_groups(c) : 0;
}

int ranks_owner(const ckpt *c, int place)
{
    return c->sharing.replicas > 1 ? c->seats[place] : place;
}
