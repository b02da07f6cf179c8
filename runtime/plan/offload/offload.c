/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with offloads.  A point is a schedule of the frontier and an amount of each kind to
 * offload. The simulation (timeline.c) compares points: less recompute needs more copies, and
 * copies that are not hidden make steps wait.  The search tries points all over the frontier, then
 * runs a pattern search from the best.  Addresses come last.  If they exceed the budget, another
 * round has fewer bytes alive; then budgets between the one that fits and the one that does not are
 * tried.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

#define ROUNDS    6   /* placements with fewer and fewer bytes alive */
#define CLOSER    2   /* bisections between bytes that fit with addresses and bytes that do not */
#define CLOSE     400 /* none if the two differ by less than wall / CLOSE */
#define COARSE    6   /* options tried first, spread over the frontier */
#define PATTERNS  4   /* step sizes of the pattern search, each 1 / SMALLER of the previous one */
#define SMALLER   3
#define LOADED    32      /* options kept loaded at most, the most recently used ones */
#define KEPT      100000  /* ops of all options kept loaded: about 1 KB each */
#define FEW       8       /* options of least load that may need the fewest bytes */
#define LONG      4000000 /* work of the search for addresses of serial steps: 25 ms */
#define TRIED     512     /* entries of the table of simulated selections */
#define TOLERANCE 0.005   /* how much faster than its unplaced plan a plan may be, ... */
#define EXACT     0.001   /* ... and in a program of more than MANY_OPS ops */

/* ---- the search ----------------------------------------------------------------------------- */

/* An option of the frontier and its idle gaps. */
struct loaded {
    int32_t option;
    struct plan *p;
    struct transfer *t; /* NULL: the entry is empty */
};

/* A selection of idle gaps that was simulated, by its hash; direct-mapped. */
struct tried {
    uint64_t key;
    double seconds; /* a lower bound of its step */
};

struct offloader {
    struct frontier *frontier;
    const struct machine *m;
    /* of the current search */
    const struct budgets *b;
    int64_t device;              /* limit of the bytes alive */
    int64_t wall;                /* limit of the peak with addresses */
    double floor;                /* points with fewer seconds are rejected */
    double limit;                /* a search ends where all plans take as many seconds */
    bool common;                 /* residences that wrap have the addresses of other programs */
    bool tight, serial, drains;  /* steps are, or do (transfer.h) */
    bool ended;                  /* the search ended at the limit */
    int64_t most;                /* bytes of the tiers that a selection may take */
    const struct plan *like;     /* addresses are those of this plan; or NULL */
    struct hosted_bounds hosted; /* bounds on updates on the host: those of most_hosted, or 0 */
    double forward; /* bytes that the link brings in the forward pass if updates may be deferred */
    bool repeats;   /* the best point has repeated updates: the search changes their amounts */
    struct point best;
    struct tried tried[TRIED];
    /* of all searches */
    struct hosted_bounds most_hosted;
    double forward_seconds;
    struct loaded loaded[LOADED]; /* the most recently used one comes first */
    int n_loaded;                 /* entries in use */
};

static void unload(struct loaded *l)
{
    transfer_free(l->t);
    plan_free(l->p);
    *l = (struct loaded){0};
}

/* Makes this option loaded[0]. */
static int load(struct offloader *x, int32_t option)
{
    const struct graph *g = x->frontier->p->g;
    struct loaded *l = x->loaded, found;
    int i = 0, rc = 0;
    while (i < x->n_loaded - 1 && l[i].t && l[i].option != option)
        i++;
    if (!l[i].t || l[i].option != option || l[i].t->g != g) /* the frontier has another graph now */
        unload(&l[i]);
    found = l[i];
    for (; i > 0; i--)
        l[i] = l[i - 1];
    l[0] = found;
    l->option = option;
    if (!found.t)
        rc = option_steps(x->frontier, &x->frontier->options.data[option], &l->p);
    if (!found.t && !rc)
        rc = transfer_new(g, x->m, l->p, &l->t);
    if (rc)
        return rc;
    l->t->b = x->b;
    l->t->tight = x->tight;
    l->t->serial = x->serial;
    l->t->drains = x->drains;
    l->t->most = x->most;
    return 0;
}

static bool is_found(const struct offloader *x)
{
    return x->best.seconds < INFINITY;
}

/* Bytes by which the peak of an option exceeds the limit. */
static double excess_of(const struct offloader *x, int32_t option)
{
    const struct option *o = &x->frontier->options.data[option];
    return (double)o->load + (double)x->frontier->p->persistent - (double)x->device;
}

