/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of copies out around the end of a step, chosen for addresses.
 *
 * Storages that the update used wait for the link, mostly well into the next forward pass, so the
 * order of their copies costs no time.  But it decides which addresses the forward pass finds free.
 * - The storage that came in last is copied out first.  Lifetimes are then nested around the end of
 *   the step, as those of activations are around the end of the forward pass, and the two fill the
 *   arena from both ends.  In the order of the update, addresses would become free early in one
 *   place and be needed in another.
 * - A storage that is needed while copies out are still under way is copied out just before that.
 *
 * With this order and both ends of the arena (place.c) holes take 1 to 6 % of the transient
 * bytes of STDiT3-XL/2 at 7G to 14G, instead of up to 17 %.  With several micro-steps no copy out
 * crosses into the next step, and the order is unchanged.
 */
#include <math.h>
#include "plan/offload/transfer.h"

#define MARGIN     0.01  /* copies out end this part of a step earlier than they must */
#define MAX_SLOWER 0.001 /* the order is rejected if the step takes this part longer */

/* One queue.  Items are positions in its old order, which is the order of out_step. */
struct out_queue {
    const struct transfer *x;
    const struct ranking *outs;
    double drained;   /* when the last copy out of the step before has ended */
    double *rank;     /* per item: the smallest is copied first; INFINITY: it has a deadline */
    int32_t *heap;    /* items that may begin and have no deadline, the first on top */
    int32_t waiting;  /* size of the heap */
    /* Copies that end before a deadline (major) while the queue is still busy, in this order; minor
     * becomes the latest start that meets it. */
    struct place_key *dues;
    int32_t n_dues, next_due;
    int32_t *order; /* the new order, of idle gaps */
};

static const struct idle_gap *gap_at(const struct out_queue *t, int32_t i)
{
    return &t->x->list[t->outs->items[i]];
}

static double length_of(const struct out_queue *t, int32_t i)
{
    return gap_at(t, i)->offload.out_end - gap_at(t, i)->offload.out_start;
}

/* The end of step out_step, after which the copy may begin. */
static double ready_at(const struct transfer *x, const struct idle_gap *a)
{
    return a->out_step + 1 < x->p->n_steps ? x->free[a->out_step + 1] : x->seconds;
}

/* When the residence that idle gap i ends began: with the copy in of the previous taken gap of the
 * storage in this step, or else with its own copy in. */
static double came_at(const struct transfer *x, int32_t i)
{
    int32_t s = x->list[i].storage, j = i - 1;
    while (j >= 0 && x->list[j].storage == s && !x->list[j].taken)
        j--;
    return x->list[j >= 0 && x->list[j].storage == s ? j : i].offload.in_start;
}

/* Whether the copy may be delayed: it waits for the link, and no update on the host waits for it.
 */
static bool may_move(const struct transfer *x, const struct idle_gap *a)
{
    return a->wraps && a->group < 0 && a->out_step >= x->p->n_body;
}

/* ---- deadlines ------------------------------------------------------------------------------ */

static void add_due(struct out_queue *t, int32_t item, double back)
{
    t->dues[t->n_dues++] = (struct place_key){t->x->seconds + back, 0, item};
    t->rank[item] = INFINITY;
}

static void rank_items(struct out_queue *t)
{
    const struct transfer *x = t->x;
    double until = INFINITY;
    for (int32_t i = 0; i < t->outs->n; i++) {
        const struct idle_gap *a = gap_at(t, i);
        t->rank[i] = may_move(x, a) ? -came_at(x, t->outs->items[i]) : -INFINITY;
        if (may_move(x, a) && a->offload.in_start < t->drained)
            add_due(t, i, a->offload.in_start);
    }
    place_sort_keys(t->dues, t->n_dues);
    for (int32_t k = t->n_dues - 1; k >= 0; k--) {
        struct place_key *d = &t->dues[k];
        until = fmin(until, d->major - MARGIN * x->seconds) - length_of(t, d->item);
        d->minor = until;
    }
}

/* ---- the queue ------------------------------------------------------------------------------ */

static bool before(const struct out_queue *t, int32_t a, int32_t b)
{
    return t->rank[a] != t->rank[b] ? t->rank[a] < t->rank[b] : a < b;
}

