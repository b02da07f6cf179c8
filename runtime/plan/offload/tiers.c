/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in which tier everything lies.  The host is the faster tier, so it takes first what is
 * copied most often: activations and parameters, then what the update alone uses.  Of that, what
 * the host has no room for is spread over the update, so that both tiers work all through it.  A
 * persistent storage has one place, before all activations of its program; these share theirs with
 * others that are there at other times, and with those of other programs.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

static int64_t rounded(enum fate tier, int64_t bytes)
{
    return tier == FATE_PARK_NVME ? round_up(bytes, PLAN_NVME_ALIGN) : bytes;
}

static int index_of(enum fate tier)
{
    return tier == FATE_PARK_NVME ? TIER_NVME : TIER_HOST;
}

/* Bytes of a tier that are still to be had. */
static int64_t room_in(const struct transfer *x, enum fate tier)
{
    int i = index_of(tier);
    const struct machine *m = x->m;
    int64_t all = i == TIER_NVME ? x->b->nvme : x->b->host;
    bool works = m->d2h_both > 0 && m->h2d_both > 0;
    if (i == TIER_NVME)
        works = works && m->nvme_write > 0 && m->nvme_read > 0;
    return works ? all - x->b->tier_base[i] - x->tier[i] : 0;
}

/* The tier for so many bytes, or FATE_STAY if none has room. */
static enum fate tier_for(const struct transfer *x, int64_t bytes)
{
    if (bytes <= room_in(x, FATE_PARK_HOST))
        return FATE_PARK_HOST;
    if (rounded(FATE_PARK_NVME, bytes) <= room_in(x, FATE_PARK_NVME))
        return FATE_PARK_NVME;
    return FATE_STAY;
}

/* Places the activations of one tier behind what is there; of a sketch the bytes alive count. */
static int place_tier(struct transfer *x, enum fate tier, bool sketch, struct place_item *items,
                      bool *fits)
{
    const struct ranking *r = &x->activations;
    int64_t load = 0, peak, base = x->b->tier_base[index_of(tier)] + x->tier[index_of(tier)];
    int32_t n = 0;
    for (int32_t i = 0; i < r->n; i++) {
        const struct idle_gap *a = &x->list[r->items[i]];
        if (a->taken && a->park.tier == tier)
            items[n++] = (struct place_item){a->out_step, a->use_step, rounded(tier, a->bytes), 0};
    }
    int rc = place_load(items, n, &load);
    peak = load;
    if (!rc && !sketch)
        rc = place_items(items, n, load, &peak);
    *fits &= peak <= room_in(x, tier);
    for (int32_t i = 0, j = 0; i < r->n; i++) {
        struct idle_gap *a = &x->list[r->items[i]];
        if (a->taken && a->park.tier == tier)
            a->park.tier_offset = base + items[j++].offset;
    }
    x->tier[index_of(tier)] += peak;
    return rc;
}

/* Activations: the host, in the order in which they go, until it would overflow without sharing. */
static int assign_activations(struct transfer *x, bool sketch, bool *fits)
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
        bool host = some + a->bytes <= room_in(x, FATE_PARK_HOST);
        a->park.tier = host ? FATE_PARK_HOST : FATE_PARK_NVME;
        some += host ? a->bytes : 0;
    }
    int rc = place_tier(x, FATE_PARK_HOST, sketch, items, fits);
    if (!rc)
        rc = place_tier(x, FATE_PARK_NVME, sketch, items, fits);
    free(items);
    return rc;
}

/* Persistent storages in the order of their numbers; of some the host takes a share alone. */
struct homes {
    bool states;  /* those that only the update uses */
    double share; /* of them goes to the host */
    double owed;  /* bytes of that share that went elsewhere so far */
    int64_t kept; /* bytes of the host for those that must go there */
};

/* Whether the first idle gap of a storage says that all of it is parked, in this turn. */
static bool finds_home(const struct transfer *x, const struct homes *h, int32_t i)
{
    const struct idle_gap *a = &x->list[i];
    bool first = i == 0 || x->list[i - 1].storage != a->storage;
    bool parked = a->taken || x->host_resident[a->storage];
    for (int32_t j = i + 1; j < x->n && x->list[j].storage == a->storage; j++)
        parked |= x->list[j].taken;
    return a->residence < 0 && first && parked && a->state == h->states;
}

