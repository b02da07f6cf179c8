/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vector clock per queue counts its instructions; a queue learns other queues' clocks by waiting
 * for events.  Of two accesses on different queues, the queue of the later one must know the
 * earlier one.
 */
#include <stdlib.h>
#include <string.h>
#include "dist/races.h"

struct clock {
    int64_t of[QUEUE_COUNT];
};

struct access {
    const char *from, *to;
    bool writes;
    enum queue queue;
    int64_t time;
    int32_t instr;
};

struct replay {
    const struct ckpt_program *p;
    struct races *found;
    struct clock now[QUEUE_COUNT], *events;
    struct {
        struct access *data;
        int64_t capacity;
    } accesses;
    int64_t n;
    bool failed;
};

static void touch(struct replay *r, int32_t instr, const void *at, int64_t bytes, bool writes)
{
    enum queue q = r->p->lowered.instrs.data[instr].queue;
    struct access a = {at, (const char *)at + bytes, writes, q, r->now[q].of[q], instr};
    if (!at || bytes <= 0)
        return;
    for (int64_t i = 0; i < r->n; i++) {
        const struct access *b = &r->accesses.data[i];
        if (b->queue == q || b->time <= r->now[q].of[b->queue] || !(a.writes || b->writes) ||
            b->from >= a.to || a.from >= b->to)
            continue;
        if (!r->found->pairs++)
            snprintf(r->found->first, sizeof r->found->first,
                     "instructions %d on queue %d and %d on queue %d", b->instr, (int)b->queue,
                     instr, (int)q);
    }
    if (ARRAY_RESERVE(&r->accesses, r->n))
        r->failed = true;
    else
        r->accesses.data[r->n++] = a;
}

/* The bytes that a view spans, including gaps between its strides. */
static void touch_view(struct replay *r, int32_t instr, const struct ckpt_view *v, bool writes)
{
    int64_t last = 0;
    for (int i = 0; i < v->desc.ndim; i++)
        last += (v->desc.shape[i] - 1) * v->desc.stride[i];
    if (v->desc.ndim >= 0)
        touch(r, instr, v->data, (last + 1) * ckpt_dtype_size(v->desc.dtype), writes);
}

static void touch_operands(struct replay *r, int32_t n)
{
    const struct instr *i = &r->p->lowered.instrs.data[n];
    const struct op *o = &r->p->tape->ops.data[i->op];
    const struct ckpt_view *views = r->p->lowered.views.data + i->first;
    for (int32_t k = 0; k < o->n_in; k++)
        touch_view(r, n, &views[k], false);
    for (int32_t k = 0; k < o->n_out; k++)
        touch_view(r, n, &views[o->n_in + k], true);
    if (i->bytes)
        touch(r, n, i->device, i->bytes, true);
}

static void take(struct replay *r, int32_t n)
{
    const struct instr *i = &r->p->lowered.instrs.data[n];
    struct clock *now = &r->now[i->queue];
    bool in = i->kind == INSTR_COPY_IN || i->kind == INSTR_OFFLOAD_IN;
    now->of[i->queue]++;
    switch (i->kind) {
    case INSTR_RECORD:
        r->events[i->event] = *now;
        break;
    case INSTR_WAIT:
        for (int q = 0; q < QUEUE_COUNT; q++)
            now->of[q] = max_i64(now->of[q], r->events[i->event].of[q]);
        break;
    case INSTR_COMPUTE:
        if (i->queue == QUEUE_COMM &&
            now->of[QUEUE_COMPUTE] < r->now[QUEUE_COMPUTE].of[QUEUE_COMPUTE])
            r->found->ahead++;
        if (i->queue == QUEUE_COMPUTE && now->of[QUEUE_COMM] < r->now[QUEUE_COMM].of[QUEUE_COMM])
            r->found->under++;
        touch_operands(r, n);
        break;
    default:
        touch(r, n, i->device, i->bytes, in || i->kind == INSTR_POISON);
        touch(r, n, i->host, i->bytes, !in && i->kind != INSTR_WRITE);
    }
}

bool races_find(const struct ckpt_program *p, int32_t without, struct races *found)
{
    struct replay r = {.p = p, .found = found};
    const struct lowered *l = &p->lowered;
    *found = (struct races){0};
    r.events = calloc((size_t)l->end_event + 1, sizeof *r.events);
    for (int step = 0; step < 2 && r.events; step++)
        for (int32_t micro = 0; micro <= p->tape->n_micro; micro++) {
            bool tail = micro == p->tape->n_micro;
            for (int32_t i = tail ? l->n_body : 0; i < (tail ? l->n_instrs : l->n_body); i++)
                if (i != without)
                    take(&r, i);
        }
    bool ok = r.events && !r.failed;
    free(r.events);
    free(r.accesses.data);
    return ok;
}
