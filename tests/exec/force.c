/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites a plan without offloads into one with as many as possible; see force.h. */
#include <stdlib.h>
#include <string.h>
#include "force.h"
#include "plan/graphs.h"

/* One offload: a storage leaves the device between two residences there. */
struct forced {
    int32_t storage, out_step, free_step, in_step, use_step;
    int32_t from, to, below; /* residences */
    bool clean;
};

struct forcing {
    const struct graph *g;
    const struct force *f;
    struct plan *p;
    uint64_t random;
    int64_t tier_end[TIER_COUNT];
    struct forced *offloads;
    int32_t n_offloads;
    bool *hosted;  /* per storage: in host memory for a step on the host, beside its backing
                      residence or not */
    bool *written; /* per storage: a step on the host writes it where it lives */
};

/* The uses of one storage within one residence, in order. */
struct uses {
    int32_t step[4096];
    bool writes[4096];
    int32_t n;
};

static int32_t draw(struct forcing *x, int32_t n)
{
    x->random = x->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return n > 1 ? (int32_t)((x->random >> 33) % (uint64_t)n) : 0;
}

static void find_uses(const struct forcing *x, int32_t s, int32_t first, int32_t last,
                      struct uses *u)
{
    u->n = 0;
    for (int32_t k = first; k <= last; k++) {
        const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
        bool written = graph_op_writes(x->g, o, s);
        if (x->p->steps[k].by == BY_HOST)
            continue;
        if ((written || graph_op_reads(x->g, o, s)) && u->n < 4096) {
            u->step[u->n] = k;
            u->writes[u->n++] = written;
        }
    }
}

/* Adds a residence in a lower tier, at the end of the tier's used range. */
static int32_t add_below(struct forcing *x, int32_t s, int32_t first, int32_t last)
{
    bool nvme = x->f->nvme && !x->written[s] && (!x->f->host || draw(x, 2));
    int64_t unit = nvme ? PLAN_NVME_ALIGN : CKPT_ALIGN, *end = &x->tier_end[nvme];
    int64_t offset = round_up(*end, unit);
    *end = offset + round_up(x->g->storages[s].bytes, unit);
    return plan_add_residence(
        x->p, (struct residence){s, nvme ? TIER_NVME : TIER_HOST, first, last, offset});
}

static int32_t add_device(struct forcing *x, int32_t s, int32_t first, int32_t last)
{
    return plan_add_residence(x->p, (struct residence){s, TIER_DEVICE, first, last, 0});
}

static bool wants(struct forcing *x, int32_t from, int32_t to)
{
    return to - from >= 2 && (x->f->all || draw(x, 4));
}

/* Splits an activation's residence at its idle intervals. */
static void offload_activation(struct forcing *x, int32_t i)
{
    struct uses u;
    struct residence *t = &x->p->residences[i];
    int32_t s = t->storage, last = t->last, now = i;
    find_uses(x, s, t->first, t->last, &u);
    for (int32_t j = 0; j + 1 < u.n; j++) {
        int32_t from = u.step[j], to = u.step[j + 1];
        if (to >= x->p->n_body || !wants(x, from, to))
            continue;
        struct forced *k = &x->offloads[x->n_offloads++];
        *k = (struct forced){.storage = s, .from = now, .out_step = from, .use_step = to};
        k->below = add_below(x, s, from, to);
        k->free_step = from + draw(x, to - from);
        k->in_step = k->free_step + 1 + draw(x, to - k->free_step);
        x->p->residences[now].last = k->free_step;
        k->to = now = add_device(x, s, k->in_step, last);
    }
}

/* Selects the steps at which the offload of a persistent storage frees its device memory and starts
 * to copy it back. */
