/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies one by one, their order on each queue, and the forecast.  The planner finds the times by
 * simulation; here they are derived from the ends of copies and the times when storages are
 * written.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/check/check.h"

/* ---- one copy -------------------------------------------------------------------------------- */

static bool is_backing(const struct checker *c, int32_t n)
{
    return c->backing[c->p->residences[n].storage] == n;
}

/* With several micro-steps all bodies have the same copies. */
static int check_part(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *r = c->p->residences, *from = &r[k->from];
    int32_t body = c->p->n_body;
    bool out = from->tier == TIER_DEVICE, persistent = c->g->storages[from->storage].persistent;
    if (c->g->n_micro == 1)
        return 0;
    if (out && persistent && k->after < body)
        return violation(c, "copy %d: %.200s goes out in every micro-step", (int)i,
                         check_storage(c, from->storage));
    if (!out && k->before < c->p->n_steps && (k->after + 1 < body) != (k->before < body))
        return violation(c, "copy %d: %.200s comes back in another part of the step than its use",
                         (int)i, check_storage(c, from->storage));
    return 0;
}

static int check_out(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *from = &c->p->residences[k->from], *to = &c->p->residences[k->to];
    if (k->after < from->first || k->after > from->last ||
        (!is_backing(c, k->from) && k->before > from->last + 1) || k->before <= k->after)
        return violation(c,
                         "copy %d: %.200s goes out after step %d, and is on the device from %d "
                         "to %d",
                         (int)i, check_storage(c, from->storage), (int)k->after, (int)from->first,
                         (int)from->last);
    if (!is_backing(c, k->to) && to->first != k->after)
        return violation(c, "copy %d: %.200s has a place below from step %d on", (int)i,
                         check_storage(c, to->storage), (int)to->first);
    return 0;
}

static int check_in(struct checker *c, int32_t i)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *from = &c->p->residences[k->from], *to = &c->p->residences[k->to];
    int32_t steps = c->p->n_steps;
    bool next = is_backing(c, k->to); /* the next step waits for it */
    if (next ? k->before < steps || k->before >= 2 * steps || k->after < from->first
             : to->first != k->after + 1 || k->before < to->first || k->before > to->last ||
                   k->before >= steps)
        return violation(c,
                         "copy %d: %.200s comes back after step %d for step %d, and is on the "
                         "device from %d to %d",
                         (int)i, check_storage(c, to->storage), (int)k->after, (int)k->before,
                         (int)to->first, (int)to->last);
    if (!is_backing(c, k->from) &&
        (from->first > k->after || from->last < (next ? k->after : k->before)))
        return violation(c, "copy %d: %.200s has no place below any more", (int)i,
                         check_storage(c, to->storage));
    return 0;
}

static int check_copy(struct checker *c, int32_t i, int32_t *filled)
{
    const struct copy *k = &c->p->copies[i];
    const struct residence *r = c->p->residences;
    if (k->from < 0 || k->to < 0 || k->from >= c->p->n_residences || k->to >= c->p->n_residences)
        return violation(c, "copy %d is between residences that are not there", (int)i);
    if (r[k->from].storage < 0 || r[k->from].storage != r[k->to].storage ||
        (r[k->from].tier == TIER_DEVICE) == (r[k->to].tier == TIER_DEVICE))
        return violation(c, "copy %d is not between the device and a tier below of one storage",
                         (int)i);
    if (k->after < -1 || k->after >= c->p->n_steps)
        return violation(c, "copy %d has a step outside of the plan", (int)i);
    if (!(is_backing(c, k->to) && r[k->to].tier != TIER_DEVICE) && filled[k->to]++)
        return violation(c, "copy %d: %.200s comes twice", (int)i,
                         check_storage(c, r[k->to].storage));
    int rc = copy_is_out(r, k) ? check_out(c, i) : check_in(c, i);
    return rc ? rc : check_part(c, i);
}

