/* SPDX-License-Identifier: Apache-2.0 */
/* Text files of people: marks, line ends, what is no UTF-8; lines, tables and white space. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/csv.h"
#include "../../examples/common/say.h"
#include "said.h"
#include "test_directory.h"

static void write_text(const char *text, size_t n)
{
    said[0] = 0;
    write_bytes(text, n);
}

/* The lines of a text, each followed by "|"; NULL if it is refused. */
static const char *lines_of(const char *text, size_t n)
{
    static char all[512];
    struct text_file f;
    char *line;
    int rc;

    write_text(text, n);
    all[0] = 0;
    assert_int_equal(text_file_open(&f, path) ? 0 : 1, 1);
    while ((rc = text_file_line(&f, &line)) > 0)
        strcat(strcat(all, line), "|");
    text_file_close(&f);
    return rc ? NULL : all;
}
#define LINES(text) lines_of(text, sizeof(text) - 1)

static void test_lines(void **state)
{
    (void)state;
    assert_string_equal(LINES("a\nb\n"), "a|b|");
    assert_string_equal(LINES("a\r\nb"), "a|b|");
    assert_string_equal(LINES("a\rb\r"), "a|b|");
    assert_string_equal(LINES("a\n\rb\r\r\n\nc"), "a||b|||c|");
    assert_string_equal(LINES("\xef\xbb\xbf"
                              "a\n\xef\xbb\xbf"),
                        "a|\xef\xbb\xbf|");
    assert_string_equal(LINES(""), "");
    assert_string_equal(LINES("\n"), "|");
    assert_string_equal(LINES("\xf0\x9f\x98\x80\xe2\x80\xa8x"), "\xf0\x9f\x98\x80\xe2\x80\xa8x|");
}

/* Checks that a text is refused, and what is said. */
static void refused(const char *text, size_t n, const char *what)
{
    assert_null(lines_of(text, n));
    if (!strstr(said, what) || !strstr(said, path))
        fail_msg("%s: not \"%s\"", said, what);
}
#define REFUSED(text, what) refused(text, sizeof(text) - 1, what)

static void test_refused(void **state)
{
    struct text_file f;

    (void)state;
    REFUSED("a\r\nb\rc\0d", "line 3: has a zero byte");
    REFUSED("a\n\xe9t\xe9", "line 2: is not UTF-8");     /* Latin-1 */
    REFUSED("\xc0\xaf", "line 1: is not UTF-8");         /* too long */
    REFUSED("\xed\xa0\x80", "line 1: is not UTF-8");     /* a surrogate */
    REFUSED("\xf4\x90\x80\x80", "line 1: is not UTF-8"); /* beyond U+10FFFF */
    REFUSED("a\n\xe3\x80", "line 2: ends within a character");
    write_text("\xff\xfe"
               "a\0",
               4);
    assert_int_equal(text_file_open(&f, path), -1);
    assert_non_null(strstr(said, "is UTF-16"));
    text_file_close(&f);
    write_text("\xfe\xff\0a", 4);
    assert_int_equal(text_file_open(&f, path), -1);
    assert_non_null(strstr(said, "is UTF-16"));
    text_file_close(&f);
}

/* A member of an archive ends where it ends. */
static void test_part(void **state)
{
    struct text_file f;
    char *text;

    (void)state;
    write_text("\xff\xff"
               "\xef\xbb\xbf"
               "text\xff\xfe",
               11);
    assert_int_equal(text_file_open_part(&f, path, "member", 2, 7), 0);
    text = text_file_all(&f, 4);
    assert_string_equal(text, "text");
    free(text);
    text_file_close(&f);
    assert_int_equal(text_file_open_part(&f, path, "member", 2, 7), 0);
    assert_null(text_file_all(&f, 3));
    assert_non_null(strstr(said, "member: has more than 3 bytes"));
    text_file_close(&f);
    assert_int_equal(text_file_open_part(&f, path, "member", 9, 0), 0);
    text = text_file_all(&f, 3);
    assert_string_equal(text, "");
    free(text);
    text_file_close(&f);
}

static void test_table(void **state)
{
    static const char table[] = "\xef\xbb\xbf"
                                "a,b\r1,\"x\r\ny\"\r\n\r\n2,\"\"\"q\"\"\"\n3,";
    struct csv c;

    (void)state;
    write_text(table, sizeof table - 1);
    assert_int_equal(csv_open(&c, path), 0);
    assert_int_equal(csv_next(&c), 1);
    assert_int_equal(csv_find(&c, "a"), 0);
    assert_int_equal(csv_next(&c), 1);
    assert_string_equal(c.field[1], "x\r\ny");
    assert_int_equal(c.line, 2);
    assert_int_equal(csv_next(&c), 1);
    assert_string_equal(c.field[1], "\"q\"");
    assert_int_equal(c.line, 5);
    assert_int_equal(csv_next(&c), 1);
    assert_int_equal(c.n, 2);
    assert_string_equal(c.field[1], "");
    assert_int_equal(csv_next(&c), 0);
    csv_close(&c);
    write_text("a,b\n1,\xe9\n", 8);
    assert_int_equal(csv_open(&c, path), 0);
    assert_int_equal(csv_next(&c), 1);
    assert_int_equal(csv_next(&c), -1);
    assert_non_null(strstr(said, "line 2: is not UTF-8"));
    csv_close(&c);
}

/* As ''.join(chr(i) for i in range(0x110000) if chr(i).isspace()) in Python. */
static void test_strip(void **state)
{
    static const char blanks[] =
        "\t\n\v\f\r\x1c\x1d\x1e\x1f \xc2\x85\xc2\xa0\xe1\x9a\x80\xe2\x80\x80\xe2\x80\x81"
        "\xe2\x80\x82\xe2\x80\x83\xe2\x80\x84\xe2\x80\x85\xe2\x80\x86\xe2\x80\x87\xe2\x80\x88"
        "\xe2\x80\x89\xe2\x80\x8a\xe2\x80\xa8\xe2\x80\xa9\xe2\x80\xaf\xe2\x81\x9f\xe3\x80\x80";
    char text[256];

    (void)state;
    snprintf(text, sizeof text,
             "%sa b\xc2\xa0"
             "c%s",
             blanks, blanks);
    assert_string_equal(text_strip(text), "a b\xc2\xa0"
                                          "c");
    assert_string_equal(text_strip(strcpy(text, blanks)), "");
    assert_string_equal(text_strip(strcpy(text, "")), "");
    /* These are no white space for Python: U+200B, U+FEFF, U+180E, and a letter that ends in 85. */
    strcpy(text, "\xe2\x80\x8b\xef\xbb\xbf\xe1\xa0\x8e\xc4\x85");
    assert_string_equal(text_strip(text), "\xe2\x80\x8b\xef\xbb\xbf\xe1\xa0\x8e\xc4\x85");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_refused), cmocka_unit_test(test_part),
        cmocka_unit_test(test_table), cmocka_unit_test(test_strip),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
