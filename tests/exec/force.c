/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites a plan without parks into one with as many as there can be; see force.h. */
#include <stdlib.h>
#include <string.h>
#include "force.h"
#include "plan/graphs.h"

struct forcing {
    const struct graph *g;
    const struct force *f;
    struct plan *p;
    uint64_t random;
    int64_t tier_end[TIER_COUNT];
    int32_t *partner; /* per instance: the other piece of one that wraps round, or -1 */
    bool *written;    /* per storage: a step on the host writes it where it lives */
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
        if (x->p->steps[k].on_host)
            continue;
        if ((written || graph_op_reads(x->g, o, s)) && u->n < 4096) {
            u->step[u->n] = k;
            u->writes[u->n++] = written;
        }
    }
}

static enum fate take_tier(struct forcing *x, int32_t s, int64_t *offset)
{
    bool nvme = x->f->nvme && !x->written[s] && (!x->f->host || draw(x, 2));
    int64_t unit = nvme ? PLAN_NVME_ALIGN : CKPT_ALIGN, *end = &x->tier_end[nvme];
    *offset = round_up(*end, unit);
    *end = *offset + round_up(x->g->storages[s].bytes, unit);
    return nvme ? FATE_PARK_NVME : FATE_PARK_HOST;
}

static int32_t add_instance(struct forcing *x, int32_t s, int32_t first, int32_t last)
{
    x->partner[x->p->n_instances] = -1;
    x->p->instances[x->p->n_instances] = (struct plan_instance){s, first, last, 0};
    return x->p->n_instances++;
}

static struct plan_park *add_park(struct forcing *x, int32_t s, enum fate tier, int64_t offset)
{
    struct plan_park *k = &x->p->parks[x->p->n_parks++];
    *k = (struct plan_park){.storage = s, .tier = tier, .tier_offset = offset};
    return k;
}

static bool wants(struct forcing *x, int32_t from, int32_t to)
{
    return to - from >= 2 && (x->f->all || draw(x, 4));
}

/* An activation's residence falls apart where it idles. */
static void park_activation(struct forcing *x, int32_t i)
{
    struct uses u;
    struct plan_instance *t = &x->p->instances[i];
    int32_t s = t->storage, last = t->last, now = i;
    find_uses(x, s, t->first, t->last, &u);
    for (int32_t j = 0; j + 1 < u.n; j++) {
        int32_t from = u.step[j], to = u.step[j + 1];
        if (to >= x->p->n_body || !wants(x, from, to))
            continue;
        int64_t offset;
        enum fate tier = take_tier(x, s, &offset);
        struct plan_park *k = add_park(x, s, tier, offset);
        k->out_step = from;
        k->free_step = from + draw(x, to - from);
        k->in_step = k->free_step + 1 + draw(x, to - k->free_step);
        k->use_step = to;
        x->p->instances[now].last = k->free_step;
        now = add_instance(x, s, k->in_step, last);
    }
}

/* Where the park behind use j of a persistent storage frees its room and asks for it again. */
static void choose_steps(struct forcing *x, struct plan_park *k)
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

/* A persistent storage lives in a tier: it comes for its uses, and goes without a copy unless
 * somebody wrote it. */
