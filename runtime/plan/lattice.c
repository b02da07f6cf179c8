/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with lower tiers.  The offload search (offload/) is not monotone: with more memory it may
 * find a slower plan, or none.  So it never sees the user's budgets.  It runs for grid points:
 * budgets that depend on the graph and the machine alone.  Its result is a plan with addresses that
 * is valid wherever its bytes fit.  An answer is the fastest point of all grid points at or below
 * the budgets.  More of any tier only adds points, so an answer never gets slower and is never
 * refused.
 *
 * - Device budgets of grid points are grid budgets: numbers with few significant bits, reserved
 * bytes included, so 16G and 24G are grid budgets.
 * - For each grid budget the first grid point has unlimited lower tiers.  A quick look at it, a few
 * points, takes some bytes of the host.  The next grid point may use the host grid budget below
 * that, and so on: the columns of a staircase.  Each column continues downward with NVMe in the
 * same way.
 * - No point counts that is faster than QUICK times what the quick looks above it reached.  So a
 *   staircase ends where that is no faster than the known plan.  A grid budget is not looked at if
 * a lower bound, which never rises with a budget, shows the same.
 * - A grid point is searched only where its quick look took no more than the budgets allow, and
 * gets addresses only if the result of that search, its unplaced plan, is faster than the known
 * plan: plans that are faster than the unplaced plan by more than a margin do not count.
 * - The plans of fewest device bytes (lowest.c) are points, too.
 *
 * Budgets of grid points and bytes of points are those of tiers alone.  The slots that stage
 * transfers of NVMe are taken off the user's host budget where NVMe is used (tiers_hold).
 *
 * Answers are computed on demand, and grid points are cached.
 */
#include "plan/lattice.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/lowest.h"
#include "plan/search/comm_cost.h"

/* Device grid budgets are 3 to 6 % apart: 15G, 15.5G, 16G, 17G, ...  Host grid budgets are 8G, 12G,
 * 16G, 24G, ... and NVMe grid budgets 8G, 16G, ...  Searches with closer budgets give results in
 * any order.  In a program of more than MANY_OPS ops host grid budgets are 8G, 16G, 32G, ... */
enum { DEVICE_BITS = 4, HOST_BITS = 1, NVME_BITS = 0 };

/* A plan may take this part less of the tiers than its unplaced plan. */
#define SPARE 8

/* The lower tiers of a staircase. */
enum kind { NVME_ALONE, HOST_ALONE, BOTH_TIERS, KINDS };

/* A search and its point. */
struct grid_point {
    enum kind kind;
    int64_t device, host, nvme; /* budgets; reserved bytes and those of others included */
    bool has_unplaced;
    struct point unplaced; /* the start of the search; its bytes include those of others */
    struct plan *plan;     /* NULL if none was found; owned */
    double searched;       /* without a plan: it would cost no less than this */
    double cost;           /* seconds; INFINITY: no plan, or it does not count */
};

struct lattice {
    struct frontier *frontier;
    struct machine m;
    int64_t reserved, base[TIER_COUNT];
    struct bound *bound;
    struct offloader *x;
    struct lowest *lowest;
    int64_t most; /* device bytes above which all grid points are equal */
    LIST(struct grid_point) grid_points;
    int32_t n;
    double floor; /* seconds of the fastest plan with unlimited budgets; 0: not searched yet */
    double apart; /* factor on the seconds of a plan whose addresses are apart */
};

/* ---- grid points ----------------------------------------------------------------------------- */

static struct budgets budgets_of(const struct lattice *l, const struct grid_point *c)
{
    struct budgets b = {.device = c->device, .host = c->host, .nvme = c->nvme};
    memcpy(b.tier_base, l->base, sizeof(l->base));
    return b;
}

/* The grid point for these budgets, with its unplaced plan.  Beside an unlimited host no search
 * uses the drive, so there all kinds have the same grid points. */
static int find_grid_point(struct lattice *l, const struct grid_point *at, struct grid_point **out)
{
    struct grid_point key = *at;
    int32_t i = 0;
    if (key.host == NO_END) {
        key.kind = HOST_ALONE;
        key.nvme = l->base[TIER_NVME];
    }
    while (i < l->n &&
           (l->grid_points.data[i].kind != key.kind ||
            l->grid_points.data[i].device != key.device ||
            l->grid_points.data[i].host != key.host || l->grid_points.data[i].nvme != key.nvme))
        i++;
    if (i == l->n && ARRAY_RESERVE(&l->grid_points, l->n))
        return CKPT_ENOMEM;
    struct grid_point *c = *out = &l->grid_points.data[i];
    if (i == l->n) {
        *c = key;
        l->n++;
    }
    if (c->has_unplaced)
        return 0;
    struct budgets b = budgets_of(l, c);
    int rc = offload_unplaced(l->x, &b, c->device - l->reserved, &c->unplaced);
    c->has_unplaced = !rc;
    c->unplaced.host += l->base[TIER_HOST];
    c->unplaced.nvme += l->base[TIER_NVME];
    return rc;
}

