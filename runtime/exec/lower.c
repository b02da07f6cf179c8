/*
 * From plan to instructions: every operand gets its address, copies go to their queues, and events
 * order what shares bytes.
 *
 * The compute queue is the spine.  A copy-in waits for the spine, because the bytes it overwrites
 * may have been in use until just now, and the first reader waits for it.  A copy-out waits for the
 * spine, and whoever takes its bytes next, by address, waits for it: a copy-out that is planned
 * well delays nobody.  Collectives are to the spine what copies in are.  A wait is for the last
 * record handed over, which at the beginning of a step may be that of the step before, and in the
 * very first one there is nothing to wait for.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/lower.h"

/* The first events join programs: see program_walk. */
enum { FIRST_EVENT = QUEUE_COUNT };

struct instr *lower_emit(struct lowering *w, enum instr_kind kind, enum queue queue)
{
    if (ARRAY_RESERVE(&w->l->instrs, w->l->n_instrs)) {
        w->failed = true;
        return &w->nowhere;
    }
    struct instr *i = &w->l->instrs.data[w->l->n_instrs++];
    *i = (struct instr){.kind = kind, .queue = queue, .op = -1, .event = NO_EVENT, .port = -1};
    return i;
}

int32_t lower_event(struct lowering *w)
{
    return w->l->n_events++;
}

void lower_record_as(struct lowering *w, enum queue queue, int32_t event, bool for_threads)
{
    struct instr *i = lower_emit(w, INSTR_RECORD, queue);
    i->event = event;
    i->for_threads = for_threads;
}

int32_t lower_record(struct lowering *w, enum queue queue)
{
    int32_t event = lower_event(w);
    lower_record_as(w, queue, event, false);
    return event;
}

void lower_wait(struct lowering *w, enum queue queue, int32_t event)
{
    lower_emit(w, INSTR_WAIT, queue)->event = event;
}

int32_t lower_end(struct lowering *w, int32_t step)
{
    if (w->ends[1 + step] == NO_EVENT)
        w->ends[1 + step] = lower_event(w);
    return w->ends[1 + step];
}

const struct graph_op *lower_op(const struct lowering *w, int32_t step)
{
    return &w->p->graph->ops[w->p->plan->steps[step].op];
}

char *lower_address(const struct lowering *w, int64_t offset)
{
    return w->p->programs->memory->device->ops->base(w->p->programs->memory->device) + offset;
}

static char *address(struct lowering *w, int32_t tensor)
{
    const struct tensor *v = &w->p->tape->tensors.data[tensor];
    int32_t s = w->storage[v->storage];
    return lower_address(w, w->offset[s] + v->desc.offset * ckpt_dtype_size(v->desc.dtype));
}

/* ---- rooms that are still read --------------------------------------------------------------- */

int32_t lower_depart(struct lowering *w, int64_t offset, int64_t bytes)
{
    if (ARRAY_RESERVE(&w->departures, w->n_departures)) {
        w->failed = true;
        return -1;
    }
    struct departure *d = &w->departures.data[w->n_departures];
    *d = (struct departure){.offset = offset, .bytes = bytes};
    d->event = d->written = lower_event(w);
    return w->n_departures++;
}

void lower_departed(struct lowering *w, int32_t departure)
{
    struct departure *d = &w->departures.data[departure];
    d->over = true;
    memset(d->waited, 0, sizeof d->waited);
}

