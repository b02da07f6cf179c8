/* SPDX-License-Identifier: Apache-2.0 */
/* The array of range maxima against a plain list of steps: every step and every query, after
 * changes of random ranges and targets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "plan/offload/range_max.h"

/* A program of LARGE steps or more has larger parts. */
enum { PART = 64, MOST = 3 * PART + 5, LARGE = 1 << 16 };

static uint32_t random_state = 1;

static int32_t draw(int32_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int32_t)((random_state >> 10) % (uint32_t)n);
}

static int32_t clear_from(const int64_t *plain, int32_t from, int32_t to, int64_t limit)
{
    while (to > from && plain[to - 1] <= limit)
        to--;
    return to;
}

static int64_t excess_of(const int64_t *plain, int32_t n, int64_t target)
{
    int64_t sum = 0;
    for (int32_t k = 0; k < n; k++)
        sum += plain[k] > target ? plain[k] - target : 0;
    return sum;
}

/* The excess that more bytes in a range would add, without making the change. */
static void compare_gain(const struct range_max *l, int64_t *plain)
{
    int32_t from = draw(l->n + 1), to = from + draw(l->n - from + 1);
    int64_t bytes = draw(100) - 50, before = excess_of(plain, l->n, l->target);
    for (int32_t k = from; k < to; k++)
        plain[k] += bytes;
    int64_t after = excess_of(plain, l->n, l->target);
    for (int32_t k = from; k < to; k++)
        plain[k] -= bytes;
    assert_int_equal(range_max_gain(l, from, to, bytes, INT64_MAX), after - before);
    int64_t enough = draw(500) + 1, part = range_max_gain(l, from, to, bytes, enough);
    assert_true(part == after - before || (part >= enough && part < after - before));
}

static void compare(const struct range_max *l, int64_t *plain)
{
    int32_t peak = 0;
    for (int32_t k = 0; k < l->n; k++) {
        assert_int_equal(range_max_at(l, k), plain[k]);
        peak = plain[k] > plain[peak] ? k : peak;
    }
    assert_int_equal(range_max_peak(l), peak);
    assert_int_equal(l->excess, excess_of(plain, l->n, l->target));
    compare_gain(l, plain);
    for (int i = 0; i < 20; i++) {
        int32_t from = draw(l->n + 1), to = from + draw(l->n - from + 1);
        int64_t limit = draw(400) - 100;
        assert_int_equal(range_max_clear_from(l, from, to, limit),
                         clear_from(plain, from, to, limit));
    }
}

static void walk(int32_t n)
{
    struct range_max l;
    struct pool m = {NULL, false};
    int64_t *plain = pool_array(&m, n, sizeof(*plain));
    assert_non_null(plain);
    for (int32_t k = 0; k < n; k++)
        plain[k] = draw(200) - 100;
    assert_int_equal(range_max_new(&l, n, &m), 0);
    range_max_set(&l, plain);
    for (int i = 0; i < 60; i++) {
        int32_t from = draw(n + 1), to = from + draw(n - from + 1);
        int64_t bytes = draw(100) - 40;
        range_max_add(&l, from, to, bytes);
        for (int32_t k = from; k < to; k++)
            plain[k] += bytes;
        compare(&l, plain);
        if (i % 8 == 0)
            range_max_aim(&l, draw(300) - 100);
    }
    range_max_set(&l, plain);
    compare(&l, plain);
    pool_free(&m);
}

static void test_against_a_list(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= MOST; n += 1 + n / 3)
        walk(n);
    walk(2 * PART);
    walk(MOST);
    walk(LARGE + 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_list)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
