/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The curve of step time against device budget.  It is monotonic, so between two known points it
 * lies in the rectangle they span.  The next point bisects the budgets (geometrically) of one of
 * these: for a curve the largest one, so points are dense where it bends.
 */
#include <math.h>
#include <stdlib.h>
#include "cli/cli.h"

int cli_plan_at(const struct plan_job *job, int64_t budget, struct plan **p)
{
    struct budgets b = job->budgets;
    struct error unused;
    ERRORS_TO(&unused);
    b.device = budget;
    int rc = frontier_plan(job->search, &job->machine, &b, job->machine.process, p);
    return rc == CKPT_EBUDGET ? 0 : rc;
}

void budget_curve_free(struct budget_curve *c)
{
    for (int32_t i = 0; i < c->n; i++)
        plan_free(c->plans[i]);
    free(c->budgets);
    free(c->plans);
    *c = (struct budget_curve){0};
}

/* Inserts the plan for a budget in order. */
static int add_point(const struct plan_job *job, struct budget_curve *c, int64_t budget)
{
    struct plan *p;
    int32_t i = c->n;
    if (cli_plan_at(job, budget, &p))
        return CKPT_ENOMEM;
    if (!p)
        return 0;
    for (; i > 0 && c->budgets[i - 1] > budget; i--) {
        c->budgets[i] = c->budgets[i - 1];
        c->plans[i] = c->plans[i - 1];
    }
    c->budgets[i] = budget;
    c->plans[i] = p;
    c->n++;
    return 0;
}

int32_t budget_curve_largest(const struct budget_curve *c)
{
    double largest = 0;
    int32_t best = -1;
    for (int32_t i = 0; i + 1 < c->n; i++) {
        double ratio = log((double)c->budgets[i + 1] / (double)c->budgets[i]);
        /* Flat intervals get points too, once the others are small. */
        double drop = c->plans[i]->seconds - c->plans[i + 1]->seconds + 1e-4 * c->plans[0]->seconds;
        if (c->budgets[i + 1] - c->budgets[i] > 1 && ratio * drop > largest) {
            largest = ratio * drop;
            best = i;
        }
    }
    return best;
}

static int find_ends(const struct plan_job *job, struct budget_curve *c)
{
    struct budgets all = job->budgets;
    struct plan *p;
    all.device = INT64_MAX;
    if (frontier_plan(job->search, &job->machine, &all, job->machine.process, &p))
        return cli_fail("%s", error_get());
    c->smallest = p->min_budget;
    c->fastest = max_i64(p->persistent + p->transient + job->machine.process, p->min_budget);
    plan_free(p);
    if (c->smallest <= job->capacity)
        return 0;
    all.device = job->capacity;
    int rc = frontier_plan(job->search, &job->machine, &all, job->machine.process, &p);
    if (!rc)
        plan_free(p);
    return rc ? cli_fail("%s", error_get()) : 0;
}

int budget_curve_fill(struct plan_job *job, int32_t points,
                      int32_t (*next)(const struct budget_curve *), struct budget_curve *c)
{
    *c = (struct budget_curve){0};
    job->most = points;
    int rc = find_ends(job, c);
    if (rc)
        return rc;
    int64_t largest = min_i64(c->fastest, job->capacity);
    c->budgets = calloc((size_t)points, sizeof(*c->budgets));
    c->plans = calloc((size_t)points, sizeof(struct plan *));
    rc = c->budgets && c->plans ? add_point(job, c, c->smallest) : CKPT_ENOMEM;
    if (!rc && largest > c->smallest)
        rc = add_point(job, c, largest);
    while (!rc && c->n < points) {
        int32_t i = next(c);
        if (i < 0)
            break;
        double middle = sqrt((double)c->budgets[i]) * sqrt((double)c->budgets[i + 1]);
        int32_t before = job->planned = c->n;
        rc = add_point(job, c,
                       max_i64(c->budgets[i] + 1, min_i64((int64_t)middle, c->budgets[i + 1] - 1)));
        if (c->n == before)
            break;
    }
    return rc ? cli_fail("out of host memory") : 0;
}
