/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Assigns tiers and tier addresses.  The host is the faster tier, so it gets first the storages
 * that are copied most often: activations and parameters, then the state that only the update uses.
 * State for which the host has no room goes to NVMe, spread over the update so that both tiers are
 * busy all through it.  A persistent storage has one address for good.  Activations lie above all
 * persistent storages; they share addresses with activations of other times and other programs.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

static int64_t rounded(int tier, int64_t bytes)
{
    return tier == TIER_NVME ? round_up(bytes, PLAN_NVME_ALIGN) : bytes;
}

/* Free bytes of a tier; 0 if the machine cannot copy to it. */
static int64_t room_in(const struct transfer *x, int tier)
{
    const struct machine *m = x->m;
    int64_t all = tier == TIER_NVME ? x->b->nvme : x->b->host;
    bool works = m->d2h_both > 0 && m->h2d_both > 0;
    if (tier == TIER_NVME)
        works = works && m->nvme_write > 0 && m->nvme_read > 0;
    return works ? all - x->b->tier_base[tier] - x->tier[tier] : 0;
}

#define NO_TIER (-1)

/* The fastest tier with this many free bytes, or NO_TIER if none has room. */
static int tier_for(const struct transfer *x, int64_t bytes)
{
    if (bytes <= room_in(x, TIER_HOST))
        return TIER_HOST;
    if (rounded(TIER_NVME, bytes) <= room_in(x, TIER_NVME))
        return TIER_NVME;
    return NO_TIER;
}

/* Places the activations of one tier above its used bytes; an unplaced plan counts the bytes alive
 * only. */
static int place_tier(struct transfer *x, int tier, bool unplaced, struct place_item *items,
                      bool *fits)
{
    const struct ranking *r = &x->activations;
    int64_t load = 0, peak, base = x->b->tier_base[tier] + x->tier[tier];
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        const struct idle_gap *a = &x->list[r->items[i]];
        if (a->taken && a->offload.tier == tier)
            items[n++] = (struct place_item){a->out_step, a->use_step, rounded(tier, a->bytes), 0};
    }
    int rc = place_load(items, n, &load);
    peak = load;
    if (!rc && !unplaced)
        rc = place_items(items, n, load, &peak);
    *fits &= peak <= room_in(x, tier);
    for (int32_t i = 0, j = 0; i < r->n; i++) {
        struct idle_gap *a = &x->list[r->items[i]];
        if (a->taken && a->offload.tier == tier)
            a->offload.tier_offset = base + items[j++].offset;
    }
    x->tier[tier] += peak;
    return rc;
}

/* Activations go to the host in the order of their copies out, as long as they fit there without
 * sharing addresses; the others go to NVMe. */
static int assign_activations(struct transfer *x, bool unplaced, bool *fits)
{
    const struct ranking *r = &x->activations;
    struct place_item *items = malloc(((size_t)r->n + 1) * sizeof(*items));
    int64_t some = 0;
    if (!items)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < r->n; i++) {
        struct idle_gap *a = &x->list[r->items[i]];
        if (!a->taken)
            continue;
        bool host = some + a->bytes <= room_in(x, TIER_HOST);
        a->offload.tier = host ? TIER_HOST : TIER_NVME;
        some += host ? a->bytes : 0;
    }
    int rc = place_tier(x, TIER_HOST, unplaced, items, fits);
    if (!rc)
        rc = place_tier(x, TIER_NVME, unplaced, items, fits);
    free(items);
    return rc;
}

/* One pass over the persistent storages in the order of their numbers. */
struct backings {
    bool states;  /* the pass over state that only the update uses; else over parameters */
    double share; /* the share of these bytes that goes to the host */
    double owed;  /* bytes that the host should have got so far by that share, but did not */
    int64_t kept; /* host bytes reserved for storages that must be there */
};

/* Whether the host reads a storage: its update runs there, too. */
static bool must_be_on_host(const struct transfer *x, int32_t s)
{
    return x->by[s] != BY_DEVICE;
}

/* Whether gap i, the first one of its storage, is of an offloaded persistent one of this pass. */
static bool finds_backing(const struct transfer *x, const struct backings *h, int32_t i)
{
    const struct idle_gap *a = &x->list[i];
    if (a->residence >= 0 || a->state != h->states)
        return false;
    bool offloaded = x->by[a->storage] == BY_HOST;
    for (int32_t end = gaps_end(x, i); i < end && !offloaded; i++)
        offloaded = x->list[i].taken;
    return offloaded;
}

static void share_states(const struct transfer *x, struct backings *h)
{
    double all = 0;
    h->kept = hosted_any(x) ? x->g->storages[x->clip].bytes + x->copied_bytes : 0;
    for (int32_t i = 0; i < x->n; i = gaps_end(x, i))
        if (finds_backing(x, h, i) && x->g->storages[x->list[i].storage].backing == BACKING_ANY) {
            bool must = must_be_on_host(x, x->list[i].storage);
            h->kept += must ? x->list[i].bytes : 0;
            all += must ? 0 : (double)x->list[i].bytes;
        }
    double room = (double)(room_in(x, TIER_HOST) - h->kept);
    if (all > room && room_in(x, TIER_NVME) > 0)
        h->share = room > 0 ? room / all : 0;
}

