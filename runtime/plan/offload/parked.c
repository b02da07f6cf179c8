/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with parks: which schedule of the portfolio, and by which policy what leaves it.  The clock
 * decides: less recompute needs more copies, and those that do not hide make steps wait.  Addresses
 * come last, and what they take above the bytes alive is taken off the budget of another round;
 * then bytes between what fits and what does not are tried.
 */
#include <math.h>
#include <stdlib.h>
#include "plan/offload/transfer.h"

#define ROUNDS 6
#define CLOSER 3   /* tries between what fits with addresses and what does not */
#define CLOSE  256 /* unless they are this part of the wall apart */
#define COARSE 16  /* options looked at first */
#define FEW    8   /* options that may need least */

/* ---- the search ----------------------------------------------------------------------------- */

/* Tried on every option that is looked at; the shares are then halved around the best. */
static const struct policy policies[] = {
    {.states = 1},
    {.states = 0},
    {.states = .5},
    {.states = .5, .late = 1},
    {.states = 1, .late = .5},
    {.states = 1, .weights = true},
    {.states = .25, .weights = true},
    {.states = 1, .spare = .1},
    {.states = 1, .weights = true, .spare = .1},
    /* These last.  1: what the host can do while the device updates and goes forward. */
    {.states = 1, .hosted = .5},
    {.states = 1, .hosted = .75},
    {.states = 1, .hosted = 1},
    {.states = 1, .hosted = 1.6},
};
#define HOSTED 4 /* so many of them */
#define POLICIES    ((int)(sizeof(policies) / sizeof(*policies)))

/* What an option comes to under its best policy. */
struct candidate {
    double seconds; /* INFINITY if none fits or it was not looked at */
    struct policy policy;
    bool looked;
};

struct search {
    struct portfolio *pf;
    const struct machine *m;
    const struct budgets *b;
    int64_t device;               /* bytes alive may be so many */
    int64_t wall;                 /* and the peak with addresses */
    double limit;                 /* what takes as long is not wanted */
    struct candidate *candidates; /* per option */
    int32_t best;                 /* option, or -1 */
    struct hosted_bounds hosted;  /* what the host can take */
};

/* What a plan must beat. */
static double to_beat(const struct search *x)
{
    return x->best >= 0 ? x->candidates[x->best].seconds : x->limit;
}

/* No plan with parks of this option is faster: what the peak has above the budget comes back in
 * every step. */
static double least_seconds(const struct search *x, int32_t option)
{
    const struct option *o = &x->pf->options.data[option];
    double excess = (double)o->load + (double)x->pf->p->persistent - (double)x->device;
    return fmax(o->seconds - x->hosted.seconds, (excess - x->hosted.bytes) / x->m->h2d_both);
}

static int try_policy(struct search *x, int32_t option, const struct policy *how,
                      struct transfer *t)
{
    struct candidate *c = &x->candidates[option];
    bool fits;
    int rc = transfer_try(t, how, x->device, fmin(to_beat(x), c->seconds), &fits);
    if (rc || !fits || t->seconds >= c->seconds)
        return rc;
    c->seconds = t->seconds;
    c->policy = *how;
    if (c->seconds < to_beat(x))
        x->best = option;
    return 0;
}

/* Tries other shares of the states, closer and closer to the best one. */
static int refine(struct search *x, int32_t option, struct transfer *t)
{
    struct candidate *c = &x->candidates[option];
    int rc = 0;
    for (double step = 0.25; step > 0.02 && !rc; step /= 2) {
        struct policy less = c->policy, more = c->policy;
        less.states = fmax(0, less.states - step);
        more.states = fmin(1, more.states + step);
        rc = try_policy(x, option, &less, t);
        if (!rc)
            rc = try_policy(x, option, &more, t);
        less = more = c->policy;
        less.spare = fmax(0, less.spare - step / 2);
        more.spare += step / 2;
        if (!rc && less.spare < c->policy.spare)
            rc = try_policy(x, option, &less, t);
        if (!rc)
            rc = try_policy(x, option, &more, t);
        less = more = c->policy;
        less.late = fmax(0, less.late - step);
        more.late = fmin(1, more.late + step);
        if (!rc)
            rc = try_policy(x, option, &less, t);
        if (!rc)
            rc = try_policy(x, option, &more, t);
        less = more = c->policy;
        less.hosted = fmax(0, less.hosted - step * x->hosted.share);
        more.hosted = fmin(1, more.hosted + step * x->hosted.share);
        if (!rc && less.hosted < c->policy.hosted)
            rc = try_policy(x, option, &less, t);
        if (!rc && t->n_buckets > 0)
            rc = try_policy(x, option, &more, t);
    }
    return rc;
}

