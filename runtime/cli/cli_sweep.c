/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt plan --sweep: step time for every device budget, from one search. */
#include <stdlib.h>
#include "cli/cli.h"
#include "report/sweep_svg.h"

/* The smallest budget that works and the smallest that makes nothing slower. */
static int find_range(const struct plan_job *job, int64_t *least, int64_t *most)
{
    struct error error;
    struct budgets all = job->budgets;
    struct plan *p;
    all.device = INT64_MAX;
    if (portfolio_plan(job->search, &job->machine, &all, job->machine.process, &p, &error))
        return cli_fail("%s", error.text);
    *least = p->min_budget;
    *most = max_i64(p->persistent + p->transient + job->machine.process, p->min_budget);
    plan_free(p);
    return 0;
}

int cli_plan_budgets(const struct plan_job *job, const int64_t *budgets, int32_t n,
                     struct plan **plans)
{
    return portfolio_sweep(job->search, &job->machine, &job->budgets, job->machine.process, budgets,
                           n, plans);
}

static void print_row(int64_t budget, const struct plan *p)
{
    if (!p) {
        printf("%12s  does not fit\n", human_bytes(budget));
        return;
    }
    double compute = plan_compute_seconds(p);
    printf("%12s %12s %11.5g %8.1f%% %11.4g %11.4g %7.2f%%", human_bytes(budget),
           human_bytes(p->persistent + p->transient), p->seconds,
           compute > 0 ? 100. * (p->seconds / compute - 1.) : 0., p->recompute_seconds,
           p->exposed_seconds + p->exposed_comm,
           p->bound_seconds > 0 ? 100. * (p->seconds / p->bound_seconds - 1.) : 0.);
    if (p->host_bytes)
        printf("  host %s", human_bytes(p->host_bytes));
    if (p->nvme_bytes)
        printf("  nvme %s", human_bytes(p->nvme_bytes));
    putchar('\n');
}

static int draw(const struct plan_job *job, const int64_t *budgets, struct plan **plans, int32_t n)
{
    struct error error;
    int64_t mark = job->budgets.device == INT64_MAX ? 0 : job->budgets.device;
    struct sweep s = {.title = "Step time against device budget",
                      .machine = job->o->machine ? job->machine.name : "",
                      .budgets = budgets,
                      .plans = plans,
                      .n = n,
                      .mark = mark};
    return sweep_svg_write(&s, job->o->svg, &error) ? cli_fail("%s", error.text) : 0;
}

int cli_sweep(const struct plan_job *job)
{
    int32_t n = (int32_t)job->o->points;
    int64_t least, most;
    int rc = find_range(job, &least, &most);
    if (rc)
        return rc;
    int64_t *budgets = calloc((size_t)n, sizeof(*budgets));
    struct plan **plans = calloc((size_t)n, sizeof(struct plan *));
    if (!budgets || !plans) {
        free(budgets);
        free(plans);
        return cli_fail("out of host memory");
    }
    for (int32_t i = 0; i < n; i++)
        budgets[i] = i == n - 1 ? most : least + (most - least) / (n - 1) * i;
    if (cli_plan_budgets(job, budgets, n, plans)) {
        rc = cli_fail("out of host memory");
    } else {
        printf("%12s %12s %11s %9s %11s %11s %8s\n", "budget", "peak", "step, s", "overhead",
               "recompute", "exposed", "gap");
        for (int32_t i = 0; i < n; i++)
            print_row(budgets[i], plans[i]);
        if (job->o->svg)
            rc = draw(job, budgets, plans, n);
    }
    for (int32_t i = 0; i < n; i++)
        plan_free(plans[i]);
    free(budgets);
    free(plans);
    return rc;
}
