/* SPDX-License-Identifier: Apache-2.0 */
/* A graph of several ranks that can be resized: see scaling_study.c. */
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/scale/scaling_graph.h"

/* SIZE_VALUES: whole in memory, but an op of the update uses a shard. */
enum size { SIZE_FIXED, SIZE_SHARE, SIZE_VALUES, SIZE_WHOLE };

struct work {
    double flops, bytes;
    double operands; /* bytes of its operands */
    uint64_t key;
};

struct scaling_graph {
    struct graph *g;
    enum scaling_kind kind;
    int64_t group;     /* ranks of a shard group, as last resized */
    enum size *size;   /* per storage */
    int64_t *bytes;    /* per storage: of all ranks together */
    int32_t *ranks;    /* per storage: that share it, as recorded */
    int32_t *stride;   /* per storage: one of so many ranks shares it; 0: all do */
    struct work *work; /* per op: as recorded */
    struct pool memory;
};

struct graph *scaling_graph(const struct scaling_graph *w)
{
    return w->g;
}

void scaling_graph_free(struct scaling_graph *w)
{
    if (!w)
        return;
    graph_free(w->g);
    pool_free(&w->memory);
    free(w);
}

/* ---- the copy -------------------------------------------------------------------------------- */

/* The copy has no names: a study prints none. */
static int copy_graph(const struct graph *from, struct graph **out)
{
    struct graph *g = calloc(1, sizeof(*g));
    *out = g;
    if (!g)
        return CKPT_ENOMEM;
    *g = (struct graph){.n_body = from->n_body,
                        .n_refs = from->n_refs,
                        .n_micro = from->n_micro,
                        .pipeline = from->pipeline};
    g->storages = calloc((size_t)from->n_storages + 1, sizeof(*g->storages));
    g->ops = calloc((size_t)from->n_ops + 1, sizeof(*g->ops));
    g->refs = calloc((size_t)from->n_refs + 1, sizeof(*g->refs));
    if (!g->storages || !g->ops || !g->refs)
        return CKPT_ENOMEM;
    memcpy(g->refs, from->refs, (size_t)from->n_refs * sizeof(*g->refs));
    for (; g->n_storages < from->n_storages; g->n_storages++) {
        g->storages[g->n_storages] = from->storages[g->n_storages];
        g->storages[g->n_storages].name = NULL;
    }
    for (; g->n_ops < from->n_ops; g->n_ops++) {
        g->ops[g->n_ops] = from->ops[g->n_ops];
        g->ops[g->n_ops].name = NULL;
        g->ops[g->n_ops].drop_after_forward = false; /* no layout of a study has that */
    }
    return 0;
}

/* ---- what scales ----------------------------------------------------------------------------- */

/* bytes: of a storage that `ranks` share, each stride-th one. */
static void set_size(struct scaling_graph *w, int32_t s, enum size size, int64_t bytes,
                     int32_t ranks, int32_t stride)
{
    w->size[s] = size;
    w->bytes[s] = bytes;
    w->ranks[s] = ranks;
    w->stride[s] = stride;
}

/* Of n ranks, those that share something. */
static int64_t sharers(int64_t n, int32_t stride)
{
    return stride ? max_i64(1, n / stride) : n;
}

/* Sets the sizes of inputs and outputs of the collectives of buckets.  Returns the number of
 * gathers of parameters. */
static int32_t size_collectives(struct scaling_graph *w)
{
    const struct graph *g = w->g;
    int32_t gathers = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        if (o->collective != GRAPH_ALL_GATHER && o->collective != GRAPH_REDUCE_SCATTER)
            continue;
        bool gather = o->collective == GRAPH_ALL_GATHER;
        int32_t in = g->refs[o->reads], out = g->refs[o->writes];
        int64_t bytes = g->storages[gather ? out : in].bytes;
        gathers += gather && in != out && g->storages[in].persistent;
        set_size(w, in, gather ? SIZE_SHARE : SIZE_WHOLE, bytes, o->ranks, o->stride);
        set_size(w, out, gather ? SIZE_WHOLE : SIZE_SHARE, bytes, o->ranks, o->stride);
    }
    return gathers;
}

/* Marks sharded state: persistent storages that an op of the update writes while it reads a shard.
 */
