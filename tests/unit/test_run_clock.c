/* SPDX-License-Identifier: Apache-2.0 */
/* When a run saves and ends by the clock, with a simulated clock. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../examples/common/run_clock.c"

/* A first step of 5 s, which prepares, then one of 2 s. */
static void two_steps(struct run_clock *k)
{
    run_clock_start(k, 100);
    run_clock_step(k, 100, 105);
    run_clock_step(k, 105, 107);
}

static void test_no_limit(void **state)
{
    struct run_clock k = {.saves = true};

    (void)state;
    two_steps(&k);
    assert_false(run_clock_ends(&k, 1e9, 5));
    assert_false(run_clock_saves(&k, 1e9));
}

/* 2 steps of 2 s and twice a save of 3 s before 200 s: no later than 190. */
static void test_limit(void **state)
{
    struct run_clock k = {.limit = 200, .saves = true};

    (void)state;
    two_steps(&k);
    run_clock_save(&k, 110, 113);
    run_clock_save(&k, 120, 121);
    assert_false(run_clock_ends(&k, 189.9, 2));
    assert_true(run_clock_ends(&k, 190.1, 2));
    assert_false(run_clock_ends(&k, 300, 2)); /* it has said so */
    assert_false(run_clock_saves(&k, 300));
}

/* It also leaves time for the longest validation. */
static void test_look(void **state)
{
    struct run_clock k = {.limit = 200, .saves = true};

    (void)state;
    two_steps(&k);
    run_clock_save(&k, 110, 113);
    run_clock_look(&k, 120, 127);
    run_clock_look(&k, 130, 131);
    assert_false(run_clock_ends(&k, 182.9, 2));
    assert_true(run_clock_ends(&k, 183.1, 2));
}

static void test_first_step(void **state)
{
    struct run_clock k = {.limit = 20, .begun = 90};

    (void)state;
    run_clock_start(&k, 100);
    run_clock_step(&k, 100, 105);
    assert_true(run_clock_ends(&k, 105, 1));
}

/* The duration of a save is measured by half of the limit. */
static void test_untimed(void **state)
{
    struct run_clock k = {.limit = 400, .saves = true}, none = {.limit = 400};

    (void)state;
    two_steps(&k);
    two_steps(&none);
    assert_false(run_clock_saves(&k, 199));
    assert_true(run_clock_saves(&k, 200));
    assert_false(run_clock_saves(&k, 201)); /* it is under way */
    run_clock_save(&k, 201, 204);
    assert_false(run_clock_saves(&k, 300));
    assert_false(run_clock_saves(&none, 300));
}

static void test_every(void **state)
{
    struct run_clock k = {.every = 60, .saves = true};

    (void)state;
    two_steps(&k);
    assert_false(run_clock_saves(&k, 159));
    assert_true(run_clock_saves(&k, 160));
    assert_false(run_clock_saves(&k, 161));
    run_clock_save(&k, 161, 165);
    assert_false(run_clock_saves(&k, 224));
    assert_true(run_clock_saves(&k, 225));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_limit), cmocka_unit_test(test_limit),
        cmocka_unit_test(test_look), cmocka_unit_test(test_first_step),
        cmocka_unit_test(test_untimed),
        cmocka_unit_test(test_every)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
