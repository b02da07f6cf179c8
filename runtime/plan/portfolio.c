/*
 * The portfolio: schedules found whatever the budget, reduced to those that nothing else beats in
 * both memory and time.  Because it does not depend on the budget, a larger budget can only have
 * more to choose from, and the smallest one is known exactly.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

#define SMALL 80   /* ops: the search ends by itself soon after this much work */
#define LARGE 2000 /* addresses take half of the time */

/* Steps to simulate: a second of a plain core is about 20 million. */
static int64_t work_limit(const struct graph *g)
{
    if (g->n_ops <= SMALL)
        return 80000 * (int64_t)g->n_ops;
    return g->n_ops <= LARGE ? min_i64(60000 * (int64_t)g->n_ops, 16000000) : 8000000;
}

void portfolio_free(struct portfolio *pf)
{
    if (!pf)
        return;
    for (int32_t i = 0; i < pf->n; i++) {
        free(pf->options.data[i].hold);
        plan_free(pf->options.data[i].plan);
    }
    free(pf->options.data);
    simulator_free(pf->sim);
    program_free(pf->p);
    free(pf);
}

/* Index of the first option with a larger load. */
static int32_t above(const struct portfolio *pf, int64_t load)
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

/* Takes out what the new option, to stand at i, beats. */
static int32_t remove_beaten(struct portfolio *pf, int32_t i, const struct option *o)
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

static int keep(struct portfolio *pf, const int32_t *hold, int64_t load, double seconds)
{
    size_t n = (size_t)pf->p->g->n_storages;
    int32_t i = above(pf, load);
    if (i > 0 && pf->options.data[i - 1].seconds <= seconds)
        return 0;
    struct option o = {load, -1, seconds, false, malloc((n + 1) * sizeof(int32_t)), NULL};
    if (!o.hold || ARRAY_RESERVE(&pf->options, pf->n)) {
        free(o.hold);
        return CKPT_ENOMEM;
    }
    memcpy(o.hold, hold, n * sizeof(int32_t));
    i = remove_beaten(pf, i, &o);
    struct option *a = pf->options.data;
    memmove(a + i + 1, a + i, (size_t)(pf->n - i) * sizeof(*a));
    a[i] = o;
    pf->n++;
    return 0;
}

int portfolio_try(struct portfolio *pf, const int32_t *hold, const struct schedule **result)
{
    const struct schedule *s;
    int rc = simulate(pf->sim, hold, &s);
    if (rc)
        return rc;
    if (result)
        *result = s;
    return keep(pf, hold, s->load, pf->p->seconds + s->recompute_seconds);
}

static int keep_all(struct portfolio *pf)
{
    size_t n = (size_t)pf->p->g->n_storages;
    int32_t *hold = malloc((n + 1) * sizeof(*hold));
    if (!hold)
        return CKPT_ENOMEM;
    for (size_t s = 0; s < n; s++)
        hold[s] = HOLD_ALWAYS;
    int rc = portfolio_try(pf, hold, NULL);
    free(hold);
    return rc;
}

/* Takes out what saves less than a part in 512 against the next larger option; addresses differ by
 * more.  The fastest and the smallest option stay. */
static void thin(struct portfolio *pf)
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

/* Where each way to search stops, in sixteenths of the work: large programs are searched layer by
 * layer, others as a whole. */
static const struct shares {
    int families, chain, squeeze, improve, explore, anneal;
} normal = {2, 5, 8, 9, 10, 20}, large = {2, 14, 14, 16, 16, 16};

static int fill(struct portfolio *pf, const struct graph *g)
{
    const struct shares *s = g->n_ops > LARGE ? &large : &normal;
    int64_t part = work_limit(g) / 16;
    int rc = program_build(g, &pf->p);
    if (!rc)
        rc = simulator_new(pf->p, &pf->sim);
    if (!rc)
        rc = keep_all(pf);
    if (!rc)
        rc = portfolio_families(pf, part * s->families);
    if (!rc)
        rc = portfolio_chain(pf, part * s->chain);
    if (!rc)
        rc = portfolio_squeeze(pf, part * s->squeeze);
    if (!rc)
        rc = portfolio_improve(pf, part * s->improve);
    if (!rc)
        rc = portfolio_explore(pf, part * s->explore);
    if (!rc)
        rc = portfolio_anneal(pf, part * s->anneal);
    if (!rc)
        thin(pf);
    return rc;
}

int portfolio_build(const struct graph *g, struct portfolio **out)
{
    struct portfolio *pf = calloc(1, sizeof(*pf));
    if (!pf)
        return CKPT_ENOMEM;
    int rc = fill(pf, g);
    if (rc) {
        portfolio_free(pf);
        return rc;
    }
    *out = pf;
    return 0;
}
