/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handover between programs: see handover.h.
 *
 * Two lists per program, in the order of addresses: the commands that access a range first in a
 * step, and those that access it last.  When the program changes, one pass over the last accesses
 * of the old one and the first accesses of the new one finds, per command and queue, the latest
 * event to wait for.  The event of a command is the next one its queue records at or after it;
 * after the last of these it is the queue's handover event.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/handover.h"

/* A command that accesses a range. */
struct range_use {
    int32_t index; /* first: its waiter; last: the instruction that records its event */
    int16_t queue;
    bool writes;
};

/* A range and its accesses; the ranges of a list are disjoint. */
struct range {
    int64_t begin, end;
    int32_t first, n;
};

struct range_list {
    struct {
        struct range *data;
        int64_t capacity;
    } ranges;
    struct {
        struct range_use *data;
        int64_t capacity;
    } uses;
    int32_t n_ranges, n_uses;
};

/* A command that is the first to access some range. */
struct waiter {
    int32_t instr;
    enum queue queue;
    int32_t need[QUEUE_COUNT]; /* per queue, the instruction whose event it awaits, or -1 */
};

struct handover {
    struct range_list first, last;
    struct waiter *waiters; /* by instruction */
    int32_t n_waiters;
};

/* ---- the lists ------------------------------------------------------------------------------- */

/* Maps the addresses of all spaces to one order. */
static int64_t address(const struct edge *e, int64_t offset)
{
    return ((int64_t)e->space << 56) + offset;
}

static bool is_same(const struct range_list *s, const struct range *a, const struct range *b)
{
    return a->end == b->begin && a->n == b->n &&
           !memcmp(s->uses.data + a->first, s->uses.data + b->first,
                   (size_t)a->n * sizeof *s->uses.data);
}

/* Merges the last range into the one before it if both are adjacent and have equal accesses. */
static void join_last(struct range_list *s)
{
    if (s->n_ranges < 2)
        return;
    struct range *b = s->ranges.data + s->n_ranges - 1, *a = b - 1;
    if (!is_same(s, a, b))
        return;
    a->end = b->end;
    s->n_uses -= b->n;
    s->n_ranges--;
}

static int begin_range(struct range_list *s, const struct edge *e)
{
    join_last(s);
    if (ARRAY_RESERVE(&s->ranges, s->n_ranges))
        return CKPT_ENOMEM;
    s->ranges.data[s->n_ranges++] =
        (struct range){address(e, e->begin), address(e, e->end), s->n_uses, 0};
    return 0;
}

/* index[i]: the value of range_use.index for command i. */
static int make_list(struct range_list *s, const struct commands *c, const struct edges *edges,
                     const int32_t *index)
{
    for (int32_t i = 0; i < edges->n; i++) {
        const struct edge *e = &edges->list.data[i];
        bool fresh = !s->n_ranges || s->ranges.data[s->n_ranges - 1].begin != address(e, e->begin);
        if ((fresh && begin_range(s, e)) || ARRAY_RESERVE(&s->uses, s->n_uses))
            return CKPT_ENOMEM;
        struct range_use *t = &s->uses.data[s->n_uses++];
        memset(t, 0, sizeof *t); /* is_same compares padding, too */
        t->index = index[e->command];
        t->queue = (int16_t)c->list.data[e->command].instr.queue;
        t->writes = e->writes;
        s->ranges.data[s->n_ranges - 1].n++;
    }
    if (s->n_ranges)
        join_last(s);
    return 0;
}

/* Makes a waiter for each command that accesses a range first; index[i] is the waiter of command i.
 */
static int make_waiters(struct handover *t, const struct commands *c, const struct edges *first,
                        const int32_t *at, int32_t *index)
{
    for (int32_t i = 0; i < c->n; i++)
        index[i] = -1;
    for (int32_t i = 0; i < first->n; i++)
        index[first->list.data[i].command] = 0;
    t->waiters = malloc(((size_t)c->n + 1) * sizeof *t->waiters);
    if (!t->waiters)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < c->n; i++) {
        if (index[i] < 0)
            continue;
        index[i] = t->n_waiters;
        t->waiters[t->n_waiters++] =
            (struct waiter){.instr = at[i], .queue = c->list.data[i].instr.queue};
    }
    return 0;
}

/* index[i] becomes the next instruction at or after command i that records an event on its queue;
 * or n_instrs if there is none. */
static void find_records(const struct lowered *l, const struct commands *c, const int32_t *at,
                         int32_t *index)
{
    int32_t next[QUEUE_COUNT], i = l->n_instrs;
    for (int q = 0; q < QUEUE_COUNT; q++)
        next[q] = l->n_instrs;
    for (int32_t k = c->n - 1; k >= 0; k--) {
        for (; i > at[k]; i--)
            if (i < l->n_instrs && l->instrs.data[i].kind == INSTR_RECORD)
                next[l->instrs.data[i].queue] = i;
        index[k] = next[c->list.data[k].instr.queue];
    }
}

int handover_new(struct ckpt_program *p, const struct commands *c, const struct hazards *h,
                 const int32_t *at)
{
    struct handover *t = p->lowered.handover = calloc(1, sizeof *t);
    int32_t *index = malloc(((size_t)c->n + 1) * sizeof *index);
    int rc = t && index ? 0 : CKPT_ENOMEM;
    if (!rc)
        rc = make_waiters(t, c, &h->first, at, index);
    if (!rc)
        rc = make_list(&t->first, c, &h->first, index);
    if (!rc) {
        find_records(&p->lowered, c, at, index);
        rc = make_list(&t->last, c, &h->last, index);
    }
    free(index);
    return rc;
}

