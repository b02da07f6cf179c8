/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transfer timeline: a simulation of a step with copies.  Each tier has two queues, one out and
 * one in, each of one copy at a time.  Copies out run in the order of their queue, each as soon as
 * the last step that used its bytes has ended.  Copies in run in the order of the uses, as soon as
 * the device has room from then until the use.  A step waits for its own copies in.  It waits for
 * copies out where it needs their addresses, and for collectives that still read a storage that is
 * freed without a copy.
 *
 * A step is periodic: copies out that the update began may go on in the next step.  So the step is
 * simulated until it begins as it ends.  With several micro-steps it ends with its last copy
 * instead, because the body must be the same each time.
 *
 * The host runs one update after the other.  Those of the tail that it repeats come after all
 * others of the tail; deferred ones begin when the device begins them, together with the step
 * before which they stand.  Repeated updates of a step may go on in the next one.  State is copied
 * in once the host has made it.  Copies in are slower while it updates.
 *
 * In a serial step nothing is copied while an op runs.  Then no storage is on the device for longer
 * than it must, which leaves few holes between addresses, and its residences do not depend on time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/graph/queues.h"
#include "plan/search/comm_cost.h"
#include "plan/offload/transfer.h"

#define ROUNDS 8    /* simulated steps until it must be periodic */
#define MARGIN 0.01 /* copies in end this part of a step earlier than they must */
#define CLOSE  1e-12 /* times that differ by this part are equal: sums are rounded */

/* The two queues of a tier.  Times are seconds from the start of the step. */
struct line {
    const struct ranking *outs, *ins;
    double out_rate, in_rate; /* B/s of a queue that runs alone */
    double both_rate;         /* B/s of each queue while both run, or 0: as alone */
    double out_free, in_free; /* when the last copy submitted so far ends */
    int32_t head;      /* the first of outs that is not complete; of the previous step if carried */
    int32_t sent;      /* number of outs submitted in this step */
    int32_t send_step; /* the step after which the next of outs may begin, or INT32_MAX */
    bool carried;      /* head still belongs to the previous step */
    double leaves;     /* when the head is complete, or INFINITY */
    int32_t next_in;   /* the next of ins to submit */
    int32_t clear;     /* the step from which on next_in has room until its use, or -1: unknown */
    int32_t used;      /* number of ins whose use is at or before the current step */
    int32_t use_step;  /* the use of the next of these, or INT32_MAX */
};

struct timeline {
    struct transfer *x;
    int64_t device;
    double limit;
    bool drains; /* the step ends when its last copy has */
    double now;
    double body;        /* when the body ends */
    double comm_waits;  /* seconds that a whole step waits for collectives */
    int64_t leaving;    /* bytes that are leaving the device and still occupy it */
    int32_t left;       /* number of cleans whose out_step has passed */
    int32_t left_step;  /* the out_step of the next one, or INT32_MAX */
    int32_t held;       /* number of x->held whose collective has ended */
    double shift;       /* seconds of the previous step */
    double host;        /* when the host ends its last update so far, */
    double host_before; /* and that before the current step */
    double spared;      /* seconds of updates of the tail that the device does not run there */
    int32_t deferred;   /* the next group to look for deferred updates in */
    struct line lines[TIER_COUNT];
    struct line *end; /* of the lines in use */
};

/* As fmax, which is a call. */
static inline double later(double a, double b)
{
    return a > b ? a : b;
}

static void set_lines(struct timeline *f)
{
    struct transfer *x = f->x;
    const struct ranking *outs = x->outs, *ins = x->ins;
    struct queue_rates r = queue_rates(x->m, outs[TIER_HOST].n > 0 && outs[TIER_NVME].n > 0,
                                       ins[TIER_HOST].n > 0 && ins[TIER_NVME].n > 0);
    for (int t = 0; t < TIER_COUNT; t++)
        f->lines[t] = (struct line){.outs = &outs[t],
                                    .ins = &ins[t],
                                    .out_rate = r.out[t],
                                    .in_rate = r.in[t],
                                    .both_rate = r.both[t]};
    f->end = &f->lines[TIER_NVME] + (outs[TIER_NVME].n + ins[TIER_NVME].n > 0);
}

