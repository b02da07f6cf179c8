/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulation: runs a program under one retention interval per storage and gives the steps, the
 * residences and the exact peak.
 *
 * If a base op reads freed storages, their writers are rerun first, in program order, and so are
 * the writers of freed storages that those read.  A residence ends at its last use, so a retention
 * beyond the last use costs nothing.  Fixed storages (fixed.h) are counted but not simulated.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search/fixed.h"
#include "plan/watch.h"

/* The first or last op of a span, in a list per op. */
struct span_end {
    int32_t storage, op, next;
    bool begins;
};

/* A rerun that writes a storage which is still resident. */
struct rewrite {
    int32_t residence, step;
};

/* The state of a storage; small enough for one cache line. */
struct status {
    int32_t open;                   /* its current residence, or -1 */
    int32_t pins;                   /* ops of the current batch that still need it */
    int32_t wanted;                 /* the last batch that recomputes it */
    int32_t position, forward_last; /* as in the program */
    bool exists, droppable, drop_after_forward;
};

struct simulator {
    const struct program *p;
    struct fixed fixed;
    struct baseline program, block; /* of the program; of the last simulated block */
    struct block last;
    const int32_t *retention;
    struct schedule out;
    int64_t work;
    struct status *at; /* per storage */
    int32_t *marked;   /* per op: the last batch that reruns it */
    int32_t batch;
    LIST(int32_t) stack, list; /* storages to recompute, ops to rerun */
    int32_t n_stack, n_list;
    LIST(struct rewrite) rewrites;
    int32_t n_rewrites;
    int32_t *ends_at; /* per op: the first of its list in ends, or -1 */
    LIST(struct span_end) ends;
    int32_t n_ends;
    struct pool memory;
};

void simulator_free(struct simulator *m)
{
    if (!m)
        return;
    pool_free(&m->memory);
    free(m);
}

/* steps has room for the longest schedule: its last base op may rerun all others. */
static int allocate(struct simulator *m)
{
    const struct program *p = m->p;
    struct schedule *out = &m->out;
    out->steps.capacity = longest_schedule(p) + p->g->n_ops + 2;
    POOL_ARRAY(&m->memory, out->steps.data, out->steps.capacity);
    POOL_ARRAY(&m->memory, out->alive, out->steps.capacity);
    POOL_ARRAY(&m->memory, m->at, p->g->n_storages);
    POOL_ARRAY(&m->memory, m->marked, p->g->n_ops);
    m->ends_at = pool_filled(&m->memory, p->g->n_ops, -1);
    int rc = fixed_build(p, &m->memory, &m->fixed);
    if (!rc)
        rc = baseline_new(p, &m->memory, &m->program);
    return rc ? rc : baseline_new(p, &m->memory, &m->block);
}

int simulator_new(const struct program *p, struct simulator **out)
{
    struct simulator *m = calloc(1, sizeof(*m));
    if (!m)
        return CKPT_ENOMEM;
    m->p = p;
    m->last.forward = -1;
    if (allocate(m)) {
        simulator_free(m);
        return CKPT_ENOMEM;
    }
    baseline_of_program(&m->fixed, &m->program);
    for (int32_t s = 0; s < p->g->n_storages; s++)
        m->at[s] = (struct status){.position = p->position[s],
                                   .forward_last = p->forward_last[s],
                                   .droppable = p->droppable[s],
                                   .drop_after_forward = p->drop_after_forward[s]};
    *out = m;
    return 0;
}

int64_t simulator_work(const struct simulator *m)
{
    return m->work;
}

static int32_t new_residence(struct simulator *m, int32_t s, int32_t step)
{
    struct schedule *out = &m->out;
    if (POOL_RESERVE(&m->memory, &out->residences, out->n_residences))
        return -1;
    out->residences.data[out->n_residences] = (struct residence){s, TIER_DEVICE, step, step, 0};
    return out->n_residences++;
}

