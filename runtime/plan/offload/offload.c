/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with offloads.  A point is a schedule of the frontier and how much of each kind leaves it
 * in any case.  The clock compares points: less recompute needs more copies, and those that do not
 * hide make steps wait.  Points all over the frontier come first, then a pattern search from the
 * best. Addresses come last, and what they take above the bytes alive is taken off the budget of
 * another round; then bytes between what fits and what does not are tried.
 */
#include <math.h>
#include <stdlib.h>
#include "plan/offload/transfer.h"

#define ROUNDS    6
#define CLOSER    2   /* tries between what fits with addresses and what does not */
#define CLOSE     400 /* unless they are this part of the wall apart */
#define COARSE    6   /* options looked at first */
#define PATTERNS  4   /* patterns of steps, each SMALLER than the one before */
#define SMALLER   3
#define LOADED    6     /* options kept for more points */
#define FEW       8     /* options that may need least */
#define TRIED     512   /* entries of the table of selections that were played */
#define TOLERANCE 0.005 /* how much faster than its sketch a plan may be */

/* ---- the search ----------------------------------------------------------------------------- */

/* An option and what may leave it. */
struct loaded {
    int32_t option;
    struct plan *p;
    struct transfer *t; /* or NULL: there is none */
};

/* A selection of idle gaps that was played, by its hash; direct-mapped. */
struct tried {
    uint64_t key;
    double seconds; /* its step takes at least this */
};

struct search {
    struct frontier *pf;
    const struct machine *m;
    const struct budgets *b;
    int64_t device;              /* bytes alive may be so many */
    int64_t wall;                /* and the peak with addresses */
    double floor;                /* what is faster is not wanted */
    bool common;                 /* what goes on in the next step is where others have it */
    bool tight;                  /* it is for the fewest bytes */
    struct hosted_bounds hosted; /* what the host can take */
    struct point best;
    struct loaded loaded[LOADED]; /* the last option that was asked for comes first */
    struct tried tried[TRIED];
};

static void unload(struct loaded *l)
{
    transfer_free(l->t);
    plan_free(l->p);
    *l = (struct loaded){0};
}

static void unload_all(struct search *x)
{
    for (int i = 0; i < LOADED; i++)
        unload(&x->loaded[i]);
}

/* The first of those loaded is then this option. */
static int load(struct search *x, int32_t option)
{
    struct loaded *l = x->loaded, found;
    int i = 0, rc = 0;
    while (i < LOADED - 1 && l[i].t && l[i].option != option)
        i++;
    if (!l[i].t || l[i].option != option)
        unload(&l[i]);
    found = l[i];
    for (; i > 0; i--)
        l[i] = l[i - 1];
    l[0] = found;
    if (found.t)
        return 0;
    l->option = option;
    rc = option_steps(x->pf, &x->pf->options.data[option], &l->p);
    if (!rc)
        rc = transfer_new(x->pf->p->g, x->m, x->b, l->p, &l->t);
    if (!rc)
        l->t->tight = x->tight;
    return rc;
}

static bool is_found(const struct search *x)
{
    return x->best.seconds < INFINITY;
}

/* Bytes that an option has above the budget at its peak. */
static double excess_of(const struct search *x, int32_t option)
{
    const struct option *o = &x->pf->options.data[option];
    return (double)o->load + (double)x->pf->p->persistent - (double)x->device;
}

/* No plan with offloads of this option is faster: what the peak has above the budget comes back in
 * every step. */
static double least_seconds(const struct search *x, int32_t option)
{
    return fmax(x->pf->options.data[option].seconds - x->hosted.seconds,
                (excess_of(x, option) - x->hosted.bytes) / x->m->h2d_both);
}

/* The entry of what is taken of the loaded option: half of all points take what another one did. */
static struct tried *find_tried(struct search *x)
{
    uint64_t key = transfer_key(x->loaded->t, x->device, x->loaded->option);
    struct tried *t = &x->tried[key % TRIED];
    if (t->key != key)
        *t = (struct tried){key, 0};
    return t;
}

