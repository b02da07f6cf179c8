/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The replay: every residence has contents, which steps and copies change, and every read must find
 * the version of the base program.
 *
 * A version of a storage is the number of base ops that wrote it.  An op that reads a storage must
 * find, in the residence it reads, the writes of all ops before it in the program and of none after
 * it.  A recomputation may overwrite bytes that are still alive only with equal bytes: no op
 * changes the storage in place.  A copy has the contents of its source when it is submitted.  At
 * the end of the step the backing residence of every persistent storage must have the writes of all
 * its writers, so the next step begins with the state this one left.
 *
 * Deferred updates run in the body, and the step that is replayed begins with those of the step
 * before: in its program they come first.  What crosses into the step for them must have the writes
 * of all its writers at the end, too.  An update that the host repeats runs twice: of what it
 * writes on the device nothing but the value is used.
 */
#include "plan/check/check.h"

struct contents {
    int32_t origin;  /* the residence in which the bytes were written; copies keep it */
    int32_t written; /* number of writers so far, or -1: neither written nor copied */
    int32_t latest;  /* the highest rank of a writer so far, or -1 */
};

struct replay {
    struct checker *c;
    const struct graph *g;
    const struct plan *p;
    /* per residence */
    struct contents *contents;
    int32_t *ready;   /* the first step that may use it if a copy fills it; else 0 */
    int32_t *copy;    /* the copy that fills it, or -1 */
    int32_t *ends;    /* the next one with the same last step, or -1 */
    int32_t *ends_at; /* per step: the first residence that ends there, or -1 */
    /* per storage */
    int32_t *here, *below; /* its residence on the device and in a lower tier, or -1 */
    int32_t *writers;      /* base ops that write it */
    int32_t *last_use;     /* the last step of a base op that uses it on the device, or -1 */
    bool *in_place;        /* an op changes it in place */
    bool *first;           /* per op: it is deferred */
    /* per ref of the graph */
    int32_t *rank;    /* base writers of this storage before the op */
    int32_t *origin;  /* where this writer last wrote */
    int32_t *at;      /* copies sorted by the step after which they are submitted */
    int32_t deferred; /* the next deferred update */
};

static const struct graph_op *op_at(const struct replay *r, int32_t k)
{
    return &r->g->ops[r->p->steps[k].op];
}

/* ---- the base program ------------------------------------------------------------------------ */

static void rank_op(struct replay *r, int32_t i)
{
    const struct graph *g = r->g;
    const struct graph_op *o = &g->ops[i];
    for (int32_t j = 0; j < o->n_reads; j++)
        r->rank[o->reads + j] = r->writers[g->refs[o->reads + j]];
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = g->refs[o->writes + j];
        r->rank[o->writes + j] = r->writers[s]++;
        r->in_place[s] |= graph_op_reads(g, o, s);
    }
}

/* Deferred ops come first in the program of the step. */
static void rank_ops(struct replay *r)
{
    const struct plan *p = r->p;
    for (int32_t k = p->n_body; k < p->n_steps; k++)
        if (p->steps[k].before)
            r->first[p->steps[k].op] = true;
    for (int first = 1; first >= 0; first--)
        for (int32_t i = 0; i < r->g->n_ops; i++)
            if (r->first[i] == first)
                rank_op(r, i);
}

static void note_uses(struct replay *r, int32_t k)
{
    const struct graph_op *o = op_at(r, k);
    if (r->p->steps[k].again || r->p->steps[k].by == BY_HOST || r->p->steps[k].before)
        return;
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++)
        r->last_use[graph_ref(r->g, o, j)] = k;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* The step at which step k runs. */
static int32_t when(const struct replay *r, int32_t k)
{
    return r->p->steps[k].before ? r->p->steps[k].before : k;
}

/* The residence that step k uses a storage in, on the host or the device, or -1 with a sentence. */
static int find(struct replay *r, int32_t k, int32_t s, bool on_host, const char *verb,
                int32_t *residence)
{
    int32_t n = on_host ? r->below[s] : r->here[s];
    *residence = n;
    if (n < 0 || (on_host && r->p->residences[n].tier != TIER_HOST))
        return violation(r, "step %d: %.200s %s %.200s, which is not %s", (int)k, check_op(r->c, k),
                         verb, check_storage(r->c, s), on_host ? "in host memory" : "there");
    if (when(r, k) < r->ready[n])
        return violation(r, "step %d: %.200s %s %.200s before its copy has come, at step %d",
                         (int)k, check_op(r->c, k), verb, check_storage(r->c, s), (int)r->ready[n]);
    return 0;
}

