/* A graph of several ranks that can be resized: see world.c. */
#include <stdlib.h>
#include <string.h>
#include "plan/comm.h"
#include "plan/world_graph.h"

enum size { SIZE_FIXED, SIZE_SHARE, SIZE_WHOLE };

struct work {
    double flops, bytes;
    uint64_t key;
};

struct world_graph {
    struct graph *g;
    bool whole;
    enum size *size;   /* per storage */
    int64_t *bytes;    /* per storage: of all ranks together */
    int64_t *before;   /* per storage: as it was recorded */
    struct work *work; /* per op: as it was recorded */
};

struct graph *world_graph(const struct world_graph *w)
{
    return w->g;
}

void world_graph_free(struct world_graph *w)
{
    if (!w)
        return;
    graph_free(w->g);
    free(w->size);
    free(w->bytes);
    free(w->before);
    free(w->work);
    free(w);
}

/* ---- the copy -------------------------------------------------------------------------------- */

static int copy_names(struct graph *to, const struct graph *from)
{
    for (int32_t s = 0; s < from->n_storages; s++) {
        to->storages[s] = from->storages[s];
        to->storages[s].name = strdup(from->storages[s].name ? from->storages[s].name : "");
        to->n_storages = s + 1;
        if (!to->storages[s].name)
            return CKPT_ENOMEM;
    }
    for (int32_t i = 0; i < from->n_ops; i++) {
        to->ops[i] = from->ops[i];
        to->ops[i].passing = false; /* of the ways to share here none asks for that */
        to->ops[i].name = strdup(from->ops[i].name ? from->ops[i].name : "");
        to->n_ops = i + 1;
        if (!to->ops[i].name)
            return CKPT_ENOMEM;
    }
    return 0;
}

static int copy_graph(const struct graph *from, struct graph **out)
{
    struct graph *g = calloc(1, sizeof(*g));
    *out = g;
    if (!g)
        return CKPT_ENOMEM;
    *g = (struct graph){.n_body = from->n_body, .n_refs = from->n_refs, .n_micro = from->n_micro};
    g->storages = calloc((size_t)from->n_storages + 1, sizeof(*g->storages));
    g->ops = calloc((size_t)from->n_ops + 1, sizeof(*g->ops));
    g->refs = calloc((size_t)from->n_refs + 1, sizeof(*g->refs));
    if (!g->storages || !g->ops || !g->refs)
        return CKPT_ENOMEM;
    memcpy(g->refs, from->refs, (size_t)from->n_refs * sizeof(*g->refs));
    return copy_names(g, from);
}

/* ---- what scales ----------------------------------------------------------------------------- */

static void set_size(struct world_graph *w, int32_t s, enum size size, int64_t bytes)
{
    w->size[s] = size;
    w->bytes[s] = bytes;
}

/* The two sides of the collectives of buckets.  Returns how many gathers there are. */
static int32_t size_collectives(struct world_graph *w)
{
    const struct graph *g = w->g;
    int32_t gathers = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        if (o->collective != GRAPH_ALL_GATHER && o->collective != GRAPH_REDUCE_SCATTER)
            continue;
        bool gather = o->collective == GRAPH_ALL_GATHER;
        int32_t in = g->refs[o->reads], out = g->refs[o->writes];
        int64_t bytes = g->storages[gather ? in : out].bytes * o->ranks;
        gathers += gather && in != out && g->storages[in].persistent;
        set_size(w, in, gather ? SIZE_SHARE : SIZE_WHOLE, bytes);
        set_size(w, out, gather ? SIZE_WHOLE : SIZE_SHARE, bytes);
    }
    return gathers;
}

/* The state beside a sum of gradients: what the same op of the update writes for good. */
static void size_states(struct world_graph *w, int32_t ranks)
{
    const struct graph *g = w->g;
    for (int32_t i = g->n_body; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        bool shares = false;
        for (int32_t j = 0; j < o->n_reads; j++)
            shares |= w->size[g->refs[o->reads + j]] == SIZE_SHARE;
        for (int32_t j = 0; j < o->n_writes && shares && !o->collective; j++) {
            int32_t s = g->refs[o->writes + j];
            if (g->storages[s].persistent && w->size[s] == SIZE_FIXED)
                set_size(w, s, SIZE_SHARE, g->storages[s].bytes * ranks);
        }
    }
}

static int32_t ranks_of(const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective)
            return g->ops[i].ranks;
    return 1;
}

/* ---- without gathers ------------------------------------------------------------------------- */

static void rename_storage(struct graph *g, int32_t from, int32_t to)
{
    for (int32_t r = 0; r < g->n_refs; r++)
        if (g->refs[r] == from)
            g->refs[r] = to;
}

/* Storages that now have one name stand once in a list. */
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

