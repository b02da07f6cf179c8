/*
 * The checker: replays a plan and proves it, sharing nothing with the search but the types.
 *
 * A version of a storage is the number of base ops that wrote it.  An op that reads a storage must
 * find all the writers that stand before it in the program, and none that stand behind it, to have
 * written the stretch of residence it reads from.  A rerun may write into bytes that are still
 * there only where it writes the same: no op changes that storage in place.
 */
#include <stdlib.h>
#include <string.h>
#include "plan/check.h"

struct checker {
    const struct graph *g;
    const struct plan *p;
    char *message;
    /* per storage */
    bool *changed_in_place;
    int32_t *live;    /* its instance now, or -1 */
    int32_t *written; /* how many of its writers wrote the live instance */
    int32_t *latest;  /* the highest of them, by rank, or -1 */
    int32_t *last_base_use;
    int32_t *origin; /* the instance that its bytes were made in, whatever carried them since */
    bool *parked;    /* somewhere in the step, or for good */
    /* per ref */
    int32_t *rank;         /* how many base writers of this storage stand before this op */
    int32_t *rank_written; /* the instance this writer last wrote */
    /* per step */
    int32_t *workspaces;
    int32_t *active; /* live instances by offset */
    int32_t n_active;
};

int check_violation(char message[CKPT_MESSAGE], const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, CKPT_MESSAGE, fmt, ap);
    va_end(ap);
    return CKPT_EPLAN;
}

static const char *op_name(const struct checker *c, int32_t step)
{
    const char *name = c->g->ops[c->p->steps[step].op].name;
    return name ? name : "an unnamed op";
}

static const char *storage_name(const struct checker *c, int32_t s)
{
    const char *name = c->g->storages[s].name;
    return name ? name : "an unnamed storage";
}

/* ---- steps ---------------------------------------------------------------------------------- */

static int check_again(struct checker *c, int32_t k)
{
    const struct graph_op *o = &c->g->ops[c->p->steps[k].op];
    if (k >= c->p->n_body)
        return violation(c, "step %d: %.200s runs again in the update", (int)k, op_name(c, k));
    if (!o->rerunnable || o->phase != GRAPH_FORWARD || c->p->steps[k].op >= c->g->n_body)
        return violation(c, "step %d: %.200s must not run again", (int)k, op_name(c, k));
    return 0;
}

static int check_steps(struct checker *c)
{
    const struct plan *p = c->p;
    int32_t next = 0;
    if (p->n_steps < 0 || p->n_body < 0 || p->n_body > p->n_steps)
        return violation(c, "the plan has %d steps, %d of them in the body", (int)p->n_steps,
                         (int)p->n_body);
    for (int32_t k = 0; k < p->n_steps; k++) {
        int32_t op = p->steps[k].op;
        if (op < 0 || op >= c->g->n_ops)
            return violation(c, "step %d runs op %d of %d", (int)k, (int)op, (int)c->g->n_ops);
        if (k == p->n_body && next != c->g->n_body)
            return violation(c, "the body ends after base op %d, not %d", (int)next,
                             (int)c->g->n_body);
        if (p->steps[k].again) {
            int rc = check_again(c, k);
            if (rc)
                return rc;
        } else if (op != next++) {
            return violation(c, "step %d runs %.200s where base op %d is due", (int)k,
                             op_name(c, k), (int)next - 1);
        }
    }
    if (next != c->g->n_ops)
        return violation(c, "base op %d (%.200s) is missing", (int)next,
                         c->g->ops[next].name ? c->g->ops[next].name : "unnamed");
    if (p->n_body == p->n_steps && c->g->n_body != c->g->n_ops)
        return violation(c, "the body must end before the update");
    return 0;
}

/* ---- instances ------------------------------------------------------------------------------ */

static int64_t bytes_of(const struct checker *c, const struct plan_instance *i)
{
    if (i->storage >= 0)
        return c->g->storages[i->storage].bytes;
    return c->g->ops[c->p->steps[-1 - i->storage].op].workspace;
}

