/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Evaluates one stage and compares the storages it uses with those it used before.  Differences may
 * change other stages, which are evaluated until nothing changes.  Every change is recorded, so
 * that a move can be undone.
 *
 * Most of the planning time is spent here: a stage takes about a microsecond.  So the fields that
 * are read together are stored together (struct mark, struct variable_op), lists are cleared by a
 * new batch number, and a stage whose uses are unchanged is left alone.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search/stages_inside.h"

void stages_push(struct stages *x, struct list *l, int32_t value)
{
    if (!POOL_RESERVE(&x->memory, l, l->n))
        l->data[l->n++] = value;
}

/* ---- the journal ---------------------------------------------------------------------------- */

static void save(struct stages *x, struct undo_log *f, struct undo was, const int32_t *data)
{
    struct list *l = &x->in->journal;
    if (POOL_RESERVE(&x->memory, l, l->n + was.n) || POOL_RESERVE(&x->memory, f, f->n))
        return;
    was.at = l->n;
    if (was.n > 0)
        memcpy(l->data + l->n, data, (size_t)was.n * sizeof(*data));
    l->n += was.n;
    f->data[f->n++] = was;
}

void stages_save_uses(struct stages *x, int32_t s)
{
    const struct uses *l = &x->uses[s];
    if (x->in->marks[s].saved == x->in->move)
        return;
    x->in->marks[s].saved = x->in->move;
    save(x, &x->in->uses, (struct undo){.index = s, .n = l->n}, l->data);
}

void stages_save(struct stages *x, int32_t t)
{
    const struct stage *g = &x->in->stages[t];
    if (x->in->stage_saved[t] == x->in->move)
        return;
    x->in->stage_saved[t] = x->in->move;
    save(x, &x->in->undo_log, (struct undo){t, g->touched.n, g->n_ops, 0, g->rise, g->ticks},
         g->touched.data);
}

void stages_lift(struct stages *x, int32_t from, int32_t to, int64_t bytes)
{
    range_max_add(&x->top, from, to + 1, bytes);
    x->work += (to - from) / 256;
}

/* Marks stages that depend on s as an unneeded output: they rerun its writer for another output. */
static void mark_strays_dirty(struct stages *x, int32_t s, int32_t from, int32_t to)
{
    const struct program *p = x->p;
    for (int32_t k = p->writer_start[s]; k < p->writer_start[s + 1]; k++) {
        const struct graph_op *o = &p->g->ops[p->writers[k]];
        for (int32_t j = 0; j < o->n_writes && o->n_writes > 1; j++) {
            const struct uses *l = &x->uses[p->g->refs[o->writes + j]];
            for (int32_t i = uses_find(l, from); i < l->n && use_stage(l, i) <= to; i++)
                stages_mark_dirty(x, use_stage(l, i));
        }
    }
}

void stages_raise(struct stages *x, int32_t s, int32_t from, int32_t to, int sign)
{
    struct stages_inside *in = x->in;
    if (POOL_RESERVE(&x->memory, &in->raised, in->n_raised))
        return;
    int64_t bytes = sign * x->p->g->storages[s].bytes;
    in->raised.data[in->n_raised++] = (struct raised){from, to, bytes};
    stages_lift(x, from, to, bytes);
    mark_strays_dirty(x, s, from, to);
}

static void set_stage(struct stages *x, int32_t t, int32_t n_ops, int64_t rise, int64_t ticks)
{
    struct stage *g = &x->in->stages[t];
    if (rise != g->rise)
        range_max_add(&x->top, t, t + 1, rise - g->rise);
    x->ticks += ticks - g->ticks;
    x->n_steps += n_ops - g->n_ops;
    g->n_ops = n_ops;
    g->rise = rise;
    g->ticks = ticks;
}

void stages_accept(struct stages *x)
{
    struct stages_inside *in = x->in;
    in->move++;
    in->uses.n = in->undo_log.n = in->journal.n = in->n_raised = 0;
}

void stages_undo(struct stages *x)
{
    struct stages_inside *in = x->in;
    for (int32_t i = in->n_raised - 1; i >= 0; i--) {
        struct raised r = in->raised.data[i];
        stages_lift(x, r.from, r.to, -r.bytes);
    }
    for (int32_t i = 0; i < in->uses.n; i++) {
        const struct undo *f = &in->uses.data[i];
        struct uses *l = &x->uses[f->index];
        if (f->n > 0)
            memcpy(l->data, in->journal.data + f->at, (size_t)f->n * sizeof(int32_t));
        l->n = f->n;
    }
    for (int32_t i = 0; i < in->undo_log.n; i++) {
        const struct undo *f = &in->undo_log.data[i];
        struct stage *g = &in->stages[f->index];
        if (f->n > 0)
            memcpy(g->touched.data, in->journal.data + f->at, (size_t)f->n * sizeof(int32_t));
        g->touched.n = f->n;
        set_stage(x, f->index, f->n_ops, f->rise, f->ticks);
    }
    stages_accept(x);
}

