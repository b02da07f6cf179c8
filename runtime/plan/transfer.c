/*
 * Transfers: two queues, one out and one in, each a copy at a time.  What leaves goes as soon as it
 * can, in the order of its last uses, and its bytes are free when the copy has completed; what
 * comes back comes as late as the queue allows.  A step is periodic: what the update sends out may
 * still be under way when the next step begins.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/transfer.h"

struct transfer {
    const struct graph *g;
    const struct machine *m;
    struct plan *p;
    struct absence *list;
    int32_t n;
    double *start, period;
    int64_t *whole;  /* per step: bytes on the device without parks */
    int64_t *needed; /* and with them */
    int64_t persistent;
    int64_t host, nvme; /* left of the tiers */
    int32_t peak;
    double out_first; /* when the first copy out starts */
    double out_free;  /* when the queue out is free; beyond the period in the next step */
    int32_t *due;     /* taken absences, latest due first */
    int32_t n_due;
};

/* The step that runs at time t: the last one that starts at or before it. */
static int32_t step_at(const struct transfer *x, double t)
{
    int32_t lo = 0, hi = x->p->n_steps - 1;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo + 1) / 2;
        if (x->start[mid] <= t)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static double out_seconds(const struct transfer *x, const struct absence *a)
{
    double rate = x->m->d2h_both;
    if (a->park.tier == FATE_PARK_NVME && x->m->nvme_write < rate)
        rate = x->m->nvme_write;
    return (double)a->bytes / rate;
}

static double in_seconds(const struct transfer *x, const struct absence *a)
{
    double rate = x->m->h2d_both;
    if (a->park.tier == FATE_PARK_NVME && x->m->nvme_read < rate)
        rate = x->m->nvme_read;
    return (double)a->bytes / rate;
}

/* The tier with room, the faster one first. */
static bool choose_tier(struct transfer *x, struct absence *a)
{
    a->park = (struct plan_park){.storage = a->storage,
                                 .out_step = a->out_step,
                                 .use_step = a->use_step,
                                 .tier = FATE_PARK_HOST};
    if (a->bytes <= x->host && x->m->d2h_both > 0 && x->m->h2d_both > 0)
        return true;
    a->park.tier = FATE_PARK_NVME;
    return a->bytes <= x->nvme && x->m->nvme_write > 0 && x->m->nvme_read > 0;
}

/* Sends a out behind all others.  Wrapping absences come first: an activation goes out one period
 * later on their clock. */
static bool send_out(struct transfer *x, struct absence *a, double *until)
{
    bool wraps = a->instance < 0;
    double ready = wraps ? a->ready : a->ready + x->period;
    double from = ready > x->out_free ? ready : x->out_free, to = from + out_seconds(x, a);
    if (x->n_due > 0 && to > x->out_first + x->period)
        return false;
    a->park.out_start = wraps ? from : from - x->period;
    a->park.out_end = a->park.out_start + to - from;
    double gone = to > x->period ? to - x->period : to;
    a->park.free_step = step_at(x, gone);
    if (x->start[a->park.free_step] == gone && a->park.free_step > 0 && gone > a->ready)
        a->park.free_step--;
    *until = to;
    return true;
}

static void insert_due(struct transfer *x, int32_t i)
{
    int32_t at = x->n_due++;
    for (; at > 0 && x->list[x->due[at - 1]].due < x->list[i].due; at--)
        x->due[at] = x->due[at - 1];
    x->due[at] = i;
}

static void remove_due(struct transfer *x, int32_t i)
{
    int32_t to = 0;
    for (int32_t k = 0; k < x->n_due; k++)
        if (x->due[k] != i)
            x->due[to++] = x->due[k];
    x->n_due = to;
}

/* Whether it is away at step k. */
static bool is_away(const struct plan_park *p, int32_t k)
{
    bool wraps = p->use_step <= p->out_step;
    if (!wraps || p->free_step < p->out_step)
        return k > p->free_step && k < p->in_step;
    return k > p->free_step || k < p->in_step;
}

/* Brings all back as late as the queue allows.  False if one would have to start too early. */
static bool bring_back(struct transfer *x)
{
    double free_until = x->period;
    for (int32_t k = 0; k < x->n_due; k++) {
        struct absence *a = &x->list[x->due[k]];
        double to = a->due < free_until ? a->due : free_until, from = to - in_seconds(x, a);
        bool wraps = a->instance < 0, same_step = !wraps || a->park.free_step < a->out_step;
        double gone = a->park.out_end > x->period ? a->park.out_end - x->period : a->park.out_end;
        if (from < 0 || (same_step && from < gone))
            return false;
        a->park.in_start = from;
        a->park.in_end = to;
        a->park.in_step = step_at(x, from);
        if (same_step && a->park.in_step <= a->park.free_step)
            return false;
        free_until = from;
    }
    return true;
}

/* Bytes on the device at every step while nothing is parked. */
static void count_whole(struct transfer *x)
{
    const struct plan *p = x->p;
    int64_t now = x->persistent;
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        int64_t bytes = t->storage >= 0 ? x->g->storages[t->storage].bytes
                                        : x->g->ops[p->steps[t->first].op].workspace;
        x->whole[t->first] += bytes;
        x->whole[t->last + 1] -= bytes;
    }
    for (int32_t k = 0; k < p->n_steps; k++) {
        now += x->whole[k];
        x->whole[k] = now;
    }
}

