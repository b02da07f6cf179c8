/* The proof of the copies of a plan; see check_queues.h. */
#include <stdlib.h>
#include "plan/check.h"
#include "plan/check_comm.h"
#include "plan/check_queues.h"

struct copies {
    const struct graph *g;
    const struct plan *p;
    char *message;
    struct copy *list; /* of one queue, in its order */
    int32_t n;
    double *freed; /* per step: when the last copy out has ended whose bytes it frees */
    double *back;  /* per step: when the last copy in has ended that it waits for */
    double *room;  /* per step: when everything before it is done and its room is free */
    struct check_comm *comm;
};

struct copy {
    double start, end;
    int32_t park, after, until; /* it waits for step after, and step until waits for it */
};

static const char *name_of(const struct copies *c, const struct plan_park *k)
{
    const char *name = c->g->storages[k->storage].name;
    return name ? name : "an unnamed storage";
}

static const struct graph_op *op_at(const struct copies *c, int32_t k)
{
    return &c->g->ops[c->p->steps[k].op];
}

static bool wraps(const struct plan_park *k)
{
    return k->use_step <= k->out_step;
}

/* ---- one queue ------------------------------------------------------------------------------ */

static int compare_copies(const void *a, const void *b)
{
    const struct copy *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->until != y->until)
        return x->until < y->until ? -1 : 1;
    return (x->park > y->park) - (x->park < y->park);
}

static void list_queue(struct copies *c, bool out, enum fate tier)
{
    const struct plan *p = c->p;
    c->n = 0;
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        if (k->tier != tier)
            continue;
        int32_t freed = k->free_step + (k->free_step < k->out_step ? p->n_steps : 0);
        if (out && !k->clean)
            c->list[c->n++] = (struct copy){k->out_start, k->out_end, n, k->out_step, freed};
        if (!out)
            c->list[c->n++] = (struct copy){k->in_start, k->in_end, n, k->in_step, k->use_step};
    }
    for (int32_t n = 0; n < p->n_lodgings && out && tier == FATE_PARK_HOST; n++) {
        const struct plan_lodging *l = &p->lodgings[n];
        if (l->out_step >= 0 && l->out_end > 0)
            c->list[c->n++] =
                (struct copy){l->out_start, l->out_end, -1 - n, l->out_step, l->out_step};
    }
    qsort(c->list, (size_t)c->n, sizeof(*c->list), compare_copies);
}

/* Of a copy: a park, or below 0 a lodging. */
static const char *copy_name(const struct copies *c, int32_t park)
{
    const struct plan *p = c->p;
    const char *name =
        c->g->storages[park < 0 ? p->lodgings[-1 - park].storage : p->parks[park].storage].name;
    return name ? name : "an unnamed storage";
}

/* A copy that waits for a later step than the one behind it in the queue would make the steps
 * between wait for a copy that waits for them. */
static int check_queue(struct copies *c, bool out, enum fate tier)
{
    const double slack = 1e-9 * c->p->seconds;
    list_queue(c, out, tier);
    for (int32_t i = 0; i < c->n; i++) {
        const struct copy *a = &c->list[i], *before = i ? &c->list[i - 1] : NULL;
        const char *name = copy_name(c, a->park);
        if (!(a->start >= 0) || !(a->end > a->start))
            return violation(c, "park %d: a copy of %.200s takes no time", (int)a->park, name);
        if (before && a->start < before->end - slack)
            return violation(c, "park %d: the copy of %.200s starts while the queue is busy",
                             (int)a->park, name);
        if (before && a->after < before->after)
            return violation(c, "park %d: %.200s and a copy before it wait for each other",
                             (int)a->park, name);
    }
    return 0;
}

/* Whether the plan's clock says that a storage is out before it comes back. */
static int check_turns(struct copies *c)
{
    for (int32_t n = 0; n < c->p->n_parks; n++) {
        const struct plan_park *k = &c->p->parks[n];
        double back = wraps(k) ? k->in_start + c->p->seconds : k->in_start;
        if (!k->clean && back < k->out_end - 1e-9 * c->p->seconds)
            return violation(c, "park %d: %.200s comes back before it is out", (int)n,
                             name_of(c, k));
    }
    return 0;
}

/* ---- the clock ------------------------------------------------------------------------------ */

static void later(double *a, double b)
{
    *a = b > *a ? b : *a;
}

/* Of the compute queue: a collective has another, and drags on this one; a step on the host has its
 * own, and nothing of the device waits for it. */
static double seconds_of(const struct copies *c, int32_t k)
{
    const struct graph_op *o = op_at(c, k);
    if (c->p->steps[k].on_host)
        return 0;
    return o->collective ? o->drag_seconds : o->seconds;
}

/* When the steps begin if all copies end when the plan says.  period is the whole step's. */
static double run_clock(struct copies *c, double period)
{
    const struct plan *p = c->p;
    double now = 0, body = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        c->freed[k] = c->back[k] = 0;
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        int32_t behind = (k->free_step + 1) % p->n_steps;
        bool next = k->free_step < k->out_step || behind == 0;
        later(&c->back[k->use_step], k->in_end);
        if (!k->clean)
            later(&c->freed[behind], next ? k->out_end - period : k->out_end);
    }
    check_comm_start(c->comm);
    for (int32_t k = 0; k < p->n_steps; k++) {
        later(&now, c->freed[k]);
        c->room[k] = now;
        later(&now, c->back[k]);
        now = check_comm_ready(c->comm, k, now) + seconds_of(c, k);
        check_comm_done(c->comm, k, now, c->back[k]);
        if (k == p->n_body - 1)
            later(&now, check_comm_end(c->comm));
        body = k == p->n_body - 1 ? now : body;
    }
    later(&now, check_comm_end(c->comm));
    for (int32_t n = 0; n < p->n_parks && c->g->n_micro > 1; n++)
        if (!p->parks[n].clean)
            later(&now, p->parks[n].out_end);
    return now + body * (c->g->n_micro - 1);
}

