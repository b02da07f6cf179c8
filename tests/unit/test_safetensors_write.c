/* SPDX-License-Identifier: Apache-2.0 */
/* Writing safetensors files: contents, refusals, and complete replacement of a file or none. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "test_directory.h"
#include "core/base.h"
#include "ckpt_files.h"

enum { LONG = 100003 }; /* elements; several chunks of a reader */

static void test_round_trip(void **state)
{
    float *f32 = malloc(LONG * sizeof(float)), *back = malloc(LONG * sizeof(float));
    static const uint16_t bf16[6] = {0x3f80, 0x4000, 0x4040, 0x4080, 0x40a0, 0x40c0};
    static const int32_t i32[2] = {7, -8};
    float small[6];
    int32_t ints[2];
    ckpt_file_writer *w;
    ckpt_file *f;
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;

    (void)state;
    for (int i = 0; i < LONG; i++)
        f32[i] = (float)i * 0.5f;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "half", CKPT_BF16, 2, (int64_t[]){2, 3}, bf16), 0);
    assert_int_equal(ckpt_file_add(w, "long", CKPT_F32, 1, (int64_t[]){LONG}, f32), 0);
    assert_int_equal(ckpt_file_add(w, "int", CKPT_I32, 3, (int64_t[]){1, 2, 1}, i32), 0);
    assert_int_equal(ckpt_file_add(w, "scalar \"\\\n\xc3\xa9\"", CKPT_F32, 0, NULL, f32 + 5), 0);
    assert_int_equal(ckpt_file_add(w, "empty", CKPT_F32, 2, (int64_t[]){0, 4}, NULL), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
    assert_int_equal(names_in_dir(), 1);

    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 5);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "long"), back, LONG), 0);
    assert_memory_equal(back, f32, LONG * sizeof(float));
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "half"), small, 6), 0);
    for (int i = 0; i < 6; i++)
        assert_true(small[i] == (float)(i + 1));
    assert_int_equal(ckpt_file_read_i32(f, ckpt_file_find(f, "int"), ints, 2), 0);
    assert_memory_equal(ints, i32, sizeof(i32));
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "scalar \"\\\n\xc3\xa9\""), small, 1),
                     0);
    assert_true(small[0] == 2.5f);
    assert_int_equal(ckpt_file_entry(f, ckpt_file_find(f, "empty"), &e), 0);
    assert_int_equal(e.ndim, 2);
    assert_int_equal(e.numel, 0);
    assert_int_equal(ckpt_file_read_f32(f, ckpt_file_find(f, "empty"), small, 0), 0);
    assert_int_equal(ckpt_file_entry(f, ckpt_file_find(f, "int"), &e), 0);
    assert_string_equal(e.dtype, "I32");
    assert_int_equal(e.ndim, 3);
    assert_int_equal(e.shape[1], 2);
    ckpt_file_close(f);
    free(f32);
    free(back);
}

/* The exact bytes: wide elements first, then by name; the data begins on a page.  The expected
 * checksums come from a separate implementation of the text in checksum.h and safetensors.h. */
static void test_written_bytes(void **state)
{
    static const char json[] =
        "{\"__metadata__\":{\"format\":\"pt\",\"ckpt.checksum\":\"ckpt64-1\","
        "\"ckpt.checksum.header\":\"acfdd508cc8529de\","
        "\"ckpt.checksum.data\":\"b1d5a2a154788c1f2a55ecbfe836132b008c68e23c3a604a\"},"
        "\"a\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]},"
        "\"c\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]},"
        "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]}}";
    static const uint16_t b[2] = {0x3f80, 0x4000};
    static const float c = 1;
    static const int32_t a = 3;
    static const char data[] = "\x03\0\0\0\0\0\x80\x3f\x80\x3f\0\x40";
    char bytes[8192];
    ckpt_file_writer *w;

    (void)state;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "b", CKPT_BF16, 2, (int64_t[]){1, 2}, b), 0);
    assert_int_equal(ckpt_file_add(w, "c", CKPT_F32, 1, (int64_t[]){1}, &c), 0);
    assert_int_equal(ckpt_file_add(w, "a", CKPT_I32, 0, NULL, &a), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
    assert_int_equal(read_bytes(bytes, sizeof(bytes)), 4096 + 12);
    assert_memory_equal(bytes, "\xf8\x0f\0\0\0\0\0\0", 8);
    assert_memory_equal(bytes + 8, json, sizeof(json) - 1);
    for (size_t i = 8 + sizeof(json) - 1; i < 4096; i++)
        assert_int_equal(bytes[i], ' ');
    assert_memory_equal(bytes + 4096, data, 12);
}

static void test_empty_file(void **state)
{
    ckpt_file_writer *w;
    ckpt_file *f;

    (void)state;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_commit(w), 0);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 0);
    ckpt_file_close(f);
}

/* A call that adds an invalid tensor fails, and so does the commit after it. */
static void check_add_refused(const char *name, int dtype, int ndim, const int64_t *shape,
                              const void *data, const char *expect)
{
    ckpt_file_writer *w;

    unlink(path);
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, name, (enum ckpt_dtype)dtype, ndim, shape, data),
                     CKPT_EINVAL);
    if (!strstr(error_get(), expect))
        fail_msg("the sentence is '%s', without '%s'", error_get(), expect);
    assert_int_equal(ckpt_file_commit(w), CKPT_EINVAL);
    assert_int_equal(names_in_dir(), 0);
}

