/* SPDX-License-Identifier: Apache-2.0 */
/* The checker: steps and residences one by one, and functions that its parts share; see check.h. */
#include "plan/check/check.h"

const char *check_op(const struct checker *c, int32_t step)
{
    const char *name = c->g->ops[c->p->steps[step].op].name;
    return name ? name : "an unnamed op";
}

const char *check_storage(const struct checker *c, int32_t s)
{
    const char *name = s < 0 ? "a workspace" : c->g->storages[s].name;
    return name ? name : "an unnamed storage";
}

int64_t check_bytes(const struct checker *c, const struct residence *r)
{
    if (r->storage >= 0)
        return c->g->storages[r->storage].bytes;
    return c->g->ops[c->p->steps[-1 - r->storage].op].workspace;
}

/* ---- steps ---------------------------------------------------------------------------------- */

/* A step that is a recomputation or runs on the host. */
static int check_kind(struct checker *c, int32_t k)
{
    const struct plan_step *s = &c->p->steps[k];
    const struct graph_op *o = &c->g->ops[s->op];
    bool both = s->by == BY_BOTH;
    if (s->by != BY_DEVICE &&
        (k < c->p->n_body || s->again || (both && c->g->n_micro > 1) || !graph_op_updates(c->g, o)))
        return violation(c, "step %d: the host cannot %s %.200s", (int)k, both ? "repeat" : "run",
                         check_op(c, k));
    if (s->before && (!both || s->before < 0 || s->before >= c->p->n_body))
        return violation(c, "step %d: %.200s cannot run before step %d", (int)k, check_op(c, k),
                         (int)s->before);
    if (s->again && k >= c->p->n_body)
        return violation(c, "step %d: %.200s runs again in the update", (int)k, check_op(c, k));
    if (s->again && (!o->rerunnable || o->phase != GRAPH_FORWARD || s->op >= c->g->n_body))
        return violation(c, "step %d: %.200s must not run again", (int)k, check_op(c, k));
    return 0;
}

static int check_step(struct checker *c, int32_t k, int32_t *next)
{
    const struct plan *p = c->p;
    int32_t op = p->steps[k].op;
    if (op < 0 || op >= c->g->n_ops)
        return violation(c, "step %d runs op %d of %d", (int)k, (int)op, (int)c->g->n_ops);
    if (k == p->n_body && *next != c->g->n_body)
        return violation(c, "the body ends after base op %d, not %d", (int)*next,
                         (int)c->g->n_body);
    int rc = check_kind(c, k);
    if (!rc && k < p->n_body && !p->steps[k].again && op != (*next)++)
        rc = violation(c, "step %d runs %.200s where base op %d is due", (int)k, check_op(c, k),
                       (int)*next - 1);
    return rc;
}

/* The ops of the update run once each.  Two that write the same storage keep their order; others
 * may run in any order, and the replay checks what they read. */
static int check_tail_step(struct checker *c, int32_t k, bool *ran, int32_t *writer)
{
    int32_t op = c->p->steps[k].op;
    const struct graph_op *o = &c->g->ops[op];
    if (op < c->g->n_body || ran[op])
        return violation(c, "step %d runs %.200s where an op of the update is due", (int)k,
                         check_op(c, k));
    ran[op] = true;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = c->g->refs[o->writes + j];
        if (writer[s] > op)
            return violation(c, "step %d: %.200s writes %.200s after a later writer", (int)k,
                             check_op(c, k), check_storage(c, s));
        writer[s] = op;
    }
    return 0;
}

/* What a deferred update changes no later op of the tail uses, nor does one write what it reads:
 * all other updates might as well come before it.  Deferred updates are in the order in which they
 * run. */
static int check_deferred(struct checker *c)
{
    const struct plan *p = c->p;
    int32_t *user = pool_filled(&c->memory, c->g->n_storages, -1);
    int32_t *writer = pool_filled(&c->memory, c->g->n_storages, -1), latest = 0;
    int rc = pool_status(&c->memory);
    for (int32_t i = c->g->n_body; i < c->g->n_ops && !rc; i++) {
        const struct graph_op *o = &c->g->ops[i];
        for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
            user[graph_ref(c->g, o, j)] = i;
        for (int32_t j = 0; j < o->n_writes; j++)
            writer[c->g->refs[o->writes + j]] = i;
    }
    for (int32_t k = plan_find_deferred(p, p->n_body); k < p->n_steps && !rc;
         k = plan_find_deferred(p, k + 1)) {
        const struct graph_op *o = &c->g->ops[p->steps[k].op];
        for (int32_t j = 0; j < o->n_reads + o->n_writes && !rc; j++) {
            int32_t s = graph_ref(c->g, o, j);
            if (writer[s] > p->steps[k].op || (j >= o->n_reads && user[s] > p->steps[k].op))
                rc = violation(c, "step %d: %.200s is deferred, and a later op uses %.200s", (int)k,
                               check_op(c, k), check_storage(c, s));
            c->crosses[s] = true;
        }
        if (!rc && p->steps[k].before < latest)
            rc = violation(c, "step %d: %.200s is deferred out of order", (int)k, check_op(c, k));
        latest = p->steps[k].before;
    }
    return rc;
}