/* What was gathered is there; gradients are summed in place. */
static void leave_out_gathers(struct world_graph *w)
{
    struct graph *g = w->g;
    int32_t kept = 0, body = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        int32_t in = o->collective ? g->refs[o->reads] : -1;
        int32_t out = o->collective ? g->refs[o->writes] : -1;
        bool gather = o->collective == GRAPH_ALL_GATHER;
        if ((gather || o->collective == GRAPH_REDUCE_SCATTER) && in != out)
            rename_storage(g, out, in);
        if (o->collective == GRAPH_REDUCE_SCATTER)
            o->collective = GRAPH_ALL_REDUCE;
        if (gather) {
            free(o->name);
            continue;
        }
        body += i < g->n_body;
        g->ops[kept++] = *o;
    }
    g->n_ops = kept;
    g->n_body = body;
    for (int32_t i = 0; i < g->n_ops; i++) {
        struct graph_op *o = &g->ops[i];
        o->n_reads = unique(g->refs + o->reads, o->n_reads);
        o->n_writes = unique(g->refs + o->writes, o->n_writes);
    }
    for (int32_t s = 0; s < g->n_storages; s++)
        if (w->size[s] == SIZE_SHARE)
            w->size[s] = SIZE_WHOLE;
}

static int keep_work(struct world_graph *w)
{
    const struct graph *g = w->g;
    w->before = calloc((size_t)g->n_storages + 1, sizeof(*w->before));
    w->work = calloc((size_t)g->n_ops + 1, sizeof(*w->work));
    if (!w->before || !w->work)
        return CKPT_ENOMEM;
    for (int32_t s = 0; s < g->n_storages; s++)
        w->before[s] = g->storages[s].bytes;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        w->work[i] = (struct work){o->flops, o->bytes, o->cost_key};
    }
    return 0;
}

int world_graph_new(const struct graph *g, bool whole, struct world_graph **out,
                    char message[CKPT_MESSAGE])
{
    struct world_graph *w = calloc(1, sizeof(*w));
    *out = w;
    if (!w || copy_graph(g, &w->g))
        return CKPT_ENOMEM;
    w->whole = whole;
    w->size = calloc((size_t)g->n_storages + 1, sizeof(*w->size));
    w->bytes = calloc((size_t)g->n_storages + 1, sizeof(*w->bytes));
    if (!w->size || !w->bytes)
        return CKPT_ENOMEM;
    if (!size_collectives(w)) {
        snprintf(message, CKPT_MESSAGE,
                 "the graph is of a step whose ranks share no parameters; record it with "
                 "--ranks 2 --plan-only --graph-out FILE");
        return CKPT_EINVAL;
    }
    size_states(w, ranks_of(g));
    if (whole)
        leave_out_gathers(w);
    return keep_work(w);
}

/* ---- resizing -------------------------------------------------------------------------------- */

static double operand_bytes(const struct world_graph *w, const struct graph_op *o, bool before)
{
    double bytes = 0;
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        int32_t s = w->g->refs[j < o->n_reads ? o->reads + j : o->writes + j - o->n_reads];
        bytes += (double)(before ? w->before[s] : w->g->storages[s].bytes);
    }
    return bytes;
}

/* An op on shares has work in proportion to them, and no measured time. */
static void resize_op(struct world_graph *w, int32_t i, const struct world_layout *l)
{
    struct graph_op *o = &w->g->ops[i];
    double before = operand_bytes(w, o, true);
    double ratio = before > 0 ? operand_bytes(w, o, false) / before : 1;
    bool same = ratio > .999 && ratio < 1.001;
    o->flops = w->work[i].flops * (same ? 1 : ratio);
    o->bytes = w->work[i].bytes * (same ? 1 : ratio);
    o->cost_key = same ? w->work[i].key : 0;
    if (!o->collective)
        return;
    bool all = o->collective == GRAPH_ALL_REDUCE;
    o->ranks = all ? l->ranks : l->group;
    o->replicas = o->collective == GRAPH_REDUCE_SCATTER ? l->ranks / l->group : 1;
}

void world_graph_resize(struct world_graph *w, const struct world_layout *l,
                        const struct machine *m)
{
    struct graph *g = w->g;
    int64_t group = w->whole ? 1 : l->group;
    for (int32_t s = 0; s < g->n_storages; s++) {
        if (w->size[s] == SIZE_FIXED)
            continue;
        int64_t share = round_up((w->bytes[s] + group - 1) / group, CKPT_ALIGN);
        g->storages[s].bytes = w->size[s] == SIZE_SHARE ? share : share * group;
    }
    for (int32_t i = 0; i < g->n_ops; i++)
        resize_op(w, i, l);
    graph_price(g, m);
}