/* The current step uses s: extends its residence to this step. */
static void touch(struct simulator *m, int32_t s)
{
    struct status *k = &m->at[s];
    int32_t step = m->out.n_steps - 1;
    if (k->open < 0)
        k->open = new_residence(m, s, step);
    if (k->open >= 0)
        m->out.residences.data[k->open].last = step;
}

static void append_step(struct simulator *m, int32_t op, bool again)
{
    struct schedule *out = &m->out;
    out->steps.data[out->n_steps++] = (struct plan_step){.op = op, .again = again};
    if (again && __builtin_add_overflow(out->ticks, m->p->ticks[op], &out->ticks))
        out->ticks = INT64_MAX; /* an overflow counts as the slowest schedule */
}

static bool missing(const struct simulator *m, int32_t s)
{
    return m->at[s].droppable && !m->at[s].exists;
}

/* Whether a span of s continues after op b. */
static bool spans_cover(const struct simulator *m, int32_t s, int32_t b)
{
    int32_t n;
    const struct span *list = retention_spans(m->retention, m->p->g->n_storages, s, &n);
    for (int32_t i = 0; i < n; i++)
        if (list[i].from <= b && b < list[i].to)
            return true;
    return false;
}

static inline bool idles_after(const struct simulator *m, int32_t s, int32_t b)
{
    const struct status *k = &m->at[s];
    if (k->drop_after_forward && b == k->forward_last)
        return true;
    if (retention_has_spans(m->retention[s]))
        return !spans_cover(m, s, b);
    return b >= k->forward_last && m->retention[s] < m->p->context[b];
}

/* Frees s after base op b unless an op of the batch still needs it or its retention interval keeps
 * it. */
static inline void release(struct simulator *m, int32_t s, int32_t b)
{
    struct status *k = &m->at[s];
    if (k->droppable && k->exists && !k->pins && idles_after(m, s, b)) {
        k->exists = false;
        k->open = -1;
    }
}

static void want(struct simulator *m, int32_t s)
{
    m->at[s].pins++;
    if (m->at[s].wanted == m->batch)
        return;
    m->at[s].wanted = m->batch;
    if (!POOL_RESERVE(&m->memory, &m->stack, m->n_stack))
        m->stack.data[m->n_stack++] = s;
}

static void want_missing_reads(struct simulator *m, int32_t op)
{
    const struct variable_op *o = &m->fixed.ops[op];
    const int32_t *reads = m->fixed.refs + o->refs;
    for (int32_t j = 0; j < o->n_reads; j++)
        if (missing(m, reads[j]))
            want(m, reads[j]);
}

/* Lists the writers of s for a rerun and puts the freed storages that they read on the stack. */
static void mark_writers(struct simulator *m, int32_t s)
{
    const struct program *p = m->p;
    for (int32_t j = p->writer_start[s]; j < p->writer_start[s + 1]; j++) {
        int32_t w = p->writers[j];
        if (m->marked[w] == m->batch)
            continue;
        m->marked[w] = m->batch;
        if (POOL_RESERVE(&m->memory, &m->list, m->n_list))
            return;
        m->list.data[m->n_list++] = w;
        want_missing_reads(m, w);
    }
}

static void rewrite(struct simulator *m, int32_t s)
{
    if (!POOL_RESERVE(&m->memory, &m->rewrites, m->n_rewrites))
        m->rewrites.data[m->n_rewrites++] = (struct rewrite){m->at[s].open, m->out.n_steps - 1};
}

/* Handles output s of an op that is rerun for base op b. */
static void write_again(struct simulator *m, int32_t s, int32_t b)
{
    const struct program *p = m->p;
    if (m->at[s].wanted == m->batch) {
        touch(m, s);
        m->at[s].exists = true;
    } else if (m->at[s].open >= 0) {
        rewrite(m, s);
    } else if (p->writer_start[s + 1] - p->writer_start[s] == 1 &&
               (retention_has_spans(m->retention[s]) ? spans_cover(m, s, b)
                                                     : m->retention[s] >= p->context[b])) {
        touch(m, s);
        m->at[s].exists = true;
    } else {
        new_residence(m, s, m->out.n_steps - 1);
    }
}

