/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order in which storages are dropped: by seconds of recompute per byte, including the inputs
 * that must be recomputed first.  Equal prices go by position from the start of the program, since
 * the backward pass uses early tensors last.
 */
#include "plan/search/search.h"

/* Whether a storage is always freed in the forward pass: no other op reads it. */
static bool drop_after_forward(const struct program *p, int32_t s)
{
    return p->droppable[s] && !p->needed[s];
}

/* Seconds to rerun each op, including the recompute of inputs that are freed in the forward pass.
 */
static double *chain_seconds(const struct program *p, struct pool *m)
{
    const struct graph *g = p->g;
    double *cost = pool_array(m, g->n_ops, sizeof(*cost));
    for (int32_t i = 0; cost && i < g->n_body; i++) {
        const struct graph_op *o = &g->ops[i];
        cost[i] = o->seconds;
        for (int32_t j = 0; j < o->n_reads; j++) {
            int32_t s = g->refs[o->reads + j];
            if (!drop_after_forward(p, s))
                continue;
            for (int32_t k = p->writer_start[s]; k < p->writer_start[s + 1]; k++)
                cost[i] += cost[p->writers[k]];
        }
    }
    return cost;
}

/* Bytes that one rerun of op i recomputes for the backward pass. */
static int64_t useful_bytes(const struct program *p, int32_t i)
{
    const struct graph_op *o = &p->g->ops[i];
    int64_t bytes = 0;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = p->g->refs[o->writes + j];
        if (p->needed[s])
            bytes += p->g->storages[s].bytes;
    }
    return bytes;
}

/* Seconds per byte. */
static double price(const struct program *p, const double *cost, int32_t s)
{
    double seconds = 0;
    int64_t bytes = 0;
    for (int32_t k = p->writer_start[s]; k < p->writer_start[s + 1]; k++) {
        int32_t w = p->writers[k];
        seconds += cost[w];
        bytes += useful_bytes(p, w);
    }
    if (p->writer_start[s + 1] - p->writer_start[s] > 1)
        bytes = p->g->storages[s].bytes;
    return seconds / (double)max_i64(bytes, 1);
}

static int32_t collect(const struct program *p, const double *cost, struct place_key *e)
{
    int32_t n = 0;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        if (p->needed[s])
            e[n++] = (struct place_key){price(p, cost, s), p->position[s], s};
    place_sort_keys(e, n);
    return n;
}

int order_build(const struct program *p, struct pool *m, struct order *o)
{
    double *cost = chain_seconds(p, m);
    struct place_key *e = pool_array(m, p->g->n_storages, sizeof(*e));
    *o = (struct order){pool_filled(m, p->g->n_storages, 0), 0, 0};
    if (m->failed)
        return CKPT_ENOMEM;
    o->n = collect(p, cost, e);
    for (int32_t i = 0; i < o->n; i++) {
        o->storages[i] = e[i].item;
        o->bytes += p->g->storages[e[i].item].bytes;
    }
    return 0;
}