static void choose_steps(struct forcing *x, struct forced *k)
{
    int32_t n = x->p->n_steps, body = x->p->n_body;
    bool several = x->g->n_micro > 1, round = k->use_step <= k->out_step;
    int32_t least = several && k->use_step >= body ? body : 0; /* for in_step */
    int32_t most = several && k->out_step < body ? body - 1 : n - 1;
    if (!round) {
        most = most < k->use_step - 1 ? most : k->use_step - 1;
        k->free_step = k->clean ? k->out_step : k->out_step + draw(x, most - k->out_step + 1);
        least = least > k->free_step + 1 ? least : k->free_step + 1;
    } else if (!k->clean && !several && k->use_step > 0 && draw(x, 3)) {
        k->free_step = draw(x, k->use_step); /* of the next step */
        least = k->free_step + 1;
        if (k->free_step >= k->out_step)
            k->free_step = k->out_step;
    } else {
        k->free_step = k->clean ? k->out_step : k->out_step + draw(x, most - k->out_step + 1);
    }
    k->in_step = least + draw(x, k->use_step - least + 1);
}

/* A persistent storage has a backing residence in a tier: it is copied in for its uses, and copied
 * out only if it was written. */
static void offload_persistent(struct forcing *x, int32_t s)
{
    struct uses u;
    int32_t body = x->p->n_body, n = x->p->n_steps;
    find_uses(x, s, 0, n - 1, &u);
    if (!u.n || x->g->storages[s].carried)
        return;
    int32_t backing = add_below(x, s, 0, n - 1);
    int32_t first = x->n_offloads;
    bool written = false;
    for (int32_t j = 0; j < u.n; j++) {
        bool round = j + 1 == u.n;
        int32_t to = u.step[round ? 0 : j + 1];
        bool must = round || (x->g->n_micro > 1 && u.step[j] < body && to >= body);
        written |= u.writes[j];
        if (!must && !wants(x, u.step[j], to))
            continue;
        struct forced *k = &x->offloads[x->n_offloads++];
        *k = (struct forced){.storage = s, .below = backing, .clean = !written};
        k->out_step = u.step[j];
        k->use_step = to;
        choose_steps(x, k);
        written = false;
    }
    for (int32_t i = first; i < x->n_offloads; i++) {
        struct forced *from = &x->offloads[i > first ? i - 1 : x->n_offloads - 1],
                      *to = &x->offloads[i];
        int32_t last = to->free_step + (to->free_step < to->out_step ? n : 0);
        from->to = to->from = add_device(x, s, from->in_step, last);
    }
    x->p->persistent -= x->g->storages[s].bytes;
}

/* ---- steps on the host ----------------------------------------------------------------------- */

static bool touches(const struct forcing *x, int32_t k, int32_t s)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    return graph_op_reads(x->g, o, s) || graph_op_writes(x->g, o, s);
}

/* The first (or last) step on the host that uses s; -1: none. */
static int32_t find_host_step(const struct forcing *x, int32_t s, bool last)
{
    int32_t found = -1;
    for (int32_t k = x->p->n_body; k < x->p->n_steps && (last || found < 0); k++)
        if (x->p->steps[k].by == BY_HOST && touches(x, k, s))
            found = k;
    return found;
}

/* Selects the step after which s is copied out, between its last writer and the host step; -1 if
 * nothing writes it.  A storage that is not persistent leaves the device after this step and after
 * its last use there. */
static int32_t send(struct forcing *x, int32_t s, int32_t step, int32_t *here)
{
    struct uses u;
    int32_t least = -1;
    find_uses(x, s, 0, x->p->n_steps - 1, &u);
    for (int32_t j = 0; j < u.n; j++)
        if (u.writes[j])
            least = u.step[j];
    if (least < 0)
        return -1;
    if (x->g->n_micro > 1 && least < x->p->n_body)
        least = x->p->n_body;
    int32_t out = least + draw(x, step - least);
    for (int32_t i = 0; i < x->p->n_residences && *here < 0; i++)
        if (x->p->residences[i].storage == s) {
            x->p->residences[i].last = u.step[u.n - 1] > out ? u.step[u.n - 1] : out;
            *here = i;
        }
    return out;
}

