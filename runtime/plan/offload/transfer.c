/* SPDX-License-Identifier: Apache-2.0 */
/* Offloading of one schedule, from the selection of idle gaps to the plan.  The parts are in
 * updates.c, idle_gaps.c, select.c, tiers.c and timeline.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/offload/transfer.h"
#include "plan/watch.h"

#define SHORT 24 /* a gap below a 24th of the step is short: doc/decisions/frozen-parameters.md */

enum rank { RANK_STATES, RANK_WEIGHTS, RANK_ACTIVATIONS, RANK_OUTS, RANK_INS };

static bool has_rank(const struct idle_gap *a, enum rank rank)
{
    if (rank == RANK_STATES)
        return a->state;
    if (rank == RANK_WEIGHTS)
        return a->residence < 0 && !a->state;
    return rank != RANK_ACTIVATIONS || a->residence >= 0;
}

/* A number between 0 and 1; those of consecutive i are spread evenly. */
static double spread(int32_t i)
{
    const double golden = 0.6180339887498949;
    return i * golden - (double)(int64_t)(i * golden);
}

static double seconds_between(const struct transfer *x, int32_t from, int32_t to)
{
    return x->rest[from] - x->rest[to];
}

/* Whether a gap of a frozen parameter gains little: it is short, or the step must wait for its copy
 * in, which cannot begin before the step that uses the parameter so early. */
static bool gains_little(const struct transfer *x, const struct idle_gap *a,
                         const struct idle_gap *wrap)
{
    const double early = seconds_between(x, 0, wrap->use_step) * x->m->h2d_both;
    if (early < (double)wrap->bytes)
        return true;
    return !a->wraps && seconds_between(x, a->out_step, a->use_step) < x->rest[0] / SHORT;
}

/*
 * The longest gaps of a parameter that is trained come first.  Frozen ones are copied in for the
 * forward and for the backward pass, and gaps around the end of the step are all long: both are
 * taken evenly over the step, so that copies do not crowd.  The latter are last of a storage.
 */
static double key_of_weight(const struct transfer *x, const struct idle_gap *a, int32_t i)
{
    const struct idle_gap *wrap = &x->list[gaps_end(x, (int32_t)(a - x->list)) - 1];
    if (!a->wraps && !wrap->clean)
        return a->out_step;
    return (a->wraps ? 1e9 : 0) + 1e6 * (spread(i) + (wrap->clean && gains_little(x, a, wrap)));
}

static double key_of(const struct transfer *x, const struct idle_gap *a, enum rank rank, int32_t i)
{
    if (rank == RANK_STATES || rank == RANK_INS)
        return a->use_step;
    return rank == RANK_WEIGHTS ? key_of_weight(x, a, i) : a->out_step;
}

static void rank_gaps(const struct transfer *x, enum rank rank, struct ranking *r)
{
    r->n = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (has_rank(&x->list[i], rank)) {
            x->keys[r->n] = (struct place_key){key_of(x, &x->list[i], rank, r->n), 0, i};
            r->n++;
        }
    place_sort_keys(x->keys, r->n);
    for (int32_t i = 0; i < r->n; i++)
        r->items[i] = x->keys[i].item;
}

/* Whether gap a holds state of a deferred update.  Its steps are earlier than in by_use and by_out,
 * but in the same order. */
static bool is_deferred(const struct transfer *x, const struct idle_gap *a)
{
    return a->state && a->group >= 0 && x->groups[a->group].before;
}

/* The next item from *i on of by_use that is taken, in this tier, and deferred or not; or -1. */
static int32_t next_in(const struct transfer *x, int tier, bool deferred, int32_t *i)
{
    for (; *i < x->n; (*i)++) {
        const struct idle_gap *a = &x->list[x->by_use.items[*i]];
        if (a->taken && a->offload.tier == tier && is_deferred(x, a) == deferred)
            return x->by_use.items[*i];
    }
    return -1;
}

/* The taken gaps of a tier, in the order of their next uses. */
static void queue_ins(struct transfer *x, int tier)
{
    struct ranking *r = &x->ins[tier];
    int32_t i = 0, k = x->deferred ? 0 : x->n;
    r->n = 0;
    for (;;) {
        int32_t a = next_in(x, tier, false, &i), b = next_in(x, tier, true, &k);
        if (a < 0 && b < 0)
            return;
        bool first = b < 0 || (a >= 0 && x->list[a].use_step <= x->list[b].use_step);
        r->items[r->n++] = first ? a : b;
        *(first ? &i : &k) += 1;
    }
}

/* Inserts gap `item` in the order of out_step. */
static void insert_out(const struct transfer *x, struct ranking *r, int32_t item)
{
    int32_t j = r->n++;
    for (; j > 0 && x->list[r->items[j - 1]].out_step > x->list[item].out_step; j--)
        r->items[j] = r->items[j - 1];
    r->items[j] = item;
}

