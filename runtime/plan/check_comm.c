/*
 * The clock of collectives, once more: what the planner finds by counting calls is found here from
 * the times at which storages were written and last used.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/check_comm.h"

struct check_comm {
    const struct graph *g;
    const struct plan *p;
    double *wrote;    /* per storage: when a step of the compute queue last wrote it */
    double *busy;     /* per storage: when the last collective is done with it */
    double *ended;    /* per step */
    double *freed;    /* per step: before that its bytes are in use */
    int32_t *room;    /* per step: of a collective the step from which on its output has room */
    int32_t *leaves;  /* per step: of a collective the last step of its operands' first to end */
    bool *collective; /* per storage: one uses it */
    double free, owed;
};

static const struct graph_op *op_at(const struct check_comm *c, int32_t k)
{
    return &c->g->ops[c->p->steps[k].op];
}

/* What the collectives of an instance are told by it. */
static void tell(struct check_comm *c, const struct plan_instance *i)
{
    for (int32_t k = i->first; k <= i->last; k++) {
        const struct graph_op *o = op_at(c, k);
        if (!o->collective)
            continue;
        bool writes = graph_op_writes(c->g, o, i->storage);
        if (writes)
            c->room[k] = i->first;
        if ((writes || graph_op_reads(c->g, o, i->storage)) && i->last < c->leaves[k])
            c->leaves[k] = i->last;
    }
}

static void prepare(struct check_comm *c)
{
    const struct graph *g = c->g;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t j = 0; g->ops[i].collective && j < g->ops[i].n_reads + g->ops[i].n_writes; j++)
            c->collective[g->refs[(j < g->ops[i].n_reads ? g->ops[i].reads
                                                         : g->ops[i].writes - g->ops[i].n_reads) +
                                  j]] = true;
    for (int32_t k = 0; k < c->p->n_steps; k++)
        c->leaves[k] = INT32_MAX;
    for (int32_t n = 0; n < c->p->n_instances; n++)
        if (c->p->instances[n].storage >= 0 && c->collective[c->p->instances[n].storage])
            tell(c, &c->p->instances[n]);
}

int check_comm_new(const struct graph *g, const struct plan *p, struct check_comm **out)
{
    size_t n = (size_t)g->n_storages + 1, steps = (size_t)p->n_steps + 2;
    struct check_comm *c = calloc(1, sizeof(*c));
    *out = c;
    if (!c)
        return CKPT_ENOMEM;
    *c = (struct check_comm){.g = g, .p = p};
    c->wrote = calloc(n, sizeof(*c->wrote));
    c->busy = calloc(n, sizeof(*c->busy));
    c->collective = calloc(n, sizeof(*c->collective));
    c->ended = calloc(steps, sizeof(*c->ended));
    c->freed = calloc(steps, sizeof(*c->freed));
    c->room = calloc(steps, sizeof(*c->room));
    c->leaves = calloc(steps, sizeof(*c->leaves));
    if (!c->wrote || !c->busy || !c->collective || !c->ended || !c->freed || !c->room || !c->leaves)
        return CKPT_ENOMEM;
    prepare(c);
    return 0;
}

void check_comm_free(struct check_comm *c)
{
    if (!c)
        return;
    free(c->wrote);
    free(c->busy);
    free(c->collective);
    free(c->ended);
    free(c->freed);
    free(c->room);
    free(c->leaves);
    free(c);
}

void check_comm_start(struct check_comm *c)
{
    memset(c->wrote, 0, (size_t)c->g->n_storages * sizeof(*c->wrote));
    memset(c->busy, 0, (size_t)c->g->n_storages * sizeof(*c->busy));
    memset(c->freed, 0, (size_t)c->p->n_steps * sizeof(*c->freed));
    c->free = c->owed = 0;
}

static void later(double *a, double b)
{
    *a = b > *a ? b : *a;
}

double check_comm_ready(struct check_comm *c, int32_t k, double now)
{
    const struct graph_op *o = op_at(c, k);
    later(&c->owed, c->freed[k]);
    if (k == c->p->n_body)
        later(&c->owed, c->free);
    if (o->collective)
        return now;
    later(&now, c->owed);
    for (int32_t j = 0; j < o->n_reads; j++)
        later(&now, c->busy[c->g->refs[o->reads + j]]);
    for (int32_t j = 0; j < o->n_writes; j++)
        later(&now, c->busy[c->g->refs[o->writes + j]]);
    return now;
}

void check_comm_done(struct check_comm *c, int32_t k, double now, double back)
{
    const struct graph_op *o = op_at(c, k);
    const int32_t *reads = c->g->refs + o->reads, *writes = c->g->refs + o->writes;
    c->ended[k] = now;
    for (int32_t j = 0; j < o->n_writes && !o->collective; j++)
        c->wrote[writes[j]] = now;
    if (!o->collective)
        return;
    later(&c->free, back);
    if (c->room[k] > 0)
        later(&c->free, c->ended[c->room[k] - 1]);
    for (int32_t j = 0; j < o->n_reads; j++)
        later(&c->free, c->wrote[reads[j]]);
    for (int32_t j = 0; j < o->n_writes; j++)
        later(&c->free, c->wrote[writes[j]]);
    c->free += o->comm_seconds;
    for (int32_t j = 0; j < o->n_reads; j++)
        c->busy[reads[j]] = c->free;
    for (int32_t j = 0; j < o->n_writes; j++)
        c->busy[writes[j]] = c->free;
    if (c->leaves[k] < c->p->n_steps - 1)
        later(&c->freed[c->leaves[k] + 1], c->free);
}

double check_comm_end(const struct check_comm *c)
{
    return c->free;
}
