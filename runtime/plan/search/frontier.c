/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The Pareto frontier of schedules in memory and time.  The searches that fill it do not see the
 * budget.  So a larger budget only allows more options, and the smallest budget is known exactly.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/lattice.h"

#define MEDIUM 1000 /* ops: in a larger program more moves still find better schedules */
#define LARGE  2000 /* ops: a larger program is left to the chain where that is right */
#define LEAP   16   /* a leap: the next option of the frontier is slower by this part of a step */
#define BOTTOM 4    /* without a leap the chain ends at this many times the smallest load */
#define DEEP   32   /* leaps below this part of the largest load are ignored */

/* Work of each search in simulated steps.  A core does about 20 million of them per second, or 10
 * million of annealing. */
struct effort {
    int64_t families, chain, anneal;
};

static struct effort effort_for(const struct graph *g)
{
    const int64_t million = 1000000, n = g->n_ops;
    const int64_t moves = n > MANY_OPS ? 3 * million : (n > MEDIUM ? 10 : 7) * million / 2;
    return (struct effort){min_i64(300 * n, million), min_i64(2000 * n, 9 * million),
                           min_i64(60000 * n, moves)};
}

void frontier_free(struct frontier *f)
{
    if (!f)
        return;
    for (int32_t i = 0; i < f->n; i++) {
        free(f->options.data[i].retention);
        plan_free(f->options.data[i].plan);
    }
    free(f->options.data);
    lattice_free(f->lattice);
    simulator_free(f->sim);
    program_free(f->p);
    free(f);
}

/* Index of the first option with a larger load. */
static int32_t above(const struct frontier *f, int64_t load)
{
    int32_t lo = 0, hi = f->n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (f->options.data[mid].load <= load)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct option *frontier_within(const struct frontier *f, int64_t bytes)
{
    int32_t i = above(f, bytes);
    return i > 0 ? &f->options.data[i - 1] : NULL;
}

/* Removes the options that o dominates; o goes to index i or below.  Returns its index. */
static int32_t remove_beaten(struct frontier *f, int32_t i, const struct option *o)
{
    struct option *a = f->options.data;
    int32_t from = i, to = i;
    while (from > 0 && a[from - 1].load == o->load)
        from--;
    while (to < f->n && a[to].seconds >= o->seconds)
        to++;
    for (int32_t j = from; j < to; j++)
        free(a[j].retention);
    memmove(a + from, a + to, (size_t)(f->n - to) * sizeof(*a));
    f->n -= to - from;
    return from;
}

int frontier_keep(struct frontier *f, const int32_t *retention, int64_t load, double seconds,
                  double lead)
{
    size_t size = retention_size(retention, f->p->g->n_storages);
    int32_t i = above(f, load);
    if (i > 0 && f->options.data[i - 1].seconds <= seconds)
        return 0;
    struct option o = {load, seconds, malloc(size), lead, NULL};
    if (!o.retention || ARRAY_RESERVE(&f->options, f->n)) {
        free(o.retention);
        return CKPT_ENOMEM;
    }
    memcpy(o.retention, retention, size);
    i = remove_beaten(f, i, &o);
    struct option *a = f->options.data;
    memmove(a + i + 1, a + i, (size_t)(f->n - i) * sizeof(*a));
    a[i] = o;
    f->n++;
    return 0;
}

int frontier_try(struct frontier *f, const int32_t *retention, const struct schedule **result)
{
    const struct schedule *s;
    int rc = simulate(f->sim, retention, &s);
    if (rc)
        return rc;
    if (result)
        *result = s;
    return frontier_keep(f, retention, s->load, schedule_seconds(f->p, s->ticks), 0);
}

static int keep_all(struct frontier *f)
{
    struct pool m = {NULL, false};
    int32_t *retention = retain_all(f->p, &m);
    int rc = retention ? frontier_try(f, retention, NULL) : CKPT_ENOMEM;
    pool_free(&m);
    return rc;
}

/* Removes options that save less than 1/512 of the load against the next larger one: placement
 * varies by more.  The fastest and the smallest option stay. */
static void thin(struct frontier *f)
{
    struct option *a = f->options.data;
    int32_t kept = f->n;
    for (int32_t i = f->n - 1; i >= 0; i--) {
        if (i > 0 && kept < f->n && a[i].load > a[kept].load - a[kept].load / 512)
            free(a[i].retention);
        else
            a[--kept] = a[i];
    }
    f->n -= kept;
    memmove(a, a + kept, (size_t)f->n * sizeof(*a));
}

static int begin(struct frontier *f, const struct graph *g)
{
    int rc = program_build(g, &f->p);
    if (!rc)
        rc = simulator_new(f->p, &f->sim);
    return rc ? rc : keep_all(f);
}

/*
 * The largest load below which the chain leaves something to find.  The chain frees a storage once.
 * If the tensors between its blocks fit, it finds all that the local search would; below that it
 * can only cut at every second block, which recomputes nearly everything and leaves a leap in the
 * frontier.  The local search recomputes only as many blocks twice as do not fit.  Without a leap
 * it still finds more near the smallest load.
 */
static int64_t chain_end(const struct frontier *f)
{
    const struct option *a = f->options.data, *all = &a[f->n - 1];
    for (int32_t i = f->n - 1; i > 0 && a[i].load >= all->load / DEEP; i--)
        if (a[i - 1].seconds - a[i].seconds > all->seconds / LEAP)
            return a[i].load;
    return BOTTOM * a->load;
}

/* The local search covers all loads, or those that a chain which is right leaves to it. */
static int64_t most_for_anneal(const struct frontier *f)
{
    if (f->p->g->n_ops <= LARGE || !f->chained)
        return INT64_MAX;
    return f->p->g->n_ops > MANY_OPS ? 0 : chain_end(f);
}

static int search(struct frontier *f)
{
    const struct effort e = effort_for(f->p->g);
    int rc = frontier_set_floor(f);
    if (!rc)
        rc = frontier_families(f, e.families);
    if (!rc)
        rc = frontier_chain(f, e.chain);
    if (!rc)
        rc = frontier_anneal(f, e.anneal, most_for_anneal(f));
    if (!rc)
        thin(f);
    return rc;
}

/* Without a search the only option keeps everything. */
static int build(const struct graph *g, bool searched, struct frontier **out)
{
    struct frontier *f = calloc(1, sizeof(*f));
    if (!f)
        return CKPT_ENOMEM;
    int rc = begin(f, g);
    if (!rc && searched)
        rc = search(f);
    if (!rc)
        rc = frontier_overlap(f);
    if (rc)
        frontier_free(f);
    else
        *out = f;
    return rc;
}

int frontier_build(const struct graph *g, struct frontier **f)
{
    return build(g, true, f);
}

int frontier_build_first(const struct graph *g, struct frontier **f)
{
    return build(g, false, f);
}
