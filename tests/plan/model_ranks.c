/* SPDX-License-Identifier: Apache-2.0 */
/* Training on several ranks: layers of one bucket each, gathered before use and reduced after. */
#include <stdio.h>
#include "models.h"

struct rank {
    struct net *n;
    const struct ranks_shape *s;
    int32_t share[RANKS_LAYERS], full[RANKS_LAYERS], inner[RANKS_LAYERS], x[RANKS_LAYERS + 1];
    int32_t gradient[RANKS_LAYERS], sum[RANKS_LAYERS];
};

static int64_t share_bytes(const struct ranks_shape *s, int64_t element)
{
    return round_up((s->numel + s->ranks - 1) / s->ranks, 64) * element;
}

static void collective(struct rank *r, int32_t op, enum graph_collective kind)
{
    if (r->s->ranks < 2)
        return;
    r->n->g->ops[op].collective = kind;
    r->n->g->ops[op].ranks = r->s->ranks;
}

static void forward(struct rank *r, int32_t i)
{
    const struct ranks_shape *s = r->s;
    struct net *n = r->n;
    char name[32];
    snprintf(name, sizeof(name), "blocks.%d", (int)i);
    r->share[i] = net_storage(n, KIND_PARAMETER, share_bytes(s, 2), name);
    r->full[i] = net_make(n, KIND_ACTIVATION, share_bytes(s, 2) * s->ranks,
                          &(struct net_op){.name = "all_gather", .in = {r->share[i]}});
    collective(r, n->g->n_ops - 1, GRAPH_ALL_GATHER);
    int32_t x = r->x[i];
    if (s->norm)
        x = net_make(n, KIND_ACTIVATION, s->stream,
                     &(struct net_op){.name = "norm", .in = {x}, .flops = s->flops * .05});
    r->inner[i] =
        net_make(n, KIND_ACTIVATION, s->kept,
                 &(struct net_op){.name = "inner", .in = {x, r->full[i]}, .flops = s->flops * .75});
    r->x[i + 1] = net_make(n, KIND_ACTIVATION, s->stream,
                           &(struct net_op){.name = "outer",
                                            .in = {r->inner[i], r->x[i], r->full[i]},
                                            .flops = s->flops * .25});
}

static int32_t reduce(struct rank *r, int32_t i, enum graph_phase phase)
{
    int32_t sum = net_make(
        r->n, KIND_GRADIENT, share_bytes(r->s, r->s->gradient),
        &(struct net_op){.phase = phase, .name = "reduce_scatter", .in = {r->gradient[i]}});
    collective(r, r->n->g->n_ops - 1, GRAPH_REDUCE_SCATTER);
    return sum;
}

static int32_t backward(struct rank *r, int32_t i, int32_t dy)
{
    const struct ranks_shape *s = r->s;
    struct net *n = r->n;
    r->gradient[i] =
        net_storage(n, KIND_GRADIENT, share_bytes(s, s->gradient) * s->ranks, "gradient");
    int32_t dx = net_storage(n, KIND_TEMPORARY, s->stream, "dx");
    net_add(n, &(struct net_op){.phase = GRAPH_BACKWARD,
                                .name = "backward",
                                .in = {dy, r->x[i], r->inner[i], r->full[i]},
                                .out = {dx, r->gradient[i]},
                                .flops = 2 * s->flops});
    if (s->early)
        r->sum[i] = reduce(r, i, GRAPH_BACKWARD);
    return dx;
}

static void update(struct rank *r, int32_t i)
{
    int64_t state = share_bytes(r->s, 4);
    struct net_op op = {.phase = GRAPH_UPDATE, .name = "adamw", .out = {r->share[i]}};
    for (int k = 1; k <= 3; k++)
        op.out[k] = net_storage(r->n, KIND_OPTIMIZER, state, k == 1 ? "master" : "moment");
    for (int k = 0; k <= 3; k++)
        op.in[k] = op.out[k];
    op.in[4] = r->sum[i];
    net_add(r->n, &op);
}

struct graph *model_ranks(const struct ranks_shape *s, const struct machine *m)
{
    struct rank r = {.n = net_new(), .s = s};
    r.x[0] = net_feed(r.n, s->stream);
    for (int32_t i = 0; i < s->layers; i++)
        forward(&r, i);
    int32_t dy =
        net_make(r.n, KIND_TEMPORARY, s->stream,
                 &(struct net_op){.phase = GRAPH_BACKWARD, .name = "loss", .in = {r.x[s->layers]}});
    for (int32_t i = s->layers - 1; i >= 0; i--)
        dy = backward(&r, i, dy);
    for (int32_t i = s->layers - 1; i >= 0 && !s->early; i--)
        r.sum[i] = reduce(&r, i, GRAPH_UPDATE);
    for (int32_t i = 0; i < s->layers; i++)
        update(&r, i);
    return net_finish(r.n, m);
}