/* Makes the plan of a grid point, of at least floor seconds, if it may cost less than limit. */
static int search_grid_point(struct lattice *l, struct grid_point *c, double floor, double limit)
{
    struct budgets b = budgets_of(l, c);
    bool apart;
    if (c->plan || c->searched >= limit)
        return 0;
    int rc = offload_plan(l->x, &b, c->device - l->reserved, &c->unplaced, floor, limit, &c->plan,
                          &apart);
    c->searched = rc ? 0 : limit;
    c->cost = c->plan ? c->plan->seconds * (apart ? l->apart : 1) : INFINITY;
    return rc;
}

/* The seconds of the fastest plan with unlimited budgets; faster points do not count. */
static int fastest_of_all(struct lattice *l, double *seconds)
{
    const struct grid_point most = {.device = l->most, .host = NO_END};
    struct grid_point *c;
    int rc = 0;
    if (l->floor == 0) {
        rc = find_grid_point(l, &most, &c);
        if (!rc)
            rc = search_grid_point(l, c, 0, INFINITY);
        if (rc)
            return rc;
        l->floor = fmin(l->frontier->p->seconds, c->plan ? c->plan->seconds : INFINITY);
    }
    *seconds = l->floor;
    return 0;
}

/* ---- the staircases of a grid budget --------------------------------------------------------- */

/* A request, and the best point so far that fits it. */
struct wanted {
    const struct budgets *b;
    double known; /* its seconds */
    const struct plan *found;
};

/* Makes the point of a grid point the best one if it fits, counts and costs less. */
static int consider(struct lattice *l, struct grid_point *c, double floor, struct wanted *w)
{
    if (c->unplaced.seconds == INFINITY ||
        !tiers_hold(w->b, c->unplaced.host - c->unplaced.host / SPARE,
                    c->unplaced.nvme - c->unplaced.nvme / SPARE))
        return 0;
    int rc = search_grid_point(l, c, floor, w->known);
    const struct plan *p = c->plan;
    if (rc || !p || c->cost >= w->known ||
        !tiers_hold(w->b, l->base[TIER_HOST] + p->host_bytes, l->base[TIER_NVME] + p->nvme_bytes))
        return rc;
    double cost = c->cost, least = 0;
    if (cost < l->frontier->p->seconds)
        rc = fastest_of_all(l, &least);
    if (rc || cost < fmax(floor, least))
        return rc;
    w->known = cost;
    w->found = p;
    return 0;
}

/* The grid points of a column that may fit, from `at` on.  No point of them counts that is faster
 * than floor, or than the unplaced plan of a grid point above it.  *any: whether there is an
 * unplaced plan. */
static int search_column(struct lattice *l, struct grid_point at, double floor, struct wanted *w,
                         bool *any)
{
    const int64_t base = l->base[TIER_NVME];
    int rc = 0;
    for (int32_t i = 0; !rc && floor < w->known; i++) {
        struct grid_point *c;
        rc = find_grid_point(l, &at, &c);
        if (rc)
            break;
        const struct point unplaced = c->unplaced;
        floor = fmax(floor, offload_floor(l->x, &unplaced));
        *any |= unplaced.seconds < INFINITY;
        if (floor < w->known)
            rc = consider(l, c, floor, w);
        if (unplaced.seconds == INFINITY || unplaced.nvme <= base || unplaced.host > w->b->host)
            break; /* with less NVMe it would not take less of the host */
        at.nvme = grid_budget_below(unplaced.nvme, base, NVME_BITS, i);
    }
    return rc;
}

/* The host budget of the column below these bytes. */
static int64_t host_below(const struct lattice *l, enum kind kind, int64_t bytes, int32_t k)
{
    int bits = l->frontier->p->g->n_ops > MANY_OPS ? 0 : HOST_BITS;
    int64_t base = l->base[TIER_HOST], host = grid_budget_below(bytes, base, bits, k);
    return kind == BOTH_TIERS ? max_i64(base, host - plan_staging(host)) : host;
}

