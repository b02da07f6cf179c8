/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that may run on the host.  Their state stays in the host tier and needs neither device
 * memory nor the link; only the gradient is copied out and the new value copied in.  Both use the
 * address range of the value, which is offloaded: it leaves as the gradient and comes back as the
 * next value.
 *
 * Updates that the host repeats: the value stays on the device, and the state is copied in but not
 * out, because the host makes the same bytes from the gradient and the old state.  It has time
 * until the state is needed again.  A deferred update runs just before the first use of its value,
 * so its state is copied in during the forward pass.  In the order of first uses the host runs the
 * last updates, those before them are deferred, and those before these are repeated in place.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"
#include "plan/search/comm_cost.h"

/* Factor on the seconds of an update at the rate host_update: the simulation does not model that
 * updates and copies share host memory.  With 1.05 a step of XL/2, 54,000 tokens, took 5.7 %
 * longer on an H200 than predicted (doc/bench/h200.md), as if this were 1.3.  Plans made with 1.25
 * are only 0.2 % slower should the host be as fast as its rate says. */
#define PRICE 1.25

/* Seconds of an update on the host with this many bytes of state and value. */
static double host_seconds(const struct machine *m, double bytes)
{
    return PRICE * 2 * bytes / m->host_update;
}

double hosted_seconds(const struct graph *g, const struct machine *m, const struct graph_op *o)
{
    double bytes = 0;
    for (int32_t j = 0; j < o->n_writes; j++)
        bytes += (double)g->storages[g->refs[o->writes + j]].bytes;
    return host_seconds(m, bytes);
}

/* The first of several programs that train leaves state where it suits all of them. */
static bool has_hosted_state(const struct graph *g)
{
    int32_t s = 0;
    while (s < g->n_storages &&
           (g->storages[s].kind != KIND_OPTIMIZER || g->storages[s].backing != BACKING_HOST))
        s++;
    return s < g->n_storages;
}

bool graph_may_repeat(const struct graph *g)
{
    return g->n_micro == 1 && !graph_has_collectives(g) && (!g->in_turn || has_hosted_state(g));
}

/* The value that an update writes if its operands allow that it runs on the host; else -1.  Beside
 * its state it may read only the clip values, whose storage is *clip. */
static int32_t value_of(const struct graph *g, const struct graph_op *o, int32_t *clip)
{
    int32_t value = -1, n = 0;
    *clip = -1;
    if (!graph_op_updates(g, o))
        return -1;
    for (int32_t j = 0; j < o->n_writes; j++) {
        const struct graph_storage *t = &g->storages[g->refs[o->writes + j]];
        bool on_host = t->backing == BACKING_ANY || t->backing == BACKING_HOST;
        if (!t->persistent || (t->kind == KIND_OPTIMIZER && !on_host))
            return -1;
        if (t->kind == KIND_OPTIMIZER)
            continue;
        if (!on_host && (t->backing != BACKING_DEVICE || !graph_may_repeat(g)))
            return -1;
        value = g->refs[o->writes + j];
        n++;
    }
    for (int32_t j = 0; j < o->n_reads; j++) {
        int32_t s = g->refs[o->reads + j];
        if (g->storages[s].persistent)
            continue;
        if (*clip >= 0)
            return -1;
        *clip = s;
    }
    return n == 1 && *clip >= 0 ? value : -1;
}

bool *hosted_ops(const struct graph *g, const struct machine *m, struct pool *memory)
{
    struct pool scratch = {NULL, false};
    bool *may = pool_array(memory, g->n_ops, sizeof(*may));
    bool *made = pool_array(&scratch, g->n_storages, sizeof(*made));
    for (int32_t i = 0; i < g->n_ops && may && made && g->n_micro == 1 && m->host_update > 0; i++) {
        const struct graph_op *o = &g->ops[i];
        int32_t clip, value = i < g->n_body ? -1 : value_of(g, o, &clip);
        may[i] = value >= 0 && made[value];
        for (int32_t j = 0; j < o->n_writes && i < g->n_body; j++)
            made[g->refs[o->writes + j]] = true;
    }
    memory->failed |= scratch.failed;
    pool_free(&scratch);
    return may;
}

struct hosted_bounds hosted_most(const struct graph *g, const struct machine *m, const bool *may)
{
    struct hosted_bounds most = {0, 0, 0};
    double meanwhile = 0, values = 0, there = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct graph_op *o = &g->ops[i];
        meanwhile += o->phase != GRAPH_BACKWARD ? o->seconds : 0;
        most.seconds += may[i] ? o->seconds : 0;
        for (int32_t j = 0; j < o->n_writes && may[i]; j++) {
            const struct graph_storage *t = &g->storages[g->refs[o->writes + j]];
            double bytes = (double)t->bytes;
            most.bytes += t->kind == KIND_OPTIMIZER ? bytes : 0;
            values += t->kind == KIND_OPTIMIZER ? 0 : bytes;
            there += t->kind == KIND_OPTIMIZER && t->backing == BACKING_HOST ? bytes : 0;
        }
    }
    if (most.bytes > 0)
        most.meanwhile = most.bytes * fmin(1, meanwhile / host_seconds(m, most.bytes + values));
    most.meanwhile = fmax(most.meanwhile, there);
    return most;
}