/* Merges the copies of gradients into the queue out of the host tier. */
static void queue_gradients(struct transfer *x)
{
    struct ranking *r = &x->outs[TIER_HOST];
    int32_t i = r->n - 1, at = r->n + x->repeated - 1;
    r->n += x->repeated;
    for (int32_t k = x->n_groups - 1; at > i; k--) {
        int32_t item = x->n + x->by_made[k].item;
        if (!x->list[item].taken)
            continue;
        for (; i >= 0 && x->list[r->items[i]].out_step > x->list[item].out_step; i--)
            r->items[at--] = r->items[i];
        r->items[at--] = item;
    }
}

/* The taken gaps with a copy out, by tier, or without one, in the order of out_step.  Gaps that
 * leave with a gradient, and state of deferred updates, have an earlier out_step than in by_out. */
static void queue_outs(struct transfer *x)
{
    x->outs[TIER_HOST].n = x->outs[TIER_NVME].n = x->cleans.n = 0;
    for (int32_t i = 0; i < x->n; i++) {
        int32_t item = x->by_out.items[i];
        const struct idle_gap *a = &x->list[item];
        if (!a->taken)
            continue;
        insert_out(x, a->clean ? &x->cleans : &x->outs[a->offload.tier], item);
    }
    if (x->repeated)
        queue_gradients(x);
}

static int transfer_alloc(struct transfer *x)
{
    struct ranking *rankings[] = {&x->states,
                                  &x->weights,
                                  &x->activations,
                                  &x->by_out,
                                  &x->by_use,
                                  &x->outs[TIER_HOST],
                                  &x->outs[TIER_NVME],
                                  &x->ins[TIER_HOST],
                                  &x->ins[TIER_NVME],
                                  &x->cleans,
                                  &x->held};
    struct pool *m = &x->memory;
    int32_t steps = x->p->n_steps + 1;
    int32_t all = x->n + steps; /* with copies of gradients */
    for (size_t i = 0; i < sizeof(rankings) / sizeof(*rankings); i++)
        POOL_ARRAY(m, rankings[i]->items, all);
    POOL_ARRAY(m, x->whole, steps);
    POOL_ARRAY(m, x->needed, steps);
    POOL_ARRAY(m, x->length, steps);
    POOL_ARRAY(m, x->rest, steps);
    POOL_ARRAY(m, x->free, steps);
    POOL_ARRAY(m, x->start, steps);
    POOL_ARRAY(m, x->gone, all);
    POOL_ARRAY(m, x->keys, x->n);
    return range_max_new(&x->committed, x->p->n_steps, m);
}

int transfer_new(const struct graph *g, const struct machine *m, struct plan *p,
                 struct transfer **out)
{
    struct transfer *x = calloc(1, sizeof(*x));
    *out = NULL;
    if (!x)
        return CKPT_ENOMEM;
    *x = (struct transfer){.g = g, .m = m, .p = p};
    int rc = g->n_micro == 1 ? updates_sort(g, p) : 0;
    if (!rc)
        rc = idle_gaps_find(g, m, p, &x->memory, &x->list, &x->n);
    if (!rc)
        rc = comm_queue_new(g, p, &x->comm);
    if (!rc)
        rc = transfer_alloc(x);
    if (rc) {
        transfer_free(x);
        return rc;
    }
    plan_count_alive(g, p, x->whole);
    for (int32_t k = p->n_steps - 1; k >= 0; k--) {
        x->whole[k] += p->persistent;
        x->length[k] = compute_seconds(&g->ops[p->steps[k].op]);
        x->rest[k] = x->rest[k + 1] + x->length[k];
    }
    rank_gaps(x, RANK_STATES, &x->states);
    rank_gaps(x, RANK_WEIGHTS, &x->weights);
    rank_gaps(x, RANK_ACTIVATIONS, &x->activations);
    rank_gaps(x, RANK_OUTS, &x->by_out);
    rank_gaps(x, RANK_INS, &x->by_use);
    rc = hosted_find(x);
    if (rc)
        transfer_free(x);
    else
        *out = x;
    return rc;
}

void transfer_free(struct transfer *x)
{
    if (!x)
        return;
    comm_queue_free(x->comm);
    pool_free(&x->memory);
    free(x);
}

/* A product for each number: hash_mix, with one for each byte, took 3 % of the planning time. */
uint64_t transfer_key(const struct transfer *x, int64_t device, int32_t option)
{
    const uint64_t factor = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t key = hash_mix(hash_mix(HASH_START, device), option);
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].taken)
            key = (key ^ (uint32_t)i) * factor;
    for (int32_t i = 0; i < x->n_groups; i++)
        if (x->groups[i].by != BY_DEVICE)
            key = (hash_mix(key, x->groups[i].before - (x->groups[i].by == BY_BOTH)) ^
                   (uint32_t)(x->n + i)) *
                  factor;
    return key;
}

