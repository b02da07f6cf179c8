/* The proof of the parks of a plan; see check.h.  Shares nothing with the search but the types. */
#include <stdlib.h>
#include <string.h>
#include "plan/check.h"

struct proof {
    const struct graph *g;
    const struct plan *p;
    char *message;
    int32_t *order; /* parks in the order of a queue or of addresses */
    int32_t *of;    /* per storage: one of its parks, or -1 */
};

static int violation(struct proof *c, const char *fmt, ...) CKPT_PRINTF(2, 3);

static int violation(struct proof *c, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(c->message, CKPT_MESSAGE, fmt, ap);
    va_end(ap);
    return CKPT_EPLAN;
}

static const char *name_of(const struct proof *c, const struct plan_park *k)
{
    const char *name = c->g->storages[k->storage].name;
    return name ? name : "an unnamed storage";
}

static bool wraps(const struct plan_park *k)
{
    return k->use_step <= k->out_step;
}

/* Steps from the end of the use before the absence. */
static int32_t after_out(const struct plan *p, const struct plan_park *k, int32_t step)
{
    return step >= k->out_step ? step - k->out_step : step - k->out_step + p->n_steps;
}

static int32_t use_after_out(const struct plan *p, const struct plan_park *k)
{
    return wraps(k) ? k->use_step - k->out_step + p->n_steps : k->use_step - k->out_step;
}

static int check_park(struct proof *c, int32_t n)
{
    const struct plan *p = c->p;
    const struct plan_park *k = &p->parks[n];
    int32_t last = p->n_steps - 1;
    if (k->storage < 0 || k->storage >= c->g->n_storages)
        return violation(c, "park %d is of storage %d of %d", (int)n, (int)k->storage,
                         (int)c->g->n_storages);
    const struct graph_storage *s = &c->g->storages[k->storage];
    if (k->tier != FATE_PARK_HOST && k->tier != FATE_PARK_NVME)
        return violation(c, "park %d goes to no tier", (int)n);
    if (k->out_step < 0 || k->free_step < 0 || k->in_step < 0 || k->use_step < 0 ||
        k->out_step > last || k->free_step > last || k->in_step > last || k->use_step > last)
        return violation(c, "park %d has a step outside of the plan", (int)n);
    if (s->carried || wraps(k) != s->persistent)
        return violation(c, "park %d: %.200s cannot leave there", (int)n, name_of(c, k));
    int32_t gone = after_out(p, k, k->free_step), room = after_out(p, k, k->in_step);
    if (gone >= room || room > use_after_out(p, k))
        return violation(c,
                         "park %d: %.200s goes out after step %d, is freed after %d, gets room at "
                         "%d and is used at %d: not in this order",
                         (int)n, name_of(c, k), (int)k->out_step, (int)k->free_step,
                         (int)k->in_step, (int)k->use_step);
    if (n > 0 &&
        (p->parks[n - 1].out_step > k->out_step ||
         (p->parks[n - 1].out_step == k->out_step && p->parks[n - 1].storage >= k->storage)))
        return violation(c, "park %d is out of order", (int)n);
    if (s->persistent && c->of[k->storage] >= 0)
        return violation(c, "park %d: %.200s is parked twice", (int)n, name_of(c, k));
    c->of[k->storage] = n;
    return 0;
}

/* ---- residence ------------------------------------------------------------------------------ */

static const struct plan_instance *instance_with(const struct plan *p, int32_t s, int32_t first,
                                                 int32_t last)
{
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        if (t->storage == s && (first < 0 || t->first == first) && (last < 0 || t->last == last))
            return t;
    }
    return NULL;
}

static int check_residence(struct proof *c, int32_t n)
{
    const struct plan *p = c->p;
    const struct plan_park *k = &p->parks[n];
    int32_t count = 0;
    const struct plan_instance *before = instance_with(p, k->storage, -1, k->free_step);
    const struct plan_instance *behind = instance_with(p, k->storage, k->in_step, -1);
    if (!before || !behind)
        return violation(c, "park %d: no instance of %.200s %s step %d", (int)n, name_of(c, k),
                         before ? "begins at" : "ends after",
                         before ? (int)k->in_step : (int)k->free_step);
    if (!wraps(k))
        return 0;
    for (int32_t i = 0; i < p->n_instances; i++)
        count += p->instances[i].storage == k->storage;
    if (before == behind ? count == 1
                         : count == 2 && before->first == 0 && behind->last == p->n_steps - 1 &&
                               before->offset == behind->offset)
        return 0;
    return violation(c, "park %d: %.200s does not stay at one address round the end of the step",
                     (int)n, name_of(c, k));
}

