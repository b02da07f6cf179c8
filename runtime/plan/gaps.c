/* SPDX-License-Identifier: Apache-2.0 */
/* The gaps of a plan and their fates, and its bytes by purpose. */
#include <stdlib.h>
#include "plan/plan_record.h"
#include "plan/pool.h"

/* ---- offloads -------------------------------------------------------------------------------- */

int32_t plan_count_offloads(const struct graph *g, const struct plan *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_copies; i++)
        n += plan_is_placed(g, p, &p->residences[p->copies[i].to]);
    return n;
}

/* Finds for every device residence the previous one of its storage, cyclically; and its copy out.
 */
static void find_neighbours(const struct plan *p, int32_t *last, int32_t *before,
                            const struct copy **out)
{
    for (int round = 0; round < 2; round++)
        for (int32_t i = 0; i < p->n_residences; i++) {
            int32_t s = p->residences[i].storage;
            if (s < 0 || p->residences[i].tier != TIER_DEVICE)
                continue;
            before[i] = last[s];
            last[s] = i;
        }
    for (int32_t i = 0; i < p->n_copies; i++)
        if (copy_is_out(p->residences, &p->copies[i]))
            out[p->copies[i].from] = &p->copies[i];
}

static struct offload offload_of(const struct plan *p, const struct copy *in, int32_t before,
                                 const struct copy *out)
{
    const struct residence *from = &p->residences[before], *to = &p->residences[in->to];
    int32_t gone = from->last % p->n_steps;
    return (struct offload){.storage = to->storage,
                            .tier = p->residences[in->from].tier,
                            .out_step = out ? out->after : gone,
                            .free_step = gone,
                            .in_step = to->first,
                            .use_step = in->before,
                            .tier_offset = p->residences[in->from].offset,
                            .out = out,
                            .in = in};
}

int plan_offloads(const struct graph *g, const struct plan *p, struct offload **list, int32_t *n)
{
    struct pool m = {NULL, false};
    struct offload *all = malloc(((size_t)p->n_copies + 1) * sizeof(*all));
    int32_t *last = pool_filled(&m, g->n_storages, -1);
    int32_t *before = pool_filled(&m, p->n_residences, 0);
    const struct copy **out = pool_array(&m, p->n_residences, sizeof(*out));
    bool good = all && !m.failed;
    *n = 0;
    if (good)
        find_neighbours(p, last, before, out);
    for (int32_t i = 0; i < p->n_copies && good; i++) {
        const struct copy *c = &p->copies[i];
        if (plan_is_placed(g, p, &p->residences[c->to]))
            all[(*n)++] = offload_of(p, c, before[c->to], out[before[c->to]]);
    }
    pool_free(&m);
    if (!good)
        free(all);
    *list = good ? all : NULL;
    return good ? 0 : CKPT_ENOMEM;
}

/* ---- gaps ------------------------------------------------------------------------------------ */

/* The state of the scan over the steps; arrays are per storage unless noted. */
struct scan {
    int32_t *used; /* the last step that used it, or -1 */
    int32_t *ends; /* the last step of its residence at that use */
    int32_t *away; /* the last offload of it, or -1 */
    int32_t *next; /* per offload: another one of its storage, or -1 */
    struct offload *offloads;
    int32_t n_offloads;
    LIST(struct gap) gaps;
    int32_t n;
    struct pool memory;
};

static enum fate fate_below(const struct offload *o)
{
    return o->tier == TIER_NVME ? FATE_OFFLOAD_NVME : FATE_OFFLOAD_HOST;
}

static enum fate fate_of(const struct scan *w, const struct graph *g, int32_t s, int32_t to)
{
    for (int32_t i = w->away[s]; i >= 0; i = w->next[i])
        if (w->offloads[i].use_step == to)
            return fate_below(&w->offloads[i]);
    return g->storages[s].persistent || w->ends[s] >= to ? FATE_KEEP : FATE_DROP;
}

static int add_gap(struct scan *w, struct gap gap)
{
    if (ARRAY_RESERVE(&w->gaps, w->n))
        return CKPT_ENOMEM;
    w->gaps.data[w->n++] = gap;
    return 0;
}

static int scan_use(struct scan *w, const struct graph *g, int32_t s, int32_t step)
{
    int rc = 0;
    if (w->used[s] >= 0 && w->used[s] < step)
        rc = add_gap(w, (struct gap){s, w->used[s], step, fate_of(w, g, s, step)});
    w->used[s] = step;
    return rc;
}

/* The uses of step k on the device, at step `at`. */
static int scan_step(struct scan *w, const struct graph *g, const struct plan *p, int32_t k,
                     int32_t at)
{
    const struct graph_op *o = &g->ops[p->steps[k].op];
    int rc = 0;
    for (int32_t j = 0; j < o->n_reads + o->n_writes && !rc; j++)
        rc = scan_use(w, g, graph_ref(g, o, j), at);
    return rc;
}