/* Makes a point the best one if it is faster; *better is then true. */
static int try_point(struct search *x, const struct point *at, bool *better)
{
    double limit = x->best.seconds;
    bool fits = false;
    *better = false;
    if (at->option < 0 || at->option >= x->pf->n || least_seconds(x, at->option) >= limit)
        return 0;
    int rc = load(x, at->option);
    struct transfer *t = x->loaded->t;
    if (rc || transfer_choose(t, at->amounts, x->device) > x->device)
        return rc;
    struct tried *tried = find_tried(x);
    if (tried->seconds >= limit)
        return 0;
    rc = transfer_try(t, x->device, limit, &fits);
    tried->seconds = fits ? fmin(t->seconds, limit) : INFINITY;
    if (rc || !fits || t->seconds >= limit || t->seconds < x->floor)
        return rc;
    x->best = *at;
    x->best.seconds = t->seconds;
    *better = true;
    return 0;
}

/* From one point to another. */
struct step {
    double amounts[AMOUNTS];
    int32_t options;
};

/* Goes from the best point in a direction as long as that is faster, twice as far each time. */
static int go(struct search *x, const struct step *d, bool *better)
{
    bool faster = true;
    int rc = 0;
    for (int32_t times = 1; faster && !rc && times < x->pf->n + 2; times *= 2) {
        struct point at = x->best;
        bool same = d->options == 0;
        at.option += times * d->options;
        for (int i = 0; i < AMOUNTS; i++) {
            at.amounts[i] = fmax(0, at.amounts[i] + times * d->amounts[i]);
            same &= at.amounts[i] == x->best.amounts[i];
        }
        if (same)
            return 0;
        rc = try_point(x, &at, &faster);
        *better |= faster;
    }
    return rc;
}

/* Adds coordinate i of a reach, an amount or the options, to a direction. */
static void turn(struct step *d, const struct step *reach, int i, int sign)
{
    if (i < AMOUNTS)
        d->amounts[i] += sign * reach->amounts[i];
    else
        d->options += sign * reach->options;
}

static int go_one_way(struct search *x, const struct step *reach, bool *better)
{
    int rc = 0;
    for (int k = 0; k < 2 * (AMOUNTS + 1) && !rc; k++) {
        struct step d = {.options = 0};
        turn(&d, reach, k / 2, k % 2 ? 1 : -1);
        rc = go(x, &d, better);
    }
    return rc;
}

/* State that leaves for state on the host, or a schedule that keeps more for either: other pairs
 * found nothing. */
static int go_two_ways(struct search *x, const struct step *reach, bool *better)
{
    static const int pairs[][2] = {
        {AMOUNT_FIRST, AMOUNT_HOSTED}, {AMOUNT_FIRST, AMOUNTS}, {AMOUNT_HOSTED, AMOUNTS}};
    int rc = 0;
    for (int k = 0; k < 12 && !rc && !*better; k++) {
        struct step d = {.options = 0};
        turn(&d, reach, pairs[k / 4][0], k & 1 ? 1 : -1);
        turn(&d, reach, pairs[k / 4][1], k & 2 ? 1 : -1);
        rc = go(x, &d, better);
    }
    return rc;
}

/* Pattern search: along each coordinate, then along two at once; when nothing is faster, with
 * smaller steps. */
static int descend(struct search *x, struct step reach, int patterns)
{
    int rc = 0;
    while (patterns > 0 && is_found(x) && !rc) {
        bool better = false;
        rc = go_one_way(x, &reach, &better);
        if (!rc && !better)
            rc = go_two_ways(x, &reach, &better);
        if (better)
            continue;
        patterns--;
        for (int i = 0; i < AMOUNTS; i++)
            reach.amounts[i] /= SMALLER;
        reach.options = reach.options > 1 ? reach.options / 2 : 1;
    }
    return rc;
}

