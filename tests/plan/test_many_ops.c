/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a program of more than MANY_OPS ops, which has fewer searches: they pass the checker, a
 * budget that holds another is never slower, and the smallest budget is true.  Where thousands of
 * residences share an address, the checker still finds each two that overlap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "models.h"

#define GIB (INT64_C(1) << 30)

/* A checked plan, or NULL if it is refused. */
static struct plan *ask(struct frontier *f, int64_t device, int64_t host)
{
    struct budgets b = {.device = device, .host = host};
    struct plan *p;
    int rc = frontier_plan(f, &machine_cuda, &b, 0, &p);
    if (rc == CKPT_EBUDGET)
        return NULL;
    if (rc || plan_check(f->p->g, p) || plan_check_times(f->p->g, &machine_cuda, p))
        fail_msg("%s", error_get());
    assert_true(p->persistent + p->transient <= device && p->host_bytes <= host);
    assert_true(p->bound_seconds <= p->seconds);
    return p;
}

static void test_many_ops(void **state)
{
    struct stdit_shape shape = {.depth = 50, .tokens = STDIT_TOKENS, .narrow = true};
    struct graph *g = model_stdit_shape(&shape, &machine_cuda);
    struct frontier *f;
    (void)state;
    assert_true(g->n_ops > MANY_OPS);
    assert_int_equal(frontier_build(g, &f), 0);
    struct plan *small = ask(f, 36 * GIB, 4 * GIB), *host = ask(f, 36 * GIB, 64 * GIB);
    struct plan *device = ask(f, 40 * GIB, 64 * GIB), *least = ask(f, device->min_budget, 64 * GIB);
    assert_true(host->n_copies > 0 && device->n_copies > 0);
    assert_true(small->seconds >= host->seconds && host->seconds >= device->seconds);
    assert_true(least && least->seconds >= host->seconds);
    assert_true(least->min_budget == device->min_budget);
    assert_null(ask(f, device->min_budget - 1, 64 * GIB));
    plan_free(small);
    plan_free(host);
    plan_free(device);
    plan_free(least);
    frontier_free(f);
    graph_free(g);
}

/* Whether the checker says that residence n and one at the same address overlap. */
static bool overlaps_at(const struct graph *g, struct plan *p, int32_t n, int64_t offset)
{
    int64_t was = p->residences[n].offset;
    p->residences[n].offset = offset;
    bool found = plan_check(g, p) == CKPT_EPLAN && strstr(error_get(), "overlap") != NULL;
    p->residences[n].offset = was;
    return found;
}

static void test_overlaps(void **state)
{
    struct graph *g = model_synthetic(20000);
    struct budgets b = {.device = INT64_MAX};
    struct frontier *f;
    struct plan *p;
    int found = 0;
    (void)state;
    assert_int_equal(frontier_build_first(g, &f), 0);
    assert_int_equal(frontier_first(f, &machine_cpu, &b, 0, &p), 0);
    assert_int_equal(plan_check(g, p), 0);
    for (int32_t n = 1; n < p->n_residences; n += 997) {
        const struct residence *a = &p->residences[n], *other = a - 1;
        if (a->storage < 0 || other->storage < 0 || a->offset < 0 || other->offset < 0)
            continue;
        bool meet = other->last >= a->first && a->last >= other->first;
        bool fits = other->offset + g->storages[a->storage].bytes <= p->transient;
        assert_true(!meet || !fits || overlaps_at(g, p, n, other->offset));
        found += meet && fits;
    }
    assert_true(found > 5);
    plan_free(p);
    frontier_free(f);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_ops),
                                       cmocka_unit_test(test_overlaps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
