/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Pareto frontier of schedules in memory and time.  The searches that fill it do not see the
 * budget.  So a larger budget only allows more options, and the smallest budget is known exactly.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/lattice.h"

#define MEDIUM 1000  /* ops: in a larger program more moves still find better schedules */
#define LARGE  2000  /* ops: a larger program with repeated blocks is left to the chain */
#define HUGE   10000 /* ops: a larger program gets too few moves per op for annealing */
#define LEAP   8     /* a leap: the next option of the frontier is slower by this part of a step */
#define DEEP   32    /* leaps below this part of the largest load are ignored */

/* Work of each search in simulated steps.  A core does about 20 million of them per second, or 10
 * million of annealing. */
struct effort {
    int64_t families, chain, anneal;
};

static struct effort effort_for(const struct graph *g)
{
    const int64_t million = 1000000, n = g->n_ops;
    return (struct effort){min_i64(300 * n, million), min_i64(2000 * n, 9 * million),
                           n > HUGE ? 0 : min_i64(60000 * n, (n > MEDIUM ? 10 : 7) * million / 2)};
}

void frontier_free(struct frontier *pf)
{
    if (!pf)
        return;
    for (int32_t i = 0; i < pf->n; i++) {
        free(pf->options.data[i].hold);
        plan_free(pf->options.data[i].plan);
    }
    free(pf->options.data);
    lattice_free(pf->lattice);
    simulator_free(pf->sim);
    program_free(pf->p);
    free(pf);
}

/* Index of the first option with a larger load. */
static int32_t above(const struct frontier *pf, int64_t load)
{
    int32_t lo = 0, hi = pf->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (pf->options.data[mid].load <= load)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct option *frontier_within(const struct frontier *pf, int64_t bytes)
{
    int32_t i = above(pf, bytes);
    return i > 0 ? &pf->options.data[i - 1] : NULL;
}

/* Removes the options that o dominates; o goes to index i or below.  Returns its index. */
static int32_t remove_beaten(struct frontier *pf, int32_t i, const struct option *o)
{
    struct option *a = pf->options.data;
    int32_t from = i, to = i;
    while (from > 0 && a[from - 1].load == o->load)
        from--;
    while (to < pf->n && a[to].seconds >= o->seconds)
        to++;
    for (int32_t j = from; j < to; j++)
        free(a[j].hold);
    memmove(a + from, a + to, (size_t)(pf->n - to) * sizeof(*a));
    pf->n -= to - from;
    return from;
}

int frontier_keep(struct frontier *pf, const int32_t *hold, int64_t load, double seconds,
                  double lead)
{
    size_t size = holds_size(hold, pf->p->g->n_storages);
    int32_t i = above(pf, load);
    if (i > 0 && pf->options.data[i - 1].seconds <= seconds)
        return 0;
    struct option o = {load, -1, seconds, malloc(size), lead, NULL};
    if (!o.hold || ARRAY_RESERVE(&pf->options, pf->n)) {
        free(o.hold);
        return CKPT_ENOMEM;
    }
    memcpy(o.hold, hold, size);
    i = remove_beaten(pf, i, &o);
    struct option *a = pf->options.data;
    memmove(a + i + 1, a + i, (size_t)(pf->n - i) * sizeof(*a));
    a[i] = o;
    pf->n++;
    return 0;
}

int frontier_try(struct frontier *pf, const int32_t *hold, const struct schedule **result)
{
    const struct schedule *s;
    int rc = simulate(pf->sim, hold, &s);
    if (rc)
        return rc;
    if (result)
        *result = s;
    return frontier_keep(pf, hold, s->load, schedule_seconds(pf->p, s->ticks), 0);
}

static int keep_all(struct frontier *pf)
{
    struct pool m = {NULL, false};
    int32_t *hold = hold_all(pf->p, &m);
    int rc = hold ? frontier_try(pf, hold, NULL) : CKPT_ENOMEM;
    pool_free(&m);
    return rc;
}

/* Removes options that save less than 1/512 of the load against the next larger one: placement
 * varies by more.  The fastest and the smallest option stay. */
static void thin(struct frontier *pf)
{
    struct option *a = pf->options.data;
    int32_t kept = pf->n;
    for (int32_t i = pf->n - 1; i >= 0; i--) {
        if (i > 0 && kept < pf->n && a[i].load > a[kept].load - a[kept].load / 512)
            free(a[i].hold);
        else
            a[--kept] = a[i];
    }
    pf->n -= kept;
    memmove(a, a + kept, (size_t)pf->n * sizeof(*a));
}

static int begin(struct frontier *pf, const struct graph *g)
{
    int rc = program_build(g, &pf->p);
    if (!rc)
        rc = simulator_new(pf->p, &pf->sim);
    return rc ? rc : keep_all(pf);
}

/* No search: the only option keeps everything. */
static int fill_first(struct frontier *pf, const struct graph *g)
{
    int rc = begin(pf, g);
    return rc ? rc : frontier_overlap(pf);
}

bool frontier_anneals(const struct frontier *pf)
{
    return pf->p->g->n_ops <= LARGE || !pf->repeats;
}

/*
 * The largest load below which the chain leaves a leap, or 0.  The chain frees a storage once.  If
 * the tensors between its blocks fit, it finds all that the local search would; below that it can
 * only cut at every second block, which recomputes nearly everything and leaves a leap in the
 * frontier.  The local search recomputes only as many blocks twice as do not fit.
 */
static int64_t find_leap(const struct frontier *pf)
{
    const struct option *a = pf->options.data, *all = &a[pf->n - 1];
    for (int32_t i = pf->n - 1; i > 0 && a[i].load >= all->load / DEEP; i--)
        if (a[i - 1].seconds - a[i].seconds > all->seconds / LEAP)
            return a[i].load;
    return 0;
}

/* Simulates the smallest option for its exact load, and removes it if the next one needs no more.
 */
static int play_smallest(struct frontier *pf)
{
    struct option *a = pf->options.data;
    const struct schedule *s;
    int rc = simulate(pf->sim, a[0].hold, &s);
    while (!rc && pf->n > 1 && a[1].load <= s->load) {
        free(a[0].hold);
        pf->n--;
        memmove(a, a + 1, (size_t)pf->n * sizeof(*a));
        rc = simulate(pf->sim, a[0].hold, &s);
    }
    if (!rc)
        a[0].load = s->load;
    return rc;
}

static int fill(struct frontier *pf, const struct graph *g)
{
    const struct effort e = effort_for(g);
    int rc = begin(pf, g);
    if (!rc)
        rc = frontier_set_floor(pf);
    if (!rc)
        rc = frontier_families(pf, e.families);
    if (!rc)
        rc = frontier_chain(pf, e.chain);
    if (!rc)
        rc = frontier_anneal(pf, e.anneal, frontier_anneals(pf) ? INT64_MAX : find_leap(pf));
    if (!rc)
        thin(pf);
    if (!rc)
        rc = play_smallest(pf);
    if (!rc)
        rc = frontier_overlap(pf);
    return rc;
}

static int build(const struct graph *g,
                 int (*fill_frontier)(struct frontier *, const struct graph *),
                 struct frontier **out)
{
    struct frontier *pf = calloc(1, sizeof(*pf));
    if (!pf)
        return CKPT_ENOMEM;
    int rc = fill_frontier(pf, g);
    if (rc) {
        frontier_free(pf);
        return rc;
    }
    *out = pf;
    return 0;
}

int frontier_build(const struct graph *g, struct frontier **pf)
{
    return build(g, fill, pf);
}

int frontier_build_first(const struct graph *g, struct frontier **pf)
{
    return build(g, fill_first, pf);
}