static int check_clock(struct copies *c)
{
    const struct plan *p = c->p;
    double seconds = run_clock(c, p->seconds), slack = 1e-9 * p->seconds;
    if (seconds > p->seconds + slack || seconds < p->seconds - slack)
        return violation(c, "with its copies a step takes %.9g s, the plan says %.9g s", seconds,
                         p->seconds);
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        double used = c->back[k->out_step] > c->room[k->out_step] ? c->back[k->out_step]
                                                                  : c->room[k->out_step];
        used += seconds_of(c, k->out_step);
        if (!k->clean && k->out_start < used - slack)
            return violation(c, "park %d: %.200s goes out while step %d still uses it", (int)n,
                             name_of(c, k), (int)k->out_step);
        if (k->in_start < c->room[k->in_step] - slack)
            return violation(c, "park %d: %.200s comes back before it has room at step %d", (int)n,
                             name_of(c, k), (int)k->in_step);
    }
    return 0;
}

/* ---- the host ------------------------------------------------------------------------------- */

static bool step_uses(const struct copies *c, int32_t step, int32_t s)
{
    const struct graph_op *o = &c->g->ops[c->p->steps[step].op];
    return graph_op_reads(c->g, o, s) || graph_op_writes(c->g, o, s);
}

/* What a step on the host uses is there when it begins, and what it makes goes back behind it. */
static int check_host_step(struct copies *c, int32_t step, double begin, double end)
{
    const struct plan *p = c->p;
    const double slack = 1e-9 * p->seconds;
    for (int32_t n = 0; n < p->n_lodgings; n++) {
        const struct plan_lodging *l = &p->lodgings[n];
        if (l->out_step >= 0 && begin < l->out_end - slack && step_uses(c, step, l->storage))
            return violation(c, "step %d on the host begins before %.200s is there", (int)step,
                             copy_name(c, -1 - n));
    }
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *k = &p->parks[n];
        if (!wraps(k) || !step_uses(c, step, k->storage))
            continue;
        if (!k->clean && begin < k->out_end - slack)
            return violation(c, "step %d on the host begins before %.200s is there", (int)step,
                             name_of(c, k));
        if (k->in_start + p->seconds < end - slack)
            return violation(c, "park %d: %.200s comes back before the host has made it", (int)n,
                             name_of(c, k));
    }
    return 0;
}

/* The host takes one step after the other; their times stand with the state they change. */
static int check_host(struct copies *c)
{
    const struct plan *p = c->p;
    double done = 0;
    for (int32_t k = p->n_body; k < p->n_steps; k++) {
        double begin = 0, end = 0;
        for (int32_t n = 0; n < p->n_lodgings && p->steps[k].on_host && end <= 0; n++)
            if (p->lodgings[n].out_step < 0 && p->lodgings[n].in_step < 0 &&
                step_uses(c, k, p->lodgings[n].storage)) {
                begin = p->lodgings[n].out_start;
                end = p->lodgings[n].out_end;
            }
        if (!p->steps[k].on_host)
            continue;
        if (!(end > begin) || begin < done - 1e-9 * p->seconds)
            return violation(c, "step %d on the host begins before the one before it has ended",
                             (int)k);
        int rc = check_host_step(c, k, begin, end);
        if (rc)
            return rc;
        done = end;
    }
    return 0;
}

/* A plan made for a machine with other costs keeps its order, but not its times. */
static bool same_costs(const struct copies *c)
{
    const struct plan *p = c->p;
    double whole = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        whole +=
            (op_at(c, k)->collective ? 0 : seconds_of(c, k)) * (k < p->n_body ? c->g->n_micro : 1);
    double differ = whole + p->exposed_seconds + p->exposed_comm - p->seconds;
    return differ <= 1e-9 * whole && differ >= -1e-9 * whole;
}

int check_queues(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE])
{
    struct copies c = {.g = g, .p = p, .message = message};
    size_t steps = (size_t)p->n_steps + 1;
    bool collectives = false;
    for (int32_t i = 0; i < g->n_ops; i++)
        collectives |= g->ops[i].collective != GRAPH_LOCAL;
    if (!p->n_parks && !collectives)
        return 0;
    c.list = malloc(((size_t)p->n_parks + (size_t)p->n_lodgings + 1) * sizeof(*c.list));
    c.freed = calloc(steps, sizeof(*c.freed));
    c.back = calloc(steps, sizeof(*c.back));
    c.room = calloc(steps, sizeof(*c.room));
    int rc = check_comm_new(g, p, &c.comm);
    if (!c.list || !c.freed || !c.back || !c.room)
        rc = CKPT_ENOMEM;
    for (int queue = 0; queue < 2 * TIER_COUNT && !rc; queue++)
        rc = check_queue(&c, queue % 2 == 0, queue < 2 ? FATE_PARK_HOST : FATE_PARK_NVME);
    if (!rc)
        rc = check_turns(&c);
    bool same = !rc && same_costs(&c);
    if (same)
        rc = check_clock(&c);
    if (same && !rc)
        rc = check_host(&c);
    check_comm_free(c.comm);
    free(c.list);
    free(c.freed);
    free(c.back);
    free(c.room);
    return rc;
}