static struct step full_reach(const struct search *x)
{
    double bytes = (double)x->device / 6;
    struct step r = {.options = x->pf->n / COARSE / 2 + 1};
    for (int i = 0; i < AMOUNTS; i++)
        r.amounts[i] = bytes;
    r.amounts[AMOUNT_HOSTED] = x->hosted.meanwhile / 2;
    return r;
}

/* Of the second half of the patterns. */
static struct step small_reach(const struct search *x)
{
    const int times = SMALLER * SMALLER;
    struct step r = full_reach(x);
    for (int i = 0; i < AMOUNTS; i++)
        r.amounts[i] /= times;
    r.options = r.options / times + 1;
    return r;
}

/*
 * Where the search begins, in each option that is looked at: shares of what is above the budget,
 * the rest leaves as it fits, and of what takes the host as long as the update and the forward
 * pass.  It begins twice, for a valley lies between plans whose parameters stay and those whose do
 * not.
 */
#define SEEDS 5
static const double seeds[2][SEEDS][AMOUNTS] = {
    {{1, 0, 0, 1}, {.5, 0, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 0}, {.5, .5, 0, 0}},
    {{.25, 0, .25, 1}, {.5, 0, .25, 1}, {.5, 0, .25, 0}, {0, 0, 2, 0}, {0, 0, 0, 0}},
};

static int try_seeds(struct search *x, const double list[SEEDS][AMOUNTS], int32_t option)
{
    double above = fmax(0, excess_of(x, option));
    int rc = 0;
    for (int k = 0; k < SEEDS && !rc; k++) {
        struct point at = {.option = option};
        bool better;
        for (int i = 0; i < AMOUNTS; i++)
            at.amounts[i] = list[k][i] * (i == AMOUNT_HOSTED ? x->hosted.meanwhile : above);
        if (x->hosted.meanwhile > 0 || list[k][AMOUNT_HOSTED] == 0)
            rc = try_point(x, &at, &better);
    }
    return rc;
}

/* Tries points all over the frontier, and goes on from the best of both beginnings. */
static int search_points(struct search *x)
{
    int32_t n = x->pf->n, stride = n / COARSE + 1;
    struct point best[2] = {{.seconds = INFINITY}, {.seconds = INFINITY}};
    int rc = 0;
    for (int32_t i = n - 1; i >= 0 && !rc; i -= i > 0 && i < stride ? i : stride)
        for (int k = 0; k < 2 && !rc; k++) {
            x->best = best[k];
            rc = try_seeds(x, seeds[k], i);
            best[k] = x->best;
        }
    for (int k = 0; k < 2 && !rc; k++) {
        x->best = best[k];
        rc = descend(x, full_reach(x), PATTERNS / 2);
        best[k] = x->best;
    }
    x->best = best[best[1].seconds < best[0].seconds];
    return rc ? rc : descend(x, small_reach(x), PATTERNS / 2);
}

/* The same with other bytes: what was best is close to the best now. */
static int search_again(struct search *x)
{
    struct point at = x->best;
    bool better;
    x->best.seconds = INFINITY;
    int rc = try_point(x, &at, &better);
    if (!rc && !is_found(x))
        return search_points(x);
    return rc ? rc : descend(x, small_reach(x), PATTERNS / 2);
}

/* Makes a point the best one if it needs less, just in time. */
static int try_smallest(struct search *x, const struct point *at, int64_t *least)
{
    int rc = load(x, at->option);
    int64_t needs = rc ? INT64_MAX : transfer_choose(x->loaded->t, at->amounts, 0);
    if (needs < *least && needs <= x->wall) {
        *least = needs;
        x->best = *at;
    }
    return rc;
}

/* The option of which least is needed with all that can leaving, activations or what persists first
 * where the tiers are small: what is left when all else has too many holes between addresses. */