/* A lower bound of any plan with offloads of this option: the bytes that its peak has above the
 * limit are copied in in every step. */
static double min_seconds(const struct offloader *x, int32_t option)
{
    return fmax(x->frontier->options.data[option].seconds - x->hosted.seconds,
                (excess_of(x, option) - x->hosted.bytes) / x->m->h2d_both);
}

/* The entry of the current selection of loaded[0]: half of all points repeat a selection. */
static struct tried *find_tried(struct offloader *x)
{
    uint64_t key = transfer_key(x->loaded->t, x->device, x->loaded->option);
    struct tried *t = &x->tried[key % TRIED];
    if (t->key != key)
        *t = (struct tried){key, 0};
    return t;
}

/* Makes a point the best one if it is faster; *better is then true. */
static int try_point(struct offloader *x, const struct point *at, bool *better)
{
    double limit = x->best.seconds;
    bool fits = false;
    *better = false;
    if (at->option < 0 || at->option >= x->frontier->n || min_seconds(x, at->option) >= limit)
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

/* The difference of two points. */
struct step {
    double amounts[AMOUNTS];
    int32_t options;
};

/* A line search from the best point: doubles the step as long as points are faster. */
static int search_line(struct offloader *x, const struct step *d, bool *better)
{
    bool faster = true;
    int rc = 0;
    for (int32_t times = 1; faster && !rc && times < x->frontier->n + 2; times *= 2) {
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

/* Adds coordinate i of a step size, an amount or the options, to a direction. */
static void add_coordinate(struct step *d, const struct step *reach, int i, int sign)
{
    if (i < AMOUNTS)
        d->amounts[i] += sign * reach->amounts[i];
    else
        d->options += sign * reach->options;
}

/* Line searches along each coordinate, and if nothing is faster along pairs of them: these trade
 * offloaded state for state on the host, either for another option, or kinds of updates on the host
 * for each other.  Other pairs found nothing, the first three make STDiT3-XL/2 under 12G + 64G
 * 0.15 % faster without repeated updates, the others 2.6 % with them. */
static int search_lines(struct offloader *x, const struct step *reach, bool *better)
{
    static const int pairs[2][3][2] = {
        {{AMOUNT_FIRST, AMOUNT_HOSTED}, {AMOUNT_FIRST, AMOUNTS}, {AMOUNT_HOSTED, AMOUNTS}},
        {{AMOUNT_HOSTED, AMOUNT_DEFERRED},
         {AMOUNT_DEFERRED, AMOUNT_REPEATED},
         {AMOUNT_HOSTED, AMOUNTS}}};
    const int amounts = x->repeats ? AMOUNTS : AMOUNT_DEFERRED, axes = 2 * (amounts + 1);
    int rc = 0;
    for (int k = 0; k < axes + 12 && !rc && (k < axes || !*better); k++) {
        const int *pair = k < axes ? NULL : pairs[x->repeats][(k - axes) / 4];
        struct step d = {.options = 0};
        int i = pair ? pair[0] : k / 2;
        add_coordinate(&d, reach, i < amounts ? i : AMOUNTS, k & 1 ? 1 : -1);
        if (pair)
            add_coordinate(&d, reach, pair[1], (k - axes) & 2 ? 1 : -1);
        rc = search_line(x, &d, better);
    }
    return rc;
}

/* Pattern search: steps shrink when nothing is faster. */
static int descend(struct offloader *x, struct step reach, int patterns)
{
    int rc = 0;
    x->repeats = x->best.amounts[AMOUNT_DEFERRED] + x->best.amounts[AMOUNT_REPEATED] > 0;
    while (patterns > 0 && is_found(x) && !rc) {
        bool better = false;
        rc = search_lines(x, &reach, &better);
        if (better)
            continue;
        patterns--;
        for (int i = 0; i < AMOUNTS; i++)
            reach.amounts[i] /= SMALLER;
        reach.options = reach.options > 1 ? reach.options / 2 : 1;
    }
    return rc;
}

/* Step sizes, this many times smaller in the second half of the patterns. */
static struct step reach(const struct offloader *x, int times)
{
    struct step r = {.options = x->frontier->n / COARSE / 2 + 1};
    for (int i = 0; i < AMOUNTS; i++)
        r.amounts[i] = (double)x->device / 6 / times;
    r.amounts[AMOUNT_HOSTED] = x->hosted.meanwhile / 2 / times;
    for (int i = AMOUNT_DEFERRED; i < AMOUNTS; i++)
        r.amounts[i] = x->forward / 2 / times;
    r.options = times > 1 ? r.options / times + 1 : r.options;
    return r;
}

/*
 * The points where the search begins in each option: shares of the bytes above the limit; for
 * AMOUNT_HOSTED of the state that the host can update meanwhile; for repeated updates of the state
 * that comes in in the forward pass.  The sets are searched separately, because plans whose
 * parameters stay, plans whose parameters leave and plans with repeated updates are different local
 * optima.
 */
#define SEEDS 5
enum { SET_REPEATS = 2, SETS };
static const double seeds[SETS][SEEDS][AMOUNTS] = {
    {{1, 0, 0, 1}, {.5, 0, 0, 1}, {0, 0, 0, 1}, {1, 0, 0, 0}, {.5, .5, 0, 0}},
    {{.25, 0, .25, 1}, {.5, 0, .25, 1}, {.5, 0, .25, 0}, {0, 0, 2, 0}, {0, 0, 0, 0}},
    {{.5, 0, 0, .7, 1, .3},
     {1, 0, 0, .7, 1, .3},
     {.5, 0, 0, .5, .7, .7},
     {.25, 0, 0, .8, .4, .4},
     {.5, 0, 0, 1.3, .9, .4}},
};

/* The bytes that a share of an amount is of. */
static double whole_of(const struct offloader *x, int amount, double above)
{
    if (amount >= AMOUNT_DEFERRED)
        return x->forward;
    return amount == AMOUNT_HOSTED ? x->hosted.meanwhile : above;
}

static int try_seeds(struct offloader *x, const double list[SEEDS][AMOUNTS], int32_t option)
{
    double above = fmax(0, excess_of(x, option));
    int rc = 0;
    for (int k = 0; k < SEEDS && !rc; k++) {
        struct point at = {.option = option};
        bool better;
        for (int i = 0; i < AMOUNTS; i++)
            at.amounts[i] = list[k][i] * whole_of(x, i, above);
        if (x->hosted.meanwhile > 0 || list[k][AMOUNT_HOSTED] == 0)
            rc = try_point(x, &at, &better);
    }
    return rc;
}

/* Tries points all over the frontier, then searches from the best of each set. */
static int search_points(struct offloader *x)
{
    int32_t n = x->frontier->n, stride = n / COARSE + 1;
    const int sets = x->forward > 0 ? SETS : SET_REPEATS;
    struct point best[SETS];
    int rc = 0, first = 0;
    for (int k = 0; k < SETS; k++)
        best[k] = (struct point){.seconds = INFINITY};
    for (int32_t i = n - 1; i >= 0 && !rc; i -= i > 0 && i < stride ? i : stride)
        for (int k = 0; k < sets && !rc; k++) {
            x->best = best[k];
            rc = try_seeds(x, seeds[k], i);
            best[k] = x->best;
        }
    for (int k = 0; k < sets && !rc; k++) {
        x->best = best[k];
        rc = descend(x, reach(x, 1), PATTERNS / 2);
        best[k] = x->best;
    }
    for (int k = 1; k < sets; k++)
        first = best[k].seconds < best[first].seconds ? k : first;
    x->best = best[first];
    return rc ? rc : descend(x, reach(x, SMALLER * SMALLER), PATTERNS / 2);
}

/* Searches again after the limit changed: the previous best point is close to the new one.  If
 * nothing is found, the next search with another limit begins there, too. */
static int search_again(struct offloader *x)
{
    struct point at = x->best;
    bool better;
    at.seconds = x->best.seconds = INFINITY;
    int rc = try_point(x, &at, &better);
    if (!rc && is_found(x))
        return descend(x, reach(x, SMALLER * SMALLER), PATTERNS / 2);
    rc = rc ? rc : search_points(x);
    x->best = is_found(x) ? x->best : at;
    return rc;
}

/* Selects for a point of fewest bytes; the bytes that it needs.  With 0 as the limit everything
 * goes that can; less may do as well, or leave the tiers room for what another step needs. */
static int64_t choose_fewest(struct transfer *t, const struct point *at, int64_t limit)
{
    int64_t needs = transfer_choose(t, at->amounts, limit);
    return needs <= limit ? needs : transfer_choose(t, at->amounts, 0);
}

/* Makes a point the one of fewest bytes if it needs fewer than *f. */
static int try_fewest(struct offloader *x, const struct point *at, struct fewest *f)
{
    int rc = load(x, at->option);
    struct transfer *t = x->loaded->t;
    if (rc)
        return rc;
    int64_t limit = transfer_choose(t, at->amounts, 0), needs = choose_fewest(t, at, limit);
    if (needs >= f->needs)
        return 0;
    const struct budgets *b = x->b;
    int64_t room = b->host + b->nvme - b->tier_base[TIER_HOST] - b->tier_base[TIER_NVME];
    double seconds = x->frontier->options.data[at->option].seconds;
    *f = (struct fewest){*at, limit, needs, t->used, room, fmax(seconds, transfer_least(t))};
    return 0;
}

/* Finds the option that needs the fewest bytes with everything offloaded that can be; if the tiers
 * are small, either activations or persistent storages have priority. */
static int search_fewest(struct offloader *x, struct fewest *f)
{
    int rc = 0;
    *f = (struct fewest){.needs = INT64_MAX};
    for (int32_t i = 0; i < x->frontier->n && i < FEW && !rc; i++) {
        struct point at = {.option = i};
        rc = try_fewest(x, &at, f);
        at.amounts[AMOUNT_FIRST] = at.amounts[AMOUNT_VALUES] = INFINITY;
        if (!rc)
            rc = try_fewest(x, &at, f);
    }
    return rc;
}

/* ---- with addresses ------------------------------------------------------------------------- */

int offload_share(struct offloader *x, struct plan *p, const struct plan *like)
{
    return plan_share_offsets(x->frontier->p->g, p, like);
}

/* Writes the copies of the chosen gaps into a plan and sets its addresses. */
static int finish(struct offloader *x, struct plan *p)
{
    const struct graph *g = x->frontier->p->g;
    int rc = transfer_rewrite(x->loaded->t, p);
    if (!rc)
        rc = plan_measure(g, p);
    const int64_t room = x->wall - p->persistent;
    p->transient = INT64_MAX;
    if (!rc && x->like)
        rc = offload_share(x, p, x->like);
    if (!rc && p->transient == INT64_MAX)
        rc = plan_set_offsets(g, p, room, x->tight ? INT64_MAX : room, x->common);
    if (!rc && x->serial && !x->like)
        rc = plan_tighten(g, p, p->load, LONG);
    /* Drained steps are not periodic, and the record does not say that serial ones wait. */
    return !rc && (x->loaded->t->drained || x->serial) ? plan_reprice(g, x->m, p) : rc;
}

/* Builds the best point with addresses; *out is NULL if the tiers are too small. */
static int build(struct offloader *x, struct plan **out)
{
    *out = NULL;
    int rc = load(x, x->best.option);
    struct transfer *t = x->loaded->t;
    if (rc)
        return rc;
    /* Gaps taken for one step may leave the tiers no room for another; then all are taken. */
    bool fits = transfer_choose(t, x->best.amounts, x->device) <= x->device ||
                transfer_choose(t, x->best.amounts, 0) <= x->device;
    if (fits)
        rc = transfer_try(t, x->device, INFINITY, &fits);
    if (!rc && fits)
        rc = transfer_order_outs(t, x->device);
    if (!rc && fits)
        rc = transfer_assign(t, false, &fits);
    if (!rc && fits)
        rc = plan_copy(x->loaded->p, out);
    if (*out)
        rc = finish(x, *out);
    if (!rc)
        return 0;
    plan_free(*out);
    *out = NULL;
    return rc;
}

/* As build, but *out is NULL if the peak with addresses exceeds the wall, or if the order of copies
 * out made it faster than the floor.  *less is then the limit of bytes alive for the next round; it
 * falls faster in later rounds. */
static int build_within(struct offloader *x, int round, struct plan **out, int64_t *less)
{
    int rc = build(x, out);
    *less = x->device;
    if (!*out)
        return rc;
    int64_t over = max_i64(0, (*out)->persistent + (*out)->transient - x->wall);
    if (over == 0 && (*out)->seconds >= x->floor)
        return rc;
    *less = min_i64(x->device, (*out)->persistent + (*out)->load);
    *less -= over + over / 4 * round + x->wall / 2048;
    plan_free(*out);
    *out = NULL;
    return rc;
}

/* The faster one of two plans, each of which may be NULL, becomes *best; the other one is freed. */
static void keep_faster(struct plan **best, struct plan *other)
{
    bool faster = other && (!*best || other->seconds < (*best)->seconds);
    plan_free(faster ? *best : other);
    *best = faster ? other : *best;
}

/* Bisects between a limit of bytes alive whose addresses fit and one whose addresses do not; a
 * faster plan replaces *out. */
static int search_between(struct offloader *x, int64_t fits, int64_t fails, struct plan **out)
{
    int rc = 0;
    for (int i = 0; i < CLOSER && !rc && is_found(x) && fails - fits > x->wall / CLOSE; i++) {
        struct plan *more = NULL;
        int64_t less, tried = fits + (fails - fits) / 2;
        x->device = tried;
        rc = search_again(x);
        if (!rc && is_found(x))
            rc = build_within(x, 0, &more, &less);
        *(more ? &fits : &fails) = tried;
        keep_faster(out, more);
    }
    return rc;
}

/* Nothing was found within x->device bytes: searches half-way to bytes whose addresses fail. */
static int search_back(struct offloader *x, int64_t fails)
{
    int rc = 0;
    for (int i = 0; i < CLOSER && !rc && !is_found(x); i++) {
        x->device += (fails - x->device) / 2;
        rc = search_again(x);
    }
    return rc;
}

/* Builds the best point, with fewer bytes alive until addresses are within the wall.  No plan is
 * clearly faster than the points of more bytes. */
static int search_within(struct offloader *x, struct plan **out)
{
    int64_t fails = x->device;
    double floor = x->floor; /* of the points whose addresses fail */
    int rc = 0;
    for (int i = 0; i < ROUNDS && !rc && is_found(x); i++) {
        int64_t less, tried = x->device;
        x->floor = fmax(x->floor, offload_floor(x, &x->best));
        x->ended = x->floor >= x->limit;
        if (x->ended)
            break;
        rc = build_within(x, i, out, &less);
        if (rc || *out)
            break;
        fails = tried;
        floor = x->floor;
        x->device = less;
        rc = search_again(x);
        if (!rc && x->drains)
            rc = search_back(x, fails);
    }
    x->floor = floor;
    return rc || !*out ? rc : search_between(x, x->device, fails, out);
}

static void begin(struct offloader *x, const struct budgets *b, int64_t device)
{
    x->b = b;
    x->wall = x->device = device;
    x->floor = 0;
    x->limit = INFINITY;
    x->most = INT64_MAX;
    x->common = x->tight = x->serial = x->drains = x->ended = false;
    x->hosted = b->host > 0 ? x->most_hosted : (struct hosted_bounds){0, 0, 0};
    x->best = (struct point){.seconds = INFINITY};
    x->forward = b->host > 0 && graph_may_repeat(x->frontier->p->g) && x->hosted.bytes > 0
                     ? fmin(x->hosted.bytes, x->forward_seconds * x->m->h2d_both)
                     : 0;
    memset(x->tried, 0, sizeof(x->tried));
}

/* Sets the bytes of the tiers that a point takes, with addresses. */
static int count_tiers(struct offloader *x, struct point *p)
{
    bool fits;
    int rc = load(x, p->option);
    if (rc)
        return rc;
    transfer_choose(x->loaded->t, p->amounts, x->device);
    rc = transfer_assign(x->loaded->t, false, &fits);
    p->host = x->loaded->t->tier[TIER_HOST];
    p->nvme = x->loaded->t->tier[TIER_NVME];
    return rc;
}

int offload_unplaced(struct offloader *x, const struct budgets *b, int64_t device, struct point *p)
{
    begin(x, b, device);
    int rc = search_points(x);
    if (!rc && is_found(x))
        rc = count_tiers(x, &x->best);
    *p = x->best;
    return rc;
}

double offload_floor(const struct offloader *x, const struct point *unplaced)
{
    double faster = x->frontier->p->g->n_ops > MANY_OPS ? EXACT : TOLERANCE;
    return unplaced->seconds < INFINITY ? unplaced->seconds * (1 - faster) : 0;
}

/*
 * A plan of at least floor seconds, or NULL; common: the residences that wrap have the addresses of
 * other programs.  Where a link is slow, copies out of the update run far into the next step, and
 * leave holes between addresses.  If these hold bytes that other copies need, it may be faster that
 * steps end with their last copy.
 */
static int plan_from(struct offloader *x, const struct budgets *b, int64_t device,
                     const struct point *unplaced, double floor, double limit, bool common,
                     struct plan **out)
{
    const int kinds = x->frontier->p->g->n_micro > 1 ? 1 : 2; /* with micro-steps all drain */
    int rc = 0;
    *out = NULL;
    for (int drains = 0; drains < kinds && !rc; drains++) {
        struct plan *p = NULL;
        begin(x, b, device);
        x->drains = drains;
        x->common = common;
        x->best = *unplaced;
        x->floor = floor;
        x->limit = *out ? (*out)->seconds : limit;
        rc = drains ? search_again(x) : 0;
        if (!rc)
            rc = search_within(x, &p);
        keep_faster(out, p);
        if (x->ended || x->device == device)
            break; /* there is room for the holes */
    }
    return rc;
}

int offload_plan(struct offloader *x, const struct budgets *b, int64_t device,
                 const struct point *unplaced, double floor, double limit, struct plan **out,
                 bool *apart)
{
    const int64_t crossings = graph_crossings_end(x->frontier->p->g);
    struct plan *common = NULL;
    int rc = 0;
    floor = fmax(floor, offload_floor(x, unplaced));
    if (crossings > 0 && crossings <= device)
        rc = plan_from(x, b, device, unplaced, floor, INFINITY, true, &common);
    *apart = false;
    *out = common;
    if (rc || (common && common->seconds <= floor * OFFLOAD_APART))
        return rc;
    limit = crossings > 0 ? INFINITY : limit;
    rc = plan_from(x, b, device, unplaced, floor, limit, false, out);
    bool faster = !common || (*out && (*out)->seconds * OFFLOAD_APART < common->seconds);
    plan_free(faster ? common : *out);
    *out = faster ? *out : common;
    *apart = faster && crossings > 0;
    return rc;
}

/* ---- the fewest bytes ------------------------------------------------------------------------ */

double offload_fewest_seconds(const struct offloader *x)
{
    const struct frontier *f = x->frontier;
    return f->options.data[min_i64(FEW, f->n) - 1].seconds;
}

int offload_fewest(struct offloader *x, const struct budgets *b, struct fewest *f)
{
    begin(x, b, INT64_MAX);
    return search_fewest(x, f);
}

/* Selects for a plan of fewest bytes, and simulates it. */
static int try_fixed(struct offloader *x, const struct budgets *b, const struct fewest *f,
                     bool serial, bool *fits)
{
    begin(x, b, f->limit);
    x->tight = true;
    x->serial = serial;
    x->most = f->most;
    x->best = f->at;
    int rc = load(x, f->at.option);
    if (rc)
        return rc;
    choose_fewest(x->loaded->t, &f->at, f->limit);
    return transfer_try(x->loaded->t, f->limit, INFINITY, fits);
}

int offload_fixed_unplaced(struct offloader *x, const struct budgets *b, const struct fewest *f,
                           bool serial, struct point *p)
{
    bool fits = false;
    int rc = try_fixed(x, b, f, serial, &fits);
    *p = f->at;
    if (!rc && fits)
        rc = transfer_assign(x->loaded->t, false, &fits);
    if (rc)
        return rc;
    p->seconds = fits ? x->loaded->t->seconds : INFINITY;
    p->host = x->loaded->t->tier[TIER_HOST];
    p->nvme = x->loaded->t->tier[TIER_NVME];
    return 0;
}

int offload_fixed(struct offloader *x, const struct budgets *b, const struct fewest *f, bool serial,
                  const struct plan *like, struct plan **out)
{
    bool fits = false;
    *out = NULL;
    int rc = try_fixed(x, b, f, serial, &fits);
    if (rc || !fits)
        return rc;
    x->like = like;
    rc = build(x, out);
    x->like = NULL;
    return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

int offloader_new(struct frontier *f, const struct machine *m, struct offloader **out)
{
    struct pool scratch = {NULL, false};
    const bool *may = hosted_ops(f->p->g, m, &scratch);
    int rc = pool_status(&scratch);
    *out = rc ? NULL : calloc(1, sizeof(**out));
    if (*out) {
        (*out)->frontier = f;
        (*out)->m = m;
        (*out)->most_hosted = hosted_most(f->p->g, m, may);
        for (int32_t i = 0; i < f->p->g->n_body; i++)
            (*out)->forward_seconds +=
                f->p->g->ops[i].phase == GRAPH_FORWARD ? f->p->g->ops[i].seconds : 0;
        (*out)->n_loaded = (int)min_i64(LOADED, max_i64(COARSE + 2, KEPT / (f->p->g->n_ops + 1)));
    }
    pool_free(&scratch);
    return *out ? 0 : CKPT_ENOMEM;
}

void offloader_free(struct offloader *x)
{
    for (int i = 0; x && i < LOADED; i++)
        unload(&x->loaded[i]);
    free(x);
}