static void run_again(struct simulator *m, int32_t op, int32_t b)
{
    const struct variable_op *o = &m->fixed.ops[op];
    const int32_t *reads = m->fixed.refs + o->refs, *writes = reads + o->n_reads;
    append_step(m, op, true);
    for (int32_t j = 0; j < o->n_reads; j++)
        touch(m, reads[j]);
    for (int32_t j = 0; j < o->n_writes; j++)
        write_again(m, writes[j], b);
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = reads[j];
        if (m->at[s].wanted == m->batch && m->at[s].pins > 0) {
            m->at[s].pins--;
            release(m, s, b);
        }
    }
}

/* Recomputes storages whose spans begin at op b, even if no op needs them there. */
static void begin_spans(struct simulator *m, int32_t b)
{
    for (int32_t e = m->ends_at[b]; e >= 0; e = m->ends.data[e].next) {
        int32_t s = m->ends.data[e].storage;
        if (!m->ends.data[e].begins || !missing(m, s) || m->at[s].position >= b)
            continue;
        want(m, s);
        m->at[s].pins--;
    }
}

/* Recomputes the freed storages that base op b needs. */
static void remake(struct simulator *m, int32_t b)
{
    m->batch++;
    m->n_list = 0;
    want_missing_reads(m, b);
    begin_spans(m, b);
    while (m->n_stack > 0 && !m->memory.failed)
        mark_writers(m, m->stack.data[--m->n_stack]);
    if (m->n_list == 0)
        return;
    sort_ops(m->list.data, m->n_list);
    for (int32_t j = 0; j < m->n_list && !m->memory.failed; j++)
        run_again(m, m->list.data[j], b);
}

/* Frees the storages whose spans end at op b. */
static void end_spans(struct simulator *m, int32_t b)
{
    for (int32_t e = m->ends_at[b]; e >= 0; e = m->ends.data[e].next) {
        int32_t s = m->ends.data[e].storage;
        if (m->ends.data[e].begins)
            continue;
        m->at[s].exists = false;
        m->at[s].open = -1;
    }
}

static void run_base(struct simulator *m, int32_t b)
{
    const struct variable_op *o = &m->fixed.ops[b];
    const int32_t *reads = m->fixed.refs + o->refs, *writes = reads + o->n_reads;
    bool ends = m->ends_at[b] >= 0, needs = ends; /* needs: a storage must be recomputed */
    for (int32_t j = 0; j < o->n_reads && !needs; j++)
        needs = missing(m, reads[j]);
    if (needs)
        remake(m, b);
    append_step(m, b, false);
    for (int32_t j = 0; j < o->n_reads; j++) {
        touch(m, reads[j]);
        m->at[reads[j]].pins = 0;
        release(m, reads[j], b);
    }
    for (int32_t j = 0; j < o->n_writes; j++) {
        touch(m, writes[j]);
        m->at[writes[j]].exists = true;
        release(m, writes[j], b);
    }
    if (ends)
        end_spans(m, b);
}

static void clear_ends(struct simulator *m)
{
    const struct span_end *ends = m->ends.data;
    for (int32_t s = 0; s < m->n_ends; s++)
        m->ends_at[ends[s].op] = -1;
    m->n_ends = 0;
}

static void list_end(struct simulator *m, int32_t op, int32_t s, bool begins)
{
    if (POOL_RESERVE(&m->memory, &m->ends, m->n_ends))
        return;
    m->ends.data[m->n_ends] = (struct span_end){s, op, m->ends_at[op], begins};
    m->ends_at[op] = m->n_ends++;
}

static void list_ends(struct simulator *m)
{
    int32_t n_storages = m->p->g->n_storages, n;
    for (int32_t s = 0; s < n_storages && m->retention[n_storages] > 0; s++) {
        if (!retention_has_spans(m->retention[s]))
            continue;
        const struct span *list = retention_spans(m->retention, n_storages, s, &n);
        for (int32_t i = 0; i < n; i++) {
            list_end(m, list[i].from, s, true);
            list_end(m, list[i].to, s, false);
        }
    }
}

