/* SPDX-License-Identifier: Apache-2.0 */
/* Stages: moves, loading a schedule, and conversion to retention intervals. */
#include <stdlib.h>
#include <string.h>
#include "plan/search/stages_inside.h"

/* ---- moves ---------------------------------------------------------------------------------- */

bool stages_fixed(const struct stages *x, int32_t s, int32_t i)
{
    const struct program *p = x->p;
    return !p->droppable[s] || use_stage(&x->uses[s], i) < program_last_writer(p, s);
}

int64_t stages_toggle_excess(const struct stages *x, int32_t s, int32_t i, int64_t enough)
{
    const struct uses *l = &x->uses[s];
    int64_t bytes = x->p->g->storages[s].bytes;
    return range_max_gain(&x->top, use_stage(l, i) + 1, use_stage(l, i + 1) + use_kept(l, i),
                          use_kept(l, i) ? -bytes : bytes, enough);
}

int64_t stages_toggle_ticks(const struct stages *x, int32_t s, int32_t i)
{
    const struct program *p = x->p;
    const struct uses *l = &x->uses[s];
    int64_t ticks = 0;
    if (!use_kept(l, i))
        return -x->in->stages[use_stage(l, i + 1)].ticks;
    if (i > 0 && !use_kept(l, i - 1))
        return -x->in->stages[use_stage(l, i)].ticks;
    for (int32_t k = p->writer_start[s]; k < p->writer_start[s + 1]; k++)
        ticks += p->g->ops[p->writers[k]].n_writes == 1 ? p->ticks[p->writers[k]] : 0;
    return ticks;
}

void stages_toggle(struct stages *x, int32_t s, int32_t i)
{
    struct uses *l = &x->uses[s];
    int32_t from = use_stage(l, i), to = use_stage(l, i + 1);
    stages_save_uses(x, s);
    stages_raise(x, s, from + 1, to, use_kept(l, i) ? -1 : 1);
    l->data[i] ^= 1;
    stages_mark_dirty(x, from);
    stages_mark_dirty(x, to);
    stages_propagate(x);
}

void stages_shift(struct stages *x, int32_t s, int32_t i, int32_t t)
{
    struct uses *l = &x->uses[s];
    struct stage *g = &x->in->stages[t];
    int32_t from = use_stage(l, i), to = use_stage(l, i + 1);
    if (POOL_RESERVE(&x->memory, &g->touched, g->touched.n))
        return;
    stages_save_uses(x, s);
    stages_save(x, t);
    if (use_kept(l, i)) {
        stages_raise(x, s, from + 1, t, -1);
        l->data[i] &= ~1;
        stages_mark_dirty(x, from);
    } else {
        stages_raise(x, s, t + 1, to, 1);
        stages_mark_dirty(x, to);
    }
    stages_insert(x, s, i + 1, t, true);
    stages_push(x, &g->touched, s);
    stages_mark_dirty(x, t);
    stages_propagate(x);
}

/* ---- as a whole ----------------------------------------------------------------------------- */

int64_t stages_peak(const struct stages *x)
{
    return range_max_at(&x->top, range_max_peak(&x->top));
}

bool stages_playable(const struct stages *x)
{
    return x->n_steps <= longest_schedule(x->p);
}

static void add_initial(struct stages *x, int32_t s, int32_t t)
{
    struct uses *l = &x->uses[s];
    int32_t i = uses_find(l, t);
    if (i == l->n || use_stage(l, i) != t)
        stages_insert(x, s, i, t, false);
}

/* Adds the uses by base ops, which no decision changes. */
static void add_base_uses(struct stages *x)
{
    for (int32_t t = 0; t < x->p->g->n_ops; t++) {
        const struct variable_op *o = &x->in->fixed.ops[t];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            add_initial(x, x->in->fixed.refs[o->refs + j], t);
    }
}

/* Adds a residence from stage from to stage to. */
static void add_residence(struct stages *x, int32_t s, int32_t from, int32_t to)
{
    struct uses *l = &x->uses[s];
    add_initial(x, s, from);
    add_initial(x, s, to);
    for (int32_t i = 0; i < l->n; i++)
        if (use_stage(l, i) >= from && use_stage(l, i) < to)
            l->data[i] |= 1;
}

static void raise_kept(struct stages *x)
{
    const struct graph *g = x->p->g;
    for (int32_t s = 0; s < g->n_storages; s++) {
        const struct uses *l = &x->uses[s];
        for (int32_t i = 0; i + 1 < l->n; i++)
            if (use_kept(l, i) || !x->p->droppable[s])
                stages_lift(x, use_stage(l, i) + 1, use_stage(l, i + 1), g->storages[s].bytes);
    }
}

static void list_touched(struct stages *x)
{
    for (int32_t s = 0; s < x->p->g->n_storages; s++)
        for (int32_t i = 0; i < x->uses[s].n; i++)
            stages_push(x, &x->in->stages[use_stage(&x->uses[s], i)].touched, s);
}

