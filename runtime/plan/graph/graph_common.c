/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of graphs, independent of how they were built. */
#include <stdlib.h>
#include "plan/plan.h"

void graph_free(struct graph *g)
{
    if (!g)
        return;
    for (int32_t s = 0; g->storages && s < g->n_storages; s++)
        free(g->storages[s].name);
    for (int32_t i = 0; g->ops && i < g->n_ops; i++)
        free(g->ops[i].name);
    free(g->storages);
    free(g->ops);
    free(g->refs);
    free(g);
}

static int64_t transient_bytes(const struct graph *g, int32_t s)
{
    return g->storages[s].persistent ? 0 : g->storages[s].bytes;
}

static bool lists(const int32_t *refs, int32_t n, int32_t storage)
{
    for (int32_t j = 0; j < n; j++)
        if (refs[j] == storage)
            return true;
    return false;
}

bool graph_op_reads(const struct graph *g, const struct graph_op *o, int32_t storage)
{
    return lists(g->refs + o->reads, o->n_reads, storage);
}

bool graph_op_writes(const struct graph *g, const struct graph_op *o, int32_t storage)
{
    return lists(g->refs + o->writes, o->n_writes, storage);
}

int64_t graph_largest_op(const struct graph *g)
{
    int64_t largest = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        int64_t bytes = o->workspace;
        for (int32_t j = 0; j < o->n_reads; j++)
            bytes += transient_bytes(g, g->refs[o->reads + j]);
        for (int32_t j = 0; j < o->n_writes; j++)
            if (!graph_op_reads(g, o, g->refs[o->writes + j]))
                bytes += transient_bytes(g, g->refs[o->writes + j]);
        largest = max_i64(largest, bytes);
    }
    return largest;
}

static int64_t listed_bytes(const struct graph *g, int32_t first, int32_t n)
{
    int64_t bytes = 0;
    for (int32_t j = first; j < first + n; j++)
        bytes += g->storages[g->refs[j]].bytes;
    return bytes;
}

bool graph_is_cached(const struct graph *g, int32_t i, int32_t tape_storage, int64_t cache)
{
    for (i--; i >= 0 && cache > 0; i--) {
        const struct graph_op *o = &g->ops[i];
        const int64_t written = listed_bytes(g, o->writes, o->n_writes);
        for (int32_t j = 0; j < o->n_writes; j++)
            if (g->storages[g->refs[o->writes + j]].tape_storage == tape_storage)
                return written <= cache;
        cache -= written + listed_bytes(g, o->reads, o->n_reads);
    }
    return false;
}

int64_t graph_crossings_end(const struct graph *g)
{
    int64_t end = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        if (g->storages[s].crosses)
            end = max_i64(end, g->storages[s].crossing + g->storages[s].bytes);
    return end;
}

bool graph_op_updates(const struct graph *g, const struct graph_op *o)
{
    bool state = false;
    for (int32_t j = 0; j < o->n_writes; j++)
        state |= g->storages[g->refs[o->writes + j]].kind == KIND_OPTIMIZER;
    return state && o->phase == GRAPH_UPDATE && !o->workspace;
}

static uint64_t mix_storage(uint64_t h, const struct graph_storage *s)
{
    h = hash_mix(h, s->bytes);
    h = hash_mix(h, s->kind);
    return hash_mix(h, s->persistent | s->carried << 1);
}

static uint64_t mix_op(uint64_t h, const struct graph *g, const struct graph_op *o)
{
    h = hash_mix(h, o->n_reads);
    for (int32_t j = 0; j < o->n_reads; j++)
        h = hash_mix(h, g->refs[o->reads + j]);
    h = hash_mix(h, o->n_writes);
    for (int32_t j = 0; j < o->n_writes; j++)
        h = hash_mix(h, g->refs[o->writes + j]);
    h = hash_mix(h, o->workspace);
    h = hash_mix(h, o->phase);
    h = hash_mix(h,
                 o->rerunnable | (int64_t)o->collective << 1 | (int64_t)o->drop_after_forward << 8);
    if (o->stride || o->within_layer)
        h = hash_mix(hash_mix(h, o->stride), o->within_layer);
    return hash_mix(h, o->tape_op);
}

uint64_t graph_signature(const struct graph *g)
{
    uint64_t h = HASH_START;
    h = hash_mix(h, g->n_storages);
    h = hash_mix(h, g->n_ops);
    h = hash_mix(h, g->n_body);
    h = hash_mix(h, g->n_micro);
    for (int32_t s = 0; s < g->n_storages; s++)
        h = mix_storage(h, &g->storages[s]);
    for (int32_t i = 0; i < g->n_ops; i++)
        h = mix_op(h, g, &g->ops[i]);
    return h;
}
