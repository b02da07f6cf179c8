/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holds worth trying for one storage: kept, held from the first time it is made again, held
 * from one of its own uses in the backward pass, made for every use anew; and with a gap in the
 * forward or the backward pass.
 */
#include <stdlib.h>
#include "plan/search/search.h"

#define SMALL 80 /* ops; in programs that small every hold is worth a try */

/*
 * A storage that is a smaller part of the largest one is always kept.  The search changes one
 * storage at a time, so an op with two results to keep, of which one is a scalar, would run again
 * for that: modulated norms in front of 8-bit layers did in 91 of 112 places of XL/2 under 28G.
 */
#define TINY 65536

void levels_free(struct levels *l)
{
    free(l->start);
    free(l->holds);
}

static int64_t largest_storage(const struct graph *g)
{
    int64_t most = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        most = max_i64(most, g->storages[s].bytes);
    return most;
}

/* Adds hold to the list of the storage that begins at from, once. */
static void add_level(struct levels *l, int32_t from, int32_t hold)
{
    for (int32_t i = from; i < l->n; i++)
        if (l->holds[i] == hold)
            return;
    l->holds[l->n++] = hold;
}

/* Per storage the contexts of its first and last backward use, or -1. */
static void find_uses(const struct program *p, int32_t *first, int32_t *last)
{
    const struct graph *g = p->g;
    for (int32_t s = 0; s < g->n_storages; s++)
        first[s] = last[s] = -1;
    for (int32_t i = 0; i < g->n_body; i++)
        for (int32_t j = 0; j < g->ops[i].n_reads && g->ops[i].phase != GRAPH_FORWARD; j++) {
            int32_t s = g->refs[g->ops[i].reads + j];
            first[s] = first[s] < 0 ? p->context[i] : first[s];
            last[s] = p->context[i];
        }
}

static void list_levels(struct levels *l, const struct program *p, int32_t s, int32_t first,
                        int32_t last)
{
    int32_t from = l->n;
    bool skips = p->skip_to[s] - p->skip_from[s] > 1;
    add_level(l, from, HOLD_ALWAYS);
    add_level(l, from, p->g->n_body - 1);
    if (first >= 0)
        add_level(l, from, first);
    if (last >= 0)
        add_level(l, from, last);
    for (int32_t i = p->g->n_body - 1; i >= 0 && p->g->n_ops <= SMALL; i--)
        if (p->context[i] < p->g->n_body && p->context[i] >= 0)
            add_level(l, from, p->context[i]);
    add_level(l, from, HOLD_NEVER);
    int32_t plain = l->n, body = p->g->n_body;
    bool breaks = p->break_to[s] - p->break_from[s] > 1;
    if (breaks) {
        add_level(l, from, body - 1 + HOLD_BREAK);
        add_level(l, from, body + HOLD_BREAK);
    }
    for (int32_t i = from + 1; skips && i < plain; i++)
        add_level(l, from, l->holds[i] + HOLD_SKIP);
    if (skips)
        add_level(l, from, body + HOLD_SKIP);
    if (skips && breaks)
        add_level(l, from, body + HOLD_SKIP + HOLD_BREAK);
}

int levels_build(const struct program *p, struct levels *l)
{
    size_t n = (size_t)p->g->n_storages + 1;
    int32_t *uses = calloc(2 * n, sizeof(*uses));
    *l = (struct levels){calloc(n + 1, sizeof(*l->start)), NULL, 0};
    l->holds =
        calloc((MOST_LEVELS + (p->g->n_ops <= SMALL ? 2 * SMALL : 0)) * n, sizeof(*l->holds));
    if (!uses || !l->start || !l->holds) {
        free(uses);
        levels_free(l);
        *l = (struct levels){0};
        return CKPT_ENOMEM;
    }
    find_uses(p, uses, uses + n);
    const int64_t tiny = largest_storage(p->g) / TINY;
    for (int32_t s = 0; s < p->g->n_storages; s++) {
        if (p->droppable[s] && p->g->storages[s].bytes < tiny)
            add_level(l, l->n, HOLD_ALWAYS);
        else if (p->droppable[s])
            list_levels(l, p, s, uses[s], uses[n + (size_t)s]);
        l->start[s + 1] = l->n;
    }
    free(uses);
    return 0;
}