double transfer_least(const struct transfer *x)
{
    double in = 0, out = 0;
    for (int32_t i = 0; i < x->n; i++) {
        in += x->list[i].taken ? (double)x->list[i].bytes : 0;
        out += x->list[i].taken && !x->list[i].clean ? (double)x->list[i].bytes : 0;
    }
    return fmax(in / fmax(x->m->h2d, x->m->h2d_both), out / fmax(x->m->d2h, x->m->d2h_both));
}

int transfer_try(struct transfer *x, int64_t device, double limit, bool *fits)
{
    int rc = plan_watch_check(x->g->watch);
    if (!rc)
        rc = transfer_assign(x, true, fits);
    if (rc || !*fits)
        return rc;
    queue_outs(x);
    queue_ins(x, TIER_HOST);
    queue_ins(x, TIER_NVME);
    transfer_simulate(x, device, limit);
    return 0;
}

/* ---- the plan ------------------------------------------------------------------------------- */

/* The next taken idle gap of the same storage, or with step -1 the previous one, cyclically. */
static struct idle_gap *next_taken(const struct transfer *x, int32_t i, int32_t step)
{
    int32_t first = gaps_first(x, i), last = gaps_end(x, i) - 1, j = i;
    do
        j = step > 0 ? (j < last ? j + 1 : first) : (j > first ? j - 1 : last);
    while (!x->list[j].taken);
    return &x->list[j];
}

/* Adds the residence after an idle gap: for an activation the rest of the residence that the gap
 * splits, for a persistent storage the time up to the next idle gap. */
static void add_following(struct transfer *x, struct plan *p, int32_t i)
{
    struct idle_gap *a = &x->list[i];
    int32_t last;
    if (a->residence >= 0) {
        last = p->residences[a->residence].last;
        p->residences[a->residence].last = a->offload.free_step;
    } else {
        const struct idle_gap *next = next_taken(x, i, 1);
        last = next->offload.free_step;
        last += next->wraps && last < next->offload.out_step ? p->n_steps : 0;
    }
    a->offload.next_residence = plan_add_residence(
        p, (struct residence){a->storage, TIER_DEVICE, a->offload.in_step, last, 0});
}

/* Adds the copies of an idle gap, between the device residences before and after it and the one in
 * the lower tier. */
static void add_copies(struct transfer *x, struct plan *p, int32_t i, int32_t below)
{
    const struct idle_gap *a = &x->list[i];
    const struct offload_times *k = &a->offload;
    int32_t before =
        a->residence >= 0 ? a->residence : next_taken(x, i, -1)->offload.next_residence;
    if (!a->clean)
        p->copies[p->n_copies++] = (struct copy){
            before, below, k->out_step, p->residences[before].last + 1, k->out_start, k->out_end};
    p->copies[p->n_copies++] = (struct copy){below,       k->next_residence, k->in_step - 1,
                                             a->use_step, k->in_start,       k->in_end};
}

/* Adds the residence in the lower tier.  A persistent storage has one for all of its idle gaps, its
 * backing residence. */
static int32_t add_below(struct plan *p, const struct idle_gap *a)
{
    const struct offload_times *k = &a->offload;
    bool backing = a->residence < 0;
    p->persistent -= backing ? a->bytes : 0;
    return plan_add_residence(p, (struct residence){a->storage, k->tier, backing ? 0 : k->out_step,
                                                    backing ? p->n_steps - 1 : a->use_step,
                                                    k->tier_offset});
}

int transfer_rewrite(struct transfer *x, struct plan *p)
{
    int32_t below = -1, of = -1; /* the last residence in a lower tier, and its storage */
    int64_t most = 2 * ((int64_t)x->n + x->n_groups) + 1;
    if (plan_reserve(p, most, most))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].taken)
            add_following(x, p, i);
    for (int32_t i = 0; i < x->n; i++) {
        const struct idle_gap *a = &x->list[i];
        bool state =
            x->by[a->storage] == BY_HOST && x->g->storages[a->storage].kind == KIND_OPTIMIZER;
        if ((a->taken || state) && a->storage != of) {
            below = add_below(p, a);
            of = a->storage;
        }
        if (a->taken)
            add_copies(x, p, i, below);
    }
    p->host_bytes = x->tier[TIER_HOST];
    p->nvme_bytes = x->tier[TIER_NVME];
    p->seconds += x->exposed_comm - p->exposed_comm;
    p->exposed_comm = x->exposed_comm;
    p->exposed_seconds = plan_waiting(x->seconds, p->seconds - x->hosted_seconds);
    p->seconds = x->seconds;
    hosted_rewrite(x, p);
    return plan_sort(p);
}
