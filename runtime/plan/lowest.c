/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans with lower tiers of the fewest device bytes: the smallest budgets that tables, sweeps and
 * refusals name.
 *
 * Which storages leave depends on the sum of the tiers alone.  So there is a row of selections: the
 * first may use any sum, each next one the grid budget below what the one before uses.  Steps are
 * serial, so the residences of a selection on the device, and their addresses, do not depend on the
 * tiers and their rates: they are placed once.  Each selection is split over the tiers in several
 * ways: host alone, NVMe alone, and as much of the host as a grid budget.
 *
 * The same selections with copies beside the steps are faster and have holes between addresses:
 * they are for budgets just above the smallest one.
 *
 * An answer is the best split of any selection that fits.  None of that depends on the budgets of a
 * request, so more of a tier never gives a worse answer.  A selection is placed only if its live
 * bytes are fewer than the best placed ones.
 */
#include "plan/lowest.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/plan_record.h"

/* Sums of the tiers are 6 to 12 % apart, and grid budgets of the host 25 to 50 %. */
enum { SUM_BITS = 3, HOST_BITS = 1, SPLITS = 12 };
#define OCTAVE 8 /* selections whose sums differ by a factor of two */
/* Holes are filled if they are more than this part of a plan of at most so many steps.  That makes
 * the smallest budget of an autoencoder of images, 770 ops, 2.8 % smaller; in two larger programs
 * it gained nothing, may cost another 0.01 %, and takes a sixth of a second for each selection. */
#define HOLES 256
#define STEPS 2048
enum { HOST_ALONE, NVME_ALONE, SOME_HOST };

struct split {
    int64_t host; /* budget of the host; of NVMe there is enough, but none in HOST_ALONE */
    struct point unplaced[2]; /* in other and in serial steps; of 0 seconds: not known */
    struct plan *plan[2];     /* NULL: not made, or the tiers are too small; owned */
};

struct selection {
    struct fewest few;
    struct plan *placed; /* the first plan of its splits in serial steps; or NULL */
    struct split splits[SPLITS];
    int n;
};

struct lowest {
    struct offloader *x;
    int64_t base[TIER_COUNT];
    int64_t alive; /* the fewest live bytes without tiers; 0: not known yet */
    LIST(struct selection) list;
    int32_t n;
    bool complete; /* no further selection uses fewer bytes of the tiers */
};

int64_t grid_budget_at(int64_t bytes, int bits)
{
    int zeros = 0;
    while (bytes >> zeros > (INT64_C(2) << bits) - 1)
        zeros++;
    return bytes >> zeros << zeros;
}

/* After four octaves of grid budgets, and eight grid budgets at least, the bytes are halved each
 * time, since each grid budget is a search. */
int64_t grid_budget_below(int64_t used, int64_t least, int bits, int32_t k)
{
    int64_t less = k < max_i64(8, INT64_C(4) << bits) ? max_i64(used - 1, 0) : used / 2;
    return max_i64(least, grid_budget_at(less, bits));
}

bool tiers_hold(const struct budgets *b, int64_t host, int64_t nvme)
{
    int64_t slots = nvme > 0 && b->host > 0 ? plan_staging(b->host) : 0;
    return nvme <= b->nvme && host <= max_i64(0, b->host - slots);
}

/* ---- selections ------------------------------------------------------------------------------ */

static void list_splits(const struct lowest *l, struct selection *s)
{
    int64_t base = l->base[TIER_HOST], grid_budget = base + s->few.tiers;
    s->splits[HOST_ALONE].host = NO_END;
    s->splits[NVME_ALONE].host = base;
    for (s->n = SOME_HOST; s->n < SPLITS; s->n++) {
        grid_budget = grid_budget_at(max_i64(grid_budget - 1, 0), HOST_BITS);
        int64_t host = grid_budget - (grid_budget > 0 ? plan_staging(grid_budget) : 0);
        if (host <= base)
            break;
        s->splits[s->n].host = host;
    }
}

