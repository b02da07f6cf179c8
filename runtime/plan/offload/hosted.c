/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that may run on the host.  Their state stays in the host tier and needs neither device
 * memory nor the link; only the gradient is copied out and the new value copied in.  Both use the
 * address range of the value, which is offloaded: it leaves as the gradient and comes back as the
 * next value.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/offload/transfer.h"

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
        if (!t->persistent || (t->backing != BACKING_ANY && t->backing != BACKING_HOST))
            return -1;
        if (t->kind == KIND_OPTIMIZER)
            continue;
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
    int32_t used, written;  /* the last step that used it and the last that wrote it, or -1 */
    int32_t wrap, gradient; /* its idle gaps around the end of the step and up to the norm */
};

static void see(const struct transfer *x, int32_t k, struct seen *at)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    for (int32_t j = 0; j < o->n_reads; j++)
        at[x->g->refs[o->reads + j]].used = k;
    for (int32_t j = 0; j < o->n_writes; j++) {
        struct seen *w = &at[x->g->refs[o->writes + j]];
        w->used = w->written = k;
    }
}

static void find_wraps(const struct transfer *x, struct seen *at)
{
    for (int32_t i = 0; i < x->n; i++) {
        if (x->list[i].gradient)
            at[x->list[i].storage].gradient = i;
        if (x->list[i].wraps)
            at[x->list[i].storage].wrap = i;
    }
}

/* Adds the update at step k, one of hosted_ops, if its steps allow that it runs on the host. */
static void add_group(struct transfer *x, int32_t k, const struct seen *at)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[k].op];
    int32_t clip, value = value_of(x->g, o, &clip);
    if ((x->clip >= 0 && clip != x->clip) || at[clip].written < x->p->n_body)
        return;
    struct update_group b = {
        .step = k, .value = at[value].wrap, .gradient = at[value].gradient, .sent = at[value].used};
    if (b.value < 0 || b.sent >= at[clip].written)
        return;
    for (int32_t j = 0; j < o->n_writes; j++) {
        const struct graph_storage *t = &x->g->storages[x->g->refs[o->writes + j]];
        b.state += t->kind == KIND_OPTIMIZER ? t->bytes : 0;
        b.takes += t->backing == BACKING_ANY ? t->bytes : 0;
    }
    b.seconds = hosted_seconds(x->g, x->m, o);
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
    const bool *may = hosted_ops(x->g, x->m, &scratch);
    x->clip = x->clip_step = -1;
    x->group_at = pool_filled(&x->memory, p->n_steps, -1);
    POOL_ARRAY(&x->memory, x->groups, tail);
    POOL_ARRAY(&x->memory, x->group_order, tail);
    POOL_ARRAY(&x->memory, x->host_resident, n);
    if (scratch.failed || x->memory.failed) {
        pool_free(&scratch);
        return CKPT_ENOMEM;
    }
    for (int32_t s = 0; s < n; s++)
        at[s] = (struct seen){-1, -1, -1, -1};
    find_wraps(x, at);
    for (int32_t k = 0; k < p->n_steps; k++) {
        if (may[p->steps[k].op])
            add_group(x, k, at);
        see(x, k, at);
    }
    pool_free(&scratch);
    /* First groups that another program has put in the host tier, which would otherwise be copied
     * in and out; then groups whose value the forward pass uses last: they have most time. */
    for (int32_t i = 0; i < x->n_groups; i++) {
        const struct update_group *b = &x->groups[i];
        int32_t first = b->takes ? 0 : p->n_steps;
        x->group_order[i] = (struct place_key){-x->list[b->value].use_step - first, 0, i};
    }
    place_sort_keys(x->group_order, x->n_groups);
    return 0;
}

/* Takes group b or not: its value leaves as the gradient, or after the update. */
static void set_resident(struct transfer *x, struct update_group *b, bool taken)
{
    const struct graph_op *o = &x->g->ops[x->p->steps[b->step].op];
    struct idle_gap *wrap = &x->list[b->value];
    b->taken = taken;
    b->start = b->end = 0;
    for (int32_t j = 0; j < o->n_writes; j++)
        x->host_resident[x->g->refs[o->writes + j]] = taken;
    wrap->out_step = taken ? b->sent : b->step;
    wrap->clean = taken && b->gradient >= 0;
    wrap->taken |= taken;
    if (b->gradient >= 0)
        x->list[b->gradient].taken = taken;
    wrap->group = taken ? (int32_t)(b - x->groups) : -1;
}

int64_t hosted_choose(struct transfer *x, double bytes, int64_t room)
{
    double some = 0;
    x->hosted = x->hosted_bytes = 0;
    x->hosted_seconds = 0;
    for (int32_t i = 0; i < x->n_groups; i++)
        set_resident(x, &x->groups[i], false);
    for (int32_t i = 0; i < x->n_groups && some < bytes && x->b->host > 0; i++) {
        struct update_group *b = &x->groups[x->group_order[i].item];
        int64_t takes = b->takes + (x->hosted ? 0 : x->g->storages[x->clip].bytes);
        if (takes > room)
            break;
        room -= takes;
        some += (double)b->state;
        set_resident(x, b, true);
        x->hosted++;
        x->hosted_bytes += b->state;
        x->hosted_seconds += x->g->ops[x->p->steps[b->step].op].seconds;
    }
    return room;
}

void hosted_rewrite(const struct transfer *x, struct plan *p)
{
    int32_t first = INT32_MAX, last = -1, here = 0;
    for (int32_t i = 0; i < x->n_groups; i++)
        if (x->groups[i].taken) {
            p->steps[x->groups[i].step].on_host = true;
            first = (int32_t)min_i64(first, x->groups[i].step);
            last = (int32_t)max_i64(last, x->groups[i].step);
        }
    if (last < 0)
        return;
    while (p->residences[here].storage != x->clip || p->residences[here].first > x->clip_step ||
           p->residences[here].last < x->clip_step)
        here++;
    int32_t until = (int32_t)min_i64(first, p->residences[here].last + 1);
    int32_t below = plan_add_residence(
        p, (struct residence){x->clip, TIER_HOST, x->clip_step, last, x->clip_offset});
    p->copies[p->n_copies++] =
        (struct copy){here, below, x->clip_step, until, x->clip_start, x->clip_end};
}