/* Per storage: the state of the scan over the steps. */
struct seen {
    int32_t first, used, written; /* its first user, the last one, the last writer, or -1 */
    int32_t wrap, gradient;       /* its idle gaps around the end of the step and up to the norm */
};

static void see(const struct transfer *x, int32_t k, struct seen *at)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    for (int32_t j = 0; j < o->n_reads + o->n_writes; j++) {
        struct seen *s = &at[graph_ref(x->g, o, j)];
        s->first = s->first < 0 ? k : s->first;
        s->used = k;
        s->written = j >= o->n_reads ? k : s->written;
    }
}

static void find_wraps(const struct transfer *x, struct seen *at)
{
    for (int32_t i = 0; i < x->n; i++) {
        if (x->list[i].gradient)
            at[x->list[i].storage].gradient = i;
        if (x->list[i].wraps)
            at[x->list[i].storage].wrap = x->wrap_of[x->list[i].storage] = i;
    }
}

/* Sorts groups by the step that makes the gradient, and appends the copies of gradients to the list
 * of gaps. */
static int add_copies(struct transfer *x)
{
    struct idle_gap *list = pool_array(&x->memory, x->n + x->n_groups, sizeof(*list));
    POOL_ARRAY(&x->memory, x->by_made, x->n_groups);
    if (x->memory.failed)
        return CKPT_ENOMEM;
    memcpy(list, x->list, (size_t)x->n * sizeof(*list));
    x->list = list;
    for (int32_t i = 0; i < x->n_groups; i++) {
        const struct update_group *b = &x->groups[i];
        x->by_made[i] = (struct place_key){b->made, 0, i};
        list[x->n + i] = (struct idle_gap){.storage = b->storage,
                                           .residence = -1,
                                           .out_step = b->made,
                                           .use_step = b->step,
                                           .bytes = x->g->storages[b->storage].bytes,
                                           .stays = true,
                                           .group = i,
                                           .offload = {.tier = TIER_HOST}};
    }
    place_sort_keys(x->by_made, x->n_groups);
    return 0;
}

/* The index of the residence of the clip values. */
static int32_t find_clip(const struct transfer *x, const struct plan *p)
{
    int32_t i = 0;
    while (p->residences[i].storage != x->clip || p->residences[i].first > x->clip_step ||
           p->residences[i].last < x->clip_step)
        i++;
    return i;
}

/* Whether the update of group b may be repeated if those of the graph may: its value stays on the
 * device, and all of its state may leave. */
static bool may_repeat(const struct transfer *x, const struct update_group *b)
{
    const struct graph *g = x->g;
    const struct graph_op *o = &g->ops[x->p->steps[b->step].op];
    bool may = b->made >= 0 && b->made < x->p->n_body;
    for (int32_t j = 0; j < o->n_writes && may; j++) {
        int32_t s = g->refs[o->writes + j], wrap = x->wrap_of[s];
        bool state = g->storages[s].kind == KIND_OPTIMIZER;
        may = state ? wrap >= 0 && x->list[wrap].state && x->list[wrap].use_step == b->step
                    : g->storages[s].backing != BACKING_HOST;
    }
    return may;
}

/* Sets which of the repeatable updates may be deferred: nothing after them touches what they
 * change, and their values are first used in the order of the updates. */
static void find_deferrable(struct transfer *x, const struct seen *at)
{
    int32_t latest = 1;
    for (int32_t i = 0; i < x->n_groups; i++) {
        struct update_group *b = &x->groups[i];
        const struct graph_op *o = &x->g->ops[x->p->steps[b->step].op];
        int32_t use = b->use;
        bool may = b->repeatable && !x->g->in_turn && use >= latest && use < b->made &&
                   at[x->clip].written == x->clip_step;
        for (int32_t j = 0; j < o->n_writes && may; j++)
            may = at[x->g->refs[o->writes + j]].used == b->step;
        b->deferrable = may;
        latest = may ? use : latest;
    }
}

/* Adds the update at step k, one of hosted_ops, if its steps allow that it runs on the host.
 * repeats: updates of the graph may be repeated. */