static void share_states(const struct transfer *x, struct homes *h)
{
    double all = 0;
    h->kept = x->hosted ? x->g->storages[x->clip].bytes : 0;
    for (int32_t i = 0; i < x->n; i++)
        if (finds_home(x, h, i) && x->g->storages[x->list[i].storage].home == HOME_ANY) {
            bool must = x->host_resident[x->list[i].storage];
            h->kept += must ? x->list[i].bytes : 0;
            all += must ? 0 : (double)x->list[i].bytes;
        }
    double room = (double)(room_in(x, FATE_PARK_HOST) - h->kept);
    if (all > room && room_in(x, FATE_PARK_NVME) > 0)
        h->share = room > 0 ? room / all : 0;
}

static enum fate next_tier(const struct transfer *x, struct homes *h, int64_t bytes)
{
    h->owed += h->share * (double)bytes;
    bool host = h->share == 1 ||
                (h->owed >= 0.5 * (double)bytes && bytes <= room_in(x, FATE_PARK_HOST) - h->kept);
    enum fate tier = host ? tier_for(x, bytes) : FATE_PARK_NVME;
    if (tier == FATE_PARK_NVME && rounded(tier, bytes) > room_in(x, tier))
        tier = tier_for(x, bytes);
    h->owed -= tier == FATE_PARK_HOST ? (double)bytes : 0;
    return tier;
}

/* A persistent storage, all its idle gaps alike. */
static void assign_home(struct transfer *x, struct homes *h, int32_t i, bool *fits)
{
    const struct idle_gap *a = &x->list[i];
    const struct graph_storage *t = &x->g->storages[a->storage];
    bool must = x->host_resident[a->storage];
    enum fate tier = t->home == HOME_HOST   ? FATE_PARK_HOST
                     : t->home == HOME_NVME ? FATE_PARK_NVME
                     : must                 ? tier_for(x, a->bytes)
                                            : next_tier(x, h, a->bytes);
    if (must && tier != FATE_PARK_HOST)
        tier = FATE_STAY;
    int64_t offset = t->home_offset;
    if (tier == FATE_STAY) {
        *fits = false;
        return;
    }
    if (t->home == HOME_ANY) {
        h->kept -= must && h->states ? a->bytes : 0;
        int64_t *used = &x->tier[index_of(tier)];
        offset = x->b->tier_base[index_of(tier)] + *used;
        *used += rounded(tier, a->bytes);
    }
    for (int32_t j = i; j < x->n && x->list[j].storage == a->storage; j++) {
        x->list[j].park.tier = tier;
        x->list[j].park.tier_offset = offset;
    }
}

/* Whether the host has room for all that is taken, none of it shared, and no other tier has a part
 * in it: then all of it goes there. */
static bool host_takes_all(struct transfer *x)
{
    int64_t bytes = x->hosted ? x->hosted_bytes + x->g->storages[x->clip].bytes : 0;
    bool any_home = true;
    for (int32_t i = 0; i < x->n; i++) {
        struct idle_gap *a = &x->list[i];
        any_home &= a->residence >= 0 || x->g->storages[a->storage].home == HOME_ANY;
        bytes += a->taken ? a->bytes : 0;
        a->park.tier = FATE_PARK_HOST;
    }
    return any_home && bytes <= room_in(x, FATE_PARK_HOST);
}

/* Homes come before what was assigned first, so many bytes of each tier; and so do the clip values,
 * which are at one place then for all programs. */
static void put_homes_first(struct transfer *x, const int64_t activations[TIER_COUNT])
{
    for (int32_t i = 0; i < x->n; i++) {
        struct idle_gap *a = &x->list[i];
        int t = index_of(a->park.tier);
        if (a->residence >= 0)
            a->park.tier_offset += x->tier[t] - activations[t];
        else if (x->g->storages[a->storage].home == HOME_ANY)
            a->park.tier_offset -= activations[t];
    }
}

int transfer_assign(struct transfer *x, bool sketch, bool *fits)
{
    int64_t activations[TIER_COUNT];
    *fits = true;
    x->tier[TIER_HOST] = x->tier[TIER_NVME] = 0;
    if (sketch && host_takes_all(x))
        return 0;
    int rc = assign_activations(x, sketch, fits);
    memcpy(activations, x->tier, sizeof(activations));
    for (int turn = 0; turn < 2 && !rc; turn++) {
        struct homes h = {.states = turn > 0, .share = 1};
        if (h.states)
            share_states(x, &h);
        for (int32_t i = 0; i < x->n; i++)
            if (finds_home(x, &h, i))
                assign_home(x, &h, i, fits);
    }
    if (x->hosted) {
        int64_t bytes = x->g->storages[x->clip].bytes;
        x->clip_offset = x->b->tier_base[TIER_HOST] + x->tier[TIER_HOST] - activations[TIER_HOST];
        *fits &= bytes <= room_in(x, FATE_PARK_HOST);
        x->tier[TIER_HOST] += bytes;
    }
    put_homes_first(x, activations);
    return rc;
}