/* The first step on the device that uses s, or 0. */
static int32_t find_first_use(const struct forcing *x, int32_t s)
{
    struct uses u;
    find_uses(x, s, 0, x->p->n_steps - 1, &u);
    return u.n ? u.step[0] : 0;
}

/* For storages that are not optimizer state: adds a residence in host memory, beside the device
 * residence, for the host steps. */
static void copy_to_host(struct forcing *x, int32_t s, int32_t step)
{
    struct plan *p = x->p;
    int32_t n = p->n_steps, here = -1, back = n + 1;
    bool value = x->g->storages[s].persistent;
    if (value)
        here = plan_add_residence(p, (struct residence){s, TIER_DEVICE, 0, n - 1, -1});
    int32_t out = send(x, s, step, &here);
    if (value)
        back = step + 1 + draw(x, n - step);
    int32_t last = value ? back - 1 : find_host_step(x, s, true);
    int32_t below = plan_add_residence(
        p, (struct residence){s, TIER_HOST, out >= 0 ? out : step, last, x->tier_end[TIER_HOST]});
    int32_t until = value ? step : (int32_t)min_i64(step, p->residences[here].last + 1);
    if (out >= 0)
        p->copies[p->n_copies++] = (struct copy){here, below, out, until, 0, 0};
    if (value)
        p->copies[p->n_copies++] =
            (struct copy){below, here, back - 1, n + find_first_use(x, s), 0, 0};
}

static void put_on_host(struct forcing *x, int32_t s, int32_t step)
{
    const struct graph_storage *t = &x->g->storages[s];
    bool state = t->kind == KIND_OPTIMIZER;
    if (t->persistent && !state && (!x->f->half || draw(x, 2))) {
        x->written[s] = true;
        return;
    }
    if (state)
        plan_add_residence(
            x->p, (struct residence){s, TIER_HOST, 0, x->p->n_steps - 1, x->tier_end[TIER_HOST]});
    else
        copy_to_host(x, s, step);
    x->tier_end[TIER_HOST] += t->bytes;
    x->p->persistent -= state ? t->bytes : 0;
    x->hosted[s] = true;
}

static void step_on_host(struct forcing *x)
{
    for (int32_t k = x->p->n_body; k < x->p->n_steps && x->f->stepped; k++)
        x->p->steps[k].by =
            graph_op_updates(x->g, &x->g->ops[x->p->steps[k].op]) && (x->f->all || draw(x, 2))
                ? BY_HOST
                : BY_DEVICE;
    for (int32_t s = 0; s < x->g->n_storages; s++) {
        int32_t step = find_host_step(x, s, false);
        if (step >= 0)
            put_on_host(x, s, step);
    }
}

/* ---- repeated updates ------------------------------------------------------------------------ */

/* An update at step k that may be repeated: its value, the last step of the body that writes that
 * (the gradient) and the first that uses it. */
struct repeat {
    int32_t k, value, made, first;
};

static bool may_repeat(const struct forcing *x, int32_t k, struct repeat *r)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    struct uses u;
    *r = (struct repeat){k, -1, -1, -1};
    if (!graph_op_updates(x->g, o))
        return false;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = x->g->refs[o->writes + j];
        if (x->g->storages[s].kind == KIND_OPTIMIZER)
            continue;
        if (r->value >= 0)
            return false;
        r->value = s;
    }
    find_uses(x, r->value, 0, x->p->n_body - 1, &u);
    for (int32_t j = 0; j < u.n; j++)
        r->made = u.writes[j] ? u.step[j] : r->made;
    r->first = u.n ? u.step[0] : -1;
    return r->made >= 0;
}

static void add_copy(struct forcing *x, int32_t from, int32_t to, int32_t after, int32_t before)
{
    x->p->copies[x->p->n_copies++] = (struct copy){from, to, after, before, 0, 0};
}

