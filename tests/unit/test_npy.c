/* SPDX-License-Identifier: Apache-2.0 */
/* Files of NumPy: values of every dtype, parts of them, and headers that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_files.h"

static char folder[] = "/tmp/test-npy-XXXXXX", path[100];

/* Writes version 1 or 2 of the format. */
static void write_npy(int version, const char *header, const void *data, size_t n)
{
    const unsigned length = (unsigned)strlen(header);
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    fprintf(f, "\x93NUMPY%c%c%c%c", version, 0, (int)length & 255, (int)length >> 8);
    if (version > 1)
        fwrite("\0\0", 1, 2, f);
    fwrite(header, 1, length, f);
    fwrite(data, 1, n, f);
    assert_int_equal(fclose(f), 0);
}

#define HEADER(descr, shape)                                                                       \
    "{'descr': '" descr "', 'fortran_order': False, 'shape': " shape ", }  \n"

static void floats(void **state)
{
    const float values[6] = {1, -2, 3, 4.5f, 5, 6};
    const double wide[2] = {0.5, -3};
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float part[3];
    ckpt_file *f;

    (void)state;
    write_npy(1, HEADER("<f4", "(2, 3)"), values, sizeof values);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 1);
    assert_int_equal(ckpt_file_entry(f, 0, &e), 0);
    assert_string_equal(e.name, "ids");
    assert_true(e.ndim == 2 && e.shape[0] == 2 && e.shape[1] == 3);
    assert_int_equal(ckpt_file_read_part_f32(f, 0, 3, part, 3), 0);
    assert_memory_equal(part, values + 3, sizeof part);
    assert_int_equal(ckpt_file_read_part_i32(f, 0, 0, (int32_t[1]){0}, 1), CKPT_EFORMAT);
    ckpt_file_close(f);
    write_npy(2, HEADER("<f8", "(2,)"), wide, sizeof wide);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, 0, part, 2), 0);
    assert_true(part[0] == 0.5f && part[1] == -3);
    ckpt_file_close(f);
}

static void check_whole(const char *header, const void *data, size_t n, int32_t second)
{
    int32_t value = 0;
    ckpt_file *f;

    write_npy(1, header, data, n);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_part_i32(f, 0, 1, &value, 1), 0);
    assert_int_equal(value, second);
    ckpt_file_close(f);
}

static void whole(void **state)
{
    const int64_t wide[3] = {1, -7, (int64_t)1 << 40};
    int32_t value[3];
    ckpt_file *f;

    (void)state;
    check_whole(HEADER("<i8", "(3,)"), wide, 24, -7);
    check_whole(HEADER("<i4", "(2,)"), (int32_t[2]){0, -9}, 8, -9);
    check_whole(HEADER("<i2", "(2,)"), (int16_t[2]){0, -300}, 4, -300);
    check_whole(HEADER("<u2", "(2,)"), (uint16_t[2]){0, 65535}, 4, 65535);
    check_whole(HEADER("|i1", "(2,)"), (int8_t[2]){0, -5}, 2, -5);
    check_whole(HEADER("|u1", "(2,)"), (uint8_t[2]){0, 200}, 2, 200);
    check_whole(HEADER("|b1", "(2,)"), (uint8_t[2]){0, 1}, 2, 1);
    write_npy(1, HEADER("<i8", "(3,)"), wide, 24);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_part_i32(f, 0, 2, value, 1), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(NULL), "element 2 does not fit"));
    assert_int_equal(ckpt_file_read_part_i32(f, 0, 2, value, 2), CKPT_EINVAL);
    assert_int_equal(ckpt_file_read_part_i32(NULL, 0, 0, value, 1), CKPT_EINVAL);
    assert_int_equal(ckpt_file_read_part_i32(f, 0, 0, NULL, 1), CKPT_EINVAL);
    ckpt_file_close(f);
}

static void refused(int version, const char *header, size_t n, const char *words)
{
    const char data[64] = {0};
    ckpt_file *f;

    write_npy(version, header, data, n);
    assert_int_equal(ckpt_file_open(&f, path), CKPT_EFORMAT);
    if (!strstr(ckpt_error(NULL), words))
        fail_msg("'%s' is not in '%s'", words, ckpt_error(NULL));
}

static void refusals(void **state)
{
    ckpt_file *f;

    (void)state;
    refused(1, HEADER(">f4", "(2,)"), 8, "order of other processors");
    refused(1, HEADER("|O8", "(1,)"), 8, "the dtype '|O8'");
    refused(1, HEADER("<U12", "(1,)"), 48, "no numbers");
    refused(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }\n", 4,
            "no numbers");
    refused(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }\n", 16,
            "ascontiguousarray");
    refused(1, "{'descr': '<f4', 'shape': (2,), }\n", 8, "ascontiguousarray");
    refused(1, HEADER("<f4", "(3,)"), 8, "takes 12 bytes, and the file has 8");
    refused(1, HEADER("<f4", "(1,)"), 8, "takes 4 bytes, and the file has 8");
    refused(1, HEADER("<f4", "(9223372036854775807, 2)"), 8, "no shape");
    refused(1, HEADER("<f4", "(1,1,1,1,1,1,1,1,1)"), 4, "no shape");
    refused(1, HEADER("<f4", "(-1,)"), 4, "no shape");
    refused(1, HEADER("<f4", "2"), 8, "no shape");
    refused(1, "{}", 0, "no numbers");
    refused(4, HEADER("<f4", "(2,)"), 8, "header is damaged");
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(ckpt_file_open(&f, path), CKPT_EFORMAT);
    assert_int_equal(truncate(path, 7), 0);
    assert_int_equal(ckpt_file_open(&f, path), CKPT_EFORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(floats), cmocka_unit_test(whole),
                                       cmocka_unit_test(refusals)};

    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/ids.npy", folder);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    rmdir(folder);
    return failed;
}
