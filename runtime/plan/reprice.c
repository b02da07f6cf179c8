/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The times of a plan on a machine, by a simulation of the executor.  Every copy begins as soon as
 * it is submitted and its queue is free, steps wait where the record says, and the host runs one
 * update after the other.  It repeats those of the tail after all others of the tail.
 *
 * A step is periodic: copies under way at its end go on in the next one.  So steps are simulated
 * until one takes as long as the previous one.  With several micro-steps a step ends with its last
 * copy instead.
 *
 * plan_clock returns the times of the last simulated step.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/graph/queues.h"
#include "plan/offload/transfer.h"
#include "plan/search/comm_cost.h"

#define ROUNDS 16 /* simulated steps at most */
#define QUEUES (2 * TIER_COUNT)

struct player {
    const struct graph *g;
    const struct machine *m;
    struct plan *p;
    struct queue_rates rates;
    struct comm_queue *comm;
    double *there;         /* per residence: when its bytes are there */
    double *freed, *back;  /* per step: when copies end whose addresses, or whose bytes, it needs */
    int32_t *first, *next; /* host residences: the first per storage; the next per residence */
    int32_t *by_step;      /* copies, sorted by the step after which they are submitted */
    int32_t at;            /* the next of `by_step` to submit */
    double queue[QUEUES];  /* per queue: when its last copy so far ends */
    double host;           /* when the last update on the host so far ends */
    int32_t deferred;      /* the next deferred update */
    double *began;         /* per step: when it began on the device */
    bool *repeats;         /* per storage: the host reads it to repeat an update */
    double now, body;
    double comm_waits;
    struct plan_clock *clock; /* the times of steps */
    struct pool memory;
};

static void later(double *a, double b)
{
    *a = b > *a ? b : *a;
}

static void ran(struct player *y, int32_t k, double start, double end)
{
    y->clock->steps[k] = (struct plan_span){start, end};
}

static const struct graph_op *op_at(const struct player *y, int32_t k)
{
    return &y->g->ops[y->p->steps[k].op];
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* Records the end of a copy for the step that waits for it, in this step or the next one. */
static void set_wait(struct player *y, const struct copy *c, double end, bool next)
{
    const struct residence *from = &y->p->residences[c->from];
    const struct residence *to = &y->p->residences[c->to];
    int32_t n = y->p->n_steps;
    double *waits = from->tier == TIER_DEVICE ? y->freed : y->back;
    int32_t step = from->tier == TIER_DEVICE ? from->last + 1 : c->before;
    bool keeps = plan_is_backing(y->g, y->p, from->tier == TIER_DEVICE ? from : to);
    if (keeps && from->tier == TIER_DEVICE) /* its address is not reused */
        return;
    if ((step >= n) == next)
        later(&waits[step % n], end);
}

/* When the host, which repeats updates, has read the bytes that a copy out replaces. */
static double read_on_host(const struct player *y, const struct copy *c)
{
    const struct residence *to = &y->p->residences[c->to];
    if (!y->repeats[to->storage] || plan_is_backing(y->g, y->p, to))
        return -INFINITY;
    return y->g->storages[to->storage].persistent ? y->there[c->to] : y->host;
}

static void submit(struct player *y, int32_t i)
{
    struct copy *c = &y->p->copies[i];
    const struct residence *from = &y->p->residences[c->from];
    int tier = copy_tier(y->p->residences, c);
    bool in = from->tier != TIER_DEVICE;
    double *queue = &y->queue[2 * tier + in];
    c->start = fmax(y->now, *queue);
    if (in)
        later(&c->start, y->there[c->from]);
    else
        later(&c->start, read_on_host(y, c));
    double seconds = queue_seconds(y->m, y->g->storages[from->storage].bytes,
                                   in ? y->rates.in[tier] : y->rates.out[tier], y->rates.both[tier],
                                   y->queue[2 * tier + !in] > c->start);
    c->end = c->start +
             (in && tier == TIER_HOST ? queue_in_seconds(seconds, y->host - c->start) : seconds);
    *queue = y->there[c->to] = c->end;
    set_wait(y, c, c->end, false);
}

/* Submits the copies after step k: those in, before the next step; or those out, once it has run.
 */
static void submit_after(struct player *y, int32_t k, bool in)
{
    const struct copy *copies = y->p->copies;
    for (int32_t n = y->at; n < y->p->n_copies && copies[y->by_step[n]].after == k; n++)
        if (copy_is_out(y->p->residences, &copies[y->by_step[n]]) != in)
            submit(y, y->by_step[n]);
    while (in && y->at < y->p->n_copies && copies[y->by_step[y->at]].after == k)
        y->at++;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* The residence of a storage on the host at a step, or -1. */
static int32_t on_host(const struct player *y, int32_t s, int32_t k)
{
    int32_t n = y->first[s];
    while (n >= 0 && !residence_covers(&y->p->residences[n], y->p->n_steps, k))
        n = y->next[n];
    return n;
}

/* Update k on the host, with the bytes that are there at step `at`.  It does not wait for steps of
 * the device, but if it repeats one for the begin of that, `from`. */
static void update_on_host(struct player *y, int32_t k, int32_t at, double from)
{
    const struct graph_op *o = op_at(y, k);
    double start = y->host;
    later(&start, from);
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        int32_t n = on_host(y, graph_ref(y->g, o, j), at);
        if (n >= 0)
            later(&start, y->there[n]);
    }
    y->host = start + hosted_seconds(y->g, y->m, o);
    if (y->p->steps[k].by == BY_HOST)
        ran(y, k, start, y->host);
    else
        y->clock->repeats[k] = (struct plan_span){start, y->host};
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t n = on_host(y, y->g->refs[o->writes + j], at);
        if (n >= 0)
            y->there[n] = y->host;
    }
}