static int replay_read(struct replay *r, int32_t k, int32_t ref, bool on_host)
{
    int32_t s = r->g->refs[ref], rank = r->rank[ref], n;
    const struct graph_storage *t = &r->g->storages[s];
    int rc = find(r, k, s, on_host, "reads", &n);
    if (rc)
        return rc;
    const struct contents *at = &r->contents[n];
    /* An update computes a value from the master; the old value does not matter. */
    if (at->written < 0 && rank == 0 && r->p->steps[k].by == BY_HOST &&
        graph_op_writes(r->g, op_at(r, k), s))
        return 0;
    bool empty = !t->persistent && !t->carried && !r->p->steps[k].before;
    if (at->written < 0 || (at->written == 0 && empty))
        return violation(r, "step %d: %.200s reads %.200s before anything wrote it", (int)k,
                         check_op(r->c, k), check_storage(r->c, s));
    if (at->written != rank || at->latest >= rank)
        return violation(r, "step %d: %.200s reads %.200s in version %d, not %d", (int)k,
                         check_op(r->c, k), check_storage(r->c, s),
                         (int)(at->latest + 1 > at->written ? at->latest + 1 : at->written),
                         (int)rank);
    return 0;
}

static int replay_write(struct replay *r, int32_t k, int32_t ref, bool on_host)
{
    int32_t s = r->g->refs[ref], n;
    const struct graph_storage *t = &r->g->storages[s];
    if (r->p->steps[k].again && (t->persistent || t->carried || r->in_place[s]))
        return violation(r, "step %d: %.200s runs again and would change %.200s", (int)k,
                         check_op(r->c, k), check_storage(r->c, s));
    if (k < r->p->n_body && r->g->n_micro > 1 && t->persistent &&
        r->p->residences[r->c->backing[s]].tier != TIER_DEVICE)
        return violation(r, "step %d of the body writes %.200s, which does not live on the device",
                         (int)k, check_storage(r->c, s));
    int rc = find(r, k, s, on_host, "writes", &n);
    if (rc)
        return rc;
    struct contents *at = &r->contents[n];
    if (r->origin[ref] == at->origin && !t->persistent)
        return 0; /* it writes the same bytes again */
    r->origin[ref] = at->origin;
    at->written = (at->written < 0 ? 0 : at->written) + 1;
    at->latest = at->latest < r->rank[ref] ? r->rank[ref] : at->latest;
    return 0;
}

static int replay_op(struct replay *r, int32_t k, bool on_host)
{
    const struct graph_op *o = op_at(r, k);
    int rc = 0;
    for (int32_t j = 0; j < o->n_reads && !rc; j++)
        rc = replay_read(r, k, o->reads + j, on_host);
    for (int32_t j = 0; j < o->n_writes && !rc; j++)
        rc = replay_write(r, k, o->writes + j, on_host);
    return rc;
}

static int replay_step(struct replay *r, int32_t k)
{
    const struct plan_step *s = &r->p->steps[k];
    int rc = replay_op(r, k, s->by == BY_HOST);
    return !rc && s->by == BY_BOTH ? replay_op(r, k, true) : rc;
}

/* The deferred updates before step k of the body, then the step, unless it is deferred. */
static int replay_steps(struct replay *r, int32_t k)
{
    const struct plan *p = r->p;
    int rc = 0;
    while (!rc && r->deferred < p->n_steps && k < p->n_body && p->steps[r->deferred].before == k) {
        rc = replay_step(r, r->deferred);
        r->deferred = plan_find_deferred(p, r->deferred + 1);
    }
    return rc || p->steps[k].before ? rc : replay_step(r, k);
}

/* ---- residences and copies ------------------------------------------------------------------- */