static int check_workspace(struct checker *c, const struct plan_instance *i, int32_t n)
{
    int32_t step = -1 - i->storage;
    if (step >= c->p->n_steps || i->first != step || i->last != step)
        return violation(c, "instance %d: the workspace of step %d stands at steps %d to %d",
                         (int)n, (int)step, (int)i->first, (int)i->last);
    if (bytes_of(c, i) <= 0 || c->workspaces[step]++)
        return violation(c, "instance %d: step %d needs no such workspace", (int)n, (int)step);
    return 0;
}

static int check_instance(struct checker *c, int32_t n)
{
    const struct plan_instance *i = &c->p->instances[n];
    if (i->first < 0 || i->last < i->first || i->last >= c->p->n_steps)
        return violation(c, "instance %d lasts from step %d to %d of %d", (int)n, (int)i->first,
                         (int)i->last, (int)c->p->n_steps);
    if (i->storage >= c->g->n_storages)
        return violation(c, "instance %d is of storage %d of %d", (int)n, (int)i->storage,
                         (int)c->g->n_storages);
    if (i->storage < 0) {
        int rc = check_workspace(c, i, n);
        if (rc)
            return rc;
    } else if (c->g->storages[i->storage].persistent && !c->parked[i->storage]) {
        return violation(c, "instance %d: %.200s is persistent and has no place here", (int)n,
                         storage_name(c, i->storage));
    }
    if (i->offset < 0 || i->offset % CKPT_ALIGN || i->offset > c->p->transient - bytes_of(c, i))
        return violation(c, "instance %d: %lld bytes at offset %lld leave the %lld transient bytes",
                         (int)n, (long long)bytes_of(c, i), (long long)i->offset,
                         (long long)c->p->transient);
    return 0;
}

static int check_instances(struct checker *c)
{
    const struct plan_instance *a = c->p->instances;
    for (int32_t n = 0; n < c->p->n_instances; n++) {
        int rc = check_instance(c, n);
        if (rc)
            return rc;
        if (n > 0 && (a[n - 1].first > a[n].first ||
                      (a[n - 1].first == a[n].first && a[n - 1].storage >= a[n].storage)))
            return violation(c, "instance %d is out of order", (int)n);
    }
    for (int32_t k = 0; k < c->p->n_steps; k++)
        if (c->g->ops[c->p->steps[k].op].workspace > 0 && !c->workspaces[k])
            return violation(c, "step %d: %.200s has no workspace", (int)k, op_name(c, k));
    return 0;
}

/* ---- overlap and peak ----------------------------------------------------------------------- */

static const char *instance_name(const struct checker *c, int32_t n)
{
    int32_t s = c->p->instances[n].storage;
    return s < 0 ? "a workspace" : storage_name(c, s);
}

static int collision(struct checker *c, int32_t a, int32_t b)
{
    return violation(c, "at step %d instances %d (%.100s) and %d (%.100s) overlap",
                     (int)c->p->instances[b].first, (int)a, instance_name(c, a), (int)b,
                     instance_name(c, b));
}

/* Puts instance n among the live ones, which are sorted by offset and disjoint. */
static int make_active(struct checker *c, int32_t n)
{
    const struct plan_instance *a = c->p->instances;
    int32_t at = c->n_active;
    while (at > 0 && a[c->active[at - 1]].offset >= a[n].offset)
        at--;
    if (at < c->n_active && a[n].offset + bytes_of(c, &a[n]) > a[c->active[at]].offset)
        return collision(c, c->active[at], n);
    if (at > 0) {
        int32_t below = c->active[at - 1];
        if (a[below].offset + bytes_of(c, &a[below]) > a[n].offset)
            return collision(c, below, n);
    }
    memmove(c->active + at + 1, c->active + at, (size_t)(c->n_active - at) * sizeof(*c->active));
    c->active[at] = n;
    c->n_active++;
    return 0;
}