void lower_take_room(struct lowering *w, enum queue queue, int64_t offset, int64_t bytes)
{
    for (int32_t n = 0; n < w->n_departures; n++) {
        struct departure *d = &w->departures.data[n];
        bool pending = d->over || d->crosses;
        if (!pending || d->waited[queue] || d->offset >= offset + bytes ||
            offset >= d->offset + d->bytes)
            continue;
        lower_wait(w, queue, d->event);
        d->waited[queue] = true;
    }
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void await_arrival(struct lowering *w, int32_t storage)
{
    if (w->arriving[storage] == NO_EVENT)
        return;
    lower_wait(w, QUEUE_COMPUTE, w->arriving[storage]);
    w->arrived[storage] = w->arriving[storage];
    w->arriving[storage] = NO_EVENT;
}

void lower_await_bytes(struct lowering *w, enum queue queue, int32_t storage)
{
    int32_t event = w->arriving[storage] != NO_EVENT ? w->arriving[storage] : w->arrived[storage];
    if (event != NO_EVENT)
        lower_wait(w, queue, event);
}

static void await_leaving(struct lowering *w, int32_t storage)
{
    if (w->leaving[storage] == NO_EVENT)
        return;
    lower_wait(w, QUEUE_COMPUTE, w->leaving[storage]);
    w->leaving[storage] = NO_EVENT;
}

static void lower_feed(struct lowering *w, const struct op *o)
{
    int32_t tensor = op_out(w->p->tape, o, 0);
    int32_t s = w->storage[w->p->tape->tensors.data[tensor].storage];
    lower_wait(w, QUEUE_COPY_IN, lower_record(w, QUEUE_COMPUTE));
    struct instr *i = lower_emit(w, INSTR_COPY_IN, QUEUE_COPY_IN);
    i->port = o->feed;
    i->device = address(w, tensor);
    i->bytes = desc_bytes(&w->p->tape->tensors.data[tensor].desc);
    w->arriving[s] = lower_record(w, QUEUE_COPY_IN);
}

static void lower_fetch(struct lowering *w, const struct op *o)
{
    int32_t tensor = op_in(w->p->tape, o, 0);
    int32_t s = w->storage[w->p->tape->tensors.data[tensor].storage];
    int64_t bytes = desc_bytes(&w->p->tape->tensors.data[tensor].desc);
    char *at = address(w, tensor);
    await_arrival(w, s);
    lower_wait(w, QUEUE_COPY_OUT, lower_record(w, QUEUE_COMPUTE));
    w->l->last_fetch = w->l->n_instrs;
    struct instr *i = lower_emit(w, INSTR_COPY_OUT, QUEUE_COPY_OUT);
    i->port = o->fetch;
    i->device = at;
    i->bytes = bytes;
    int32_t n = lower_depart(w, at - lower_address(w, 0), bytes);
    if (n < 0)
        return;
    w->departures.data[n].joins = true;
    int32_t event = w->departures.data[n].event;
    lower_record_as(w, QUEUE_COPY_OUT, event, false);
    lower_departed(w, n);
    w->leaving[s] = event;
}

static struct ckpt_view view_of(struct lowering *w, enum queue queue, int32_t tensor)
{
    if (tensor <= 0)
        return (struct ckpt_view){.desc = {.ndim = -1}};
    return (struct ckpt_view){.data = queue == QUEUE_HOST ? lodgings_address(w, tensor)
                                                          : address(w, tensor),
                              .desc = w->p->tape->tensors.data[tensor].desc};
}

void lower_kernel(struct lowering *w, enum queue queue, const struct graph_op *g)
{
    const struct op *o = &w->p->tape->ops.data[g->tape_op];
    int32_t n = o->n_in + o->n_out;
    if (array_reserve((void **)&w->l->views.data, &w->l->views.capacity, w->l->n_views + n,
                      sizeof *w->l->views.data)) {
        w->failed = true;
        return;
    }
    struct instr *i = lower_emit(w, INSTR_COMPUTE, queue);
    i->op = g->tape_op;
    i->first = w->l->n_views;
    i->bytes = o->workspace;
    i->device = lower_address(w, w->workspace);
    for (int32_t k = 0; k < n; k++)
        w->l->views.data[w->l->n_views++] =
            view_of(w, queue, w->p->tape->operands.data[o->operands + k]);
}

static void lower_compute(struct lowering *w, const struct graph_op *g)
{
    for (int32_t k = 0; k < g->n_reads; k++)
        await_arrival(w, w->p->graph->refs[g->reads + k]);
    for (int32_t k = 0; k < g->n_writes; k++) {
        await_arrival(w, w->p->graph->refs[g->writes + k]);
        await_leaving(w, w->p->graph->refs[g->writes + k]);
    }
    lower_kernel(w, QUEUE_COMPUTE, g);
}

int64_t lower_instance_bytes(const struct lowering *w, const struct plan_instance *i)
{
    if (i->storage >= 0)
        return w->p->graph->storages[i->storage].bytes;
    return lower_op(w, -1 - i->storage)->workspace;
}

int32_t lower_instance(const struct lowering *w, int32_t storage, int32_t step)
{
    const struct plan *p = w->p->plan;
    for (int32_t i = 0; i < p->n_instances; i++)
        if (p->instances[i].storage == storage && p->instances[i].first <= step &&
            p->instances[i].last >= step)
            return i;
    return -1;
}

int32_t lower_room_step(const struct lowering *w, int64_t offset, int64_t bytes, int32_t before)
{
    const struct plan *p = w->p->plan;
    int32_t room = -1;
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        if (t->last >= before || t->offset >= offset + bytes ||
            t->offset + lower_instance_bytes(w, t) <= offset)
            continue;
        int32_t last = t->last;
        if (w->left_by[i] >= 0) {
            const struct plan_park *left = &p->parks[w->left_by[i]];
            last = left->free_step < left->out_step ? -1 : left->out_step;
        }
        room = last > room ? last : room;
    }
    return room;
}

/* Instances that begin at this step get their address.  What was copied in came behind those who
 * left; what the step itself writes has to wait for them. */
static void bear(struct lowering *w, int32_t step)
{
    const struct plan *plan = w->p->plan;
    for (; w->born < plan->n_instances && plan->instances[w->born].first <= step; w->born++) {
        const struct plan_instance *i = &plan->instances[w->born];
        int64_t at = w->l->base + i->offset;
        if (i->storage >= 0)
            w->offset[i->storage] = at;
        else
            w->workspace = at;
        if (!parks_bring(w, i) && w->made_by[w->born] < 0)
            lower_take_room(w, QUEUE_COMPUTE, at, lower_instance_bytes(w, i));
    }
}

/* Instances that end at this step; under verify nobody can read them any more.  What is copied out
 * is spoilt behind the copy. */