/* The use of gap i of a ranking, or the end of the use before; INT32_MAX behind the last one. */
static int32_t step_of(const struct timeline *f, const struct ranking *r, int32_t i, bool use)
{
    const struct idle_gap *a = i < r->n ? &f->x->list[r->items[i]] : NULL;
    return !a ? INT32_MAX : use ? a->use_step : a->out_step;
}

/* ---- the queues out ------------------------------------------------------------------------- */

static void find_leaving(const struct timeline *f, struct line *l)
{
    bool any = l->carried || l->head < l->sent;
    const struct idle_gap *a = any ? &f->x->list[l->outs->items[l->head]] : NULL;
    l->leaves = a ? a->offload.out_end - (l->carried ? f->shift : 0) : INFINITY;
}

/* Bytes that a gap frees once its copy out is complete. */
static int64_t leaving_bytes(const struct idle_gap *a)
{
    return a->stays ? 0 : a->bytes;
}

/* The copy at the head of a queue out is complete before step k. */
static void complete(struct timeline *f, struct line *l, int32_t k)
{
    struct transfer *x = f->x;
    int32_t i = l->outs->items[l->head];
    x->list[i].offload.free_step = k > 0 ? k - 1 : x->p->n_steps - 1;
    x->gone[i] = true;
    f->leaving -= leaving_bytes(&x->list[i]);
    if (!l->carried)
        comm_queue_leave(x->comm, x->list[i].storage);
    l->head++;
    if (l->carried && l->head == l->outs->n) {
        l->carried = false;
        l->head = 0;
    }
    find_leaving(f, l);
}

/* When a collective has read the next held storage, or INFINITY. */
static double held_until(const struct timeline *f)
{
    const struct ranking *r = &f->x->held;
    return f->held < r->n ? comm_queue_busy(f->x->comm, f->x->list[r->items[f->held]].storage)
                          : INFINITY;
}

/* Frees the storages that leave without a copy before step k.  A collective under way still holds
 * its operands; if x->tight, later steps wait for the collective instead. */
static void leave_clean(struct timeline *f, int32_t k)
{
    struct transfer *x = f->x;
    while (f->left_step < k) {
        int32_t i = x->cleans.items[f->left++];
        struct idle_gap *a = &x->list[i];
        f->left_step = step_of(f, &x->cleans, f->left, false);
        a->offload.free_step = a->out_step;
        if (x->tight)
            comm_queue_leave(x->comm, a->storage);
        if (x->tight || comm_queue_busy(x->comm, a->storage) <= f->now)
            continue;
        x->held.items[x->held.n++] = i;
        x->gone[i] = false;
        f->leaving += a->bytes;
    }
}

static void complete_until(struct timeline *f, int32_t k, double now)
{
    for (struct line *l = f->lines; l < f->end; l++)
        while (l->leaves <= now)
            complete(f, l, k);
    for (; held_until(f) <= now; f->held++) {
        int32_t i = f->x->held.items[f->held];
        f->x->list[i].offload.free_step = k - 1;
        f->x->gone[i] = true;
        f->leaving -= f->x->list[i].bytes;
    }
}

/* Waits until the next copy out or collective frees bytes. */
static void wait_out(struct timeline *f, int32_t k)
{
    double copy = fmin(f->lines[TIER_HOST].leaves, f->lines[TIER_NVME].leaves);
    double held = held_until(f);
    if (held < copy && held > f->now)
        f->comm_waits += (k < f->x->p->n_body ? f->x->g->n_micro : 1) * (held - f->now);
    f->now = fmax(f->now, fmin(copy, held));
    complete_until(f, k, f->now);
}

/* When the host has read its copy of the gradient of a repeated group, in this step if the update
 * is deferred, else in the previous one. */
static double host_ends(const struct timeline *f, int32_t group)
{
    const struct update_group *b = &f->x->groups[group];
    return b->end - (b->before ? 0 : f->shift);
}

