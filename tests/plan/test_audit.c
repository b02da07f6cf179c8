/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers to budgets of three tiers agree with each other (audit.h): none is refused that holds a
 * plan of another budget, and no plan is smaller than a smallest budget.  bench_plan audit does the
 * same with larger programs.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "audit.h"
#include "graphs.h"
#include "models.h"

#define MIB (INT64_C(1) << 20)

static void agree(const char *name, struct graph *g, const struct machine *m)
{
    struct audit a = {0};
    if (audit_graph(name, g, m, &a))
        fail_msg("%s: %s", name, error_get());
    if (a.refused || a.untrue)
        fail_msg("%d refused, %d not true; %s", a.refused, a.untrue, a.first);
    assert_true(a.padding <= 0.001); /* a peak is what the plan takes, or the smallest budget */
    assert_true(a.budgets == AUDIT_BUDGETS && a.accepted >= AUDIT_BUDGETS / 2);
    graph_free(g);
}

static void test_transformer(void **state)
{
    (void)state;
    agree("two blocks", graph_transformer(2, 4 * MIB, 1), &graphs_machine);
}

/* The update uses far more than the rest of the step, and tiers hold a part of its state: holes
 * between addresses decide, and the order of the updates the fewest live bytes. */
static void test_state(void **state)
{
    struct stdit_shape wide = {.depth = 1, .tokens = 1024};
    struct stdit_shape narrow = {.depth = 1, .tokens = 256, .narrow = true};
    (void)state;
    agree("large state", model_stdit_shape(&wide, &machine_cuda), &machine_cuda);
    agree("state in bf16", model_stdit_shape(&narrow, &machine_cuda), &machine_cuda);
}

static void test_skips(void **state)
{
    (void)state;
    agree("U-Net", graph_unet(5, 4 * MIB), &graphs_machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transformer),
        cmocka_unit_test(test_state),
        cmocka_unit_test(test_skips),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