/* The grid budget whose staircase has the columns of this one: each fourth one. */
static int64_t leader_of(const struct lattice *l, int64_t device)
{
    int64_t unit = 1;
    while (device / unit >= 8)
        unit *= 2;
    return min_i64(l->most, round_up(device, unit));
}

/*
 * The columns of a grid budget between column `at` of its leader, which took used bytes of the
 * host, and the next one.  The grid budget may take more than the leader: an unlimited column is
 * followed by columns around these bytes.  The first column of the grid budget itself was searched.
 */
static int search_columns(struct lattice *l, struct grid_point at, int64_t device, int64_t used,
                          int64_t next, double floor, bool first, struct wanted *w)
{
    const int64_t host = w->b->host + w->b->host / SPARE;
    bool any = first || (at.host > host && used > host), led = at.device != device;
    int rc = 0;
    at.device = device;
    if (!any)
        rc = search_column(l, at, floor, w, &any);
    if (at.host == NO_END)
        at.host = 2 * used;
    while (!rc && any && floor < w->known && led) {
        at.host = host_below(l, at.kind, at.host, 0);
        if (at.host <= next)
            break;
        any = at.host > host;
        if (!any)
            rc = search_column(l, at, floor, w, &any);
    }
    return rc;
}

/* The columns of a staircase.  No point counts that is faster than the unplaced plan of the grid
 * budget's first grid point, which is made once a column may fit.  In a program of more than
 * MANY_OPS ops all columns are the grid budget's own, and none counts that is clearly faster than
 * the first unplaced plan of the leader. */
static int search_stairs(struct lattice *l, enum kind kind, int64_t device, struct wanted *w)
{
    const int64_t base = l->base[TIER_HOST], host = w->b->host + w->b->host / SPARE;
    struct grid_point own = {.kind = kind,
                             .device = device,
                             .host = kind == NVME_ALONE ? base : NO_END,
                             .nvme = kind == HOST_ALONE ? l->base[TIER_NVME] : NO_END};
    struct grid_point at = own, *c;
    double floor = 0, first = 0;
    bool made = false, many = l->frontier->p->g->n_ops > MANY_OPS;
    at.device = leader_of(l, device);
    int rc = many ? find_grid_point(l, &at, &c) : 0;
    if (!rc && many) {
        floor = first = offload_floor(l->x, &c->unplaced);
        at.device = device;
    }
    for (int32_t k = 0; !rc && floor < w->known; k++) {
        rc = find_grid_point(l, &at, &c);
        if (rc)
            break;
        const struct point unplaced = c->unplaced;
        bool last = unplaced.seconds == INFINITY || unplaced.host <= base;
        int64_t next = last ? base : host_below(l, kind, unplaced.host, k);
        floor = fmax(floor, offload_floor(l->x, &unplaced));
        if ((at.host <= host || unplaced.host <= host) && !made &&
            (floor < w->known || (k == 0 && !many))) {
            made = true;
            rc = search_column(l, own, first, w, &made);
            if (!rc)
                rc = find_grid_point(l, &own, &c);
            floor = fmax(floor, !rc && c->unplaced.seconds < INFINITY ? c->unplaced.seconds : 0);
        }
        if (!rc && floor < w->known)
            rc = search_columns(l, at, device, unplaced.host, next, floor, k == 0, w);
        if (last)
            break;
        at.host = next;
    }
    return rc;
}

double lattice_bound(const struct lattice *l, const struct budgets *b)
{
    struct budgets own = *b;
    own.device -= l->reserved;
    memcpy(own.tier_base, l->base, sizeof(l->base));
    return bound_seconds(l->bound, &own);
}

/* Whether a staircase of this kind may have a point that costs less than known, by the bound. */
static bool may_be_better(const struct lattice *l, enum kind kind, int64_t device,
                          const struct wanted *w)
{
    struct budgets own = *w->b;
    own.device = device;
    if (kind == HOST_ALONE)
        own.nvme = l->base[TIER_NVME];
    else if (own.host > 0)
        own.host = max_i64(0, own.host - plan_staging(own.host));
    if (kind == NVME_ALONE)
        own.host = l->base[TIER_HOST];
    bool has_host = own.host > l->base[TIER_HOST], has_nvme = own.nvme > l->base[TIER_NVME];
    /* Storages that other programs keep in a tier can be offloaded there without new bytes. */
    bool has = kind == HOST_ALONE ? has_host || l->base[TIER_HOST] + l->base[TIER_NVME] > 0
                                  : has_nvme && (kind == NVME_ALONE || has_host);
    return has && lattice_bound(l, &own) < w->known;
}

