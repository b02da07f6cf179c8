/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which absences to take.  The peak says where bytes must go; a policy says whose bytes go first.
 * What is taken counts as away at once and back just in time: how long the copies need is left to
 * the clock (flow.c), which is also what compares policies.
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

static bool is_away(const struct absence *a, int32_t step)
{
    if (a->wraps)
        return step > a->out_step || step < a->use_step;
    return step > a->out_step && step < a->use_step;
}

static void count_absence(const struct transfer *x, const struct absence *a, int64_t *list)
{
    if (a->wraps) {
        change(list, a->out_step + 1, x->p->n_steps, -a->bytes);
        change(list, 0, a->use_step, -a->bytes);
    } else {
        change(list, a->out_step + 1, a->use_step, -a->bytes);
    }
}

/* Counts what every step needs, and returns where that is most. */
static int32_t count_needed(struct transfer *x)
{
    int32_t n = x->p->n_steps, peak = 0;
    int64_t now = 0;
    memset(x->needed, 0, ((size_t)n + 1) * sizeof(*x->needed));
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].taken)
            count_absence(x, &x->list[i], x->needed);
    change(x->needed, 0, n, -x->hosted_bytes);
    for (int32_t k = 0; k < n; k++) {
        now += x->needed[k];
        x->needed[k] = x->whole[k] + now;
        if (x->needed[k] > x->needed[peak])
            peak = k;
    }
    return peak;
}

/* Takes it, and of its storage what is needed with it; false if the tiers have no room left. */
static bool take(struct transfer *x, int32_t i, int64_t *room)
{
    struct absence *a = &x->list[i];
    bool home = a->forced; /* the tier holds it already */
    int32_t from = i, to = i + 1;
    for (; from > 0 && x->list[from - 1].storage == a->storage; from--)
        ;
    for (; to < x->n && x->list[to].storage == a->storage; to++)
        ;
    for (int32_t j = from; j < to; j++)
        home |= x->list[j].taken;
    if (!home && a->bytes > *room)
        return false;
    *room -= home ? 0 : a->bytes;
    for (int32_t j = from; j < to; j++)
        x->list[j].taken |= x->list[j].needed;
    a->taken = true;
    return true;
}

/* ---- orders --------------------------------------------------------------------------------- */

static void append(const struct ranking *from, int32_t first, int32_t last, struct ranking *to)
{
    for (int32_t i = first; i < last; i++)
        to->items[to->n++] = from->items[i];
}

/* What is updated on the host is no state of the device. */
static int64_t bytes_of(const struct transfer *x, int32_t state)
{
    const struct absence *a = &x->list[x->states.items[state]];
    return x->lodged[a->storage] ? 0 : a->bytes;
}

/* Puts the states in order: those that the update uses first and those it uses last, by shares of
 * bytes.  Returns how many of them make the share that goes before all else. */
static int32_t set_ends(struct transfer *x, const struct policy *how)
{
    double all = 0, some = 0, late = 0;
    int32_t first = 0, last = x->states.n - 1, n = 0;
    for (int32_t i = 0; i < x->states.n; i++)
        all += (double)bytes_of(x, i);
    for (x->ends.n = 0; first <= last; x->ends.n++) {
        bool from_end = late < how->late * some || how->late == 1;
        int32_t i = from_end ? last-- : first++;
        n += some < how->states * all;
        some += (double)bytes_of(x, i);
        late += from_end ? (double)bytes_of(x, i) : 0;
        x->ends.items[x->ends.n] = x->states.items[i];
    }
    return n;
}

static void set_order(struct transfer *x, const struct policy *how)
{
    int32_t n = set_ends(x, how);
    x->order.n = 0;
    append(&x->ends, 0, n, &x->order);
    if (how->weights)
        append(&x->weights, 0, x->weights.n, &x->order);
    append(&x->activations, 0, x->activations.n, &x->order);
    append(&x->ends, n, x->ends.n, &x->order);
    if (!how->weights)
        append(&x->weights, 0, x->weights.n, &x->order);
}

/* Takes in order what is away at step until that has no more than device bytes. */
static bool relieve(struct transfer *x, int32_t step, int64_t device, int64_t *room)
{
    int64_t over = x->needed[step] - device;
    bool any = false;
    for (int32_t i = 0; i < x->order.n && over > 0; i++) {
        struct absence *a = &x->list[x->order.items[i]];
        bool lodged = a->state && x->lodged[a->storage];
        bool can = !a->taken && !a->gradient && !lodged && is_away(a, step);
        if (!can || !take(x, x->order.items[i], room))
            continue;
        over -= a->bytes;
        any = true;
    }
    return any;
}

int64_t transfer_choose(struct transfer *x, const struct policy *how, int64_t device)
{
    int64_t room =
        x->b->host + x->b->nvme - x->b->tier_base[TIER_HOST] - x->b->tier_base[TIER_NVME];
    int32_t peak;
    device -= (int64_t)(how->spare * (double)device);
    for (int32_t i = 0; i < x->n; i++)
        x->list[i].taken = x->list[i].forced;
    room = hosted_choose(x, how->hosted, room);
    set_order(x, how);
    do
        peak = count_needed(x);
    while (x->needed[peak] > device && relieve(x, peak, device, &room));
    return x->needed[peak];
}