/* Takes bytes off steps [from, to). */
static void leave(struct transfer *x, int32_t from, int32_t to, int64_t bytes)
{
    if (from < to) {
        x->needed[from] -= bytes;
        x->needed[to] += bytes;
    }
}

/* Counts again with all that is taken, and finds the peak. */
static void count_parked(struct transfer *x)
{
    int32_t n = x->p->n_steps;
    int64_t now = 0;
    memset(x->needed, 0, ((size_t)n + 1) * sizeof(*x->needed));
    for (int32_t i = 0; i < x->n_due; i++) {
        const struct absence *a = &x->list[x->due[i]];
        if (a->park.use_step <= a->park.out_step && a->park.free_step >= a->park.out_step) {
            leave(x, a->park.free_step + 1, n, a->bytes);
            leave(x, 0, a->park.in_step, a->bytes);
        } else {
            leave(x, a->park.free_step + 1, a->park.in_step, a->bytes);
        }
    }
    x->peak = 0;
    for (int32_t k = 0; k < n; k++) {
        now += x->needed[k];
        x->needed[k] = x->whole[k] + now;
        if (x->needed[k] > x->needed[x->peak])
            x->peak = k;
    }
}

/* Takes absence i if that helps at the peak and disturbs no copy that is already planned. */
static void consider(struct transfer *x, int32_t i)
{
    struct absence *a = &x->list[i];
    double until;
    if (!choose_tier(x, a) || !send_out(x, a, &until))
        return;
    a->park.in_step = step_at(x, a->due);
    if (!is_away(&a->park, x->peak))
        return;
    insert_due(x, i);
    if (!bring_back(x) || !is_away(&a->park, x->peak)) {
        remove_due(x, i);
        bring_back(x);
        return;
    }
    a->taken = true;
    if (x->n_due == 1)
        x->out_first = until - out_seconds(x, a);
    x->out_free = until;
    int64_t *left = a->park.tier == FATE_PARK_HOST ? &x->host : &x->nvme;
    *left -= a->bytes;
    count_parked(x);
}

static int compare_parks(const void *a, const void *b)
{
    const struct plan_park *x = a, *y = b;
    if (x->out_step != y->out_step)
        return x->out_step < y->out_step ? -1 : 1;
    return (x->storage > y->storage) - (x->storage < y->storage);
}

/* Turns what is taken into parks and instances. */
static void rewrite_plan(struct transfer *x)
{
    struct plan *p = x->p;
    for (int32_t i = 0; i < x->n; i++) {
        struct absence *a = &x->list[i];
        struct plan_park *k = &a->park;
        if (!a->taken)
            continue;
        int64_t *tier = k->tier == FATE_PARK_HOST ? &p->host_bytes : &p->nvme_bytes;
        k->tier_offset = *tier;
        *tier += a->bytes;
        p->parks[p->n_parks++] = *k;
        struct plan_instance *more = &p->instances[p->n_instances++];
        if (a->instance >= 0) {
            *more =
                (struct plan_instance){a->storage, k->in_step, p->instances[a->instance].last, 0};
            p->instances[a->instance].last = k->free_step;
            continue;
        }
        p->persistent -= a->bytes;
        bool next = k->free_step < k->out_step;
        *more =
            (struct plan_instance){a->storage, k->in_step, next ? p->n_steps - 1 : k->free_step, 0};
        if (next)
            p->instances[p->n_instances++] = (struct plan_instance){a->storage, 0, k->free_step, 0};
    }
    qsort(p->parks, (size_t)p->n_parks, sizeof(*p->parks), compare_parks);
}

static int transfer_new(struct transfer *x, const struct graph *g, const struct machine *m,
                        struct plan *p)
{
    *x = (struct transfer){.g = g, .m = m, .p = p, .persistent = p->persistent};
    int rc = absences_find(g, p, &x->list, &x->n);
    if (rc)
        return rc;
    x->start = step_starts(g, p);
    x->whole = calloc((size_t)p->n_steps + 2, sizeof(*x->whole));
    x->needed = calloc((size_t)p->n_steps + 2, sizeof(*x->needed));
    x->due = calloc((size_t)x->n + 1, sizeof(*x->due));
    struct plan_instance *more =
        realloc(p->instances, ((size_t)p->n_instances + 2 * (size_t)x->n + 1) * sizeof(*more));
    p->instances = more ? more : p->instances;
    p->parks = calloc((size_t)x->n + 1, sizeof(*p->parks));
    return x->start && x->whole && x->needed && x->due && more && p->parks ? 0 : CKPT_ENOMEM;
}

int plan_transfer(const struct graph *g, const struct machine *m, const struct budgets *b,
                  int64_t device, struct plan *p, bool *fits)
{
    struct transfer x;
    int rc = p->n_steps > 0 ? transfer_new(&x, g, m, p) : CKPT_EINVAL;
    *fits = false;
    if (!rc) {
        x.period = x.start[p->n_steps];
        x.host = b->host;
        x.nvme = b->nvme;
        count_whole(&x);
        count_parked(&x);
        for (int32_t i = 0; i < x.n && x.needed[x.peak] > device; i++)
            consider(&x, i);
        *fits = x.needed[x.peak] <= device;
        if (*fits)
            rewrite_plan(&x);
    }
    free(x.list);
    free(x.start);
    free(x.whole);
    free(x.needed);
    free(x.due);
    return rc;
}
