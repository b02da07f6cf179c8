/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to budgets: the fastest plan that fits, or a message that says why none does.  Without
 * lower tiers the plans are the options of the frontier with addresses; with them, also the points
 * of the lattice.  Both sets depend on graph and machine alone, and a larger budget of any tier
 * allows more of them.  So it is never slower, and never refused if a smaller one is not.
 *
 * A step that fits with everything kept needs no search: no plan is faster (frontier_first).  The
 * smallest budget and the next faster plan, which need the search, are then not set.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "plan/search/comm_cost.h"
#include "plan/lattice.h"
#include "plan/watch.h"

/* Stop after this many consecutive options whose placed peak does not improve.  In a program of
 * more than MANY_OPS ops stop after one, since its placement takes 0.3 s. */
#define STUBBORN 2
/* In a program of at most SMALL ops the addresses of the option of least load are searched for with
 * LONG more work: up to 40 ms.  It may be the smallest budget. */
#define SMALL 256
#define LONG  6000000

void plan_free(struct plan *p)
{
    if (!p)
        return;
    free(p->steps);
    free(p->residences);
    free(p->copies);
    algorithms_free(&p->algorithms);
    free(p);
}

/* Copies a schedule, with a residence for every workspace. */
static int copy_schedule(const struct graph *g, const struct schedule *s, struct plan *p)
{
    p->steps = malloc(((size_t)s->n_steps + 1) * sizeof(*p->steps));
    if (!p->steps || plan_reserve(p, (int64_t)s->n_residences + s->n_steps, 0))
        return CKPT_ENOMEM;
    p->n_steps = s->n_steps;
    p->n_body = s->n_body;
    for (int32_t k = 0; k < s->n_steps; k++)
        p->steps[k] = s->steps.data[k];
    for (int32_t i = 0; i < s->n_residences; i++)
        plan_add_residence(p, s->residences.data[i]);
    for (int32_t k = 0; k < s->n_steps; k++)
        if (g->ops[s->steps.data[k].op].workspace > 0)
            plan_add_residence(p, (struct residence){-1 - k, TIER_DEVICE, k, k, 0});
    return plan_sort(p);
}

int option_steps(struct frontier *f, const struct option *o, struct plan **out)
{
    const struct graph *g = f->p->g;
    const struct schedule *s;
    struct plan *p = calloc(1, sizeof(*p));
    int rc = p ? simulate(f->sim, o->retention, &s) : CKPT_ENOMEM;
    if (!rc)
        rc = schedule_complete(f->sim);
    if (!rc)
        rc = copy_schedule(g, s, p);
    if (rc) {
        plan_free(p);
        return rc;
    }
    p->signature = f->p->signature;
    p->persistent = f->p->persistent;
    p->load = s->load;
    p->peak_step = s->peak_step;
    p->seconds = schedule_seconds(f->p, s->ticks);
    p->recompute_seconds = p->seconds - f->p->seconds;
    rc = comm_overlap(g, o->lead, p);
    if (rc)
        plan_free(p);
    else
        *out = p;
    return rc;
}

/* Places an option: sets its plan. */
static int place_option(struct frontier *f, struct option *o)
{
    if (o->plan)
        return 0;
    struct plan *p;
    int rc = option_steps(f, o, &p);
    if (rc)
        return rc;
    rc = plan_set_offsets(f->p->g, p, p->load, INT64_MAX, false);
    if (rc)
        plan_free(p);
    else
        o->plan = p;
    return rc;
}

static void *copy_of(const void *data, int64_t n, size_t element)
{
    void *copy = malloc(((size_t)n + 1) * element);
    if (copy && n) /* data may be NULL if n is 0 */
        memcpy(copy, data, (size_t)n * element);
    return copy;
}

int plan_copy(const struct plan *from, struct plan **out)
{
    struct plan *p = copy_of(from, 1, sizeof(*p));
    *out = NULL;
    if (!p)
        return CKPT_ENOMEM;
    p->steps = copy_of(p->steps, p->n_steps, sizeof(*p->steps));
    p->residences = copy_of(p->residences, p->n_residences, sizeof(*p->residences));
    p->copies = copy_of(p->copies, p->n_copies, sizeof(*p->copies));
    p->algorithms = (struct algorithms){0};
    if (!p->steps || !p->residences || !p->copies) {
        plan_free(p);
        return CKPT_ENOMEM;
    }
    *out = p;
    return 0;
}

/* An option with addresses, as a plan without budgets. */
static int option_plan(struct frontier *f, struct option *o, struct plan **out)
{
    int rc = place_option(f, o);
    return rc ? rc : plan_copy(o->plan, out);
}