static void free_list(struct range_list *s)
{
    free(s->ranges.data);
    free(s->uses.data);
}

void handover_free(struct handover *t)
{
    if (!t)
        return;
    free_list(&t->first);
    free_list(&t->last);
    free(t->waiters);
    free(t);
}

/* ---- two programs ---------------------------------------------------------------------------- */

static void add_need(struct handover *t, const struct range_use *now,
                     const struct range_use *before)
{
    int32_t *need = &t->waiters[now->index].need[before->queue];
    if (now->queue != before->queue && (now->writes || before->writes) && before->index > *need)
        *need = before->index;
}

static void add_needs(struct handover *t, const struct range *now, const struct handover *before,
                      const struct range *then)
{
    for (int32_t i = 0; i < now->n; i++)
        for (int32_t k = 0; k < then->n; k++)
            add_need(t, &t->first.uses.data[now->first + i],
                     &before->last.uses.data[then->first + k]);
}

/* Drops a wait that an earlier wait of the same queue covers. */
static void drop_waits(struct handover *t)
{
    int32_t clock[QUEUE_COUNT][QUEUE_COUNT];
    memset(clock, -1, sizeof clock);
    for (int32_t i = 0; i < t->n_waiters; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            int32_t *known = &clock[t->waiters[i].queue][q], *need = &t->waiters[i].need[q];
            if (*need > *known)
                *known = *need;
            else
                *need = -1;
        }
}

static void find_waits(struct handover *t, const struct handover *before)
{
    const struct range_list *a = &t->first, *b = &before->last;
    for (int32_t i = 0; i < t->n_waiters; i++)
        memset(t->waiters[i].need, -1, sizeof t->waiters[i].need);
    for (int32_t i = 0, k = 0; i < a->n_ranges && k < b->n_ranges;) {
        const struct range *now = &a->ranges.data[i], *then = &b->ranges.data[k];
        if (now->begin < then->end && then->begin < now->end)
            add_needs(t, now, before, then);
        if (now->end <= then->end)
            i++;
        else
            k++;
    }
    drop_waits(t);
}

/* ---- a step ---------------------------------------------------------------------------------- */

/* The first events of a device: two sets, used alternately at handovers; back 1 is the set before.
 */
static int32_t handover_event(const struct programs *ps, int back, int queue)
{
    return (ps->event_set ^ back) * QUEUE_COUNT + queue;
}

static void wait_for_all(const struct ckpt_program *p, int q, int n, int back, bool host)
{
    struct device *d = p->programs->memory->device;
    for (int other = 0; other < n; other++)
        if (other != q && (host || other != QUEUE_HOST))
            d->ops->wait(d, (enum queue)q, handover_event(p->programs, back, other));
}

void handover_begin(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct device *d = ps->memory->device;
    const struct ckpt_program *before = ps->last_submitted;
    int n = program_has_threads(p) ? QUEUE_COUNT : QUEUE_READ;
    ps->last_submitted = p;
    p->follows = NULL;
    if (!before || before == p || !(program_is_offloaded(before) || program_is_offloaded(p)))
        return;
    if (p->lowered.handover && before->lowered.handover)
        p->follows = before;
    ps->event_set ^= 1;
    for (int q = 0; q < n; q++)
        d->ops->signal(d, (enum queue)q, handover_event(ps, 0, q));
    for (int q = 0; q < n; q++) {
        wait_for_all(p, q, n, 1, true);
        if (!p->follows || q >= QUEUE_READ)
            wait_for_all(p, q, n, 0, false);
    }
    if (p->follows)
        find_waits(p->lowered.handover, before->lowered.handover);
}

static void wait_events(const struct ckpt_program *p, const struct waiter *s)
{
    struct device *d = p->programs->memory->device;
    const struct lowered *l = &p->follows->lowered;
    for (int q = 0; q < QUEUE_COUNT && s->queue < QUEUE_READ; q++)
        if (s->need[q] >= 0)
            d->ops->wait(d, s->queue,
                         s->need[q] < l->n_instrs ? l->instrs.data[s->need[q]].event
                                                  : handover_event(p->programs, 0, q));
}

/* The first waiter whose instruction is `instr` or a later one. */
static int32_t find_waiter(const struct handover *t, int32_t instr)
{
    int32_t low = 0, high = t->n_waiters;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (t->waiters[middle].instr < instr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void handover_wait(struct ckpt_program *p, int32_t i)
{
    const struct handover *t = p->lowered.handover;
    if (!p->follows)
        return;
    int32_t waiter = find_waiter(t, i);
    if (waiter < t->n_waiters && t->waiters[waiter].instr == i)
        wait_events(p, &t->waiters[waiter]);
}

void handover_wait_kernels(struct ckpt_program *p, int32_t i, int32_t end)
{
    const struct handover *t = p->lowered.handover;
    if (!p->follows)
        return;
    for (int32_t waiter = find_waiter(t, i);
         waiter < t->n_waiters && t->waiters[waiter].instr < end; waiter++)
        if (t->waiters[waiter].queue == QUEUE_COMPUTE)
            wait_events(p, &t->waiters[waiter]);
}
