/* SPDX-License-Identifier: Apache-2.0 */
/* Programs in turn: see turns.h. */
#include "exec/turns.h"

/* ---- the list -------------------------------------------------------------------------------- */

static bool is_update(const struct instr *i)
{
    return i->kind == INSTR_COMPUTE && i->queue == QUEUE_HOST;
}

/* The clip values of any program: a range that only grows. */
static void add_read(struct programs *ps, const struct ckpt_view *v)
{
    const char *from = v->data, *end = from + desc_bytes(&v->desc);
    if (!ps->host_reads || from < ps->host_reads)
        ps->host_reads = from;
    if (end > ps->host_reads_end)
        ps->host_reads_end = end;
}

static int add_update(struct ckpt_program *p, const struct instr *i, int32_t event)
{
    const struct ckpt_tape *t = p->tape;
    const struct op *o = &t->ops.data[i->op];
    for (int32_t k = 0; k < o->n_in + o->n_out; k++) {
        int32_t tensor = t->operands.data[o->operands + k];
        if (tensor <= 0)
            continue;
        const struct storage *s = &t->storages.data[t->tensors.data[tensor].storage];
        if (s->param < 0 || s->kind >= STORAGE_GRADIENT) {
            add_read(p->programs, &p->lowered.views.data[i->first + k]);
            continue;
        }
        if (ARRAY_RESERVE(&p->lowered.updated, p->lowered.n_updated))
            return CKPT_ENOMEM;
        p->lowered.updated.data[p->lowered.n_updated++] =
            (struct updated){s->param, s->kind - STORAGE_VALUE, event};
    }
    return 0;
}

/* Not every update has an event of its own: one that comes later will do, or that of the queue. */
int turns_find(struct ckpt_program *p)
{
    int32_t event = QUEUE_HOST;
    int rc = 0;
    for (int32_t i = p->lowered.n_instrs - 1; i >= 0 && !rc; i--) {
        const struct instr *instr = &p->lowered.instrs.data[i];
        if (instr->kind == INSTR_RECORD && instr->queue == QUEUE_HOST)
            event = instr->event;
        if (is_update(instr))
            rc = add_update(p, instr, event);
    }
    return rc;
}

/* ---- a step ---------------------------------------------------------------------------------- */

void turns_begin(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    const struct ckpt_program *before = p->programs->last_submitted;
    int n = program_has_threads(p) ? QUEUE_COUNT : QUEUE_READ;
    p->programs->last_submitted = p;
    p->after_other = before && before != p && (program_is_parked(before) || program_is_parked(p));
    if (!p->after_other)
        return;
    for (int q = 0; q < n; q++)
        d->ops->signal(d, (enum queue)q, q);
    for (int q = 0; q < n; q++)
        for (int other = 0; other < n && other != QUEUE_HOST; other++)
            if (other != q)
                d->ops->wait(d, (enum queue)q, other);
}

/* The update that wrote last what a copy takes from its home or brings there; or all of them, where
 * it would write what they read. */
static int32_t awaited(const struct ckpt_program *p, const struct instr *i)
{
    const struct programs *ps = p->programs;
    const struct copy *c = &p->plan->copies[i->copy];
    const struct storage *s =
        &p->tape->storages
             .data[p->graph->storages[p->plan->residences[c->from].storage].tape_storage];
    const char *host = i->host;
    if (s->param >= 0 && s->kind < STORAGE_GRADIENT)
        return ps->params->data[s->param].host_event[s->kind - STORAGE_VALUE];
    bool meets = host < ps->host_reads_end && ps->host_reads < host + i->bytes;
    return meets ? QUEUE_HOST : 0;
}

void turns_wait(struct ckpt_program *p, const struct instr *i)
{
    struct device *d = p->programs->memory->device;
    if (!p->after_other || (i->kind != INSTR_PARK_IN && i->kind != INSTR_PARK_OUT))
        return;
    int32_t event = awaited(p, i);
    if (event)
        d->ops->wait(d, i->queue, event);
}

void turns_end(struct ckpt_program *p)
{
    for (int32_t i = 0; i < p->lowered.n_updated; i++) {
        const struct updated *u = &p->lowered.updated.data[i];
        p->programs->params->data[u->param].host_event[u->slot] = u->event;
    }
    p->after_other = false;
}