/* The device replaces the gradient of a repeated update: its copy has left. */
static void wait_gradient(struct player *y, int32_t k, int32_t at)
{
    const struct graph_op *o = op_at(y, k);
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = y->g->refs[o->writes + j], n = on_host(y, s, at);
        if (y->g->storages[s].kind != KIND_OPTIMIZER && n >= 0)
            later(&y->now, y->there[n]);
    }
}

/* The deferred updates before step k. */
static void run_deferred(struct player *y, int32_t k)
{
    const struct plan *p = y->p;
    int32_t d = y->deferred;
    later(&y->now, y->back[k]);
    for (; d < p->n_steps && p->steps[d].before == k; d = plan_find_deferred(p, d + 1))
        wait_gradient(y, d, k);
    double from = y->now;
    for (; y->deferred != d; y->deferred = plan_find_deferred(p, y->deferred + 1)) {
        double start = y->now;
        y->now += op_at(y, y->deferred)->seconds;
        ran(y, y->deferred, start, y->now);
        update_on_host(y, y->deferred, k, from);
    }
}

static void run_on_device(struct player *y, int32_t k)
{
    const struct graph_op *o = op_at(y, k);
    double seconds = compute_seconds(o);
    later(&y->now, y->back[k]);
    if (y->p->steps[k].by == BY_BOTH)
        wait_gradient(y, k, k);
    double ready = comm_queue_wait(y->comm, k, y->now);
    y->comm_waits +=
        (k < y->p->n_body ? y->g->n_micro : 1) * (ready - y->now + (o->collective ? seconds : 0));
    y->began[k] = ready;
    y->now = ready + seconds;
    comm_queue_pass(y->comm, k, y->now, y->back[k]);
    double end = o->collective ? comm_queue_end_of(y->comm, k) : y->now;
    ran(y, k, o->collective ? end - o->comm_seconds : ready, end);
}

static void run_step(struct player *y, int32_t k)
{
    later(&y->now, y->freed[k]);
    submit_after(y, k - 1, true);
    if (y->deferred < y->p->n_steps && y->p->steps[y->deferred].before == k && k < y->p->n_body)
        run_deferred(y, k);
    if (y->p->steps[k].by == BY_HOST)
        update_on_host(y, k, k, -INFINITY);
    else if (!y->p->steps[k].before)
        run_on_device(y, k);
    submit_after(y, k, false);
}