/* The best point of a grid budget, if it costs less than the known one. */
static int search_grid_budget(struct lattice *l, int64_t device, struct wanted *w)
{
    int rc = 0;
    for (int i = KINDS - 1; i >= 0 && !rc; i--)
        if (may_be_better(l, (enum kind)i, device, w))
            rc = search_stairs(l, (enum kind)i, device, w);
    return rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

int lattice_smallest(struct lattice *l, const struct budgets *b, int64_t *bytes,
                     const struct plan **p)
{
    int rc = lowest_plan(l->lowest, b, p);
    *bytes = !rc && *p ? l->reserved + (*p)->persistent + (*p)->transient : INT64_MAX;
    return rc;
}

int lattice_needs(struct lattice *l, int tier, const struct budgets *b, int64_t *bytes,
                  const struct plan **p)
{
    return lowest_needs(l->lowest, tier, b, b->device - l->reserved, bytes, p);
}

/* The first grid budget at or above bytes. */
static int64_t first_above_all(int64_t bytes)
{
    int64_t unit = 1;
    while (grid_budget_at(bytes + unit, DEVICE_BITS) < bytes)
        unit *= 2;
    return grid_budget_at(bytes + unit, DEVICE_BITS);
}

int lattice_fastest(struct lattice *l, const struct budgets *b, double limit,
                    const struct plan **found)
{
    struct wanted w = {.b = b, .known = limit};
    struct budgets here = *b;
    double floor = l->frontier->p->seconds;
    int64_t least;
    int rc = lattice_smallest(l, b, &least, found);
    if (rc || !*found || least > b->device) {
        *found = NULL;
        return rc;
    }
    if (lattice_bound(l, b) < floor)
        rc = fastest_of_all(l, &floor);
    here.device = grid_budget_at(min_i64(b->device, l->most), DEVICE_BITS);
    while (!rc && here.device > 0 && here.device >= least) {
        if (fmax(floor, lattice_bound(l, &here)) >= w.known)
            break;
        rc = search_grid_budget(l, here.device, &w);
        here.device = grid_budget_at(here.device - 1, DEVICE_BITS);
    }
    *found = w.found;
    return rc ? rc
              : lowest_fastest(l->lowest, b, b->device - l->reserved, w.known / l->apart, found);
}

/* ---- life ------------------------------------------------------------------------------------ */

void lattice_free(struct lattice *l)
{
    if (!l)
        return;
    for (int32_t i = 0; i < l->n; i++)
        plan_free(l->grid_points.data[i].plan);
    free(l->grid_points.data);
    lowest_free(l->lowest);
    offloader_free(l->x);
    bound_free(l->bound);
    free(l);
}

/* Whether both machines have the same rates of copies and host updates. */
static bool same_rates(const struct machine *a, const struct machine *b)
{
    return a->d2h_both == b->d2h_both && a->h2d_both == b->h2d_both &&
           a->copy_overhead == b->copy_overhead && a->host_update == b->host_update &&
           a->nvme_read == b->nvme_read && a->nvme_write == b->nvme_write &&
           a->nvme_both == b->nvme_both;
}

static bool is_for(const struct lattice *l, const struct machine *m, int64_t reserved,
                   const struct budgets *b)
{
    return l && l->reserved == reserved && l->base[TIER_HOST] == b->tier_base[TIER_HOST] &&
           l->base[TIER_NVME] == b->tier_base[TIER_NVME] && same_rates(&l->m, m);
}

int lattice_open(struct frontier *f, const struct machine *m, int64_t reserved,
                 const struct budgets *b, struct lattice **out)
{
    *out = f->lattice;
    if (is_for(f->lattice, m, reserved, b))
        return 0;
    lattice_free(f->lattice);
    struct lattice *l = f->lattice = *out = calloc(1, sizeof(*l));
    if (!l)
        return CKPT_ENOMEM;
    *l = (struct lattice){.frontier = f, .m = *m, .reserved = reserved, .apart = 1};
    if (graph_crossings_end(f->p->g) > 0)
        l->apart = OFFLOAD_APART;
    l->m.costs = NULL; /* ops have their prices */
    l->m.n_costs = 0;
    memcpy(l->base, b->tier_base, sizeof(l->base));
    const struct option *all = &f->options.data[f->n - 1];
    int64_t bytes = reserved + f->p->persistent + all->load;
    l->most = first_above_all(bytes + bytes / 8);
    int rc = bound_new(f, &l->m, &l->bound);
    if (!rc)
        rc = offloader_new(f, &l->m, &l->x);
    return rc ? rc : lowest_new(l->x, l->base, &l->lowest);
}