static int begin(struct replay *r, int32_t n)
{
    const struct residence *t = &r->p->residences[n];
    int32_t *at = t->tier == TIER_DEVICE ? &r->here[t->storage] : &r->below[t->storage];
    if (*at >= 0)
        return violation(r, "residence %d: %.200s is there already at step %d", (int)n,
                         check_storage(r->c, t->storage), (int)t->first);
    if (t->tier == TIER_DEVICE && r->g->storages[t->storage].carried && t->first != 0)
        return violation(r, "%.200s is carried but comes only at step %d",
                         check_storage(r->c, t->storage), (int)t->first);
    *at = n;
    r->contents[n] = (struct contents){n, r->g->storages[t->storage].persistent ? -1 : 0, -1};
    return 0;
}

static int run_copy(struct replay *r, int32_t i)
{
    const struct copy *c = &r->p->copies[i];
    const struct residence *to = &r->p->residences[c->to];
    int rc = 0;
    if (to->tier != TIER_DEVICE && r->c->backing[to->storage] != c->to)
        rc = begin(r, c->to);
    r->contents[c->to] = r->contents[c->from];
    if (to->tier == TIER_DEVICE)
        r->ready[c->to] = c->before;
    return rc;
}

/* Runs the copies in submitted before step k, or the copies out submitted after it. */
static int run_copies(struct replay *r, int32_t k, bool out)
{
    int rc = 0;
    for (int32_t i = r->at[out ? k + 1 : k]; i < r->at[out ? k + 2 : k + 1] && !rc; i++)
        if (copy_is_out(r->p->residences, &r->p->copies[r->at[r->p->n_steps + 2 + i]]) == out)
            rc = run_copy(r, r->at[r->p->n_steps + 2 + i]);
    return rc;
}

/* A residence of a carried storage may end only after the body and after its last use. */
static int end(struct replay *r, int32_t n, int32_t k)
{
    const struct residence *t = &r->p->residences[n];
    int32_t *at = t->tier == TIER_DEVICE ? &r->here[t->storage] : &r->below[t->storage];
    if (*at != n)
        return 0;
    if (t->tier == TIER_DEVICE && r->g->storages[t->storage].carried &&
        (t->last < r->p->n_body - 1 || r->last_use[t->storage] > k))
        return violation(r, "%.200s is carried but leaves after step %d",
                         check_storage(r->c, t->storage), (int)t->last);
    *at = -1;
    return 0;
}

/* Begins the residences of step k; in lower tiers those that a copy fills begin with the copy. */
static int begin_all(struct replay *r, int32_t k, int32_t next[TIER_COUNT + 1])
{
    int rc = 0;
    for (int tier = 0; tier <= TIER_COUNT; tier++)
        for (; next[tier] < r->p->n_residences; next[tier]++) {
            int32_t n = next[tier];
            const struct residence *t = &r->p->residences[n];
            if (t->tier != tier + TIER_DEVICE || t->first > k || rc)
                break;
            bool is_backing = t->storage >= 0 && r->c->backing[t->storage] == n;
            bool filled = t->tier != TIER_DEVICE && r->copy[n] >= 0;
            if (t->storage >= 0 && !is_backing && !filled)
                rc = begin(r, n);
        }
    return rc;
}

static int replay_all(struct replay *r)
{
    int32_t next[TIER_COUNT + 1] = {0};
    int rc = 0;
    for (int tier = 0; tier <= TIER_COUNT; tier++)
        while (next[tier] < r->p->n_residences &&
               r->p->residences[next[tier]].tier < tier + TIER_DEVICE)
            next[tier]++;
    for (int32_t k = 0; k < r->p->n_steps && !rc; k++) {
        rc = begin_all(r, k, next);
        if (!rc)
            rc = run_copies(r, k, false);
        if (!rc)
            rc = replay_steps(r, k);
        for (int32_t n = r->ends_at[k]; n >= 0 && !rc; n = r->ends[n])
            rc = end(r, n, k);
        if (!rc)
            rc = run_copies(r, k, true);
    }
    return rc ? rc : run_copies(r, r->p->n_steps, false);
}

/* Whether a residence holds at the begin of a step what the step before left there, for deferred
 * updates: it is no backing residence, and no copy out is all that it stays for. */
static bool crosses_in(const struct replay *r, int32_t n)
{
    const struct residence *t = &r->p->residences[n];
    return t->storage >= 0 && t->last >= r->p->n_steps && r->c->crosses[t->storage] &&
           (t->tier != TIER_DEVICE || !r->g->storages[t->storage].persistent);
}

