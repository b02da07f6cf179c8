/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lower bound of a step's time.  It relaxes a plan to four totals: seconds of recompute, seconds
 * of waiting, bytes offloaded, bytes of state and values updated on the host.  It uses two moments:
 *
 * - The op with the most live bytes when everything is kept.  Bytes above the budget are dropped
 *   (one rerun of their op after the peak, without its inputs, cheapest first and in fractions), or
 *   updated on the host, or copied out after their last write: in the tail or in the body up to
 * this op, including the time that the step waits there.
 * - The tail.  State that is updated on the device must be resident once; the part that is not
 *   resident when the tail begins is copied in during the tail, and the step waits for it.  State
 * of deferred updates may come in the forward pass, up to the last first use of such a value.
 *
 * State of updates that the host repeats needs no copy out.
 *
 * And a drive: a persistent storage that a step writes is on the device all the time, or in the
 * host tier, or written to the drive in each step.
 *
 * Each constraint holds for every plan and gets weaker with more memory of any tier, so the bound
 * does not rise with a budget.  Transfer rates are those of the plan's clock.
 */
#include "plan/search/bound.h"
#include <math.h>
#include <stdlib.h>
#include "plan/search/comm_cost.h"

#define THIRDS    60   /* iterations of the ternary search over bytes updated on the host */
#define PRECISION 1e-9 /* relative error of that search, at most */
#define HALVES    8    /* bisections of the seconds that the host may work, ... */
#define CLOSE     1e-3 /* until they are this close */

/* A divisible item with a value and a cost. */
struct offer {
    double cost, value;
};

/* Offers, lowest cost per value first; sums include all offers up to each. */
struct offers {
    struct offer *list, *sums;
    int32_t n;
};

struct bound {
    const struct machine *m;
    double base;             /* seconds of a step that drops and copies nothing */
    double alive;            /* bytes at the peak */
    double unwritten;        /* the part that a tier may hold without a copy in each step */
    double held[TIER_COUNT]; /* bytes that another program keeps in a tier */
    double window;           /* seconds from the start of the tail to the peak of the next step */
    double tail;             /* seconds of the tail */
    double updated;          /* persistent bytes that the tail reads */
    double written;          /* persistent bytes that a step writes */
    double passing;          /* the most bytes of an op that are not persistent */
    double host_window;      /* seconds from the start of the tail to the last first use of a value
                              * that an update writes */
    double state_share;      /* the smallest part of hosted bytes that stays in the host tier */
    struct offers reruns;    /* cost: seconds; value: bytes freed at the peak */
    double worth_rerun;      /* bytes of the reruns that cost less than waiting for a copy out, */
    double worth_drive;      /* and of those that cost less than waiting for one to NVMe */
    struct offers updates;   /* that may run on the host.  cost: bytes of state and value; value:
                              * seconds on the device */
    bool repeats, defers;    /* these may be repeated there, too, and deferred */
    struct pool memory;
};

static int compare_offers(const void *a, const void *b)
{
    const struct offer *x = a, *y = b;
    double left = x->cost * y->value, right = y->cost * x->value;
    return (left > right) - (left < right);
}

static void sort_offers(struct offers *o)
{
    struct offer sum = {0, 0};
    qsort(o->list, (size_t)o->n, sizeof(*o->list), compare_offers);
    for (int32_t i = 0; i < o->n; i++) {
        sum.cost += o->list[i].cost;
        sum.value += o->list[i].value;
        o->sums[i] = sum;
    }
}

static int offers_new(struct bound *b, struct offers *o, int32_t n)
{
    POOL_ARRAY(&b->memory, o->list, n);
    POOL_ARRAY(&b->memory, o->sums, n);
    return pool_status(&b->memory);
}

static struct offer total_of(const struct offers *o)
{
    return o->n ? o->sums[o->n - 1] : (struct offer){0, 0};
}

