/* SPDX-License-Identifier: Apache-2.0 */
/* Algorithm choices: written in the order of their keys, read back unchanged, and refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "algorithms.h"

static char *text_of(const struct algorithms *p)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    assert_int_equal(algorithms_write(p, f), 0);
    fclose(f);
    return text;
}

static void test_order(void **state)
{
    static const char expected[] = "pin 0000000000000001 one\n"
                                   "pin 0000000000000007 seven, again\n"
                                   "pin ffffffffffffffff last\n";
    struct algorithms p = {0};
    (void)state;
    assert_null(algorithms_get(&p, 7));
    assert_int_equal(algorithms_set(&p, 7, "seven"), 0);
    assert_int_equal(algorithms_set(&p, UINT64_MAX, "last"), 0);
    assert_int_equal(algorithms_set(&p, 1, "one"), 0);
    assert_int_equal(algorithms_set(&p, 7, "seven, again"), 0);
    assert_int_equal(p.n, 3);
    assert_string_equal(algorithms_get(&p, 1), "one");
    assert_string_equal(algorithms_get(&p, 7), "seven, again");
    assert_string_equal(algorithms_get(&p, UINT64_MAX), "last");
    assert_null(algorithms_get(&p, 6));
    assert_null(algorithms_get(&p, 8));
    char *text = text_of(&p);
    assert_string_equal(text, expected);
    free(text);
    algorithms_free(&p);
    assert_int_equal(p.n, 0);
}

/* Enough entries to grow the array twice, set in another order than their keys. */
static void test_many(void **state)
{
    struct algorithms p = {0}, q = {0};
    (void)state;
    for (uint64_t i = 0; i < 61; i++) {
        char choice[32];
        snprintf(choice, sizeof choice, "choice %d", (int)i);
        assert_int_equal(algorithms_set(&p, (i * 37 % 61) << 40, choice), 0);
    }
    char *text = text_of(&p), *rest = text;
    for (char *line; (line = strsep(&rest, "\n")) && *line;) {
        bool is_algorithm = false;
        assert_int_equal(algorithms_read(&q, line, &is_algorithm), 0);
        assert_true(is_algorithm);
    }
    free(text);
    assert_int_equal(q.n, 61);
    for (uint64_t i = 0; i < 61; i++)
        assert_string_equal(algorithms_get(&q, i << 40), algorithms_get(&p, i << 40));
    algorithms_free(&p);
    algorithms_free(&q);
}

/* A choice from a file holds until a call takes it; its replacement has another origin. */
static void test_origins(void **state)
{
    struct algorithms p = {0}, q = {0};
    (void)state;
    assert_int_equal(algorithms_set(&p, 1, "one"), 0);
    assert_int_equal(algorithms_set(&p, 2, "two"), 0);
    assert_int_equal(algorithms_count(&p, ALGORITHM_GIVEN), 2);
    assert_int_equal(algorithms_put(&p, 1, algorithms_get(&p, 1), ALGORITHM_TAKEN), 0);
    assert_int_equal(algorithms_put(&p, 3, "three", ALGORITHM_FASTER), 0);
    assert_string_equal(algorithms_get(&p, 1), "one");
    assert_int_equal(algorithms_count(&p, ALGORITHM_GIVEN), 1);
    assert_int_equal(algorithms_count(&p, ALGORITHM_TAKEN), 1);
    assert_int_equal(algorithms_count(&p, ALGORITHM_FASTER), 1);
    assert_int_equal(algorithms_count(&p, ALGORITHM_PROPOSED), 0);
    assert_int_equal(algorithms_add(&q, &p), 0);
    assert_int_equal(algorithms_count(&q, ALGORITHM_GIVEN), 3);
    algorithms_free(&p);
    algorithms_free(&q);
}

static void test_lines(void **state)
{
    static const char *const bad[] = {"pin ",
                                      "pin 0123456789abcdef",
                                      "pin 0123456789abcdef ",
                                      "pin 123 choice",
                                      "pin 0123456789abcdefg choice",
                                      "pin 0123456789abcdef0 choice",
                                      "pin 0123456789ABCDEF c"};
    static const char *const others[] = {"", "pi", "pins 0123456789abcdef c", "gap 1 2 3"};
    struct algorithms p = {0};
    bool is_algorithm;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(algorithms_read(&p, bad[i], &is_algorithm), CKPT_EFORMAT);
        assert_true(is_algorithm);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(algorithms_read(&p, others[i], &is_algorithm), 0);
        assert_false(is_algorithm);
    }
    assert_int_equal(p.n, 0);
    assert_int_equal(algorithms_read(&p, "pin 0123456789abcdef a b  c \r\n", &is_algorithm), 0);
    assert_true(is_algorithm);
    assert_string_equal(algorithms_get(&p, 0x0123456789abcdef), "a b  c");
    algorithms_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
