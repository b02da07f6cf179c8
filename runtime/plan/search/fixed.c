/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the fixed storages and sums their bytes per op. */
#include "plan/search/fixed.h"

int baseline_new(const struct program *p, struct pool *m, struct baseline *t)
{
    POOL_ARRAY(m, t->rise, p->g->n_ops);
    POOL_ARRAY(m, t->fall, p->g->n_ops);
    return pool_status(m);
}

/* Fixed storages are placed and never dropped.  One that an op uses which may rerun must be
 * carried: others may stay longer for a rerun. */
static void find_fixed(struct fixed *y)
{
    const struct program *p = y->p;
    const struct graph *g = p->g;
    for (int32_t s = 0; s < g->n_storages; s++)
        y->is[s] = storage_placed(g, s) && !p->droppable[s];
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t j = 0; j < g->ops[i].n_reads + g->ops[i].n_writes && p->rerun[i]; j++) {
            const int32_t s = graph_ref(g, &g->ops[i], j);
            y->is[s] &= g->storages[s].carried;
        }
}

static int32_t list_variable(struct fixed *y, int32_t at, const int32_t *refs, int32_t n)
{
    int32_t count = 0;
    for (int32_t j = 0; j < n; j++)
        if (storage_placed(y->p->g, refs[j]) && !y->is[refs[j]])
            y->refs[at + count++] = refs[j];
    return count;
}

int fixed_build(const struct program *p, struct pool *m, struct fixed *y)
{
    const struct graph *g = p->g;
    *y = (struct fixed){.p = p};
    POOL_ARRAY(m, y->is, g->n_storages);
    POOL_ARRAY(m, y->met, g->n_storages);
    POOL_ARRAY(m, y->ops, g->n_ops);
    POOL_ARRAY(m, y->refs, g->n_refs);
    if (m->failed)
        return CKPT_ENOMEM;
    find_fixed(y);
    for (int32_t i = 0, at = 0; i < g->n_ops; i++) {
        struct variable_op *o = &y->ops[i];
        *o = (struct variable_op){.ticks = p->ticks[i],
                                  .workspace = g->ops[i].workspace,
                                  .refs = at,
                                  .strays = g->ops[i].n_writes > 1};
        at += o->n_reads = list_variable(y, at, g->refs + g->ops[i].reads, g->ops[i].n_reads);
        at += o->n_writes = list_variable(y, at, g->refs + g->ops[i].writes, g->ops[i].n_writes);
    }
    return 0;
}

bool fixed_stay(const struct fixed *y, int32_t s, int32_t *first, int32_t *last)
{
    return y->is[s] && storage_stays(y->p, s, first, last);
}

void baseline_of_program(const struct fixed *y, struct baseline *t)
{
    const struct graph *g = y->p->g;
    int32_t first, last;
    for (int32_t s = 0; s < g->n_storages; s++)
        if (fixed_stay(y, s, &first, &last)) {
            t->rise[first] += g->storages[s].bytes;
            t->fall[last] += g->storages[s].bytes;
        }
}

/* Bytes of the fixed storages of op i that this round has not seen; marks them seen. */
static int64_t meet(struct fixed *y, int32_t i)
{
    const struct graph *g = y->p->g;
    const struct graph_op *o = &g->ops[i];
    int64_t bytes = 0;
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        int32_t s = graph_ref(g, o, j);
        if (y->is[s] && y->met[s] != y->round)
            bytes += g->storages[s].bytes;
        y->met[s] = y->round;
    }
    return bytes;
}

void baseline_of_block(struct fixed *y, const struct block *b, struct baseline *t)
{
    y->round++;
    for (int32_t i = b->forward; i < b->forward_end; i++)
        t->rise[i] = meet(y, i);
    for (int32_t i = b->backward; i < b->backward_end; i++)
        t->rise[i] = meet(y, i);
    y->round++;
    for (int32_t i = b->backward_end - 1; i >= b->backward; i--)
        t->fall[i] = meet(y, i);
    for (int32_t i = b->forward_end - 1; i >= b->forward; i--)
        t->fall[i] = meet(y, i);
}