static void park_persistent(struct forcing *x, int32_t s)
{
    struct uses u;
    int64_t offset;
    int32_t body = x->p->n_body;
    find_uses(x, s, 0, x->p->n_steps - 1, &u);
    if (!u.n || x->g->storages[s].carried)
        return;
    enum fate tier = take_tier(x, s, &offset);
    int32_t first_park = x->p->n_parks;
    bool written = false;
    for (int32_t j = 0; j < u.n; j++) {
        bool round = j + 1 == u.n;
        int32_t to = u.step[round ? 0 : j + 1];
        bool must = round || (x->g->n_micro > 1 && u.step[j] < body && to >= body);
        written |= u.writes[j];
        if (!must && !wants(x, u.step[j], to))
            continue;
        struct plan_park *k = add_park(x, s, tier, offset);
        k->clean = !written;
        k->out_step = u.step[j];
        k->use_step = to;
        choose_steps(x, k);
        written = false;
    }
    for (int32_t n = first_park; n < x->p->n_parks; n++) {
        int32_t before = n > first_park ? n - 1 : x->p->n_parks - 1;
        const struct plan_park *from = &x->p->parks[before], *to = &x->p->parks[n];
        if (to->free_step >= to->out_step) {
            add_instance(x, s, from->in_step, to->free_step);
            continue;
        }
        int32_t a = add_instance(x, s, from->in_step, x->p->n_steps - 1);
        int32_t b = add_instance(x, s, 0, to->free_step);
        x->partner[a] = b;
        x->partner[b] = a;
    }
    x->p->persistent -= x->g->storages[s].bytes;
}

/* ---- steps on the host ----------------------------------------------------------------------- */

static bool op_uses(const struct graph *g, const struct graph_op *o, int32_t s, bool writes)
{
    for (int32_t j = 0; j < (writes ? o->n_writes : o->n_reads); j++)
        if (g->refs[(writes ? o->writes : o->reads) + j] == s)
            return true;
    return false;
}

/* The first step on the host that uses s, or -1. */
static int32_t find_host_step(const struct forcing *x, int32_t s)
{
    for (int32_t k = x->p->n_body; k < x->p->n_steps; k++) {
        const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
        if (x->p->steps[k].on_host && (op_uses(x->g, o, s, false) || op_uses(x->g, o, s, true)))
            return k;
    }
    return -1;
}

/* A copy out between the last writer and the step on the host, if somebody writes; what is not
 * persistent goes when neither that nor a step of the device needs it. */
static void send(struct forcing *x, int32_t s, int32_t step, struct plan_lodging *l)
{
    struct uses u;
    int32_t least = -1;
    find_uses(x, s, 0, x->p->n_steps - 1, &u);
    for (int32_t j = 0; j < u.n; j++)
        if (u.writes[j])
            least = u.step[j];
    if (least < 0)
        return;
    if (x->g->n_micro > 1 && least < x->p->n_body)
        least = x->p->n_body;
    l->out_step = least + draw(x, step - least);
    if (x->g->storages[s].persistent)
        return;
    for (int32_t i = 0; i < x->p->n_instances; i++)
        if (x->p->instances[i].storage == s)
            x->p->instances[i].last = u.step[u.n - 1] > l->out_step ? u.step[u.n - 1] : l->out_step;
}

static void lodge(struct forcing *x, int32_t s, int32_t step)
{
    const struct graph_storage *t = &x->g->storages[s];
    struct plan_lodging *l = &x->p->lodgings[x->p->n_lodgings];
    bool state = t->kind == KIND_OPTIMIZER;
    *l = (struct plan_lodging){.storage = s, .out_step = -1, .in_step = -1};
    if (t->persistent && !state && (!x->f->half || draw(x, 2))) {
        x->written[s] = true;
        return;
    }
    if (!state)
        send(x, s, step, l);
    if (t->persistent && !state)
        l->in_step = step + 1 + draw(x, x->p->n_steps - step);
    l->tier_offset = x->tier_end[TIER_HOST];
    x->tier_end[TIER_HOST] += t->bytes;
    x->p->persistent -= state ? t->bytes : 0;
    x->p->n_lodgings++;
}

static void step_on_host(struct forcing *x)
{
    for (int32_t k = x->p->n_body; k < x->p->n_steps && x->f->stepped; k++)
        x->p->steps[k].on_host =
            graph_op_updates(x->g, &x->g->ops[x->p->steps[k].op]) && (x->f->all || draw(x, 2));
    for (int32_t s = 0; s < x->g->n_storages; s++) {
        int32_t step = find_host_step(x, s);
        if (step >= 0)
            lodge(x, s, step);
    }
}

/* ---- addresses ------------------------------------------------------------------------------ */

