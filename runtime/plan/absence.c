/*
 * Where storages idle long enough to leave: optimizer state from one update to the next, and
 * activations from the forward to the backward pass.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/transfer.h"

#define LEAST_PARKED (INT64_C(1) << 20) /* smaller copies take longer than their bytes say */

double *step_starts(const struct graph *g, const struct plan *p)
{
    double *start = malloc(((size_t)p->n_steps + 1) * sizeof(*start));
    if (!start)
        return NULL;
    start[0] = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        start[k + 1] = start[k] + g->ops[p->steps[k].op].seconds;
    return start;
}

/* Per storage: where the walk over the steps stands. */
struct idle {
    int32_t used;     /* the last step that used it, or -1 */
    int32_t first;    /* and the first */
    int32_t instance; /* of that use, or -1 */
    int32_t from, to; /* its longest gap in the body within one instance */
    int32_t within;   /* that instance */
};

static void walk_use(const struct plan *p, struct idle *x, int32_t s, int32_t step)
{
    struct idle *i = &x[s];
    bool inside = i->instance >= 0 && p->instances[i->instance].last >= step;
    if (i->used >= 0 && inside && step < p->n_body && step - i->used > i->to - i->from) {
        i->from = i->used;
        i->to = step;
        i->within = i->instance;
    }
    if (i->first < 0)
        i->first = step;
    i->used = step;
}

static void walk(const struct graph *g, const struct plan *p, struct idle *x)
{
    for (int32_t s = 0; s < g->n_storages; s++)
        x[s] = (struct idle){-1, -1, -1, 0, 0, -1};
    for (int32_t k = 0, n = 0; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        for (; n < p->n_instances && p->instances[n].first == k; n++)
            if (p->instances[n].storage >= 0)
                x[p->instances[n].storage].instance = n;
        for (int32_t j = 0; j < o->n_reads; j++)
            walk_use(p, x, g->refs[o->reads + j], k);
        for (int32_t j = 0; j < o->n_writes; j++)
            walk_use(p, x, g->refs[o->writes + j], k);
    }
}

static bool may_leave(const struct graph *g, const struct plan *p, const struct idle *x, int32_t s)
{
    const struct graph_storage *t = &g->storages[s];
    if (t->bytes < LEAST_PARKED)
        return false;
    if (t->persistent)
        return t->kind == KIND_OPTIMIZER && x[s].first >= p->n_body;
    return (t->kind == KIND_ACTIVATION || t->kind == KIND_INPUT) && !t->carried &&
           x[s].within >= 0 && x[s].to > x[s].from + 1;
}

static int compare_absences(const void *a, const void *b)
{
    const struct absence *x = a, *y = b;
    if ((x->instance < 0) != (y->instance < 0))
        return x->instance < 0 ? -1 : 1; /* what waits for the update goes first */
    if (x->out_step != y->out_step)
        return x->out_step < y->out_step ? -1 : 1;
    return (x->storage > y->storage) - (x->storage < y->storage);
}

int absences_find(const struct graph *g, const struct plan *p, struct absence **list, int32_t *n)
{
    struct idle *x = malloc(((size_t)g->n_storages + 1) * sizeof(*x));
    double *start = step_starts(g, p);
    *list = calloc((size_t)g->n_storages + 1, sizeof(**list));
    *n = 0;
    int rc = x && start && *list ? 0 : CKPT_ENOMEM;
    if (!rc)
        walk(g, p, x);
    for (int32_t s = 0; s < g->n_storages && !rc; s++) {
        if (!may_leave(g, p, x, s))
            continue;
        bool wraps = g->storages[s].persistent;
        struct absence a = {.storage = s,
                            .instance = wraps ? -1 : x[s].within,
                            .out_step = wraps ? x[s].used : x[s].from,
                            .use_step = wraps ? x[s].first : x[s].to,
                            .bytes = g->storages[s].bytes};
        a.ready = start[a.out_step + 1];
        a.due = start[a.use_step];
        (*list)[(*n)++] = a;
    }
    if (!rc)
        qsort(*list, (size_t)*n, sizeof(**list), compare_absences);
    free(x);
    free(start);
    if (rc) {
        free(*list);
        *list = NULL;
    }
    return rc;
}
