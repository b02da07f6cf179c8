/* SPDX-License-Identifier: Apache-2.0 */
/* Translates instructions to commands of the device: see enqueue.h. */
#include "exec/enqueue.h"
#include "exec/red_zones.h"
#include "kernels/kernel.h"
#include "measure/timing.h"

static struct ckpt_run *run_of(const struct ckpt_program *p, const struct instr *i,
                               struct moment at)
{
    return i->deferred ? &p->runs_before[at.slot]
                       : &p->runs[at.slot * p->tape->n_micro + at.micro + i->micro];
}

static struct ckpt_kernel_args kernel_args(struct ckpt_program *p, const struct instr *i,
                                           struct moment at)
{
    const struct op *o = &p->tape->ops.data[i->op];
    const struct ckpt_run *run = p->programs->memory->device->run;
    bool adds = o->accumulate == ACCUMULATE_ALWAYS ||
                (o->accumulate == ACCUMULATE_LATER_MICRO && at.micro > 0);
    return (struct ckpt_kernel_args){.n_in = o->n_in,
                                     .n_out = o->n_out,
                                     .in = p->lowered.views.data + i->first,
                                     .out = p->lowered.views.data + i->first + o->n_in,
                                     .attr = o->attr,
                                     .workspace = i->device,
                                     .workspace_bytes = i->bytes,
                                     .accumulate = adds,
                                     .op = i->op,
                                     .number = o->number,
                                     .extra = o->extra,
                                     .run = run_of(p, i, at),
                                     .run_device = run ? run + i->deferred : NULL,
                                     .device = i->queue == QUEUE_COMM ? &p->ranks.ops : NULL,
                                     .threads = 1};
}

/* The slice of an I/O buffer for this slot and micro-step; constants have one slice. */
static char *buffer_slice(const struct io_buffer *buffer, const struct instr *i, struct moment at)
{
    const int64_t micro = buffer->bytes > buffer->slice ? at.micro + i->micro : 0;
    return buffer->data[at.slot] + buffer->slice * micro;
}

static void enqueue_compute(struct ckpt_program *p, const struct instr *i, struct moment at)
{
    struct device *d = p->programs->memory->device;
    struct ckpt_kernel_args args = kernel_args(p, i, at);
    double *seconds = timing_slot(p, i, at.micro);
    char name[256];
    if (d->ops->range) {
        tape_op_name(p->tape, i->op, name, sizeof name);
        d->ops->range(d, name);
    }
    const struct op *o = &p->tape->ops.data[i->op];
    ckpt_kernel on_host = kernel_run(o->def, CKPT_ON_CPU);
    ckpt_kernel kernel = i->queue == QUEUE_HOST ? on_host : o->run;
    if (p->programs->options->verify && kernel == on_host && i->queue != QUEUE_COMM) {
        kernel = red_zones_run;
        args.device = &p->zones[i->queue == QUEUE_HOST];
    }
    d->ops->compute(d, i->queue, kernel, &args, seconds);
    if (d->ops->range)
        d->ops->range(d, NULL);
}

int program_write_tier(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    return t->ops->write(t, offset, host, bytes);
}

/* The callback of READ: user is the tier. */
static int program_read_tier(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    return t->ops->read(t, offset, host, bytes);
}

static void begin_write(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    t->ops->begin(t, true, offset, host, bytes);
}

static void begin_read(void *user, int64_t offset, void *host, int64_t bytes)
{
    struct tier *t = user;
    t->ops->begin(t, false, offset, host, bytes);
}

static void enqueue_io(struct ckpt_program *p, const struct instr *i)
{
    bool reads = i->kind == INSTR_READ;
    struct device_io io = {.call = reads ? program_read_tier : program_write_tier,
                           .begin = reads ? begin_read : begin_write,
                           .user = p->programs->memory->tiers[TIER_NVME],
                           .offset = i->offset,
                           .bytes = i->bytes,
                           .host = i->host,
                           .owner = p,
                           .what = i->copy,
                           .step = p->before + p->submitted};
    p->programs->memory->device->ops->io(p->programs->memory->device, i->queue, &io);
}

/* Around a wait: what the other ranks cost this one (dist/pace.h). */
static void enqueue_stopwatch(struct ckpt_program *p, bool ends)
{
    struct device *d = p->programs->memory->device;
    const struct ckpt_kernel_args args = {
        .attr = p->programs->ranks->pace.waited, .accumulate = ends, .op = -1, .threads = 1};
    d->ops->compute(d, QUEUE_COMPUTE, kernel_stopwatch(d->ops->backend), &args, NULL);
}

void enqueue_instr(struct ckpt_program *p, const struct instr *i, struct moment at)
{
    struct device *d = p->programs->memory->device;
    timing_stamp(p, i, at.micro, false);
    switch (i->kind) {
    case INSTR_COMPUTE:
        enqueue_compute(p, i, at);
        break;
    case INSTR_COPY_IN:
        d->ops->copy(d, i->queue, i->device, buffer_slice(&p->feeds[i->buffer], i, at), i->bytes);
        break;
    case INSTR_COPY_OUT:
        d->ops->copy(d, i->queue, buffer_slice(&p->fetches[i->buffer], i, at), i->device, i->bytes);
        break;
    case INSTR_OFFLOAD_IN:
        d->ops->copy(d, i->queue, i->device, i->host, i->bytes);
        break;
    case INSTR_OFFLOAD_OUT:
        d->ops->copy(d, i->queue, i->host, i->device, i->bytes);
        break;
    case INSTR_READ:
    case INSTR_WRITE:
        enqueue_io(p, i);
        break;
    case INSTR_RECORD:
        (i->for_threads ? d->ops->signal : d->ops->record)(d, i->queue, i->event);
        break;
    case INSTR_WAIT:
        if (i->for_ranks)
            enqueue_stopwatch(p, false);
        d->ops->wait(d, i->queue, i->event);
        if (i->for_ranks)
            enqueue_stopwatch(p, true);
        break;
    case INSTR_POISON: /* bytes 0xff are a NaN in fp32 and bf16 */
        d->ops->fill(d, i->queue, i->device, 0xff, i->bytes);
        break;
    }
    timing_stamp(p, i, at.micro, true);
}

void enqueue_run(struct ckpt_program *p, int slot)
{
    struct device *d = p->programs->memory->device;
    if (d->run)
        d->ops->copy(d, QUEUE_COMPUTE, d->run, &p->runs[slot * p->tape->n_micro], sizeof *d->run);
    if (d->run && p->lowered.defers)
        d->ops->copy(d, QUEUE_COMPUTE, d->run + 1, &p->runs_before[slot], sizeof *d->run);
}

void enqueue_step(struct ckpt_program *p, int slot)
{
    const struct instr *instrs = p->lowered.instrs.data;
    enqueue_run(p, slot);
    for (int32_t micro = 0; micro < p->tape->n_bodies; micro++)
        for (int32_t i = 0; i < p->lowered.n_body; i++)
            enqueue_instr(p, &instrs[i], (struct moment){slot, micro});
    enqueue_tail(p, slot);
}

void enqueue_tail(struct ckpt_program *p, int slot)
{
    for (int32_t i = p->lowered.n_body; i < p->lowered.n_instrs; i++)
        enqueue_instr(p, &p->lowered.instrs.data[i], (struct moment){slot, 0});
}