/* The first offer whose sums reach this cost and value; n if none does. */
static int32_t find_sum(const struct offers *o, double cost, double value)
{
    int32_t low = 0, high = o->n;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (o->sums[middle].cost >= cost && o->sums[middle].value >= value)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* The sums of the offers that reach this cost or this value, the other being 0; the last one is
 * taken in part. */
static struct offer reach(const struct offers *o, double cost, double value)
{
    int32_t i = find_sum(o, cost, value);
    if (i == o->n || cost + value <= 0)
        return cost + value <= 0 ? (struct offer){0, 0} : total_of(o);
    const struct offer *last = &o->list[i], *sum = &o->sums[i];
    double part = cost > 0 ? (cost - (sum->cost - last->cost)) / last->cost
                           : (value - (sum->value - last->value)) / last->value;
    return (struct offer){sum->cost - last->cost * (1 - part),
                          sum->value - last->value * (1 - part)};
}

/* ---- facts ----------------------------------------------------------------------------------- */

/* Lists, per op, the bytes alive at the peak that one rerun recomputes. */
static int list_reruns(const struct program *p, const struct schedule *s, struct bound *b)
{
    const struct graph *g = p->g;
    struct offers *o = &b->reruns;
    double *bytes = pool_array(&b->memory, g->n_ops, sizeof(*bytes));
    int rc = offers_new(b, o, g->n_body);
    for (int32_t i = 0; i < s->n_residences && !rc; i++) {
        const struct residence *t = &s->residences.data[i];
        if (!p->droppable[t->storage] || t->first >= s->peak_step || t->last <= s->peak_step)
            continue;
        /* Only the first of several writers is counted: a lower bound of their time. */
        bytes[p->writers[p->writer_start[t->storage]]] += (double)g->storages[t->storage].bytes;
    }
    for (int32_t i = 0; i < g->n_body && !rc; i++)
        if (bytes[i] > 0)
            o->list[o->n++] = (struct offer){compute_seconds(&g->ops[i]) * g->n_micro, bytes[i]};
    if (!rc)
        sort_offers(o);
    return rc;
}

/* Per storage: whether the tail reads it before it writes it. */
static bool *find_needed(const struct graph *g, struct pool *m)
{
    bool *needed = pool_array(m, g->n_storages, sizeof(*needed));
    bool *used = pool_array(m, g->n_storages, sizeof(*used));
    for (int32_t i = g->n_body; i < g->n_ops && !m->failed; i++) {
        const struct graph_op *o = &g->ops[i];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
            int32_t s = graph_ref(g, o, j);
            needed[s] |= !used[s] && j < o->n_reads;
            used[s] = true;
        }
    }
    return needed;
}

static double seconds_between(const struct graph *g, int32_t from, int32_t to)
{
    double seconds = 0;
    for (int32_t i = from; i < to; i++)
        seconds += compute_seconds(&g->ops[i]);
    return seconds;
}

/* Lists the updates that may run on the host. */
static int list_updates(const struct program *p, struct bound *b)
{
    const struct graph *g = p->g;
    int32_t use = 0;
    b->state_share = 1;
    const bool *may = hosted_ops(g, b->m, &b->memory);
    int rc = offers_new(b, &b->updates, g->n_ops - g->n_body);
    for (int32_t i = g->n_body; i < g->n_ops && !rc; i++) {
        const struct graph_op *o = &g->ops[i];
        struct offer all = {0, o->seconds};
        double state = 0;
        if (!may[i])
            continue;
        for (int32_t j = 0; j < o->n_writes; j++) {
            int32_t s = g->refs[o->writes + j];
            all.cost += (double)g->storages[s].bytes;
            state += g->storages[s].kind == KIND_OPTIMIZER ? (double)g->storages[s].bytes : 0;
            use = p->first_use[s] < g->n_body && p->first_use[s] > use ? p->first_use[s] : use;
        }
        b->state_share = fmin(b->state_share, state / all.cost);
        b->updates.list[b->updates.n++] = all;
    }
    b->host_window = b->tail + seconds_between(g, 0, use);
    b->repeats = b->updates.n > 0 && graph_may_repeat(g);
    b->defers = b->repeats && !g->in_turn;
    if (!rc)
        sort_offers(&b->updates);
    return rc;
}

/* Bytes of the reruns that cost less than waiting for their copies at this rate. */
static double worth_rerun(const struct bound *b, double rate)
{
    double bytes = 0;
    for (int32_t i = 0; i < b->reruns.n; i++)
        if (b->reruns.list[i].cost * rate <= b->reruns.list[i].value)
            bytes = b->reruns.sums[i].value;
    return bytes;
}