static int64_t retire(struct checker *c, int32_t step)
{
    int32_t kept = 0;
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->n_active; i++) {
        const struct plan_instance *t = &c->p->instances[c->active[i]];
        if (t->last < step)
            continue;
        bytes += bytes_of(c, t);
        c->active[kept++] = c->active[i];
    }
    c->n_active = kept;
    return bytes;
}

static int check_memory(struct checker *c)
{
    const struct plan *p = c->p;
    int64_t load = 0, at_peak = 0;
    for (int32_t k = 0, n = 0; k < p->n_steps; k++) {
        int64_t now = retire(c, k);
        for (; n < p->n_instances && p->instances[n].first == k; n++) {
            int rc = make_active(c, n);
            if (rc)
                return rc;
            now += bytes_of(c, &p->instances[n]);
        }
        load = now > load ? now : load;
        at_peak = k == p->peak_step ? now : at_peak;
    }
    if (load != p->load || at_peak != load)
        return violation(c, "the most bytes alive at one step are %lld, the plan says %lld",
                         (long long)load, (long long)p->load);
    if (p->transient > p->budgets.device || p->persistent > p->budgets.device - p->transient)
        return violation(c, "the peak of %lld bytes is over the budget of %lld",
                         (long long)(p->persistent + p->transient), (long long)p->budgets.device);
    return 0;
}

/* ---- the replay ----------------------------------------------------------------------------- */

/* Ranks every read and write by the base writers before it.  c->written counts meanwhile. */
static void rank_refs(struct checker *c)
{
    const struct graph *g = c->g;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        bool on_host = i >= g->n_body && c->p->steps[c->p->n_steps - g->n_ops + i].on_host;
        for (int32_t j = 0; j < o->n_reads; j++) {
            int32_t s = g->refs[o->reads + j];
            c->rank[o->reads + j] = c->written[s];
            if (!on_host) /* it reads a copy */
                c->last_base_use[s] = i;
        }
        for (int32_t j = 0; j < o->n_writes; j++) {
            int32_t s = g->refs[o->writes + j];
            c->rank[o->writes + j] = c->written[s]++;
            c->changed_in_place[s] |= graph_op_reads(g, o, s);
            c->last_base_use[s] = i;
        }
    }
    memset(c->written, 0, (size_t)g->n_storages * sizeof(*c->written));
}

/* The storage has the bytes that the base program has when rank writers have written it. */
static int check_version(struct checker *c, int32_t k, int32_t s, int32_t rank)
{
    const struct graph_storage *t = &c->g->storages[s];
    if ((!t->persistent || c->parked[s]) && c->live[s] < 0)
        return violation(c, "step %d: %.200s reads %.200s, which is not there", (int)k,
                         op_name(c, k), storage_name(c, s));
    if (c->written[s] == 0 && !t->persistent && !t->carried)
        return violation(c, "step %d: %.200s reads %.200s before anything wrote it", (int)k,
                         op_name(c, k), storage_name(c, s));
    if (c->written[s] != rank || c->latest[s] >= rank)
        return violation(c, "step %d: %.200s reads %.200s in version %d, not %d", (int)k,
                         op_name(c, k), storage_name(c, s),
                         (int)(c->latest[s] + 1 > c->written[s] ? c->latest[s] + 1 : c->written[s]),
                         (int)rank);
    return 0;
}

static int replay_write(struct checker *c, int32_t k, int32_t ref)
{
    int32_t s = c->g->refs[ref];
    const struct graph_storage *t = &c->g->storages[s];
    if (c->p->steps[k].again && (t->persistent || t->carried || c->changed_in_place[s]))
        return violation(c, "step %d: %.200s runs again and would change %.200s", (int)k,
                         op_name(c, k), storage_name(c, s));
    if ((!t->persistent || c->parked[s]) && c->live[s] < 0)
        return violation(c, "step %d: %.200s writes %.200s, which has no place", (int)k,
                         op_name(c, k), storage_name(c, s));
    if (c->rank_written[ref] == c->origin[s])
        return 0; /* the same bytes once more */
    c->rank_written[ref] = c->origin[s];
    c->written[s]++;
    if (c->latest[s] < c->rank[ref])
        c->latest[s] = c->rank[ref];
    return 0;
}

