/*
 * Collectives get a queue of their own, in the order of the plan, which is the same on all ranks:
 * nobody overtakes, so ranks never wait for each other in a circle.
 *
 * A collective waits for the last step that writes what it reads or that needs the room it writes
 * to, and not for the step before it: an all-gather goes on ahead of the spine as far as addresses
 * let it.  The first reader waits for it, and so does whoever takes or changes what it reads.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/lower.h"

static const struct graph_op *op_at(const struct lowering *w, int32_t step)
{
    return &w->p->graph->ops[w->p->plan->steps[step].op];
}

bool ranks_run(const struct lowering *w, int32_t step)
{
    return collective_is(w->p->tape->ops.data[op_at(w, step)->tape_op].def);
}

static bool writes(const struct lowering *w, int32_t step, int32_t storage)
{
    const struct graph_op *g = op_at(w, step);
    for (int32_t k = 0; k < g->n_writes; k++)
        if (w->p->graph->refs[g->writes + k] == storage)
            return true;
    return false;
}

/* The instance of a storage at a step, or -1. */
static int32_t instance_at(const struct plan *p, int32_t storage, int32_t step)
{
    for (int32_t i = 0; i < p->n_instances; i++)
        if (p->instances[i].storage == storage && p->instances[i].first <= step &&
            p->instances[i].last >= step)
            return i;
    return -1;
}

/* The last step that the spine must have ended before the collective of this one begins. */
static int32_t find_begin(struct lowering *w, int32_t step)
{
    const struct graph_op *g = op_at(w, step);
    int32_t begin = -1;
    for (int32_t k = 0; k < g->n_reads; k++) {
        int32_t from = step - 1;
        while (from > begin && !writes(w, from, w->p->graph->refs[g->reads + k]))
            from--;
        begin = from;
    }
    for (int32_t k = 0; k < g->n_writes; k++) {
        int32_t n = instance_at(w->p->plan, w->p->graph->refs[g->writes + k], step);
        if (n < 0)
            continue;
        const struct plan_instance *i = &w->p->plan->instances[n];
        int32_t room = lower_room_step(w, i->offset, lower_instance_bytes(w, i), i->first);
        w->made_by[n] = step;
        begin = room > begin ? room : begin;
    }
    return begin;
}

int ranks_start(struct lowering *w)
{
    size_t steps = (size_t)w->p->plan->n_steps + 1, n = (size_t)w->p->plan->n_instances + 1;
    w->begins = malloc(steps * sizeof *w->begins);
    w->made_by = malloc(n * sizeof *w->made_by);
    if (!w->begins || !w->made_by)
        return CKPT_ENOMEM;
    memset(w->made_by, -1, n * sizeof *w->made_by);
    for (int32_t s = 0; s < w->p->plan->n_steps; s++) {
        if (!ranks_run(w, s))
            continue;
        w->begins[s] = find_begin(w, s);
        if (w->ends[1 + w->begins[s]] == NO_EVENT)
            w->ends[1 + w->begins[s]] = lower_event(w);
    }
    return 0;
}

/* ---- commands -------------------------------------------------------------------------------- */

static void await_operands(struct lowering *w, int32_t step)
{
    const struct graph_op *g = op_at(w, step);
    lower_wait(w, QUEUE_COMM, w->ends[1 + w->begins[step]]);
    for (int32_t k = 0; k < g->n_reads; k++) {
        int32_t s = w->p->graph->refs[g->reads + k];
        int32_t event = w->arriving[s] != NO_EVENT ? w->arriving[s] : w->arrived[s];
        if (event != NO_EVENT)
            lower_wait(w, QUEUE_COMM, event);
    }
    for (int32_t k = 0; k < g->n_writes; k++) {
        int32_t s = w->p->graph->refs[g->writes + k];
        lower_take_room(w, QUEUE_COMM, w->offset[s], w->p->graph->storages[s].bytes);
    }
}

/* What it reads stays until it is through. */
static void hold(struct lowering *w, int32_t storage)
{
    int32_t n = lower_depart(w, w->offset[storage], w->p->graph->storages[storage].bytes);
    if (n < 0)
        return;
    struct departure *d = &w->departures.data[n];
    d->joins = true;
    lower_emit(w, INSTR_RECORD, QUEUE_COMM)->event = d->event;
    lower_departed(w, n);
    d->waited[QUEUE_COMM] = true;
    w->leaving[storage] = d->event;
}

void ranks_step(struct lowering *w, int32_t step)
{
    const struct graph_op *g = op_at(w, step);
    await_operands(w, step);
    lower_kernel(w, QUEUE_COMM, g);
    for (int32_t k = 0; k < g->n_reads; k++)
        hold(w, w->p->graph->refs[g->reads + k]);
    for (int32_t k = 0; k < g->n_writes; k++)
        w->arriving[w->p->graph->refs[g->writes + k]] = lower_record(w, QUEUE_COMM);
}

void ranks_after(struct lowering *w, int32_t step)
{
    for (int32_t n = 0; n < w->p->plan->n_parks; n++) {
        const struct plan_park *k = &w->p->plan->parks[n];
        enum queue queue = k->tier == FATE_PARK_NVME ? QUEUE_FILE_OUT : QUEUE_COPY_OUT;
        if (k->out_step != step || k->clean)
            continue;
        if (w->arriving[k->storage] != NO_EVENT)
            lower_wait(w, queue, w->arriving[k->storage]);
        if (w->leaving[k->storage] != NO_EVENT) /* or a fetch: under verify it is poisoned next */
            lower_wait(w, queue, w->leaving[k->storage]);
    }
}