/* Adds the selection below the last one. */
static int add_selection(struct lowest *l)
{
    const int64_t host = l->base[TIER_HOST], nvme = l->base[TIER_NVME];
    struct budgets b = {.device = INT64_MAX, .host = host, .nvme = nvme};
    struct selection s = {.n = 0};
    memcpy(b.tier_base, l->base, sizeof(l->base));
    if (ARRAY_RESERVE(&l->list, l->n))
        return CKPT_ENOMEM;
    if (l->alive == 0) {
        int rc = offload_fewest(l->x, &b, &s.few);
        if (rc)
            return rc;
        l->alive = s.few.needs;
    }
    b.host +=
        l->n ? grid_budget_below(l->list.data[l->n - 1].few.tiers, 0, SUM_BITS, l->n - 1) : NO_END;
    int rc = offload_fewest(l->x, &b, &s.few);
    if (rc)
        return rc;
    l->complete = s.few.needs == INT64_MAX || s.few.tiers == 0;
    list_splits(l, &s);
    if (s.few.needs < INT64_MAX)
        l->list.data[l->n++] = s;
    return 0;
}

/* Selection k, or NULL.  It moves when others are added. */
static int find_selection(struct lowest *l, int32_t k, struct selection **out)
{
    int rc = 0;
    while (!rc && k >= l->n && !l->complete)
        rc = add_selection(l);
    *out = !rc && k < l->n ? &l->list.data[k] : NULL;
    return rc;
}

/*
 * Whether selection k is placed for the fewest bytes: of selections in a row that need the same,
 * the first one leaves the fewest holes between addresses and the last one fits the smallest tiers.
 * *s is selection k, which may have moved.
 */
static int is_placed(struct lowest *l, int32_t k, bool *is, struct selection **s)
{
    struct selection *next;
    int rc = find_selection(l, k + 1, &next);
    *s = &l->list.data[k];
    int64_t needs = (*s)->few.needs;
    *is = k % OCTAVE == 0 || l->list.data[k - 1].few.needs != needs || !next ||
          next->few.needs != needs;
    return rc;
}

static int64_t bytes_of(const struct plan *p)
{
    return p->persistent + p->transient;
}

static int find_plan(struct lowest *l, struct selection *s, int i, bool serial,
                     const struct budgets *b, double limit, const struct plan **p);

/* Residences in serial steps are shorter than with copies beside the steps.  So addresses of the
 * latter will do, and may leave fewer holes. */
static int fill_holes(struct lowest *l, struct selection *s)
{
    const struct budgets all = {.device = INT64_MAX, .host = NO_END, .nvme = NO_END};
    int64_t goal = s->few.needs + s->few.needs / HOLES;
    int rc = 0;
    if (s->placed->n_steps > STEPS)
        return 0;
    for (int i = HOST_ALONE; i <= NVME_ALONE && !rc && bytes_of(s->placed) > goal; i++) {
        const struct plan *like;
        rc = find_plan(l, s, i, false, &all, INFINITY, &like);
        if (!rc && like)
            rc = offload_share(l->x, s->placed, like);
    }
    return rc;
}

/* Sets *p to the plan of split i if these tiers hold it and it takes less than limit seconds, or to
 * NULL. */
static int find_plan(struct lowest *l, struct selection *s, int i, bool serial,
                     const struct budgets *b, double limit, const struct plan **p)
{
    struct split *t = &s->splits[i];
    struct plan **made = &t->plan[serial];
    struct point *at = &t->unplaced[serial];
    struct budgets own = {.device = INT64_MAX, .host = t->host};
    int rc = 0;
    *p = NULL;
    if (i != HOST_ALONE && (b->nvme <= l->base[TIER_NVME] || t->host > b->host))
        return 0;
    memcpy(own.tier_base, l->base, sizeof(l->base));
    own.nvme = i == HOST_ALONE ? l->base[TIER_NVME] : NO_END;
    if (at->seconds == 0)
        rc = offload_fixed_unplaced(l->x, &own, &s->few, serial, at);
    bool holds = tiers_hold(b, l->base[TIER_HOST] + at->host, l->base[TIER_NVME] + at->nvme);
    if (!rc && !*made && at->seconds < limit && (holds || (serial && !s->placed)))
        rc = offload_fixed(l->x, &own, &s->few, serial, serial ? s->placed : NULL, made);
    if (serial && !rc && *made && !s->placed) {
        s->placed = *made;
        rc = fill_holes(l, s);
    }
    if (*made && (*made)->seconds < limit && holds)
        *p = *made;
    return rc;
}