/* Nobody touches a storage between the two uses around its absence. */
static int check_touch(struct proof *c, int32_t s, int32_t step)
{
    for (int32_t n = 0; n < c->p->n_parks; n++) {
        const struct plan_park *k = &c->p->parks[n];
        int32_t at = after_out(c->p, k, step);
        if (k->storage == s && at > 0 && at < use_after_out(c->p, k))
            return violation(c, "step %d uses %.200s before its copy is complete (park %d)",
                             (int)step, name_of(c, k), (int)n);
    }
    return 0;
}

static int check_touches(struct proof *c)
{
    int rc = 0;
    for (int32_t k = 0; k < c->p->n_steps && !rc; k++) {
        const struct graph_op *o = &c->g->ops[c->p->steps[k].op];
        for (int32_t j = 0; j < o->n_reads + o->n_writes && !rc; j++) {
            int32_t s = c->g->refs[j < o->n_reads ? o->reads + j : o->writes + j - o->n_reads];
            if (c->of[s] >= 0)
                rc = check_touch(c, s, k);
        }
    }
    return rc;
}

/* ---- queues --------------------------------------------------------------------------------- */

enum by { BY_OUT, BY_IN, BY_ADDRESS };

/* Of absences that wrap round the copies out come first; the others go out a period later. */
static double key_of(const struct plan *p, const struct plan_park *k, enum by by)
{
    if (by == BY_ADDRESS)
        return (double)k->tier_offset;
    if (by == BY_IN)
        return k->in_start;
    return wraps(k) ? k->out_start : k->out_start + p->seconds;
}

static bool is_before(const struct plan *p, int32_t a, int32_t b, enum by by)
{
    double x = key_of(p, &p->parks[a], by), y = key_of(p, &p->parks[b], by);
    return x != y ? x < y : a < b;
}

/* Heap sort: the comparison needs the plan. */
static void sift(const struct proof *c, int32_t at, int32_t n, enum by by)
{
    int32_t *a = c->order;
    for (int32_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && is_before(c->p, a[child], a[child + 1], by))
            child++;
        if (!is_before(c->p, a[at], a[child], by))
            return;
        int32_t swap = a[at];
        a[at] = a[child];
        a[child] = swap;
    }
}

static void sort_parks(const struct proof *c, enum by by)
{
    int32_t n = c->p->n_parks;
    for (int32_t i = 0; i < n; i++)
        c->order[i] = i;
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift(c, i, n, by);
    for (int32_t end = n - 1; end > 0; end--) {
        int32_t swap = c->order[0];
        c->order[0] = c->order[end];
        c->order[end] = swap;
        sift(c, 0, end, by);
    }
}

/* A copy may begin when its step has come, and a step waits for its copies: if one that must wait
 * for a later step stands before one that an earlier step waits for, neither ever runs. */
static int check_queue(struct proof *c, enum by by)
{
    const struct plan *p = c->p;
    double busy_until = 0;
    int64_t waits_for = 0;
    sort_parks(c, by);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *k = &p->parks[c->order[i]];
        double start = by == BY_OUT ? k->out_start : k->in_start;
        double end = by == BY_OUT ? k->out_end : k->in_end;
        double shift = by == BY_OUT && !wraps(k) ? p->seconds : 0;
        int64_t release = by == BY_OUT ? k->out_step : k->in_step, due = k->use_step;
        if (by == BY_OUT)
            due = k->out_step + after_out(p, k, k->free_step);
        if (by == BY_OUT && !wraps(k)) {
            release += p->n_steps;
            due += p->n_steps;
        }
        if (!(start >= 0) || !(end > start))
            return violation(c, "park %d: a copy of %.200s takes no time", (int)c->order[i],
                             name_of(c, k));
        if (start + shift < busy_until - 1e-9 * p->seconds)
            return violation(c, "park %d: the copy of %.200s starts while the queue is busy",
                             (int)c->order[i], name_of(c, k));
        if (waits_for > due)
            return violation(c, "park %d: %.200s and a copy before it wait for each other",
                             (int)c->order[i], name_of(c, k));
        busy_until = end + shift;
        waits_for = release > waits_for ? release : waits_for;
    }
    return 0;
}

/* The copies against the clock: when the steps begin by the seconds of the graph. */
static int check_clock(struct proof *c, const double *start)
{
    const struct plan *p = c->p;
    double period = start[p->n_steps], slack = 1e-9 * period;
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        bool next_step = k->free_step < k->out_step;
        double freed = start[k->free_step + 1] + (next_step ? period : 0);
        if (k->out_start < start[k->out_step + 1] - slack)
            return violation(c, "park %d: %.200s goes out while step %d still uses it", (int)n,
                             name_of(c, k), (int)k->out_step);
        if (k->out_end > freed + slack)
            return violation(c, "park %d: %.200s is freed after step %d, before its copy is out",
                             (int)n, name_of(c, k), (int)k->free_step);
        if (k->in_start < start[k->in_step] - slack)
            return violation(c, "park %d: %.200s comes back before it has room at step %d", (int)n,
                             name_of(c, k), (int)k->in_step);
        if (k->in_end > start[k->use_step] + slack)
            return violation(c, "park %d: step %d uses %.200s before its copy is complete", (int)n,
                             (int)k->use_step, name_of(c, k));
    }
    return 0;
}

