/* SPDX-License-Identifier: Apache-2.0 */
/* Finds which command waits for which: see hazards.h. */
#include <stdlib.h>
#include <string.h>
#include "exec/hazards.h"

/* Addresses from begin to the next span's begin.  writer and reader are the last accesses, as
 * moments of the time line, or -1; first_* are the first accesses of a step, up to its first write,
 * as commands, or -1. */
struct span {
    int64_t begin;
    int32_t writer, reader[QUEUE_COUNT];
    int32_t first_writer, first_reader[QUEUE_COUNT];
};

/* One execution of a command on the time line: its queue's vector clock once it is done.
 * known[q] is the last moment of queue q that has ended by then. */
struct moment_known {
    int32_t command;
    int32_t known[QUEUE_COUNT];
};

struct analysis {
    const struct commands *c;
    struct hazards *h;
    struct span *spans[SPACE_COUNT];
    int32_t n_spans[SPACE_COUNT];
    struct moment_known *moments;
    int32_t n;                               /* moments so far */
    int32_t clock[QUEUE_COUNT][QUEUE_COUNT]; /* vector clock of each queue */
    int32_t fork;                            /* moment of the current part's fork, or -1 */
    int32_t joined[QUEUE_COUNT];             /* last moment the join waits for, or -1 */
    bool whole, kept;
    int rc;
};

static enum queue queue_of(const struct analysis *b, int32_t moment)
{
    return b->c->list.data[b->moments[moment].command].instr.queue;
}

/* ---- spans ----------------------------------------------------------------------------------- */

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* One span between any two neighbouring boundaries of accesses. */
static int make_spans(struct analysis *b, enum space space)
{
    int32_t n = 0, kept = 0;
    for (int32_t i = 0; i < b->c->n_access; i++)
        n += 2 * (b->c->access.data[i].space == space);
    struct span *s = b->spans[space] = malloc(((size_t)n + 1) * sizeof(*s));
    if (!s)
        return CKPT_ENOMEM;
    n = 0;
    for (int32_t i = 0; i < b->c->n_access; i++) {
        const struct access *a = &b->c->access.data[i];
        if (a->space != space)
            continue;
        s[n++].begin = a->offset;
        s[n++].begin = a->offset + a->bytes;
    }
    qsort(s, (size_t)n, sizeof(*s), by_begin);
    for (int32_t i = 0; i < n; i++)
        if (kept == 0 || s[i].begin != s[kept - 1].begin)
            s[kept++].begin = s[i].begin;
    b->n_spans[space] = kept;
    return 0;
}

/* No range has been accessed.  The first accesses of a step matter only if it is not recorded as a
 * whole; then this is called once. */
static void reset_spans(struct analysis *b)
{
    for (int i = 0; i < SPACE_COUNT; i++)
        for (int32_t n = 0; n < b->n_spans[i]; n++) {
            struct span *s = &b->spans[i][n];
            s->writer = s->first_writer = -1;
            memset(s->reader, -1, sizeof s->reader);
            memset(s->first_reader, -1, sizeof s->first_reader);
        }
}

