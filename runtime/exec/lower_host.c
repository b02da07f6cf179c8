/*
 * Steps on the host, and the copies between their rooms in the host tier and the device.
 *
 * They have a queue of their own, in the order of the plan; nothing of the device waits for it but
 * the copies of what such a step has made, which the first reader of the next step waits for.  A
 * step on the host waits for the copies out of what it reads, and before it writes to a room for
 * those that still read there.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/lower.h"

static int64_t lodging_bytes(const struct lowering *w, const struct plan_lodging *l)
{
    return w->p->graph->storages[l->storage].bytes;
}

static char *tier_address(const struct lowering *w, int64_t offset)
{
    struct tier *t = w->p->programs->memory->tiers[TIER_HOST];
    return t->ops->base(t) + offset;
}

static bool overlap(const struct lowering *w, const struct plan_lodging *a,
                    const struct plan_lodging *b)
{
    return a->tier_offset < b->tier_offset + lodging_bytes(w, b) &&
           b->tier_offset < a->tier_offset + lodging_bytes(w, a);
}

/* ---- start ----------------------------------------------------------------------------------- */

/* The last step before `before` that uses a storage, on the host or on the device; or -1. */
static int32_t last_use(const struct lowering *w, int32_t storage, int32_t before, bool on_host)
{
    for (int32_t k = before - 1; k >= 0; k--)
        if (w->p->plan->steps[k].on_host == on_host &&
            (graph_op_reads(w->p->graph, lower_op(w, k), storage) ||
             graph_op_writes(w->p->graph, lower_op(w, k), storage)))
            return k;
    return -1;
}

/* Where a storage stands behind a step, from the bottom of the arena; *instance: -1 where it stays
 * there.  Or -1. */
static int64_t find_room(const struct lowering *w, const struct plan_lodging *l, int32_t *instance)
{
    const struct plan *p = w->p->plan;
    *instance = -1;
    if (w->p->graph->storages[l->storage].persistent)
        return w->offset[l->storage];
    *instance = lower_instance(w, l->storage, l->out_step);
    return *instance < 0 ? -1 : w->l->base + p->instances[*instance].offset;
}

static int start_sent(struct lowering *w, int32_t n)
{
    const struct plan *p = w->p->plan;
    const struct plan_lodging *l = &p->lodgings[n];
    int32_t instance;
    int64_t room = find_room(w, l, &instance);
    if (room < 0)
        return CKPT_EPLAN;
    int32_t d = lower_depart(w, room, lodging_bytes(w, l));
    if (d < 0)
        return CKPT_ENOMEM;
    w->departures.data[d].crosses = true;
    w->lodgers[n].departure = d;
    w->lodgers[n].out_end = lower_end(w, l->out_step);
    if (instance >= 0 && p->instances[instance].last == l->out_step)
        w->left_by[instance] = p->n_parks + n;
    return 0;
}

/* An fp32 value is the master: it would have two homes. */
static bool is_rounded(const struct lowering *w, int32_t storage)
{
    const ckpt_tape *t = w->p->tape;
    const struct storage *s = &t->storages.data[w->p->graph->storages[storage].tape_storage];
    return w->p->programs->params->data[s->param].desc.dtype == CKPT_BF16;
}

static int start_back(struct lowering *w, int32_t n)
{
    const struct plan_lodging *l = &w->p->plan->lodgings[n];
    int32_t made = last_use(w, l->storage, l->in_step, true);
    if (made < 0 || !is_rounded(w, l->storage))
        return CKPT_EPLAN;
    w->lodgers[n].event = lower_event(w);
    w->lodgers[n].made = w->stepped[made];
    w->lodgers[n].in_end = lower_end(w, last_use(w, l->storage, l->in_step, false));
    w->arriving[l->storage] = w->lodgers[n].event; /* of the step before */
    return 0;
}

/* Lodgings in the order of their copies, out and in. */
static int compare(int32_t step, double start, int32_t other_step, double other_start)
{
    if (step != other_step)
        return step < other_step ? -1 : 1;
    return (start > other_start) - (start < other_start);
}