/* Every copy is valid, and every residence that needs a copy has one. */
int check_copies(struct checker *c)
{
    int32_t *filled = calloc((size_t)c->p->n_residences + 1, sizeof(*filled));
    int rc = filled ? 0 : CKPT_ENOMEM;
    for (int32_t i = 0; i < c->p->n_copies && !rc; i++)
        rc = check_copy(c, i, filled);
    for (int32_t n = 0; n < c->p->n_residences && !rc; n++) {
        const struct residence *r = &c->p->residences[n];
        if (r->storage >= 0 && c->g->storages[r->storage].persistent && r->tier == TIER_DEVICE &&
            !is_backing(c, n) && !filled[n])
            rc = violation(c, "residence %d: nothing brings %.200s there", (int)n,
                           check_storage(c, r->storage));
    }
    free(filled);
    return rc;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static int queue_of(const struct checker *c, const struct copy *k)
{
    return 2 * copy_tier(c->p->residences, k) + !copy_is_out(c->p->residences, k);
}

static bool is_forecast(const struct copy *k)
{
    return k->start != 0 || k->end != 0;
}

/* `after` must not fall within a queue: otherwise steps would wait for a copy that waits for them.
 */
static int check_queues(struct checker *c)
{
    const double slack = 1e-9 * c->p->seconds;
    const struct copy *timed = NULL;
    for (int32_t i = 0; i < c->p->n_copies; i++) {
        const struct copy *k = &c->p->copies[i], *before = i ? k - 1 : NULL;
        const char *name = check_storage(c, c->p->residences[k->from].storage);
        if (before && (queue_of(c, before) > queue_of(c, k) ||
                       (queue_of(c, before) == queue_of(c, k) && before->after > k->after)))
            return violation(c, "copy %d: %.200s and a copy before it wait for each other", (int)i,
                             name);
        if (before && queue_of(c, before) != queue_of(c, k))
            timed = NULL;
        if (!is_forecast(k))
            continue;
        if (!(k->start >= 0) || !(k->end > k->start))
            return violation(c, "copy %d of %.200s takes no time", (int)i, name);
        if (timed && k->start < timed->end - slack)
            return violation(c, "copy %d of %.200s starts while the queue is busy", (int)i, name);
        timed = k;
    }
    return 0;
}

/* The last copy out to a residence in a lower tier, submitted in this step or the previous one,
 * ends before the copy in from it begins. */
static int check_turns(struct checker *c, int32_t *last)
{
    const struct plan *p = c->p;
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < p->n_copies; i++) {
            const struct copy *k = &p->copies[i];
            bool out = copy_is_out(p->residences, k);
            int32_t below = out ? k->to : k->from, before = last[below];
            if (out && (before < 0 || p->copies[before].after <= k->after || round == 0))
                last[below] = i;
            if (out || before < 0 || round == 0 || !is_forecast(k))
                continue;
            const struct copy *o = &p->copies[before];
            double back = k->start + (o->after > k->after ? p->seconds : 0);
            if (back < o->end - 1e-9 * p->seconds)
                return violation(c, "copy %d: %.200s comes back before it is out", (int)i,
                                 check_storage(c, p->residences[below].storage));
        }
    return 0;
}

/* ---- the forecast ---------------------------------------------------------------------------- */

struct clock {
    struct checker *c;
    const struct graph *g;
    const struct plan *p;
    double *freed; /* per step: when the last copy out ends whose addresses it needs */
    double *back;  /* per step: when the last copy in ends that it waits for */
    double *begin; /* per step: when all steps before it are done and its addresses are free */
    double *ended; /* per step: its end */
    double *held;  /* per step: when the collectives end whose operands' addresses it may reuse */
    double *wrote; /* per storage: when a step of the compute queue last wrote it */
    double *busy;  /* per storage: when the last collective that uses it ends */
    double comm;   /* when the last collective so far ends */
    double owed;
};

static void later(double *a, double b)
{
    *a = b > *a ? b : *a;
}

static const struct graph_op *op_at(const struct clock *t, int32_t k)
{
    return &t->g->ops[t->p->steps[k].op];
}

/* Seconds of a step on the compute queue.  A collective takes only its contention there; a step on
 * the host takes none. */
static double seconds_of(const struct clock *t, int32_t k)
{
    const struct graph_op *o = op_at(t, k);
    if (t->p->steps[k].on_host)
        return 0;
    return o->collective ? o->contention_seconds : o->seconds;
}

/* Records the ends of copies at the steps that wait for them. */
static void set_copies(struct clock *t, double period)
{
    const struct plan *p = t->p;
    memset(t->freed, 0, (size_t)p->n_steps * sizeof(*t->freed));
    memset(t->back, 0, (size_t)p->n_steps * sizeof(*t->back));
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *k = &p->copies[i];
        const struct residence *from = &p->residences[k->from];
        if (is_backing(t->c, k->to) && p->residences[k->to].tier == TIER_DEVICE)
            continue;
        if (from->tier != TIER_DEVICE) {
            later(&t->back[k->before], k->end);
        } else if (check_is_placed(from)) {
            int32_t next_step = from->last + 1;
            later(&t->freed[next_step % p->n_steps],
                  next_step >= p->n_steps ? k->end - period : k->end);
        }
    }
}

/* When a step that could start at `now` can start with regard to collectives: those that wrote what
 * it reads, and those whose operands' addresses it reuses.  A step on the host waits for none. */
static double await_collectives(struct clock *t, int32_t k, double now)
{
    const struct graph_op *o = op_at(t, k);
    later(&t->owed, t->held[k]);
    if (k == t->p->n_body)
        later(&t->owed, t->comm);
    if (o->collective || t->p->steps[k].on_host)
        return now;
    later(&now, t->owed);
    for (int32_t j = 0; j < o->n_reads; j++)
        later(&now, t->busy[t->g->refs[o->reads + j]]);
    for (int32_t j = 0; j < o->n_writes; j++)
        later(&now, t->busy[t->g->refs[o->writes + j]]);
    return now;
}

/* The collective of step k: collectives run one at a time, in the order of the steps, beside other
 * ops. */