/* State of an update lives in the host tier and is copied in for step `at`. */
static void bring_state(struct forcing *x, int32_t s, int32_t at)
{
    struct plan *p = x->p;
    int32_t in = draw(x, at + 1);
    int32_t below = plan_add_residence(
        p, (struct residence){s, TIER_HOST, 0, p->n_steps - 1, x->tier_end[TIER_HOST]});
    x->tier_end[TIER_HOST] += x->g->storages[s].bytes;
    add_copy(x, below, add_device(x, s, in, at), in - 1, at);
    p->persistent -= x->g->storages[s].bytes;
    x->hosted[s] = true;
}

/* A storage is copied to the host after step `out` and stays there up to step `last`, which may be
 * one of the next step. */
static void keep_copy(struct forcing *x, int32_t s, int32_t here, int32_t out, int32_t last,
                      int32_t before)
{
    int32_t below = plan_add_residence(
        x->p, (struct residence){s, TIER_HOST, out, last, x->tier_end[TIER_HOST]});
    x->tier_end[TIER_HOST] += x->g->storages[s].bytes;
    add_copy(x, here, below, out, before);
    x->hosted[s] = true;
}

static void repeat_update(struct forcing *x, const struct repeat *r, int32_t before)
{
    struct plan *p = x->p;
    const struct graph_op *o = &x->g->ops[p->steps[r->k].op];
    int32_t n = p->n_steps;
    p->steps[r->k].by = BY_BOTH;
    p->steps[r->k].before = before;
    for (int32_t j = 0; j < o->n_writes; j++)
        if (x->g->refs[o->writes + j] != r->value)
            bring_state(x, x->g->refs[o->writes + j], before ? before : r->k);
    int32_t here = plan_add_residence(p, (struct residence){r->value, TIER_DEVICE, 0, n - 1, -1});
    int32_t out = r->made + draw(x, (before ? n : r->k) - r->made);
    keep_copy(x, r->value, here, out, before ? before + n : n - 1, before ? before + n : r->k);
}

/* The clip values stay until the last deferred update, and the host gets a copy. */
static void keep_clip(struct forcing *x, int32_t k, int32_t latest)
{
    const struct plan *p = x->p;
    const struct graph_op *o = &x->g->ops[p->steps[k].op];
    int32_t clip = 0, here = 0, n = p->n_steps;
    for (int32_t j = 0; j < o->n_reads; j++)
        if (!x->g->storages[x->g->refs[o->reads + j]].persistent)
            clip = x->g->refs[o->reads + j];
    while (p->residences[here].storage != clip)
        here++;
    if (latest)
        p->residences[here].last = latest + n;
    keep_copy(x, clip, here, p->residences[here].first, latest ? latest + n : n - 1,
              p->residences[here].last + 1);
}

/* Every other update that may be is repeated, most of these are deferred: in any order of the
 * steps, before the first use of the value or still earlier. */
static void repeat_updates(struct forcing *x)
{
    struct repeat r;
    int32_t any = -1, latest = 0;
    for (int32_t k = x->p->n_body; k < x->p->n_steps && x->f->repeated; k++) {
        if (!may_repeat(x, k, &r) || (!x->f->all && !draw(x, 3)))
            continue;
        int32_t before = r.first > 0 ? 1 + draw(x, r.first) : 0;
        if (before && before < latest)
            before = latest <= r.first ? latest : 0;
        before = draw(x, 4) ? before : 0;
        repeat_update(x, &r, before);
        latest = before ? before : latest;
        any = k;
    }
    if (any >= 0)
        keep_clip(x, any, latest);
}

/* ---- addresses ------------------------------------------------------------------------------ */

static bool is_placed(const struct residence *t)
{
    return t->tier == TIER_DEVICE && t->offset >= 0;
}

/* Whether two residences overlap in time; a residence may wrap around the end of the step. */
static bool meet(const struct residence *s, const struct residence *t, int32_t n)
{
    for (int32_t shift = -n; shift <= n; shift += n)
        if (s->first + shift <= t->last && t->first <= s->last + shift)
            return true;
    return false;
}

