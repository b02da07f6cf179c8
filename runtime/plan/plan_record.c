/* SPDX-License-Identifier: Apache-2.0 */
/* Building a record and queries about it; see record.h. */
#include <stdlib.h>
#include <string.h>
#include "plan/place/place.h"
#include "plan/plan_record.h"
#include "plan/pool.h"

/* ---- building -------------------------------------------------------------------------------- */

int plan_reserve(struct plan *p, int64_t residences, int64_t copies)
{
    struct residence *r =
        realloc(p->residences, (size_t)(p->n_residences + residences + 1) * sizeof(*r));
    p->residences = r ? r : p->residences;
    struct copy *c = realloc(p->copies, (size_t)(p->n_copies + copies + 1) * sizeof(*c));
    p->copies = c ? c : p->copies;
    return r && c ? 0 : CKPT_ENOMEM;
}

int32_t plan_add_residence(struct plan *p, struct residence r)
{
    p->residences[p->n_residences] = r;
    return p->n_residences++;
}

int plan_add_backings(const struct graph *g, struct plan *p)
{
    struct pool m = {NULL, false};
    bool *has = pool_array(&m, g->n_storages, sizeof(*has));
    int rc = has ? plan_reserve(p, g->n_storages, 0) : CKPT_ENOMEM;
    for (int32_t i = 0; i < p->n_residences && !rc; i++)
        if (plan_is_backing(g, p, &p->residences[i]))
            has[p->residences[i].storage] = true;
    for (int32_t s = 0; s < g->n_storages && !rc; s++) {
        const struct graph_storage *t = &g->storages[s];
        int8_t tier = graph_backing(t);
        if (t->persistent && !has[s])
            plan_add_residence(p, (struct residence){s, tier, 0, p->n_steps - 1,
                                                     tier == TIER_DEVICE ? -1 : t->backing_offset});
    }
    pool_free(&m);
    return rc ? rc : plan_sort(p);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* A copy with the queue that it runs on, which follows from its residences. */
struct queued {
    struct copy c;
    int queue;
};

static int by_queue(const void *a, const void *b)
{
    const struct queued *x = a, *y = b;
    if (x->queue != y->queue)
        return x->queue < y->queue ? -1 : 1;
    if (x->c.after != y->c.after)
        return x->c.after < y->c.after ? -1 : 1;
    if (x->c.start != y->c.start)
        return x->c.start < y->c.start ? -1 : 1;
    if (x->c.before != y->c.before)
        return x->c.before < y->c.before ? -1 : 1;
    return (x->c.from > y->c.from) - (x->c.from < y->c.from);
}

/* Sorts by tier, then by the first step, then by storage. */
static void sort_residences(struct plan *p, struct place_key *keys, struct residence *before,
                            int32_t *now)
{
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        before[i] = *r;
        keys[i] = (struct place_key){r->tier * 0x1p31 + r->first, r->storage, i};
    }
    place_sort_keys(keys, p->n_residences);
    for (int32_t i = 0; i < p->n_residences; i++) {
        p->residences[i] = before[keys[i].item];
        now[keys[i].item] = i;
    }
    for (int32_t i = 0; i < p->n_copies; i++) {
        p->copies[i].from = now[p->copies[i].from];
        p->copies[i].to = now[p->copies[i].to];
    }
}

static void sort_copies(struct plan *p, struct queued *sorted)
{
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        bool out = copy_is_out(p->residences, c);
        sorted[i] = (struct queued){*c, 2 * copy_tier(p->residences, c) + !out};
    }
    qsort(sorted, (size_t)p->n_copies, sizeof(*sorted), by_queue);
    for (int32_t i = 0; i < p->n_copies; i++)
        p->copies[i] = sorted[i].c;
}