/* Removes everything but the baseline of fixed storages. */
static void clear(struct stages *x)
{
    const struct graph *g = x->p->g;
    const struct baseline *baseline = &x->in->baseline;
    int64_t now = 0;
    x->ticks = 0;
    x->n_steps = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        x->uses[s].n = 0;
    for (int32_t t = 0; t < g->n_ops; t++) {
        x->in->stages[t].touched.n = 0;
        x->in->stages[t].rise = 0;
        x->in->stages[t].ticks = 0;
        x->in->stages[t].n_ops = 0;
        x->in->change[t] = now;
        now += baseline->rise[t] - baseline->fall[t];
    }
    range_max_set(&x->top, x->in->change);
}

int stages_load(struct stages *x, const struct schedule *s)
{
    const struct graph *g = x->p->g;
    int32_t *stage_of = malloc(((size_t)s->n_steps + 1) * sizeof(*stage_of));
    if (!stage_of)
        return CKPT_ENOMEM;
    for (int32_t k = s->n_steps - 1, t = 0; k >= 0; k--) {
        t = s->steps.data[k].again ? t : s->steps.data[k].op;
        stage_of[k] = t;
    }
    clear(x);
    stages_accept(x);
    add_base_uses(x);
    for (int32_t i = 0; i < s->n_residences; i++) {
        const struct residence *k = &s->residences.data[i];
        if (x->p->droppable[k->storage] && stage_of[k->first] < stage_of[k->last])
            add_residence(x, k->storage, stage_of[k->first], stage_of[k->last]);
    }
    raise_kept(x);
    list_touched(x);
    for (int32_t t = g->n_ops - 1; t >= 0; t--)
        stages_mark_dirty(x, t);
    stages_propagate(x);
    stages_accept(x);
    free(stage_of);
    return pool_status(&x->memory);
}

/* Whether storage s stays from its first to its last use. */
static bool stays(const struct stages *x, int32_t s)
{
    const struct uses *l = &x->uses[s];
    int32_t i = 0;
    while (i + 1 < l->n && use_kept(l, i))
        i++;
    return !x->p->droppable[s] || i + 1 >= l->n;
}

/* Appends the list of spans of storage s: runs of uses between which it is kept. */
static void add_spans(struct stages *x, int32_t s)
{
    const struct uses *l = &x->uses[s];
    struct list *h = &x->in->retention;
    int32_t first = h->n;
    stages_push(x, h, 0);
    for (int32_t i = 0; i + 1 < l->n && !x->memory.failed; i++) {
        if (!use_kept(l, i))
            continue;
        if (h->n > first + 1 && h->data[h->n - 1] == use_stage(l, i)) {
            h->data[h->n - 1] = use_stage(l, i + 1);
            continue;
        }
        stages_push(x, h, use_stage(l, i));
        stages_push(x, h, use_stage(l, i + 1));
        h->data[first]++;
    }
}

const int32_t *stages_retention(struct stages *x)
{
    int32_t n = x->p->g->n_storages;
    struct list *h = &x->in->retention;
    h->n = 0;
    for (int32_t s = 0; s < n; s++)
        stages_push(x, h, RETAIN_ALWAYS);
    stages_push(x, h, 0);
    for (int32_t s = 0; s < n && !x->memory.failed; s++) {
        if (stays(x, s))
            continue;
        h->data[s] = RETAIN_SPANS - (h->n - n - 1);
        add_spans(x, s);
    }
    if (x->memory.failed)
        return NULL;
    h->data[n] = h->n - n - 1;
    return h->data;
}

void stages_free(struct stages *x)
{
    if (x)
        pool_free(&x->memory);
    free(x);
}

static void set_marks(struct stages *x)
{
    const struct program *p = x->p;
    for (int32_t s = 0; s < p->g->n_storages; s++)
        x->in->marks[s] = (struct mark){.bytes = p->g->storages[s].bytes,
                                        .droppable = p->droppable[s],
                                        .writer = p->writer_start[s],
                                        .n_writers = p->writer_start[s + 1] - p->writer_start[s]};
}

static int allocate(struct stages *x)
{
    const struct graph *g = x->p->g;
    struct pool *m = &x->memory;
    struct stages_inside *in = x->in = pool_array(m, 0, sizeof(*in));
    if (!in)
        return CKPT_ENOMEM;
    POOL_ARRAY(m, x->uses, g->n_storages);
    POOL_ARRAY(m, in->stages, g->n_ops);
    POOL_ARRAY(m, in->is_dirty, g->n_ops);
    POOL_ARRAY(m, in->marks, g->n_storages);
    POOL_ARRAY(m, in->ran, g->n_ops);
    POOL_ARRAY(m, in->stage_saved, g->n_ops);
    POOL_ARRAY(m, in->change, g->n_ops + 1);
    int rc = range_max_new(&x->top, g->n_ops, m);
    if (!rc)
        rc = fixed_build(x->p, m, &in->fixed);
    return rc ? rc : baseline_new(x->p, m, &in->baseline);
}

int stages_new(const struct program *p, struct stages **out)
{
    struct stages *x = calloc(1, sizeof(*x));
    if (!x)
        return CKPT_ENOMEM;
    x->p = p;
    if (allocate(x)) {
        stages_free(x);
        return CKPT_ENOMEM;
    }
    baseline_of_program(&x->in->fixed, &x->in->baseline);
    set_marks(x);
    *out = x;
    return 0;
}