static void size_states(struct scaling_graph *w)
{
    const struct graph *g = w->g;
    for (int32_t i = g->n_body; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        int32_t share = -1;
        for (int32_t j = 0; j < o->n_reads; j++)
            share = w->size[g->refs[o->reads + j]] == SIZE_SHARE ? g->refs[o->reads + j] : share;
        for (int32_t j = 0; j < o->n_writes && share >= 0 && !o->collective; j++) {
            int32_t s = g->refs[o->writes + j];
            if (g->storages[s].persistent && w->size[s] == SIZE_FIXED)
                set_size(w, s, SIZE_SHARE, g->storages[s].bytes * w->ranks[share], w->ranks[share],
                         w->stride[share]);
        }
    }
}

int32_t scaling_sequence(const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective == GRAPH_ALL_TO_ALL)
            return g->ops[i].ranks;
    return 1;
}

int32_t scaling_tensor(const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].within_layer)
            return g->ops[i].ranks;
    return 1;
}

static bool has_strides(const struct graph *g)
{
    bool found = false;
    for (int32_t i = 0; i < g->n_ops; i++)
        found |= g->ops[i].stride > 0;
    return found;
}

bool scaling_has_groups(const struct graph *g, int32_t ranks)
{
    const int32_t stages = g->pipeline.stages, n = stages ? stages : scaling_tensor(g);
    if (n < 2 || ranks == n || has_strides(g))
        return true;
    if (stages)
        error_set(CKPT_EINVAL,
                  "the graph is of one pipeline, which does not say how several share parameters; "
                  "record it with --ranks %d --stages %d",
                  2 * (int)n, (int)n);
    else
        error_set(
            CKPT_EINVAL,
            "the graph is of one group that splits layers, which does not say how several share "
            "them; record it with --ranks %d --tensor %d",
            2 * (int)n, (int)n);
    return false;
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Bytes of an op's operands; an op of the update uses its shard of SIZE_VALUES storages. */
static double operand_bytes(const struct scaling_graph *w, const struct graph_op *o)
{
    bool updates = o->phase == GRAPH_UPDATE && !o->collective;
    double bytes = 0;
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        int32_t s = graph_ref(w->g, o, j);
        int64_t all = w->g->storages[s].bytes;
        bytes +=
            (double)(updates && w->size[s] == SIZE_VALUES ? all / sharers(w->group, w->stride[s])
                                                          : all);
    }
    return bytes;
}

static int keep_work(struct scaling_graph *w)
{
    const struct graph *g = w->g;
    if (!POOL_ARRAY(&w->memory, w->work, g->n_ops))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        w->work[i] = (struct work){o->flops, o->bytes, operand_bytes(w, o), o->cost_key};
    }
    return 0;
}

/* ---- other gathers ------------------------------------------------------------------------- */

static void rename_storage(struct graph *g, int32_t from, int32_t to)
{
    for (int32_t r = 0; r < g->n_refs; r++)
        if (g->refs[r] == from)
            g->refs[r] = to;
}

/* Removes duplicates from a list of refs; returns its new length. */
static int32_t unique(int32_t *refs, int32_t n)
{
    int32_t kept = 0;
    for (int32_t j = 0; j < n; j++) {
        int32_t k = 0;
        while (k < kept && refs[k] != refs[j])
            k++;
        if (k == kept)
            refs[kept++] = refs[j];
    }
    return kept;
}

/* Removes the gathers; their outputs are renamed to their inputs.  Returns their number. */
static int32_t take_gathers(struct scaling_graph *w, struct graph_op *gathers)
{
    struct graph *g = w->g;
    int32_t kept = 0, body = 0, n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        if (o->collective == GRAPH_ALL_GATHER) {
            int32_t in = g->refs[o->reads];
            rename_storage(g, g->refs[o->writes], in);
            w->size[in] = SIZE_VALUES;
            gathers[n++] = *o;
            continue;
        }
        body += i < g->n_body;
        w->work[kept] = w->work[i];
        g->ops[kept++] = *o;
    }
    g->n_ops = kept;
    g->n_body = body;
    return n;
}

/* Inserts gathers in place after the ops that update their values. */
static void put_gathers(struct scaling_graph *w, struct graph_op *gathers, int32_t n)
{
    struct graph *g = w->g;
    for (int32_t k = 0; k < n; k++) {
        int32_t at = g->n_ops;
        while (at > g->n_body && !graph_op_writes(g, &g->ops[at - 1], g->refs[gathers[k].writes]))
            at--;
        at = at > g->n_body ? at : g->n_ops;
        memmove(&g->ops[at + 1], &g->ops[at], (size_t)(g->n_ops - at) * sizeof(*g->ops));
        memmove(&w->work[at + 1], &w->work[at], (size_t)(g->n_ops - at) * sizeof(*w->work));
        g->ops[at] = gathers[k];
        g->ops[at].phase = GRAPH_UPDATE;
        g->ops[at].rerunnable = false;
        g->n_ops++;
    }
}