static void run_collective(struct clock *t, int32_t k)
{
    const struct graph_op *o = op_at(t, k);
    const int32_t *reads = t->g->refs + o->reads, *writes = t->g->refs + o->writes;
    later(&t->comm, t->back[k]);
    if (t->c->room[k] > 0)
        later(&t->comm, t->ended[t->c->room[k] - 1]);
    for (int32_t j = 0; j < o->n_reads; j++)
        later(&t->comm, t->wrote[reads[j]]);
    for (int32_t j = 0; j < o->n_writes; j++)
        later(&t->comm, t->wrote[writes[j]]);
    t->comm += o->comm_seconds;
    for (int32_t j = 0; j < o->n_reads; j++)
        t->busy[reads[j]] = t->comm;
    for (int32_t j = 0; j < o->n_writes; j++)
        t->busy[writes[j]] = t->comm;
    if (t->c->leaves[k] < t->p->n_steps - 1)
        later(&t->held[t->c->leaves[k] + 1], t->comm);
}

static double run_step(struct clock *t, int32_t k, double now)
{
    const struct graph_op *o = op_at(t, k);
    later(&now, t->freed[k]);
    t->begin[k] = now;
    later(&now, t->back[k]);
    now = await_collectives(t, k, now) + seconds_of(t, k);
    t->ended[k] = now;
    for (int32_t j = 0; j < o->n_writes && !o->collective; j++)
        t->wrote[t->g->refs[o->writes + j]] = now;
    if (o->collective)
        run_collective(t, k);
    if (k == t->p->n_body - 1)
        later(&now, t->comm);
    return now;
}

/* When the whole step ends if all copies end as forecast; with several micro-steps it includes its
 * copies out. */
static double run_all(struct clock *t)
{
    const struct plan *p = t->p;
    double now = 0, body = 0;
    set_copies(t, p->seconds);
    for (int32_t k = 0; k < p->n_steps; k++) {
        now = run_step(t, k, now);
        body = k == p->n_body - 1 ? now : body;
    }
    later(&now, t->comm);
    for (int32_t i = 0; i < p->n_copies && t->g->n_micro > 1; i++)
        if (copy_is_out(p->residences, &p->copies[i]))
            later(&now, p->copies[i].end);
    return now + body * (t->g->n_micro - 1);
}

static int check_times(struct clock *t)
{
    const struct plan *p = t->p;
    double seconds = run_all(t), slack = 1e-9 * p->seconds;
    if (seconds > p->seconds + slack || seconds < p->seconds - slack)
        return violation(t->c, "with its copies a step takes %.9g s, the plan says %.9g s", seconds,
                         p->seconds);
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *k = &p->copies[i];
        const char *name = check_storage(t->c, p->residences[k->from].storage);
        bool out = copy_is_out(p->residences, k);
        double used = 0;
        if (!is_forecast(k) || (!out && is_backing(t->c, k->to)))
            continue;
        if (out) {
            used = t->begin[k->after];
            later(&used, t->back[k->after]);
            used += seconds_of(t, k->after);
        } else {
            used = t->begin[k->after + 1];
        }
        if (k->start < used - slack)
            return violation(t->c,
                             "copy %d of %.200s starts while step %d still uses its "
                             "bytes",
                             (int)i, name, (int)k->after);
    }
    return 0;
}

/* Whether the plan was made with the costs of the graph; otherwise its times are not checked. */
static bool same_costs(const struct clock *t)
{
    const struct plan *p = t->p;
    double whole = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        whole +=
            (op_at(t, k)->collective ? 0 : seconds_of(t, k)) * (k < p->n_body ? t->g->n_micro : 1);
    double differ = whole + p->exposed_seconds + p->exposed_comm - p->seconds;
    return differ <= 1e-9 * whole && differ >= -1e-9 * whole;
}

static int run_clock(struct checker *c)
{
    struct clock t = {.c = c, .g = c->g, .p = c->p};
    size_t steps = (size_t)c->p->n_steps + 1, storages = (size_t)c->g->n_storages + 1;
    double *all = calloc(5 * steps + 2 * storages, sizeof(*all));
    if (!all)
        return CKPT_ENOMEM;
    t.freed = all;
    t.back = t.freed + steps;
    t.begin = t.back + steps;
    t.ended = t.begin + steps;
    t.held = t.ended + steps;
    t.wrote = t.held + steps;
    t.busy = t.wrote + storages;
    int rc = same_costs(&t) ? check_times(&t) : 0;
    free(all);
    return rc;
}

int check_clock(struct checker *c)
{
    bool collectives = false;
    for (int32_t i = 0; i < c->g->n_ops; i++)
        collectives |= c->g->ops[i].collective != GRAPH_LOCAL;
    if (!c->p->n_copies && !collectives)
        return 0;
    int32_t *last = malloc(((size_t)c->p->n_residences + 1) * sizeof(*last));
    if (!last)
        return CKPT_ENOMEM;
    memset(last, -1, ((size_t)c->p->n_residences + 1) * sizeof(*last));
    int rc = check_queues(c);
    if (!rc)
        rc = check_turns(c, last);
    free(last);
    return rc ? rc : run_clock(c);
}
