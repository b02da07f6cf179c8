/*
 * From plan to instructions: every operand gets its address, copies go to their queues, and events
 * order what shares bytes.
 *
 * The compute queue is the spine.  A copy-in waits for the spine, because the bytes it overwrites
 * may have been in use until just now, and the first reader waits for it.  A copy-out waits for the
 * spine, and whoever frees the bytes waits for it.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/program.h"

enum { NONE = -1 };

struct death {
    int32_t last, instance;
};

struct lowering {
    struct ckpt_program *p;
    struct lowered *l;
    struct death *deaths; /* instances ordered by last step */
    struct instr nowhere; /* written to when memory ran out */
    int64_t *offset;      /* per graph storage: where its bytes are now */
    int32_t *arriving;    /* per graph storage: event of a copy-in nobody waited for, or NONE */
    int32_t *leaving;     /* the same for copies out */
    int32_t *storage;     /* per tape storage: graph storage */
    int64_t workspace;    /* of the step at hand */
    int32_t born, dead;   /* instances seen so far */
    bool failed;
};

static struct instr *emit(struct lowering *w, enum instr_kind kind, enum queue queue)
{
    if (ARRAY_RESERVE(&w->l->instrs, w->l->n_instrs)) {
        w->failed = true;
        return &w->nowhere;
    }
    struct instr *i = &w->l->instrs.data[w->l->n_instrs++];
    *i = (struct instr){.kind = kind, .queue = queue, .op = NONE, .event = NONE, .port = NONE};
    return i;
}

static int32_t record(struct lowering *w, enum queue queue)
{
    int32_t event = w->l->n_events++;
    emit(w, INSTR_RECORD, queue)->event = event;
    return event;
}

static void wait(struct lowering *w, enum queue queue, int32_t event)
{
    emit(w, INSTR_WAIT, queue)->event = event;
}

static char *address(struct lowering *w, int32_t tensor)
{
    const struct tensor *v = &w->p->tape->tensors.data[tensor];
    int32_t s = w->storage[v->storage];
    return w->p->c->device->ops->base(w->p->c->device) + w->offset[s] +
           v->desc.offset * ckpt_dtype_size(v->desc.dtype);
}

static void await_pending(struct lowering *w, int32_t *pending, int32_t storage)
{
    if (pending[storage] == NONE)
        return;
    wait(w, QUEUE_COMPUTE, pending[storage]);
    pending[storage] = NONE;
}

static void lower_feed(struct lowering *w, const struct op *o)
{
    int32_t tensor = op_out(w->p->tape, o, 0);
    int32_t s = w->storage[w->p->tape->tensors.data[tensor].storage];
    wait(w, QUEUE_COPY_IN, record(w, QUEUE_COMPUTE));
    struct instr *i = emit(w, INSTR_COPY_IN, QUEUE_COPY_IN);
    i->port = o->feed;
    i->device = address(w, tensor);
    i->bytes = desc_bytes(&w->p->tape->tensors.data[tensor].desc);
    w->arriving[s] = record(w, QUEUE_COPY_IN);
}

static void lower_fetch(struct lowering *w, const struct op *o)
{
    int32_t tensor = op_in(w->p->tape, o, 0);
    int32_t s = w->storage[w->p->tape->tensors.data[tensor].storage];
    await_pending(w, w->arriving, s);
    wait(w, QUEUE_COPY_OUT, record(w, QUEUE_COMPUTE));
    struct instr *i = emit(w, INSTR_COPY_OUT, QUEUE_COPY_OUT);
    i->port = o->fetch;
    i->device = address(w, tensor);
    i->bytes = desc_bytes(&w->p->tape->tensors.data[tensor].desc);
    int32_t event = record(w, QUEUE_COPY_OUT);
    if (w->p->graph->storages[s].persistent)
        wait(w, QUEUE_COMPUTE, event); /* the update may change it */
    else
        w->leaving[s] = event;
}

static struct ckpt_view view_of(struct lowering *w, int32_t tensor)
{
    if (tensor <= 0)
        return (struct ckpt_view){.desc = {.ndim = -1}};
    return (struct ckpt_view){.data = address(w, tensor),
                              .desc = w->p->tape->tensors.data[tensor].desc};
}

static void lower_compute(struct lowering *w, const struct graph_op *g, const struct op *o)
{
    for (int32_t k = 0; k < g->n_reads; k++)
        await_pending(w, w->arriving, w->p->graph->refs[g->reads + k]);
    for (int32_t k = 0; k < g->n_writes; k++)
        await_pending(w, w->leaving, w->p->graph->refs[g->writes + k]);
    int32_t n = o->n_in + o->n_out;
    if (array_reserve((void **)&w->l->views.data, &w->l->views.capacity, w->l->n_views + n,
                      sizeof *w->l->views.data)) {
        w->failed = true;
        return;
    }
    struct instr *i = emit(w, INSTR_COMPUTE, QUEUE_COMPUTE);
    i->op = g->tape_op;
    i->first = w->l->n_views;
    i->bytes = o->workspace;
    i->device = w->p->c->device->ops->base(w->p->c->device) + w->workspace;
    for (int32_t k = 0; k < n; k++)
        w->l->views.data[w->l->n_views++] = view_of(w, w->p->tape->operands.data[o->operands + k]);
}