static int next_tier(const struct transfer *x, struct backings *h, int64_t bytes)
{
    h->owed += h->share * (double)bytes;
    bool host = h->share == 1 ||
                (h->owed >= 0.5 * (double)bytes && bytes <= room_in(x, TIER_HOST) - h->kept);
    int tier = host ? tier_for(x, bytes) : TIER_NVME;
    if (tier == TIER_NVME && rounded(tier, bytes) > room_in(x, tier))
        tier = tier_for(x, bytes);
    h->owed -= tier == TIER_HOST ? (double)bytes : 0;
    return tier;
}

/* Assigns one tier and address to all idle gaps of a persistent storage. */
static void assign_backing(struct transfer *x, struct backings *h, int32_t i, bool *fits)
{
    const struct idle_gap *a = &x->list[i];
    const struct graph_storage *t = &x->g->storages[a->storage];
    bool must = must_be_on_host(x, a->storage);
    int tier = t->backing != BACKING_ANY ? graph_backing(t)
               : must                    ? tier_for(x, a->bytes)
                                         : next_tier(x, h, a->bytes);
    if (must && tier != TIER_HOST)
        tier = NO_TIER;
    int64_t offset = t->backing_offset;
    if (tier == NO_TIER) {
        *fits = false;
        return;
    }
    if (t->backing == BACKING_ANY) {
        h->kept -= must && h->states ? a->bytes : 0;
        int64_t *used = &x->tier[tier];
        offset = x->b->tier_base[tier] + *used;
        *used += rounded(tier, a->bytes);
    }
    for (int32_t j = i; j < x->n && x->list[j].storage == a->storage; j++) {
        x->list[j].offload.tier = (int8_t)tier;
        x->list[j].offload.tier_offset = offset;
    }
}

/* Whether the host has room for all taken gaps without sharing addresses, and no storage has its
 * backing in a tier already: then all go to the host. */
static bool host_takes_all(struct transfer *x)
{
    int64_t bytes = x->hosted_bytes + x->copied_bytes;
    bytes += hosted_any(x) ? x->g->storages[x->clip].bytes : 0;
    bool any_backing = true;
    for (int32_t i = 0; i < x->n; i++) {
        struct idle_gap *a = &x->list[i];
        any_backing &= a->residence >= 0 || x->g->storages[a->storage].backing == BACKING_ANY;
        bytes += a->taken ? a->bytes : 0;
        a->offload.tier = TIER_HOST;
    }
    return any_backing && bytes <= room_in(x, TIER_HOST);
}

/* Moves backing residences below the activations, which were assigned first and take activations[t]
 * bytes of tier t.  The clip values move, too: all programs then have them at one address. */
static void put_backings_first(struct transfer *x, const int64_t activations[TIER_COUNT])
{
    for (int32_t i = 0; i < x->n; i++) {
        struct idle_gap *a = &x->list[i];
        int t = a->offload.tier;
        if (a->residence >= 0)
            a->offload.tier_offset += x->tier[t] - activations[t];
        else if (x->g->storages[a->storage].backing == BACKING_ANY)
            a->offload.tier_offset -= activations[t];
    }
}

/* Assigns addresses to what the host has a copy of all the time: clip values and gradients. */
static void assign_copies(struct transfer *x, int64_t base, bool *fits)
{
    const int64_t bytes = x->g->storages[x->clip].bytes;
    *fits &= bytes + x->copied_bytes <= room_in(x, TIER_HOST);
    x->clip_offset = base + x->tier[TIER_HOST];
    x->tier[TIER_HOST] += bytes;
    for (int32_t i = 0; i < x->n_groups && x->repeated; i++) {
        struct update_group *b = &x->groups[i];
        b->host_offset = base + x->tier[TIER_HOST];
        x->tier[TIER_HOST] += b->by == BY_BOTH ? x->g->storages[b->storage].bytes : 0;
    }
}

int transfer_assign(struct transfer *x, bool unplaced, bool *fits)
{
    int64_t activations[TIER_COUNT];
    *fits = true;
    x->tier[TIER_HOST] = x->tier[TIER_NVME] = 0;
    if (unplaced && host_takes_all(x))
        return 0;
    int rc = assign_activations(x, unplaced, fits);
    memcpy(activations, x->tier, sizeof(activations));
    for (int turn = 0; turn < 2 && !rc; turn++) {
        struct backings h = {.states = turn > 0, .share = 1};
        if (h.states)
            share_states(x, &h);
        for (int32_t i = 0; i < x->n; i = gaps_end(x, i))
            if (finds_backing(x, &h, i))
                assign_backing(x, &h, i, fits);
    }
    if (hosted_any(x))
        assign_copies(x, x->b->tier_base[TIER_HOST] - activations[TIER_HOST], fits);
    put_backings_first(x, activations);
    return rc;
}
