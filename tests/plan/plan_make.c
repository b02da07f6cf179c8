/* SPDX-License-Identifier: Apache-2.0 */
/* See plan_make.h. */
#include "plan_make.h"
#include "plan/watch.h"

int plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
              int64_t reserved, struct plan **p, struct error *error)
{
    struct frontier *f;
    *p = NULL;
    int rc = graph_check_seconds(g, error);
    if (rc)
        return rc;
    rc = frontier_build(g, &f);
    if (rc)
        return plan_fail(error, rc);
    rc = frontier_plan(f, m, b, reserved, p, error);
    frontier_free(f);
    return rc;
}

int plan_sweep(struct frontier *f, const struct machine *m, const struct budgets *b,
               const int64_t *device, int32_t n, struct plan **plans)
{
    struct error error;
    int rc = 0;
    for (int32_t i = 0; i < n && !rc; i++) {
        struct budgets here = *b;
        here.device = device[i];
        rc = frontier_plan(f, m, &here, 0, &plans[i], &error);
        rc = rc == CKPT_EBUDGET ? 0 : rc;
    }
    return rc;
}