/* Without shards: gradients are summed in place. */
static void sum_in_place(struct scaling_graph *w)
{
    struct graph *g = w->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        if (o->collective != GRAPH_REDUCE_SCATTER)
            continue;
        o->collective = GRAPH_ALL_REDUCE;
        rename_storage(g, g->refs[o->writes], g->refs[o->reads]);
    }
    for (int32_t s = 0; s < g->n_storages; s++)
        if (w->size[s] == SIZE_SHARE)
            w->size[s] = SIZE_WHOLE;
}

static int change_gathers(struct scaling_graph *w)
{
    struct graph *g = w->g;
    struct graph_op *gathers = pool_array(&w->memory, g->n_ops, sizeof(*gathers));
    if (!gathers)
        return CKPT_ENOMEM;
    int32_t n = take_gathers(w, gathers);
    if (w->kind == SCALING_STATE)
        put_gathers(w, gathers, n);
    else
        sum_in_place(w);
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        o->n_reads = unique(g->refs + o->reads, o->n_reads);
        o->n_writes = unique(g->refs + o->writes, o->n_writes);
    }
    return 0;
}

int scaling_graph_new(const struct graph *g, enum scaling_kind kind, struct scaling_graph **out)
{
    struct scaling_graph *w = calloc(1, sizeof(*w));
    *out = w;
    if (!w || copy_graph(g, &w->g))
        return CKPT_ENOMEM;
    w->kind = kind;
    POOL_ARRAY(&w->memory, w->size, g->n_storages);
    POOL_ARRAY(&w->memory, w->bytes, g->n_storages);
    POOL_ARRAY(&w->memory, w->ranks, g->n_storages);
    POOL_ARRAY(&w->memory, w->stride, g->n_storages);
    if (w->memory.failed)
        return CKPT_ENOMEM;
    if (!size_collectives(w) && g->pipeline.pipelines != 1)
        return error_set(CKPT_EINVAL,
                         "the graph is of a step whose ranks share no parameters; record it with "
                         "%s --plan-only --graph-out FILE",
                         g->pipeline.stages ? "--zero 2" : "--ranks 2");
    size_states(w);
    return keep_work(w) || (kind != SCALING_SHARED && change_gathers(w)) ? CKPT_ENOMEM : 0;
}

/* ---- resizing -------------------------------------------------------------------------------- */

/* The work of an op on shards scales with their size; it then has no measured time. */
static void resize_op(struct scaling_graph *w, int32_t i, const struct scaling_layout *l)
{
    struct graph_op *o = &w->g->ops[i];
    double before = w->work[i].operands;
    double ratio = before > 0 ? operand_bytes(w, o) / before : 1;
    bool same = ratio > .999 && ratio < 1.001;
    o->flops = w->work[i].flops * (same ? 1 : ratio);
    o->bytes = w->work[i].bytes * (same ? 1 : ratio);
    o->cost_key = same ? w->work[i].key : 0;
    if (!o->collective || o->collective >= GRAPH_ALL_TO_ALL || o->within_layer)
        return; /* groups keep their size */
    bool all = o->collective == GRAPH_ALL_REDUCE;
    o->ranks = (int32_t)sharers(all ? l->ranks : l->group, o->stride);
    o->replicas = o->collective == GRAPH_REDUCE_SCATTER ? l->ranks / l->group : 1;
}

void scaling_graph_resize(struct scaling_graph *w, const struct scaling_layout *l,
                          const struct machine *m)
{
    struct graph *g = w->g;
    int64_t group = w->group = w->kind == SCALING_WHOLE ? 1 : l->group;
    if (g->pipeline.stages)
        g->pipeline.pipelines = (int32_t)sharers(l->ranks, g->pipeline.stages);
    for (int32_t s = 0; s < g->n_storages; s++) {
        if (w->size[s] == SIZE_FIXED)
            continue;
        const int64_t parts = w->size[s] == SIZE_SHARE ? sharers(group, w->stride[s]) : 1;
        g->storages[s].bytes = round_up((w->bytes[s] + parts - 1) / parts, CKPT_ALIGN);
    }
    for (int32_t i = 0; i < g->n_ops; i++)
        resize_op(w, i, l);
    graph_price(g, m);
}