/* Assigns addresses by first fit, in the order of the residences. */
static void place(struct forcing *x)
{
    struct plan *p = x->p;
    p->transient = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        struct residence *r = &p->residences[i];
        int64_t at = 0;
        for (bool moved = is_placed(r); moved;) {
            moved = false;
            for (int32_t j = 0; j < i; j++) {
                const struct residence *t = &p->residences[j];
                int64_t end = t->offset + residence_bytes(x->g, p, t);
                if (is_placed(t) && meet(r, t, p->n_steps) && at < end &&
                    t->offset < at + residence_bytes(x->g, p, r)) {
                    at = end;
                    moved = true;
                }
            }
        }
        if (!is_placed(r))
            continue;
        r->offset = at;
        p->transient = max_i64(p->transient, at + residence_bytes(x->g, p, r));
    }
}

/* ---- copies --------------------------------------------------------------------------------- */

static int by_out(const void *a, const void *b)
{
    const struct forced *x = a, *y = b;
    return x->out_step != y->out_step ? (x->out_step < y->out_step ? -1 : 1)
                                      : x->storage - y->storage;
}

/* Assigns times to copies on an artificial clock with one second per step: copies out run in the
 * second half of a step, in the order of the offloads; copies in run in the first half, ordered by
 * the step that needs them. */
static void add_copies(struct forcing *x)
{
    struct plan *p = x->p;
    const double unit = 0.25 / (x->n_offloads + 1);
    p->seconds = p->n_steps + 1.;
    p->exposed_seconds = p->recompute_seconds = 0;
    qsort(x->offloads, (size_t)x->n_offloads, sizeof *x->offloads, by_out);
    for (int32_t n = 0; n < x->n_offloads; n++) {
        const struct forced *k = &x->offloads[n];
        int32_t rank = 0;
        for (int32_t j = 0; j < x->n_offloads; j++)
            rank += x->offloads[j].use_step < k->use_step ||
                    (x->offloads[j].use_step == k->use_step && j < n);
        double out = k->out_step + 0.5 + n * unit, in = k->in_step + rank * unit;
        if (!k->clean)
            p->copies[p->n_copies++] = (struct copy){k->from,     k->below,
                                                     k->out_step, p->residences[k->from].last + 1,
                                                     out,         out + unit * 0.5};
        p->copies[p->n_copies++] =
            (struct copy){k->below, k->to, k->in_step - 1, k->use_step, in, in + unit * 0.5};
    }
}

/* ---- the whole plan -------------------------------------------------------------------------- */

static int copy_base(struct forcing *x, const struct plan *base)
{
    size_t most = 3 * ((size_t)base->n_residences + 4 * (size_t)x->g->n_refs + 16);
    struct plan *p = x->p = calloc(1, sizeof *p);
    if (!p)
        return CKPT_ENOMEM;
    *p = *base;
    p->algorithms = (struct algorithms){0};
    p->residences = NULL;
    p->copies = NULL;
    p->n_residences = p->n_copies = 0;
    p->steps = malloc(((size_t)base->n_steps + 1) * sizeof *p->steps);
    x->offloads = malloc(most * sizeof *x->offloads);
    x->hosted = calloc((size_t)x->g->n_storages + 1, sizeof *x->hosted);
    x->written = calloc((size_t)x->g->n_storages + 1, sizeof *x->written);
    if (plan_reserve(p, (int64_t)most, (int64_t)most) || !p->steps || !x->offloads || !x->hosted ||
        !x->written)
        return CKPT_ENOMEM;
    memcpy(p->steps, base->steps, (size_t)base->n_steps * sizeof *p->steps);
    for (int32_t i = 0; i < base->n_residences; i++)
        if (is_placed(&base->residences[i]))
            plan_add_residence(p, base->residences[i]);
    return algorithms_add(&p->algorithms, &base->algorithms);
}

