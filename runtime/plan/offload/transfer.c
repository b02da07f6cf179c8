/* SPDX-License-Identifier: Apache-2.0 */
/* What leaves a schedule, from the choice to the plan: the parts of it are in the files named here
 * (absence.c, select.c, tiers.c, flow.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/offload/transfer.h"

/* Bytes on the device at every step while nothing is parked. */
static void count_whole(struct transfer *x)
{
    const struct plan *p = x->p;
    int64_t now = p->persistent;
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        x->whole[t->first] += instance_bytes(x->g, p, t);
        x->whole[t->last + 1] -= instance_bytes(x->g, p, t);
    }
    for (int32_t k = 0; k < p->n_steps; k++) {
        now += x->whole[k];
        x->whole[k] = now;
    }
}

enum rank {
    RANK_STATES,
    RANK_WEIGHTS,
    RANK_ACTIVATIONS,
    RANK_HOST_OUTS,
    RANK_FILE_OUTS,
    RANK_HOST_INS,
    RANK_FILE_INS
};

static bool has_rank(const struct absence *a, enum rank rank)
{
    bool in_file = a->park.tier == FATE_PARK_NVME;
    switch (rank) {
    case RANK_STATES:
        return a->state;
    case RANK_WEIGHTS:
        return a->instance < 0 && !a->state;
    case RANK_ACTIVATIONS:
        return a->instance >= 0;
    case RANK_HOST_OUTS:
    case RANK_FILE_OUTS:
        return a->taken && !a->clean && in_file == (rank == RANK_FILE_OUTS);
    case RANK_HOST_INS:
    case RANK_FILE_INS:
        return a->taken && in_file == (rank == RANK_FILE_INS);
    }
    return false;
}

/* What is away longest goes first; parameters that are away round the end of the step all are, and
 * are taken evenly all over the step, so that copies do not crowd. */
static double key_of(const struct absence *a, enum rank rank, int32_t i)
{
    const double golden = 0.6180339887498949;
    if (rank == RANK_STATES || rank == RANK_HOST_INS || rank == RANK_FILE_INS)
        return a->use_step;
    if (rank == RANK_WEIGHTS && a->wraps)
        return 1e9 + 1e6 * (i * golden - (double)(int64_t)(i * golden));
    return a->out_step;
}

static void rank_absences(const struct transfer *x, enum rank rank, struct place_key *keys,
                          struct ranking *r)
{
    r->n = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (has_rank(&x->list[i], rank)) {
            keys[r->n] = (struct place_key){key_of(&x->list[i], rank, r->n), 0, i};
            r->n++;
        }
    qsort(keys, (size_t)r->n, sizeof(*keys), place_compare_keys);
    for (int32_t i = 0; i < r->n; i++)
        r->items[i] = keys[i].item;
}

static int transfer_alloc(struct transfer *x)
{
    struct ranking *rankings[] = {&x->states,          &x->weights,        &x->activations,
                                  &x->order,           &x->ends,           &x->outs[TIER_HOST],
                                  &x->outs[TIER_NVME], &x->ins[TIER_HOST], &x->ins[TIER_NVME]};
    size_t steps = (size_t)x->p->n_steps + 2, n = (size_t)x->n + 1;
    bool good = true;
    for (size_t i = 0; i < sizeof(rankings) / sizeof(*rankings); i++) {
        rankings[i]->items = calloc(n, sizeof(*rankings[i]->items));
        good &= rankings[i]->items != NULL;
    }
    x->whole = calloc(steps, sizeof(*x->whole));
    x->needed = calloc(steps, sizeof(*x->needed));
    x->free = calloc(steps, sizeof(*x->free));
    x->start = calloc(steps, sizeof(*x->start));
    x->gone = calloc(n, sizeof(*x->gone));
    x->keys = calloc(n, sizeof(*x->keys));
    good &= !ledger_new(&x->committed, x->p->n_steps);
    good &= x->whole && x->needed && x->free && x->start && x->gone && x->keys;
    return good ? 0 : CKPT_ENOMEM;
}

int transfer_new(const struct graph *g, const struct machine *m, const struct budgets *b,
                 struct plan *p, struct transfer **out)
{
    struct transfer *x = calloc(1, sizeof(*x));
    *out = NULL;
    if (!x)
        return CKPT_ENOMEM;
    *x = (struct transfer){.g = g, .m = m, .b = b, .p = p};
    int rc = absences_find(g, m, p, &x->list, &x->n);
    if (!rc)
        rc = comm_queue_new(g, p, &x->comm);
    if (!rc)
        rc = transfer_alloc(x);
    if (rc) {
        transfer_free(x);
        return rc;
    }
    count_whole(x);
    rank_absences(x, RANK_STATES, x->keys, &x->states);
    rank_absences(x, RANK_WEIGHTS, x->keys, &x->weights);
    rank_absences(x, RANK_ACTIVATIONS, x->keys, &x->activations);
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
    free(x->list);
    free(x->states.items);
    free(x->weights.items);
    free(x->activations.items);
    free(x->order.items);
    free(x->ends.items);
    for (int t = 0; t < TIER_COUNT; t++) {
        free(x->outs[t].items);
        free(x->ins[t].items);
    }
    free(x->whole);
    free(x->needed);
    ledger_free(&x->committed);
    free(x->free);
    free(x->start);
    free(x->gone);
    free(x->keys);
    free(x->buckets);
    free(x->bucket_at);
    free(x->bucket_order);
    free(x->lodged);
    free(x);
}

