/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handover between programs: see turns.h.
 *
 * Two lists per program, in the order of addresses: the commands that access a range first in a
 * step, and those that access it last.  When the program changes, one pass over the last accesses
 * of the old one and the first accesses of the new one finds, per command and queue, the latest
 * event to wait for.  The event of a command is the next one its queue records at or after it;
 * after the last of these it is the queue's handover event.
 */
#include <stdlib.h>
#include <string.h>
#include "exec/turns.h"

/* A command that accesses a range. */
struct touch {
    int32_t what; /* first: its slot; last: the instruction that records its event */
    int16_t queue;
    bool writes;
};

/* A range and its accesses; the ranges of a list are disjoint. */
struct stretch {
    int64_t begin, end;
    int32_t first, n;
};

struct side {
    struct {
        struct stretch *data;
        int64_t capacity;
    } stretches;
    struct {
        struct touch *data;
        int64_t capacity;
    } touches;
    int32_t n_stretches, n_touches;
};

/* A command that is the first to access some range. */
struct slot {
    int32_t instr;
    enum queue queue;
    int32_t need[QUEUE_COUNT]; /* per queue, the instruction whose event it awaits, or -1 */
};

struct turns {
    struct side first, last;
    struct slot *slots; /* by instruction */
    int32_t n_slots;
};

/* ---- the lists ------------------------------------------------------------------------------- */

/* Maps the addresses of all spaces to one order. */
static int64_t address(const struct edge *e, int64_t offset)
{
    return ((int64_t)e->space << 56) + offset;
}

static bool is_same(const struct side *s, const struct stretch *a, const struct stretch *b)
{
    return a->end == b->begin && a->n == b->n &&
           !memcmp(s->touches.data + a->first, s->touches.data + b->first,
                   (size_t)a->n * sizeof *s->touches.data);
}

/* Merges the last range into the one before it if both are adjacent and have equal accesses. */
static void join_last(struct side *s)
{
    if (s->n_stretches < 2)
        return;
    struct stretch *b = s->stretches.data + s->n_stretches - 1, *a = b - 1;
    if (!is_same(s, a, b))
        return;
    a->end = b->end;
    s->n_touches -= b->n;
    s->n_stretches--;
}

static int begin_stretch(struct side *s, const struct edge *e)
{
    join_last(s);
    if (ARRAY_RESERVE(&s->stretches, s->n_stretches))
        return CKPT_ENOMEM;
    s->stretches.data[s->n_stretches++] =
        (struct stretch){address(e, e->begin), address(e, e->end), s->n_touches, 0};
    return 0;
}

/* what[i]: the value of touch.what for command i. */
static int make_side(struct side *s, const struct commands *c, const struct edges *edges,
                     const int32_t *what)
{
    for (int32_t i = 0; i < edges->n; i++) {
        const struct edge *e = &edges->list.data[i];
        bool fresh = !s->n_stretches ||
                     s->stretches.data[s->n_stretches - 1].begin != address(e, e->begin);
        if ((fresh && begin_stretch(s, e)) || ARRAY_RESERVE(&s->touches, s->n_touches))
            return CKPT_ENOMEM;
        struct touch *t = &s->touches.data[s->n_touches++];
        memset(t, 0, sizeof *t); /* is_same compares padding, too */
        t->what = what[e->command];
        t->queue = (int16_t)c->list.data[e->command].instr.queue;
        t->writes = e->writes;
        s->stretches.data[s->n_stretches - 1].n++;
    }
    if (s->n_stretches)
        join_last(s);
    return 0;
}

/* Makes a slot for each command that accesses a range first; what[i] is the slot of command i. */
static int make_slots(struct turns *t, const struct commands *c, const struct edges *first,
                      const int32_t *at, int32_t *what)
{
    for (int32_t i = 0; i < c->n; i++)
        what[i] = -1;
    for (int32_t i = 0; i < first->n; i++)
        what[first->list.data[i].command] = 0;
    t->slots = malloc(((size_t)c->n + 1) * sizeof *t->slots);
    if (!t->slots)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < c->n; i++) {
        if (what[i] < 0)
            continue;
        what[i] = t->n_slots;
        t->slots[t->n_slots++] =
            (struct slot){.instr = at[i], .queue = c->list.data[i].instr.queue};
    }
    return 0;
}

/* what[i] becomes the next instruction at or after command i that records an event on its queue; or
 * n_instrs if there is none. */
static void find_records(const struct lowered *l, const struct commands *c, const int32_t *at,
                         int32_t *what)
{
    int32_t next[QUEUE_COUNT], i = l->n_instrs;
    for (int q = 0; q < QUEUE_COUNT; q++)
        next[q] = l->n_instrs;
    for (int32_t k = c->n - 1; k >= 0; k--) {
        for (; i > at[k]; i--)
            if (i < l->n_instrs && l->instrs.data[i].kind == INSTR_RECORD)
                next[l->instrs.data[i].queue] = i;
        what[k] = next[c->list.data[k].instr.queue];
    }
}

