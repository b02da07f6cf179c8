/* SPDX-License-Identifier: Apache-2.0 */
/* Updates that are pending between two steps: see deferred.h. */
#include "exec/deferred.h"
#include <math.h>
#include <string.h>
#include "attr.h"
#include "exec/enqueue.h"

static int sync_device(struct programs *ps, const struct ckpt_program *p)
{
    struct device *d = ps->memory->device;
    int rc = d->ops->sync(d);
    return rc ? programs_fail_device(ps, p, rc) : 0;
}

/* The next instruction from *i on that runs deferred updates on a queue, or NULL. */
static const struct instr *next_update(const struct ckpt_program *p, enum queue queue, int32_t *i)
{
    while (*i < p->lowered.n_instrs) {
        const struct instr *at = &p->lowered.instrs.data[(*i)++];
        if (at->kind == INSTR_COMPUTE && at->deferred && at->queue == queue)
            return at;
    }
    return NULL;
}

/* Copies the values that the host has made to their place on the device.  Both queues have the
 * updates in one order. */
static void copy_values(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    const struct instr *to, *from;
    int32_t i = 0, k = 0;
    while ((to = next_update(p, QUEUE_COMPUTE, &i)) && (from = next_update(p, QUEUE_HOST, &k))) {
        const struct ckpt_view *device = &p->lowered.views.data[to->first + UPDATE_VALUE];
        const struct ckpt_view *host = &p->lowered.views.data[from->first + UPDATE_VALUE];
        d->ops->copy(d, QUEUE_COPY_IN, device->data, host->data, desc_bytes(&device->desc));
    }
}

int programs_run_pending(void *user)
{
    struct programs *ps = user;
    struct ckpt_program *p = ps->pending;
    int32_t i = 0;
    if (!p || ps->params->lost)
        return 0;
    ps->pending = NULL;
    const bool broken = __atomic_load_n(p->halt, __ATOMIC_RELAXED) >= HALT_UPDATE;
    p->runs_before[p->run_slot] = p->runs[p->run_slot * p->tape->n_micro];
    for (const struct instr *at; (at = next_update(p, QUEUE_HOST, &i));)
        enqueue_instr(p, at, (struct moment){p->run_slot, 0});
    int rc = sync_device(ps, p);
    if (!rc) {
        copy_values(p);
        rc = sync_device(ps, p);
    }
    if (!rc && !broken && __atomic_load_n(p->halt, __ATOMIC_RELAXED) >= HALT_UPDATE)
        rc = program_report_update(p, p->before + p->submitted, /* those under way are done */
                                   p->submitted > p->steps ? NAN : p->grad_norm);
    return rc;
}

/* Makes the clip values of the step before NaN, on both sides. */
static int clear_clip(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    int32_t i = 0, k = 0;
    const struct instr *on_device = next_update(p, QUEUE_COMPUTE, &i);
    const struct instr *on_host = next_update(p, QUEUE_HOST, &k);
    const int32_t last = p->tape->ops.data[on_device->op].n_in - 1; /* the clip values */
    const struct ckpt_view *device = &p->lowered.views.data[on_device->first + last];
    const struct ckpt_view *host = &p->lowered.views.data[on_host->first + last];
    memset(host->data, 0xff, (size_t)desc_bytes(&host->desc)); /* a NaN, as in INSTR_POISON */
    d->ops->fill(d, QUEUE_COMPUTE, device->data, 0xff, desc_bytes(&device->desc));
    return sync_device(p->programs, p);
}

int deferred_begin(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    int rc = 0;
    if (ps->pending == p || (!ps->pending && !p->lowered.defers))
        return 0;
    rc = sync_device(ps, ps->pending);
    if (!rc)
        rc = programs_run_pending(ps);
    return rc || !p->lowered.defers ? rc : clear_clip(p);
}
