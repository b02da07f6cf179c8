/* The proof of steps that run on the host; see check.h.  Shares nothing with the search. */
#include <stdlib.h>
#include "plan/check.h"

struct proof {
    const struct graph *g;
    const struct plan *p;
    char *message;
    int32_t *from, *to; /* per lodging: the steps between which its room in the tier is taken */
    bool *used;         /* per lodging: some step on the host needs it */
    bool *parked;       /* per storage: it is parked */
};

static const char *storage_name(const struct proof *c, int32_t s)
{
    const char *name = c->g->storages[s].name;
    return name ? name : "an unnamed storage";
}

static const char *op_name(const struct proof *c, int32_t step)
{
    const char *name = c->g->ops[c->p->steps[step].op].name;
    return name ? name : "an unnamed op";
}

static bool is_state(const struct plan_lodging *l)
{
    return l->out_step < 0 && l->in_step < 0;
}

/* ---- lodgings by themselves ------------------------------------------------------------------ */

static int check_lodging(struct proof *c, int32_t n)
{
    const struct plan *p = c->p;
    const struct plan_lodging *l = &p->lodgings[n];
    if (l->storage < 0 || l->storage >= c->g->n_storages)
        return violation(c, "lodging %d is of storage %d of %d", (int)n, (int)l->storage,
                         (int)c->g->n_storages);
    if (n > 0 && p->lodgings[n - 1].storage >= l->storage)
        return violation(c, "lodging %d is out of order", (int)n);
    const struct graph_storage *s = &c->g->storages[l->storage];
    if (l->out_step < -1 || l->in_step < -1 || l->out_step >= p->n_steps ||
        l->in_step > p->n_steps || (l->in_step >= 0 && l->out_step >= l->in_step))
        return violation(c, "lodging %d: %.200s is copied behind step %d and before step %d",
                         (int)n, storage_name(c, l->storage), (int)l->out_step, (int)l->in_step);
    if (is_state(l) != (s->kind == KIND_OPTIMIZER) ||
        (l->in_step >= 0) != (s->persistent && !is_state(l)))
        return violation(c, "lodging %d: %.200s cannot be copied like that", (int)n,
                         storage_name(c, l->storage));
    if (c->parked[l->storage])
        return violation(c, "%.200s has a lodging and is parked", storage_name(c, l->storage));
    bool elsewhere = is_state(l) && s->home != HOME_ANY;
    if (elsewhere && (s->home != HOME_HOST || s->home_offset != l->tier_offset))
        return violation(c, "%.200s lodges in host memory, but its home is elsewhere",
                         storage_name(c, l->storage));
    int64_t base = p->budgets.tier_base[TIER_HOST];
    if (l->tier_offset % CKPT_ALIGN || l->tier_offset < (elsewhere ? 0 : base) ||
        l->tier_offset > base + p->host_bytes - s->bytes)
        return violation(c, "lodging %d: %.200s leaves the %lld bytes of its tier", (int)n,
                         storage_name(c, l->storage), (long long)p->host_bytes);
    return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void take_room(struct proof *c, const struct plan_lodging *l, int32_t from, int32_t to)
{
    int32_t n = (int32_t)(l - c->p->lodgings);
    c->from[n] = c->used[n] && c->from[n] < from ? c->from[n] : from;
    c->to[n] = c->used[n] && c->to[n] > to ? c->to[n] : to;
    c->used[n] = true;
}

static bool touches(const struct proof *c, int32_t step, int32_t s, bool writes)
{
    const struct graph_op *o = &c->g->ops[c->p->steps[step].op];
    return writes ? graph_op_writes(c->g, o, s) : graph_op_reads(c->g, o, s);
}

/* What step k reads has all its writers before the copy, in the residence that is copied. */
static int check_sent(struct proof *c, int32_t k, int32_t s)
{
    const struct plan *p = c->p;
    const struct plan_lodging *l = plan_lodging_of(p, s);
    const struct plan_instance *here = NULL;
    if (!l || l->out_step < 0 || l->out_step >= k || (c->g->n_micro > 1 && l->out_step < p->n_body))
        return violation(c, "step %d: %.200s reads %.200s, which is not in host memory", (int)k,
                         op_name(c, k), storage_name(c, s));
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        if (t->storage == s && t->first <= l->out_step && l->out_step <= t->last)
            here = t;
    }
    for (int32_t j = 0; j < p->n_steps && here; j++)
        if (touches(c, j, s, true) && (j < here->first || j > l->out_step))
            here = NULL;
    if (!here)
        return violation(c, "step %d: %.200s reads %.200s, which is copied when it is not whole",
                         (int)k, op_name(c, k), storage_name(c, s));
    take_room(c, l, l->out_step, k);
    return 0;
}

