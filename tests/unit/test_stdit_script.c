/* SPDX-License-Identifier: Apache-2.0 */
/* Mask strategies and prompts of Open-Sora 1.2: parsing, placement of strategies, and refusals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "../../examples/video/stdit/prompt.c"
#include "../../examples/video/stdit/strategy.c"

const char say_program[] = "test_stdit_script";

/* ---- strategies ---------------------------------------------------------------------------- */

static void test_reads_strategies(void **state)
{
    struct stdit_strategies s = {.n = 0};

    (void)state;
    assert_int_equal(stdit_strategies_read(&s, "x", NULL), 0);
    assert_int_equal(stdit_strategies_read(&s, "x", " "), 0);
    assert_int_equal(s.n, 0);
    assert_int_equal(stdit_strategies_read(&s, "x", "0;1, 2,-3,-4 ,5,0.25"), 0);
    assert_int_equal(s.n, 2);
    assert_int_equal(s.list[0].loop, 0);
    assert_int_equal(s.list[0].reference, 0);
    assert_int_equal(s.list[0].from, 0);
    assert_int_equal(s.list[0].to, 0);
    assert_int_equal(s.list[0].length, 1);
    assert_true(s.list[0].edit == 0);
    assert_int_equal(s.list[1].loop, 1);
    assert_int_equal(s.list[1].reference, 2);
    assert_int_equal(s.list[1].from, -3);
    assert_int_equal(s.list[1].to, -4);
    assert_int_equal(s.list[1].length, 5);
    assert_true(s.list[1].edit == 0.25);
    stdit_strategies_free(&s);
}

static void test_refuses_strategies(void **state)
{
    static const char *const wrong[] = {";",
                                        "0;",
                                        "0;;1",
                                        "x",
                                        "0,",
                                        "0,0,0,0,1,0,0",
                                        "0.5",
                                        "0,0,0,0,0",
                                        "0,0,0,0,-2",
                                        "0,0,0,0,1,2",
                                        "0,0,0,0,1,nan",
                                        "-1",
                                        "0,-1",
                                        "0,0,0,0,1,-0.1",
                                        "0 0",
                                        "1e3",
                                        "99999999999",
                                        "0,0,0,0,1,0.5x"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct stdit_strategies s = {.n = 0};
        assert_int_equal(stdit_strategies_read(&s, "x", wrong[i]), -1);
        stdit_strategies_free(&s);
    }
}

/* Each row: from, to, length, reference, clip, align; then the expected result of Open-Sora. */
static void test_places(void **state)
{
    static const int64_t cases[][9] = {
        {0, 0, 1, 10, 5, 0, 0, 0, 1},    {-5, 0, 5, 10, 15, 0, 5, 0, 5},
        {0, -1, 1, 1, 15, 0, 0, 14, 1},  {0, 3, 9, 10, 5, 0, 0, 3, 2},
        {8, 0, 9, 10, 5, 0, 8, 0, 2},    {7, 0, 5, 10, 15, 5, 5, 0, 5},
        {8, 13, 1, 10, 15, 5, 5, 10, 1}, {3, 3, 1, 15, 15, 5, 5, 5, 1},
        {2, 0, 1, 15, 15, 4, 0, 0, 1},   {3, 0, 1, 15, 15, 4, 4, 0, 1},
        {9, 0, 1, 11, 15, 6, 6, 0, 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *c = cases[i];
        const struct stdit_strategy s = {0, 0, c[0], c[1], c[2], 0};
        struct stdit_span span = {0};
        assert_int_equal(stdit_strategy_place(&s, "x", c[3], c[4], c[5], &span), 0);
        assert_int_equal(span.from, c[6]);
        assert_int_equal(span.to, c[7]);
        assert_int_equal(span.length, c[8]);
        assert_int_equal(span.cut, c[8] < c[2]);
    }
}

static void test_refuses_places(void **state)
{
    static const struct stdit_strategy wrong[] = {
        {0, 0, 4, 0, 1, 0}, {0, 0, -5, 0, 1, 0}, {0, 0, 0, 5, 1, 0}, {0, 0, 0, -6, 1, 0}};
    struct stdit_span span;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(stdit_strategy_place(&wrong[i], "x", 4, 5, 0, &span), -1);
}

/* ---- prompts ------------------------------------------------------------------------------- */

static void test_reads_prompts(void **state)
{
    struct stdit_prompt p;

    (void)state;
    assert_int_equal(stdit_prompt_read(&p, " a hare | runs ", 1), 0);
    assert_int_equal(p.n, 1);
    assert_string_equal(p.text[0], "a hare | runs");
    assert_null(p.reference);
    assert_int_equal(stdit_prompt_text_of(&p, 7), 0);
    stdit_prompt_free(&p);

    assert_int_equal(stdit_prompt_read(&p,
                                       "|0| a hare |2|a dog| 3 | |10|rain"
                                       "{\"reference_path\": \"a;b\", \"mask_strategy\": \"0\"} ",
                                       1),
                     0);
    assert_int_equal(p.n, 4);
    assert_string_equal(p.text[0], "a hare");
    assert_string_equal(p.text[2], "");
    assert_string_equal(p.reference, "a;b");
    assert_string_equal(p.strategy, "0");
    static const int64_t of[] = {0, 0, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3};
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(stdit_prompt_text_of(&p, i), of[i]);
    stdit_prompt_free(&p);

    assert_int_equal(stdit_prompt_read(&p, "", 1), 0);
    assert_string_equal(p.text[0], "");
    stdit_prompt_free(&p);
}

static void test_refuses_prompts(void **state)
{
    static const char *const wrong[] = {"a{",
                                        "a{}{}",
                                        "a{\"x\": \"y\"}",
                                        "a{\"mask_strategy\": 0}",
                                        "|0|a|x|b",
                                        "|0|a|0|b",
                                        "|0|a|2|b|1|c",
                                        "|0|a|1",
                                        "|0|a|-1|b",
                                        "|0|a|1{\"mask_strategy\": \"0\"}"};

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct stdit_prompt p;
        assert_int_equal(stdit_prompt_read(&p, wrong[i], 1), -1);
        stdit_prompt_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_strategies), cmocka_unit_test(test_refuses_strategies),
        cmocka_unit_test(test_places),           cmocka_unit_test(test_refuses_places),
        cmocka_unit_test(test_reads_prompts),    cmocka_unit_test(test_refuses_prompts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
