/* SPDX-License-Identifier: Apache-2.0 */
/* The queue of collectives (comm_cost.h). */
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"

struct call {
    int32_t step;
    int32_t after; /* the step that it waits for, or -1 */
    double seconds, end;
};

struct comm_queue {
    const struct graph *g;
    const struct plan *p;
    struct call *calls;
    int32_t n;
    int32_t *need; /* per step: the number of calls that end before it starts */
    int32_t *at;   /* per step: its call, or -1 */
    double *done;  /* per step: its end */
    int32_t next;  /* index of the next call */
    double *busy;  /* per storage: the end of the last call so far that uses it */
    double owed;   /* the end of the calls that all later steps wait for */
    struct pool memory;
};

/* The state of storages while the steps are visited. */
struct trace {
    int32_t *live;    /* its residence, or -1 */
    int32_t *written; /* the last step, not a collective, that wrote it, or -1 */
    int32_t *calls;   /* the number of calls up to the last one that uses it */
    int32_t next;     /* index of the next residence */
};

bool graph_has_collectives(const struct graph *g)
{
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective)
            return true;
    return false;
}

int64_t graph_ranks(const struct graph *g)
{
    int64_t ranks = 1;
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective)
            ranks = max_i64(ranks, (int64_t)g->ops[i].ranks * max_i64(1, g->ops[i].replicas));
    return ranks;
}

static void need(struct comm_queue *q, int32_t step, int32_t calls)
{
    if (step < q->p->n_steps && q->need[step] < calls)
        q->need[step] = calls;
}

static void add_call(struct comm_queue *q, struct trace *t, int32_t k)
{
    const struct graph_op *o = &q->g->ops[q->p->steps[k].op];
    struct call *c = &q->calls[q->at[k] = q->n++];
    *c = (struct call){.step = k, .after = -1, .seconds = o->comm_seconds};
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        bool reads = j < o->n_reads;
        int32_t s = graph_ref(q->g, o, j);
        t->calls[s] = q->n;
        if (t->written[s] > c->after)
            c->after = t->written[s];
        if (t->live[s] < 0)
            continue;
        const struct residence *i = &q->p->residences[t->live[s]];
        if (!reads && i->first - 1 > c->after)
            c->after = i->first - 1;
        need(q, i->last + 1, q->n);
    }
}

static void add_step(struct comm_queue *q, struct trace *t, int32_t k)
{
    const struct graph_op *o = &q->g->ops[q->p->steps[k].op];
    for (int32_t j = 0; j < o->n_reads; j++)
        need(q, k, t->calls[q->g->refs[o->reads + j]]);
    for (int32_t j = 0; j < o->n_writes; j++) {
        need(q, k, t->calls[q->g->refs[o->writes + j]]);
        t->written[q->g->refs[o->writes + j]] = k;
    }
}

static void visit_steps(struct comm_queue *q, struct trace *t)
{
    const struct plan *p = q->p;
    for (int32_t k = 0; k < p->n_steps; k++) {
        for (; t->next < p->n_residences && p->residences[t->next].first <= k; t->next++)
            if (p->residences[t->next].storage >= 0 && p->residences[t->next].tier == TIER_DEVICE)
                t->live[p->residences[t->next].storage] = t->next;
        if (k > 0)
            need(q, k, q->need[k - 1]);
        if (k == p->n_body)
            need(q, k, q->n); /* the executor waits for all calls there */
        if (q->g->ops[p->steps[k].op].collective)
            add_call(q, t, k);
        else
            add_step(q, t, k);
    }
}

static int allocate(struct comm_queue *q, struct trace *t, struct pool *scratch)
{
    POOL_ARRAY(&q->memory, q->calls, q->p->n_steps);
    POOL_ARRAY(&q->memory, q->need, q->p->n_steps);
    POOL_ARRAY(&q->memory, q->done, q->p->n_steps);
    q->at = pool_filled(&q->memory, q->p->n_steps, -1);
    POOL_ARRAY(&q->memory, q->busy, q->g->n_storages);
    *t = (struct trace){pool_filled(scratch, q->g->n_storages, -1),
                        pool_filled(scratch, q->g->n_storages, -1),
                        pool_filled(scratch, q->g->n_storages, 0), 0};
    return q->memory.failed || scratch->failed ? CKPT_ENOMEM : 0;
}

int comm_queue_new(const struct graph *g, const struct plan *p, struct comm_queue **out)
{
    struct pool scratch = {NULL, false};
    struct trace t;
    *out = NULL;
    if (!graph_has_collectives(g))
        return 0;
    struct comm_queue *q = calloc(1, sizeof(*q));
    if (!q)
        return CKPT_ENOMEM;
    *q = (struct comm_queue){.g = g, .p = p};
    int rc = allocate(q, &t, &scratch);
    if (!rc) {
        visit_steps(q, &t);
        *out = q;
    } else {
        comm_queue_free(q);
    }
    pool_free(&scratch);
    return rc;
}

void comm_queue_free(struct comm_queue *q)
{
    if (q)
        pool_free(&q->memory);
    free(q);
}

void comm_queue_start(struct comm_queue *q)
{
    if (!q)
        return;
    q->next = 0;
    q->owed = 0;
    memset(q->busy, 0, (size_t)q->g->n_storages * sizeof(*q->busy));
}

double comm_queue_wait(const struct comm_queue *q, int32_t k, double now)
{
    if (!q || q->at[k] >= 0)
        return now;
    double end = q->need[k] ? q->calls[q->need[k] - 1].end : 0;
    end = q->owed > end ? q->owed : end;
    return end > now ? end : now;
}

/* The end of the last collective so far, or 0. */
static double last_end(const struct comm_queue *q)
{
    return q && q->next > 0 ? q->calls[q->next - 1].end : 0;
}

void comm_queue_pass(struct comm_queue *q, int32_t k, double now, double least)
{
    if (!q)
        return;
    q->done[k] = now;
    if (q->at[k] < 0)
        return;
    struct call *c = &q->calls[q->next];
    double start = last_end(q);
    start = least > start ? least : start;
    if (c->after >= 0 && q->done[c->after] > start)
        start = q->done[c->after];
    c->end = start + c->seconds;
    q->next++;
    const struct graph_op *o = &q->g->ops[q->p->steps[k].op];
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
        q->busy[graph_ref(q->g, o, j)] = c->end;
}

void comm_queue_leave(struct comm_queue *q, int32_t s)
{
    if (q && q->busy[s] > q->owed)
        q->owed = q->busy[s];
}

double comm_queue_busy(const struct comm_queue *q, int32_t s)
{
    return q ? q->busy[s] : 0;
}

void comm_queue_finish(const struct comm_queue *q, int32_t times, double *now, double *waits)
{
    double more = last_end(q) - *now;
    if (more <= 0)
        return;
    *waits += more * times;
    *now += more;
}

double comm_queue_end_of(const struct comm_queue *q, int32_t k)
{
    return q->at[k] >= 0 ? q->calls[q->at[k]].end : 0;
}

double comm_queue_seconds(const struct comm_queue *q)
{
    double seconds = 0;
    for (int32_t i = 0; q && i < q->n; i++)
        seconds += q->calls[i].seconds * (q->calls[i].step < q->p->n_body ? q->g->n_micro : 1);
    return seconds;
}