/* ---- uses -------------------------------------------------------------------------------- */

int32_t uses_find(const struct uses *l, int32_t t)
{
    const int32_t *from = l->data;
    uint32_t n = (uint32_t)l->n;
    while (n > 0) { /* branch-free: the comparison is unpredictable */
        uint32_t half = (n + 1) / 2;
        from = from[half - 1] < 2 * t ? from + half : from;
        n -= half;
    }
    return (int32_t)(from - l->data);
}

/* Sets whether s is resident at the begin and end of stage t, once per batch.  Uses that this stage
 * adds or removes do not change that. */
static struct mark *meet(const struct stages *x, int32_t s, int32_t t)
{
    struct mark *m = &x->in->marks[s];
    if (m->met == x->in->batch)
        return m;
    const struct uses *l = &x->uses[s];
    int32_t i = uses_find(l, t);
    bool here = i < l->n && use_stage(l, i) == t;
    m->met = x->in->batch;
    m->begins = i > 0 && (!m->droppable || use_kept(l, i - 1));
    m->ends = m->droppable ? (here ? use_kept(l, i) : m->begins) : i + here < l->n;
    return m;
}

void stages_mark_dirty(struct stages *x, int32_t t)
{
    if (x->in->is_dirty[t])
        return;
    x->in->is_dirty[t] = true;
    stages_push(x, &x->in->dirty, t);
}

void stages_insert(struct stages *x, int32_t s, int32_t i, int32_t t, bool kept)
{
    struct uses *l = &x->uses[s];
    stages_save_uses(x, s);
    if (POOL_RESERVE(&x->memory, l, l->n))
        return;
    memmove(l->data + i + 1, l->data + i, (size_t)(l->n - i) * sizeof(*l->data));
    l->data[i] = 2 * t + kept;
    l->n++;
}

/* Stage t newly uses s. */
static void add_use(struct stages *x, int32_t s, int32_t t)
{
    struct uses *l = &x->uses[s];
    int32_t i = uses_find(l, t);
    if (i < l->n && use_stage(l, i) == t)
        return;
    if (!x->p->droppable[s] && i == l->n && i > 0) {
        stages_raise(x, s, use_stage(l, i - 1) + 1, t, 1);
        stages_mark_dirty(x, use_stage(l, i - 1));
    }
    stages_insert(x, s, i, t, i > 0 && use_kept(l, i - 1));
}

/* Stage t no longer uses s.  If s was kept only until t, it is freed after its previous use. */
static void remove_use(struct stages *x, int32_t s, int32_t t)
{
    struct uses *l = &x->uses[s];
    int32_t i = uses_find(l, t);
    if (i == l->n || use_stage(l, i) != t)
        return;
    stages_save_uses(x, s);
    bool ends = x->p->droppable[s] ? !use_kept(l, i) : i == l->n - 1;
    bool begins = x->p->droppable[s] ? i > 0 && use_kept(l, i - 1) : i > 0;
    if (begins && ends) {
        l->data[i - 1] &= ~1;
        stages_raise(x, s, use_stage(l, i - 1) + 1, t, -1);
        stages_mark_dirty(x, use_stage(l, i - 1));
    }
    memmove(l->data + i, l->data + i + 1, (size_t)(l->n - i - 1) * sizeof(*l->data));
    l->n--;
}

/* ---- one stage ------------------------------------------------------------------------------ */

static void want(struct stages *x, struct mark *m, int32_t s)
{
    m->wanted = x->in->batch;
    stages_push(x, &x->in->wanted, s);
}

static void want_reads(struct stages *x, int32_t op, int32_t t)
{
    const struct variable_op *o = &x->in->fixed.ops[op];
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = x->in->fixed.refs[o->refs + j];
        if (!x->in->marks[s].droppable)
            continue;
        struct mark *m = meet(x, s, t);
        if (!m->begins && m->wanted != x->in->batch)
            want(x, m, s);
    }
}

/* Wants the storages that are not resident but kept from stage t on. */
static void want_kept(struct stages *x, int32_t t)
{
    const struct list *l = &x->in->stages[t].touched;
    for (int32_t j = 0; j < l->n; j++) {
        int32_t s = l->data[j];
        if (!x->p->droppable[s] || x->p->position[s] >= t)
            continue;
        struct mark *m = meet(x, s, t);
        if (m->ends && !m->begins && m->wanted != x->in->batch)
            want(x, m, s);
    }
}