static void test_bad_tensors(void **state)
{
    static const float x[4] = {0};
    ckpt_file_writer *w;

    (void)state;
    check_add_refused("x", 9, 1, (int64_t[]){1}, x, "no such dtype");
    check_add_refused("x", CKPT_F32, -1, NULL, x, "-1 axes");
    check_add_refused("x", CKPT_F32, 9, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, x, "9 axes");
    check_add_refused("x", CKPT_F32, 2, (int64_t[]){1, -2}, x, "-2 on axis 1");
    check_add_refused("x", CKPT_F32, 2, (int64_t[]){1LL << 40, 1LL << 40}, x, "on axis 1");
    check_add_refused("x", CKPT_F32, 1, (int64_t[]){1}, NULL, "no data");
    check_add_refused("\xff", CKPT_F32, 1, (int64_t[]){1}, x, "not UTF-8");
    check_add_refused("a\xc0\x80", CKPT_F32, 1, (int64_t[]){1}, x, "not UTF-8");
    check_add_refused("\xe2\x82", CKPT_F32, 1, (int64_t[]){1}, x, "not UTF-8");
    check_add_refused("\xed\xa0\x80", CKPT_F32, 1, (int64_t[]){1}, x, "not UTF-8");
    check_add_refused("\xf4\x90\x80\x80", CKPT_F32, 1, (int64_t[]){1}, x, "not UTF-8");
    check_add_refused("__metadata__", CKPT_F32, 1, (int64_t[]){1}, x, "__metadata__");
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "twin", CKPT_F32, 1, (int64_t[]){1}, x), 0);
    assert_int_equal(ckpt_file_add(w, "twin", CKPT_BF16, 1, (int64_t[]){1}, x), 0);
    assert_int_equal(ckpt_file_commit(w), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "'twin' was added twice"));
    assert_int_equal(names_in_dir(), 0);
}

static void test_abandon(void **state)
{
    static const float x = 1;
    ckpt_file_writer *w;

    (void)state;
    unlink(path);
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "x", CKPT_F32, 0, NULL, &x), 0);
    ckpt_file_abandon(w);
    ckpt_file_abandon(NULL);
    assert_int_equal(names_in_dir(), 0);
}

static int write_scalar(const char *to, float value)
{
    ckpt_file_writer *w;

    assert_int_equal(ckpt_file_create(&w, to), 0);
    assert_int_equal(ckpt_file_add(w, "x", CKPT_F32, 0, NULL, &value), 0);
    return ckpt_file_commit(w);
}

static float read_scalar(void)
{
    ckpt_file *f;
    float value;

    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, 0, &value, 1), 0);
    ckpt_file_close(f);
    return value;
}

static void test_replaces(void **state)
{
    struct stat st;
    mode_t mask = umask(027);

    (void)state;
    unlink(path);
    assert_int_equal(write_scalar(path, 1), 0);
    assert_int_equal(write_scalar(path, 2), 0);
    umask(mask);
    assert_true(read_scalar() == 2);
    assert_int_equal(names_in_dir(), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
}

/* The file-size limit stands for a full disk: the write fails in the middle of the data. */
static void test_full_disk(void **state)
{
    struct rlimit before, small;
    ckpt_file_writer *w;
    float *data = calloc(LONG, sizeof(float));

    (void)state;
    assert_int_equal(write_scalar(path, 1), 0);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    small = before;
    small.rlim_cur = 10000;
    assert_int_equal(ckpt_file_create(&w, path), 0);
    assert_int_equal(ckpt_file_add(w, "x", CKPT_F32, 1, (int64_t[]){LONG}, data), 0);
    setrlimit(RLIMIT_FSIZE, &small);
    int rc = ckpt_file_commit(w);
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(rc, CKPT_EIO);
    assert_non_null(strstr(error_get(), strerror(EFBIG)));
    assert_true(read_scalar() == 1);
    assert_int_equal(names_in_dir(), 1);
    free(data);
}

static void test_no_directory(void **state)
{
    char there[80];

    (void)state;
    snprintf(there, sizeof(there), "%s/none/file", dir);
    assert_int_equal(write_scalar(there, 1), CKPT_EIO);
    assert_non_null(strstr(error_get(), "No such file or directory"));
    assert_non_null(strstr(error_get(), there));
    assert_int_equal(write_scalar("/proc/self/ckpt-test", 1), CKPT_EIO);
}

static void test_read_only_directory(void **state)
{
    (void)state;
    if (geteuid() == 0)
        skip(); /* permissions do not bind root */
    assert_int_equal(write_scalar(path, 1), 0);
    chmod(dir, 0500);
    int rc = write_scalar(path, 2);
    chmod(dir, 0700);
    assert_int_equal(rc, CKPT_EIO);
    assert_non_null(strstr(error_get(), "Permission denied"));
    assert_true(read_scalar() == 1);
}

/* The path of the file is a directory. */
static void test_onto_directory(void **state)
{
    (void)state;
    unlink(path);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(write_scalar(path, 1), CKPT_EIO);
    assert_non_null(strstr(error_get(), "is a directory"));
    assert_int_equal(names_in_dir(), 1);
    rmdir(path);
}

static void test_current_directory(void **state)
{
    char name[64];

    (void)state;
    snprintf(name, sizeof(name), "%s.file", dir);
    assert_int_equal(write_scalar(name, 1), 0);
    assert_int_equal(unlink(name), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_written_bytes),
        cmocka_unit_test(test_empty_file),
        cmocka_unit_test(test_bad_tensors),
        cmocka_unit_test(test_abandon),
        cmocka_unit_test(test_replaces),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_no_directory),
        cmocka_unit_test(test_read_only_directory),
        cmocka_unit_test(test_onto_directory),
        cmocka_unit_test(test_current_directory),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
