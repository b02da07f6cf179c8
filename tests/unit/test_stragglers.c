/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks are named as slow, and when, by times that are given. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../examples/common/stragglers.c"

const char say_program[] = "test_stragglers";

static int named, last;

static void note(void *user, int rank, double median)
{
    (void)user;
    (void)median;
    named++;
    last = rank;
}

/* Judges the same times again and again; returns how often a rank was named. */
static int judge(struct stragglers *s, const double *seconds, int times)
{
    named = 0;
    memcpy(s->seconds, seconds, (size_t)s->ranks * sizeof *seconds);
    for (int i = 0; i < times; i++)
        stragglers_judge(s, note, NULL);
    return named;
}

static void test_once_until_it_recovers(void **state)
{
    static const double even[] = {1, 1.1, 1.15, 1.05}, slow[] = {1, 1.1, 1.5, 1.05};
    struct stragglers s;

    (void)state;
    assert_int_equal(stragglers_open(&s, 4), 0);
    assert_int_equal(judge(&s, even, 9), 0);
    assert_int_equal(judge(&s, slow, 1), 0); /* four steps */
    assert_int_equal(judge(&s, even, 1), 0);
    assert_int_equal(judge(&s, slow, 1), 0);
    assert_int_equal(judge(&s, slow, 1), 1);
    assert_int_equal(last, 2);
    assert_int_equal(judge(&s, slow, 9), 0);
    assert_int_equal(judge(&s, even, 1), 0);
    assert_int_equal(judge(&s, slow, 9), 1);
    stragglers_close(&s);
}

static void test_two_ranks(void **state)
{
    static const double even[] = {1, 1.2}, slow[] = {1.3, 1};
    struct stragglers s;

    (void)state;
    assert_int_equal(stragglers_open(&s, 2), 0);
    assert_int_equal(judge(&s, even, 9), 0);
    assert_int_equal(judge(&s, slow, 3), 0);
    assert_int_equal(judge(&s, slow, 1), 1);
    assert_int_equal(last, 0);
    stragglers_close(&s);
}

static void test_one_rank(void **state)
{
    struct stragglers s;

    (void)state;
    assert_int_equal(stragglers_open(&s, 1), 0);
    assert_null(stragglers_look(&s, NULL));
    stragglers_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_once_until_it_recovers),
                                       cmocka_unit_test(test_two_ranks),
                                       cmocka_unit_test(test_one_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
