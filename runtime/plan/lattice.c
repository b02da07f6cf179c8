/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with lower tiers.  The offload search (offload/) is not monotone: with more memory it may
 * find a slower plan, or none.  So it never sees the user's budgets.  It runs for cells: budgets
 * that depend on the graph and the machine alone.  Its result is the cell's point, a plan with
 * addresses that is valid wherever its bytes fit.  An answer is the fastest point of all cells at
 * or below the budgets.  More of any tier only adds points, so an answer never gets slower and is
 * never refused.
 *
 * - Device budgets of cells are rungs: numbers with few significant bits, reserved bytes included,
 *   so 16G and 24G are rungs.
 * - For each rung the first search has unlimited lower tiers.  Its point uses some bytes of the
 * host. The next cell may use the host rung below that, and so on: the columns of a staircase. Each
 *   column continues downward with NVMe in the same way.  A point counts only if it is not faster
 *   than those above it in the staircase.  So the first point that fits is the fastest one that
 *   fits, and cells below it need no search.
 * - A rung is not searched if a lower bound, which never rises with a budget, shows that it has
 *   nothing faster than the known plan, or if the sketch of its first cell does: plans of the rung
 *   that are faster than this sketch by more than a margin do not count.  That changes no answer.
 * - The smallest budget has a staircase of its own, of searches for the fewest device bytes.  There
 * a point that needs fewer bytes than one above it counts as needing the same.  A point with less
 * of a lower tier may still be faster, so an answer is the fastest of all that fit.
 *
 * Budgets of cells and bytes of points are those of tiers alone.  The slots that stage transfers of
 * NVMe are taken off the user's host budget where NVMe is used (budgets_for).
 *
 * Answers are computed on demand, and cells are cached.
 */
#include "plan/lattice.h"
#include <math.h>
#include <stdlib.h>
#include "plan/search/comm_cost.h"

#define NO_END   (INT64_MAX / 8) /* the budget of an unlimited tier */
#define SMALLEST INT64_C(0)      /* the rung of searches for the fewest device bytes */

/* The lower tiers of a staircase. */
enum kind { HOST_ALONE, NVME_ALONE, BOTH_TIERS, KINDS };

/* A search and its point. */
struct cell {
    enum kind kind;
    int64_t device, host, nvme; /* budgets; reserved bytes and those of others included */
    bool sketched, searched;
    struct point sketch; /* the start of the search */
    struct plan *plan;   /* NULL if none was found; owned */
    bool apart;          /* its addresses differ from those of other programs */
    double cost;         /* seconds, or bytes on the SMALLEST rung; INFINITY: does not count;
                          * -1: not set yet */
};

struct lattice {
    struct frontier *frontier;
    struct machine m;
    int64_t reserved, base[TIER_COUNT];
    struct bound *bound;
    int64_t most; /* device bytes above which all cells are equal */
    struct {
        struct cell *data;
        int64_t capacity;
    } cells;
    int32_t n;
    double floor; /* seconds of the fastest plan with unlimited budgets; 0: not searched yet */
    double apart; /* factor on the seconds of a plan whose addresses are apart */
};

/* ---- rungs ----------------------------------------------------------------------------------- */

/* The largest number up to bytes with at most bits + 1 significant bits. */
static int64_t rung_at(int64_t bytes, int bits)
{
    int zeros = 0;
    while (bytes >> zeros > (INT64_C(2) << bits) - 1)
        zeros++;
    return bytes >> zeros << zeros;
}

/*
 * Device rungs are 3 to 6 % apart: 15G, 15.5G, 16G, 17G, ...  In a search for speed host rungs are
 * 8G, 12G, 16G, 24G, ... and NVMe rungs 8G, 16G, ...  Searches with closer budgets give results in
 * any order.  A search for the fewest device bytes is cheap, and memory between two rungs is
 * unused, so its rungs of the host, and of NVMe alone, are 6 to 12 % apart.  With both tiers NVMe
 * rungs twice as close did not need fewer bytes everywhere: a point counts as needing no fewer than
 * those above it.
 */
enum { DEVICE_BITS = 4, HOST_BITS = 1, NVME_BITS = 0, SMALLEST_BITS = 3 };

/* The next rung of a lower tier below the used bytes.  After four octaves of rungs, and eight rungs
 * at least, the bytes are halved each time, since each rung is a search. */
static int64_t rung_below(int64_t used, int64_t least, int bits, int32_t k)
{
    int64_t less = k < max_i64(8, INT64_C(4) << bits) ? max_i64(used - 1, 0) : used / 2;
    return max_i64(least, rung_at(less, bits));
}