static int by_out(const void *a, const void *b)
{
    const struct plan_lodging *x = *(const struct plan_lodging *const *)a;
    const struct plan_lodging *y = *(const struct plan_lodging *const *)b;
    int order = compare(x->out_step, x->out_start, y->out_step, y->out_start);
    return order ? order : (x > y) - (x < y);
}

static int by_in(const void *a, const void *b)
{
    const struct plan_lodging *x = *(const struct plan_lodging *const *)a;
    const struct plan_lodging *y = *(const struct plan_lodging *const *)b;
    int order = compare(x->in_step, x->in_start, y->in_step, y->in_start);
    return order ? order : (x > y) - (x < y);
}

static int sort_lodgings(struct lowering *w)
{
    const struct plan *p = w->p->plan;
    size_t n = (size_t)p->n_lodgings + 1;
    w->sent.list = malloc(n * sizeof(*w->sent.list));
    w->back.list = malloc(n * sizeof(*w->back.list));
    if (!w->sent.list || !w->back.list)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < p->n_lodgings; i++) {
        if (p->lodgings[i].out_step >= 0)
            w->sent.list[w->sent.n++] = &p->lodgings[i];
        if (p->lodgings[i].in_step >= 0)
            w->back.list[w->back.n++] = &p->lodgings[i];
    }
    qsort(w->sent.list, (size_t)w->sent.n, sizeof(*w->sent.list), by_out);
    qsort(w->back.list, (size_t)w->back.n, sizeof(*w->back.list), by_in);
    return 0;
}

int lodgings_start(struct lowering *w)
{
    const struct plan *p = w->p->plan;
    int rc = 0;
    w->lodgers = calloc((size_t)p->n_lodgings + 1, sizeof *w->lodgers);
    w->stepped = malloc(((size_t)p->n_steps + 1) * sizeof *w->stepped);
    if (!w->lodgers || !w->stepped)
        return CKPT_ENOMEM;
    for (int32_t k = 0; k < p->n_steps; k++)
        w->stepped[k] = p->steps[k].on_host ? lower_event(w) : NO_EVENT;
    for (int32_t n = 0; n < p->n_lodgings && !rc; n++) {
        if (p->lodgings[n].out_step >= 0)
            rc = start_sent(w, n);
        if (!rc && p->lodgings[n].in_step >= 0)
            rc = start_back(w, n);
    }
    return rc ? rc : sort_lodgings(w);
}

