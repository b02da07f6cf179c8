/* SPDX-License-Identifier: Apache-2.0 */
/* Builder of benchmark programs: forward ops, their gradients and the update. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "net.h"

static void room(void **data, int64_t *capacity, int64_t count, size_t element)
{
    if (array_reserve(data, capacity, count, element)) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
}

static void *zeros(int64_t n, size_t element)
{
    void *p = calloc((size_t)n + 1, element);
    if (!p) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return p;
}

struct net *net_new(void)
{
    struct net *n = zeros(1, sizeof(*n));
    n->g = zeros(1, sizeof(*n->g));
    n->g->n_micro = 1;
    n->label = "model";
    n->gradient = 4;
    net_storage(n, KIND_TEMPORARY, 1, "nothing"); /* so that 0 ends a list */
    return n;
}

int32_t net_storage(struct net *n, enum graph_kind kind, int64_t bytes, const char *name)
{
    struct graph *g = n->g;
    room((void **)&g->storages, &n->storage_room, g->n_storages, sizeof(*g->storages));
    g->storages[g->n_storages] =
        (struct graph_storage){.bytes = round_up(max_i64(1, bytes), CKPT_ALIGN),
                               .kind = kind,
                               .persistent = kind == KIND_PARAMETER || kind == KIND_OPTIMIZER,
                               .tape_storage = g->n_storages,
                               .name = strdup(name)};
    return g->n_storages++;
}

/* Adds s to the list that starts at first, once. */
static void add_ref(struct net *n, int32_t first, int32_t s)
{
    struct graph *g = n->g;
    for (int32_t i = first; i < g->n_refs; i++)
        if (g->refs[i] == s)
            return;
    room((void **)&g->refs, &n->ref_room, g->n_refs, sizeof(*g->refs));
    g->refs[g->n_refs++] = s;
}

static void list_refs(struct net *n, int32_t first, const int32_t *operands)
{
    for (int32_t j = 0; j < NET_OPERANDS && operands[j] > 0; j++)
        add_ref(n, first, operands[j]);
}

static double operand_bytes(const struct graph *g, const struct graph_op *o)
{
    double bytes = 0;
    for (int32_t j = 0; j < o->n_reads; j++)
        bytes += (double)g->storages[g->refs[o->reads + j]].bytes;
    for (int32_t j = 0; j < o->n_writes; j++)
        bytes += (double)g->storages[g->refs[o->writes + j]].bytes;
    return bytes;
}

int32_t net_add(struct net *n, const struct net_op *op)
{
    struct graph *g = n->g;
    char name[128];
    room((void **)&g->ops, &n->op_room, g->n_ops, sizeof(*g->ops));
    snprintf(name, sizeof(name), "%s in %s", op->name, n->label);
    struct graph_op *o = &g->ops[g->n_ops];
    *o = (struct graph_op){.phase = op->phase,
                           .rerunnable = op->phase == GRAPH_FORWARD,
                           .workspace = round_up(op->workspace, CKPT_ALIGN),
                           .seconds = op->seconds,
                           .flops = op->flops,
                           .tape_op = g->n_ops,
                           .name = strdup(name)};
    o->reads = g->n_refs;
    list_refs(n, o->reads, op->in);
    for (int32_t j = 0; j < op->n_more; j++)
        add_ref(n, o->reads, op->more[j]);
    o->n_reads = g->n_refs - o->reads;
    o->writes = g->n_refs;
    list_refs(n, o->writes, op->out);
    o->n_writes = g->n_refs - o->writes;
    o->bytes = op->bytes > 0 ? op->bytes : operand_bytes(g, o);
    if (op->phase != GRAPH_UPDATE)
        g->n_body = g->n_ops + 1;
    return g->n_ops++;
}

int32_t net_make(struct net *n, enum graph_kind kind, int64_t bytes, const struct net_op *op)
{
    struct net_op o = *op;
    o.out[0] = net_storage(n, kind, bytes, op->name);
    net_add(n, &o);
    return o.out[0];
}

int32_t net_feed(struct net *n, int64_t bytes)
{
    return net_make(n, KIND_INPUT, bytes, &(struct net_op){.name = "feed", .seconds = 1e-6});
}

int32_t net_param(struct net *n, int64_t numel, int64_t element, const char *name)
{
    room((void **)&n->params.data, &n->params.capacity, n->n_params, sizeof(*n->params.data));
    int32_t s = net_storage(n, KIND_PARAMETER, numel * element, name);
    n->params.data[n->n_params++] = (struct net_param){.value = s, .numel = numel};
    return s;
}

/* ---- layers and their gradients ------------------------------------------------------------- */

int32_t net_layer(struct net *n, struct net_layer l)
{
    struct net_op op = {.name = l.name, .flops = l.flops, .seconds = l.seconds};
    int32_t k = l.n_in;
    memcpy(op.in, l.in, sizeof(l.in));
    if (l.weight > 0) {
        l.w = n->n_params;
        op.in[k] = net_param(n, l.weight, 4, "weight");
    }
    if (l.stats > 0)
        op.out[1] = l.side = net_storage(n, KIND_ACTIVATION, l.stats, "statistics");
    op.out[0] = l.out = net_storage(n, KIND_ACTIVATION, l.bytes, l.name);
    net_add(n, &op);
    room((void **)&n->layers.data, &n->layers.capacity, n->n_layers, sizeof(*n->layers.data));
    n->layers.data[n->n_layers++] = l;
    return l.out;
}