/* ---- cells ----------------------------------------------------------------------------------- */

static int64_t host_bytes(const struct lattice *l, const struct plan *p)
{
    return l->base[TIER_HOST] + p->host_bytes;
}

static int64_t nvme_bytes(const struct lattice *l, const struct plan *p)
{
    return l->base[TIER_NVME] + p->nvme_bytes;
}

static struct budgets budgets_of(const struct lattice *l, const struct cell *c)
{
    struct budgets b = {.device = c->device, .host = c->host, .nvme = c->nvme};
    for (int i = 0; i < TIER_COUNT; i++)
        b.tier_base[i] = l->base[i];
    return b;
}

static int sketch_cell(struct lattice *l, struct cell *c)
{
    struct budgets b = budgets_of(l, c);
    if (c->sketched)
        return 0;
    c->sketched = true;
    return offload_sketch(l->frontier, &l->m, &b, c->device - l->reserved, &c->sketch);
}

static int search_cell(struct lattice *l, struct cell *c)
{
    struct budgets b = budgets_of(l, c);
    if (c->searched)
        return 0;
    c->searched = true;
    if (c->device == SMALLEST)
        return offload_smallest(l->frontier, &l->m, &b, &c->plan);
    int rc = sketch_cell(l, c);
    return rc ? rc
              : offload_plan(l->frontier, &l->m, &b, c->device - l->reserved, &c->sketch, &c->plan,
                             &c->apart);
}

/* The cell for these budgets, searched or not. */
static struct cell *cell_at(struct lattice *l, struct cell at)
{
    for (int32_t i = 0; i < l->n; i++) {
        struct cell *c = &l->cells.data[i];
        if (c->kind == at.kind && c->device == at.device && c->host == at.host &&
            c->nvme == at.nvme)
            return c;
    }
    if (ARRAY_RESERVE(&l->cells, l->n))
        return NULL;
    at.cost = -1;
    l->cells.data[l->n] = at;
    return &l->cells.data[l->n++];
}

/* Sets *may: whether plans of a cell that cost less than known may count, by its sketch. */
static int may_count(struct lattice *l, struct cell at, double known, bool *may)
{
    *may = true;
    if (at.device == SMALLEST || known == INFINITY)
        return 0;
    struct cell *c = cell_at(l, at);
    int rc = c ? sketch_cell(l, c) : CKPT_ENOMEM;
    *may = !rc && offload_floor(&c->sketch) < known;
    return rc;
}

/* Searches a cell; its index, or -1 if it has no point that costs less than known. */
static int find_cell(struct lattice *l, struct cell at, double known, int32_t *found)
{
    bool may;
    int rc = may_count(l, at, known, &may);
    *found = -1;
    if (rc || !may)
        return rc;
    struct cell *c = cell_at(l, at);
    rc = c ? search_cell(l, c) : CKPT_ENOMEM;
    if (!rc && c->plan)
        *found = (int32_t)(c - l->cells.data);
    return rc;
}

/* ---- the staircase of a rung ----------------------------------------------------------------- */

/* The cost of a point by itself. */
static double own_cost(const struct lattice *l, const struct cell *c)
{
    return c->device == SMALLEST ? (double)(c->plan->persistent + c->plan->transient)
                                 : c->plan->seconds * (c->apart ? l->apart : 1);
}

/* The least cost of points of a cell. */
static double least_cost(const struct cell *c)
{
    return c->device == SMALLEST ? 0 : offload_floor(&c->sketch);
}

static int fastest_of_all(struct lattice *l, double *seconds);

/* Sets the cost of the point of cell i; points above it in the staircase cost at least least. */
static int set_cost(struct lattice *l, int32_t i, double least)
{
    struct cell *c = &l->cells.data[i];
    double floor = 0, own = own_cost(l, c);
    if (c->device == SMALLEST) {
        c->cost = fmax(own, least);
        return 0;
    }
    int rc = own < l->frontier->p->seconds ? fastest_of_all(l, &floor) : 0;
    c = &l->cells.data[i];
    floor = fmax(floor, least_cost(c));
    c->cost = own < fmax(floor, least) ? INFINITY : own;
    return rc;
}

/* The staircase of a rung: its first cell, and the kind of later columns. */
struct stairs {
    struct cell first;
    enum kind kind;
    int64_t nvme; /* the NVMe budget of columns */
};

/* Column k and its first cell, with the full NVMe budget; or -1. */
struct column {
    int32_t k, first;
};

static int column_start(struct lattice *l, const struct stairs *s, double known, struct column *c)
{
    c->k = 0;
    return find_cell(l, s->first, known, &c->first);
}