static int replay_step(struct checker *c, int32_t k)
{
    const struct graph_op *o = &c->g->ops[c->p->steps[k].op];
    int rc = 0;
    if (c->p->steps[k].on_host) /* check_host_steps has seen to it */
        return 0;
    for (int32_t j = 0; j < o->n_reads && !rc; j++)
        rc = check_version(c, k, c->g->refs[o->reads + j], c->rank[o->reads + j]);
    for (int32_t j = 0; j < o->n_writes && !rc; j++)
        rc = replay_write(c, k, o->writes + j);
    return rc;
}

static int begin_instance(struct checker *c, int32_t n)
{
    const struct plan_instance *i = &c->p->instances[n];
    int32_t s = i->storage;
    if (s < 0)
        return 0;
    if (c->live[s] >= 0)
        return violation(c, "instance %d: %.200s is there already at step %d", (int)n,
                         storage_name(c, s), (int)i->first);
    if (c->g->storages[s].carried && i->first != 0)
        return violation(c, "%.200s is carried but comes only at step %d", storage_name(c, s),
                         (int)i->first);
    c->live[s] = n;
    /* What is copied back has the bytes that went out; of persistent storages that is always so. */
    if (c->g->storages[s].persistent || (c->parked[s] && parks_return(c->p, s, i->first)))
        return 0;
    c->origin[s] = n;
    c->written[s] = 0;
    c->latest[s] = -1;
    return 0;
}

/* A carried storage may end only when the body is over and nobody uses it any more. */
static int end_instance(struct checker *c, int32_t n, int32_t next_base)
{
    const struct plan_instance *i = &c->p->instances[n];
    if (i->storage < 0 || c->live[i->storage] != n)
        return 0;
    if (c->g->storages[i->storage].carried &&
        (i->last < c->p->n_body - 1 || c->last_base_use[i->storage] >= next_base))
        return violation(c, "%.200s is carried but leaves after step %d",
                         storage_name(c, i->storage), (int)i->last);
    c->live[i->storage] = -1;
    return 0;
}

/* Ends by step: the instances whose last step is k, found through a list. */
struct endings {
    int32_t *head, *next;
};

static int replay_all(struct checker *c, const struct endings *e)
{
    const struct plan *p = c->p;
    int32_t base = 0;
    for (int32_t k = 0, n = 0; k < p->n_steps; k++) {
        int rc = 0;
        for (; n < p->n_instances && p->instances[n].first == k && !rc; n++)
            rc = begin_instance(c, n);
        if (!rc)
            rc = replay_step(c, k);
        base += !p->steps[k].again;
        for (int32_t i = e->head[k]; i >= 0 && !rc; i = e->next[i])
            rc = end_instance(c, i, base);
        if (rc)
            return rc;
    }
    return 0;
}

