/* SPDX-License-Identifier: Apache-2.0 */
/* See plan_make.h. */
#include "plan_make.h"
#include "plan/watch.h"

int plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
              int64_t reserved, struct plan **p)
{
    struct frontier *f;
    *p = NULL;
    int rc = graph_check_seconds(g);
    if (rc)
        return rc;
    rc = frontier_build(g, &f);
    if (rc)
        return plan_fail(rc);
    rc = frontier_plan(f, m, b, reserved, p);
    frontier_free(f);
    return rc;
}

int plan_sweep(struct frontier *f, const struct machine *m, const struct budgets *b,
               const int64_t *device, int32_t n, struct plan **plans)
{
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        struct budgets here = *b;
        here.device = device[i];
        rc = frontier_plan(f, m, &here, 0, &plans[i]);
        rc = rc == CKPT_EBUDGET ? 0 : rc;
    }
    return rc;
}