static int find_facts(struct frontier *f, const struct schedule *s, struct bound *b)
{
    const struct graph *g = f->p->g;
    int32_t peak = s->n_steps ? s->steps.data[s->peak_step].op : 0;
    const bool *needed = find_needed(g, &b->memory);
    int rc = list_reruns(f->p, s, b);
    b->base = f->p->seconds - f->p->queued; /* collectives may all hide */
    b->alive = (double)s->load + (double)f->p->persistent;
    b->tail = seconds_between(g, g->n_body, g->n_ops);
    b->window = b->tail + seconds_between(g, 0, peak < g->n_body ? peak : g->n_body);
    for (int32_t i = 0; i < g->n_storages && !rc; i++) {
        double bytes = (double)g->storages[i].bytes;
        int32_t written = program_last_writer(f->p, i);
        bool here = written >= g->n_body || (written >= 0 && written <= peak);
        b->unwritten += g->storages[i].persistent && !here ? bytes : 0;
        b->updated += g->storages[i].persistent && needed[i] ? bytes : 0;
        b->written += g->storages[i].persistent && written >= 0 ? bytes : 0;
        if (graph_backing(&g->storages[i]) != TIER_DEVICE)
            b->held[graph_backing(&g->storages[i])] += bytes;
    }
    b->passing = (double)graph_largest_op(g);
    if (!rc) {
        b->worth_rerun = worth_rerun(b, b->m->d2h_both);
        b->worth_drive = worth_rerun(b, b->m->nvme_write);
        rc = list_updates(f->p, b);
    }
    return rc;
}

void bound_free(struct bound *b)
{
    if (b)
        pool_free(&b->memory);
    free(b);
}

int bound_new(struct frontier *f, const struct machine *m, struct bound **out)
{
    struct bound *b = calloc(1, sizeof(*b));
    const struct schedule *s;
    int32_t *retention = b ? retain_all(f->p, &b->memory) : NULL;
    int rc = retention ? simulate(f->sim, retention, &s) : CKPT_ENOMEM;
    if (!rc) {
        b->m = m;
        rc = find_facts(f, s, b);
    }
    if (rc)
        bound_free(b);
    else
        *out = b;
    return rc;
}

/* ---- the bound ------------------------------------------------------------------------------- */

/* Capacities in bytes, and how long the host may work in a step. */
struct room {
    double device, host, nvme;
    double seconds;
};

/* Bytes kept there by other programs and bytes still free. */
static double room_in(const struct bound *b, int tier, int64_t budget, int64_t taken)
{
    return b->held[tier] + fmax(0, (double)(budget - taken));
}

static struct room room_of(const struct bound *b, const struct budgets *budgets)
{
    const struct machine *m = b->m;
    const int64_t *taken = budgets->tier_base;
    bool link = m->d2h_both > 0 && m->h2d_both > 0;
    bool drive = link && m->nvme_write > 0 && m->nvme_read > 0;
    return (struct room){
        (double)budgets->device, link ? room_in(b, TIER_HOST, budgets->host, taken[TIER_HOST]) : 0,
        drive ? room_in(b, TIER_NVME, budgets->nvme, taken[TIER_NVME]) : 0, INFINITY};
}

/* Seconds that updates of these bytes on the host save the device, at least. */
static double saved_at_least(const struct bound *b, double hosted)
{
    struct offer all = total_of(&b->updates);
    return all.cost > 0 ? all.value * hosted / all.cost : 0;
}

/* The most bytes of updates that the host may repeat beside those that it runs, in a step of
 * r->seconds. */
static double repeated_at_most(const struct bound *b, const struct room *r, double hosted)
{
    double most = fmin(total_of(&b->updates).cost, r->seconds * b->m->host_update / 2);
    return b->repeats ? fmax(0, most - hosted) : 0;
}

/* The least seconds that a step waits for state: bytes in, of which the deferred part may come in
 * the forward pass. */
static double wait_for_state(const struct bound *b, const struct room *r, double in, double hosted)
{
    double rate = b->m->h2d_both, deferred = b->defers ? repeated_at_most(b, r, hosted) : 0;
    double tail = (in - deferred) / rate - b->tail, both = in / rate - b->host_window;
    return deferred > 0 ? fmax(tail, both) : in / rate - b->tail;
}

/* The least seconds that a step waits: the tail for state to be copied in, and first uses for
 * values that the host updates. */
