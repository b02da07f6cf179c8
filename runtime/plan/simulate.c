/*
 * The simulation: plays a program under a hold per storage and gives the steps, the stretches of
 * residence and the exact peak.
 *
 * A base op whose reads are gone first runs their writers again, and before them the writers of
 * what those read, in program order.  A stretch ends at its last real use, so holding something
 * longer than anybody reads it costs nothing.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

/* A second write of bytes that were still held. */
struct rewrite {
    int32_t instance, step;
};

struct simulator {
    const struct program *p;
    const int32_t *hold;
    struct schedule out;
    int64_t work;
    /* per storage */
    bool *exists;
    int32_t *open;   /* its instance, or -1 */
    int32_t *pins;   /* ops of the running batch that still need it */
    int32_t *wanted; /* the batch that makes it */
    /* per op */
    int32_t *marked; /* the batch that runs it */
    int32_t batch;
    struct {
        int32_t *data;
        int64_t capacity;
    } stack, list; /* storages to make, ops to run */
    int32_t n_stack, n_list;
    struct {
        struct rewrite *data;
        int64_t capacity;
    } rewrites;
    int32_t n_rewrites;
    struct {
        int64_t *data;
        int64_t capacity;
    } alive;     /* per step: bytes */
    bool failed; /* out of memory */
};

void simulator_free(struct simulator *m)
{
    if (!m)
        return;
    free(m->out.steps.data);
    free(m->out.instances.data);
    free(m->exists);
    free(m->open);
    free(m->pins);
    free(m->wanted);
    free(m->marked);
    free(m->stack.data);
    free(m->list.data);
    free(m->rewrites.data);
    free(m->alive.data);
    free(m);
}

int simulator_new(const struct program *p, struct simulator **out)
{
    struct simulator *m = calloc(1, sizeof(*m));
    size_t n = (size_t)p->g->n_storages + 1, n_ops = (size_t)p->g->n_ops + 1;
    if (!m)
        return CKPT_ENOMEM;
    m->p = p;
    m->exists = calloc(n, sizeof(bool));
    m->open = calloc(n, sizeof(int32_t));
    m->pins = calloc(n, sizeof(int32_t));
    m->wanted = calloc(n, sizeof(int32_t));
    m->marked = calloc(n_ops, sizeof(int32_t));
    if (!m->exists || !m->open || !m->pins || !m->wanted || !m->marked) {
        simulator_free(m);
        return CKPT_ENOMEM;
    }
    *out = m;
    return 0;
}

int64_t simulator_work(const struct simulator *m)
{
    return m->work;
}

static int32_t new_instance(struct simulator *m, int32_t s, int32_t step)
{
    struct schedule *out = &m->out;
    if (ARRAY_RESERVE(&out->instances, out->n_instances)) {
        m->failed = true;
        return -1;
    }
    out->instances.data[out->n_instances] = (struct plan_instance){s, step, step, 0};
    return out->n_instances++;
}

/* The running step uses s: its stretch reaches this far. */
static void touch(struct simulator *m, int32_t s)
{
    int32_t step = m->out.n_steps - 1;
    if (!storage_placed(m->p->g, s))
        return;
    if (m->open[s] < 0)
        m->open[s] = new_instance(m, s, step);
    if (m->open[s] >= 0)
        m->out.instances.data[m->open[s]].last = step;
}

static void append_step(struct simulator *m, int32_t op, bool again)
{
    struct schedule *out = &m->out;
    if (ARRAY_RESERVE(&out->steps, out->n_steps)) {
        m->failed = true;
        return;
    }
    out->steps.data[out->n_steps++] = (struct plan_step){op, again};
    if (again)
        out->recompute_seconds += m->p->g->ops[op].seconds;
}

static bool missing(const struct simulator *m, int32_t s)
{
    return m->p->droppable[s] && !m->exists[s];
}