static int column_next(struct lattice *l, const struct stairs *s, double known, struct column *c)
{
    int64_t base = l->base[TIER_HOST], used = host_bytes(l, l->cells.data[c->first].plan);
    struct cell next = {.kind = s->kind, .device = s->first.device, .nvme = s->nvme};
    bool close = s->first.device == SMALLEST && s->kind == HOST_ALONE;
    next.host = rung_below(used, base, close ? SMALLEST_BITS : HOST_BITS, c->k++);
    c->first = -1;
    return used > base ? find_cell(l, next, known, &c->first) : 0;
}

/* The cell below i in a column, or -1. */
static int cell_below(struct lattice *l, const struct column *c, int32_t k, double known,
                      int32_t *i)
{
    const struct cell *from = &l->cells.data[*i];
    int64_t base = l->base[TIER_NVME], used = nvme_bytes(l, from->plan);
    bool close = from->kind == NVME_ALONE && from->device == SMALLEST;
    int bits = close ? SMALLEST_BITS : NVME_BITS;
    struct cell next = {.kind = from->kind,
                        .device = from->device,
                        .host = host_bytes(l, l->cells.data[c->first].plan),
                        .nvme = rung_below(used, base, bits, k)};
    *i = -1;
    return used > base ? find_cell(l, next, known, i) : 0;
}

/*
 * The first cell of column k whose point counts and uses at most nvme bytes, or -1.  *least is the
 * minimum cost of points of later columns that use no more: the cost of that cell, or of the last
 * cell of the column if there is none.
 */
static int find_in_column(struct lattice *l, const struct stairs *s, int32_t k, int64_t nvme,
                          double known, int32_t *found, double *least)
{
    struct column c;
    int32_t above;
    double last = 0, before = 0;
    int rc = column_start(l, s, INFINITY, &c);
    while (!rc && c.first >= 0 && c.k < k)
        rc = column_next(l, s, INFINITY, &c);
    if (!rc && k > 0)
        rc = find_in_column(l, s, k - 1, nvme, INFINITY, &above, &before);
    *found = -1;
    int32_t at = c.first;
    for (int32_t i = 0; !rc && at >= 0 && *found < 0; i++) {
        int64_t used = nvme_bytes(l, l->cells.data[at].plan);
        double less = 0;
        if (l->cells.data[at].cost < 0 && k > 0)
            rc = find_in_column(l, s, k - 1, used, INFINITY, &above, &less);
        if (!rc && l->cells.data[at].cost < 0)
            rc = set_cost(l, at, fmax(last, less));
        if (rc)
            return rc;
        double cost = l->cells.data[at].cost;
        last = fmax(last, cost < INFINITY ? cost : least_cost(&l->cells.data[at]));
        if (cost < INFINITY && used <= nvme)
            *found = at;
        else
            rc = cell_below(l, &c, i, known, &at);
    }
    *least = fmax(before, last);
    return rc;
}

/* The first cell of a staircase that counts and fits these budgets, or -1. */
static int find_on_stairs(struct lattice *l, const struct stairs *s, const struct budgets *b,
                          double known, int32_t *found)
{
    struct column c;
    double least;
    int rc = column_start(l, s, known, &c);
    *found = -1;
    while (!rc && c.first >= 0) {
        if (host_bytes(l, l->cells.data[c.first].plan) <= b->host)
            rc = find_in_column(l, s, c.k, b->nvme, known, found, &least);
        if (rc || *found >= 0)
            break;
        rc = column_next(l, s, known, &c);
    }
    return rc;
}

double lattice_bound(const struct lattice *l, const struct budgets *b)
{
    struct budgets own = *b;
    own.device -= l->reserved;
    for (int i = 0; i < TIER_COUNT; i++)
        own.tier_base[i] = l->base[i];
    return bound_seconds(l->bound, &own);
}

/* The same for the points of the lattice alone, which are made from options of the frontier. */
static double least_seconds(const struct lattice *l, const struct budgets *b)
{
    struct budgets own = *b;
    for (int i = 0; i < TIER_COUNT; i++)
        own.tier_base[i] = l->base[i];
    return fmax(lattice_bound(l, b),
                offload_least(l->frontier, &l->m, &own, b->device - l->reserved));
}

/* Whether a staircase of this kind may have a point that costs less than known, by the bound. */
static bool may_be_better(const struct lattice *l, enum kind kind, int64_t device,
                          const struct budgets *b, double known)
{
    struct budgets own = *b;
    own.device = device;
    if (kind == HOST_ALONE)
        own.nvme = l->base[TIER_NVME];
    if (kind == NVME_ALONE)
        own.host = l->base[TIER_HOST];
    return device == SMALLEST || least_seconds(l, &own) < known;
}

