/* SPDX-License-Identifier: Apache-2.0 */
/*
 * No two residences of a tier share bytes at the same step, and sizes are what the plan says.
 *
 * A sweep over addresses: the residences that cover the current address must be disjoint in steps.
 * A set has the steps at which they begin.  Of those that begin before a new one ends, the latest
 * one ends last, so the new one is compared with that alone.  A residence that runs into the next
 * step enters as two pieces.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/check/check.h"

/* Whether the plan sets the address of a residence: all but backing residences on the device. */
static bool is_placed(const struct residence *r)
{
    return r->tier != TIER_DEVICE || r->offset != -1;
}

/* ---- the sweep ------------------------------------------------------------------------------- */

/* Steps of a residence. */
struct piece {
    int32_t residence, first, last;
};

/* A piece begins or ends at an address. */
struct edge {
    int64_t at;
    bool begins;
    struct piece piece;
};

/* A set of steps: a bit for each step, and a bit for each of these words that is not 0.  In a long
 * chain thousands of pieces cover one address, so the set must not be a sorted list. */
struct steps {
    uint64_t *has, *words;
};

struct sweep {
    struct checker *c;
    struct edge *edges;
    int32_t n;
    struct steps begins; /* of the pieces at the current address, which are disjoint */
    struct piece *here;  /* per step: the piece that begins there */
};

static int by_address(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->begins != y->begins)
        return x->begins ? 1 : -1; /* ends come first */
    return (x->piece.residence > y->piece.residence) - (x->piece.residence < y->piece.residence);
}

/* The last bit of a list at or before bit i, or -1. */
static int32_t last_bit(const uint64_t *list, int32_t i)
{
    uint64_t word = i < 0 ? 0 : list[i / 64] & UINT64_MAX >> (63 - i % 64);
    i /= 64;
    while (!word && i > 0)
        word = list[--i];
    return word ? 64 * i + 63 - __builtin_clzll(word) : -1;
}

/* The last step of a set at or before k, or -1. */
static int32_t last_step(const struct steps *s, int32_t k)
{
    uint64_t word = s->has[k / 64] & UINT64_MAX >> (63 - k % 64);
    int32_t i = word ? k / 64 : last_bit(s->words, k / 64 - 1);
    return i < 0 ? -1 : last_bit(s->has, i < k / 64 ? 64 * i + 63 : k);
}

static void set_bit(uint64_t *list, int32_t i, bool in)
{
    uint64_t bit = UINT64_C(1) << i % 64;
    list[i / 64] = in ? list[i / 64] | bit : list[i / 64] & ~bit;
}

static void set_step(struct steps *s, int32_t k, bool in)
{
    set_bit(s->has, k, in);
    set_bit(s->words, k / 64, s->has[k / 64] != 0);
}

static int enter(struct sweep *s, const struct piece *piece)
{
    const struct residence *r = s->c->p->residences;
    int32_t k = last_step(&s->begins, piece->last);
    if (k >= 0 && s->here[k].last >= piece->first)
        return violation(s->c, "residences %d (%.100s) and %d (%.100s) overlap at step %d",
                         (int)s->here[k].residence,
                         check_storage(s->c, r[s->here[k].residence].storage),
                         (int)piece->residence, check_storage(s->c, r[piece->residence].storage),
                         (int)max_i64(k, piece->first));
    s->here[piece->first] = *piece;
    set_step(&s->begins, piece->first, true);
    return 0;
}

static void add_piece(struct sweep *s, struct piece piece, int64_t unit)
{
    const struct residence *r = &s->c->p->residences[piece.residence];
    int64_t end = r->offset + round_up(check_bytes(s->c, r), unit);
    s->edges[s->n++] = (struct edge){r->offset, true, piece};
    s->edges[s->n++] = (struct edge){end, false, piece};
}

static int sweep_tier(struct sweep *s, int tier, int64_t unit)
{
    const struct plan *p = s->c->p;
    int32_t steps = p->n_steps;
    int rc = 0;
    s->n = 0;
    for (int32_t n = 0; n < p->n_residences; n++) {
        const struct residence *r = &p->residences[n];
        bool next = r->last >= steps;
        if (r->tier != tier || !is_placed(r))
            continue;
        add_piece(s, (struct piece){n, r->first, next ? steps - 1 : r->last}, unit);
        if (next)
            add_piece(s, (struct piece){n, 0, r->last - steps}, unit);
    }
    qsort(s->edges, (size_t)s->n, sizeof(*s->edges), by_address);
    for (int32_t i = 0; i < s->n && !rc; i++)
        if (s->edges[i].begins)
            rc = enter(s, &s->edges[i].piece);
        else
            set_step(&s->begins, s->edges[i].piece.first, false);
    return rc;
}

/* ---- bounds ---------------------------------------------------------------------------------- */

struct bounds {
    const char *name;
    int64_t base, bytes, budget, unit;
};

static struct bounds bounds_of(const struct plan *p, int tier)
{
    const struct budgets *b = &p->budgets;
    if (tier == TIER_DEVICE)
        return (struct bounds){"device", 0, p->transient, INT64_MAX, CKPT_ALIGN};
    if (tier == TIER_HOST)
        return (struct bounds){"host", b->tier_base[tier], p->host_bytes, b->host, CKPT_ALIGN};
    return (struct bounds){"NVMe", b->tier_base[tier], p->nvme_bytes, b->nvme, PLAN_NVME_ALIGN};
}