static void send(struct timeline *f, struct line *l, int32_t k)
{
    struct transfer *x = f->x;
    while (l->send_step <= k) {
        struct idle_gap *a = &x->list[l->outs->items[l->sent]];
        a->offload.out_step = k;
        a->offload.out_start = l->out_free > f->now ? l->out_free : f->now;
        if (a->stays)
            a->offload.out_start = later(a->offload.out_start, host_ends(f, a->group));
        bool beside = l->in_free > a->offload.out_start;
        a->offload.out_end =
            a->offload.out_start + queue_seconds(x->m, a->bytes, l->out_rate, l->both_rate, beside);
        l->out_free = a->offload.out_end;
        f->leaving += leaving_bytes(a);
        x->gone[l->outs->items[l->sent++]] = false;
        l->send_step = step_of(f, l->outs, l->sent, false);
        find_leaving(f, l);
    }
}

/* ---- the queues in -------------------------------------------------------------------------- */

static struct idle_gap *first_coming(const struct timeline *f, const struct line *l)
{
    return l->next_in < l->ins->n ? &f->x->list[l->ins->items[l->next_in]] : NULL;
}

/* The first step from k on such that the bytes of `a` fit from there to its use. */
static int32_t clear_from(const struct timeline *f, const struct idle_gap *a, int32_t k)
{
    const struct transfer *x = f->x;
    int32_t least = a->wraps ? 0 : a->out_step + 1;
    if (x->g->n_micro > 1 && a->use_step >= x->p->n_body && least < x->p->n_body)
        least = x->p->n_body;
    least = least > k ? least : k;
    return range_max_clear_from(&x->committed, least, a->use_step, f->device - a->bytes);
}

/* When the host, in the previous step, has made the value or state that comes back. */
static double made_at(const struct timeline *f, const struct idle_gap *a)
{
    return a->group >= 0 && !f->drains ? f->x->groups[a->group].end - f->shift : 0;
}

static void bring(struct timeline *f, struct line *l, int32_t k)
{
    struct idle_gap *a = first_coming(f, l);
    a->offload.in_step = k;
    a->offload.in_start = later(made_at(f, a), later(l->in_free, f->now));
    bool beside = l->out_free > a->offload.in_start;
    double seconds = queue_seconds(f->x->m, a->bytes, l->in_rate, l->both_rate, beside);
    if (l == &f->lines[TIER_HOST])
        seconds = queue_in_seconds(seconds, f->host_before - a->offload.in_start);
    a->offload.in_end = a->offload.in_start + seconds;
    l->in_free = a->offload.in_end;
    range_max_add(&f->x->committed, k, a->use_step, a->bytes);
    l->next_in++;
    f->lines[TIER_HOST].clear = f->lines[TIER_NVME].clear = -1;
}

/* Submits copies in for which there is room, unless the queue is busy for all of step k. */
static void prefetch(struct timeline *f, struct line *l, int32_t k, double seconds)
{
    struct transfer *x = f->x;
    while (l->next_in < l->ins->n && l->clear <= k && l->in_free < f->now + seconds) {
        int32_t i = l->ins->items[l->next_in];
        const struct idle_gap *a = &x->list[i];
        if (!x->gone[i])
            return;
        if (l->clear < 0)
            l->clear = clear_from(f, a, k);
        if (k < l->clear || range_max_at(&x->committed, k) + f->leaving > f->device - a->bytes ||
            made_at(f, a) > f->now + seconds)
            return;
        bring(f, l, k);
    }
}

/* Submits the copies in that step k needs, waiting for their copies out.  Returns when the last of
 * them ends, or 0. */