static void add_group(struct transfer *x, int32_t k, const struct seen *at, bool repeats)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    int32_t clip, value = value_of(x->g, o, &clip);
    if ((x->clip >= 0 && clip != x->clip) || at[clip].written < x->p->n_body)
        return;
    struct update_group b = {.step = k,
                             .value = at[value].wrap,
                             .gradient = at[value].gradient,
                             .sent = at[value].used,
                             .made = at[value].written,
                             .storage = value,
                             .use = at[value].first};
    if (b.sent >= at[clip].written)
        return;
    for (int32_t j = 0; j < o->n_writes; j++) {
        const struct graph_storage *t = &x->g->storages[x->g->refs[o->writes + j]];
        b.state += t->kind == KIND_OPTIMIZER ? t->bytes : 0;
        b.takes += t->backing == BACKING_ANY || t->backing == BACKING_DEVICE ? t->bytes : 0;
    }
    b.seconds = hosted_seconds(x->g, x->m, o);
    b.repeatable = repeats && may_repeat(x, &b);
    if (b.value < 0 && !b.repeatable)
        return;
    x->clip = clip;
    x->clip_step = at[clip].written;
    x->group_at[k] = x->n_groups;
    x->groups[x->n_groups++] = b;
}

int hosted_find(struct transfer *x)
{
    const struct plan *p = x->p;
    struct pool scratch = {NULL, false};
    int32_t tail = p->n_steps - p->n_body, n = x->g->n_storages;
    struct seen *at = pool_array(&scratch, n, sizeof(*at));
    const bool *may = hosted_ops(x->g, x->m, &scratch), repeats = graph_may_repeat(x->g);
    x->clip = x->clip_step = -1;
    x->group_at = pool_filled(&x->memory, p->n_steps, -1);
    POOL_ARRAY(&x->memory, x->groups, tail);
    POOL_ARRAY(&x->memory, x->group_order, tail);
    POOL_ARRAY(&x->memory, x->by, n);
    x->wrap_of = pool_filled(&x->memory, n, -1);
    if (scratch.failed || x->memory.failed) {
        pool_free(&scratch);
        return CKPT_ENOMEM;
    }
    for (int32_t s = 0; s < n; s++)
        at[s] = (struct seen){-1, -1, -1, -1, -1};
    find_wraps(x, at);
    for (int32_t k = 0; k < p->n_steps; k++) {
        if (may[p->steps[k].op])
            add_group(x, k, at, repeats);
        see(x, k, at);
    }
    find_deferrable(x, at);
    pool_free(&scratch);
    x->clip_last = x->n_groups ? p->residences[find_clip(x, p)].last : -1;
    /* First groups that another program has put in the host tier, which would otherwise be copied
     * in and out; then groups whose value the forward pass uses last: they have most time. */
    for (int32_t i = 0; i < x->n_groups; i++) {
        const struct update_group *b = &x->groups[i];
        int32_t first = b->takes ? 0 : p->n_steps;
        x->group_order[i] = (struct place_key){-b->use - first, 0, i};
    }
    place_sort_keys(x->group_order, x->n_groups);
    return add_copies(x);
}

/* Sets how a gap of group `group` leaves; -1: as without a group. */
static void set_gap(struct idle_gap *a, int32_t group, int32_t out_step, bool clean)
{
    a->taken |= group >= 0;
    a->group = group;
    a->out_step = out_step;
    a->clean = clean;
}

/* Sets who runs the update of group b, and before which step of the next body; 0: in its place.  By
 * the host: its value leaves as the gradient.  By both: its state is not copied out. */
static void set_by(struct transfer *x, struct update_group *b, enum plan_by by, int32_t before)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[b->step].op];
    const int32_t number = (int32_t)(b - x->groups), group = by == BY_DEVICE ? -1 : number;
    for (int32_t j = 0; j < o->n_writes; j++) {
        int32_t s = x->g->refs[o->writes + j];
        x->by[s] = (int8_t)by;
        if (x->g->storages[s].kind != KIND_OPTIMIZER || (by != BY_BOTH && b->by != BY_BOTH))
            continue;
        struct idle_gap *wrap = &x->list[x->wrap_of[s]];
        set_gap(wrap, group, before ? before : b->step, by == BY_BOTH);
        wrap->use_step = wrap->out_step;
    }
    x->list[x->n + number].taken = by == BY_BOTH;
    if (b->value >= 0 && by != BY_BOTH)
        set_gap(&x->list[b->value], group, by == BY_HOST ? b->sent : b->step,
                by == BY_HOST && b->gradient >= 0);
    if (b->gradient >= 0)
        x->list[b->gradient].taken = by == BY_HOST;
    b->by = by;
    b->before = before;
    b->end = 0;
}

