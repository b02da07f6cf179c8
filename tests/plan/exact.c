/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A* over states: the next op of the program, the last op that ran again before it (-1 if the order
 * is free), and the set of outputs that are there.  A step runs the next op, or an earlier one
 * again; its cost is the seconds of the latter.  Outputs are freed only where an op would not fit,
 * and then as few as possible: what is there does no harm.  So no schedule is left out, and the
 * states that a tight budget holds are few.  Still to come is at least one run of each output that
 * the rest of the program reads and that is not there, and of what these are computed from.
 */
#include "exact.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/search.h"

struct state {
    uint64_t there;
    int64_t cost;  /* ticks of recompute */
    int64_t least; /* the same to the end, at least */
    int32_t next;  /* op of the program */
    int32_t last;  /* the last op that ran again before it, or -1 */
};

struct exact {
    const struct program *p;
    bool any; /* ops run again in any order */
    int32_t n;
    int64_t bytes, most;
    int64_t size[64], workspace[64];
    uint64_t reads[64], later[65]; /* later: what the ops from there on read */
    int32_t needed[64];            /* the last next op for which an output can be of use */
    struct state *states, **heap;
    int32_t *slots, *at; /* at: per state its place in the heap, or -1 */
    int32_t most_states, n_states, n_heap;
};

static uint64_t bit(int32_t i)
{
    return UINT64_C(1) << i;
}

static void read_graph(struct exact *e)
{
    const struct graph *g = e->p->g;
    int32_t writer[64];
    for (int32_t i = 0; i < e->n; i++) {
        const struct graph_op *o = &g->ops[i];
        int32_t s = g->refs[o->writes];
        writer[s] = i;
        e->size[i] = g->storages[s].bytes;
        e->workspace[i] = o->workspace;
        for (int32_t j = 0; j < o->n_reads; j++)
            e->reads[i] |= bit(writer[g->refs[o->reads + j]]);
    }
    for (int32_t i = e->n - 1; i >= 0; i--) {
        e->later[i] = e->later[i + 1] | e->reads[i];
        e->needed[i] = i;
        for (int32_t k = i + 1; k < e->n; k++)
            if (e->reads[k] & bit(i)) {
                int32_t last = e->p->rerun[k] ? e->needed[k] : k;
                e->needed[i] = last > e->needed[i] ? last : e->needed[i];
            }
    }
}

static int64_t bytes_of(const struct exact *e, uint64_t set)
{
    int64_t sum = 0;
    for (; set; set &= set - 1)
        sum += e->size[__builtin_ctzll(set)];
    return sum;
}

static int64_t least_to_come(const struct exact *e, uint64_t there, int32_t next)
{
    uint64_t first = next < 64 ? bit(next) - 1 : UINT64_MAX, seen = there;
    int64_t ticks = 0;
    for (uint64_t open = e->later[next] & first & ~seen; open;) {
        int32_t i = __builtin_ctzll(open);
        ticks += e->p->ticks[i];
        seen |= bit(i);
        open = (open | e->reads[i]) & ~seen;
    }
    return ticks;
}

/* ---- the queue ------------------------------------------------------------------------------ */

static void put(struct exact *e, int32_t i, struct state *s)
{
    e->heap[i] = s;
    e->at[s - e->states] = i;
}

static void rise(struct exact *e, int32_t i)
{
    struct state *s = e->heap[i];
    for (; i > 0 && e->heap[(i - 1) / 2]->least > s->least; i = (i - 1) / 2)
        put(e, i, e->heap[(i - 1) / 2]);
    put(e, i, s);
}

static struct state *take_least(struct exact *e)
{
    struct state *least = e->heap[0], *s = e->heap[--e->n_heap];
    int32_t i = 0;
    e->at[least - e->states] = -1;
    for (int32_t k = 1; k < e->n_heap; i = k, k = 2 * i + 1) {
        k += k + 1 < e->n_heap && e->heap[k + 1]->least < e->heap[k]->least;
        if (e->heap[k]->least >= s->least)
            break;
        put(e, i, e->heap[k]);
    }
    if (e->n_heap > 0 && s != least)
        put(e, i, s);
    return least;
}