static int check_tail(struct checker *c)
{
    bool *ran = pool_array(&c->memory, c->g->n_ops, sizeof(*ran));
    int32_t *writer = pool_filled(&c->memory, c->g->n_storages, 0);
    int rc = pool_status(&c->memory);
    for (int32_t k = c->p->n_body; k < c->p->n_steps && !rc; k++)
        rc = check_tail_step(c, k, ran, writer);
    for (int32_t i = c->g->n_body; i < c->g->n_ops && !rc; i++)
        if (!ran[i])
            rc = violation(c, "base op %d (%.200s) is missing", (int)i,
                           c->g->ops[i].name ? c->g->ops[i].name : "unnamed");
    return rc;
}

static int check_steps(struct checker *c)
{
    const struct plan *p = c->p;
    int32_t next = 0;
    int rc = 0;
    for (int32_t k = 0; k < p->n_steps && !rc; k++)
        rc = check_step(c, k, &next);
    if (!rc && next != c->g->n_body)
        rc = violation(c, "base op %d (%.200s) is missing", (int)next,
                       c->g->ops[next].name ? c->g->ops[next].name : "unnamed");
    if (!rc)
        rc = check_tail(c);
    if (!rc)
        rc = check_deferred(c);
    if (!rc && p->n_body == p->n_steps && c->g->n_body != c->g->n_ops)
        rc = violation(c, "the body must end before the update");
    return rc;
}

/* ---- residences ------------------------------------------------------------------------------ */

static int check_workspace(struct checker *c, int32_t n)
{
    const struct residence *r = &c->p->residences[n];
    int32_t step = -1 - r->storage;
    if (step >= c->p->n_steps || r->first != step || r->last != step || r->tier != TIER_DEVICE)
        return violation(c, "residence %d: the workspace of step %d stands at steps %d to %d",
                         (int)n, (int)step, (int)r->first, (int)r->last);
    if (check_bytes(c, r) <= 0)
        return violation(c, "residence %d: step %d needs no such workspace", (int)n, (int)step);
    return 0;
}

/* With several micro-steps a residence in a lower tier, or of a persistent storage on the device,
 * lies in one part of the step: the body runs more often than the tail. */
static int check_part(struct checker *c, int32_t n)
{
    const struct residence *r = &c->p->residences[n];
    bool persistent = c->g->storages[r->storage].persistent;
    if (c->g->n_micro == 1 || (r->tier == TIER_DEVICE && !persistent))
        return 0;
    if (r->last >= c->p->n_steps || (r->first < c->p->n_body && r->last >= c->p->n_body))
        return violation(c, "residence %d: %.200s stays from the body to the update", (int)n,
                         check_storage(c, r->storage));
    return 0;
}

static int check_residence(struct checker *c, int32_t n)
{
    const struct residence *r = &c->p->residences[n];
    int32_t steps = c->p->n_steps;
    if (r->storage >= c->g->n_storages || r->tier < TIER_DEVICE || r->tier >= TIER_COUNT)
        return violation(c, "residence %d is of storage %d of %d, in tier %d", (int)n,
                         (int)r->storage, (int)c->g->n_storages, (int)r->tier);
    if (r->storage < 0)
        return check_workspace(c, n);
    bool persistent = c->g->storages[r->storage].persistent;
    bool wraps = (persistent && r->tier == TIER_DEVICE) || c->crosses[r->storage];
    if (r->first < 0 || r->first >= steps || r->last < r->first ||
        r->last - steps >= (wraps ? r->first : 0))
        return violation(c, "residence %d of %.200s lasts from step %d to %d of %d", (int)n,
                         check_storage(c, r->storage), (int)r->first, (int)r->last, (int)steps);
    if (c->backing[r->storage] == n)
        return 0;
    if (r->tier == TIER_DEVICE && persistent &&
        c->p->residences[c->backing[r->storage]].tier == TIER_DEVICE)
        return violation(c, "residence %d: %.200s lives on the device already", (int)n,
                         check_storage(c, r->storage));
    return check_part(c, n);
}