static double bring_own(struct timeline *f, struct line *l, int32_t k)
{
    const struct transfer *x = f->x;
    for (int32_t i = l->next_in; i < l->ins->n && x->list[l->ins->items[i]].use_step == k; i++)
        while (!x->gone[l->ins->items[i]])
            wait_out(f, k);
    while (first_coming(f, l) && first_coming(f, l)->use_step == k)
        bring(f, l, k);
    double there = 0; /* later copies of the queue are for later steps */
    while (l->use_step <= k) {
        there = x->list[l->ins->items[l->used++]].offload.in_end;
        l->use_step = step_of(f, l->ins, l->used, true);
    }
    return there;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The host runs one update after the other, each once its gradient and the clip values are there
 * and, if it repeats the update, the device begins it.  It waits for no other steps. */
static void update_on_host(struct timeline *f, struct update_group *b, double ready)
{
    b->end = f->host = later(f->host, ready) + b->seconds;
}

/* When the gradient of a group is in the host tier. */
static double gradient_sent(const struct transfer *x, const struct update_group *b)
{
    int32_t copy = b->gradient >= 0 ? b->gradient : b->value;
    if (b->by == BY_BOTH)
        copy = x->n + (int32_t)(b - x->groups);
    return x->list[copy].offload.out_end;
}

/* The groups from *i on that are deferred to before step k: returns the next one, or NULL. */
static struct update_group *next_deferred(const struct transfer *x, int32_t *i, int32_t k)
{
    while (*i < x->n_groups && !x->groups[*i].before)
        ++*i;
    return *i < x->n_groups && x->groups[*i].before == k ? &x->groups[(*i)++] : NULL;
}

/* The deferred updates before step k, which can begin at `ready`: returns when the step itself can.
 * Their gradients were sent in the step before. */
static double run_deferred(struct timeline *f, int32_t k, double ready)
{
    struct transfer *x = f->x;
    struct update_group *b;
    double end = ready;
    for (int32_t i = f->deferred; (b = next_deferred(x, &i, k));)
        end = ready = later(ready, gradient_sent(x, b) - f->shift);
    while ((b = next_deferred(x, &f->deferred, k))) {
        end += x->length[b->step];
        f->spared += x->length[b->step];
        update_on_host(f, b, later(ready, later(x->clip_end, gradient_sent(x, b)) - f->shift));
    }
    return end;
}

/* The repeated updates of the tail. */
static void repeat_tail(struct timeline *f)
{
    struct transfer *x = f->x;
    for (int32_t i = 0; i < x->n_groups && x->repeated > x->deferred; i++) {
        struct update_group *b = &x->groups[i];
        if (b->by == BY_BOTH && !b->before)
            update_on_host(f, b, later(x->start[b->step], later(x->clip_end, gradient_sent(x, b))));
    }
}

/* The clip values of the step before, in the host tier, are read by the updates that it repeats. */
static void send_clip(struct timeline *f)
{
    struct transfer *x = f->x;
    struct line *l = &f->lines[TIER_HOST];
    x->clip_start = fmax(l->out_free, f->now);
    if (x->repeated)
        x->clip_start = fmax(x->clip_start, f->host);
    x->clip_end =
        x->clip_start + queue_seconds(x->m, x->g->storages[x->clip].bytes, l->out_rate, 0, false);
    l->out_free = x->clip_end;
}

/* Returns when a step that could begin at `start` can begin with regard to collectives. */
static double wait_comm(struct timeline *f, int32_t k, double start)
{
    const struct transfer *x = f->x;
    double ready = comm_queue_wait(x->comm, k, start);
    bool collective = x->g->ops[x->p->steps[k].op].collective;
    f->comm_waits +=
        (k < x->p->n_body ? x->g->n_micro : 1) * (ready - start + (collective ? x->length[k] : 0));
    return ready;
}

static void simulate_step(struct timeline *f, int32_t k)
{
    struct transfer *x = f->x;
    double seconds = x->length[k], brought = 0;
    struct update_group *b = x->group_at[k] >= 0 ? &x->groups[x->group_at[k]] : NULL;
    f->host_before = f->host;
    if (b && (b->by == BY_HOST || b->before)) {
        if (b->by == BY_HOST)
            update_on_host(f, b, later(x->clip_end, gradient_sent(x, b)));
        x->free[k] = x->start[k] = f->now;
        return;
    }
    if (x->deferred && k == x->last_deferred + 1) /* the address of the clip values may be reused */
        f->now = later(f->now, x->clip_end - f->shift);
    if (f->left_step < k)
        leave_clean(f, k);
    if (f->lines[TIER_HOST].leaves <= f->now || f->lines[TIER_NVME].leaves <= f->now ||
        f->held < x->held.n)
        complete_until(f, k, f->now);
    while (f->leaving > 0 && range_max_at(&x->committed, k) > f->device - f->leaving)
        wait_out(f, k);
    for (struct line *l = f->lines; l < f->end; l++)
        if (l->use_step <= k)
            brought = later(brought, bring_own(f, l, k));
    double start = later(f->now, brought);
    x->free[k] = f->now;
    if (b && b->by == BY_BOTH)
        start = later(start, gradient_sent(x, b));
    double ready = x->comm ? wait_comm(f, k, start) : start, begins = ready;
    if (x->deferred && k <= x->last_deferred)
        ready = run_deferred(f, k, ready);
    for (struct line *l = f->lines; l < f->end && !x->serial; l++)
        prefetch(f, l, k, ready - f->now + seconds);
    x->start[k] = begins;
    f->now = ready + seconds;
    if (x->comm)
        comm_queue_pass(x->comm, k, f->now, brought);
    for (struct line *l = f->lines; l < f->end; l++)
        send(f, l, k);
    while (x->serial && f->leaving > 0)
        wait_out(f, k + 1);
    if (k == x->clip_step && hosted_any(x))
        send_clip(f);
}

/* Begins a step in which the copies outs[head ..] of the previous step are still under way. */
static void start_line(struct timeline *f, struct line *l, int32_t head)
{
    struct transfer *x = f->x;
    int32_t n = l->outs->n;
    l->carried = head < n;
    l->head = l->carried ? head : 0;
    l->sent = l->next_in = l->used = 0;
    l->use_step = step_of(f, l->ins, l->used, true);
    l->clear = -1;
    l->in_free = 0;
    l->out_free = l->carried ? x->list[l->outs->items[n - 1]].offload.out_end - f->shift : 0;
    for (int32_t i = head; i < n; i++) {
        x->gone[l->outs->items[i]] = false;
        f->leaving += leaving_bytes(&x->list[l->outs->items[i]]);
    }
    find_leaving(f, l);
    l->send_step = step_of(f, l->outs, l->sent, false);
}

/* The clip values occupy the device until the end of their step only, unless updates are deferred:
 * the next step waits for their copy out. */
static double clip_left(const struct timeline *f)
{
    bool leave = hosted_any(f->x) && !f->x->deferred && !f->drains;
    return leave ? fmax(0, f->x->clip_end - f->shift) : 0;
}

/* Simulates one step; now is INFINITY if the step cannot end within the limit. */
static void simulate_round(struct timeline *f, const int32_t heads[TIER_COUNT], double shift)
{
    struct transfer *x = f->x;
    f->spared = x->hosted_seconds + 1e-9 * x->rest[0]; /* 1e-9: rounding of sums */
    f->shift = shift;
    f->now = clip_left(f);
    f->comm_waits = f->leaving = f->left = f->held = x->held.n = f->deferred = 0;
    f->host = f->drains ? 0 : later(0, f->host - shift);
    comm_queue_start(x->comm);
    f->left_step = step_of(f, &x->cleans, f->left, false);
    for (int32_t i = 0; i < x->n; i++)
        x->gone[i] = x->list[i].wraps || x->list[i].clean;
    for (int t = 0; t < TIER_COUNT; t++)
        start_line(f, &f->lines[t], heads[t]);
    range_max_set(&x->committed, x->needed);
    for (int32_t k = 0; k < x->p->n_steps; k++) {
        if (f->now + x->rest[k] - f->spared > f->limit) {
            f->now = INFINITY;
            return;
        }
        simulate_step(f, k);
        if (k == x->p->n_body - 1) {
            comm_queue_finish(x->comm, x->g->n_micro, &f->now, &f->comm_waits);
            f->body = f->now;
        }
    }
    repeat_tail(f);
    comm_queue_finish(x->comm, 1, &f->now, &f->comm_waits);
    for (int t = 0; t < TIER_COUNT && f->drains; t++)
        f->now = fmax(f->now, fmax(f->lines[t].out_free, f->host));
    leave_clean(f, x->p->n_steps);
    complete_until(f, x->p->n_steps, f->now);
}

/* A checksum of what a step leaves to the next one: the ends of copies out under way and of work on
 * the host. */
static double left_over(const struct timeline *f)
{
    const struct transfer *x = f->x;
    double sum = 0;
    for (const struct line *l = f->lines; l < f->lines + TIER_COUNT; l++)
        for (int32_t i = l->head; i < l->outs->n; i++)
            sum += x->list[l->outs->items[i]].offload.out_end;
    return sum + f->host + x->clip_end;
}

static bool are_close(double a, double b)
{
    return fabs(a - b) <= CLOSE * a;
}

/* When step k needs its copies in: a collective may run before the ops around it. */
static double needed_at(const struct transfer *x, int32_t k)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    double start = x->start[k];
    return o->collective ? fmin(start, comm_queue_end_of(x->comm, k) - o->comm_seconds) : start;
}

