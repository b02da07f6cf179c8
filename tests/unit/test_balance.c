/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a step dealt to ranks: each once, as many to each, and their sums of weights close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "../../examples/common/balance.c"

const char say_program[] = "test_balance";

enum { MOST = 4096 };

static int64_t dealt[MOST];
static double weight[MOST];

/* Weights with a long tail. */
static void draw(int64_t n)
{
    uint32_t x = 1;

    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525 + 1013904223;
        weight[i] = 1 / (0.1 + (double)x / 4294967296.);
    }
}

static double sum(const int64_t *sample, int64_t n)
{
    double all = 0;

    for (int64_t i = 0; i < n; i++)
        all += weight[sample[i]];
    return all;
}

/* The largest sum of a rank over the mean; checks that each sample is dealt once. */
static double excess(int64_t n, int ranks)
{
    const int64_t each = n / ranks;
    bool seen[MOST] = {false};
    double most = 0, all = 0;

    assert_int_equal(balance_deal(weight, n, ranks, dealt), 0);
    for (int64_t i = 0; i < n; i++) {
        assert_false(seen[dealt[i]]);
        seen[dealt[i]] = true;
    }
    for (int r = 0; r < ranks; r++) {
        const double own = sum(dealt + r * each, each);
        most = own > most ? own : most;
        all += own;
    }
    return most / (all / ranks) - 1;
}

static void test_sums(void **state)
{
    (void)state;
    draw(MOST);
    assert_true(excess(2 * 8, 2) < 0.03);
    assert_true(excess(8 * 8, 8) < 0.03);
    assert_true(excess(256 * 16, 256) < 0.03);
}

static void test_small(void **state)
{
    (void)state;
    draw(8);
    assert_true(excess(5, 1) < 1e-12);
    assert_true(excess(4, 4) > 0); /* one each: nothing can be chosen */
    for (int i = 0; i < 8; i++)
        weight[i] = 3;
    assert_true(excess(8, 4) < 1e-12);
    for (int i = 0; i < 8; i++) /* of equals the first to the first */
        assert_int_equal(dealt[i], i / 2 + i % 2 * 4);
    assert_int_equal(balance_deal(weight, 0, 2, dealt), 0);
}

static void test_names(void **state)
{
    enum balance kind = BALANCE_TIME;

    (void)state;
    assert_int_equal(balance_read(NULL, &kind), 0);
    assert_int_equal(kind, BALANCE_NONE);
    assert_int_equal(balance_read("tokens", &kind), 0);
    assert_int_equal(kind, BALANCE_TOKENS);
    assert_int_equal(balance_read("Time", &kind), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums), cmocka_unit_test(test_small),
                                       cmocka_unit_test(test_names)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
