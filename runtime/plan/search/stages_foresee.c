/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a move would come to.  Nine of ten moves that are made cost too much and are taken back;
 * most of them change what one or two stages run and nothing else.  Then the ticks are known once
 * the ops of these are listed, and that the excess falls by no more than they have, so the move
 * need not be made.  The work that it would have been is counted, so that the search goes the same
 * way.
 */
#include "plan/search/stages_inside.h"

static int64_t listed_ticks(const struct stages *x)
{
    int64_t ticks = 0;
    for (int32_t k = 0; k < x->in->ops.n; k++)
        ticks += x->in->tracked[x->in->ops.data[k]].ticks;
    return ticks;
}

/* Whether an op that runs again in stage t reads what nobody could make again, and what would have
 * to stay longer for that. */
static bool extends_a_life(const struct stages *x, int32_t op, int32_t t)
{
    const struct tracked_op *o = &x->in->tracked[op];
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = x->in->refs[o->refs + j];
        const struct uses *l = &x->uses[s];
        if (!x->in->marks[s].droppable && use_stage(l, l->n - 1) < t)
            return true;
    }
    return false;
}

/* Lists what stage t runs if it has to make s again, which it finds now or has no use for; false if
 * that concerns other stages. */
static bool list_making(struct stages *x, int32_t s, int32_t t)
{
    struct stages_inside *in = x->in;
    stages_start(x);
    struct mark *m = stages_meet(x, s, t);
    m->begins = false;
    stages_want(x, m, s);
    if (in->stages[t].n_ops > 1)
        stages_list(x, t);
    else /* it finds all else */
        stages_list_writers(x, t);
    for (int32_t k = 0; k < in->ops.n; k++)
        if (extends_a_life(x, in->ops.data[k], t))
            return false;
    return true;
}

/* Whether the stage of use i of s runs the same ops if s is not kept behind it. */
static bool runs_the_same(struct stages *x, int32_t s, int32_t i)
{
    struct stages_inside *in = x->in;
    const struct uses *l = &x->uses[s];
    int32_t t = use_stage(l, i);
    const struct tracked_op *o = &in->tracked[t];
    if (i == 0 || use_kept(l, i - 1))
        return true;
    for (int32_t j = 0; j < o->n_reads; j++)
        if (in->refs[o->refs + j] == s)
            return true;
    stages_start(x);
    stages_meet(x, s, t)->ends = false;
    stages_list(x, t);
    return in->ops.n + 1 == in->stages[t].n_ops;
}

/* Stages that the move plays, beside t with so many ops and a level that changes twice. */
static int64_t work_of(struct stages *x, int32_t from, int32_t to, int32_t t, int32_t n_ops)
{
    struct stages_inside *in = x->in;
    int64_t work = (to - from) / 256 * 2;
    while (in->dirty.n > 0) {
        int32_t u = in->dirty.data[--in->dirty.n];
        in->is_dirty[u] = false;
        work += 2 + (u == t ? n_ops : in->stages[u].n_ops);
    }
    return work;
}

static bool foresee_drop(struct stages *x, int32_t s, int32_t i, int32_t t, struct foresight *f)
{
    int32_t from = use_stage(&x->uses[s], i);
    if (!runs_the_same(x, s, i) || !list_making(x, s, t))
        return false;
    f->ticks = listed_ticks(x) - x->in->stages[t].ticks;
    f->excess = -range_max_above(&x->top, from, t + 1); /* no change takes away more */
    stages_mark_strays_dirty(x, s, from + 1, t);
    stages_mark_dirty(x, from);
    stages_mark_dirty(x, t);
    f->work = work_of(x, from + 1, t, t, x->in->ops.n + 1);
    return true;
}

/* Whether what stage t no longer uses was kept up to it and no further: it would go earlier. */
static bool ends_a_stretch(struct stages *x, int32_t t)
{
    const struct stage *g = &x->in->stages[t];
    for (int32_t j = 0; j < g->n; j++) {
        int32_t s = g->touched[j];
        if (x->in->marks[s].noted == x->in->batch)
            continue;
        const struct mark *m = stages_meet(x, s, t);
        if (!m->droppable || (m->begins && !m->ends))
            return true;
    }
    return false;
}

/* Lists what stage t runs if it finds s; false if that concerns other stages. */
static bool list_finding(struct stages *x, int32_t s, int32_t t, int64_t *ticks)
{
    stages_start(x);
    stages_meet(x, s, t)->begins = true;
    stages_list(x, t);
    stages_push(x, &x->in->ops, t);
    *ticks = stages_note(x) - x->in->stages[t].ticks;
    return !ends_a_stretch(x, t);
}

static bool writes_several(const struct stages *x, int32_t s)
{
    const struct mark *m = &x->in->marks[s];
    for (int32_t j = 0; j < m->n_writers; j++)
        if (x->in->tracked[x->p->writers[m->writer + j]].strays)
            return true;
    return false;
}

static bool foresee_keep(struct stages *x, int32_t s, int32_t i, int32_t t, struct foresight *f)
{
    const struct uses *l = &x->uses[s];
    int32_t from = use_stage(l, i), to = use_stage(l, i + 1), n_ops = x->in->stages[t].n_ops;
    int64_t made = 0, found;
    if (writes_several(x, s))
        return false;
    if (t > from) {
        if (!list_making(x, s, t))
            return false;
        made = listed_ticks(x) - x->in->stages[t].ticks;
        n_ops = x->in->ops.n + 1;
    }
    if (!list_finding(x, s, to, &found))
        return false;
    f->ticks = made + found;
    f->excess = range_max_gain(&x->top, t + 1, to, x->in->marks[s].bytes, INT64_MAX) -
                range_max_above(&x->top, t, t + 1) - range_max_above(&x->top, to, to + 1);
    f->work = (to - t - 1) / 256 * 2 + 2 + n_ops + 2 + x->in->ops.n;
    return true;
}

bool stages_foresee(struct stages *x, int32_t s, int32_t i, int32_t t, struct foresight *f)
{
    return (use_kept(&x->uses[s], i) ? foresee_drop : foresee_keep)(x, s, i, t, f) && !x->failed;
}
