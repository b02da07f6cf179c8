/*
 * The clock of a step with copies: two queues, one out and one in, each a copy at a time, and steps
 * that wait where they must.  What leaves goes as soon as the step that used it last has ended.
 * What comes back comes in the order of its uses, as soon as there is room from then on to the
 * use.  A step waits for its own copies in; and for copies out where their bytes are needed.
 *
 * A step is periodic: what the update sends out may still be under way when the next step begins,
 * so the step is played until it begins as it ends.  With several micro-steps it ends with its last
 * copy instead, for the body must be the same each time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/comm.h"
#include "plan/transfer.h"

#define ROUNDS 8
#define MARGIN 0.01 /* of a step's time: how much earlier copies in end than they must */

struct flow {
    struct transfer *x;
    int64_t device;
    double limit;
    bool drains; /* the step ends when its last copy has */
    double now, out_free, in_free;
    double body;       /* when the body ends */
    double comm_waits; /* for collectives, in a whole step */
    int64_t leaving;   /* bytes whose copy out is not complete */
    int32_t head;      /* of x->outs: the first of these, or, while carried, of the step before */
    int32_t sent;      /* of x->outs: how many have begun in this step */
    bool carried;      /* head still is of the step before */
    double shift;      /* how long that step took */
    double host;       /* when the host has done its updates so far */
    int32_t next_in;   /* of x->ins */
    int32_t clear;     /* the step from which on there is room for that one up to its use, or -1 */
};

static double copy_seconds(const struct transfer *x, const struct absence *a, bool out)
{
    double rate = out ? x->m->d2h_both : x->m->h2d_both;
    double drive = out ? x->m->nvme_write : x->m->nvme_read;
    if (a->park.tier == FATE_PARK_NVME && drive < rate)
        rate = drive;
    return (double)a->bytes / rate;
}

/* ---- the queue out -------------------------------------------------------------------------- */

static struct absence *first_leaving(const struct flow *f)
{
    if (!f->carried && f->head >= f->sent)
        return NULL;
    return &f->x->list[f->x->outs.items[f->head]];
}

static double leaves_at(const struct flow *f, const struct absence *a)
{
    return a->park.out_end - (f->carried ? f->shift : 0);
}

/* The first copy out is complete before step k. */
static void complete(struct flow *f, int32_t k)
{
    struct transfer *x = f->x;
    int32_t i = x->outs.items[f->head];
    x->list[i].park.free_step = k > 0 ? k - 1 : x->p->n_steps - 1;
    x->gone[i] = true;
    f->leaving -= x->list[i].bytes;
    f->head++;
    if (f->carried && f->head == x->outs.n) {
        f->carried = false;
        f->head = 0;
    }
}

static void complete_until(struct flow *f, int32_t k, double now)
{
    for (const struct absence *a; (a = first_leaving(f)) && leaves_at(f, a) <= now;)
        complete(f, k);
}

/* Waits for the first copy out. */
static void wait_out(struct flow *f, int32_t k)
{
    double until = leaves_at(f, first_leaving(f));
    f->now = f->now > until ? f->now : until;
    complete_until(f, k, f->now);
}

static void send(struct flow *f, int32_t k)
{
    struct transfer *x = f->x;
    for (; f->sent < x->outs.n; f->sent++) {
        struct absence *a = &x->list[x->outs.items[f->sent]];
        if (a->out_step != k)
            return;
        a->park.out_start = f->out_free > f->now ? f->out_free : f->now;
        a->park.out_end = a->park.out_start + copy_seconds(x, a, true);
        f->out_free = a->park.out_end;
        f->leaving += a->bytes;
        x->gone[x->outs.items[f->sent]] = false;
    }
}

/* ---- the queue in --------------------------------------------------------------------------- */

static struct absence *first_coming(const struct flow *f)
{
    return f->next_in < f->x->ins.n ? &f->x->list[f->x->ins.items[f->next_in]] : NULL;
}