static void start(struct simulator *m, const int32_t *retention)
{
    struct schedule *out = &m->out;
    m->retention = retention;
    out->n_steps = out->n_body = out->n_residences = m->n_rewrites = m->n_stack = 0;
    out->ticks = 0;
    clear_ends(m);
}

/* Starts with nothing computed. */
static void start_program(struct simulator *m)
{
    list_ends(m);
    for (int32_t s = 0; s < m->p->g->n_storages; s++) {
        m->at[s].open = -1;
        m->at[s].pins = 0;
        m->at[s].exists = false;
    }
}

/* Runs base ops [from, to) until the schedule has more than `most` steps. */
static void run_ops(struct simulator *m, int32_t from, int32_t to, int64_t most)
{
    for (int32_t b = from; b < to && !m->memory.failed && m->out.n_steps <= most; b++)
        run_base(m, b);
}

/* A rewrite within its residence needs nothing; one after it gets a residence of its own. */
static void place_rewrites(struct simulator *m)
{
    struct schedule *out = &m->out;
    for (int32_t j = 0; j < m->n_rewrites; j++) {
        struct rewrite r = m->rewrites.data[j];
        if (r.step > out->residences.data[r.residence].last)
            new_residence(m, out->residences.data[r.residence].storage, r.step);
    }
}

/* Counts a schedule that has ended.  Returns as simulate. */
static int finish(struct simulator *m, int64_t most)
{
    m->work += m->out.n_steps;
    if (!m->memory.failed && m->out.n_steps > most)
        return SIMULATE_TOO_LONG;
    place_rewrites(m);
    return pool_status(&m->memory);
}

/* The bytes alive at step k, above the baseline t; now: before and after it. */
static int64_t count_step(const struct simulator *m, const struct baseline *t, int32_t k,
                          int64_t *now)
{
    struct plan_step s = m->out.steps.data[k];
    *now += m->out.alive[k] + (s.again ? 0 : t->rise[s.op]);
    int64_t with = *now + m->p->g->ops[s.op].workspace;
    *now -= s.again ? 0 : t->fall[s.op];
    return with;
}

/* Adds the bytes of residences to alive, as differences from step to step. */
static void count_residences(struct schedule *out, const struct graph *g)
{
    int64_t *alive = out->alive;
    memset(alive, 0, ((size_t)out->n_steps + 1) * sizeof(*alive));
    for (int32_t j = 0; j < out->n_residences; j++) {
        const struct residence *i = &out->residences.data[j];
        alive[i->first] += g->storages[i->storage].bytes;
        alive[i->last + 1] -= g->storages[i->storage].bytes;
    }
}

static void measure(struct simulator *m)
{
    struct schedule *out = &m->out;
    int64_t now = 0;
    count_residences(out, m->p->g);
    out->load = 0;
    out->peak_step = 0;
    for (int32_t k = 0; k < out->n_steps; k++) {
        out->alive[k] = count_step(m, &m->program, k, &now);
        if (out->alive[k] > out->load) {
            out->load = out->alive[k];
            out->peak_step = k;
        }
    }
}

int simulate(struct simulator *m, const int32_t *retention, const struct schedule **result)
{
    const struct graph *g = m->p->g;
    int64_t most = longest_schedule(m->p);
    int rc = plan_watch_check(g->watch);
    if (rc)
        return rc;
    start(m, retention);
    start_program(m);
    run_ops(m, 0, g->n_body, most);
    m->out.n_body = m->out.n_steps;
    run_ops(m, g->n_body, g->n_ops, most);
    rc = finish(m, most);
    if (!rc)
        measure(m);
    if (rc <= 0)
        *result = &m->out;
    return rc;
}

