/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One cache of frontiers for all plans and contexts of a test.  A test that plans or trains the
 * same model under many budgets would otherwise repeat the same search, which takes longer than the
 * training.  A frontier does not depend on budgets, tiers or contexts (tests/plan/test_promises.c),
 * so the plans are the same.
 *
 * Programs linked with $(one_search) use these functions in place of those of plan/plan.h and of
 * plan_make.h.  They plan in one thread at a time.
 */
#include <stdlib.h>
#include "plan/plan.h"

int __real_frontiers_new(struct frontiers **all);
void __real_frontiers_free(struct frontiers *all);
int __wrap_frontiers_new(struct frontiers **all);
void __wrap_frontiers_free(struct frontiers *all);
int __wrap_plan_make(const struct graph *g, const struct machine *m, const struct budgets *b,
                     int64_t reserved, struct plan **p);

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
                     int64_t reserved, struct plan **p)
{
    struct frontiers *all;
    struct frontier *pf;
    *p = NULL;
    int rc = __wrap_frontiers_new(&all);
    if (!rc)
        rc = frontiers_get(all, g, &pf);
    return rc ? error_set(rc, "planning ran out of host memory")
              : frontier_plan(pf, m, b, reserved, p);
}