static int search_smallest(struct search *x)
{
    int64_t least = INT64_MAX;
    int rc = 0;
    x->best.seconds = INFINITY;
    for (int32_t i = 0; i < x->pf->n && i < FEW && !rc; i++) {
        struct point at = {.option = i};
        rc = try_smallest(x, &at, &least);
        at.amounts[AMOUNT_FIRST] = at.amounts[AMOUNT_VALUES] = INFINITY;
        if (!rc)
            rc = try_smallest(x, &at, &least);
    }
    x->device = least;
    return rc;
}

/* ---- with addresses ------------------------------------------------------------------------- */

/* The best point with addresses, or NULL if its tiers are too small for them. */
static int build(struct search *x, struct plan **out)
{
    bool fits = false;
    *out = NULL;
    int rc = load(x, x->best.option);
    if (!rc)
        fits = transfer_choose(x->loaded->t, x->best.amounts, x->device) <= x->device;
    if (!rc && fits)
        rc = transfer_try(x->loaded->t, x->device, INFINITY, &fits);
    if (!rc && fits)
        rc = transfer_order_outs(x->loaded->t, x->device);
    if (!rc && fits)
        rc = transfer_assign(x->loaded->t, false, &fits);
    if (!rc && fits)
        rc = transfer_rewrite(x->loaded->t);
    if (!rc && fits)
        rc = plan_measure(x->pf->p->g, x->loaded->p);
    if (!rc && fits)
        rc = plan_set_offsets(x->pf->p->g, x->loaded->p, x->wall - x->loaded->p->persistent,
                              x->common);
    if (!rc && fits && x->loaded->t->drained) /* its times are those of a step by itself */
        rc = plan_reprice(x->pf->p->g, x->m, x->loaded->p);
    if (!rc && fits) {
        *out = x->loaded->p;
        x->loaded->p = NULL;
    }
    unload(x->loaded);
    return rc;
}

/* As build; but *out is NULL if its addresses take too many bytes.  *less is then what may be alive
 * at once in another try: the farther below the more often it was tried. */
static int build_within(struct search *x, int round, struct plan **out, int64_t *less)
{
    int rc = build(x, out);
    *less = x->device;
    if (!*out || (*out)->transient <= x->wall - (*out)->persistent)
        return rc;
    int64_t over = (*out)->persistent + (*out)->transient - x->wall;
    *less = min_i64(x->device, (*out)->persistent + (*out)->load);
    *less -= over + over / 4 * round + x->wall / 2048;
    plan_free(*out);
    *out = NULL;
    return rc;
}

/* Tries bytes alive between those whose addresses fit and those whose do not; a faster plan takes
 * the place of *out. */
static int search_between(struct search *x, int64_t fits, int64_t fails, struct plan **out)
{
    int rc = 0;
    for (int i = 0; i < CLOSER && !rc && is_found(x) && fails - fits > x->wall / CLOSE; i++) {
        struct plan *more = NULL;
        int64_t less, tried = fits + (fails - fits) / 2;
        x->device = tried;
        rc = search_again(x);
        if (!rc && is_found(x))
            rc = build_within(x, 0, &more, &less);
        fits = more ? tried : fits;
        fails = more ? fails : tried;
        if (more && more->seconds < (*out)->seconds) {
            struct plan *slower = *out;
            *out = more;
            more = slower;
        }
        plan_free(more);
    }
    return rc;
}

/* Builds the best point, with fewer bytes alive until addresses are within the wall. */
static int search_within(struct search *x, struct plan **out)
{
    int64_t fails = x->device;
    int rc = 0;
    for (int i = 0; i < ROUNDS && !rc && is_found(x) && !*out; i++) {
        int64_t less, tried = x->device;
        rc = build_within(x, i, out, &less);
        if (rc || *out)
            break;
        fails = tried;
        x->device = less;
        rc = search_again(x);
    }
    return rc || !*out ? rc : search_between(x, x->device, fails, out);
}

static struct search search_for(struct frontier *pf, const struct machine *m,
                                const struct budgets *b, int64_t device)
{
    struct search x = {.pf = pf, .m = m, .b = b, .wall = device, .device = device};
    if (m->host_update > 0 && b->host > 0)
        x.hosted = hosted_most(pf->p->g, m);
    return x;
}