/*
 * Delays copies in as far as no step waits: their bytes then occupy the device for less time, which
 * leaves fewer holes between addresses.  The margin covers errors of the forecast.
 */
static void postpone(struct transfer *x, const struct ranking *ins, double margin)
{
    double until = INFINITY;
    int32_t step = x->p->n_steps - 1;
    for (int32_t i = ins->n - 1; i >= 0; i--) {
        struct idle_gap *a = &x->list[ins->items[i]];
        struct offload_times *k = &a->offload;
        double length = k->in_end - k->in_start, use = needed_at(x, a->use_step) - margin;
        double end = use < until ? use : until;
        if (end > k->in_end) {
            k->in_end = end;
            k->in_start = end - length;
            while (x->free[step] > k->in_start)
                step--;
            k->in_step = step < a->use_step ? step : a->use_step;
        }
        until = k->in_start;
    }
}

/* Seconds of the copies of a queue that runs alone. */
static double queue_length(const struct timeline *f, const struct ranking *r, double rate)
{
    double seconds = 0;
    for (int32_t i = 0; i < r->n; i++)
        seconds += queue_seconds(f->x->m, f->x->list[r->items[i]].bytes, rate, 0, false);
    return seconds;
}

/* A lower bound of the step: the busiest queue. */
static double min_seconds(const struct timeline *f)
{
    double most = 0;
    for (const struct line *l = f->lines; l < f->lines + TIER_COUNT; l++)
        most = later(most, later(queue_length(f, l->outs, l->out_rate),
                                 queue_length(f, l->ins, l->in_rate)));
    return most;
}