void lodgings_free(struct lowering *w)
{
    free(w->lodgers);
    free(w->stepped);
    free(w->sent.list);
    free(w->back.list);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void emit_copy(struct lowering *w, enum instr_kind kind, const struct plan_lodging *l,
                      int64_t device)
{
    bool in = kind == INSTR_PARK_IN;
    struct instr *i = lower_emit(w, kind, in ? QUEUE_COPY_IN : QUEUE_COPY_OUT);
    i->device = lower_address(w, device);
    i->host = kind == INSTR_POISON ? NULL : tier_address(w, l->tier_offset);
    i->bytes = lodging_bytes(w, l);
}

/* The step on the host that was handed over last of those that use bytes of a room: all before it
 * are done then.  Of this step up to `before`, else of the step before. */
static void await_users(struct lowering *w, const struct plan_lodging *room, int32_t before)
{
    const struct plan *p = w->p->plan;
    int32_t last = -1;
    for (int32_t n = 0; n < p->n_lodgings; n++) {
        if (!overlap(w, room, &p->lodgings[n]))
            continue;
        int32_t k = last_use(w, p->lodgings[n].storage, before, true);
        last = k > last ? k : last;
    }
    if (last >= 0)
        lower_wait(w, QUEUE_COPY_OUT, w->stepped[last]);
    else if (before < p->n_steps)
        await_users(w, room, p->n_steps);
}

/* A queue is about to write to a room: copies back to the device have read what was there. */
static void await_copies(struct lowering *w, enum queue queue, const struct plan_lodging *room)
{
    const struct plan *p = w->p->plan;
    for (int32_t n = 0; n < p->n_lodgings; n++)
        if (p->lodgings[n].in_step >= 0 && overlap(w, room, &p->lodgings[n]))
            lower_wait(w, queue, w->lodgers[n].event);
}

static void send(struct lowering *w, const struct plan_lodging *l)
{
    const struct lodger *at = &w->lodgers[l - w->p->plan->lodgings];
    const struct departure *d = &w->departures.data[at->departure];
    int64_t room = d->offset;
    int32_t event = d->event;
    bool leaves = false;
    for (int32_t i = 0; i < w->p->plan->n_instances; i++)
        leaves |= w->left_by[i] == w->p->plan->n_parks + (l - w->p->plan->lodgings);
    lower_wait(w, QUEUE_COPY_OUT, at->out_end);
    lower_await_bytes(w, QUEUE_COPY_OUT, l->storage);
    await_users(w, l, l->out_step + 1);
    await_copies(w, QUEUE_COPY_OUT, l);
    emit_copy(w, INSTR_PARK_OUT, l, room);
    if (leaves && w->p->programs->options->verify)
        emit_copy(w, INSTR_POISON, l, room);
    lower_record_as(w, QUEUE_COPY_OUT, event, true);
    lower_departed(w, at->departure);
    w->leaving[l->storage] = event;
}

static void bring_back(struct lowering *w, const struct plan_lodging *l)
{
    const struct lodger *at = &w->lodgers[l - w->p->plan->lodgings];
    int64_t device = w->offset[l->storage];
    lower_wait(w, QUEUE_COPY_IN, at->made);
    lower_wait(w, QUEUE_COPY_IN, at->in_end);
    lower_take_room(w, QUEUE_COPY_IN, device, lodging_bytes(w, l));
    emit_copy(w, INSTR_PARK_IN, l, device);
    lower_record_as(w, QUEUE_COPY_IN, at->event, true);
    w->arriving[l->storage] = at->event;
}

void lodgings_before(struct lowering *w, int32_t step)
{
    while (w->back.done < w->back.n && w->back.list[w->back.done]->in_step <= step)
        bring_back(w, w->back.list[w->back.done++]);
}

void lodgings_after(struct lowering *w, int32_t step)
{
    while (w->sent.done < w->sent.n && w->sent.list[w->sent.done]->out_step <= step)
        send(w, w->sent.list[w->sent.done++]);
}

/* ---- steps ----------------------------------------------------------------------------------- */

int32_t lodgings_made(const struct lowering *w, int32_t storage)
{
    return w->p->plan->n_lodgings ? last_use(w, storage, w->p->plan->n_steps, true) : -1;
}

/* In the tier: a lodging, or the home of a value that comes to the device only for its uses. */
char *lodgings_address(struct lowering *w, int32_t tensor)
{
    const struct tensor *v = &w->p->tape->tensors.data[tensor];
    int32_t s = w->storage[v->storage];
    const struct plan_lodging *l = plan_lodging_of(w->p->plan, s);
    int64_t room = l ? l->tier_offset : plan_park_of(w->p->plan, s)->tier_offset;
    return tier_address(w, room + v->desc.offset * ckpt_dtype_size(v->desc.dtype));
}

static void await_operand(struct lowering *w, int32_t storage)
{
    const struct plan *p = w->p->plan;
    const struct plan_lodging *l = plan_lodging_of(p, storage);
    if (l && l->out_step >= 0)
        lower_wait(w, QUEUE_HOST, w->departures.data[w->lodgers[l - p->lodgings].departure].event);
    if (l && l->in_step >= 0)
        await_copies(w, QUEUE_HOST, l);
    for (int32_t n = 0; n < p->n_parks && !l; n++) {
        if (p->parks[n].storage != storage)
            continue;
        lower_wait(w, QUEUE_HOST, w->routes[n].event);
        if (w->routes[n].departure >= 0)
            lower_wait(w, QUEUE_HOST, w->departures.data[w->routes[n].departure].event);
    }
}

void lodgings_step(struct lowering *w, int32_t step)
{
    const struct graph_op *o = lower_op(w, step);
    const struct graph *g = w->p->graph;
    for (int32_t j = 0; j < o->n_reads; j++)
        await_operand(w, g->refs[o->reads + j]);
    for (int32_t j = 0; j < o->n_writes; j++)
        if (!graph_op_reads(g, o, g->refs[o->writes + j]))
            await_operand(w, g->refs[o->writes + j]);
    lower_kernel(w, QUEUE_HOST, o);
    lower_record_as(w, QUEUE_HOST, w->stepped[step], false);
}