int plan_sort(struct plan *p)
{
    struct pool m = {NULL, false};
    struct place_key *keys = pool_array(&m, p->n_residences, sizeof(*keys));
    struct residence *before = pool_array(&m, p->n_residences, sizeof(*before));
    struct queued *copies = pool_array(&m, p->n_copies, sizeof(*copies));
    int32_t *now = pool_filled(&m, p->n_residences, 0);
    int rc = pool_status(&m);
    if (!rc) {
        sort_residences(p, keys, before, now);
        sort_copies(p, copies);
    }
    pool_free(&m);
    return rc;
}

/* ---- the device ------------------------------------------------------------------------------ */

int64_t residence_bytes(const struct graph *g, const struct plan *p, const struct residence *r)
{
    if (r->storage >= 0)
        return g->storages[r->storage].bytes;
    return g->ops[p->steps[r->first].op].workspace;
}

bool plan_is_placed(const struct graph *g, const struct plan *p, const struct residence *r)
{
    return r->tier == TIER_DEVICE && !plan_is_backing(g, p, r);
}

void plan_count_alive(const struct graph *g, const struct plan *p, int64_t *alive)
{
    memset(alive, 0, ((size_t)p->n_steps + 1) * sizeof(*alive));
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        int64_t bytes = plan_is_placed(g, p, r) ? residence_bytes(g, p, r) : 0;
        bool round = r->last >= p->n_steps;
        alive[r->first] += bytes;
        alive[0] += round ? bytes : 0;
        alive[r->last + 1 - (round ? p->n_steps : 0)] -= bytes;
    }
    for (int32_t k = 0; k < p->n_steps; k++)
        alive[k + 1] += alive[k];
}

int plan_measure(const struct graph *g, struct plan *p)
{
    int64_t *alive = malloc(((size_t)p->n_steps + 1) * sizeof(*alive));
    if (!alive)
        return CKPT_ENOMEM;
    plan_count_alive(g, p, alive);
    p->load = p->peak_step = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        if (alive[k] > p->load) {
            p->load = alive[k];
            p->peak_step = k;
        }
    free(alive);
    return 0;
}

/* Whether another program has an address for a residence that wraps into the next step. */
static bool has_crossing(const struct graph *g, const struct plan *p, const struct residence *r)
{
    return r->storage >= 0 && r->last >= p->n_steps && g->storages[r->storage].crosses;
}

static bool overlap(const struct place_item *a, const struct place_item *b)
{
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Gives item n the offset of another program; false if it overlaps a fixed item before it. */
static bool fix_item(struct place_item *items, const bool *fixed, int32_t n, int64_t offset)
{
    items[n].offset = offset;
    for (int32_t i = 0; i < n; i++)
        if (fixed[i] && overlap(&items[i], &items[n]))
            return false;
    return true;
}

/* Lists the placed residences as items; returns how many. */
static int32_t list_items(const struct graph *g, const struct plan *p, struct place_item *items)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (plan_is_placed(g, p, r))
            items[n++] = (struct place_item){r->first, r->last, residence_bytes(g, p, r), 0};
    }
    return n;
}

/* Stores the offsets of items, which are the placed residences in their order. */
static void store_offsets(const struct graph *g, struct plan *p, const struct place_item *items)
{
    for (int32_t i = 0; i < p->n_residences; i++)
        if (plan_is_placed(g, p, &p->residences[i]))
            p->residences[i].offset = items++->offset;
}

int plan_set_offsets(const struct graph *g, struct plan *p, int64_t goal, int64_t most, bool common)
{
    struct pool m = {NULL, false};
    struct place_item *items = pool_array(&m, p->n_residences, sizeof(*items));
    bool *fixed = pool_array(&m, p->n_residences, sizeof(*fixed));
    int rc = pool_status(&m);
    int32_t n = rc ? 0 : list_items(g, p, items);
    for (int32_t i = 0, k = -1; i < p->n_residences && common && !rc; i++) {
        const struct residence *r = &p->residences[i];
        k += plan_is_placed(g, p, r);
        if (plan_is_placed(g, p, r) && has_crossing(g, p, r))
            fixed[k] = fix_item(items, fixed, k, g->storages[r->storage].crossing);
    }
    if (!rc)
        rc = place_cycle(items, n, fixed, p->n_steps, goal, most, &p->transient);
    if (!rc)
        store_offsets(g, p, items);
    pool_free(&m);
    return rc;
}