static void reach(struct exact *e, uint64_t there, int32_t next, int32_t last, int64_t cost)
{
    uint64_t key = hash_mix(hash_mix(HASH_START, (int64_t)there), 64 * next + last);
    int32_t slot = (int32_t)(key % (uint64_t)(2 * e->most_states)), i;
    int64_t least = cost + least_to_come(e, there, next);
    if (least > e->most || e->n_states == e->most_states)
        return;
    for (; (i = e->slots[slot] - 1) >= 0; slot = slot + 1 < 2 * e->most_states ? slot + 1 : 0)
        if (e->states[i].there == there && e->states[i].next == next && e->states[i].last == last)
            break;
    if (i >= 0 && (e->at[i] < 0 || e->states[i].cost <= cost))
        return;
    if (i < 0) {
        i = e->n_states++;
        e->slots[slot] = i + 1;
        e->states[i] = (struct state){there, cost, least, next, last};
        put(e, e->n_heap++, &e->states[i]);
    }
    e->states[i].cost = cost;
    e->states[i].least = least;
    rise(e, e->at[i]);
}

/* ---- steps ---------------------------------------------------------------------------------- */

struct step {
    uint64_t fixed; /* stays, or can be freed only after the step */
    int32_t next, last;
    int64_t cost, room;
};

/* Keeps each largest part of `choice`, from bit i on, that fits beside what is kept already. */
static void keep(struct exact *e, const struct step *s, uint64_t choice, uint64_t kept,
                 uint64_t left, int64_t room)
{
    if (!choice) {
        for (uint64_t rest = left; rest; rest &= rest - 1)
            if (e->size[__builtin_ctzll(rest)] <= room)
                return;
        uint64_t there = s->fixed | kept;
        for (uint64_t rest = there; rest; rest &= rest - 1)
            if (e->needed[__builtin_ctzll(rest)] < s->next)
                there &= ~(rest & -rest);
        reach(e, there, s->next, s->last, s->cost);
        return;
    }
    uint64_t one = choice & -choice;
    int64_t size = e->size[__builtin_ctzll(one)];
    if (size <= room)
        keep(e, s, choice & ~one, kept | one, left, room - size);
    keep(e, s, choice & ~one, kept, left | one, room);
}

static void run(struct exact *e, const struct state *from, int32_t op)
{
    bool first = op == from->next;
    uint64_t stays = e->reads[op] | bit(op), choice = from->there & ~stays;
    if ((from->there & e->reads[op]) != e->reads[op])
        return;
    for (uint64_t rest = choice; rest; rest &= rest - 1)
        if (!e->p->rerun[__builtin_ctzll(rest)])
            stays |= rest & -rest;
    int64_t room = e->bytes - bytes_of(e, stays) - e->workspace[op];
    const struct step s = {stays, from->next + first, first || e->any ? -1 : op,
                           from->cost + (first ? 0 : e->p->ticks[op]), room};
    choice &= ~stays;
    if (room < 0)
        return;
    if (bytes_of(e, choice) <= room)
        keep(e, &s, 0, choice, 0, room);
    else
        keep(e, &s, choice, 0, 0, room);
}

static int64_t search(struct exact *e, bool *proved)
{
    reach(e, 0, 0, -1, 0);
    *proved = true;
    while (e->n_heap > 0) {
        const struct state s = *take_least(e);
        if (s.next == e->n)
            return s.least;
        for (int32_t i = s.last + 1; i <= s.next; i++)
            if (i == s.next || (e->p->rerun[i] && !(s.there & bit(i)) && e->needed[i] >= s.next))
                run(e, &s, i);
        *proved = e->n_states < e->most_states;
        if (!*proved)
            return s.least;
    }
    return INT64_MAX;
}

int exact_least(const struct graph *g, int64_t bytes, double most, bool any, int32_t states,
                double *least, bool *proved)
{
    struct program *p;
    struct pool m = {NULL, false};
    int rc = g->n_ops > 64 ? CKPT_EINVAL : program_build(g, &p);
    if (rc)
        return rc;
    struct exact e = {.p = p, .n = g->n_ops, .bytes = bytes, .any = any, .most_states = states};
    e.most = (int64_t)fmin(0x1p62, (most - p->seconds) * (1 + 1e-9) * TICKS_PER_SECOND + 1e3);
    POOL_ARRAY(&m, e.states, states);
    POOL_ARRAY(&m, e.heap, states);
    POOL_ARRAY(&m, e.at, states);
    POOL_ARRAY(&m, e.slots, 2 * (int64_t)states);
    rc = pool_status(&m);
    if (!rc) {
        read_graph(&e);
        int64_t ticks = search(&e, proved);
        *least = ticks == INT64_MAX ? INFINITY : p->seconds + ticks_seconds(ticks);
    }
    pool_free(&m);
    program_free(p);
    return rc;
}