static int check_replay(struct checker *c)
{
    const struct plan *p = c->p;
    struct endings e;
    e.head = malloc(((size_t)p->n_steps + 1) * sizeof(*e.head));
    e.next = malloc(((size_t)p->n_instances + 1) * sizeof(*e.next));
    int rc = e.head && e.next ? 0 : CKPT_ENOMEM;
    if (!rc) {
        for (int32_t k = 0; k < p->n_steps; k++)
            e.head[k] = -1;
        for (int32_t n = 0; n < p->n_instances; n++) {
            e.next[n] = e.head[p->instances[n].last];
            e.head[p->instances[n].last] = n;
        }
        rank_refs(c);
        rc = replay_all(c, &e);
    }
    free(e.head);
    free(e.next);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static int check_totals(struct checker *c)
{
    int64_t persistent = 0;
    for (int32_t n = 0; n < c->p->n_parks; n++)
        if (c->p->parks[n].storage >= 0 && c->p->parks[n].storage < c->g->n_storages)
            c->parked[c->p->parks[n].storage] = true;
    for (int32_t s = 0; s < c->g->n_storages; s++)
        c->parked[s] |= c->g->storages[s].home == HOME_HOST || c->g->storages[s].home == HOME_NVME;
    for (int32_t n = 0; n < c->p->n_lodgings; n++) {
        const struct plan_lodging *l = &c->p->lodgings[n];
        if (l->storage >= 0 && l->storage < c->g->n_storages && l->out_step < 0 && l->in_step < 0)
            c->parked[l->storage] = true; /* for good */
    }
    for (int32_t s = 0; s < c->g->n_storages; s++)
        persistent += c->g->storages[s].persistent && !c->parked[s] ? c->g->storages[s].bytes : 0;
    if (c->p->signature != graph_signature(c->g))
        return violation(c, "the plan was made for another program");
    if (c->p->persistent != persistent)
        return violation(c, "persistent storages take %lld bytes, the plan says %lld",
                         (long long)persistent, (long long)c->p->persistent);
    if (c->p->transient < 0 || c->p->n_instances < 0)
        return violation(c, "the plan has a negative size");
    if (c->p->min_peak_op < -1 || c->p->min_peak_op >= c->g->n_ops)
        return violation(c, "the smallest plan cannot peak in op %d", (int)c->p->min_peak_op);
    return 0;
}

static void checker_free(struct checker *c)
{
    free(c->changed_in_place);
    free(c->live);
    free(c->written);
    free(c->latest);
    free(c->last_base_use);
    free(c->origin);
    free(c->parked);
    free(c->rank);
    free(c->rank_written);
    free(c->workspaces);
    free(c->active);
}

static int checker_alloc(struct checker *c)
{
    size_t n = (size_t)c->g->n_storages + 1, refs = (size_t)c->g->n_refs + 1;
    c->changed_in_place = calloc(n, sizeof(*c->changed_in_place));
    c->live = calloc(n, sizeof(*c->live));
    c->written = calloc(n, sizeof(*c->written));
    c->latest = calloc(n, sizeof(*c->latest));
    c->last_base_use = calloc(n, sizeof(*c->last_base_use));
    c->origin = calloc(n, sizeof(*c->origin));
    c->parked = calloc(n, sizeof(*c->parked));
    c->rank = calloc(refs, sizeof(*c->rank));
    c->rank_written = calloc(refs, sizeof(*c->rank_written));
    c->workspaces = calloc((size_t)c->p->n_steps + 1, sizeof(*c->workspaces));
    c->active = calloc((size_t)c->p->n_instances + 1, sizeof(*c->active));
    if (!c->changed_in_place || !c->live || !c->written || !c->latest || !c->last_base_use ||
        !c->origin || !c->parked || !c->rank || !c->rank_written || !c->workspaces || !c->active)
        return CKPT_ENOMEM;
    for (size_t i = 0; i < n; i++)
        c->live[i] = c->latest[i] = c->last_base_use[i] = c->origin[i] = -1;
    for (size_t i = 0; i < refs; i++)
        c->rank_written[i] = -2;
    return 0;
}

int plan_check(const struct graph *g, const struct plan *p, char message[CKPT_MESSAGE])
{
    struct checker c = {.g = g, .p = p, .message = message};
    message[0] = '\0';
    int rc = p->n_steps < 0 || p->n_instances < 0 ? violation(&c, "the plan has a negative size")
                                                  : checker_alloc(&c);
    if (!rc)
        rc = check_totals(&c);
    if (!rc)
        rc = check_steps(&c);
    if (!rc)
        rc = check_instances(&c);
    if (!rc)
        rc = check_parks(g, p, message);
    if (!rc)
        rc = check_host_steps(g, p, message);
    if (!rc)
        rc = check_memory(&c);
    if (!rc)
        rc = check_replay(&c);
    checker_free(&c);
    if (rc == CKPT_ENOMEM)
        snprintf(message, CKPT_MESSAGE, "checking the plan ran out of host memory");
    return rc;
}