/* Base op b has used s: frees it unless somebody still needs it or it is held from here. */
static void release(struct simulator *m, int32_t s, int32_t b)
{
    const struct program *p = m->p;
    if (p->droppable[s] && m->exists[s] && !m->pins[s] && m->hold[s] < p->context[b] &&
        b >= p->forward_last[s]) {
        m->exists[s] = false;
        m->open[s] = -1;
    }
}

static void want(struct simulator *m, int32_t s)
{
    m->pins[s]++;
    if (m->wanted[s] == m->batch)
        return;
    m->wanted[s] = m->batch;
    if (ARRAY_RESERVE(&m->stack, m->n_stack))
        m->failed = true;
    else
        m->stack.data[m->n_stack++] = s;
}

static void want_missing_reads(struct simulator *m, int32_t op)
{
    const struct graph_op *o = &m->p->g->ops[op];
    const int32_t *reads = m->p->g->refs + o->reads;
    for (int32_t j = 0; j < o->n_reads; j++)
        if (missing(m, reads[j]))
            want(m, reads[j]);
}

/* The writers of s must run, and before them the writers of what they read. */
static void mark_writers(struct simulator *m, int32_t s)
{
    const struct program *p = m->p;
    for (int32_t j = p->writer_start[s]; j < p->writer_start[s + 1]; j++) {
        int32_t w = p->writers[j];
        if (m->marked[w] == m->batch)
            continue;
        m->marked[w] = m->batch;
        if (ARRAY_RESERVE(&m->list, m->n_list)) {
            m->failed = true;
            return;
        }
        m->list.data[m->n_list++] = w;
        want_missing_reads(m, w);
    }
}

static int compare_i32(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void rewrite(struct simulator *m, int32_t s)
{
    if (ARRAY_RESERVE(&m->rewrites, m->n_rewrites))
        m->failed = true;
    else
        m->rewrites.data[m->n_rewrites++] = (struct rewrite){m->open[s], m->out.n_steps - 1};
}

/* An output of an op that runs again for base op b. */
static void write_again(struct simulator *m, int32_t s, int32_t b)
{
    const struct program *p = m->p;
    if (m->wanted[s] == m->batch) {
        touch(m, s);
        m->exists[s] = true;
    } else if (m->open[s] >= 0) {
        rewrite(m, s);
    } else if (p->writer_start[s + 1] - p->writer_start[s] == 1 && m->hold[s] >= p->context[b]) {
        touch(m, s);
        m->exists[s] = true;
    } else {
        new_instance(m, s, m->out.n_steps - 1);
    }
}

static void run_again(struct simulator *m, int32_t op, int32_t b)
{
    const struct graph *g = m->p->g;
    const struct graph_op *o = &g->ops[op];
    append_step(m, op, true);
    for (int32_t j = 0; j < o->n_reads; j++)
        touch(m, g->refs[o->reads + j]);
    for (int32_t j = 0; j < o->n_writes; j++)
        write_again(m, g->refs[o->writes + j], b);
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = g->refs[o->reads + j];
        if (m->wanted[s] == m->batch && m->pins[s] > 0) {
            m->pins[s]--;
            release(m, s, b);
        }
    }
}

/* Makes what base op b reads and is gone. */
static void remake(struct simulator *m, int32_t b)
{
    m->batch++;
    m->n_list = 0;
    want_missing_reads(m, b);
    while (m->n_stack > 0 && !m->failed)
        mark_writers(m, m->stack.data[--m->n_stack]);
    if (m->n_list == 0)
        return;
    qsort(m->list.data, (size_t)m->n_list, sizeof(int32_t), compare_i32);
    for (int32_t j = 0; j < m->n_list && !m->failed; j++)
        run_again(m, m->list.data[j], b);
}