int transfer_try(struct transfer *x, const struct policy *how, int64_t device, double limit,
                 bool *fits)
{
    *fits = transfer_choose(x, how, device) <= device;
    if (!*fits)
        return 0;
    int rc = transfer_assign(x, fits);
    if (rc || !*fits)
        return rc;
    rank_absences(x, RANK_HOST_OUTS, x->keys, &x->outs[TIER_HOST]);
    rank_absences(x, RANK_FILE_OUTS, x->keys, &x->outs[TIER_NVME]);
    rank_absences(x, RANK_HOST_INS, x->keys, &x->ins[TIER_HOST]);
    rank_absences(x, RANK_FILE_INS, x->keys, &x->ins[TIER_NVME]);
    transfer_play(x, device, limit);
    return 0;
}

/* ---- the plan ------------------------------------------------------------------------------- */

static int compare_parks(const void *a, const void *b)
{
    const struct plan_park *x = a, *y = b;
    if (x->out_step != y->out_step)
        return x->out_step < y->out_step ? -1 : 1;
    return (x->storage > y->storage) - (x->storage < y->storage);
}

/* The taken absence of the same storage that comes next, round the end of the step. */
static const struct absence *next_taken(const struct transfer *x, int32_t i)
{
    int32_t s = x->list[i].storage, from = i, j = i;
    for (; from > 0 && x->list[from - 1].storage == s; from--)
        ;
    do
        j = j + 1 < x->n && x->list[j + 1].storage == s ? j + 1 : from;
    while (!x->list[j].taken);
    return &x->list[j];
}

/* The residence behind a park of a persistent storage. */
static void add_residence(struct transfer *x, int32_t i)
{
    struct plan *p = x->p;
    const struct absence *a = &x->list[i], *next = next_taken(x, i);
    int32_t last = next->park.free_step;
    bool round = next->wraps && last < next->park.out_step;
    p->instances[p->n_instances++] =
        (struct plan_instance){a->storage, a->park.in_step, round ? p->n_steps - 1 : last, 0};
    if (round)
        p->instances[p->n_instances++] = (struct plan_instance){a->storage, 0, last, 0};
}

static void add_park(struct transfer *x, int32_t i)
{
    struct plan *p = x->p;
    struct absence *a = &x->list[i];
    struct plan_park *k = &a->park;
    k->storage = a->storage;
    k->use_step = a->use_step;
    k->clean = a->clean;
    if (a->clean)
        k->out_start = k->out_end = 0;
    p->parks[p->n_parks++] = *k;
    if (a->instance < 0) {
        p->persistent -= a->wraps ? a->bytes : 0;
        add_residence(x, i);
        return;
    }
    p->instances[p->n_instances++] =
        (struct plan_instance){a->storage, k->in_step, p->instances[a->instance].last, 0};
    p->instances[a->instance].last = k->free_step;
}

int transfer_rewrite(struct transfer *x)
{
    struct plan *p = x->p;
    struct plan_instance *more =
        realloc(p->instances, ((size_t)p->n_instances + 2 * (size_t)x->n + 1) * sizeof(*more));
    p->instances = more ? more : p->instances;
    p->parks = calloc((size_t)x->n + 1, sizeof(*p->parks));
    if (!more || !p->parks)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].taken)
            add_park(x, i);
    qsort(p->parks, (size_t)p->n_parks, sizeof(*p->parks), compare_parks);
    qsort(p->instances, (size_t)p->n_instances, sizeof(*p->instances), compare_instances);
    p->host_bytes = x->tier[TIER_HOST];
    p->nvme_bytes = x->tier[TIER_NVME];
    p->seconds += x->exposed_comm - p->exposed_comm;
    p->exposed_comm = x->exposed_comm;
    p->exposed_seconds = fmax(0, x->seconds - (p->seconds - x->hosted_seconds)); /* sums round */
    p->seconds = x->seconds;
    for (int32_t i = 0; i < p->n_parks; i++)
        if (p->parks[i].tier == FATE_PARK_NVME)
            p->staging_bytes = 2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT;
    return hosted_rewrite(x);
}
