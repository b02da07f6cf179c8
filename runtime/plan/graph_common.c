/* What every graph needs, whoever built it. */
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
    h = hash_mix(h, o->rerunnable);
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