/* A plan made for a machine with other costs keeps its order, but not its times. */
static bool same_costs(const struct proof *c, double *start)
{
    const struct plan *p = c->p;
    double whole = 0;
    start[0] = 0;
    for (int32_t k = 0; k < p->n_steps; k++) {
        double seconds = c->g->ops[p->steps[k].op].seconds;
        start[k + 1] = start[k] + seconds;
        whole += seconds * (k < p->n_body ? c->g->n_micro : 1);
    }
    double differ = whole + p->exposed_seconds - p->seconds;
    return p->exposed_seconds == 0 && differ <= 1e-9 * whole && differ >= -1e-9 * whole;
}

static int check_times(struct proof *c)
{
    double *start = malloc(((size_t)c->p->n_steps + 1) * sizeof(*start));
    if (!start)
        return CKPT_ENOMEM;
    int rc = same_costs(c, start) ? check_clock(c, start) : 0;
    free(start);
    if (rc)
        return rc;
    for (int32_t n = 0; n < c->p->n_parks; n++) {
        const struct plan_park *k = &c->p->parks[n];
        double back = wraps(k) ? k->in_start + c->p->seconds : k->in_start;
        if (back < k->out_end)
            return violation(c, "park %d: %.200s comes back before it is out", (int)n,
                             name_of(c, k));
    }
    rc = check_queue(c, BY_OUT);
    return rc ? rc : check_queue(c, BY_IN);
}

/* ---- tiers ---------------------------------------------------------------------------------- */

/* Whether two absences are ever both going on, the copies included. */
static bool both_away(const struct plan *p, const struct plan_park *a, const struct plan_park *b)
{
    return after_out(p, a, b->out_step) <= use_after_out(p, a) ||
           after_out(p, b, a->out_step) <= use_after_out(p, b);
}

static int check_tier(struct proof *c, enum fate tier, int64_t bytes, int64_t budget)
{
    const struct plan *p = c->p;
    if (bytes < 0 || bytes > budget)
        return violation(c, "%lld bytes parked in the %s tier are over its budget of %lld",
                         (long long)bytes, tier == FATE_PARK_HOST ? "host" : "NVMe",
                         (long long)budget);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *a = &p->parks[c->order[i]];
        int64_t end = a->tier_offset + c->g->storages[a->storage].bytes;
        if (a->tier != tier)
            continue;
        if (a->tier_offset < 0 || end > bytes)
            return violation(c, "park %d: %.200s leaves the %lld bytes of its tier",
                             (int)c->order[i], name_of(c, a), (long long)bytes);
        for (int32_t j = i + 1; j < p->n_parks; j++) {
            const struct plan_park *b = &p->parks[c->order[j]];
            if (b->tier_offset >= end)
                break;
            if (b->tier == tier && both_away(p, a, b))
                return violation(c, "parks %d and %d (%.100s) overlap in their tier",
                                 (int)c->order[i], (int)c->order[j], name_of(c, b));
        }
    }
    return 0;
}

static int check_tiers(struct proof *c)
{
    const struct plan *p = c->p;
    sort_parks(c, BY_ADDRESS);
    int rc = check_tier(c, FATE_PARK_HOST, p->host_bytes, p->budgets.host);
    return rc ? rc : check_tier(c, FATE_PARK_NVME, p->nvme_bytes, p->budgets.nvme);
}

bool parks_return(const struct plan *p, int32_t s, int32_t in_step)
{
    for (int32_t n = 0; n < p->n_parks; n++)
        if (p->parks[n].storage == s && p->parks[n].in_step == in_step)
            return true;
    return false;
}

int check_parks(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE])
{
    struct proof c = {.g = g, .p = p, .message = message};
    if (p->n_parks < 0)
        return violation(&c, "the plan has a negative number of parks");
    c.order = malloc(((size_t)p->n_parks + 1) * sizeof(*c.order));
    c.of = malloc(((size_t)g->n_storages + 1) * sizeof(*c.of));
    int rc = c.order && c.of ? 0 : CKPT_ENOMEM;
    for (int32_t s = 0; s < g->n_storages && !rc; s++)
        c.of[s] = -1;
    for (int32_t n = 0; n < p->n_parks && !rc; n++)
        rc = check_park(&c, n);
    for (int32_t n = 0; n < p->n_parks && !rc; n++)
        rc = check_residence(&c, n);
    if (!rc)
        rc = check_touches(&c);
    if (!rc)
        rc = check_times(&c);
    if (!rc)
        rc = check_tiers(&c);
    free(c.order);
    free(c.of);
    return rc;
}