/* Lists in in->ops the reruns before base op t, unordered, as a batch. */
static void list(struct stages *x, int32_t t)
{
    struct stages_inside *in = x->in;
    in->batch++;
    in->wanted.n = in->ops.n = 0;
    want_reads(x, t, t);
    want_kept(x, t);
    for (int32_t k = 0; k < in->wanted.n; k++) {
        const struct mark *m = &in->marks[in->wanted.data[k]];
        for (int32_t j = 0; j < m->n_writers; j++) {
            int32_t w = x->p->writers[m->writer + j];
            if (in->ran[w] == in->batch)
                continue;
            in->ran[w] = in->batch;
            stages_push(x, &in->ops, w);
            want_reads(x, w, t);
        }
    }
}

static void note(struct stages *x, int32_t s, int32_t step)
{
    struct stages_inside *in = x->in;
    struct mark *m = &in->marks[s];
    if (m->noted != in->batch) {
        m->noted = in->batch;
        m->first = step;
        stages_push(x, &in->noted, s);
    }
    m->last = step;
}

/* Notes the storages that the listed ops use; the last op is the base op.  Returns the ticks of the
 * others. */
static int64_t note_all(struct stages *x)
{
    struct stages_inside *in = x->in;
    int64_t ticks = 0;
    in->noted.n = 0;
    for (int32_t k = 0; k < in->ops.n; k++) {
        const struct variable_op *o = &in->fixed.ops[in->ops.data[k]];
        const int32_t *refs = in->fixed.refs + o->refs;
        bool base = k == in->ops.n - 1;
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            if (base || j < o->n_reads || in->marks[refs[j]].wanted == in->batch)
                note(x, refs[j], k);
        ticks += base ? 0 : o->ticks;
    }
    return ticks;
}

/* Whether a rerun at this step needs extra room for output s that is not wanted. */
static bool stray(struct stages *x, int32_t s, int32_t step, int32_t t)
{
    const struct mark *m = meet(x, s, t);
    if (m->wanted == x->in->batch)
        return false;
    if (m->noted != x->in->batch)
        return !m->begins || !m->ends;
    return (step < m->first && !m->begins) || (step > m->last && !m->ends);
}

static int64_t rise_of(struct stages *x, int32_t t)
{
    struct stages_inside *in = x->in;
    int64_t now = 0, most = 0, *change = in->change;
    memset(change, 0, ((size_t)in->ops.n + 1) * sizeof(*change));
    for (int32_t i = 0; i < in->noted.n; i++) {
        int32_t s = in->noted.data[i];
        const struct mark *m = meet(x, s, t);
        if (!m->begins)
            change[m->first] += m->bytes;
        if (!m->ends)
            change[m->last + 1] -= m->bytes;
    }
    for (int32_t k = 0; k < in->ops.n; k++) {
        const struct variable_op *o = &in->fixed.ops[in->ops.data[k]];
        const int32_t *writes = in->fixed.refs + o->refs + o->n_reads;
        int64_t strays = 0;
        for (int32_t j = 0; j < o->n_writes && o->strays && k < in->ops.n - 1; j++)
            if (stray(x, writes[j], k, t))
                strays += in->marks[writes[j]].bytes;
        now += change[k] + (k == in->ops.n - 1 ? in->baseline.rise[t] : 0);
        most = max_i64(most, now + strays + o->workspace);
    }
    return most;
}

/* Records the storages that the stage uses now. */
static void compare_uses(struct stages *x, int32_t t)
{
    struct stages_inside *in = x->in;
    struct list *old = &in->stages[t].touched;
    size_t bytes = (size_t)old->n * sizeof(*old->data);
    if (old->n == in->noted.n && (!bytes || !memcmp(old->data, in->noted.data, bytes)))
        return;
    for (int32_t j = 0; j < old->n; j++)
        in->marks[old->data[j]].old = in->batch;
    for (int32_t j = 0; j < in->noted.n; j++)
        if (in->marks[in->noted.data[j]].old != in->batch)
            add_use(x, in->noted.data[j], t);
    for (int32_t j = 0; j < old->n; j++)
        if (in->marks[old->data[j]].noted != in->batch)
            remove_use(x, old->data[j], t);
    old->n = 0;
    for (int32_t j = 0; j < in->noted.n; j++)
        stages_push(x, old, in->noted.data[j]);
}

static void evaluate(struct stages *x, int32_t t)
{
    stages_save(x, t);
    list(x, t);
    sort_ops(x->in->ops.data, x->in->ops.n);
    stages_push(x, &x->in->ops, t);
    int64_t ticks = note_all(x);
    compare_uses(x, t);
    set_stage(x, t, x->in->ops.n, rise_of(x, t), ticks);
    x->work += 2 + x->in->ops.n;
}

void stages_propagate(struct stages *x)
{
    struct stages_inside *in = x->in;
    while (in->dirty.n > 0 && !x->memory.failed) {
        int32_t t = in->dirty.data[--in->dirty.n];
        in->is_dirty[t] = false;
        evaluate(x, t);
    }
}