static int scan_steps(struct scan *w, const struct graph *g, const struct plan *p)
{
    int32_t deferred = plan_find_deferred(p, p->n_body);
    int rc = 0;
    for (int32_t k = 0, n = 0; k < p->n_steps && !rc; k++) {
        for (; k < p->n_body && deferred < p->n_steps && p->steps[deferred].before == k && !rc;
             deferred = plan_find_deferred(p, deferred + 1))
            rc = scan_step(w, g, p, deferred, k);
        bool here = p->steps[k].by != BY_HOST; /* a step on the host uses bytes in the host tier */
        if (here && !p->steps[k].before && !rc)
            rc = scan_step(w, g, p, k, k);
        for (; n < p->n_residences && p->residences[n].tier == TIER_DEVICE &&
               p->residences[n].first == k;
             n++)
            if (p->residences[n].storage >= 0)
                w->ends[p->residences[n].storage] = p->residences[n].last;
    }
    /* Gaps that wrap into the next step. */
    for (int32_t i = 0; i < w->n_offloads && !rc; i++) {
        const struct offload *o = &w->offloads[i];
        if (o->use_step <= o->out_step)
            rc = add_gap(
                w, (struct gap){o->storage, o->out_step, o->use_step + p->n_steps, fate_below(o)});
    }
    return rc;
}

static int compare_gaps(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;
    if (x->storage != y->storage)
        return x->storage < y->storage ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

static int scan_start(struct scan *w, const struct graph *g, const struct plan *p)
{
    w->used = pool_filled(&w->memory, g->n_storages, -1);
    w->ends = pool_filled(&w->memory, g->n_storages, -1);
    w->away = pool_filled(&w->memory, g->n_storages, -1);
    w->next = pool_filled(&w->memory, p->n_copies, -1);
    if (w->memory.failed || plan_offloads(g, p, &w->offloads, &w->n_offloads))
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < w->n_offloads; i++) {
        w->next[i] = w->away[w->offloads[i].storage];
        w->away[w->offloads[i].storage] = i;
    }
    return ARRAY_RESERVE(&w->gaps, 0) ? CKPT_ENOMEM : 0;
}

int plan_gaps(const struct graph *g, const struct plan *p, struct gap **gaps, int32_t *n)
{
    struct scan w = {.used = NULL};
    *gaps = NULL;
    *n = 0;
    int rc = scan_start(&w, g, p);
    if (!rc)
        rc = scan_steps(&w, g, p);
    pool_free(&w.memory);
    free(w.offloads);
    if (rc) {
        free(w.gaps.data);
        return rc;
    }
    qsort(w.gaps.data, (size_t)w.n, sizeof(*w.gaps.data), compare_gaps);
    *gaps = w.gaps.data;
    *n = w.n;
    return 0;
}

/* ---- bytes by purpose ------------------------------------------------------------------------ */

static void count_storages(const struct graph *g, struct plan_summary *s)
{
    for (int32_t i = 0; i < g->n_storages; i++) {
        const struct graph_storage *t = &g->storages[i];
        if (t->kind == KIND_PARAMETER)
            s->parameters += t->bytes;
        else if (t->kind == KIND_OPTIMIZER)
            s->optimizer += t->bytes;
        else if (t->kind == KIND_GRADIENT)
            s->gradients += t->bytes;
    }
}

/* *turn: one past the last forward step that is no recomputation. */
static void count_steps(const struct graph *g, const struct plan *p, struct plan_summary *s,
                        int32_t *turn)
{
    *turn = 0;
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        s->recomputed_ops += p->steps[k].again;
        s->workspace = max_i64(s->workspace, o->workspace);
        if (!p->steps[k].again && o->phase == GRAPH_FORWARD)
            *turn = k + 1;
    }
}

/* Activations are copied out in every micro-step. */
static void count_written(const struct graph *g, const struct plan *p, struct plan_summary *s)
{
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        const struct residence *to = &p->residences[c->to];
        int64_t times = c->after < p->n_body ? g->n_micro : 1;
        if (to->tier == TIER_NVME)
            s->nvme_written += times * round_up(g->storages[to->storage].bytes, PLAN_NVME_ALIGN);
    }
}

/* State in a lower tier is either copied to the device for its update, and back unless the host
 * repeats that, or updated on the host. */
static void count_optimizer(const struct graph *g, const struct plan *p, struct plan_summary *s)
{
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct residence *to = &p->residences[p->copies[i].to];
        const struct graph_storage *t = &g->storages[to->storage];
        s->streamed += t->kind == KIND_OPTIMIZER && to->tier != TIER_DEVICE ? t->bytes : 0;
    }
    for (int32_t k = p->n_body; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        int64_t state = 0;
        for (int32_t j = 0; j < o->n_writes; j++) {
            const struct graph_storage *t = &g->storages[g->refs[o->writes + j]];
            state += t->kind == KIND_OPTIMIZER ? t->bytes : 0;
        }
        s->hosted += p->steps[k].by == BY_HOST ? state : 0;
        s->repeated += p->steps[k].by == BY_BOTH ? state : 0;
        s->deferred += p->steps[k].before ? state : 0;
    }
}

void plan_summarize(const struct graph *g, const struct plan *p, struct plan_summary *s)
{
    int32_t turn;
    *s = (struct plan_summary){0};
    count_storages(g, s);
    count_steps(g, p, s, &turn);
    count_written(g, p, s);
    count_optimizer(g, p, s);
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *t = &p->residences[i];
        if (t->storage < 0 || t->tier != TIER_DEVICE)
            continue;
        enum graph_kind kind = g->storages[t->storage].kind;
        if (kind != KIND_INPUT && kind != KIND_ACTIVATION)
            continue;
        if (t->first < turn && t->last >= turn)
            s->kept += g->storages[t->storage].bytes;
        else if (t->first >= turn && p->steps[t->first].again)
            s->recomputed += g->storages[t->storage].bytes;
    }
}