static void run_base(struct simulator *m, int32_t b)
{
    const struct graph *g = m->p->g;
    const struct graph_op *o = &g->ops[b];
    remake(m, b);
    append_step(m, b, false);
    for (int32_t j = 0; j < o->n_reads; j++)
        touch(m, g->refs[o->reads + j]);
    for (int32_t j = 0; j < o->n_writes; j++) {
        touch(m, g->refs[o->writes + j]);
        m->exists[g->refs[o->writes + j]] = true;
    }
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = g->refs[o->reads + j];
        m->pins[s] = 0;
        release(m, s, b);
    }
    for (int32_t j = 0; j < o->n_writes; j++)
        release(m, g->refs[o->writes + j], b);
}

static void start(struct simulator *m)
{
    const struct graph *g = m->p->g;
    struct schedule *out = &m->out;
    out->n_steps = out->n_body = out->n_instances = m->n_rewrites = m->n_stack = 0;
    out->recompute_seconds = 0;
    m->failed = false;
    memset(m->exists, 0, (size_t)g->n_storages * sizeof(bool));
    memset(m->pins, 0, (size_t)g->n_storages * sizeof(int32_t));
    for (int32_t s = 0; s < g->n_storages; s++) {
        bool from_start = g->storages[s].carried && !g->storages[s].persistent;
        m->open[s] = from_start && m->p->last_use[s] >= 0 ? new_instance(m, s, 0) : -1;
    }
}

/* A rewrite inside its stretch is nothing new; one behind it needs a place of its own. */
static void settle_rewrites(struct simulator *m)
{
    struct schedule *out = &m->out;
    for (int32_t j = 0; j < m->n_rewrites; j++) {
        struct rewrite r = m->rewrites.data[j];
        if (r.step > out->instances.data[r.instance].last)
            new_instance(m, out->instances.data[r.instance].storage, r.step);
    }
}

static void settle_carried(struct simulator *m)
{
    struct schedule *out = &m->out;
    for (int32_t j = 0; j < out->n_instances; j++) {
        struct plan_instance *i = &out->instances.data[j];
        if (m->p->g->storages[i->storage].carried && i->last < out->n_body - 1)
            i->last = out->n_body - 1;
    }
}

static void measure(struct simulator *m)
{
    const struct graph *g = m->p->g;
    struct schedule *out = &m->out;
    if (ARRAY_RESERVE(&m->alive, out->n_steps)) {
        m->failed = true;
        return;
    }
    int64_t *alive = m->alive.data, now = 0;
    memset(alive, 0, ((size_t)out->n_steps + 1) * sizeof(*alive));
    for (int32_t j = 0; j < out->n_instances; j++) {
        const struct plan_instance *i = &out->instances.data[j];
        alive[i->first] += g->storages[i->storage].bytes;
        alive[i->last + 1] -= g->storages[i->storage].bytes;
    }
    out->load = 0;
    out->peak_step = 0;
    for (int32_t k = 0; k < out->n_steps; k++) {
        now += alive[k];
        int64_t with = now + g->ops[out->steps.data[k].op].workspace;
        if (with > out->load) {
            out->load = with;
            out->peak_step = k;
        }
    }
}

int simulate(struct simulator *m, const int32_t *hold, const struct schedule **result)
{
    const struct graph *g = m->p->g;
    int64_t longest = 12 * (int64_t)g->n_ops + 1024;
    m->hold = hold;
    start(m);
    for (int32_t b = 0; b < g->n_ops && !m->failed && m->out.n_steps <= longest; b++) {
        if (b == g->n_body)
            m->out.n_body = m->out.n_steps;
        run_base(m, b);
    }
    m->work += m->out.n_steps;
    if (!m->failed && m->out.n_steps > longest)
        return SIMULATE_TOO_LONG;
    if (g->n_body == g->n_ops)
        m->out.n_body = m->out.n_steps;
    m->out.recompute_seconds *= g->n_micro;
    settle_rewrites(m);
    settle_carried(m);
    if (!m->failed)
        measure(m);
    *result = &m->out;
    return m->failed ? CKPT_ENOMEM : 0;
}