/* The last step on the device that writes s before step k, or -1: where its gradient takes the room
 * of the value. */
static int32_t written_before(const struct proof *c, int32_t k, int32_t s)
{
    for (int32_t j = k - 1; j >= 0; j--)
        if (touches(c, j, s, true))
            return j;
    return -1;
}

/* The value that step k makes goes back to the device. */
static int check_back(struct proof *c, int32_t k, const struct plan_lodging *l)
{
    int32_t written = written_before(c, k, l->storage);
    bool sent = written < 0 ? l->out_step < 0 : l->out_step >= written && l->out_step < k;
    if (l->in_step <= k)
        return violation(c, "step %d: %.200s makes %.200s, which is copied before", (int)k,
                         op_name(c, k), storage_name(c, l->storage));
    if (!sent)
        return violation(c,
                         "step %d: %.200s reads what stands in the room of %.200s, which is not "
                         "in host memory",
                         (int)k, op_name(c, k), storage_name(c, l->storage));
    take_room(c, l, written < 0 ? k : l->out_step, l->in_step);
    return 0;
}

/* Or it is at home: nobody copies anything else there but the gradient before. */
static int check_at_home(struct proof *c, int32_t k, int32_t s)
{
    const struct plan *p = c->p;
    int32_t written = written_before(c, k, s);
    bool sent = written < 0;
    for (int32_t n = 0; n < p->n_parks; n++) {
        const struct plan_park *t = &p->parks[n];
        if (t->storage != s)
            continue;
        bool due = written >= 0 && t->out_step >= written && t->out_step < k;
        if (t->tier != FATE_PARK_HOST || (!t->clean && !due))
            return violation(c,
                             "step %d: %.200s makes %.200s in host memory, where it does not "
                             "live, or is copied to from the device",
                             (int)k, op_name(c, k), storage_name(c, s));
        sent |= !t->clean;
    }
    if (!sent || !c->parked[s])
        return violation(c, "step %d: %.200s makes %.200s, which nobody copies %s the device",
                         (int)k, op_name(c, k), storage_name(c, s), sent ? "to" : "from");
    return 0;
}

static int check_value(struct proof *c, int32_t k, int32_t s)
{
    const struct plan_lodging *l = plan_lodging_of(c->p, s);
    int rc = l ? check_back(c, k, l) : check_at_home(c, k, s);
    for (int32_t j = k + 1; j < (l ? l->in_step : c->p->n_steps) && !rc; j++)
        if (touches(c, j, s, false))
            rc = violation(c, "step %d: %.200s reads %.200s as it was before its update", (int)j,
                           op_name(c, j), storage_name(c, s));
    return rc;
}

static int check_operand(struct proof *c, int32_t k, int32_t s, bool writes)
{
    const struct graph_storage *t = &c->g->storages[s];
    if (t->kind == KIND_OPTIMIZER) {
        const struct plan_lodging *l = plan_lodging_of(c->p, s);
        if (!l)
            return violation(c, "step %d: %.200s runs on the host, where %.200s does not live",
                             (int)k, op_name(c, k), storage_name(c, s));
        take_room(c, l, 0, c->p->n_steps);
        return 0;
    }
    if (t->persistent)
        return check_value(c, k, s);
    if (writes)
        return violation(c, "step %d: %.200s makes %.200s on the host", (int)k, op_name(c, k),
                         storage_name(c, s));
    return check_sent(c, k, s);
}