/* Backing residences at the end of the step have the contents that the next step expects. */
static int check_backings(struct replay *r)
{
    for (int32_t n = 0; n < r->p->n_residences; n++) {
        const struct residence *t = &r->p->residences[n];
        if (crosses_in(r, n) && r->contents[n].written != r->writers[t->storage])
            return violation(r, "%.200s crosses into the next step in version %d, not %d",
                             check_storage(r->c, t->storage), (int)r->contents[n].written,
                             (int)r->writers[t->storage]);
    }
    for (int32_t s = 0; s < r->g->n_storages; s++) {
        const struct contents *at = r->c->backing[s] < 0 ? NULL : &r->contents[r->c->backing[s]];
        if (at && at->written != r->writers[s])
            return violation(r, "%.200s ends the step in version %d where it lives, not %d",
                             check_storage(r->c, s), (int)at->written, (int)r->writers[s]);
    }
    return 0;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Sorts copies by the step after which they are submitted: those of step k are list[at[1 + k] ..
 * at[2 + k]), where list follows the n_steps + 2 numbers of at. */
static void list_copies(struct replay *r)
{
    int32_t steps = r->p->n_steps, *count = r->at, *list = r->at + steps + 2;
    for (int32_t i = 0; i < r->p->n_copies; i++)
        count[r->p->copies[i].after + 2]++;
    for (int32_t k = 1; k < steps + 2; k++)
        count[k] += count[k - 1];
    for (int32_t i = 0; i < r->p->n_copies; i++)
        list[count[r->p->copies[i].after + 1]++] = i;
    for (int32_t k = steps + 1; k > 0; k--)
        count[k] = count[k - 1];
    count[0] = 0;
}

static void start(struct replay *r)
{
    const struct plan *p = r->p;
    rank_ops(r);
    r->deferred = plan_find_deferred(p, p->n_body);
    for (int32_t k = 0; k < p->n_steps; k++)
        note_uses(r, k);
    for (int32_t s = 0; s < r->g->n_storages; s++) {
        int32_t backing = r->c->backing[s];
        r->here[s] = backing >= 0 && p->residences[backing].tier == TIER_DEVICE ? backing : -1;
        r->below[s] = backing >= 0 && p->residences[backing].tier != TIER_DEVICE ? backing : -1;
    }
    for (int32_t n = 0; n < p->n_residences; n++) {
        const struct residence *t = &p->residences[n];
        r->contents[n] = (struct contents){-1, 0, -1};
        bool in = crosses_in(r, n);
        if (in)
            *(t->tier == TIER_DEVICE ? &r->here[t->storage] : &r->below[t->storage]) = n;
        if (in)
            r->contents[n] = (struct contents){n, 0, -1};
        if (t->storage < 0 || r->c->backing[t->storage] == n || (t->last >= p->n_steps && !in))
            continue;
        int32_t last = t->last % p->n_steps;
        r->ends[n] = r->ends_at[last];
        r->ends_at[last] = n;
    }
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        r->copy[c->to] = i;
        if (c->before >= p->n_steps && !copy_is_out(p->residences, c))
            r->ready[c->to] = c->before - p->n_steps;
    }
    list_copies(r);
}

int check_replay(struct checker *c)
{
    struct replay r = {.c = c, .g = c->g, .p = c->p};
    struct pool *m = &c->memory;
    int32_t n = c->p->n_residences, storages = c->g->n_storages, refs = c->g->n_refs;
    POOL_ARRAY(m, r.contents, n);
    r.ready = pool_filled(m, n, 0);
    r.copy = pool_filled(m, n, -1);
    r.ends = pool_filled(m, n, -1);
    r.ends_at = pool_filled(m, c->p->n_steps, -1);
    r.here = pool_filled(m, storages, -1);
    r.below = pool_filled(m, storages, -1);
    r.writers = pool_filled(m, storages, 0);
    r.last_use = pool_filled(m, storages, -1);
    POOL_ARRAY(m, r.in_place, storages);
    POOL_ARRAY(m, r.first, c->g->n_ops);
    r.rank = pool_filled(m, refs, 0);
    r.origin = pool_filled(m, refs, -2);
    r.at = pool_filled(m, (int64_t)c->p->n_steps + c->p->n_copies + 1, 0);
    if (m->failed)
        return CKPT_ENOMEM;
    start(&r);
    int rc = replay_all(&r);
    return rc ? rc : check_backings(&r);
}
