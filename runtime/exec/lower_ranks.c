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

bool ranks_run(const struct lowering *w, int32_t step)
{
    return collective_is(w->p->tape->ops.data[lower_op(w, step)->tape_op].def);
}

/* The last step that the spine must have ended before the collective of this one begins. */
static int32_t find_begin(struct lowering *w, int32_t step)
{
    const struct graph *all = w->p->graph;
    const struct graph_op *g = lower_op(w, step);
    int32_t begin = -1;
    for (int32_t k = 0; k < g->n_reads; k++) {
        int32_t from = step - 1;
        while (from > begin && !graph_op_writes(all, lower_op(w, from), all->refs[g->reads + k]))
            from--;
        begin = from;
    }
    for (int32_t k = 0; k < g->n_writes; k++) {
        int32_t n = lower_instance(w, all->refs[g->writes + k], step);
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
        lower_end(w, w->begins[s]);
    }
    return 0;
}

void ranks_free(struct lowering *w)
{
    free(w->begins);
    free(w->made_by);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void await_operands(struct lowering *w, int32_t step)
{
    const struct graph_op *g = lower_op(w, step);
    lower_wait(w, QUEUE_COMM, w->ends[1 + w->begins[step]]);
    for (int32_t k = 0; k < g->n_reads; k++)
        lower_await_bytes(w, QUEUE_COMM, w->p->graph->refs[g->reads + k]);
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
    lower_record_as(w, QUEUE_COMM, d->event, false);
    lower_departed(w, n);
    d->waited[QUEUE_COMM] = true;
    w->leaving[storage] = d->event;
}

void ranks_step(struct lowering *w, int32_t step)
{
    const struct graph_op *g = lower_op(w, step);
    await_operands(w, step);
    lower_kernel(w, QUEUE_COMM, g);
    for (int32_t k = 0; k < g->n_reads; k++)
        hold(w, w->p->graph->refs[g->reads + k]);
    for (int32_t k = 0; k < g->n_writes; k++)
        w->arriving[w->p->graph->refs[g->writes + k]] = lower_record(w, QUEUE_COMM);
}
