/* SPDX-License-Identifier: Apache-2.0 */
/* Recording steps, and the kernels between copies: see segments.h. */
#include <stdlib.h>
#include "exec/enqueue.h"
#include "exec/segments.h"

/*
 * Device bytes of recordings (H100, STDiT3-XL/2: 26 MiB of 6,352 kernels in two whole steps, 28 of
 * 3,667 in 175 segments, 56 of 3,688 in 422, 96 of 3,887 in 783), and the limit on their sum, a
 * part of the slack of measure/warm.c.  Kernels beyond the limit are submitted one by one.
 */
enum {
    MIN_KERNELS = 2, /* shorter runs of kernels are submitted one by one */
    KERNEL_BYTES = 4400,
    SEGMENT_BYTES = 104 << 10,
    MAX_BYTES = 60 << 20,
    MAX_KERNELS = MAX_BYTES / KERNEL_BYTES
};

/* A segment ends before a wait, and before an event that a host thread waits for: submitting the
 * event is what wakes it. */
static bool ends_segment(const struct instr *i)
{
    bool kept = i->kind == INSTR_COMPUTE || i->kind == INSTR_POISON ||
                (i->kind == INSTR_RECORD && !i->for_threads);
    return !instr_is_other_queue(i) && !kept;
}

static int record_segment(struct ckpt_program *p, int32_t first, int32_t end, int32_t micro)
{
    struct device *d = p->programs->memory->device;
    if (ARRAY_RESERVE(&p->segments, p->n_segments))
        return CKPT_ENOMEM;
    struct segment *s = &p->segments.data[p->n_segments];
    *s = (struct segment){.first = first, .end = end};
    d->ops->begin(d, true);
    for (int32_t i = first; i < end; i++)
        if (!instr_is_other_queue(&p->lowered.instrs.data[i]))
            enqueue_instr(p, &p->lowered.instrs.data[i], (struct moment){0, micro});
    int rc = d->ops->end(d, &s->step);
    p->n_segments += !rc;
    return rc;
}

/* Finds the segment that begins at an instruction: its end, and where to search for the next one.
 * Returns its number of kernels; 0: no segment begins here. */
static int32_t find_segment(const struct ckpt_program *p, int32_t first, int32_t to, int32_t *end,
                            int32_t *next)
{
    const struct instr *instrs = p->lowered.instrs.data;
    int32_t kernels = 0, i = first;
    for (; i < to && !ends_segment(&instrs[i]); i++) {
        if (instr_is_other_queue(&instrs[i])) {
            if (i == first)
                break;
            continue;
        }
        kernels += instrs[i].kind == INSTR_COMPUTE;
        *end = i + 1;
    }
    *next = i > first ? i : first + 1;
    return kernels;
}

/* Records the segments of instructions [from, to) that have at least `min_kernels` kernels. */
static int record_segments(struct ckpt_program *p, int32_t from, int32_t to, int32_t micro,
                           int32_t min_kernels)
{
    int rc = 0;
    for (int32_t first = from, end, next; first < to && !rc; first = next)
        if (find_segment(p, first, to, &end, &next) >= min_kernels)
            rc = record_segment(p, first, end, micro);
    return rc;
}

/* Device bytes of the same segments. */
static int64_t segment_bytes(const struct ckpt_program *p, int32_t from, int32_t to,
                             int32_t min_kernels)
{
    int64_t bytes = 0;
    for (int32_t first = from, end, next; first < to; first = next) {
        const int32_t kernels = find_segment(p, first, to, &end, &next);
        bytes += kernels >= min_kernels ? SEGMENT_BYTES + (int64_t)KERNEL_BYTES * kernels : 0;
    }
    return bytes;
}

/* The smallest minimum of kernels per segment with which `micros` micro-steps and the tail fit. */
static int32_t smallest_segment(const struct ckpt_program *p, int64_t micros)
{
    const int32_t body = p->lowered.n_body, n = p->lowered.n_instrs;
    int32_t min_kernels = MIN_KERNELS;
    while (micros * segment_bytes(p, 0, body, min_kernels) +
               segment_bytes(p, body, n, min_kernels) >
           MAX_BYTES)
        min_kernels++;
    return min_kernels;
}

static int32_t count_kernels(const struct ckpt_program *p, int32_t from, int32_t to)
{
    int32_t n = 0;
    for (int32_t i = from; i < to; i++)
        n += p->lowered.instrs.data[i].kind == INSTR_COMPUTE;
    return n;
}

/* How many micro-steps can be recorded beside the tail with at most `max_kernels` kernels in all.
 */
static int64_t recorded_micros(const struct ckpt_program *p, int32_t max_kernels)
{
    const int64_t body = max_i64(1, count_kernels(p, 0, p->lowered.n_body));
    const int64_t tail = count_kernels(p, p->lowered.n_body, p->lowered.n_instrs);
    return min_i64(p->tape->n_bodies, max_i64(0, max_kernels - tail) / body);
}

/* Both in-flight slots share one recording: struct ckpt_run is uploaded before each step. */
static int record_offloaded(struct ckpt_program *p)
{
    const int64_t micros = recorded_micros(p, MAX_KERNELS);
    const int32_t body = p->lowered.n_body, min_kernels = smallest_segment(p, micros);
    int rc = 0;
    program_set_runs(p, 0);
    for (int32_t micro = 0; micro < micros && !rc; micro++)
        rc = record_segments(p, 0, body, micro, min_kernels);
    return rc ? rc : record_segments(p, body, p->lowered.n_instrs, 0, min_kernels);
}

static int record_whole(struct ckpt_program *p, int slot)
{
    struct device *d = p->programs->memory->device;
    program_set_runs(p, slot);
    d->ops->begin(d, false);
    enqueue_step(p, slot);
    return d->ops->end(d, &p->recorded[slot]);
}

int program_record(struct ckpt_program *p)
{
    int rc = 0;
    program_forget(p);
    if (!p->programs->memory->device->ops->begin || p->timing || program_runs_once(p))
        return 0;
    if (program_is_offloaded(p))
        return record_offloaded(p);
    if (recorded_micros(p, MAX_KERNELS / DEVICE_IN_FLIGHT) < p->tape->n_bodies)
        return 0;
    for (int slot = 0; slot < DEVICE_IN_FLIGHT && !rc; slot++)
        rc = record_whole(p, slot);
    return rc;
}

void program_forget(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    for (int slot = 0; slot < DEVICE_IN_FLIGHT; slot++) {
        if (p->recorded[slot])
            d->ops->forget(d, p->recorded[slot]);
        p->recorded[slot] = NULL;
    }
    for (int32_t i = 0; i < p->n_segments; i++)
        d->ops->forget(d, p->segments.data[i].step);
    free(p->segments.data);
    p->segments.data = NULL;
    p->segments.capacity = p->n_segments = 0;
}

int32_t segment_end(const struct ckpt_program *p, int32_t first, int32_t next)
{
    bool begins = next < p->n_segments && p->segments.data[next].first == first;
    return begins ? p->segments.data[next].end : first;
}

void segment_replay(struct ckpt_program *p, int32_t n)
{
    struct device *d = p->programs->memory->device;
    d->ops->replay(d, p->segments.data[n].step);
}