static double least_wait(const struct bound *b, const struct room *r, double hosted)
{
    double in = b->updated - hosted - r->device, saved = saved_at_least(b, hosted);
    double wait = hosted > 0 ? 2 * hosted / b->m->host_update - b->host_window : 0;
    if (in > 0)
        wait = fmax(wait, wait_for_state(b, r, in, hosted) + saved);
    if (in > r->host && r->nvme > 0)
        wait = fmax(wait, (in - r->host) / b->m->nvme_read - b->tail + saved);
    return fmax(0, wait);
}

/* The most bytes that can be off the device at the peak, and the further bytes for which a step can
 * wait: those that only the link limits, and those that the drive's rate limits. */
struct away {
    double bytes, by_link, by_drive;
};

static struct away most_away(const struct bound *b, const struct room *r, double wait,
                             double hosted)
{
    double window = b->window + wait - saved_at_least(b, hosted), link_rate = b->m->d2h_both;
    double link = b->unwritten + hosted + repeated_at_most(b, r, hosted) + link_rate * window;
    double rate = b->m->nvme_write;
    double drive = r->nvme > 0 ? b->unwritten + rate * window : 0, left = r->nvme - drive;
    double tiers = r->host + fmin(r->nvme, drive);
    struct away a = {fmin(link, tiers), fmax(0, tiers - link), 0};
    if (left <= 0)
        return a;
    if (rate >= link_rate)
        return (struct away){a.bytes, INFINITY, 0};
    /* While the link limits, the drive goes on. */
    double more = a.by_link * rate / (link_rate - rate);
    a.by_link += fmin(more, left);
    a.by_drive = left - fmin(more, left);
    return a;
}

/* The part of *over that is at most `most`, which is taken off it. */
static double take_part(double *over, double most)
{
    double part = fmax(0, fmin(*over, most));
    *over -= part;
    return part;
}

/* The shortest step with these bytes updated on the host; convex in hosted.  Bytes above the budget
 * run again or wait for their copies out, the cheapest first. */
static double shortest(const struct bound *b, const struct room *r, double hosted)
{
    double wait = least_wait(b, r, hosted);
    struct away a = most_away(b, r, wait, hosted);
    double over = b->alive - r->device - a.bytes, gone = take_part(&over, b->worth_rerun);
    wait += take_part(&over, a.by_link) / b->m->d2h_both;
    gone += take_part(&over, b->worth_drive - b->worth_rerun);
    wait += a.by_drive > 0 ? take_part(&over, a.by_drive) / b->m->nvme_write : 0;
    gone += fmax(0, over);
    return b->base + wait + reach(&b->reruns, 0, gone).cost - reach(&b->updates, hosted, 0).value;
}

/* The shortest step with any bytes updated on the host. */
static double shortest_of_all(const struct bound *b, const struct room *room, double seconds)
{
    struct room r = *room;
    r.seconds = seconds;
    double low = 0, high = fmin(total_of(&b->updates).cost, r.host / b->state_share);
    if (high <= 0)
        return shortest(b, &r, 0);
    for (int i = 0; i < THIRDS; i++) {
        double left = low + (high - low) / 3, right = high - (high - low) / 3;
        if (shortest(b, &r, left) <= shortest(b, &r, right))
            high = right;
        else
            low = left;
    }
    return shortest(b, &r, low) * (1 - PRECISION);
}

/* The seconds that a drive writes in each step. */
static double least_writing(const struct bound *b, const struct room *r)
{
    double bytes = b->written - r->host - fmax(0, r->device - b->passing);
    return bytes > 0 ? bytes / b->m->nvme_write * (1 - PRECISION) : 0;
}

/* What the host repeats takes at most a step.  The longer the step, the more it may repeat, so the
 * shortest one with that is found by bisection. */
double bound_seconds(const struct bound *b, const struct budgets *budgets)
{
    struct room r = room_of(b, budgets);
    if (b->alive - total_of(&b->reruns).value > r.device + r.host + r.nvme)
        return INFINITY; /* bytes that cannot be dropped fit in no tier */
    if (r.host + r.nvme <= 0)
        return b->base + reach(&b->reruns, 0, b->alive - r.device).cost;
    double low = shortest_of_all(b, &r, INFINITY);
    double high = b->repeats ? shortest_of_all(b, &r, 0) : low;
    for (int i = 0; i < HALVES && low < high * (1 - CLOSE); i++) {
        double middle = low + (high - low) / 2;
        *(shortest_of_all(b, &r, middle) > middle ? &low : &high) = middle;
    }
    return r.nvme > 0 ? fmax(low, least_writing(b, &r)) : low;
}
