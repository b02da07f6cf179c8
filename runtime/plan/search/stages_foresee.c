/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The effect of a move without making it.  Nine of ten moves that are made cost too much and are
 * undone; most of these change only the reruns of one or two stages.  Then the ticks are known once
 * the ops of these stages are listed, and the excess cannot fall by more than they have.  So such a
 * move need not be made.  Its work is counted all the same, so that the search takes the same path.
 */
#include "plan/search/stages_inside.h"

static int64_t listed_ticks(const struct stages *x)
{
    int64_t ticks = 0;
    for (int32_t k = 0; k < x->in->ops.n; k++)
        ticks += x->in->tracked[x->in->ops.data[k]].ticks;
    return ticks;
}

/* Whether a rerun of op in stage t reads a storage that is not droppable and would have to stay
 * longer. */
static bool extends_residence(const struct stages *x, int32_t op, int32_t t)
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

/* Lists the reruns of stage t if it also has to recompute s; false if that changes other stages. */
static bool list_with_recompute(struct stages *x, int32_t s, int32_t t)
{
    struct stages_inside *in = x->in;
    stages_start(x);
    struct mark *m = stages_meet(x, s, t);
    m->begins = false;
    stages_want(x, m, s);
    if (in->stages[t].n_ops > 1)
        stages_list(x, t);
    else /* all its other inputs are resident */
        stages_list_writers(x, t);
    for (int32_t k = 0; k < in->ops.n; k++)
        if (extends_residence(x, in->ops.data[k], t))
            return false;
    return true;
}

/* Whether the stage of use i of s runs the same ops if s is not kept after it. */
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

/* The work of a move that evaluates the marked stages (t with n_ops ops) and changes the live bytes
 * of stages from, ..., to twice.  Clears the marks. */
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
    if (!runs_the_same(x, s, i) || !list_with_recompute(x, s, t))
        return false;
    f->ticks = listed_ticks(x) - x->in->stages[t].ticks;
    f->excess = -range_max_above(&x->top, from, t + 1); /* all of it, at most */
    stages_mark_strays_dirty(x, s, from + 1, t);
    stages_mark_dirty(x, from);
    stages_mark_dirty(x, t);
    f->work = work_of(x, from + 1, t, t, x->in->ops.n + 1);
    return true;
}

/* Whether a storage that stage t no longer uses was kept only up to t: it would be freed earlier.
 */
static bool ends_residence(struct stages *x, int32_t t)
{
    const struct list *l = &x->in->stages[t].touched;
    for (int32_t j = 0; j < l->n; j++) {
        int32_t s = l->data[j];
        if (x->in->marks[s].noted == x->in->batch)
            continue;
        const struct mark *m = stages_meet(x, s, t);
        if (!m->droppable || (m->begins && !m->ends))
            return true;
    }
    return false;
}

/* Lists the reruns of stage t if s is resident; false if that changes other stages. */
static bool list_with_resident(struct stages *x, int32_t s, int32_t t, int64_t *ticks)
{
    stages_start(x);
    stages_meet(x, s, t)->begins = true;
    stages_list(x, t);
    stages_push(x, &x->in->ops, t);
    *ticks = stages_note(x) - x->in->stages[t].ticks;
    return !ends_residence(x, t);
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
        if (!list_with_recompute(x, s, t))
            return false;
        made = listed_ticks(x) - x->in->stages[t].ticks;
        n_ops = x->in->ops.n + 1;
    }
    if (!list_with_resident(x, s, to, &found))
        return false;
    f->ticks = made + found;
    f->excess = range_max_gain(&x->top, t + 1, to, x->in->marks[s].bytes, INT64_MAX) -
                range_max_above(&x->top, t, t + 1) - range_max_above(&x->top, to, to + 1);
    f->work = (to - t - 1) / 256 * 2 + 2 + n_ops + 2 + x->in->ops.n;
    return true;
}

bool stages_foresee(struct stages *x, int32_t s, int32_t i, int32_t t, struct foresight *f)
{
    return (use_kept(&x->uses[s], i) ? foresee_drop : foresee_keep)(x, s, i, t, f) &&
           !x->memory.failed;
}