int force_offloads(const struct graph *g, const struct plan *base, const struct force *f,
                   struct plan **out)
{
    struct forcing x = {.g = g, .f = f, .random = f->seed * 2 + 1};
    int rc = copy_base(&x, base);
    int32_t n = rc ? 0 : x.p->n_residences;
    if (!rc && f->repeated)
        repeat_updates(&x);
    else if (!rc)
        step_on_host(&x);
    for (int32_t i = 0; i < n && !rc; i++) {
        int32_t s = x.p->residences[i].storage;
        if (s >= 0 && !g->storages[s].persistent && !g->storages[s].carried && !x.hosted[s])
            offload_activation(&x, i);
    }
    for (int32_t s = 0; s < g->n_storages && !rc; s++)
        if (g->storages[s].persistent && !x.hosted[s] && (f->all || x.written[s] || draw(&x, 8)))
            offload_persistent(&x, s);
    if (!rc) {
        place(&x);
        rc = plan_measure(g, x.p);
    }
    if (!rc) {
        add_copies(&x);
        x.p->host_bytes = x.tier_end[TIER_HOST];
        x.p->nvme_bytes = x.tier_end[TIER_NVME];
        x.p->budgets = (struct budgets){INT64_MAX, x.p->host_bytes, x.p->nvme_bytes, {0, 0}};
        if (plan_stages(x.p) && x.p->host_bytes)
            x.p->budgets.host = plan_host_for(x.p->host_bytes);
        x.p->staging_bytes = plan_stages(x.p) ? plan_staging(x.p->budgets.host) : 0;
        rc = plan_add_backings(g, x.p);
    }
    free(x.offloads);
    free(x.hosted);
    free(x.written);
    *out = x.p;
    return rc;
}

/* Counts host residences that serve a host step: they are copied back to the device only if the
 * device residence is the backing one. */
static void count_sent(const struct graph *g, const struct plan *p, const struct copy *out,
                       struct force_count *n)
{
    const struct copy *in = NULL;
    for (int32_t i = 0; i < p->n_copies; i++)
        if (p->copies[i].from == out->to)
            in = &p->copies[i];
    bool backing = plan_is_backing(g, p, &p->residences[out->to]);
    bool back = in && plan_is_backing(g, p, &p->residences[in->to]);
    n->sent += !backing && (!in || back);
    n->in_place += !backing && back;
}

void force_count(const struct graph *g, const struct plan *p, struct force_count *n)
{
    struct offload *list;
    int32_t count;
    *n = (struct force_count){0};
    if (plan_offloads(g, p, &list, &count))
        return;
    for (int32_t i = 0; i < count; i++) {
        const struct offload *k = &list[i];
        n->persistent[k->tier] += g->storages[k->storage].persistent;
        n->activations[k->tier] += !g->storages[k->storage].persistent;
        n->clean += !k->out;
        n->crossing += k->free_step < k->out_step;
    }
    free(list);
    for (int32_t k = p->n_body; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        n->stepped += p->steps[k].by == BY_HOST;
        n->repeated += p->steps[k].by == BY_BOTH;
        n->deferred += p->steps[k].before > 0;
        n->on_device += p->steps[k].by != BY_HOST && graph_op_updates(g, o);
    }
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        if (copy_is_out(p->residences, c))
            count_sent(g, p, c, n);
        n->back += plan_is_backing(g, p, &p->residences[c->to]) && !copy_is_out(p->residences, c);
    }
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (r->storage < 0 || r->tier == TIER_DEVICE || !plan_is_backing(g, p, r) ||
            g->storages[r->storage].kind == KIND_OPTIMIZER)
            continue;
        for (int32_t k = p->n_body; k < p->n_steps; k++)
            n->written += p->steps[k].by == BY_HOST &&
                          graph_op_writes(g, &g->ops[p->steps[k].op], r->storage);
    }
}
