/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One list of searches for all plans and contexts of a test.  A test that plans or trains the same
 * model under many budgets would search for the same schedules again each time: a second of
 * processor time, of which the training takes a tenth.  What a search finds does not depend on
 * budgets, tiers or contexts (tests/plan/test_promises.c), so plans are the same.
 *
 * Programs linked with $(one_search) have these in place of the functions of plan/plan.h.  They
 * plan in one thread at a time.
 */
#include <stdlib.h>
#include "plan/plan.h"

int __real_frontiers_new(struct frontiers **all);
void __real_frontiers_free(struct frontiers *all);
int __wrap_frontiers_new(struct frontiers **all);
void __wrap_frontiers_free(struct frontiers *all);
int __wrap_plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
                     int64_t reserved, struct plan **p, struct error *error);

static struct frontiers *shared;

static void forget(void)
{
    __real_frontiers_free(shared);
}

int __wrap_frontiers_new(struct frontiers **all)
{
    int rc = 0;
    if (!shared) {
        rc = __real_frontiers_new(&shared);
        if (!rc)
            atexit(forget);
    }
    *all = shared;
    return rc;
}

void __wrap_frontiers_free(struct frontiers *all)
{
    (void)all;
}

int __wrap_plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
                     int64_t reserved, struct plan **p, struct error *error)
{
    struct frontiers *all;
    struct frontier *pf;
    *p = NULL;
    int rc = __wrap_frontiers_new(&all);
    if (!rc)
        rc = frontiers_get(all, g, &pf);
    return rc ? error_fail(error, rc, "planning ran out of host memory")
              : frontier_plan(pf, m, b, reserved, p, error);
}