static int look(struct search *x, int32_t option, bool again)
{
    struct plan *p = NULL;
    struct transfer *t = NULL;
    struct candidate *c = &x->candidates[option];
    if (c->looked || least_seconds(x, option) >= to_beat(x))
        return 0;
    c->looked = true;
    int rc = option_steps(x->pf, &x->pf->options.data[option], &p);
    if (!rc)
        rc = transfer_new(x->pf->p->g, x->m, x->b, p, &t);
    if (!rc && again)
        rc = try_policy(x, option, &x->candidates[option].policy, t);
    int policies_here = rc || t->n_buckets ? POLICIES : POLICIES - HOSTED;
    for (int i = 0; i < policies_here && !rc && !again; i++) {
        struct policy how = policies[i];
        how.hosted = fmin(1, how.hosted * x->hosted.share);
        rc = try_policy(x, option, &how, t);
    }
    if (!rc && x->best == option)
        rc = refine(x, option, t);
    transfer_free(t);
    plan_free(p);
    return rc;
}

/* Looks at options at a distance from the best, closer and closer. */
static int close_in(struct search *x, int32_t stride, bool again)
{
    int rc = 0;
    for (; stride > 0 && !rc && x->best >= 0; stride /= 2) {
        int32_t at = x->best;
        if (at >= stride)
            rc = look(x, at - stride, again);
        if (!rc && at + stride < x->pf->n)
            rc = look(x, at + stride, again);
    }
    return rc;
}

/* The first option that does not fit as it is, for which the fewest copies do. */
static int32_t first_above(const struct search *x)
{
    int32_t i = 0;
    while (i < x->pf->n - 1 && x->pf->options.data[i].load + x->pf->p->persistent <= x->device)
        i++;
    return i;
}

/* Begins there and where recompute and copies may balance, and goes on to both sides of that. */
static int search_options(struct search *x)
{
    int32_t n = x->pf->n, stride = 1, middle = 0;
    int rc = look(x, first_above(x), false);
    while (n / stride > COARSE)
        stride *= 2;
    for (int32_t i = 0; i < n; i++)
        if (least_seconds(x, i) <= least_seconds(x, middle))
            middle = i;
    for (int32_t d = 0; d < n && !rc; d += stride) {
        if (middle >= d)
            rc = look(x, middle - d, false);
        if (!rc && middle + d < n)
            rc = look(x, middle + d, false);
    }
    if (!rc && x->best < 0)
        rc = look(x, 0, false);
    return rc ? rc : close_in(x, stride, false);
}

/* The same with fewer bytes: what was best is close to the best now. */
static int search_again(struct search *x)
{
    int32_t at = x->best;
    for (int32_t i = 0; i < x->pf->n; i++)
        x->candidates[i] = (struct candidate){INFINITY, x->candidates[at].policy, false};
    x->best = -1;
    int rc = look(x, at, true);
    if (!rc && x->best < 0)
        return search_options(x);
    return rc ? rc : close_in(x, 4, true);
}

/* The option and the policy by which least is needed, just in time: what is left when all else has
 * too many holes between addresses. */
static int search_smallest(struct search *x)
{
    static const struct policy all = {.states = 1, .weights = true};
    int64_t least = INT64_MAX;
    int rc = 0;
    x->best = -1;
    for (int32_t i = 0; i < x->pf->n && i < FEW && !rc; i++) {
        struct plan *p = NULL;
        struct transfer *t = NULL;
        rc = option_steps(x->pf, &x->pf->options.data[i], &p);
        if (!rc)
            rc = transfer_new(x->pf->p->g, x->m, x->b, p, &t);
        int64_t needs = rc ? INT64_MAX : transfer_choose(t, &all, 0);
        if (needs < least && needs <= x->wall) {
            least = needs;
            x->best = i;
            x->candidates[i].policy = all;
        }
        transfer_free(t);
        plan_free(p);
    }
    x->device = least;
    return rc;
}