int offload_sketch(struct frontier *pf, const struct machine *m, const struct budgets *b,
                   int64_t device, struct point *p)
{
    struct search x = search_for(pf, m, b, device);
    int rc = search_points(&x);
    *p = x.best;
    unload_all(&x);
    return rc;
}

double offload_floor(const struct point *sketch)
{
    return sketch->seconds < INFINITY ? sketch->seconds * (1 - TOLERANCE) : 0;
}

/* Wherever its addresses are. */
static int plan_apart(struct frontier *pf, const struct machine *m, const struct budgets *b,
                      int64_t device, const struct point *sketch, struct plan **out)
{
    const double share = 0.92; /* of the device; other options are often best there */
    struct search x = search_for(pf, m, b, device);
    int64_t less;
    *out = NULL;
    x.best = *sketch;
    x.floor = offload_floor(sketch);
    int rc = search_within(&x, out);
    if (!rc && !*out) {
        x.device = (int64_t)(share * (double)device);
        rc = search_points(&x);
        if (!rc)
            rc = search_within(&x, out);
    }
    if (!rc && !*out)
        rc = search_smallest(&x);
    if (!rc && !*out && is_found(&x))
        rc = build_within(&x, 0, out, &less);
    unload_all(&x);
    return rc;
}

bool graph_has_crossings(const struct graph *g)
{
    for (int32_t s = 0; s < g->n_storages; s++)
        if (g->storages[s].crosses)
            return true;
    return false;
}

/* Where the addresses end that other programs have for what goes on in the next step. */
static int64_t crossings_end(const struct graph *g)
{
    int64_t end = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        if (g->storages[s].crosses)
            end = max_i64(end, g->storages[s].crossing + g->storages[s].bytes);
    return end;
}

/* A plan that has these addresses, or NULL. */
static int plan_common(struct frontier *pf, const struct machine *m, const struct budgets *b,
                       int64_t device, const struct point *sketch, struct plan **out)
{
    struct search x = search_for(pf, m, b, device);
    *out = NULL;
    if (!graph_has_crossings(pf->p->g) || crossings_end(pf->p->g) > device)
        return 0;
    x.common = true;
    x.best = *sketch;
    x.floor = offload_floor(sketch);
    int rc = search_within(&x, out);
    unload_all(&x);
    return rc;
}

int offload_plan(struct frontier *pf, const struct machine *m, const struct budgets *b,
                 int64_t device, const struct point *sketch, struct plan **out, bool *apart)
{
    struct plan *common;
    int rc = plan_common(pf, m, b, device, sketch, &common);
    *apart = false;
    *out = common;
    if (rc || (common && common->seconds <= offload_floor(sketch) * OFFLOAD_APART))
        return rc;
    rc = plan_apart(pf, m, b, device, sketch, out);
    bool faster = !common || (*out && (*out)->seconds * OFFLOAD_APART < common->seconds);
    plan_free(faster ? common : *out);
    *out = faster ? *out : common;
    *apart = faster && graph_has_crossings(pf->p->g);
    return rc;
}

double offload_smallest_seconds(const struct frontier *pf, const struct machine *m)
{
    double least = INFINITY;
    for (int32_t i = 0; i < pf->n && i < FEW; i++)
        least = fmin(least, pf->options.data[i].seconds);
    return least - (m->host_update > 0 ? hosted_most(pf->p->g, m).seconds : 0);
}

int offload_smallest(struct frontier *pf, const struct machine *m, const struct budgets *b,
                     struct plan **out)
{
    struct search x = search_for(pf, m, b, INT64_MAX);
    *out = NULL;
    x.tight = true;
    int rc = search_smallest(&x);
    x.wall = x.device; /* what addresses should need */
    if (!rc && is_found(&x))
        rc = build(&x, out);
    unload_all(&x);
    return rc;
}
