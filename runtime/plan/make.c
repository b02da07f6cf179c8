/* The fastest schedule of the portfolio that fits, or the sentence that says why none does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search.h"

#define GIB (INT64_C(1) << 30)

void plan_free(struct plan *p)
{
    if (!p)
        return;
    free(p->steps);
    free(p->instances);
    free(p->parks);
    free(p);
}

int compare_instances(const void *a, const void *b)
{
    const struct plan_instance *x = a, *y = b;
    if (x->first != y->first)
        return x->first < y->first ? -1 : 1;
    return (x->storage > y->storage) - (x->storage < y->storage);
}

int64_t instance_bytes(const struct graph *g, const struct plan *p, const struct plan_instance *i)
{
    if (i->storage >= 0)
        return g->storages[i->storage].bytes;
    return g->ops[p->steps[i->first].op].workspace;
}

/* Copies a schedule, with an instance for every workspace. */
static int copy_schedule(const struct graph *g, const struct schedule *s, struct plan *p)
{
    p->steps = malloc(((size_t)s->n_steps + 1) * sizeof(*p->steps));
    p->instances = malloc(((size_t)s->n_instances + s->n_steps + 1) * sizeof(*p->instances));
    if (!p->steps || !p->instances)
        return CKPT_ENOMEM;
    p->n_steps = s->n_steps;
    p->n_body = s->n_body;
    p->n_instances = s->n_instances;
    for (int32_t k = 0; k < s->n_steps; k++)
        p->steps[k] = s->steps.data[k];
    for (int32_t i = 0; i < s->n_instances; i++)
        p->instances[i] = s->instances.data[i];
    for (int32_t k = 0; k < s->n_steps; k++)
        if (g->ops[s->steps.data[k].op].workspace > 0)
            p->instances[p->n_instances++] = (struct plan_instance){-1 - k, k, k, 0};
    qsort(p->instances, (size_t)p->n_instances, sizeof(*p->instances), compare_instances);
    return 0;
}

static int place_plan(const struct graph *g, struct plan *p)
{
    struct place_item *items = malloc(((size_t)p->n_instances + 1) * sizeof(*items));
    if (!items)
        return CKPT_ENOMEM;
    for (int32_t i = 0; i < p->n_instances; i++) {
        const struct plan_instance *t = &p->instances[i];
        items[i] = (struct place_item){t->first, t->last, instance_bytes(g, p, t), 0};
    }
    int rc = place_items(items, p->n_instances, p->load, &p->transient);
    for (int32_t i = 0; i < p->n_instances; i++)
        p->instances[i].offset = items[i].offset;
    free(items);
    return rc;
}

int option_steps(struct portfolio *pf, const struct option *o, struct plan **out)
{
    const struct graph *g = pf->p->g;
    const struct schedule *s;
    struct plan *p = calloc(1, sizeof(*p));
    int rc = p ? simulate(pf->sim, o->hold, &s) : CKPT_ENOMEM;
    if (!rc)
        rc = copy_schedule(g, s, p);
    if (rc) {
        plan_free(p);
        return rc;
    }
    p->signature = graph_signature(g);
    p->persistent = pf->p->persistent;
    p->load = s->load;
    p->peak_step = s->peak_step;
    p->recompute_seconds = s->recompute_seconds;
    p->seconds = pf->p->seconds + s->recompute_seconds;
    *out = p;
    return 0;
}

/* Finds out what an option takes with addresses. */
static int settle(struct portfolio *pf, struct option *o)
{
    if (o->plan)
        return 0;
    struct plan *p;
    int rc = option_steps(pf, o, &p);
    if (rc)
        return rc;
    rc = place_plan(pf->p->g, p);
    if (rc) {
        plan_free(p);
        return rc;
    }
    o->plan = p;
    o->placed = p->transient;
    return 0;
}

static void *copy_of(const void *data, int64_t n, size_t element)
{
    void *copy = malloc(((size_t)n + 1) * element);
    if (copy)
        memcpy(copy, data, (size_t)n * element);
    return copy;
}