/* Begins a step with the copies that the previous one, `period` seconds earlier, left under way. */
static void begin(struct player *y, double period)
{
    const struct plan *p = y->p;
    memset(y->freed, 0, (size_t)p->n_steps * sizeof(*y->freed));
    memset(y->back, 0, (size_t)p->n_steps * sizeof(*y->back));
    for (int32_t i = 0; i < p->n_copies; i++)
        set_wait(y, &p->copies[i], p->copies[i].end - period, true);
    for (int32_t n = 0; n < p->n_residences; n++)
        y->there[n] -= period;
    for (int q = 0; q < QUEUES; q++)
        y->queue[q] -= period;
    y->host -= period;
    y->now = y->comm_waits = 0;
    y->at = 0;
    y->deferred = plan_find_deferred(p, p->n_body);
    comm_queue_start(y->comm);
}

static void simulate_step(struct player *y, double period)
{
    begin(y, period);
    for (int32_t k = 0; k < y->p->n_steps; k++) {
        run_step(y, k);
        if (k == y->p->n_body - 1) {
            comm_queue_finish(y->comm, y->g->n_micro, &y->now, &y->comm_waits);
            y->body = y->now;
        }
    }
    for (int32_t k = y->p->n_body; k < y->p->n_steps; k++)
        if (y->p->steps[k].by == BY_BOTH && !y->p->steps[k].before)
            update_on_host(y, k, k, y->began[k]);
    submit_after(y, y->p->n_steps - 1, true);
    comm_queue_finish(y->comm, 1, &y->now, &y->comm_waits);
    for (int q = 0; q < QUEUES && y->g->n_micro > 1; q += 2)
        later(&y->now, y->queue[q]);
}

/* Simulates steps until two take equally long. */
static double find_period(struct player *y)
{
    double before = 0, period = 0;
    for (int round = 0; round < ROUNDS; round++) {
        simulate_step(y, period);
        before = period;
        period = y->now;
        if (y->g->n_micro > 1 || !y->p->n_copies || fabs(period - before) < 1e-12 * period)
            break;
    }
    return period;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void set_totals(const struct player *y, double period)
{
    struct plan *p = y->p;
    double whole = 0;
    p->recompute_seconds = 0;
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct graph_op *o = op_at(y, k);
        double seconds = (o->collective ? 0 : o->seconds) * (k < p->n_body ? y->g->n_micro : 1);
        whole += p->steps[k].by == BY_HOST ? 0 : seconds;
        p->recompute_seconds += p->steps[k].again ? seconds : 0;
    }
    period += y->body * (y->g->n_micro - 1);
    if (fabs(period - p->seconds) > 1e-9 * period) { /* the plan was made for another machine */
        p->bound_seconds = p->next_seconds = 0;
        p->next_budget = 0;
    }
    p->seconds = period;
    p->exposed_comm = y->comm_waits;
    p->comm_seconds = comm_queue_seconds(y->comm);
    p->exposed_seconds = plan_waiting(p->seconds, whole + p->exposed_comm);
}

static int allocate(struct player *y)
{
    const struct plan *p = y->p;
    POOL_ARRAY(&y->memory, y->there, p->n_residences);
    POOL_ARRAY(&y->memory, y->freed, p->n_steps);
    POOL_ARRAY(&y->memory, y->back, p->n_steps);
    y->first = pool_filled(&y->memory, y->g->n_storages, -1);
    POOL_ARRAY(&y->memory, y->next, p->n_residences);
    POOL_ARRAY(&y->memory, y->by_step, p->n_copies);
    POOL_ARRAY(&y->memory, y->repeats, y->g->n_storages);
    POOL_ARRAY(&y->memory, y->began, p->n_steps);
    return pool_status(&y->memory);
}

/* Notes the storages that the host reads to repeat updates. */
static void find_repeats(struct player *y)
{
    const struct plan *p = y->p;
    for (int32_t k = p->n_body; k < p->n_steps; k++)
        for (int32_t j = 0; j < op_at(y, k)->n_reads && p->steps[k].by == BY_BOTH; j++)
            y->repeats[y->g->refs[op_at(y, k)->reads + j]] = true;
}