int smallest_faster(struct frontier *f, double seconds, struct option **best)
{
    int32_t failed = 0, most = f->p->g->n_ops > MANY_OPS ? 1 : STUBBORN;
    *best = NULL;
    for (int32_t i = 0; i < f->n && failed < most; i++) {
        struct option *o = &f->options.data[i];
        if (*best && o->load > (*best)->plan->transient)
            break;
        if (o->seconds >= seconds)
            continue;
        int rc = place_option(f, o);
        if (rc)
            return rc;
        bool less = !*best || o->plan->transient <= (*best)->plan->transient;
        *best = less ? o : *best;
        failed = less ? 0 : failed + 1;
    }
    return 0;
}

/* The fastest option that fits, or NULL. */
static int fastest_within(struct frontier *f, int64_t bytes, struct option **best)
{
    *best = NULL;
    for (int32_t i = f->n - 1; i >= 0 && !*best; i--) {
        struct option *o = &f->options.data[i];
        if (o->load > bytes)
            continue;
        int rc = place_option(f, o);
        if (rc)
            return rc;
        if (o->plan->transient <= bytes)
            *best = o;
    }
    return 0;
}

/* Searches longer for addresses of the option of least load; *least becomes that option if its peak
 * is then smaller. */
static int tighten_first(struct frontier *f, struct option **least)
{
    struct option *o = &f->options.data[0];
    if (f->p->g->n_ops > SMALL || o->load >= (*least)->plan->transient)
        return 0;
    int rc = place_option(f, o);
    if (!rc)
        rc = plan_tighten(f->p->g, o->plan, o->load, LONG);
    *least = !rc && o->plan->transient < (*least)->plan->transient ? o : *least;
    return rc;
}

/* The option with the smallest placed peak; among equals the one that that budget would choose. */
static int find_smallest(struct frontier *f, struct option **smallest)
{
    struct option *chosen, *least = f->smallest;
    int rc = least ? 0 : smallest_faster(f, INFINITY, &least);
    if (!rc && !f->smallest)
        rc = tighten_first(f, &least);
    while (!rc && !f->smallest) {
        rc = fastest_within(f, least->plan->transient, &chosen);
        if (rc || chosen->plan->transient == least->plan->transient)
            break;
        least = chosen;
    }
    *smallest = f->smallest = rc ? NULL : least;
    return rc;
}

/* Whether another program keeps a storage of this one in a tier. */
static bool has_backings(const struct graph *g)
{
    for (int32_t s = 0; s < g->n_storages; s++)
        if (graph_backing(&g->storages[s]) != TIER_DEVICE)
            return true;
    return false;
}

static int open_request(struct frontier *f, const struct machine *m, const struct budgets *b,
                        int64_t reserved, struct request *q)
{
    const struct graph *g = f->p->g;
    *q = (struct request){
        machine_for_rank(m, graph_ranks(g)), *b, reserved, has_backings(g), NULL, NULL};
    return lattice_open(f, &q->m, reserved, b, &q->lattice);
}

static bool has_tiers(const struct request *q, const struct budgets *b)
{
    return q->backings || b->host + b->nvme > 0;
}

static int64_t plan_bytes(const struct request *q, const struct plan *p)
{
    return q->reserved + p->persistent + p->transient;
}

int answer_within(struct frontier *f, const struct request *q, const struct budgets *b,
                  struct answer *a)
{
    int64_t transient = b->device - q->reserved - f->p->persistent;
    *a = (struct answer){NULL, NULL};
    int rc = 0;
    if (!q->backings && transient >= q->smallest->plan->transient)
        rc = fastest_within(f, transient, &a->option);
    if (!rc && has_tiers(q, b))
        rc = lattice_fastest(q->lattice, b, a->option ? a->option->seconds : INFINITY,
                             &a->offloaded);
    return rc;
}

int smallest_device(struct frontier *f, const struct request *q, const struct budgets *b,
                    struct smallest *s)
{
    const struct plan *offloaded = NULL;
    int64_t bytes = INT64_MAX;
    int rc = place_option(f, q->smallest);
    *s = (struct smallest){INT64_MAX, NULL};
    if (!rc && has_tiers(q, b))
        rc = lattice_smallest(q->lattice, b, &bytes, &offloaded);
    if (rc)
        return rc;
    if (!q->backings)
        *s = (struct smallest){plan_bytes(q, q->smallest->plan), q->smallest->plan};
    if (offloaded && bytes < s->bytes)
        *s = (struct smallest){bytes, offloaded};
    return 0;
}

static void set_budgets(struct plan *p, const struct budgets *b)
{
    p->budgets = *b;
    p->staging_bytes = plan_stages(p) ? plan_staging(b->host) : 0;
}

