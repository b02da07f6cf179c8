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
 *
 * With this order and both ends of the arena (place.c) holes take 1 to 6 % of the transient
 * bytes of STDiT3-XL/2 at 7G to 14G, instead of up to 17 %.  With several micro-steps no copy out
 * crosses into the next step, and the order is unchanged.
 */
#include <math.h>
#include "plan/offload/transfer.h"

#define MAX_SLOWER 0.001 /* the order is rejected if the step takes this part longer */

/* One queue.  Items are positions in its old order, which is the order of out_step. */
struct out_queue {
    const struct transfer *x;
    const struct ranking *outs;
    double *rank;    /* per item: the smallest is copied first */
    int32_t *heap;   /* items that may begin, the first on top */
    int32_t waiting; /* size of the heap */
    int32_t *order;  /* the new order, of idle gaps */
};

static const struct idle_gap *gap_at(const struct out_queue *t, int32_t i)
{
    return &t->x->list[t->outs->items[i]];
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

static void serve(struct out_queue *t)
{
    double now = 0;
    for (int32_t served = 0, next = 0; served < t->outs->n;) {
        for (; next < t->outs->n && ready_at(t->x, gap_at(t, next)) <= now; next++)
            push(t, next);
        if (t->waiting == 0) {
            now = ready_at(t->x, gap_at(t, next));
            continue;
        }
        int32_t i = pop(t);
        now += gap_at(t, i)->offload.out_end - gap_at(t, i)->offload.out_start;
        t->order[served++] = t->outs->items[i];
    }
}

static int order_queue(const struct transfer *x, const struct ranking *outs, struct pool *m,
                       int32_t *order)
{
    struct out_queue t = {.x = x, .outs = outs, .order = order};
    POOL_ARRAY(m, t.rank, outs->n);
    POOL_ARRAY(m, t.heap, outs->n);
    if (m->failed || !outs->n)
        return pool_status(m);
    for (int32_t i = 0; i < outs->n; i++)
        t.rank[i] = may_move(x, gap_at(&t, i)) ? -came_at(x, outs->items[i]) : -INFINITY;
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