int schedule_complete(struct simulator *m)
{
    struct schedule *out = &m->out;
    int32_t *step_of = malloc(((size_t)m->p->g->n_ops + 1) * sizeof(*step_of)), first, last;
    if (!step_of)
        return CKPT_ENOMEM;
    for (int32_t k = 0; k < out->n_steps; k++)
        if (!out->steps.data[k].again)
            step_of[out->steps.data[k].op] = k;
    for (int32_t s = 0; s < m->p->g->n_storages && !m->memory.failed; s++)
        if (fixed_stay(&m->fixed, s, &first, &last)) {
            int32_t i = new_residence(m, s, step_of[first]);
            if (i >= 0)
                out->residences.data[i].last = step_of[last];
        }
    free(step_of);
    return pool_status(&m->memory);
}

/* Starts as if the program before the block had run and kept everything, at no cost. */
static void start_block(struct simulator *m, const struct block *b, int32_t from, int32_t to)
{
    for (int32_t i = from; i < to; i++) {
        const struct variable_op *o = &m->fixed.ops[i];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
            struct status *k = &m->at[m->fixed.refs[o->refs + j]];
            k->exists = k->position < b->forward || k->position >= b->forward_end;
            k->pins = 0;
            k->open = -1;
        }
    }
}

/* Whether the block counts s: all but droppable storages of other blocks. */
static bool is_own(const struct program *p, const struct block *b, int32_t s)
{
    return !p->droppable[s] || (p->position[s] >= b->forward && p->position[s] < b->forward_end);
}

/* Whether later blocks read s, so that it stays under all choices of this block. */
static bool crosses(const struct program *p, const struct block *b, int32_t s)
{
    return p->forward_last[s] >= b->forward_end;
}

static void measure_block(struct simulator *m, const struct block *b, int32_t turn,
                          struct block_cost *cost)
{
    struct schedule *out = &m->out;
    int64_t now = 0;
    memset(out->alive, 0, ((size_t)out->n_steps + 1) * sizeof(*out->alive));
    for (int32_t j = 0; j < out->n_residences; j++) {
        const struct residence *i = &out->residences.data[j];
        int64_t bytes = m->p->g->storages[i->storage].bytes;
        if (!is_own(m->p, b, i->storage))
            continue;
        out->alive[i->first] += bytes;
        out->alive[i->last + 1] -= bytes;
        if (m->p->droppable[i->storage] && i->first < turn &&
            (i->last >= turn || crosses(m->p, b, i->storage)))
            cost->kept += bytes;
    }
    for (int32_t k = 0; k < out->n_steps; k++) {
        int64_t with = count_step(m, &m->block, k, &now);
        int64_t *most = k < turn ? &cost->forward : &cost->backward;
        *most = max_i64(*most, with);
    }
}

/* Computes the baseline of block b unless it is the last one. */
static void set_block_baseline(struct simulator *m, const struct block *b)
{
    if (m->last.forward == b->forward && m->last.forward_end == b->forward_end &&
        m->last.backward == b->backward && m->last.backward_end == b->backward_end)
        return;
    baseline_of_block(&m->fixed, b, &m->block);
    m->last = *b;
}

int simulate_block(struct simulator *m, const struct block *b, const int32_t *retention,
                   struct block_cost *cost)
{
    const int32_t most = 12 * (b->forward_end - b->forward + b->backward_end - b->backward) + 64;
    int rc = plan_watch_check(m->p->g->watch);
    *cost = (struct block_cost){0};
    if (rc)
        return rc;
    start(m, retention);
    set_block_baseline(m, b);
    start_block(m, b, b->forward, b->forward_end);
    start_block(m, b, b->backward, b->backward_end);
    run_ops(m, b->forward, b->forward_end, most);
    int32_t turn = m->out.n_steps;
    run_ops(m, b->backward, b->backward_end, most);
    rc = finish(m, most);
    if (!rc)
        measure_block(m, b, turn, cost);
    if (rc <= 0)
        cost->ticks = m->out.ticks;
    return rc;
}