/* Sets the other numbers of the plan table: smallest budget, next faster budget, bound. */
static int set_outlook(struct frontier *f, const struct request *q, struct plan *p)
{
    struct option *next;
    struct smallest least;
    int rc = smallest_device(f, q, &q->budgets, &least);
    if (!rc)
        rc = smallest_faster(f, p->seconds, &next);
    if (rc)
        return rc;
    set_budgets(p, &q->budgets);
    /* By chance the last address of a plan ends below the smallest budget, which belongs to another
     * plan (by up to 1.7 %, bench_plan audit).  Its arena is that large nevertheless: a plan takes
     * the peak that it prints, and no smaller budget holds it. */
    p->transient = max_i64(p->transient, least.bytes - q->reserved - p->persistent);
    p->min_budget = least.bytes;
    p->min_peak_op = least.plan->n_steps ? least.plan->steps[least.plan->peak_step].op : -1;
    p->next_budget = next ? q->reserved + f->p->persistent + next->plan->transient : 0;
    p->next_seconds = next ? next->seconds : 0;
    p->bound_seconds = lattice_bound(q->lattice, &q->budgets);
    return 0;
}

static int choose(struct frontier *f, const struct request *q, struct plan **out)
{
    struct answer a;
    int rc = answer_within(f, q, &q->budgets, &a);
    if (!rc && !a.offloaded && !a.option)
        return plan_refuse(f, q);
    if (!rc)
        rc = a.offloaded ? plan_copy(a.offloaded, out) : option_plan(f, a.option, out);
    return rc ? rc : set_outlook(f, q, *out);
}

int frontier_least(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, int64_t *bytes)
{
    struct request q;
    struct smallest least = {INT64_MAX, NULL};
    int rc = open_request(f, m, b, reserved, &q);
    if (!rc)
        rc = find_smallest(f, &q.smallest);
    if (!rc)
        rc = smallest_device(f, &q, b, &least);
    *bytes = least.plan ? plan_refuse_names(least.bytes) : INT64_MAX;
    return rc ? plan_fail(rc) : 0;
}

int frontier_plan(struct frontier *f, const struct machine *m, const struct budgets *b,
                  int64_t reserved, struct plan **p)
{
    struct request q;
    *p = NULL;
    int rc = open_request(f, m, b, reserved, &q);
    if (!rc)
        rc = find_smallest(f, &q.smallest);
    if (!rc)
        rc = choose(f, &q, p);
    if (!rc)
        rc = plan_add_backings(f->p->g, *p);
    if (rc && *p) {
        plan_free(*p);
        *p = NULL;
    }
    return rc == CKPT_ENOMEM || rc == CKPT_ESTOP ? plan_fail(rc) : rc;
}

/* Whether the fastest option fits and no plan with these lower tiers can be faster. */
static int is_unbeaten(struct frontier *f, const struct request *q, struct option *o, bool *is)
{
    int64_t transient = q->budgets.device - q->reserved - f->p->persistent;
    *is = false;
    if (q->backings || o->load > transient)
        return 0;
    int rc = place_option(f, o);
    *is = !rc && o->plan->transient <= transient &&
          (!has_tiers(q, &q->budgets) || lattice_bound(q->lattice, &q->budgets) >= o->seconds);
    return rc;
}

int frontier_first(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, struct plan **p)
{
    struct request q;
    struct option *o = &f->options.data[f->n - 1];
    bool unbeaten = false;
    *p = NULL;
    int rc = open_request(f, m, b, reserved, &q);
    if (!rc)
        rc = is_unbeaten(f, &q, o, &unbeaten);
    if (!rc && unbeaten)
        rc = option_plan(f, o, p);
    if (!rc && unbeaten) {
        set_budgets(*p, b);
        (*p)->min_peak_op = -1;
        (*p)->bound_seconds = lattice_bound(q.lattice, b);
        rc = plan_add_backings(f->p->g, *p);
    }
    if (!rc)
        return 0;
    plan_free(*p);
    *p = NULL;
    return plan_fail(rc);
}

int64_t plan_fewest_bytes(const struct graph *g, const struct budgets *b, int64_t reserved)
{
    const bool leave = has_backings(g) || b->host + b->nvme > 0;
    int64_t bytes = reserved + graph_largest_op(g);
    for (int32_t s = 0; s < g->n_storages && !leave; s++)
        bytes += g->storages[s].persistent ? g->storages[s].bytes : 0;
    return bytes;
}

int frontier_bound(struct frontier *f, const struct machine *m, const struct budgets *b,
                   int64_t reserved, double *seconds)
{
    struct request q;
    int rc = open_request(f, m, b, reserved, &q);
    if (rc)
        return plan_fail(rc);
    bool fits = plan_fewest_bytes(f->p->g, b, reserved) <= b->device;
    *seconds = fits ? lattice_bound(q.lattice, b) : INFINITY;
    return 0;
}

int frontier_plan_free(struct frontier *f, const struct machine *m, const struct budgets *b,
                       int64_t reserved, struct plan **p)
{
    struct budgets none = *b;
    none.device = INT64_MAX;
    int rc = frontier_plan(f, m, &none, reserved, p);
    if (rc || reserved + (*p)->persistent + (*p)->transient <= b->device)
        return rc;
    plan_free(*p);
    return frontier_plan(f, m, b, reserved, p);
}
