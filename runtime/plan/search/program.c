/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts of a graph that all schedules share: the writers of storages, and which can be recomputed.
 *
 * A storage is droppable (can be freed and recomputed) if only the body uses it, no op changes it
 * in place, it is complete before its first read, and all its writers can rerun.  An op can rerun
 * if it belongs to the forward pass, is pure, and each of its inputs is available later with the
 * same bytes: the input is droppable itself, or kept, or overwritten only after the last possible
 * rerun.
 */
#include <stdlib.h>
#include "plan/search/search.h"

/* Per storage, collected in one pass over the ops. */
struct scan {
    int32_t *last_body_writer, *first_reader;
    int32_t *wanted; /* the last op that may cause a rerun of an op that reads it */
    bool *in_place;
    struct pool memory;
};

static int scan_new(struct scan *k, int32_t n)
{
    struct pool *m = &k->memory;
    POOL_ARRAY(m, k->in_place, n);
    k->last_body_writer = pool_filled(m, n, -1);
    k->wanted = pool_filled(m, n, -1);
    k->first_reader = pool_filled(m, n, INT32_MAX);
    return pool_status(m);
}

static void scan_use(struct program *p, int32_t op, int32_t s)
{
    p->first_use[s] = p->first_use[s] < 0 ? op : p->first_use[s];
    p->last_use[s] = op;
    if (p->g->ops[op].phase == GRAPH_FORWARD)
        p->forward_last[s] = op;
}

static void scan_op(struct program *p, struct scan *k, int32_t i)
{
    const struct graph *g = p->g;
    const struct graph_op *o = &g->ops[i];
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = g->refs[o->reads + j];
        scan_use(p, i, s);
        if (k->first_reader[s] > i)
            k->first_reader[s] = i;
    }
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = g->refs[o->writes + j];
        scan_use(p, i, s);
        k->in_place[s] |= graph_op_reads(g, o, s);
        if (i < g->n_body)
            k->last_body_writer[s] = i;
        if (p->position[s] < 0)
            p->position[s] = i;
        p->writer_start[s + 1]++;
    }
}

/* Turns counts of writers into lists. */
static int list_writers(struct program *p, struct scan *k)
{
    const struct graph *g = p->g;
    for (int32_t s = 0; s < g->n_storages; s++)
        p->writer_start[s + 1] += p->writer_start[s];
    POOL_ARRAY(&p->memory, p->writers, p->writer_start[g->n_storages]);
    int32_t *at = pool_filled(&k->memory, g->n_storages, 0);
    if (!p->writers || !at)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < g->n_ops; i++)
        for (int32_t j = 0; j < g->ops[i].n_writes; j++) {
            int32_t s = g->refs[g->ops[i].writes + j];
            p->writers[p->writer_start[s] + at[s]++] = i;
        }
    return 0;
}

/* Whether a rerun writes the same bytes: no op changes s in place or reads it half written. */
static bool is_pure(const struct program *p, const struct scan *k, int32_t s)
{
    const struct graph_storage *t = &p->g->storages[s];
    return !t->persistent && !t->carried && !k->in_place[s] && p->position[s] >= 0 &&
           program_last_writer(p, s) < k->first_reader[s];
}

static int32_t later(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

/* The last op for which forward op i may rerun: it reads an output of i, or a storage that is
 * computed from one. */
static int32_t wanted_by(const struct program *p, const struct scan *k, int32_t i)
{
    const struct graph *g = p->g;
    const struct graph_op *o = &g->ops[i];
    int32_t last = -1;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = g->refs[o->writes + j];
        if (is_pure(p, k, s) && p->last_use[s] < g->n_body)
            last = later(last, later(p->last_use[s], k->wanted[s]));
    }
    return last;
}

static void scan_wanted(struct program *p, struct scan *k)
{
    const struct graph *g = p->g;
    for (int32_t i = g->n_body - 1; i >= 0; i--) {
        const struct graph_op *o = &g->ops[i];
        int32_t last = o->phase == GRAPH_FORWARD ? wanted_by(p, k, i) : -1;
        for (int32_t j = 0; j < o->n_reads; j++)
            k->wanted[g->refs[o->reads + j]] = later(k->wanted[g->refs[o->reads + j]], last);
    }
}

/* Whether input s of op i still has the same bytes when i reruns: no later op of the body writes s,
 * or s stays and is written only after the last rerun, like a gradient in its value's range. */
static bool stays_readable(const struct program *p, const struct scan *k, int32_t i, int32_t s)
{
    if (k->last_body_writer[s] <= i)
        return true;
    return p->g->storages[s].persistent && p->position[s] > i &&
           wanted_by(p, k, i) <= p->position[s];
}

static bool can_rerun(const struct program *p, const struct scan *k, int32_t i)
{
    const struct graph *g = p->g;
    const struct graph_op *o = &g->ops[i];
    if (!o->rerunnable || i >= g->n_body || o->phase != GRAPH_FORWARD)
        return false;
    for (int32_t j = 0; j < o->n_reads; j++)
        if (!stays_readable(p, k, i, g->refs[o->reads + j]))
            return false;
    for (int32_t j = 0; j < o->n_writes; j++)
        if (!is_pure(p, k, g->refs[o->writes + j]))
            return false;
    return true;
}

