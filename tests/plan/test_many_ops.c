/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of a program of more than MANY_OPS ops, which has fewer searches: they pass the checker, a
 * budget that holds another is never slower, and the smallest budget is true.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_many_ops)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