static int prepare(struct player *y)
{
    const struct plan *p = y->p;
    struct place_key *keys = pool_array(&y->memory, p->n_copies, sizeof(*keys));
    bool out[TIER_COUNT] = {false}, in[TIER_COUNT] = {false};
    if (!keys || allocate(y))
        return CKPT_ENOMEM;
    find_repeats(y);
    for (int32_t i = 0; i < p->n_copies; i++) {
        struct copy *c = &p->copies[i];
        keys[i] = (struct place_key){c->after, 0, i};
        (copy_is_out(p->residences, c) ? out : in)[copy_tier(p->residences, c)] = true;
        c->start = c->end = -INFINITY;
    }
    place_sort_keys(keys, p->n_copies);
    for (int32_t i = 0; i < p->n_copies; i++)
        y->by_step[i] = keys[i].item;
    y->rates = queue_rates(y->m, out[TIER_HOST] && out[TIER_NVME], in[TIER_HOST] && in[TIER_NVME]);
    for (int32_t n = p->n_residences - 1; n >= 0; n--)
        if (p->residences[n].tier == TIER_HOST) {
            y->next[n] = y->first[p->residences[n].storage];
            y->first[p->residences[n].storage] = n;
        }
    return comm_queue_new(y->g, p, &y->comm);
}

/* Sets all times of a clock.  The links are those that a rank of the graph has of the machine's. */
static int replay(const struct graph *g, const struct machine *m, struct plan_clock *c)
{
    const struct machine own = machine_for_rank(m, graph_ranks(g));
    struct player y = {.g = g, .m = &own, .p = &c->plan, .clock = c};
    int rc = prepare(&y);
    if (!rc)
        set_totals(&y, find_period(&y));
    c->body = y.body;
    comm_queue_free(y.comm);
    pool_free(&y.memory);
    return rc;
}

int plan_clock(const struct graph *g, const struct machine *m, const struct plan *p,
               struct plan_clock *c)
{
    size_t n = (size_t)p->n_copies;
    *c = (struct plan_clock){.plan = *p};
    c->steps = calloc((size_t)p->n_steps + 1, sizeof(*c->steps));
    c->repeats = calloc((size_t)p->n_steps + 1, sizeof(*c->repeats));
    c->plan.copies = malloc((n + 1) * sizeof(*c->plan.copies));
    if (c->steps && c->plan.copies && n)
        memcpy(c->plan.copies, p->copies, n * sizeof(*p->copies));
    int rc = c->steps && c->repeats && c->plan.copies ? replay(g, m, c) : CKPT_ENOMEM;
    if (rc)
        plan_clock_free(c);
    return rc;
}

void plan_clock_free(struct plan_clock *c)
{
    free(c->steps);
    free(c->repeats);
    free(c->plan.copies);
    *c = (struct plan_clock){0};
}

int plan_reprice(const struct graph *g, const struct machine *m, struct plan *p)
{
    struct plan_clock c;
    struct copy *before = p->copies;
    int rc = plan_clock(g, m, p, &c);
    if (rc)
        return rc;
    *p = c.plan;
    c.plan.copies = before;
    plan_clock_free(&c);
    return 0;
}

int plan_check_times(const struct graph *g, const struct machine *m, const struct plan *p)
{
    struct plan_clock c;
    int rc = plan_clock(g, m, p, &c);
    double seconds = c.plan.seconds;
    if (rc)
        return error_set(rc, "checking the plan ran out of host memory");
    plan_clock_free(&c);
    /* The search rounds the time of each recomputation to ticks. */
    double slack = 1e-9 * seconds + p->n_steps / TICKS_PER_SECOND;
    if (fabs(seconds - p->seconds) <= slack)
        return 0;
    return error_set(CKPT_EPLAN, "with its copies a step takes %.9g s, the plan says %.9g s",
                     seconds, p->seconds);
}
