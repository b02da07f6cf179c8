/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The selection of idle gaps: first given amounts of each kind, then gaps that span the peak until
 * all steps fit.  The byte counts assume that a taken storage is freed at once and is back just in
 * time.  The simulation (timeline.c) accounts for the time of copies, and compares amounts.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

/* Adds bytes to the steps from, ..., to - 1 of a list of differences. */
static void change(int64_t *list, int32_t from, int32_t to, int64_t bytes)
{
    if (from < to) {
        list[from] += bytes;
        list[to] -= bytes;
    }
}

static bool is_away(const struct idle_gap *a, int32_t step)
{
    bool left = step > a->out_step, back = step >= a->use_step;
    return a->wraps ? left || !back : left && !back;
}

static void count_gap(const struct transfer *x, const struct idle_gap *a, int64_t *list)
{
    change(list, a->out_step + 1, a->wraps ? x->p->n_steps : a->use_step, -a->bytes);
    if (a->wraps)
        change(list, 0, a->use_step, -a->bytes);
}

/* Sets the bytes that each step needs. */
static void count_needed(struct transfer *x)
{
    int32_t n = x->p->n_steps;
    int64_t now = 0;
    memset(x->needed, 0, ((size_t)n + 1) * sizeof(*x->needed));
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].taken)
            count_gap(x, &x->list[i], x->needed);
    change(x->needed, 0, n, -x->hosted_bytes);
    if (x->deferred) { /* the clip values stay until the last deferred update */
        change(x->needed, x->clip_last + 1, n, x->g->storages[x->clip].bytes);
        change(x->needed, 0, x->last_deferred + 1, x->g->storages[x->clip].bytes);
    }
    for (int32_t k = 0; k < n; k++) {
        now += x->needed[k];
        x->needed[k] = x->whole[k] + now;
    }
    range_max_set(&x->committed, x->needed);
    x->counted = true;
}

/* A gap that was taken since needs no bytes. */
static void leave(struct transfer *x, const struct idle_gap *a)
{
    range_max_add(&x->committed, a->out_step + 1, a->wraps ? x->p->n_steps : a->use_step,
                  -a->bytes);
    if (a->wraps)
        range_max_add(&x->committed, 0, a->use_step, -a->bytes);
}

int32_t gaps_first(const struct transfer *x, int32_t i)
{
    int32_t s = x->list[i].storage;
    while (i > 0 && x->list[i - 1].storage == s)
        i--;
    return i;
}

int32_t gaps_end(const struct transfer *x, int32_t i)
{
    int32_t s = x->list[i].storage;
    while (i < x->n && x->list[i].storage == s)
        i++;
    return i;
}

/* Takes gap i and the needed gaps of its storage; false if the tiers have no room left. */
static bool take(struct transfer *x, int32_t i, int64_t *room)
{
    struct idle_gap *a = &x->list[i];
    bool backing = a->forced; /* the tier holds it already */
    int32_t from = gaps_first(x, i), to = gaps_end(x, i);
    for (int32_t j = from; j < to; j++)
        backing |= x->list[j].taken;
    if (!backing && a->bytes > *room)
        return false;
    *room -= backing ? 0 : a->bytes;
    for (int32_t j = from; j < to; j++) {
        if (x->list[j].taken || (j != i && !x->list[j].needed))
            continue;
        x->list[j].taken = true;
        if (x->counted)
            leave(x, &x->list[j]);
    }
    return true;
}

/* ---- given amounts -------------------------------------------------------------------------- */

/* State that the host updates never comes to the device. */
static bool never_comes(const struct transfer *x, const struct idle_gap *a)
{
    return a->state && x->by[a->storage] == BY_HOST;
}

static bool may_take(const struct transfer *x, const struct idle_gap *a)
{
    return !a->taken && !a->gradient && !never_comes(x, a) && x->by[a->storage] != BY_BOTH;
}

/* Takes gaps of `bytes` bytes in total, in the order of a ranking or in reverse. */
static void take_amount(struct transfer *x, const struct ranking *r, bool from_end, double bytes,
                        int64_t *room)
{
    for (int32_t i = 0; i < r->n && bytes > 0; i++) {
        int32_t item = r->items[from_end ? r->n - 1 - i : i];
        if (may_take(x, &x->list[item]) && take(x, item, room))
            bytes -= (double)x->list[item].bytes;
    }
}

/* ---- until it fits -------------------------------------------------------------------------- */

/* Takes gaps that span a step, in the order of a ranking, until *over bytes are freed there. */
static bool relieve_by(struct transfer *x, struct ranking *r, int32_t step, int64_t *over,
                       int64_t *room)
{
    bool any = false;
    while (r->start < r->n && x->list[r->items[r->start]].taken)
        r->start++;
    for (int32_t i = r->start; i<r->n && * over> 0; i++) {
        struct idle_gap *a = &x->list[r->items[i]];
        if (a->residence >= 0 && a->out_step >= step)
            break; /* so do all activations behind it */
        if (!may_take(x, a) || !is_away(a, step) || !take(x, r->items[i], room))
            continue;
        *over -= a->bytes;
        any = true;
    }
    return any;
}

static bool relieve(struct transfer *x, int32_t step, int64_t device, int64_t *room)
{
    int64_t over = range_max_at(&x->committed, step) - device;
    bool any = relieve_by(x, &x->activations, step, &over, room);
    any |= relieve_by(x, &x->states, step, &over, room);
    return relieve_by(x, &x->weights, step, &over, room) || any;
}

int64_t transfer_choose(struct transfer *x, const double amounts[AMOUNTS], int64_t device)
{
    const int64_t all = min_i64(x->most, x->b->host + x->b->nvme - x->b->tier_base[TIER_HOST] -
                                             x->b->tier_base[TIER_NVME]);
    int64_t room = all;
    int32_t peak;
    x->counted = false;
    x->states.start = x->weights.start = x->activations.start = 0;
    for (int32_t i = 0; i < x->n; i++)
        x->list[i].taken = x->list[i].forced;
    room = hosted_choose(x, amounts, room);
    for (int32_t i = 0; i < x->n; i++)
        x->list[i].taken &= !never_comes(x, &x->list[i]);
    take_amount(x, &x->states, false, amounts[AMOUNT_FIRST], &room);
    take_amount(x, &x->states, true, amounts[AMOUNT_LAST], &room);
    take_amount(x, &x->weights, false, amounts[AMOUNT_VALUES], &room);
    count_needed(x);
    do
        peak = range_max_peak(&x->committed);
    while (range_max_at(&x->committed, peak) > device && relieve(x, peak, device, &room));
    for (int32_t k = 0; k < x->p->n_steps; k++)
        x->needed[k] = range_max_at(&x->committed, k);
    x->used = all - room;
    return x->needed[peak];
}