/* Instances that begin at this step get their address. */
static void bear(struct lowering *w, int32_t step)
{
    const struct plan *plan = w->p->plan;
    for (; w->born < plan->n_instances && plan->instances[w->born].first <= step; w->born++) {
        const struct plan_instance *i = &plan->instances[w->born];
        if (i->storage >= 0)
            w->offset[i->storage] = w->l->base + i->offset;
        else
            w->workspace = w->l->base + i->offset;
    }
}

/* Instances that end at this step: nobody may still be copying, and under verify nobody can read.
 */
static void bury(struct lowering *w, int32_t step)
{
    const struct plan *plan = w->p->plan;
    for (; w->dead < plan->n_instances && w->deaths[w->dead].last <= step; w->dead++) {
        const struct plan_instance *i = &plan->instances[w->deaths[w->dead].instance];
        int32_t s = i->storage;
        if (s >= 0) {
            await_pending(w, w->arriving, s);
            await_pending(w, w->leaving, s);
        }
        if (!w->p->c->options.verify)
            continue;
        int32_t owner = plan->steps[s >= 0 ? 0 : -1 - s].op;
        struct instr *poison = emit(w, INSTR_POISON, QUEUE_COMPUTE);
        poison->device = w->p->c->device->ops->base(w->p->c->device) + w->l->base + i->offset;
        poison->bytes = s >= 0 ? w->p->graph->storages[s].bytes : w->p->graph->ops[owner].workspace;
    }
}

static void lower_step(struct lowering *w, int32_t step)
{
    const struct graph_op *g = &w->p->graph->ops[w->p->plan->steps[step].op];
    const struct op *o = &w->p->tape->ops.data[g->tape_op];
    bear(w, step);
    if (o->feed >= 0)
        lower_feed(w, o);
    else if (o->fetch >= 0)
        lower_fetch(w, o);
    else
        lower_compute(w, g, o);
    bury(w, step);
}

static int by_last(const void *a, const void *b)
{
    const struct death *x = a, *y = b;
    return x->last != y->last ? (x->last < y->last ? -1 : 1) : x->instance - y->instance;
}

static int start(struct lowering *w)
{
    const struct graph *g = w->p->graph;
    size_t n = (size_t)g->n_storages + 1, m = (size_t)w->p->plan->n_instances + 1;
    w->offset = calloc(n, sizeof *w->offset);
    w->arriving = malloc(n * sizeof *w->arriving);
    w->leaving = malloc(n * sizeof *w->leaving);
    w->storage = calloc((size_t)w->p->tape->n_storages + 1, sizeof *w->storage);
    w->deaths = malloc(m * sizeof *w->deaths);
    if (!w->offset || !w->arriving || !w->leaving || !w->storage || !w->deaths)
        return CKPT_ENOMEM;
    memset(w->arriving, NONE, n * sizeof *w->arriving);
    memset(w->leaving, NONE, n * sizeof *w->leaving);
    for (int32_t i = 0; i < g->n_storages; i++) {
        const struct storage *s = &w->p->tape->storages.data[g->storages[i].tape_storage];
        w->storage[g->storages[i].tape_storage] = i;
        if (g->storages[i].persistent)
            w->offset[i] = w->p->c->params.data[s->param].offset[s->kind - STORAGE_VALUE];
    }
    for (int32_t i = 0; i < w->p->plan->n_instances; i++)
        w->deaths[i] = (struct death){w->p->plan->instances[i].last, i};
    qsort(w->deaths, (size_t)w->p->plan->n_instances, sizeof *w->deaths, by_last);
    return 0;
}

int program_lower(struct ckpt_program *p)
{
    struct lowering w = {.p = p, .l = &p->lowered};
    lowered_free(&p->lowered);
    p->lowered.base = p->c->persistent;
    int rc = start(&w);
    if (!rc) {
        for (int32_t s = 0; s < p->plan->n_steps; s++) {
            lower_step(&w, s);
            if (s + 1 == p->plan->n_body)
                p->lowered.n_body = p->lowered.n_instrs;
        }
        rc = w.failed ? CKPT_ENOMEM : p->c->device->ops->events(p->c->device, p->lowered.n_events);
    }
    free(w.offset);
    free(w.arriving);
    free(w.leaving);
    free(w.storage);
    free(w.deaths);
    return rc;
}

void lowered_free(struct lowered *l)
{
    free(l->instrs.data);
    free(l->views.data);
    *l = (struct lowered){0};
}