/* The n splits of a selection from fast to slow: NVMe alone is the last. */
static int split_at(const struct selection *s, int i)
{
    return i == 0 ? HOST_ALONE : i == s->n - 1 ? NVME_ALONE : i + 1;
}

/* ---- answers --------------------------------------------------------------------------------- */

int lowest_plan(struct lowest *l, const struct budgets *b, const struct plan **found)
{
    struct selection *s;
    int rc = find_selection(l, 0, &s);
    *found = NULL;
    for (int32_t k = 0; !rc && s; rc = rc ? rc : find_selection(l, ++k, &s)) {
        const struct plan *p = NULL;
        bool placed;
        if (*found && l->alive - s->few.tiers >= bytes_of(*found))
            break;
        rc = is_placed(l, k, &placed, &s);
        if (rc || !placed || (*found && s->few.needs >= bytes_of(*found)))
            continue;
        for (int i = 0; i < s->n && !rc && !p; i++)
            rc = find_plan(l, s, split_at(s, i), true, b, INFINITY, &p);
        if (p && (!*found || bytes_of(p) < bytes_of(*found)))
            *found = p;
    }
    return rc;
}

int lowest_fastest(struct lowest *l, const struct budgets *b, int64_t device, double limit,
                   const struct plan **found)
{
    struct selection *s;
    int32_t n = 0;
    if (offload_fewest_seconds(l->x) >= limit)
        return 0;
    int rc = find_selection(l, n, &s);
    while (!rc && s && l->alive - s->few.tiers <= device)
        rc = find_selection(l, ++n, &s);
    /* Those that take less of the tiers are faster, and leave nothing to do for the others. */
    for (int32_t k = n - 1; k >= 0 && !rc; k--) {
        bool placed;
        rc = is_placed(l, k, &placed, &s);
        int last = placed ? 2 * s->n : s->n; /* then the splits in serial steps */
        for (int i = 0; i < last && !rc && s->few.needs <= device && s->few.least < limit; i++) {
            const struct plan *p;
            rc = find_plan(l, s, split_at(s, i % s->n), i >= s->n, b, limit, &p);
            if (rc || !p || bytes_of(p) > device)
                continue;
            limit = p->seconds;
            *found = p;
        }
    }
    return rc;
}

int lowest_needs(struct lowest *l, int tier, const struct budgets *b, int64_t device,
                 int64_t *bytes, const struct plan **found)
{
    struct selection *s;
    struct budgets all = *b;
    *(tier == TIER_NVME ? &all.nvme : &all.host) = NO_END;
    *found = NULL;
    *bytes = NO_END;
    int rc = find_selection(l, INT32_MAX, &s);
    for (int32_t k = l->n - 1; k >= 0 && !rc && !*found; k--) {
        s = &l->list.data[k];
        for (int i = 0; i < s->n && !rc && s->few.needs <= device; i++) {
            const struct plan *p;
            rc = find_plan(l, s, i, true, &all, INFINITY, &p);
            if (rc || !p || bytes_of(p) > device)
                continue;
            int64_t nvme = l->base[TIER_NVME] + p->nvme_bytes;
            int64_t host = l->base[TIER_HOST] + p->host_bytes;
            int64_t needs = tier == TIER_NVME ? nvme : nvme > 0 ? plan_host_for(host) : host;
            if (needs >= *bytes)
                continue;
            *bytes = needs;
            *found = p;
        }
    }
    return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

int lowest_new(struct offloader *x, const int64_t base[TIER_COUNT], struct lowest **out)
{
    struct lowest *l = *out = calloc(1, sizeof(*l));
    if (!l)
        return CKPT_ENOMEM;
    l->x = x;
    memcpy(l->base, base, sizeof(l->base));
    return 0;
}

void lowest_free(struct lowest *l)
{
    for (int32_t k = 0; l && k < l->n; k++)
        for (int i = 0; i < l->list.data[k].n; i++)
            for (int serial = 0; serial < 2; serial++)
                plan_free(l->list.data[k].splits[i].plan[serial]);
    if (l)
        free(l->list.data);
    free(l);
}
