/*
 * Local improvement of the portfolio.  Polishing keeps more of a schedule's storages as long as its
 * peak does not grow; descending changes what is alive at the peak to push the smallest schedule
 * lower.  Every trial enters the portfolio, whether it served its purpose or not.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

#define MOST_POLISHED 64

struct improver {
    struct portfolio *pf;
    struct order order; /* every droppable storage, cheapest first */
    int32_t *hold, *saved;
    int32_t *list; /* storages that a pass works on */
    int32_t n_list;
    int64_t load; /* of the schedule in hold */
    double seconds;
    int64_t work; /* where to stop */
};

static bool spent(const struct improver *m)
{
    return simulator_work(m->pf->sim) >= m->work;
}

/* Plays m->hold; whether it is at least as small and fast as before, and better in one. */
static int trial(struct improver *m, bool *better)
{
    const struct schedule *s;
    int rc = portfolio_try(m->pf, m->hold, &s);
    *better = false;
    if (rc)
        return rc < 0 ? rc : 0;
    double seconds = m->pf->p->seconds + s->recompute_seconds;
    if (s->load < m->load || (s->load == m->load && seconds < m->seconds)) {
        *better = true;
        m->load = s->load;
        m->seconds = seconds;
    }
    return 0;
}

/* Keeps list[lo .. hi), or what can be kept of it, within the peak. */
static int promote(struct improver *m, int32_t lo, int32_t hi)
{
    bool better;
    for (int32_t i = lo; i < hi; i++) {
        m->saved[i] = m->hold[m->list[i]];
        m->hold[m->list[i]] = HOLD_ALWAYS;
    }
    int rc = trial(m, &better);
    if (rc || better)
        return rc;
    for (int32_t i = lo; i < hi; i++)
        m->hold[m->list[i]] = m->saved[i];
    if (hi - lo < 2 || spent(m))
        return 0;
    int32_t mid = lo + (hi - lo) / 2;
    rc = promote(m, lo, mid);
    return rc || spent(m) ? rc : promote(m, mid, hi);
}

static void list_dropped(struct improver *m)
{
    m->n_list = 0;
    for (int32_t i = m->order.n - 1; i >= 0; i--)
        if (m->hold[m->order.storages[i]] != HOLD_ALWAYS)
            m->list[m->n_list++] = m->order.storages[i];
}

static void load_option(struct improver *m, const struct option *o)
{
    memcpy(m->hold, o->hold, (size_t)m->pf->p->g->n_storages * sizeof(*m->hold));
    m->load = o->load;
    m->seconds = o->seconds;
}

/* The largest option under a load; the options move while they are improved. */
static const struct option *option_under(const struct portfolio *pf, int64_t load)
{
    for (int32_t i = pf->n - 1; i >= 0; i--)
        if (pf->options.data[i].load < load)
            return &pf->options.data[i];
    return NULL;
}

/* Polishes options spread over all loads, from the largest down. */
static int polish(struct improver *m)
{
    struct portfolio *pf = m->pf;
    int64_t most = pf->options.data[pf->n - 1].load, least = pf->options.data[0].load;
    int64_t end = m->work, share = (end - simulator_work(pf->sim)) / MOST_POLISHED;
    int64_t done = most;
    for (int k = 0; k < MOST_POLISHED; k++) {
        int64_t at = most - (most - least) / MOST_POLISHED * k;
        const struct option *o = option_under(pf, min_i64(at, done));
        if (!o)
            break;
        done = o->load;
        load_option(m, o);
        list_dropped(m);
        m->work = min_i64(end, simulator_work(pf->sim) + share);
        int rc = m->n_list ? promote(m, 0, m->n_list) : 0;
        m->work = end;
        if (rc)
            return rc;
    }
    return 0;
}

/* The droppable storages that are alive at the peak of m->hold, and the context of that step. */
static int list_peak(struct improver *m, int32_t *context)
{
    const struct program *p = m->pf->p;
    const struct schedule *s;
    int rc = simulate(m->pf->sim, m->hold, &s);
    m->n_list = 0;
    for (int32_t i = 0; !rc && i < s->n_instances; i++) {
        const struct plan_instance *t = &s->instances.data[i];
        if (p->droppable[t->storage] && t->first <= s->peak_step && t->last >= s->peak_step)
            m->list[m->n_list++] = t->storage;
    }
    if (!rc)
        *context = p->context[s->steps.data[s->peak_step].op];
    return rc < 0 ? rc : 0;
}

/* Tries other holds for one storage; leaves the better one. */
static int try_holds(struct improver *m, int32_t s, int32_t context, bool *better)
{
    int32_t old = m->hold[s];
    int32_t holds[] = {HOLD_NEVER, context - 1, context, HOLD_ALWAYS};
    for (size_t i = 0; i < sizeof(holds) / sizeof(*holds) && !spent(m); i++) {
        if (holds[i] == old || holds[i] < HOLD_NEVER)
            continue;
        m->hold[s] = holds[i];
        int rc = trial(m, better);
        if (rc || *better)
            return rc;
    }
    m->hold[s] = old;
    return 0;
}

static int descend(struct improver *m)
{
    bool better = true;
    int rc = 0;
    load_option(m, &m->pf->options.data[0]);
    while (better && !rc && !spent(m)) {
        int32_t context = -1;
        rc = list_peak(m, &context);
        better = false;
        for (int32_t i = 0; i < m->n_list && !better && !rc && !spent(m); i++)
            rc = try_holds(m, m->list[i], context, &better);
    }
    return rc;
}

int portfolio_improve(struct portfolio *pf, int64_t work)
{
    struct improver m = {.pf = pf};
    size_t n = (size_t)pf->p->g->n_storages + 1;
    int64_t from = simulator_work(pf->sim);
    int rc = order_build(pf->p, ORDER_OWN, &m.order);
    m.hold = calloc(n, sizeof(*m.hold));
    m.saved = calloc(n, sizeof(*m.saved));
    m.list = calloc(n, sizeof(*m.list));
    if (!m.hold || !m.saved || !m.list)
        rc = CKPT_ENOMEM;
    m.work = from + (work - from) / 4;
    if (!rc)
        rc = descend(&m);
    m.work = work;
    if (!rc)
        rc = polish(&m);
    free(m.order.storages);
    free(m.hold);
    free(m.saved);
    free(m.list);
    return rc;
}