/* ---- with addresses ------------------------------------------------------------------------- */

static int build(const struct search *x, struct plan **out)
{
    struct plan *p = NULL;
    struct transfer *t = NULL;
    bool fits = false;
    *out = NULL;
    int rc = option_steps(x->pf, &x->pf->options.data[x->best], &p);
    if (!rc)
        rc = transfer_new(x->pf->p->g, x->m, x->b, p, &t);
    if (!rc)
        rc = transfer_try(t, &x->candidates[x->best].policy, x->device, INFINITY, &fits);
    if (!rc && fits)
        rc = transfer_order_outs(t, x->device);
    if (!rc && fits)
        rc = transfer_rewrite(t);
    if (!rc && fits)
        rc = plan_measure(x->pf->p->g, p);
    if (!rc && fits)
        rc = plan_set_offsets(x->pf->p->g, p, x->wall - p->persistent);
    transfer_free(t);
    if (rc || !fits)
        plan_free(p);
    else
        *out = p;
    return rc;
}

/* As build; but *out is NULL if its addresses take too many bytes.  *less is then what may be alive
 * at once in another try: the farther below the more often it was tried. */
static int build_within(const struct search *x, int round, struct plan **out, int64_t *less)
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
    for (int i = 0; i < CLOSER && !rc && x->best >= 0 && fails - fits > x->wall / CLOSE; i++) {
        struct plan *more = NULL;
        int64_t less, tried = fits + (fails - fits) / 2;
        x->device = tried;
        rc = search_again(x);
        if (!rc && x->best >= 0)
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

/* Searches with so many bytes alive at once, and less until addresses are within the wall. */
static int search_within(struct search *x, int64_t device, struct plan **out)
{
    int64_t fails = device;
    x->device = device;
    x->best = -1;
    for (int32_t i = 0; i < x->pf->n; i++)
        x->candidates[i] = (struct candidate){.seconds = INFINITY};
    int rc = search_options(x);
    for (int i = 0; i < ROUNDS && !rc && x->best >= 0 && !*out; i++) {
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

int parked_plan(struct portfolio *pf, const struct machine *m, const struct budgets *b,
                int64_t device, double limit, struct plan **out)
{
    static const double shares[] = {1, 0.92, 0.8}; /* where other options are the best ones */
    struct search x = {.pf = pf, .m = m, .b = b, .wall = device, .limit = limit};
    int64_t less;
    *out = NULL;
    x.candidates = malloc(((size_t)pf->n + 1) * sizeof(*x.candidates));
    int rc = x.candidates ? 0 : CKPT_ENOMEM;
    if (m->host_update > 0 && b->host > 0)
        x.hosted = hosted_most(pf->p->g, m);
    for (size_t i = 0; i < sizeof(shares) / sizeof(*shares) && !rc && !*out; i++)
        rc = search_within(&x, (int64_t)(shares[i] * (double)device), out);
    if (!rc && !*out)
        rc = search_smallest(&x);
    if (!rc && !*out && x.best >= 0)
        rc = build_within(&x, 0, out, &less);
    if (!rc && *out && (*out)->seconds >= limit) {
        plan_free(*out);
        *out = NULL;
    }
    free(x.candidates);
    return rc;
}

double parked_smallest_seconds(const struct portfolio *pf, const struct machine *m)
{
    double least = INFINITY;
    for (int32_t i = 0; i < pf->n && i < FEW; i++)
        least = fmin(least, pf->options.data[i].seconds);
    return least - (m->host_update > 0 ? hosted_most(pf->p->g, m).seconds : 0);
}

int parked_smallest(struct portfolio *pf, const struct machine *m, const struct budgets *b,
                    struct plan **out)
{
    struct search x = {.pf = pf, .m = m, .b = b, .wall = INT64_MAX, .limit = INFINITY};
    *out = NULL;
    x.candidates = calloc((size_t)pf->n + 1, sizeof(*x.candidates));
    int rc = x.candidates ? search_smallest(&x) : CKPT_ENOMEM;
    x.wall = x.device; /* what addresses should need */
    if (!rc && x.best >= 0)
        rc = build(&x, out);
    free(x.candidates);
    return rc;
}