/* Ordered, and one residence for each workspace. */
static int check_residences(struct checker *c)
{
    const struct residence *r = c->p->residences;
    int64_t workspaces = 0;
    int rc = 0;
    for (int32_t n = 0; n < c->p->n_residences && !rc; n++) {
        rc = check_residence(c, n);
        workspaces += r[n].storage < 0;
        bool ordered = n == 0 || r[n - 1].tier < r[n].tier ||
                       (r[n - 1].tier == r[n].tier &&
                        (r[n - 1].first < r[n].first ||
                         (r[n - 1].first == r[n].first && r[n - 1].storage < r[n].storage)));
        if (!rc && !ordered)
            rc = violation(c, "residence %d is out of order", (int)n);
    }
    for (int32_t k = 0; k < c->p->n_steps && !rc; k++)
        workspaces -= c->g->ops[c->p->steps[k].op].workspace > 0;
    return rc || !workspaces ? rc : violation(c, "a step has no workspace");
}

/* ---- backing residences ---------------------------------------------------------------------- */

static int check_backing(struct checker *c, int32_t s)
{
    static const int tiers[] = {
        [BACKING_DEVICE] = TIER_DEVICE, [BACKING_HOST] = TIER_HOST, [BACKING_NVME] = TIER_NVME};
    const struct graph_storage *t = &c->g->storages[s];
    const struct residence *r = c->backing[s] < 0 ? NULL : &c->p->residences[c->backing[s]];
    if (!t->persistent)
        return 0;
    if (!r)
        return violation(c, "%.200s has no backing residence", check_storage(c, s));
    if (t->backing != BACKING_ANY && (r->tier != tiers[t->backing] ||
                                      (r->tier != TIER_DEVICE && r->offset != t->backing_offset)))
        return violation(c, "%.200s lives where the context does not have it", check_storage(c, s));
    return 0;
}

/* The backing residence of a persistent storage: its residence of the whole step, on the device
 * only where that leaves the address to the context. */
static int find_backings(struct checker *c)
{
    int rc = 0;
    for (int32_t n = 0; n < c->p->n_residences && !rc; n++) {
        const struct residence *r = &c->p->residences[n];
        if (r->storage < 0 || r->storage >= c->g->n_storages || !plan_is_backing(c->g, c->p, r))
            continue;
        if (c->backing[r->storage] >= 0)
            rc = violation(c, "%.200s has two backing residences", check_storage(c, r->storage));
        c->backing[r->storage] = n;
    }
    for (int32_t s = 0; s < c->g->n_storages && !rc; s++)
        rc = check_backing(c, s);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int check_header(struct checker *c)
{
    const struct plan *p = c->p;
    if (p->signature != graph_signature(c->g))
        return violation(c, "the plan was made for another program");
    if (p->n_body > p->n_steps)
        return violation(c, "the plan has %d steps, %d of them in the body", (int)p->n_steps,
                         (int)p->n_body);
    if (p->min_peak_op < -1 || p->min_peak_op >= c->g->n_ops)
        return violation(c, "the smallest plan cannot peak in op %d", (int)p->min_peak_op);
    return 0;
}

static int check_all(struct checker *c)
{
    int rc = check_header(c);
    if (!rc)
        rc = check_steps(c);
    if (!rc)
        rc = find_backings(c);
    if (!rc)
        rc = check_residences(c);
    if (!rc)
        rc = check_copies(c);
    if (!rc)
        rc = check_space(c);
    return rc ? rc : check_replay(c);
}

int plan_check(const struct graph *g, const struct plan *p)
{
    struct checker c = {.g = g, .p = p};
    if (p->n_steps < 0 || p->n_body < 0 || p->n_residences < 0 || p->n_copies < 0)
        return violation(&c, "the plan has a negative size");
    c.backing = pool_filled(&c.memory, g->n_storages, -1);
    POOL_ARRAY(&c.memory, c.crosses, g->n_storages);
    int rc = c.memory.failed ? CKPT_ENOMEM : check_all(&c);
    pool_free(&c.memory);
    if (rc == CKPT_ENOMEM)
        error_set(rc, "checking the plan ran out of host memory");
    return rc;
}
