/* SPDX-License-Identifier: Apache-2.0 */
/* Seconds of the ops of a graph on a machine: measured, or else a roofline estimate. */
#include <math.h>
#include "plan/search/comm_cost.h"

/* A feed reads nothing and fills an input. */
static bool is_feed(const struct graph *g, const struct graph_op *o)
{
    return !o->n_reads && o->n_writes == 1 && g->storages[g->refs[o->writes]].kind == KIND_INPUT;
}

/* Feeds and fetches copy to or from host memory at the rate of the link. */
static double transfer_rate(const struct graph *g, const struct graph_op *o,
                            const struct machine *m)
{
    if (is_feed(g, o))
        return m->h2d;
    return o->n_writes ? m->bandwidth : m->d2h;
}

/* The rate of an op's arithmetic: attention waits for its exponentials, so no card computes it as
 * fast as large products. */
static double arithmetic_rate(const struct graph_op *o, const struct machine *m)
{
    return o->attention && m->attention > 0 ? m->flops * m->attention : m->flops;
}

/* Whether the two ranks of a transfer are on different hosts, in any pipeline; of a graph that does
 * not say which stage it is: whether any two neighbours are. */
static bool crosses_hosts(const struct graph *g, const struct graph_op *o, int64_t per_host)
{
    const struct graph_pipeline *of = &g->pipeline;
    const bool to_next = (o->collective == GRAPH_SEND) == (o->phase == GRAPH_FORWARD);
    if (!of->stages)
        return o->ranks > per_host;
    for (int64_t p = 0; p < of->pipelines && p < per_host; p++)
        if ((p * of->stages + of->stage + to_next) % per_host == 0)
            return true;
    return false;
}

/* The links of a collective: of strided ranks fewer are on a host, and each has its own port. */
static struct links links_of(const struct graph *g, const struct graph_op *o,
                             const struct machine *m)
{
    struct links l = m->links;
    if (o->collective >= GRAPH_SEND)
        l.ranks_per_host = crosses_hosts(g, o, max_i64(1, l.ranks_per_host)) ? 1 : o->ranks;
    else if (o->stride > 1)
        l.ranks_per_host = l.ranks_per_host > o->stride ? l.ranks_per_host / o->stride : 1;
    return l;
}

static double estimate(const struct graph *g, const struct graph_op *o, const struct machine *m)
{
    const struct links l = links_of(g, o, m);
    if (o->collective)
        return collective_seconds(&l, o->collective, (double)collective_bytes(g, o), o->ranks) +
               replica_seconds(&l, (double)collective_bytes(g, o) / o->ranks, o->replicas);
    double by_flops = o->flops / arithmetic_rate(o, m),
           by_bytes = o->bytes / transfer_rate(g, o, m);
    return by_flops > by_bytes ? by_flops : by_bytes;
}

/* Prices collectives for the search.  If the collectives of the body, with every repeatable gather
 * run twice, take at most half the time of its other ops, they are hidden except for their ends;
 * the hidden part shrinks as they take more. */
void graph_price_collectives(struct graph *g)
{
    double queued = 0, others = 0;
    for (int32_t i = 0; i < g->n_body; i++) {
        const struct graph_op *o = &g->ops[i];
        queued += o->collective ? o->comm_seconds * (1 + o->rerunnable) : 0;
        others += o->collective ? 0 : o->seconds;
    }
    double over = others > 0 ? queued / others - 0.5 : 1;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        if (o->collective)
            o->seconds = fmin(fmax(o->comm_seconds, o->contention_seconds),
                              o->contention_seconds + fmax(0, over) * o->comm_seconds);
    }
}

static bool is_measured(struct graph_op *o, const struct machine *m)
{
    return o->cost_key && machine_cost(m, o->cost_key, &o->seconds);
}

void graph_price(struct graph *g, const struct machine *m)
{
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        if (!is_measured(o, m))
            o->seconds = estimate(g, o, m) + m->overhead;
        o->comm_seconds = o->collective ? o->seconds : 0;
        o->contention_seconds = m->links.contention * o->comm_seconds;
    }
    graph_price_collectives(g);
}

double graph_seconds(const struct graph *g)
{
    double seconds = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        seconds += g->ops[i].seconds * (i < g->n_body ? g->n_micro : 1);
    return seconds;
}

/* The search adds in units of 2^-40 s; 2^60 of them are 1.05e6 s, which leaves room for recompute.
 */
int graph_check_seconds(const struct graph *g)
{
    static const double longest = 1e6;
    double seconds = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        seconds += g->ops[i].seconds;
    if (seconds <= longest)
        return 0;
    return error_set(CKPT_EINVAL,
                     "the ops of a step take %.3g s, by the times or rates of their machine: no "
                     "plan is made beyond %.3g s",
                     seconds, longest);
}
