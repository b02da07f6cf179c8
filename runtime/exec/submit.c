/* SPDX-License-Identifier: Apache-2.0 */
/* Submits the instructions of a step: nothing is decided and nothing is allocated. */
#include "exec/enqueue.h"
#include "exec/segments.h"
#include "measure/timing.h"
#include "exec/handover.h"

static void submit_instr(struct ckpt_program *p, int32_t i, struct moment at)
{
    handover_wait(p, i);
    enqueue_instr(p, &p->lowered.instrs.data[i], at);
    if (i == p->lowered.last_fetch)
        p->programs->memory->device->ops->mark(p->programs->memory->device, p->mark[at.slot],
                                               QUEUE_COPY_OUT);
}

static void submit_segment(struct ckpt_program *p, int32_t i, int32_t end, int32_t *next)
{
    handover_wait_kernels(p, i, end);
    segment_replay(p, (*next)++);
}

/* Submits instructions [from, to), replaying recorded segments.  Instructions of other queues
 * inside a segment follow it, since they may wait for its events. */
static void submit_part(struct ckpt_program *p, int32_t from, int32_t to, struct moment at,
                        int32_t *next)
{
    for (int32_t i = from; i < to;) {
        int32_t end = segment_end(p, i, *next);
        if (end == i)
            submit_instr(p, i++, at);
        else
            submit_segment(p, i, end, next);
        for (; i < end; i++)
            if (instr_is_other_queue(&p->lowered.instrs.data[i]))
                submit_instr(p, i, at);
    }
}

/*
 * A step with offloads.  The mark covers all work submitted before, the compute queue, and the
 * copies of outputs: this is what the caller waits for.  Everything else may run on under the next
 * step, which waits for the parts that it needs.
 */
static void submit_offloaded(struct ckpt_program *p, int slot)
{
    struct device *d = p->programs->memory->device;
    int32_t next = 0, body = p->lowered.n_body;
    for (int q = 0; q < QUEUE_COUNT; q++)
        d->ops->mark(d, p->mark[slot], (enum queue)q);
    enqueue_run(p, slot);
    for (int32_t micro = 0; micro < p->tape->n_bodies; micro++)
        submit_part(p, 0, body, (struct moment){slot, micro}, &next);
    submit_part(p, body, p->lowered.n_instrs, (struct moment){slot, 0}, &next);
    d->ops->mark(d, p->mark[slot], QUEUE_COMPUTE);
}

void program_submit(struct ckpt_program *p, int slot)
{
    struct device *d = p->programs->memory->device;
    p->mark[slot] = (int)(p->programs->submitted++ % DEVICE_MARKS);
    timing_begin_step(p);
    handover_begin(p);
    p->run_slot = slot;
    p->programs->pending = p->lowered.defers ? p : p->programs->pending;
    if (program_is_offloaded(p)) {
        submit_offloaded(p, slot);
        return;
    }
    if (p->recorded[slot])
        d->ops->replay(d, p->recorded[slot]);
    else
        enqueue_step(p, slot);
    for (int q = 0; q < QUEUE_COUNT; q++)
        d->ops->mark(d, p->mark[slot], (enum queue)q);
}
