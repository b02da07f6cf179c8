/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of buffers as files: reading, writing, and a sentence for every mistake. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cli/place_csv.h"
#include "plan/places.h"

static char path[64];

static void put_file(const char *text, size_t length)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, length, f), length);
    assert_int_equal(fclose(f), 0);
}

static int read_text(const char *text, struct place_file *file)
{
    put_file(text, strlen(text));
    return place_file_read(path, file);
}

static void expect_mistake(const char *text, const char *sentence)
{
    struct place_file file;
    char expected[CKPT_MESSAGE];
    snprintf(expected, sizeof(expected), "%s, %s", path, sentence);
    assert_int_equal(read_text(text, &file), CKPT_EFORMAT);
    assert_string_equal(error_get(), expected);
    assert_true(file.n == 0 && !file.items);
}

static void test_reads(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "id,lower,upper,size\na,0,3,4\nb,3,9,5\nc,2,4,6\n", "a,0,3,4\nb,3,9,5\nc,2,4,6",
        " id , lower,upper ,size\r\n a,0, 3,4 \r\n\r\nb,3,9,5\r\n\tc,2,4,6\r\n"};
    for (int k = 0; k < 3; k++) {
        struct place_file file;
        assert_int_equal(read_text(texts[k], &file), 0);
        assert_int_equal(file.n, 3);
        assert_string_equal(file.ids[2], "c");
        assert_true(file.lower[1] == 3 && file.upper[1] == 9 && file.items[1].bytes == 5);
        /* Half-open: a ends where b begins, so only c overlaps both. */
        assert_true(file.items[0].last < file.items[1].first);
        assert_true(file.items[2].first <= file.items[0].last);
        assert_true(file.items[2].last >= file.items[1].first);
        place_file_free(&file);
    }
}

static void test_nothing(void **state)
{
    (void)state;
    struct place_file file;
    struct place_request q = {0};
    struct place_result r;
    assert_int_equal(read_text("id,lower,upper,size\n", &file), 0);
    assert_int_equal(file.n, 0);
    assert_int_equal(plan_place(file.items, 0, &q, &r), 0);
    assert_true(r.peak == 0 && r.load == 0 && r.proved);
    place_file_free(&file);
}

static void test_mistakes(void **state)
{
    (void)state;
    expect_mistake("a,0,3\n", "line 1: 3 fields, where id,lower,upper,size is expected");
    expect_mistake("a,0,3,4\nb,0,3,4,5\n",
                   "line 2: 5 fields, where id,lower,upper,size is expected");
    expect_mistake("nonsense\n", "line 1: 1 field, where id,lower,upper,size is expected");
    expect_mistake("a,0,3,4\nid,lower,upper,size\n",
                   "line 2: the lower is \"lower\", which is not a whole number of digits 0 to 9");
    expect_mistake("a,0,3,4.5\n",
                   "line 1: the size is \"4.5\", which is not a whole number of digits 0 to 9");
    expect_mistake("a,-1,3,4\n",
                   "line 1: the lower is \"-1\", which is not a whole number of digits 0 to 9");
    expect_mistake("a,0,,4\n",
                   "line 1: the upper is \"\", which is not a whole number of digits 0 to 9");
    expect_mistake("a,0,9223372036854775808,4\n",
                   "line 1: the upper 9223372036854775808 is larger than 2^63 - 1");
    expect_mistake("a,3,3,4\n", "line 1: upper 3 is not above lower 3");
    expect_mistake("a,0,3,0\n", "line 1: the size is 0");
    expect_mistake(",0,3,4\n", "line 1: the id is empty");
    expect_mistake("a,0,3,4611686018427387903\nb,0,3,1\n",
                   "line 2: the sizes up to here add up to more than 2^62");
}

static void test_zero_byte(void **state)
{
    (void)state;
    static const char text[] = "a,0,3,4\nb\0,0,3,4\n";
    struct place_file file;
    put_file(text, sizeof(text) - 1);
    assert_int_equal(place_file_read(path, &file), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "line 2: a zero byte"));
}

static void test_no_file(void **state)
{
    (void)state;
    struct place_file file = {0};
    assert_int_equal(place_file_read("/nowhere/list.csv", &file), CKPT_EIO);
    assert_string_equal(error_get(),
                        "/nowhere/list.csv cannot be opened: No such file or directory");
    assert_int_equal(place_file_write(&file, "/nowhere/list.csv"), CKPT_EIO);
    assert_string_equal(error_get(),
                        "offsets /nowhere/list.csv: cannot be written, no file can be made beside "
                        "it: No such file or directory");
}

static void test_writes(void **state)
{
    (void)state;
    struct place_file file;
    struct place_request q = {0};
    struct place_result r;
    char text[256];
    assert_int_equal(read_text("x,10,30,4\nlong name,30,90,5\n", &file), 0);
    assert_int_equal(plan_place(file.items, file.n, &q, &r), 0);
    assert_int_equal(place_file_write(&file, path), 0);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof(text) - 1, f)] = '\0';
    fclose(f);
    assert_string_equal(text, "id,lower,upper,size,offset\nx,10,30,4,0\nlong name,30,90,5,0\n");
    place_file_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads),    cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_mistakes), cmocka_unit_test(test_zero_byte),
        cmocka_unit_test(test_no_file),  cmocka_unit_test(test_writes),
    };
    snprintf(path, sizeof(path), "test_place_csv.%d.tmp", (int)getpid());
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