/* The step from which on the bytes of a fit up to its use. */
static int32_t clear_from(const struct flow *f, const struct absence *a)
{
    const struct transfer *x = f->x;
    int32_t least = a->wraps ? 0 : a->out_step + 1, k = a->use_step;
    if (x->g->n_micro > 1 && a->use_step >= x->p->n_body && least < x->p->n_body)
        least = x->p->n_body;
    while (k > least && x->committed[k - 1] <= f->device - a->bytes)
        k--;
    return k;
}

/* When the host has made what comes back, in the step before. */
static double made_at(const struct flow *f, const struct absence *a)
{
    return a->bucket >= 0 ? f->x->buckets[a->bucket].end - f->shift : 0;
}

static void bring(struct flow *f, struct absence *a, int32_t k)
{
    a->park.in_step = k;
    a->park.in_start = fmax(made_at(f, a), fmax(f->in_free, f->now));
    a->park.in_end = a->park.in_start + copy_seconds(f->x, a, false);
    f->in_free = a->park.in_end;
    for (int32_t j = k; j < a->use_step; j++)
        f->x->committed[j] += a->bytes;
    f->next_in++;
    f->clear = -1;
}

/* Brings in what there is room for, unless the queue is busy for all of step k anyhow. */
static void prefetch(struct flow *f, int32_t k, double seconds)
{
    struct transfer *x = f->x;
    for (struct absence *a; (a = first_coming(f)) && f->in_free < f->now + seconds;) {
        if (f->clear < 0)
            f->clear = clear_from(f, a);
        if (k < f->clear || !x->gone[x->ins.items[f->next_in]] ||
            x->committed[k] + f->leaving > f->device - a->bytes || made_at(f, a) > f->now + seconds)
            return;
        bring(f, a, k);
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* The host updates one bucket after the other, with what is there: gradient and clip values. */
static void step_on_host(struct flow *f, int32_t k)
{
    struct transfer *x = f->x;
    struct bucket *b = &x->buckets[x->bucket_at[k]];
    b->start = fmax(fmax(f->host, f->now), fmax(x->clip_end, x->list[b->value].park.out_end));
    b->end = f->host = b->start + b->seconds;
    x->free[k] = x->start[k] = f->now;
}

static void send_clip(struct flow *f)
{
    struct transfer *x = f->x;
    x->clip_start = fmax(f->out_free, f->now);
    x->clip_end = x->clip_start + (double)x->g->storages[x->clip].bytes / x->m->d2h_both;
    f->out_free = x->clip_end;
}

static void play_step(struct flow *f, int32_t k)
{
    struct transfer *x = f->x;
    double seconds = spine_seconds(&x->g->ops[x->p->steps[k].op]), brought = 0;
    if (x->bucket_at[k] >= 0 && x->buckets[x->bucket_at[k]].taken) {
        step_on_host(f, k);
        return;
    }
    complete_until(f, k, f->now);
    while (f->leaving > 0 && x->committed[k] > f->device - f->leaving)
        wait_out(f, k);
    for (int32_t i = f->next_in; i < x->ins.n && x->list[x->ins.items[i]].use_step == k; i++)
        while (!x->gone[x->ins.items[i]])
            wait_out(f, k);
    while (first_coming(f) && first_coming(f)->use_step == k)
        bring(f, first_coming(f), k);
    double start = f->now;
    x->free[k] = f->now;
    if (f->next_in > 0) {
        const struct absence *a = &x->list[x->ins.items[f->next_in - 1]];
        if (a->use_step == k && a->park.in_end > start)
            start = brought = a->park.in_end;
    }
    double ready = comm_queue_wait(x->comm, k, start);
    bool collective = x->g->ops[x->p->steps[k].op].collective;
    f->comm_waits +=
        (k < x->p->n_body ? x->g->n_micro : 1) * (ready - start + (collective ? seconds : 0));
    start = ready;
    prefetch(f, k, start - f->now + seconds);
    x->start[k] = start;
    f->now = start + seconds;
    comm_queue_pass(x->comm, k, f->now, brought);
    send(f, k);
    if (x->hosted && k == x->clip_step)
        send_clip(f);
}

/* The spine waits until collectives are done, so many times in a whole step. */
static void wait_collectives(struct flow *f, int32_t times)
{
    double waits = comm_queue_end(f->x->comm) - f->now;
    if (waits <= 0)
        return;
    f->comm_waits += waits * times;
    f->now += waits;
}

static void end_body(struct flow *f)
{
    wait_collectives(f, f->x->g->n_micro);
    f->body = f->now;
}

/* One step.  Begins with the copies out that the step before left: of x->outs from head on. */
static void play(struct flow *f, int32_t head, double shift)
{
    struct transfer *x = f->x;
    int32_t n = x->outs.n;
    f->carried = head < n;
    f->head = f->carried ? head : 0;
    f->sent = f->next_in = 0;
    f->clear = -1;
    f->shift = shift;
    f->now = f->in_free = f->comm_waits = f->leaving = f->host = 0;
    comm_queue_start(x->comm);
    f->out_free = f->carried ? x->list[x->outs.items[n - 1]].park.out_end - shift : 0;
    for (int32_t i = 0; i < x->n; i++)
        x->gone[i] = x->list[i].wraps || x->list[i].clean;
    for (int32_t i = head; i < n; i++) {
        x->gone[x->outs.items[i]] = false;
        f->leaving += x->list[x->outs.items[i]].bytes;
    }
    memcpy(x->committed, x->needed, (size_t)x->p->n_steps * sizeof(*x->committed));
    for (int32_t k = 0; k < x->p->n_steps && f->now <= f->limit; k++) {
        play_step(f, k);
        if (k == x->p->n_body - 1)
            end_body(f);
    }
    wait_collectives(f, 1);
    if (f->drains)
        f->now = fmax(f->now, fmax(f->out_free, f->host));
    complete_until(f, x->p->n_steps, f->now);
}

/* What the step before leaves to this one: the copies out from head on, and when they end. */
static double left_over(const struct flow *f, int32_t head)
{
    const struct transfer *x = f->x;
    double sum = 0;
    for (int32_t i = head; i < x->outs.n; i++)
        sum += x->list[x->outs.items[i]].park.out_end;
    return sum + f->host;
}

/*
 * Copies in that could be later without a wait are: so the bytes of the device are taken for less
 * time, which leaves fewer holes between addresses.  Some time is left for what the clock does not
 * know.
 */
static void postpone(struct transfer *x, double margin)
{
    double until = INFINITY;
    for (int32_t i = x->ins.n - 1; i >= 0; i--) {
        struct absence *a = &x->list[x->ins.items[i]];
        struct plan_park *k = &a->park;
        double length = k->in_end - k->in_start, use = x->start[a->use_step] - margin;
        double end = use < until ? use : until;
        if (end > k->in_end) {
            k->in_end = end;
            k->in_start = end - length;
            while (k->in_step < a->use_step && x->free[k->in_step + 1] <= k->in_start)
                k->in_step++;
        }
        until = k->in_start;
    }
}

/* The queue in is busy for all that is taken, in every step. */
static double least_seconds(const struct transfer *x)
{
    double seconds = 0;
    for (int32_t i = 0; i < x->ins.n; i++)
        seconds += copy_seconds(x, &x->list[x->ins.items[i]], false);
    return seconds;
}

void transfer_play(struct transfer *x, int64_t device, double limit)
{
    const struct graph *g = x->g;
    struct flow f = {.x = x, .device = device, .limit = limit, .drains = g->n_micro > 1};
    int32_t head = x->outs.n;
    double shift = 0, left = 0;
    x->seconds = INFINITY;
    if (least_seconds(x) > limit)
        return;
    for (int32_t i = 0; i < x->n; i++)
        if (x->list[i].clean)
            x->list[i].park.free_step = x->list[i].out_step;
    for (int round = 0;; round++) {
        play(&f, head, shift);
        if (f.now > limit)
            return;
        double now_left = left_over(&f, f.head);
        bool same = f.head == head &&
                    ((head == x->outs.n && !x->hosted) || (f.now == shift && now_left == left));
        if (f.drains || same)
            break;
        head = f.head;
        shift = f.now;
        left = now_left;
        if (round == ROUNDS) {
            f.drains = true;
            head = x->outs.n;
        }
    }
    postpone(x, f.now * MARGIN);
    x->seconds = f.now + f.body * (g->n_micro - 1);
    x->exposed_comm = f.comm_waits;
}