int plan_tighten(const struct graph *g, struct plan *p, int64_t goal, int64_t work)
{
    struct place_request q = {.capacity = goal > p->load ? goal : 0, .work = work};
    struct place_result r = {.peak = INT64_MAX};
    struct pool m = {NULL, false};
    struct place_item *items = pool_array(&m, p->n_residences, sizeof(*items));
    if (!items || p->transient <= goal) {
        pool_free(&m);
        return items ? 0 : CKPT_ENOMEM;
    }
    int rc = plan_place(items, list_items(g, p, items), &q, &r);
    if (!rc && r.peak < p->transient) {
        store_offsets(g, p, items);
        p->transient = r.peak;
    }
    pool_free(&m);
    return rc;
}

/* The residences of a plan on the device, those of each storage or workspace in a list. */
struct on_device {
    int32_t *first, *next; /* indices; -1: none */
};

static int32_t *list_of(const struct on_device *d, const struct graph *g, int32_t storage)
{
    return &d->first[storage >= 0 ? storage : g->n_storages - 1 - storage];
}

static int list_device(const struct graph *g, const struct plan *p, struct pool *m,
                       struct on_device *d)
{
    d->first = pool_filled(m, (int64_t)g->n_storages + p->n_steps, -1);
    d->next = pool_filled(m, p->n_residences, -1);
    for (int32_t i = 0; i < p->n_residences && !m->failed; i++)
        if (plan_is_placed(g, p, &p->residences[i])) {
            d->next[i] = *list_of(d, g, p->residences[i].storage);
            *list_of(d, g, p->residences[i].storage) = i;
        }
    return pool_status(m);
}

/* Whether a residence lies within another one, which may run into the next step. */
static bool lies_within(const struct residence *a, const struct residence *b, int32_t steps)
{
    return (b->first <= a->first && a->last <= b->last) || a->last + steps <= b->last;
}

int plan_share_offsets(const struct graph *g, struct plan *p, const struct plan *like)
{
    struct pool m = {NULL, false};
    struct on_device d;
    struct place_item *items = pool_array(&m, p->n_residences, sizeof(*items));
    int rc = list_device(g, like, &m, &d);
    int64_t end = p->n_steps == like->n_steps ? 0 : INT64_MAX;
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_residences && !rc; i++) {
        const struct residence *r = &p->residences[i];
        if (!plan_is_placed(g, p, r))
            continue;
        int32_t k = *list_of(&d, g, r->storage);
        while (k >= 0 && !lies_within(r, &like->residences[k], p->n_steps))
            k = d.next[k];
        items[n].offset = k >= 0 ? like->residences[k].offset : INT64_MAX / 2;
        end = max_i64(end, items[n++].offset + residence_bytes(g, p, r));
    }
    if (!rc && end < p->transient) {
        store_offsets(g, p, items);
        p->transient = end;
    }
    pool_free(&m);
    return rc;
}

/* ---- queries --------------------------------------------------------------------------------- */

bool plan_is_backing(const struct graph *g, const struct plan *p, const struct residence *r)
{
    return r->storage >= 0 && g->storages[r->storage].persistent && r->first == 0 &&
           r->last == p->n_steps - 1 && (r->tier != TIER_DEVICE || r->offset == -1);
}

int64_t plan_host_for(int64_t bytes)
{
    int64_t host = bytes + 1;
    while (host - plan_staging(host) < bytes)
        host = bytes + plan_staging(host);
    return host;
}

bool plan_uses_host(const struct plan *p)
{
    for (int32_t k = p->n_body; k < p->n_steps; k++)
        if (p->steps[k].by != BY_DEVICE)
            return true;
    return false;
}