int option_plan(struct portfolio *pf, struct option *o, struct plan **out)
{
    int rc = settle(pf, o);
    if (rc)
        return rc;
    struct plan *p = copy_of(o->plan, 1, sizeof(*p));
    if (!p)
        return CKPT_ENOMEM;
    p->steps = copy_of(p->steps, p->n_steps, sizeof(*p->steps));
    p->instances = copy_of(p->instances, p->n_instances, sizeof(*p->instances));
    if (!p->steps || !p->instances) {
        plan_free(p);
        return CKPT_ENOMEM;
    }
    *out = p;
    return 0;
}

/* The option that takes least among those faster than seconds. */
static int smallest_faster(struct portfolio *pf, double seconds, struct option **best)
{
    *best = NULL;
    for (int32_t i = 0; i < pf->n; i++) {
        struct option *o = &pf->options.data[i];
        if (*best && o->load > (*best)->placed)
            break;
        if (o->seconds >= seconds)
            continue;
        int rc = settle(pf, o);
        if (rc)
            return rc;
        if (!*best || o->placed <= (*best)->placed)
            *best = o;
    }
    return 0;
}

/* The fastest option that fits. */
static int fastest_within(struct portfolio *pf, int64_t bytes, struct option **best)
{
    *best = NULL;
    for (int32_t i = pf->n - 1; i >= 0 && !*best; i--) {
        struct option *o = &pf->options.data[i];
        if (o->load > bytes)
            continue;
        int rc = settle(pf, o);
        if (rc)
            return rc;
        if (o->placed <= bytes)
            *best = o;
    }
    return 0;
}

static double recompute_percent(const struct portfolio *pf, const struct option *o)
{
    return o->seconds > 0 ? 100 * (o->seconds - pf->p->seconds) / o->seconds : 0;
}

/* What was asked for, and what else takes of it. */
struct request {
    const struct machine *m;
    struct budgets budgets;
    int64_t reserved, fixed; /* fixed: persistent and reserved bytes */
    struct option *smallest;
};

/* The smallest size that ends in a letter and is not below bytes, as the command line takes it. */
static const char *option_size(int64_t bytes, char *text, size_t size)
{
    int64_t unit = bytes < GIB ? 1 << 10 : 1 << 20;
    snprintf(text, size, "%lld%c", (long long)(round_up(bytes, unit) / unit),
             bytes < GIB ? 'K' : 'M');
    return text;
}

static int refuse(struct portfolio *pf, const struct request *q, int32_t peak_op, char *message)
{
    const struct graph *g = pf->p->g;
    int64_t least = q->fixed + q->smallest->placed;
    struct option *more, *all;
    char size[32];
    int rc = fastest_within(pf, q->smallest->placed + GIB, &more);
    if (!rc)
        rc = smallest_faster(pf, pf->options.data[pf->n - 1].seconds * (1 + 1e-12), &all);
    if (rc)
        return rc;
    int n = snprintf(message, CKPT_MESSAGE,
                     "no plan fits %s (%lld bytes): this program needs at least %lld bytes (%s), "
                     "--vram %s, %lld of them for parameters and the like; the peak is reached "
                     "in %.200s; a step then takes %.4g s, %.0f %% of it recompute",
                     human_bytes(q->budgets.device), (long long)q->budgets.device, (long long)least,
                     human_bytes(least), option_size(least, size, sizeof(size)),
                     (long long)q->fixed, peak_op >= 0 ? g->ops[peak_op].name : "no op",
                     q->smallest->seconds, recompute_percent(pf, q->smallest));
    if (more != q->smallest && n > 0 && n < CKPT_MESSAGE)
        n += snprintf(message + n, (size_t)(CKPT_MESSAGE - n),
                      "; with 1 GiB more it takes %.4g s (%.0f %%)", more->seconds,
                      recompute_percent(pf, more));
    if (all != q->smallest && n > 0 && n < CKPT_MESSAGE)
        snprintf(message + n, (size_t)(CKPT_MESSAGE - n),
                 "; the fastest plan needs %lld bytes (%s) and takes %.4g s",
                 (long long)(q->fixed + all->placed), human_bytes(q->fixed + all->placed),
                 all->seconds);
    return CKPT_EBUDGET;
}

/* The op at the peak of an option. */
static int peak_op_of(struct portfolio *pf, const struct option *o, int32_t *op)
{
    const struct schedule *s;
    int rc = simulate(pf->sim, o->hold, &s);
    if (!rc)
        *op = s->n_steps > 0 ? s->steps.data[s->peak_step].op : -1;
    return rc;
}