static void push(struct out_queue *t, int32_t item)
{
    int32_t i = t->waiting++;
    for (; i > 0 && before(t, item, t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = item;
}

static int32_t pop(struct out_queue *t)
{
    int32_t top = t->heap[0], n = --t->waiting, last = t->heap[n], i = 0;
    for (int32_t k = 1; k < n; i = k, k = 2 * i + 1) {
        k += k + 1 < n && before(t, t->heap[k + 1], t->heap[k]);
        if (!before(t, t->heap[k], last))
            break;
        t->heap[i] = t->heap[k];
    }
    t->heap[i] = last;
    return top;
}

/* The next item that may begin now, or -1. */
static int32_t take_turn(struct out_queue *t, double now)
{
    const struct place_key *d = t->next_due < t->n_dues ? &t->dues[t->next_due] : NULL;
    int32_t top = t->waiting > 0 ? t->heap[0] : -1;
    bool hurry = top < 0 || (t->rank[top] > -INFINITY && d && now + length_of(t, top) > d->minor);
    if (d && hurry && ready_at(t->x, gap_at(t, d->item)) <= now) {
        t->next_due++;
        return d->item;
    }
    return top < 0 ? -1 : pop(t);
}

static void serve(struct out_queue *t)
{
    double now = 0;
    for (int32_t served = 0, next = 0; served < t->outs->n;) {
        for (; next < t->outs->n && ready_at(t->x, gap_at(t, next)) <= now; next++)
            if (t->rank[next] < INFINITY)
                push(t, next);
        int32_t i = take_turn(t, now);
        if (i < 0) {
            now = ready_at(t->x, gap_at(t, next));
        } else {
            now += length_of(t, i);
            t->order[served++] = t->outs->items[i];
        }
    }
}

static int order_queue(const struct transfer *x, const struct ranking *outs, struct pool *m,
                       int32_t *order)
{
    struct out_queue t = {.x = x, .outs = outs, .order = order};
    POOL_ARRAY(m, t.rank, outs->n);
    POOL_ARRAY(m, t.heap, outs->n);
    POOL_ARRAY(m, t.dues, outs->n);
    if (m->failed || !outs->n)
        return pool_status(m);
    t.drained = x->list[outs->items[outs->n - 1]].offload.out_end - x->seconds;
    rank_items(&t);
    serve(&t);
    return 0;
}

/* Exchanges the orders of all queues with others. */
static void swap_orders(struct transfer *x, int32_t *other[TIER_COUNT])
{
    for (int tier = 0; tier < TIER_COUNT; tier++)
        for (int32_t i = 0; i < x->outs[tier].n; i++) {
            int32_t item = x->outs[tier].items[i];
            x->outs[tier].items[i] = other[tier][i];
            other[tier][i] = item;
        }
}

/* Whether the bytes on the device stay within it.  The simulation frees a storage once its step has
 * ended, save for copies under way: it does not count one whose copy is not submitted yet, because
 * another one stands before it in this order. */
static bool is_within(struct transfer *x, int64_t device)
{
    for (int tier = 0; tier < TIER_COUNT; tier++)
        for (int32_t i = 0; i < x->outs[tier].n; i++) {
            const struct idle_gap *a = &x->list[x->outs[tier].items[i]];
            int32_t end = a->offload.free_step + 1;
            bool next = a->offload.free_step < a->out_step; /* it ends in the next step */
            if (a->stays)
                continue; /* counted already */
            range_max_add(&x->committed, a->out_step + 1, next ? x->p->n_steps : end, a->bytes);
            range_max_add(&x->committed, 0, next ? end : 0, a->bytes);
        }
    return range_max_at(&x->committed, range_max_peak(&x->committed)) <= device;
}

int transfer_order_outs(struct transfer *x, int64_t device)
{
    struct pool m = {NULL, false};
    int32_t *other[TIER_COUNT];
    double seconds = x->seconds;
    int rc = 0;
    if (x->g->n_micro > 1 || x->serial || x->drains)
        return 0;
    for (int tier = 0; tier < TIER_COUNT && !rc; tier++) {
        POOL_ARRAY(&m, other[tier], x->outs[tier].n);
        rc = other[tier] ? order_queue(x, &x->outs[tier], &m, other[tier]) : CKPT_ENOMEM;
    }
    if (!rc) {
        swap_orders(x, other);
        transfer_simulate(x, device, INFINITY);
    }
    if (!rc && (x->seconds > seconds * (1 + MAX_SLOWER) || !is_within(x, device))) {
        swap_orders(x, other);
        transfer_simulate(x, device, INFINITY);
    }
    pool_free(&m);
    return rc;
}