/* The budgets of the tiers alone for staircases of a kind. */
static struct budgets budgets_for(const struct lattice *l, enum kind kind, const struct budgets *b)
{
    struct budgets own = *b;
    if (b->host > 0 && (kind != HOST_ALONE || l->base[TIER_NVME] > 0))
        own.host = max_i64(0, b->host - plan_staging(b->host));
    return own;
}

/* The staircases of a rung: host alone, NVMe alone, both; tried: those that the budgets allow. */
struct staircases {
    struct stairs all[KINDS];
    bool tried[KINDS];
};

static struct staircases staircases_of(const struct lattice *l, int64_t device,
                                       const struct budgets *b)
{
    int64_t host = l->base[TIER_HOST], nvme = l->base[TIER_NVME];
    const struct budgets both = budgets_for(l, BOTH_TIERS, b);
    bool has_host = budgets_for(l, HOST_ALONE, b).host > host;
    bool has_nvme = b->nvme > nvme && both.host >= host;
    return (struct staircases){
        {{{.device = device, .host = NO_END, .nvme = nvme}, HOST_ALONE, nvme},
         {{.kind = NVME_ALONE, .device = device, .host = host, .nvme = NO_END}, NVME_ALONE, nvme},
         {{.device = device, .host = NO_END, .nvme = nvme}, BOTH_TIERS, NO_END}},
        /* Storages that other programs keep in a tier can be offloaded there without new bytes. */
        {has_host || host + nvme > 0, has_nvme, both.host > host && has_nvme}};
}

/* The best point of a rung if it costs less than known, or -1. */
static int find_on_rung(struct lattice *l, int64_t device, const struct budgets *b, double known,
                        int32_t *best)
{
    const struct staircases f = staircases_of(l, device, b);
    int rc = 0;
    *best = -1;
    for (int i = 0; i < KINDS && !rc; i++) {
        int32_t found = -1;
        struct budgets own = budgets_for(l, (enum kind)i, b);
        bool may = f.tried[i] && may_be_better(l, (enum kind)i, device, b, known);
        if (may)
            rc = find_on_stairs(l, &f.all[i], &own, known, &found);
        if (found < 0 || l->cells.data[found].cost >= known)
            continue;
        *best = found;
        known = l->cells.data[found].cost;
    }
    return rc;
}

/* ---- the fastest of the smallest ------------------------------------------------------------- */

/* Sets *found to the fastest point of a SMALLEST staircase that fits and takes less than *known; no
 * point has more than alive bytes.  Later columns have less of the host than this one uses. */
static int find_smallest_faster(struct lattice *l, const struct stairs *s, const struct budgets *b,
                                int64_t alive, double *known, const struct plan **found)
{
    struct budgets here = *b;
    struct column c;
    int rc = column_start(l, s, INFINITY, &c);
    while (!rc && c.first >= 0 && may_be_better(l, s->kind, alive, &here, *known)) {
        int64_t nvme = host_bytes(l, l->cells.data[c.first].plan) <= b->host ? b->nvme : -1;
        while (!rc && nvme >= 0) {
            here.nvme = nvme;
            if (!may_be_better(l, s->kind, alive, &here, *known))
                break;
            double least;
            int32_t i;
            rc = find_in_column(l, s, c.k, nvme, INFINITY, &i, &least);
            if (rc || i < 0 || l->cells.data[i].cost > (double)(b->device - l->reserved))
                break;
            const struct plan *p = l->cells.data[i].plan;
            nvme = nvme_bytes(l, p) - 1;
            if (p->seconds * l->apart < *known) {
                *known = p->seconds * l->apart;
                *found = p;
            }
        }
        here.host = min_i64(b->host, host_bytes(l, l->cells.data[c.first].plan));
        here.nvme = b->nvme;
        if (!rc)
            rc = column_next(l, s, INFINITY, &c);
    }
    return rc;
}

/* The fastest of the smallest plans: one with less of a lower tier may be faster.  None has more
 * live bytes than the smallest option. */
static int fastest_smallest(struct lattice *l, const struct budgets *b, double known,
                            const struct plan **found)
{
    const struct staircases f = staircases_of(l, SMALLEST, b);
    int64_t alive = l->reserved + l->frontier->p->persistent + l->frontier->options.data[0].load;
    int rc = 0;
    if (offload_smallest_seconds(l->frontier, &l->m) >= known)
        return 0;
    alive = min_i64(alive, b->device);
    for (int i = 0; i < KINDS && !rc; i++) {
        struct budgets own = budgets_for(l, (enum kind)i, b);
        if (f.tried[i])
            rc = find_smallest_faster(l, &f.all[i], &own, alive, &known, found);
    }
    return rc;
}