int turns_make(struct ckpt_program *p, const struct commands *c, const struct hazards *h,
               const int32_t *at)
{
    struct turns *t = p->lowered.turns = calloc(1, sizeof *t);
    int32_t *what = malloc(((size_t)c->n + 1) * sizeof *what);
    int rc = t && what ? 0 : CKPT_ENOMEM;
    if (!rc)
        rc = make_slots(t, c, &h->first, at, what);
    if (!rc)
        rc = make_side(&t->first, c, &h->first, what);
    if (!rc) {
        find_records(&p->lowered, c, at, what);
        rc = make_side(&t->last, c, &h->last, what);
    }
    free(what);
    return rc;
}

static void free_side(struct side *s)
{
    free(s->stretches.data);
    free(s->touches.data);
}

void turns_free(struct turns *t)
{
    if (!t)
        return;
    free_side(&t->first);
    free_side(&t->last);
    free(t->slots);
    free(t);
}

/* ---- two programs ---------------------------------------------------------------------------- */

static void meet(struct turns *t, const struct touch *now, const struct touch *before)
{
    int32_t *need = &t->slots[now->what].need[before->queue];
    if (now->queue != before->queue && (now->writes || before->writes) && before->what > *need)
        *need = before->what;
}

static void meet_all(struct turns *t, const struct stretch *now, const struct turns *before,
                     const struct stretch *then)
{
    for (int32_t i = 0; i < now->n; i++)
        for (int32_t k = 0; k < then->n; k++)
            meet(t, &t->first.touches.data[now->first + i],
                 &before->last.touches.data[then->first + k]);
}

/* Drops a wait that an earlier wait of the same queue covers. */
static void drop_waits(struct turns *t)
{
    int32_t clock[QUEUE_COUNT][QUEUE_COUNT];
    memset(clock, -1, sizeof clock);
    for (int32_t i = 0; i < t->n_slots; i++)
        for (int q = 0; q < QUEUE_COUNT; q++) {
            int32_t *known = &clock[t->slots[i].queue][q], *need = &t->slots[i].need[q];
            if (*need > *known)
                *known = *need;
            else
                *need = -1;
        }
}

static void find_waits(struct turns *t, const struct turns *before)
{
    const struct side *a = &t->first, *b = &before->last;
    for (int32_t i = 0; i < t->n_slots; i++)
        memset(t->slots[i].need, -1, sizeof t->slots[i].need);
    for (int32_t i = 0, k = 0; i < a->n_stretches && k < b->n_stretches;) {
        const struct stretch *now = &a->stretches.data[i], *then = &b->stretches.data[k];
        if (now->begin < then->end && then->begin < now->end)
            meet_all(t, now, before, then);
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
static int32_t joint_event(const struct programs *ps, int back, int queue)
{
    return (ps->joint ^ back) * QUEUE_COUNT + queue;
}

static void wait_for_all(const struct ckpt_program *p, int q, int n, int back, bool host)
{
    struct device *d = p->programs->memory->device;
    for (int other = 0; other < n; other++)
        if (other != q && (host || other != QUEUE_HOST))
            d->ops->wait(d, (enum queue)q, joint_event(p->programs, back, other));
}

void turns_begin(struct ckpt_program *p)
{
    struct programs *ps = p->programs;
    struct device *d = ps->memory->device;
    const struct ckpt_program *before = ps->last_submitted;
    int n = program_has_threads(p) ? QUEUE_COUNT : QUEUE_READ;
    ps->last_submitted = p;
    p->follows = NULL;
    if (!before || before == p || !(program_is_offloaded(before) || program_is_offloaded(p)))
        return;
    if (p->lowered.turns && before->lowered.turns)
        p->follows = before;
    ps->joint ^= 1;
    for (int q = 0; q < n; q++)
        d->ops->signal(d, (enum queue)q, joint_event(ps, 0, q));
    for (int q = 0; q < n; q++) {
        wait_for_all(p, q, n, 1, true);
        if (!p->follows || q >= QUEUE_READ)
            wait_for_all(p, q, n, 0, false);
    }
    if (p->follows)
        find_waits(p->lowered.turns, before->lowered.turns);
}

static void wait_slot(const struct ckpt_program *p, const struct slot *s)
{
    struct device *d = p->programs->memory->device;
    const struct lowered *l = &p->follows->lowered;
    for (int q = 0; q < QUEUE_COUNT && s->queue < QUEUE_READ; q++)
        if (s->need[q] >= 0)
            d->ops->wait(d, s->queue,
                         s->need[q] < l->n_instrs ? l->instrs.data[s->need[q]].event
                                                  : joint_event(p->programs, 0, q));
}

/* The first slot whose instruction is `instr` or a later one. */
static int32_t find_slot(const struct turns *t, int32_t instr)
{
    int32_t low = 0, high = t->n_slots;
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (t->slots[middle].instr < instr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void turns_wait(struct ckpt_program *p, int32_t i)
{
    const struct turns *t = p->lowered.turns;
    if (!p->follows)
        return;
    int32_t slot = find_slot(t, i);
    if (slot < t->n_slots && t->slots[slot].instr == i)
        wait_slot(p, &t->slots[slot]);
}

void turns_wait_kernels(struct ckpt_program *p, int32_t i, int32_t end)
{
    const struct turns *t = p->lowered.turns;
    if (!p->follows)
        return;
    for (int32_t slot = find_slot(t, i); slot < t->n_slots && t->slots[slot].instr < end; slot++)
        if (t->slots[slot].queue == QUEUE_COMPUTE)
            wait_slot(p, &t->slots[slot]);
}