static int check_step(struct proof *c, int32_t k)
{
    const struct plan_step *step = &c->p->steps[k];
    const struct graph_op *o = &c->g->ops[step->op];
    int rc = 0;
    if (step->on_host && (k < c->p->n_body || step->again || !graph_op_updates(c->g, o)))
        return violation(c, "step %d: %.200s cannot run on the host", (int)k, op_name(c, k));
    for (int32_t j = 0; j < o->n_reads + o->n_writes && !rc; j++) {
        int32_t s = c->g->refs[j < o->n_reads ? o->reads + j : o->writes + j - o->n_reads];
        const struct plan_lodging *l = plan_lodging_of(c->p, s);
        if (step->on_host)
            rc = check_operand(c, k, s, j >= o->n_reads);
        else if (l && is_state(l))
            rc = violation(c, "step %d: %.200s uses %.200s, which lives in host memory", (int)k,
                           op_name(c, k), storage_name(c, s));
    }
    return rc;
}

/* ---- rooms ----------------------------------------------------------------------------------- */

static bool overlap(const struct proof *c, int64_t a, int32_t s, int64_t b, int32_t t)
{
    return a < b + c->g->storages[t].bytes && b < a + c->g->storages[s].bytes;
}

static int check_rooms(struct proof *c)
{
    const struct plan *p = c->p;
    for (int32_t n = 0; n < p->n_lodgings; n++) {
        const struct plan_lodging *l = &p->lodgings[n];
        if (!c->used[n])
            return violation(c, "lodging %d: no step on the host uses %.200s", (int)n,
                             storage_name(c, l->storage));
        for (int32_t m = 0; m < n; m++)
            if (overlap(c, l->tier_offset, l->storage, p->lodgings[m].tier_offset,
                        p->lodgings[m].storage) &&
                c->from[n] <= c->to[m] && c->from[m] <= c->to[n])
                return violation(c, "lodgings %d and %d (%.100s) overlap", (int)m, (int)n,
                                 storage_name(c, l->storage));
        for (int32_t m = 0; m < p->n_parks; m++)
            if (p->parks[m].tier == FATE_PARK_HOST &&
                overlap(c, l->tier_offset, l->storage, p->parks[m].tier_offset,
                        p->parks[m].storage))
                return violation(c, "lodging %d (%.100s) and park %d overlap", (int)n,
                                 storage_name(c, l->storage), (int)m);
    }
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_lodging *l = plan_lodging_of(p, p->instances[i].storage);
        if (l && is_state(l))
            return violation(c, "instance %d: %.200s lives in host memory", (int)i,
                             storage_name(c, l->storage));
    }
    return 0;
}

static int check_all(struct proof *c)
{
    const struct plan *p = c->p;
    int rc = 0;
    for (int32_t n = 0; n < p->n_parks; n++)
        c->parked[p->parks[n].storage] = true;
    for (int32_t n = 0; n < p->n_lodgings && !rc; n++)
        rc = check_lodging(c, n);
    for (int32_t k = 0; k < p->n_steps && !rc; k++)
        rc = check_step(c, k);
    return rc ? rc : check_rooms(c);
}

int check_host_steps(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE])
{
    struct proof c = {.g = g, .p = p, .message = message};
    if (p->n_lodgings < 0)
        return violation(&c, "the plan has a negative number of lodgings");
    size_t n = (size_t)p->n_lodgings + 1;
    c.from = calloc(n, sizeof(*c.from));
    c.to = calloc(n, sizeof(*c.to));
    c.used = calloc(n, sizeof(*c.used));
    c.parked = calloc((size_t)g->n_storages + 1, sizeof(*c.parked));
    int rc = c.from && c.to && c.used && c.parked ? check_all(&c) : CKPT_ENOMEM;
    free(c.from);
    free(c.to);
    free(c.used);
    free(c.parked);
    return rc;
}
