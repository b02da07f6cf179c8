/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt plan --sweep: step time for every device budget, from one search. */
#include <stdlib.h>
#include "cli/cli.h"
#include "report/sweep_svg.h"

static void print_row(int64_t budget, const struct plan *p)
{
    double compute = plan_compute_seconds(p);
    printf("%12s %12s %11.5g %8.1f%% %11.4g %11.4g %7.2f%%", human_bytes(budget),
           human_bytes(p->persistent + p->transient), p->seconds,
           compute > 0 ? 100. * (p->seconds / compute - 1.) : 0., p->recompute_seconds,
           p->exposed_seconds + p->exposed_comm,
           p->bound_seconds > 0 ? 100. * (p->seconds / p->bound_seconds - 1.) : 0.);
    int64_t host = p->host_bytes + p->staging_bytes;
    if (host)
        printf("  host %s", human_bytes(host));
    if (p->nvme_bytes)
        printf("  nvme %s", human_bytes(p->nvme_bytes));
    putchar('\n');
}

static int draw(const struct plan_job *job, const struct budget_curve *c)
{
    const struct plan_options *o = job->o;
    bool given = o->vram != CKPT_VRAM_AUTO && o->vram != CKPT_VRAM_NONE;
    struct sweep s = {.graph = plan_source(o),
                      .machine = o->machine ? job->machine.name : "",
                      .budgets = c->budgets,
                      .plans = c->plans,
                      .n = c->n,
                      .mark = given ? job->budgets.device : 0,
                      .process = job->machine.process,
                      .fastest = c->fastest,
                      .host = job->budgets.host,
                      .nvme = job->budgets.nvme};
    return sweep_svg_write(&s, o->svg) ? cli_fail("%s", error_get()) : 0;
}

int cli_sweep(struct plan_job *job)
{
    struct budget_curve c;
    int rc = budget_curve_fill(job, (int32_t)job->o->points, budget_curve_largest, &c);
    if (!rc) {
        printf("%12s %12s %11s %9s %11s %11s %8s\n", "budget", "peak", "step, s", "overhead",
               "recompute", "exposed", "gap");
        for (int32_t i = 0; i < c.n; i++)
            print_row(c.budgets[i], c.plans[i]);
        if (c.fastest > job->capacity)
            printf("%12s  does not fit %s: the step that keeps everything\n",
                   human_bytes(c.fastest), job->machine.name);
    }
    if (!rc && job->o->svg)
        rc = draw(job, &c);
    budget_curve_free(&c);
    return rc;
}
