/* SPDX-License-Identifier: Apache-2.0 */
/* Recording steps, and the kernels between copies: see record.h. */
#include <stdlib.h>
#include "exec/enqueue.h"
#include "exec/segments.h"

enum {
    LEAST_KERNELS = 2, /* fewer in a row are handed over one by one */
    /* Each that is recorded takes 3 KB of the device (H200: 0.7 GB of Qwen 2.5 7B, whose two
     * recordings had 64 micro-steps of 1,897 kernels).  So many fit what warm.c keeps for them;
     * what else a step has is handed over one by one. */
    MOST_KERNELS = 16384
};

/* A segment ends before a wait, and before an event that threads may wait for: they are told of it
 * when it is handed over. */
static bool ends_segment(const struct ckpt_program *p, const struct instr *i)
{
    bool kept = i->kind == INSTR_COMPUTE || i->kind == INSTR_POISON ||
                (i->kind == INSTR_RECORD && !program_has_threads(p));
    return !instr_is_beside(i) && !kept;
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
        if (!instr_is_beside(&p->lowered.instrs.data[i]))
            enqueue_instr(p, &p->lowered.instrs.data[i], (struct moment){0, micro});
    int rc = d->ops->end(d, &s->step);
    p->n_segments += !rc;
    return rc;
}

/* Finds the segment that begins at an instruction: its end, and where to look for the next one.
 * Returns the kernels it has. */
static int32_t find_segment(const struct ckpt_program *p, int32_t first, int32_t to, int32_t *end,
                            int32_t *next)
{
    const struct instr *instrs = p->lowered.instrs.data;
    int32_t kernels = 0, i = first;
    for (; i < to && !ends_segment(p, &instrs[i]); i++) {
        if (instr_is_beside(&instrs[i]))
            continue;
        kernels += instrs[i].kind == INSTR_COMPUTE;
        *end = i + 1;
    }
    *next = i > first ? i : first + 1;
    return kernels;
}

/* Of instructions [from, to). */
static int record_segments(struct ckpt_program *p, int32_t from, int32_t to, int32_t micro)
{
    int rc = 0;
    for (int32_t first = from, end, next; first < to && !rc; first = next) {
        next = first + 1;
        if (!instr_is_beside(&p->lowered.instrs.data[first]) &&
            find_segment(p, first, to, &end, &next) >= LEAST_KERNELS)
            rc = record_segment(p, first, end, micro);
    }
    return rc;
}

static int32_t count_kernels(const struct ckpt_program *p, int32_t from, int32_t to)
{
    int32_t n = 0;
    for (int32_t i = from; i < to; i++)
        n += p->lowered.instrs.data[i].kind == INSTR_COMPUTE;
    return n;
}

/* The micro-steps that can be recorded if the tail is, and no more than so many kernels. */
static int64_t recorded_micros(const struct ckpt_program *p, int32_t most)
{
    const int64_t body = max_i64(1, count_kernels(p, 0, p->lowered.n_body));
    const int64_t tail = count_kernels(p, p->lowered.n_body, p->lowered.n_instrs);
    return min_i64(p->tape->n_micro, max_i64(0, most - tail) / body);
}

/* One recording does for both steps under way: what kernels see of the step is uploaded. */
static int record_parked(struct ckpt_program *p)
{
    const int64_t micros = recorded_micros(p, MOST_KERNELS);
    int rc = 0;
    program_set_runs(p, 0);
    for (int32_t micro = 0; micro < micros && !rc; micro++)
        rc = record_segments(p, 0, p->lowered.n_body, micro);
    return rc ? rc : record_segments(p, p->lowered.n_body, p->lowered.n_instrs, 0);
}

static int record_whole(struct ckpt_program *p, int flight)
{
    struct device *d = p->programs->memory->device;
    program_set_runs(p, flight);
    d->ops->begin(d, false);
    enqueue_step(p, flight);
    return d->ops->end(d, &p->recorded[flight]);
}

int program_record(struct ckpt_program *p)
{
    int rc = 0;
    program_forget(p);
    if (!p->programs->memory->device->ops->begin || p->timing)
        return 0;
    if (program_is_parked(p))
        return record_parked(p);
    if (recorded_micros(p, MOST_KERNELS / DEVICE_FLIGHTS) < p->tape->n_micro)
        return 0;
    for (int flight = 0; flight < DEVICE_FLIGHTS && !rc; flight++)
        rc = record_whole(p, flight);
    return rc;
}

void program_forget(struct ckpt_program *p)
{
    struct device *d = p->programs->memory->device;
    for (int flight = 0; flight < DEVICE_FLIGHTS; flight++) {
        if (p->recorded[flight])
            d->ops->forget(d, p->recorded[flight]);
        p->recorded[flight] = NULL;
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
