/* The gaps of a plan and their fates, and its bytes by purpose. */
#include <stdlib.h>
#include "plan/plan.h"

/* Where the walk over the steps stands, per storage. */
struct walk {
    int32_t *used; /* the last step that used it, or -1 */
    int32_t *ends; /* the last step of the instance of that use */
    struct {
        struct gap *data;
        int64_t capacity;
    } gaps;
    int32_t n;
};

/* The park that begins after step from, or NULL. */
static const struct plan_park *park_after(const struct plan *p, int32_t s, int32_t from)
{
    for (int32_t i = 0; i < p->n_parks; i++)
        if (p->parks[i].storage == s && p->parks[i].out_step == from)
            return &p->parks[i];
    return NULL;
}

static enum fate fate_of(const struct walk *w, const struct graph *g, const struct plan *p,
                         int32_t s, int32_t to)
{
    const struct plan_park *park = park_after(p, s, w->used[s]);
    if (park)
        return park->tier;
    return g->storages[s].persistent || w->ends[s] >= to ? FATE_STAY : FATE_DROP;
}

static int walk_use(struct walk *w, const struct graph *g, const struct plan *p, int32_t s,
                    int32_t step)
{
    if (w->used[s] >= 0 && w->used[s] < step) {
        enum fate fate = fate_of(w, g, p, s, step);
        if (ARRAY_RESERVE(&w->gaps, w->n))
            return CKPT_ENOMEM;
        w->gaps.data[w->n++] = (struct gap){s, w->used[s], step, fate};
    }
    w->used[s] = step;
    return 0;
}

static int walk_steps(struct walk *w, const struct graph *g, const struct plan *p)
{
    int rc = 0;
    for (int32_t k = 0, n = 0; k < p->n_steps && !rc; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        bool here = !p->steps[k].on_host; /* else it uses bytes in the host tier */
        for (int32_t j = 0; j < o->n_reads && here && !rc; j++)
            rc = walk_use(w, g, p, g->refs[o->reads + j], k);
        for (int32_t j = 0; j < o->n_writes && here && !rc; j++)
            rc = walk_use(w, g, p, g->refs[o->writes + j], k);
        for (; n < p->n_instances && p->instances[n].first == k; n++)
            if (p->instances[n].storage >= 0)
                w->ends[p->instances[n].storage] = p->instances[n].last;
    }
    /* Gaps that wrap round to the next step. */
    for (int32_t i = 0; i < p->n_parks && !rc; i++) {
        const struct plan_park *k = &p->parks[i];
        if (k->use_step > k->out_step)
            continue;
        rc = ARRAY_RESERVE(&w->gaps, w->n);
        if (!rc)
            w->gaps.data[w->n++] =
                (struct gap){k->storage, k->out_step, k->use_step + p->n_steps, k->tier};
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

int plan_gaps(const struct graph *g, const struct plan *p, struct gap **gaps, int32_t *n)
{
    struct walk w = {.used = NULL};
    size_t count = (size_t)g->n_storages + 1;
    *gaps = NULL;
    *n = 0;
    w.used = malloc(count * sizeof(*w.used));
    w.ends = malloc(count * sizeof(*w.ends));
    int rc = w.used && w.ends ? 0 : CKPT_ENOMEM;
    if (!rc) {
        for (size_t s = 0; s < count; s++)
            w.used[s] = w.ends[s] = -1;
        rc = ARRAY_RESERVE(&w.gaps, 0);
    }
    if (!rc)
        rc = walk_steps(&w, g, p);
    free(w.used);
    free(w.ends);
    if (rc) {
        free(w.gaps.data);
        return rc;
    }
    qsort(w.gaps.data, (size_t)w.n, sizeof(*w.gaps.data), compare_gaps);
    *gaps = w.gaps.data;
    *n = w.n;
    return 0;
}

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

/* The first step that is not the forward pass's own, and the last one that is. */
static void count_steps(const struct graph *g, const struct plan *p, struct plan_summary *s,
                        int32_t *turn)
{
    *turn = p->n_steps;
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct graph_op *o = &g->ops[p->steps[k].op];
        s->recomputed_ops += p->steps[k].again;
        s->workspace = max_i64(s->workspace, o->workspace);
        if (*turn == p->n_steps && (p->steps[k].again || o->phase != GRAPH_FORWARD))
            *turn = k;
    }
}

/* Activations go out in every micro-step. */
static void count_written(const struct graph *g, const struct plan *p, struct plan_summary *s)
{
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *k = &p->parks[i];
        int64_t times = k->out_step < p->n_body ? g->n_micro : 1;
        if (k->tier == FATE_PARK_NVME && !k->clean)
            s->nvme_written += times * round_up(g->storages[k->storage].bytes, PLAN_NVME_ALIGN);
    }
}

/* A storage parks round the end of the step once. */
static void count_optimizer(const struct graph *g, const struct plan *p, struct plan_summary *s)
{
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct graph_storage *t = &g->storages[p->parks[i].storage];
        bool wraps = p->parks[i].use_step <= p->parks[i].out_step;
        s->streamed += t->kind == KIND_OPTIMIZER && wraps ? t->bytes : 0;
    }
    for (int32_t i = 0; i < p->n_lodgings; i++) {
        const struct graph_storage *t = &g->storages[p->lodgings[i].storage];
        s->hosted += t->kind == KIND_OPTIMIZER ? t->bytes : 0;
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
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        if (t->storage < 0)
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