static int64_t bytes_of(const struct forcing *x, int32_t i)
{
    const struct plan_instance *t = &x->p->instances[i];
    return t->storage >= 0 ? x->g->storages[t->storage].bytes
                           : x->g->ops[x->p->steps[-1 - t->storage].op].workspace;
}

static bool meet(const struct forcing *x, int32_t a, int32_t b)
{
    const struct plan_instance *s = &x->p->instances[a], *t = &x->p->instances[b];
    return s->first <= t->last && t->first <= s->last;
}

/* First fit, in the order of the instances; both pieces of one that wraps round at once. */
static void place(struct forcing *x)
{
    struct plan *p = x->p;
    p->transient = 0;
    for (int32_t i = 0; i < p->n_instances; i++) {
        int32_t other = x->partner[i];
        int64_t at = 0;
        if (other >= 0 && other < i)
            continue;
        for (bool moved = true; moved;) {
            moved = false;
            for (int32_t j = 0; j < p->n_instances; j++) {
                const struct plan_instance *t = &p->instances[j];
                bool placed = j < i || (x->partner[j] >= 0 && x->partner[j] < i);
                if (!placed || j == other || !(meet(x, i, j) || (other >= 0 && meet(x, other, j))))
                    continue;
                if (at < t->offset + bytes_of(x, j) && t->offset < at + bytes_of(x, i)) {
                    at = t->offset + bytes_of(x, j);
                    moved = true;
                }
            }
        }
        p->instances[i].offset = at;
        if (other >= 0)
            p->instances[other].offset = at;
        p->transient = max_i64(p->transient, at + bytes_of(x, i));
    }
}

static void measure(struct forcing *x)
{
    struct plan *p = x->p;
    p->load = p->peak_step = 0;
    for (int32_t k = 0; k < p->n_steps; k++) {
        int64_t now = 0;
        for (int32_t i = 0; i < p->n_instances; i++)
            if (p->instances[i].first <= k && k <= p->instances[i].last)
                now += bytes_of(x, i);
        if (now > p->load) {
            p->load = now;
            p->peak_step = k;
        }
    }
}

/* ---- the order of a plan --------------------------------------------------------------------- */

static int by_out(const void *a, const void *b)
{
    const struct plan_park *x = a, *y = b;
    return x->out_step != y->out_step ? (x->out_step < y->out_step ? -1 : 1)
                                      : x->storage - y->storage;
}

static int by_first(const void *a, const void *b)
{
    const struct plan_instance *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->storage - y->storage;
}

/* Every step takes a second by this clock, which is no machine's: copies out run in its second
 * half, in the order of the parks, copies in in the first, by the step they are needed at. */
static void set_clock(struct forcing *x)
{
    struct plan *p = x->p;
    const double unit = 0.25 / (p->n_parks + 1);
    p->seconds = p->n_steps + 1.;
    p->exposed_seconds = p->recompute_seconds = 0;
    for (int32_t n = 0; n < p->n_parks; n++) {
        struct plan_park *k = &p->parks[n];
        int32_t rank = 0;
        for (int32_t j = 0; j < p->n_parks; j++)
            rank += p->parks[j].use_step < k->use_step ||
                    (p->parks[j].use_step == k->use_step && j < n);
        k->out_start = k->out_step + 0.5 + n * unit;
        k->out_end = k->out_start + unit * 0.5;
        k->in_start = k->in_step + rank * unit;
        k->in_end = k->in_start + unit * 0.5;
    }
}