/* Bytes that can be out by the time of the peak: what the link carries while the forward pass and
 * the update run. */
static double reach(const struct portfolio *pf, const struct request *q)
{
    const struct graph *g = pf->p->g;
    double seconds = 0;
    for (int32_t i = 0; i < g->n_ops; i++)
        if (g->ops[i].phase != GRAPH_BACKWARD)
            seconds += g->ops[i].seconds;
    return 1.25 * seconds * q->m->d2h_both;
}

/* With tiers to park in, the fastest option that fits so and is faster than o, which may be NULL.
 */
static int choose_parked(struct portfolio *pf, const struct request *q, const struct option *o,
                         struct plan **out)
{
    int32_t least = o ? (int32_t)(o - pf->options.data) + 1 : 0;
    int64_t device = q->budgets.device - q->reserved;
    double most = (double)device + reach(pf, q);
    int rc = 0;
    for (int32_t i = pf->n - 1; i >= least && !rc && !*out; i--) {
        const struct option *a = &pf->options.data[i];
        if ((double)(a->load + pf->p->persistent) <= most)
            rc = option_parked(pf, a, q->m, &q->budgets, device, out);
    }
    return rc;
}

static int choose(struct portfolio *pf, const struct request *q, struct plan **out, char *message)
{
    struct option *o, *next;
    int32_t peak_op = -1;
    struct budgets transient = q->budgets;
    transient.device -= q->fixed;
    int rc = peak_op_of(pf, q->smallest, &peak_op);
    if (!rc)
        rc = fastest_within(pf, transient.device, &o);
    if (!rc && q->budgets.host + q->budgets.nvme > 0)
        rc = choose_parked(pf, q, o, out);
    if (!rc && !*out && !o)
        return refuse(pf, q, peak_op, message);
    if (!rc && !*out)
        rc = option_plan(pf, o, out);
    if (!rc)
        rc = smallest_faster(pf, (*out)->seconds, &next);
    if (!rc)
        rc = bound_seconds(pf, q->m, &transient, &(*out)->bound_seconds);
    if (rc)
        return rc;
    (*out)->budgets = q->budgets;
    (*out)->min_budget = min_i64(q->fixed + q->smallest->placed,
                                 q->reserved + (*out)->persistent + (*out)->transient);
    (*out)->min_peak_op = peak_op;
    (*out)->next_budget = next ? q->fixed + next->placed : 0;
    (*out)->next_seconds = next ? next->seconds : 0;
    return 0;
}

int portfolio_plan(struct portfolio *pf, const struct machine *m, const struct budgets *b,
                   int64_t reserved, struct plan **p, char message[CKPT_MESSAGE])
{
    struct request q = {
        .m = m, .budgets = *b, .reserved = reserved, .fixed = pf->p->persistent + reserved};
    *p = NULL;
    message[0] = '\0';
    int rc = smallest_faster(pf, INFINITY, &q.smallest);
    if (!rc)
        rc = choose(pf, &q, p, message);
    if (rc == CKPT_ENOMEM)
        snprintf(message, CKPT_MESSAGE, "planning ran out of host memory");
    return rc;
}

int plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
              int64_t reserved, struct plan **p, char message[CKPT_MESSAGE])
{
    struct portfolio *pf;
    *p = NULL;
    snprintf(message, CKPT_MESSAGE, "planning ran out of host memory");
    int rc = portfolio_build(g, &pf);
    if (rc)
        return rc;
    rc = portfolio_plan(pf, m, b, reserved, p, message);
    portfolio_free(pf);
    return rc;
}

int plan_sweep(const struct graph *g, const struct machine *m, const struct budgets *b,
               const int64_t *device, int32_t n, struct plan **plans)
{
    struct portfolio *pf;
    char message[CKPT_MESSAGE];
    for (int32_t i = 0; i < n; i++)
        plans[i] = NULL;
    int rc = portfolio_build(g, &pf);
    if (rc)
        return rc;
    for (int32_t i = 0; i < n && !rc; i++) {
        struct budgets here = *b;
        here.device = device[i];
        rc = portfolio_plan(pf, m, &here, 0, &plans[i], message);
        rc = rc == CKPT_EBUDGET ? 0 : rc;
    }
    portfolio_free(pf);
    return rc;
}