static void gradient_of_weight(struct net *n, const struct net_layer *l, int32_t dy)
{
    struct net_param *p = &n->params.data[l->w];
    struct net_op op = {.phase = GRAPH_BACKWARD,
                        .name = "weight gradient",
                        .in = {dy, l->in[0]},
                        .flops = l->flops,
                        .seconds = l->seconds};
    p->gradient = net_make(n, KIND_GRADIENT, n->gradient * p->numel, &op);
}

static void gradient_of_input(struct net *n, const struct net_layer *l, int32_t i, int32_t dy,
                              int32_t *gradient)
{
    struct net_op op = {.phase = GRAPH_BACKWARD,
                        .name = "gradient",
                        .in = {dy},
                        .flops = l->flops,
                        .seconds = l->seconds};
    int32_t k = 1;
    if (l->weight > 0)
        op.in[k++] = n->params.data[l->w].value;
    for (int32_t j = 0; j < l->n_in; j++)
        if (l->needs >> j & 1)
            op.in[k++] = l->in[j];
    if (l->needs & NET_OUTPUT)
        op.in[k++] = l->out;
    if (l->stats > 0)
        op.in[k++] = l->side;
    if (gradient[l->in[i]] > 0)
        op.in[k++] = gradient[l->in[i]]; /* the sum so far */
    gradient[l->in[i]] = net_make(n, KIND_TEMPORARY, n->g->storages[l->in[i]].bytes, &op);
}

void net_backward(struct net *n)
{
    int32_t *gradient = zeros(n->g->n_storages, sizeof(*gradient));
    int32_t known = n->g->n_storages;
    struct net_layer *loss = &n->layers.data[n->n_layers - 1];
    gradient[loss->out] = net_make(
        n, KIND_TEMPORARY, n->g->storages[loss->out].bytes,
        &(struct net_op){
            .phase = GRAPH_BACKWARD, .name = "loss", .in = {loss->out}, .seconds = loss->seconds});
    for (int32_t i = n->n_layers - 1; i >= 0; i--) {
        const struct net_layer *l = &n->layers.data[i];
        int32_t dy = gradient[l->out];
        if (dy == 0)
            continue;
        if (l->weight > 0) /* first, so that its input may go before the input's gradient comes */
            gradient_of_weight(n, l, dy);
        for (int32_t j = 0; j < l->n_in; j++)
            if (l->in[j] < known && n->g->storages[l->in[j]].kind == KIND_ACTIVATION)
                gradient_of_input(n, l, j, dy, gradient);
    }
    free(gradient);
}

/* ---- updates -------------------------------------------------------------------------------- */

static int32_t clip_factor(struct net *n)
{
    int32_t *parts = zeros(n->n_params, sizeof(*parts));
    for (int32_t i = 0; i < n->n_params; i++)
        parts[i] = net_make(n, KIND_TEMPORARY, 4,
                            &(struct net_op){.phase = GRAPH_UPDATE,
                                             .name = "sum_squares",
                                             .in = {n->params.data[i].gradient}});
    int32_t factor = net_make(n, KIND_TEMPORARY, 8,
                              &(struct net_op){.phase = GRAPH_UPDATE,
                                               .name = "clip_coefficient",
                                               .more = parts,
                                               .n_more = n->n_params});
    free(parts);
    return factor;
}

void net_adamw(struct net *n, bool master, bool ema)
{
    int32_t clip = clip_factor(n);
    for (int32_t i = 0; i < n->n_params; i++) {
        const struct net_param *p = &n->params.data[i];
        struct net_op op = {.phase = GRAPH_UPDATE, .name = "adamw"};
        int32_t k = 0;
        op.out[k++] = p->value;
        for (int32_t j = 0; j < 2 + master + ema; j++)
            op.out[k++] = net_storage(n, KIND_OPTIMIZER, 4 * p->numel, "moment");
        memcpy(op.in, op.out, sizeof(op.in));
        op.in[k++] = p->gradient;
        op.in[k++] = clip;
        net_add(n, &op);
    }
}

void net_sgd(struct net *n)
{
    for (int32_t i = 0; i < n->n_params; i++) {
        const struct net_param *p = &n->params.data[i];
        int32_t v = net_storage(n, KIND_OPTIMIZER, 4 * p->numel, "momentum");
        net_add(n, &(struct net_op){.phase = GRAPH_UPDATE,
                                    .name = "sgd",
                                    .in = {p->value, v, p->gradient},
                                    .out = {p->value, v}});
    }
}

struct graph *net_finish(struct net *n, const struct machine *m)
{
    struct graph *g = n->g;
    free(n->params.data);
    free(n->layers.data);
    free(n);
    if (m)
        graph_price(g, m);
    return g;
}