/* Bytes that another program of the context keeps in a tier lie below the bytes of this plan. */
static int check_place(struct checker *c, int32_t n)
{
    const struct residence *r = &c->p->residences[n];
    struct bounds b = bounds_of(c->p, r->tier);
    bool elsewhere = r->tier != TIER_DEVICE && r->storage >= 0 &&
                     graph_backing(&c->g->storages[r->storage]) == r->tier;
    int64_t from = elsewhere ? 0 : b.base, to = elsewhere ? b.base : b.base + b.bytes;
    int64_t bytes = round_up(check_bytes(c, r), b.unit);
    if (!is_placed(r) && c->backing[r->storage] == n)
        return 0;
    if (r->offset < from || r->offset > to - bytes)
        return violation(c,
                         "residence %d: %lld bytes of %.200s at %lld leave the %lld of the %s tier",
                         (int)n, (long long)bytes, check_storage(c, r->storage),
                         (long long)r->offset, (long long)(to - from), b.name);
    if (r->offset % b.unit)
        return violation(c, "residence %d: %.200s lies at %lld, no multiple of %lld", (int)n,
                         check_storage(c, r->storage), (long long)r->offset, (long long)b.unit);
    return 0;
}

static int check_tier(struct checker *c, int tier)
{
    struct bounds b = bounds_of(c->p, tier);
    if (b.base < 0 || b.bytes < 0 || (b.bytes > 0 && b.bytes > b.budget - b.base))
        return violation(c, "%lld bytes in the %s tier are over its budget of %lld",
                         (long long)(b.base + b.bytes), b.name, (long long)b.budget);
    return 0;
}

/* The slots between device and NVMe are inside the host budget.  A plan from a file may count more
 * bytes for them than they take. */
static int check_staging(struct checker *c)
{
    const struct plan *p = c->p;
    int64_t host = p->budgets.host, slots = plan_stages(p) ? plan_staging(host) : 0,
            needs = p->budgets.tier_base[TIER_HOST] + p->host_bytes + slots;
    if (p->staging_bytes < slots)
        return violation(c, "the plan counts %lld bytes for staging, not %lld",
                         (long long)p->staging_bytes, (long long)slots);
    if (slots && host > 0 && needs > host)
        return violation(c,
                         "the plan needs %lld bytes of host memory, with %lld to stage transfers "
                         "of NVMe: %lld more than its budget of %lld",
                         (long long)needs, (long long)slots, (long long)(needs - host),
                         (long long)host);
    return 0;
}

/* ---- totals ---------------------------------------------------------------------------------- */

static int check_load(struct checker *c)
{
    const struct plan *p = c->p;
    int64_t now = 0, load = 0, at_peak = 0;
    int64_t *change = pool_array(&c->memory, (int64_t)p->n_steps + 1, sizeof(*change));
    if (!change)
        return CKPT_ENOMEM;
    for (int32_t n = 0; n < p->n_residences; n++) {
        const struct residence *r = &p->residences[n];
        int64_t bytes = check_bytes(c, r);
        if (r->tier != TIER_DEVICE || !is_placed(r))
            continue;
        change[r->first] += bytes;
        if (r->last >= p->n_steps) { /* it is alive at step 0, too */
            change[0] += bytes;
            change[r->last - p->n_steps + 1] -= bytes;
        } else {
            change[r->last + 1] -= bytes;
        }
    }
    for (int32_t k = 0; k < p->n_steps; k++) {
        now += change[k];
        load = max_i64(load, now);
        at_peak = k == p->peak_step ? now : at_peak;
    }
    if (load != p->load || at_peak != load)
        return violation(c, "the most bytes alive at one step are %lld, the plan says %lld",
                         (long long)load, (long long)p->load);
    return 0;
}

static int check_sums(struct checker *c)
{
    const struct plan *p = c->p;
    int64_t persistent = 0;
    for (int32_t n = 0; n < p->n_residences; n++)
        if (!is_placed(&p->residences[n]))
            persistent += check_bytes(c, &p->residences[n]);
    if (p->persistent != persistent)
        return violation(c, "persistent storages take %lld bytes, the plan says %lld",
                         (long long)persistent, (long long)p->persistent);
    if (p->transient > p->budgets.device || p->persistent > p->budgets.device - p->transient)
        return violation(c, "the peak of %lld bytes is over the budget of %lld",
                         (long long)(p->persistent + p->transient), (long long)p->budgets.device);
    return 0;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int check_places(struct checker *c)
{
    int rc = 0;
    for (int tier = TIER_DEVICE; tier < TIER_COUNT && !rc; tier++)
        rc = check_tier(c, tier);
    if (!rc)
        rc = check_staging(c);
    for (int32_t n = 0; n < c->p->n_residences && !rc; n++)
        rc = check_place(c, n);
    return rc ? rc : check_sums(c);
}

static int check_overlap(struct checker *c)
{
    struct sweep s = {.c = c};
    POOL_ARRAY(&c->memory, s.edges, 4 * (int64_t)c->p->n_residences);
    POOL_ARRAY(&c->memory, s.here, c->p->n_steps);
    POOL_ARRAY(&c->memory, s.begins.has, c->p->n_steps / 64 + 1);
    POOL_ARRAY(&c->memory, s.begins.words, c->p->n_steps / 4096 + 1);
    int rc = pool_status(&c->memory);
    for (int tier = TIER_DEVICE; tier < TIER_COUNT && !rc; tier++)
        rc = sweep_tier(&s, tier, tier == TIER_NVME ? PLAN_NVME_ALIGN : CKPT_ALIGN);
    return rc;
}

int check_space(struct checker *c)
{
    int rc = check_places(c);
    if (!rc)
        rc = check_load(c);
    return rc ? rc : check_overlap(c);
}