void transfer_simulate(struct transfer *x, int64_t device, double limit)
{
    const struct graph *g = x->g;
    struct timeline f = {.x = x, .device = device, .limit = limit};
    f.drains = g->n_micro > 1 || x->serial || x->drains;
    const int32_t ends[TIER_COUNT] = {x->outs[TIER_HOST].n, x->outs[TIER_NVME].n};
    int32_t heads[TIER_COUNT] = {ends[TIER_HOST], ends[TIER_NVME]};
    double shift = 0, left = 0;
    x->seconds = INFINITY;
    x->clip_end = 0;
    for (int32_t i = 0; i < x->n_groups && x->repeated; i++)
        x->groups[i].end = x->list[x->n + i].offload.out_end = 0;
    set_lines(&f);
    if (min_seconds(&f) > limit)
        return;
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].clean)
            x->list[i].offload.out_step = x->list[i].offload.free_step = x->list[i].out_step;
    for (int round = 0;; round++) {
        simulate_round(&f, heads, shift);
        if (f.now > limit)
            return;
        const int32_t now_heads[TIER_COUNT] = {f.lines[TIER_HOST].head, f.lines[TIER_NVME].head};
        double now_left = left_over(&f);
        bool nothing = !memcmp(heads, ends, sizeof(ends)) && !hosted_any(x);
        bool same = !memcmp(heads, now_heads, sizeof(heads)) &&
                    (nothing || (are_close(f.now, shift) && are_close(now_left, left)));
        if (f.drains || same)
            break;
        memcpy(heads, now_heads, sizeof(heads));
        shift = f.now;
        left = now_left;
        if (round == ROUNDS) {
            f.drains = true;
            memcpy(heads, ends, sizeof(ends));
        }
    }
    for (int t = 0; t < TIER_COUNT; t++)
        postpone(x, &x->ins[t], f.now * MARGIN);
    x->seconds = f.now + f.body * (g->n_micro - 1);
    x->drained = f.drains && g->n_micro == 1;
    x->exposed_comm = f.comm_waits;
}