static void bury(struct lowering *w, int32_t step)
{
    const struct plan *plan = w->p->plan;
    for (; w->dead < plan->n_instances && w->deaths[w->dead].last <= step; w->dead++) {
        const struct plan_instance *i = &plan->instances[w->deaths[w->dead].instance];
        if (i->storage >= 0)
            await_arrival(w, i->storage);
        if (!w->p->programs->options->verify || parks_take(w, i))
            continue;
        if (i->storage >= 0)
            await_leaving(w, i->storage);
        struct instr *poison = lower_emit(w, INSTR_POISON, QUEUE_COMPUTE);
        poison->device = lower_address(w, w->l->base + i->offset);
        poison->bytes = lower_instance_bytes(w, i);
    }
}

static void lower_step(struct lowering *w, int32_t step)
{
    const struct graph_op *g = lower_op(w, step);
    const struct op *o = &w->p->tape->ops.data[g->tape_op];
    parks_before(w, step);
    lodgings_before(w, step);
    bear(w, step);
    if (w->p->plan->steps[step].on_host)
        lodgings_step(w, step);
    else if (o->feed >= 0)
        lower_feed(w, o);
    else if (o->fetch >= 0)
        lower_fetch(w, o);
    else if (ranks_run(w, step))
        ranks_step(w, step);
    else
        lower_compute(w, g);
    bury(w, step);
    parks_after(w, step);
    lodgings_after(w, step);
}

/* The body or the tail ends: what was fetched is there, and only copies that cross go on.  Copies
 * of activations have ended: those back came behind them, and the spine has waited for these.  Who
 * takes a room in the tail may wait for an earlier step of the spine only, so what it has joined
 * here still counts for others. */
static void end_part(struct lowering *w)
{
    for (int32_t n = 0; n < w->n_departures; n++) {
        struct departure *d = &w->departures.data[n];
        if (d->over && d->joins && !d->waited[QUEUE_COMPUTE])
            lower_wait(w, QUEUE_COMPUTE, d->event);
        d->over = d->over && (d->crosses || d->joins);
    }
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
    w->arrived = malloc(n * sizeof *w->arrived);
    w->leaving = malloc(n * sizeof *w->leaving);
    w->storage = calloc((size_t)w->p->tape->n_storages + 1, sizeof *w->storage);
    w->deaths = malloc(m * sizeof *w->deaths);
    if (!w->offset || !w->arriving || !w->arrived || !w->leaving || !w->storage || !w->deaths)
        return CKPT_ENOMEM;
    memset(w->arriving, NO_EVENT, n * sizeof *w->arriving);
    memset(w->arrived, NO_EVENT, n * sizeof *w->arrived);
    memset(w->leaving, NO_EVENT, n * sizeof *w->leaving);
    for (int32_t i = 0; i < g->n_storages; i++) {
        const struct storage *s = &w->p->tape->storages.data[g->storages[i].tape_storage];
        w->storage[g->storages[i].tape_storage] = i;
        if (g->storages[i].persistent)
            w->offset[i] = w->p->programs->params->data[s->param].offset[s->kind - STORAGE_VALUE];
    }
    for (int32_t i = 0; i < w->p->plan->n_instances; i++)
        w->deaths[i] = (struct death){w->p->plan->instances[i].last, i};
    qsort(w->deaths, (size_t)w->p->plan->n_instances, sizeof *w->deaths, by_last);
    return 0;
}

static int lower(struct lowering *w)
{
    struct lowered *l = w->l;
    int rc = start(w);
    if (!rc)
        rc = parks_start(w);
    if (!rc)
        rc = ranks_start(w);
    if (!rc)
        rc = lodgings_start(w);
    for (int32_t s = 0; s < w->p->plan->n_steps && !rc; s++) {
        lower_step(w, s);
        if (s + 1 == w->p->plan->n_steps)
            lodgings_before(w, s + 1);
        if (s + 1 == w->p->plan->n_body || s + 1 == w->p->plan->n_steps)
            end_part(w);
        if (s + 1 == w->p->plan->n_body)
            l->n_body = l->n_instrs;
        rc = w->failed ? CKPT_ENOMEM : 0;
    }
    return rc ? rc
              : w->p->programs->memory->device->ops->events(w->p->programs->memory->device,
                                                            l->n_events);
}

int program_lower(struct ckpt_program *p)
{
    struct lowering w = {.p = p, .l = &p->lowered};
    lowered_free(&p->lowered);
    p->lowered.base = p->programs->memory->persistent;
    p->lowered.n_events = FIRST_EVENT;
    p->lowered.last_fetch = -1;
    int rc = lower(&w);
    p->lowered.whole = rc == 0;
    if (rc)
        lowered_free(&p->lowered);
    parks_free(&w);
    ranks_free(&w);
    lodgings_free(&w);
    free(w.offset);
    free(w.arriving);
    free(w.arrived);
    free(w.leaving);
    free(w.storage);
    free(w.deaths);
    free(w.departures.data);
    return rc;
}

void lowered_free(struct lowered *l)
{
    free(l->instrs.data);
    free(l->views.data);
    *l = (struct lowered){0};
}
