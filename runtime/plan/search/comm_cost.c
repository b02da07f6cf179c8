/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of a collective: a launch overhead, the latency of its hops, and its bytes at the rate
 * of the slower link.
 *
 * A ring of n ranks moves (n - 1) / n of all bytes past every rank.  Inside a host each rank has a
 * link of its own.  Between hosts one ring would leave all links but one idle.  So libraries use as
 * many rings as a host has ranks, and each rank sends the bytes of one ring over its own link.  In
 * an all-to-all a rank sends to each other one directly, over its own link.
 */
#include <math.h>
#include "plan/search/comm_cost.h"

struct shape {
    double ranks, per_host, hosts;
};

static struct shape shape_of(const struct links *l, int64_t ranks)
{
    int64_t per_host = links_beside(l, ranks);
    return (struct shape){(double)ranks, (double)per_host,
                          (double)((ranks + per_host - 1) / per_host)};
}

static double ring_latency(const struct links *l, const struct shape *s)
{
    double across = s->hosts > 1 ? s->hosts : 0;
    return (s->ranks - fmax(across, 1)) * l->host_latency + across * l->net_latency;
}

/* Reduce and broadcast: a chain inside each host, a tree of hosts. */
static double tree_latency(const struct links *l, const struct shape *s)
{
    return 2 * ((s->per_host - 1) * l->host_latency + ceil(log2(s->hosts)) * l->net_latency);
}

/* bytes: what a rank has; an equal part goes to each rank, all of them at once. */
static double exchange_seconds(const struct links *l, const struct shape *s, double bytes)
{
    const double inside = (s->per_host - 1) / s->ranks * bytes / l->host;
    if (s->hosts <= 1)
        return l->overhead + l->host_latency + inside;
    const double across = (s->ranks - s->per_host) / s->ranks * bytes / l->net;
    return l->overhead + l->net_latency + fmax(inside, across);
}

double collective_seconds(const struct links *l, enum graph_collective kind, double bytes,
                          int64_t ranks)
{
    if (ranks < 2 || kind == GRAPH_LOCAL)
        return 0;
    struct shape s = shape_of(l, ranks);
    if (kind == GRAPH_ALL_TO_ALL)
        return exchange_seconds(l, &s, bytes);
    if (kind == GRAPH_SEND || kind == GRAPH_RECEIVE) /* two neighbours */
        return l->overhead +
               (s.hosts > 1 ? l->net_latency + bytes / l->net : l->host_latency + bytes / l->host);
    double rate = s.hosts > 1 ? fmin(l->host, s.per_host * l->net) : l->host;
    if (s.per_host < 2)
        rate = l->net;
    double latency = ring_latency(l, &s), seconds = (s.ranks - 1) / s.ranks * bytes / rate;
    if (kind == GRAPH_ALL_REDUCE) {
        latency = fmin(2 * latency, tree_latency(l, &s));
        seconds *= 2;
    }
    return l->overhead + latency + seconds;
}

double replica_seconds(const struct links *l, double bytes, int64_t groups)
{
    if (groups < 2)
        return 0;
    double n = (double)groups, hops = fmin(n - 1, ceil(log2(n)));
    return l->overhead + 2 * (hops * l->net_latency + (n - 1) / n * bytes / l->net);
}

int64_t collective_bytes(const struct graph *g, const struct graph_op *o)
{
    bool reads = o->collective == GRAPH_REDUCE_SCATTER || o->collective == GRAPH_SEND;
    return g->storages[g->refs[reads ? o->reads : o->writes]].bytes;
}