static void clear_choice(struct transfer *x)
{
    for (int32_t i = 0; i < x->n_groups; i++)
        set_by(x, &x->groups[i], BY_DEVICE, 0);
    x->hosted = x->repeated = x->deferred = x->last_deferred = 0;
    x->hosted_bytes = x->copied_bytes = 0;
    x->hosted_seconds = 0;
}

static void choose_group(struct transfer *x, struct update_group *b, enum amount how)
{
    if (how == AMOUNT_HOSTED) {
        set_by(x, b, BY_HOST, 0);
        x->hosted++;
        x->hosted_bytes += b->state;
        x->hosted_seconds += x->g->ops[x->p->steps[b->step].op].seconds;
        return;
    }
    set_by(x, b, BY_BOTH, how == AMOUNT_DEFERRED ? b->use : 0);
    x->repeated++;
    x->deferred += b->before > 0;
    x->last_deferred = (int32_t)max_i64(x->last_deferred, b->before);
    x->copied_bytes += x->g->storages[b->storage].bytes;
}

static bool may_choose(const struct update_group *b, enum amount how)
{
    if (how == AMOUNT_HOSTED)
        return b->value >= 0;
    return b->by == BY_DEVICE && (how == AMOUNT_DEFERRED ? b->deferrable : b->repeatable);
}

/* Takes groups from number `from` on in their order, with this amount of state; *end is the number
 * after the last one. */
static int64_t choose_groups(struct transfer *x, int32_t from, enum amount how,
                             const double amounts[AMOUNTS], int64_t room, int32_t *end)
{
    double some = 0;
    *end = from;
    for (int32_t i = from; i < x->n_groups && some < amounts[how]; i++) {
        struct update_group *b = &x->groups[x->group_order[i].item];
        int64_t takes = b->takes + (hosted_any(x) ? 0 : x->g->storages[x->clip].bytes);
        if (!may_choose(b, how))
            continue;
        if (takes > room)
            break;
        room -= takes;
        some += (double)b->state;
        choose_group(x, b, how);
        *end = i + 1;
    }
    return room;
}

int64_t hosted_choose(struct transfer *x, const double amounts[AMOUNTS], int64_t room)
{
    int32_t next, end;
    clear_choice(x);
    if (x->b->host <= 0)
        return room;
    room = choose_groups(x, 0, AMOUNT_HOSTED, amounts, room, &next);
    room = choose_groups(x, next, AMOUNT_DEFERRED, amounts, room, &end);
    return choose_groups(x, next, AMOUNT_REPEATED, amounts, room, &end);
}

/* ---- the record ------------------------------------------------------------------------------ */

/* Adds the copy of the gradient of group i, and where it is in the host tier. */
static void add_gradient(const struct transfer *x, struct plan *p, int32_t i)
{
    const struct update_group *b = &x->groups[i];
    const struct idle_gap *a = &x->list[x->n + i];
    int32_t end = p->n_steps - 1;
    int32_t here = plan_add_residence(p, (struct residence){a->storage, TIER_DEVICE, 0, end, -1});
    int32_t last = b->before ? b->before + p->n_steps : end;
    int32_t below = plan_add_residence(
        p, (struct residence){a->storage, TIER_HOST, b->made, last, b->host_offset});
    p->copies[p->n_copies++] = (struct copy){
        here, below, b->made, b->before ? last : b->step, a->offload.out_start, a->offload.out_end};
}

/* Adds the copy of the clip values, which updates on the host from step `first` on wait for. */
static void add_clip(const struct transfer *x, struct plan *p, int32_t first, int32_t last)
{
    int32_t here = find_clip(x, p);
    if (x->deferred)
        p->residences[here].last = last = x->last_deferred + p->n_steps;
    int32_t until = (int32_t)min_i64(first, p->residences[here].last + 1);
    int32_t below = plan_add_residence(
        p, (struct residence){x->clip, TIER_HOST, x->clip_step, last, x->clip_offset});
    p->copies[p->n_copies++] =
        (struct copy){here, below, x->clip_step, until, x->clip_start, x->clip_end};
}

void hosted_rewrite(const struct transfer *x, struct plan *p)
{
    int32_t first = INT32_MAX, last = -1;
    for (int32_t i = 0; i < x->n_groups; i++) {
        const struct update_group *b = &x->groups[i];
        p->steps[b->step].by = (int8_t)b->by;
        p->steps[b->step].before = b->before;
        if (b->by == BY_BOTH)
            add_gradient(x, p, i);
        if (b->by != BY_DEVICE && !b->before)
            first = (int32_t)min_i64(first, b->step);
        if (b->by != BY_DEVICE)
            last = b->by == BY_BOTH ? p->n_steps - 1 : (int32_t)max_i64(last, b->step);
    }
    if (last >= 0)
        add_clip(x, p, first, last);
}