static int32_t find_span(const struct analysis *b, const struct access *a)
{
    int32_t low = 0, high = b->n_spans[a->space];
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (b->spans[a->space][middle].begin < a->offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void raise(int32_t *a, int32_t b)
{
    *a = b > *a ? b : *a;
}

/* Raises need, per queue, to the last moment that an access conflicts with. */
static void find_conflicts(const struct analysis *b, const struct access *a,
                           int32_t need[QUEUE_COUNT])
{
    const struct span *s = b->spans[a->space];
    for (int32_t n = find_span(b, a); s[n].begin < a->offset + a->bytes; n++) {
        if (s[n].writer >= 0)
            raise(&need[queue_of(b, s[n].writer)], s[n].writer);
        for (int q = 0; q < QUEUE_COUNT && a->writes; q++)
            raise(&need[q], s[n].reader[q]);
    }
}

static void note_first(struct span *s, const struct access *a, enum queue queue, int32_t command)
{
    if (s->first_writer >= 0)
        return;
    if (a->writes)
        s->first_writer = command;
    else if (s->first_reader[queue] < 0)
        s->first_reader[queue] = command;
}

static void note_access(struct analysis *b, const struct access *a, enum queue queue,
                        int32_t moment)
{
    struct span *s = b->spans[a->space];
    for (int32_t n = find_span(b, a); s[n].begin < a->offset + a->bytes; n++) {
        note_first(&s[n], a, queue, b->moments[moment].command);
        if (!a->writes) {
            s[n].reader[queue] = moment;
            continue;
        }
        s[n].writer = moment;
        memset(s[n].reader, -1, sizeof(s[n].reader));
    }
}

/* ---- waits ----------------------------------------------------------------------------------- */

static void add_wait(struct analysis *b, int32_t waiting, int32_t awaited)
{
    struct hazards *h = b->h;
    if (!b->kept)
        return;
    for (int32_t i = h->n - 1; i >= 0 && h->list.data[i].waiting == waiting; i--)
        if (h->list.data[i].awaited == awaited)
            return;
    if (ARRAY_RESERVE(&h->list, h->n))
        b->rc = CKPT_ENOMEM;
    else
        h->list.data[h->n++] = (struct hazard){waiting, awaited};
}

/* Whether another of the needed waits makes the one for a queue redundant. */
static bool is_implied(const struct analysis *b, const int32_t need[QUEUE_COUNT], int queue)
{
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q != queue && need[q] >= 0 && b->moments[need[q]].known[queue] >= need[queue])
            return true;
    return false;
}

/* Adds the waits of a command: the needed moments that its queue's clock does not cover. */
static void wait_for(struct analysis *b, int32_t command, int32_t need[QUEUE_COUNT])
{
    enum queue own = b->c->list.data[command].instr.queue;
    int32_t *clock = b->clock[own];
    for (int q = 0; q < QUEUE_COUNT; q++)
        if (q == (int)own || need[q] <= clock[q])
            need[q] = -1;
    for (int q = 0; q < QUEUE_COUNT; q++) {
        if (need[q] < 0 || is_implied(b, need, q))
            continue;
        add_wait(b, command, b->moments[need[q]].command);
        for (int other = 0; other < QUEUE_COUNT; other++)
            raise(&clock[other], b->moments[need[q]].known[other]);
    }
}

static void analyze(struct analysis *b, int32_t command)
{
    const struct command *c = &b->c->list.data[command];
    enum queue queue = c->instr.queue;
    int32_t need[QUEUE_COUNT], moment = b->n;
    memset(need, -1, sizeof(need));
    for (int32_t i = 0; i < c->n_access; i++)
        find_conflicts(b, &b->c->access.data[c->access + i], need);
    if (b->whole && b->fork >= 0)
        raise(&need[QUEUE_COMPUTE], b->fork);
    for (int q = 0; q < QUEUE_COUNT && c->kind == COMMAND_JOINS; q++)
        raise(&need[q], b->joined[q]);
    wait_for(b, command, need);
    b->clock[queue][queue] = moment;
    b->moments[moment].command = command;
    memcpy(b->moments[moment].known, b->clock[queue], sizeof(b->clock[queue]));
    b->n++;
    for (int32_t i = 0; i < c->n_access; i++)
        note_access(b, &b->c->access.data[c->access + i], queue, moment);
    if (c->kind == COMMAND_FORKS)
        b->fork = moment;
    if (c->joins)
        b->joined[queue] = moment;
}

/* Runs commands [from, to) of the list: the body or the tail. */
static void analyze_part(struct analysis *b, int32_t from, int32_t to)
{
    b->fork = -1;
    if (b->whole)
        reset_spans(b);
    for (int32_t i = from; i < to; i++)
        analyze(b, i);
}

static int by_waiting(const void *a, const void *b)
{
    const struct hazard *x = a, *y = b;
    if (x->waiting != y->waiting)
        return x->waiting < y->waiting ? -1 : 1;
    return (x->awaited > y->awaited) - (x->awaited < y->awaited);
}

/* Sorts the waits; each body of two in a row adds the same wait, and one is kept. */
static void sort_waits(struct hazards *h)
{
    int32_t n = 0;
    if (h->n)
        qsort(h->list.data, (size_t)h->n, sizeof(*h->list.data), by_waiting);
    for (int32_t i = 0; i < h->n; i++)
        if (n == 0 || by_waiting(&h->list.data[i], &h->list.data[n - 1]) != 0)
            h->list.data[n++] = h->list.data[i];
    h->n = n;
}

/* ---- edges ----------------------------------------------------------------------------------- */

static void add_edge(struct analysis *b, struct edges *e, struct edge edge)
{
    if (b->rc || edge.command < 0)
        return;
    if (ARRAY_RESERVE(&e->list, e->n))
        b->rc = CKPT_ENOMEM;
    else
        e->list.data[e->n++] = edge;
}

static int32_t command_of(const struct analysis *b, int32_t moment)
{
    return moment < 0 ? -1 : b->moments[moment].command;
}

static void find_edges(struct analysis *b)
{
    struct hazards *h = b->h;
    for (int space = 0; space < SPACE_COUNT; space++)
        for (int32_t n = 0; n + 1 < b->n_spans[space]; n++) {
            const struct span *s = &b->spans[space][n];
            struct edge e = {.space = space, .begin = s->begin, .end = s[1].begin, .writes = true};
            e.command = s->first_writer;
            add_edge(b, &h->first, e);
            e.command = command_of(b, s->writer);
            add_edge(b, &h->last, e);
            e.writes = false;
            for (int q = 0; q < QUEUE_COUNT; q++) {
                e.command = s->first_reader[q];
                add_edge(b, &h->first, e);
                e.command = command_of(b, s->reader[q]);
                add_edge(b, &h->last, e);
            }
        }
}

void hazards_free(struct hazards *h)
{
    free(h->list.data);
    free(h->first.list.data);
    free(h->last.list.data);
    *h = (struct hazards){0};
}

/* ---- the whole list -------------------------------------------------------------------------- */

int hazards_find(const struct commands *c, int32_t n_micro, bool whole, struct hazards *h)
{
    struct analysis b = {.c = c, .h = h, .whole = whole};
    int bodies = n_micro > 1 && !whole ? 2 : 1, rounds = whole ? 1 : 2;
    *h = (struct hazards){0};
    memset(b.clock, -1, sizeof(b.clock));
    memset(b.joined, -1, sizeof(b.joined));
    b.moments = malloc(((size_t)rounds * (size_t)bodies * (size_t)c->n + 1) * sizeof(*b.moments));
    b.rc = b.moments ? 0 : CKPT_ENOMEM;
    for (int i = 0; i < SPACE_COUNT && !b.rc; i++)
        b.rc = make_spans(&b, (enum space)i);
    if (!b.rc)
        reset_spans(&b);
    for (int round = 0; round < rounds && !b.rc; round++) {
        b.kept = round + 1 == rounds;
        for (int body = 0; body < bodies; body++)
            analyze_part(&b, 0, c->n_body);
        analyze_part(&b, c->n_body, c->n);
    }
    if (!b.rc && !whole)
        find_edges(&b);
    for (int i = 0; i < SPACE_COUNT; i++)
        free(b.spans[i]);
    free(b.moments);
    if (!b.rc)
        sort_waits(h);
    return b.rc;
}