static int copy_base(struct forcing *x, const struct plan *base)
{
    size_t most = 3 * ((size_t)base->n_residences + 4 * (size_t)x->g->n_refs + 16);
    struct plan *p = x->p = calloc(1, sizeof *p);
    if (!p)
        return CKPT_ENOMEM;
    *p = *base;
    p->n_parks = p->n_instances = 0;
    p->pins = (struct pins){0};
    p->residences = NULL;
    p->copies = NULL;
    p->n_residences = p->n_copies = 0;
    p->steps = malloc(((size_t)base->n_steps + 1) * sizeof *p->steps);
    p->instances = malloc(most * sizeof *p->instances);
    p->parks = malloc(most * sizeof *p->parks);
    x->partner = malloc(most * sizeof *x->partner);
    p->lodgings = calloc((size_t)x->g->n_storages + 1, sizeof *p->lodgings);
    x->written = calloc((size_t)x->g->n_storages + 1, sizeof *x->written);
    if (!p->steps || !p->instances || !p->parks || !x->partner || !p->lodgings || !x->written)
        return CKPT_ENOMEM;
    memcpy(p->steps, base->steps, (size_t)base->n_steps * sizeof *p->steps);
    /* A plan from a file has no instances, only the record. */
    for (int32_t i = 0; i < base->n_residences; i++) {
        const struct residence *r = &base->residences[i];
        if (r->tier == TIER_DEVICE && r->offset >= 0)
            p->instances[p->n_instances++] =
                (struct plan_instance){r->storage, r->first, r->last, r->offset};
    }
    memset(x->partner, -1, most * sizeof *x->partner);
    return pins_add(&p->pins, &base->pins);
}

int force_parks(const struct graph *g, const struct plan *base, const struct force *f,
                struct plan **out)
{
    struct forcing x = {.g = g, .f = f, .random = f->seed * 2 + 1};
    char message[CKPT_MESSAGE];
    int rc = copy_base(&x, base);
    int32_t n = rc ? 0 : x.p->n_instances;
    if (!rc)
        step_on_host(&x);
    for (int32_t i = 0; i < n && !rc; i++) {
        int32_t s = x.p->instances[i].storage;
        if (s >= 0 && !g->storages[s].persistent && !g->storages[s].carried &&
            !lodging_of(x.p, s))
            park_activation(&x, i);
    }
    for (int32_t s = 0; s < g->n_storages && !rc; s++)
        if (g->storages[s].persistent && !lodging_of(x.p, s) &&
            (f->all || x.written[s] || draw(&x, 8)))
            park_persistent(&x, s);
    if (!rc) {
        place(&x);
        measure(&x);
        set_clock(&x);
        qsort(x.p->parks, (size_t)x.p->n_parks, sizeof *x.p->parks, by_out);
        set_clock(&x);
        qsort(x.p->instances, (size_t)x.p->n_instances, sizeof *x.p->instances, by_first);
        x.p->host_bytes = x.tier_end[TIER_HOST];
        x.p->nvme_bytes = x.tier_end[TIER_NVME];
        x.p->staging_bytes = x.p->nvme_bytes ? 2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT : 0;
        x.p->budgets = (struct budgets){INT64_MAX, x.p->host_bytes, x.p->nvme_bytes, {0, 0}};
        rc = plan_record(g, x.p, message);
    }
    free(x.partner);
    free(x.written);
    *out = x.p;
    return rc;
}

void force_count(const struct graph *g, const struct plan *p, struct force_count *n)
{
    *n = (struct force_count){0};
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *k = &p->parks[i];
        int tier = k->tier == FATE_PARK_NVME ? TIER_NVME : TIER_HOST;
        n->persistent[tier] += g->storages[k->storage].persistent;
        n->activations[tier] += !g->storages[k->storage].persistent;
        n->clean += k->clean;
        n->crossing += k->free_step < k->out_step;
    }
    for (int32_t k = p->n_body; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        n->stepped += p->steps[k].on_host;
        n->on_device += !p->steps[k].on_host && graph_op_updates(g, o);
        for (int32_t j = 0; j < o->n_writes && p->steps[k].on_host; j++)
            n->written += !lodging_of(p, g->refs[o->writes + j]);
    }
    for (int32_t i = 0; i < p->n_lodgings; i++) {
        n->sent += p->lodgings[i].out_step >= 0;
        n->back += p->lodgings[i].in_step >= 0;
        n->in_place += p->lodgings[i].out_step >= 0 && p->lodgings[i].in_step >= 0;
    }
}