/* The seconds of the fastest plan with unlimited budgets; faster points do not count. */
static int fastest_of_all(struct lattice *l, double *seconds)
{
    const struct cell most = {.device = l->most, .host = NO_END, .nvme = l->base[TIER_NVME]};
    int32_t i;
    int rc = 0;
    if (l->floor == 0) {
        l->floor = l->frontier->p->seconds;
        rc = find_cell(l, most, INFINITY, &i);
        if (!rc && i >= 0)
            l->floor = fmin(l->floor, l->cells.data[i].plan->seconds);
    }
    *seconds = l->floor;
    return rc;
}

/* ---- answers --------------------------------------------------------------------------------- */

int lattice_smallest(struct lattice *l, const struct budgets *b, int64_t *bytes,
                     const struct plan **p)
{
    int32_t i;
    int rc = find_on_rung(l, SMALLEST, b, INFINITY, &i);
    *p = rc || i < 0 ? NULL : l->cells.data[i].plan;
    *bytes = *p ? l->reserved + (int64_t)l->cells.data[i].cost : INT64_MAX;
    return rc;
}

int lattice_needs(struct lattice *l, int tier, const struct budgets *b, int64_t *bytes,
                  const struct plan **found)
{
    struct budgets here = *b;
    int64_t *own = tier == TIER_NVME ? &here.nvme : &here.host, device;
    const struct plan *p;
    *found = NULL;
    *bytes = *own = NO_END;
    int rc = lattice_smallest(l, &here, &device, &p);
    while (!rc && p && device <= b->device) {
        *found = p;
        *bytes = tier == TIER_NVME      ? nvme_bytes(l, p)
                 : nvme_bytes(l, p) > 0 ? plan_host_for(host_bytes(l, p))
                                        : host_bytes(l, p);
        if (*bytes <= l->base[tier])
            break;
        *own = *bytes - 1;
        rc = lattice_smallest(l, &here, &device, &p);
    }
    return rc;
}

/* The first rung at or above bytes. */
static int64_t first_above_all(int64_t bytes)
{
    int64_t unit = 1;
    while (rung_at(bytes + unit, DEVICE_BITS) < bytes)
        unit *= 2;
    return rung_at(bytes + unit, DEVICE_BITS);
}

int lattice_fastest(struct lattice *l, const struct budgets *b, double limit,
                    const struct plan **found)
{
    const struct plan *smallest;
    struct budgets here = *b;
    double floor = l->frontier->p->seconds, known = limit;
    int64_t least;
    int rc = lattice_smallest(l, b, &least, &smallest);
    *found = NULL;
    if (rc || !smallest || least > b->device)
        return rc;
    if (smallest->seconds * l->apart < limit) {
        *found = smallest;
        known = smallest->seconds * l->apart;
    }
    if (lattice_bound(l, b) < floor)
        rc = fastest_of_all(l, &floor);
    here.device = rung_at(min_i64(b->device, l->most), DEVICE_BITS);
    while (!rc && here.device > 0 && here.device >= least) {
        int32_t i;
        if (fmax(floor, least_seconds(l, &here)) >= known)
            break;
        rc = find_on_rung(l, here.device, b, known, &i);
        if (!rc && i >= 0) {
            *found = l->cells.data[i].plan;
            known = l->cells.data[i].cost;
        }
        here.device = rung_at(here.device - 1, DEVICE_BITS);
    }
    return rc ? rc : fastest_smallest(l, b, known, found);
}

/* ---- life ------------------------------------------------------------------------------------ */

void lattice_free(struct lattice *l)
{
    if (!l)
        return;
    for (int32_t i = 0; i < l->n; i++)
        plan_free(l->cells.data[i].plan);
    free(l->cells.data);
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
    if (graph_has_crossings(f->p->g))
        l->apart = OFFLOAD_APART;
    l->m.costs = NULL; /* ops have their prices */
    l->m.n_costs = 0;
    for (int i = 0; i < TIER_COUNT; i++)
        l->base[i] = b->tier_base[i];
    const struct option *all = &f->options.data[f->n - 1];
    int64_t bytes = reserved + f->p->persistent + all->load;
    l->most = first_above_all(bytes + bytes / 8);
    return bound_new(f, &l->m, &l->bound);
}