static bool can_drop(const struct program *p, const struct scan *k, int32_t s)
{
    if (!is_pure(p, k, s) || p->last_use[s] >= p->g->n_body)
        return false;
    for (int32_t j = p->writer_start[s]; j < p->writer_start[s + 1]; j++)
        if (!p->rerun[p->writers[j]])
            return false;
    return true;
}

/* The highest forward position whose storages op i still reads. */
static int32_t highest_read(const struct program *p, int32_t i)
{
    const struct graph_op *o = &p->g->ops[i];
    int32_t high = -1;
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = p->g->refs[o->reads + j];
        if (p->droppable[s] && p->position[s] > high)
            high = p->position[s];
    }
    return high;
}

void program_sum(struct program *p)
{
    const struct graph *g = p->g;
    p->seconds = graph_seconds(g);
    p->queued = 0;
    p->persistent = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].collective)
            p->queued += g->ops[i].seconds * (i < g->n_body ? g->n_micro : 1);
    for (int32_t s = 0; s < g->n_storages; s++) {
        bool away = graph_backing(&g->storages[s]) != TIER_DEVICE;
        if (g->storages[s].persistent && (!away || p->last_use[s] >= 0))
            p->persistent += g->storages[s].bytes;
    }
}

static void derive(struct program *p, struct scan *k)
{
    const struct graph *g = p->g;
    int32_t high = -1;
    scan_wanted(p, k);
    for (int32_t i = 0; i < g->n_ops; i++)
        p->rerun[i] = can_rerun(p, k, i);
    for (int32_t i = 0; i < g->n_ops; i++)
        p->ticks[i] = (int64_t)(g->ops[i].seconds * TICKS_PER_SECOND + 0.5);
    p->signature = graph_signature(g);
    program_sum(p);
    for (int32_t s = 0; s < g->n_storages; s++) {
        p->droppable[s] = can_drop(p, k, s);
        p->needed[s] = p->droppable[s] && p->last_use[s] > p->forward_last[s];
        p->drop_after_forward[s] = p->needed[s] && g->ops[p->position[s]].drop_after_forward;
    }
    for (int32_t i = g->n_body - 1; i >= 0; i--) {
        if (g->ops[i].phase != GRAPH_FORWARD && highest_read(p, i) > high)
            high = highest_read(p, i);
        p->context[i] = g->ops[i].phase == GRAPH_FORWARD ? g->n_body : high;
        for (int32_t j = 0; j < g->ops[i].n_reads && g->ops[i].phase != GRAPH_FORWARD; j++)
            p->wanted_at[g->refs[g->ops[i].reads + j]] = high;
    }
}

static int program_alloc(struct program *p)
{
    struct pool *m = &p->memory;
    int32_t n = p->g->n_storages, n_ops = p->g->n_ops;
    POOL_ARRAY(m, p->writer_start, n + 1);
    p->position = pool_filled(m, n, -1);
    p->forward_last = pool_filled(m, n, -1);
    p->first_use = pool_filled(m, n, -1);
    p->last_use = pool_filled(m, n, -1);
    p->wanted_at = pool_filled(m, n, RETAIN_NEVER);
    POOL_ARRAY(m, p->droppable, n);
    POOL_ARRAY(m, p->needed, n);
    POOL_ARRAY(m, p->drop_after_forward, n);
    POOL_ARRAY(m, p->rerun, n_ops);
    p->context = pool_filled(m, n_ops, -1);
    POOL_ARRAY(m, p->ticks, n_ops);
    return pool_status(m);
}

static int program_fill(struct program *p)
{
    struct scan k = {.wanted = NULL};
    int rc = scan_new(&k, p->g->n_storages);
    if (!rc) {
        for (int32_t i = 0; i < p->g->n_ops; i++)
            scan_op(p, &k, i);
        rc = list_writers(p, &k);
    }
    if (!rc)
        derive(p, &k);
    pool_free(&k.memory);
    return rc;
}

int program_build(const struct graph *g, struct program **out)
{
    struct program *p = calloc(1, sizeof(*p));
    if (!p)
        return CKPT_ENOMEM;
    p->g = g;
    int rc = program_alloc(p);
    if (!rc)
        rc = program_fill(p);
    if (rc) {
        program_free(p);
        return rc;
    }
    *out = p;
    return 0;
}

bool storage_stays(const struct program *p, int32_t s, int32_t *first, int32_t *last)
{
    if (!storage_placed(p->g, s) || p->droppable[s] || p->last_use[s] < 0)
        return false;
    bool carried = p->g->storages[s].carried;
    *first = carried ? 0 : p->first_use[s];
    *last = carried && p->last_use[s] < p->g->n_body ? p->g->n_body - 1 : p->last_use[s];
    return true;
}

int32_t *retain_all(const struct program *p, struct pool *m)
{
    int32_t *retention = pool_filled(m, p->g->n_storages, RETAIN_ALWAYS);
    if (retention)
        retention[p->g->n_storages] = 0;
    return retention;
}

/* Shell sort: most lists are short. */
void sort_ops(int32_t *ops, int32_t n)
{
    for (int32_t gap = n > 24 ? n / 3 : 1; gap > 0; gap = (gap + 1) / 3)
        for (int32_t i = gap; i < n; i++) {
            int32_t op = ops[i], j = i;
            for (; j >= gap && ops[j - gap] > op; j -= gap)
                ops[j] = ops[j - gap];
            ops[j] = op;
        }
}

void program_free(struct program *p)
{
    if (!p)
        return;
    pool_free(&p->memory);
    free(p);
}
