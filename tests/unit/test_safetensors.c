/* SPDX-License-Identifier: Apache-2.0 */
/* Reading safetensors files: which are accepted, which are refused and why, how values are
 * converted. */
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include "test_directory.h"
#include "core/base.h"
#include "ckpt_files.h"

/* A file of a header text and data_bytes bytes of data: 0, 1, 2, ... */
static void write_file(const char *header, size_t data_bytes)
{
    char bytes[8192];
    uint64_t n = strlen(header);

    assert_true(8 + n + data_bytes <= sizeof(bytes));
    memcpy(bytes, &n, 8);
    memcpy(bytes + 8, header, n);
    for (size_t i = 0; i < data_bytes; i++)
        bytes[8 + n + i] = (char)i;
    write_bytes(bytes, 8 + n + data_bytes);
}

/* {"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} with 1.5 and -2. */
static void test_golden(void **state)
{
    static const char file[] = "\x36\0\0\0\0\0\0\0"
                               "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}"
                               "\0\0\xc0\x3f\0\0\0\xc0";
    ckpt_file *f;
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float values[2];

    (void)state;
    write_bytes(file, sizeof(file) - 1);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_count(f), 1);
    assert_int_equal(ckpt_file_entry(f, 0, &e), 0);
    assert_string_equal(e.name, "a");
    assert_string_equal(e.dtype, "F32");
    assert_int_equal(e.ndim, 1);
    assert_int_equal(e.shape[0], 2);
    assert_int_equal(e.numel, 2);
    assert_int_equal(ckpt_file_find(f, "a"), 0);
    assert_int_equal(ckpt_file_find(f, "b"), CKPT_ENAME);
    assert_int_equal(ckpt_file_entry(f, 1, &e), CKPT_EINVAL);
    assert_int_equal(ckpt_file_entry(f, -1, &e), CKPT_EINVAL);
    assert_int_equal(ckpt_file_read_f32(f, 0, values, 3), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "has 2 elements, 3 were asked for"));
    assert_int_equal(ckpt_file_read_f32(f, 0, values, 2), 0);
    assert_true(values[0] == 1.5f && values[1] == -2.f);
    ckpt_file_close(f);
}

/* Parts of a tensor equal those of the whole, and nothing before or after it can be read. */
static void test_parts(void **state)
{
    enum { N = 1500 };
    float whole[N], part[N];
    ckpt_file *f;

    (void)state;
    write_file("{\"a\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
               "\"b\":{\"dtype\":\"F32\",\"shape\":[3,500],\"data_offsets\":[8,6008]}}",
               6008);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, 1, whole, N), 0);
    for (int64_t first = 0; first <= N; first += 500) {
        int64_t n = min_i64(700, N - first);
        assert_int_equal(ckpt_file_read_part_f32(f, 1, first, part, n), 0);
        assert_memory_equal(part, whole + first, (size_t)n * sizeof *part);
    }
    assert_int_equal(ckpt_file_read_part_f32(f, 1, 1000, part, 501), CKPT_EINVAL);
    assert_non_null(strstr(error_get(), "has 1500 elements, not 501 from 1000 on"));
    assert_int_equal(ckpt_file_read_part_f32(f, 1, -1, part, 2), CKPT_EINVAL);
    assert_int_equal(ckpt_file_read_part_f32(f, 1, 1, part, -1), CKPT_EINVAL);
    assert_int_equal(ckpt_file_read_part_f32(f, 2, 0, part, 1), CKPT_EINVAL);
    ckpt_file_close(f);
}

/* Everything that the format allows besides the simple case. */
static void test_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        int count;
    } cases[] = {
        {"{}", 0, 0},
        {"{}      ", 0, 0},
        {"{\"__metadata__\":{}}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"x\":\"y\"}}", 0, 0},
        {"{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", 4, 1},
        {"{\"z\":{\"dtype\":\"F32\",\"shape\":[0,5],\"data_offsets\":[0,0]},"
         "\"s\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
         "\"y\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[3,3]}}",
         3, 3},
        {"{\"b\":{\"data_offsets\":[4,6],\"shape\":[1,1,1,1,1,1,1,2],\"dtype\":\"I8\"},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":null}}",
         6, 2},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ckpt_file *f;
        write_file(cases[i].header, cases[i].data);
        if (ckpt_file_open(&f, path))
            fail_msg("%s: %s", cases[i].header, error_get());
        assert_int_equal(ckpt_file_count(f), cases[i].count);
        ckpt_file_close(f);
    }
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define ONE(dtype, shape, offsets) "{\"x\":" ENTRY(dtype, shape, offsets) "}"

static const struct {
    const char *header;
    size_t data;
    const char *expect; /* part of the sentence */
} malformed[] = {
    {"", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"{", 0, "not valid JSON"},
    {"{}x", 0, "not valid JSON"},
    {"{\"x\":}", 0, "not valid JSON"},
    {"{\"\xff\":1}", 0, "not valid JSON"},
    {"{\"x\":1}", 0, "entry of tensor 'x' is not a JSON object"},
    {"{\"x\":{}}", 0, "'x' has no dtype"},
    {"{\"x\":{\"dtype\":3}}", 0, "'x' has no dtype"},
    {ONE("F31", "[]", "[0,4]"), 4, "unknown dtype 'F31'"},
    {ONE("f32", "[]", "[0,4]"), 4, "unknown dtype 'f32'"},
    {"{\"x\":{\"dtype\":\"F32\"}}", 0, "'x' has no shape"},
    {ONE("F32", "{}", "[0,4]"), 4, "'x' has no shape"},
    {ONE("F32", "4", "[0,4]"), 4, "'x' has no shape"},
    {ONE("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "9 axes"},
    {ONE("F32", "[-1]", "[0,4]"), 4, "axis 0"},
    {ONE("F32", "[1,-1]", "[0,4]"), 4, "axis 1"},
    {ONE("F32", "[1.0]", "[0,4]"), 4, "axis 0"},
    {ONE("F32", "[\"1\"]", "[0,4]"), 4, "axis 0"},
    {ONE("F32", "[true]", "[0,4]"), 4, "axis 0"},
    {ONE("F32", "[4294967296,4294967296]", "[0,4]"), 4, "64 bits"},
    {ONE("F32", "[4611686018427387904]", "[0,4]"), 4, "64 bits"},
    {ONE("F32", "[9223372036854775808]", "[0,4]"), 4, "not valid JSON"},
    {"{\"x\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "no data_offsets"},
    {ONE("F32", "[]", "[0]"), 4, "no data_offsets"},
    {ONE("F32", "[]", "[0,4,4]"), 4, "no data_offsets"},
    {ONE("F32", "[]", "[0,4.0]"), 4, "no data_offsets"},
    {ONE("F32", "[]", "[\"0\",4]"), 4, "no data_offsets"},
    {ONE("F32", "[]", "{\"0\":4}"), 4, "no data_offsets"},
    {ONE("F32", "[]", "[4,0]"), 4, "offsets [4, 0) in data of 4 bytes"},
    {ONE("F32", "[]", "[-4,0]"), 4, "offsets [-4, 0) in data of 4 bytes"},
    {ONE("F32", "[2]", "[0,8]"), 4, "offsets [0, 8) in data of 4 bytes"},
    {ONE("F32", "[]", "[0,9223372036854775807]"), 4, "in data of 4 bytes"},
    {ONE("F32", "[2,2]", "[0,12]"), 12,
     "tensor 'x' has offsets [0, 12) but shape [2, 2] of F32 needs 16 bytes"},
    {ONE("F64", "[]", "[0,4]"), 4, "shape [] of F64 needs 8 bytes"},
    {ONE("U8", "[0]", "[0,4]"), 4, "needs 0 bytes"},
    {ONE("F32", "[]", "[0,4]"), 8, "the tensors end at byte 4 but the data has 8 bytes"},
    {"{}", 8, "the tensors end at byte 0 but the data has 8 bytes"},
    {ONE("F32", "[]", "[4,8]"), 8, "hole in the data, bytes [0, 4), before tensor 'x'"},
    {"{\"x\":" ENTRY("U8", "[2]", "[0,2]") ",\"y\":" ENTRY("U8", "[2]", "[3,5]") "}", 5,
     "hole in the data, bytes [2, 3), before tensor 'y'"},
    {"{\"y\":" ENTRY("U8", "[2]", "[1,3]") ",\"x\":" ENTRY("U8", "[2]", "[0,2]") "}", 3,
     "'x' and 'y' overlap at byte 1"},
    {"{\"x\":" ENTRY("U8", "[2]", "[0,2]") ",\"x\":" ENTRY("U8", "[2]", "[2,4]") "}", 4,
     "duplicate"},
    {"{\"__metadata__\":3}", 0, "__metadata__ is not a JSON object"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not a JSON object"},
    {"{\"__metadata__\":{\"epoch\":3}}", 0, "not a string, at 'epoch'"},
};

static void check_refused(const char *what, int code, const char *expect)
{
    ckpt_file *f = (ckpt_file *)&f;
    int rc = ckpt_file_open(&f, path);

    if (rc != code)
        fail_msg("%s: %s, not %s: %s", what, ckpt_error_name(rc), ckpt_error_name(code),
                 error_get());
    assert_null(f);
    if (!strstr(error_get(), expect) || strncmp(error_get(), path, strlen(path)))
        fail_msg("%s: the sentence is '%s', without '%s'", what, error_get(), expect);
}

static void test_malformed(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(malformed) / sizeof(malformed[0]); i++) {
        write_file(malformed[i].header, malformed[i].data);
        check_refused(malformed[i].header, CKPT_EFORMAT, malformed[i].expect);
    }
}

static void test_bad_length(void **state)
{
    static const char too_long[] = "\x01\xe1\xf5\x05\0\0\0\0{}"; /* 100,000,001 */
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\xff{}";
    static const char beyond[] = "\x03\0\0\0\0\0\0\0{}";

    (void)state;
    write_bytes("", 0);
    check_refused("empty", CKPT_EFORMAT, "has 0 bytes");
    write_bytes("\x02\0\0\0\0\0\0", 7);
    check_refused("7 bytes", CKPT_EFORMAT, "has 7 bytes");
    write_bytes("\0\0\0\0\0\0\0\0", 8);
    check_refused("length 0", CKPT_EFORMAT, "does not begin with '{'");
    write_bytes(too_long, sizeof(too_long) - 1);
    check_refused("too long", CKPT_EFORMAT, "100000001 bytes");
    write_bytes(huge, sizeof(huge) - 1);
    check_refused("huge", CKPT_EFORMAT, "18446744073709551615 bytes");
    write_bytes(beyond, sizeof(beyond) - 1);
    check_refused("beyond the file", CKPT_EFORMAT, "is truncated");
}

static void test_bad_file(void **state)
{
    ckpt_file *f;

    (void)state;
    unlink(path);
    check_refused("no file", CKPT_EIO, "No such file");
    assert_int_equal(mkfifo(path, 0600), 0); /* nobody writes to it: it is not waited for */
    check_refused("a FIFO", CKPT_EIO, "not a regular file");
    unlink(path);
    assert_int_equal(ckpt_file_open(&f, "/dev/zero"), CKPT_EIO);
    assert_non_null(strstr(error_get(), "not a regular file"));
    assert_null(f);
    ckpt_file_close(NULL);
}

/* Files of other formats are recognized by their bytes, whatever their names. */
static void test_other_formats(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        size_t n;
        const char *expect;
    } cases[] = {
        {"PK\3\4\0\0\10\10\0\0\0\0", 12, "safetensors.torch as s"},
        {"PK\3\4\0\0\0\0\0\0\0\0", 12, "is a zip archive, as torch.save writes"},
        {"\200\2\212\nl\374\234F\371 j", 11, "is a Python pickle"},
        {"version https://git-lfs.github.com/spec/v1\n", 43, "git lfs pull"},
        {"<!DOCTYPE html>", 15, "is a page of HTML"},
        {"\x89HDF\r\n\x1a\n\0\0", 10, "is an HDF5 file"},
        {"\x1f\x8b\10\0\0\0\0\0\0\3", 10, "is compressed"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_bytes(cases[i].bytes, cases[i].n);
        check_refused(cases[i].expect, CKPT_EFORMAT, cases[i].expect);
    }
    /* headers of 0x280 and of 0x504b bytes begin with such bytes, too */
    static char bytes[8 + 0x504b];
    for (int i = 0; i < 2; i++) {
        uint64_t n = i ? 0x504b : 0x280;
        memset(bytes, ' ', sizeof bytes);
        memcpy(bytes, &n, sizeof n);
        memcpy(bytes + 8, "{}", 2);
        write_bytes(bytes, 8 + n);
        ckpt_file *f;
        assert_int_equal(ckpt_file_open(&f, path), 0);
        ckpt_file_close(f);
    }
}

/* Names of a file appear in messages without control characters. */
static void test_control_characters(void **state)
{
    (void)state;
    write_file("{\"\\u001b[31m\":1}", 0);
    check_refused("escape", CKPT_EFORMAT, "'\\x1b[31m'");
}

/* The file shrinks after it was opened. */
static void test_shrunk_file(void **state)
{
    ckpt_file *f;
    uint8_t values[4];

    (void)state;
    write_file(ONE("I32", "[]", "[0,4]"), 4);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(truncate(path, 20), 0);
    assert_int_equal(ckpt_file_read_i32(f, 0, (int32_t *)(void *)values, 1), CKPT_EIO);
    assert_non_null(strstr(error_get(), "became shorter"));
    ckpt_file_close(f);
}

/* Any mutation of a valid file is read or refused; sanitizers detect errors. */
static void test_mutations(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"a\":" ENTRY("F32", "[2,3]", "[0,24]") ",\"b\":" ENTRY(
            "I64", "[1]", "[24,32]") ",\"c\":" ENTRY("BF16", "[2]", "[32,36]") "}";
    char good[512], bytes[512];
    uint32_t random = 1;
    int opened = 0;

    (void)state;
    write_file(header, 36);
    size_t n = read_bytes(good, sizeof(good));
    for (int round = 0; round < 3000; round++) {
        memcpy(bytes, good, n);
        random = random * 1664525u + 1013904223u;
        for (int k = 0; k < 1 + (int)(random >> 30); k++) {
            random = random * 1664525u + 1013904223u;
            size_t at = (random >> 8) % n;
            bytes[at] = random & 1 ? (char)(random >> 24) : (char)(bytes[at] ^ 1 << (random >> 29));
        }
        write_bytes(bytes, round % 5 ? n : (random >> 8) % n);
        ckpt_file *f;
        int rc = ckpt_file_open(&f, path);
        assert_true(rc == 0 || rc == CKPT_EFORMAT);
        for (int i = 0; rc == 0 && i < ckpt_file_count(f); i++) {
            float values[36];
            struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
            assert_int_equal(ckpt_file_entry(f, i, &e), 0);
            assert_in_range(e.numel, 0, 36);
            ckpt_file_read_f32(f, i, values, e.numel);
            opened++;
        }
        ckpt_file_close(f);
    }
    assert_true(opened > 100);
}

/* ---- conversions ---- */

static void write_one(const char *dtype, int64_t numel, const void *data, size_t bytes)
{
    char file[4096], header[256];
    uint64_t n = (uint64_t)snprintf(header, sizeof(header),
                                    "{\"x\":{\"dtype\":\"%s\",\"shape\":[%lld],\"data_offsets\":"
                                    "[0,%zu]}}",
                                    dtype, (long long)numel, bytes);

    memcpy(file, &n, 8);
    memcpy(file + 8, header, n);
    memcpy(file + 8 + n, data, bytes);
    write_bytes(file, 8 + n + bytes);
}

static void check_f32(const char *dtype, const void *data, size_t bytes, const float *want, int n)
{
    ckpt_file *f;
    float values[32];
    int32_t ints[32];

    write_one(dtype, n, data, bytes);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_f32(f, 0, values, n), 0);
    for (int i = 0; i < n; i++) {
        if (isnan(want[i]) ? !isnan(values[i]) : memcmp(&values[i], &want[i], sizeof(float)))
            fail_msg("%s element %d is %a, not %a", dtype, i, (double)values[i], (double)want[i]);
    }
    assert_int_equal(ckpt_file_read_i32(f, 0, ints, n), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "cannot be read as i32"));
    ckpt_file_close(f);
}

static void test_to_f32(void **state)
{
    static const float f32[] = {0, -0.f, 1, -2.5f, 1e-42f, INFINITY, NAN};
    static const double f64[] = {0, -0., 1, -2.5, 1e-42, INFINITY, NAN};
    static const uint16_t bf16[] = {0, 0x8000, 0x3f80, 0xc020, 0x7f80, 0x7fc0, 1};
    static const float of_bf16[] = {0, -0.f, 1, -2.5f, INFINITY, NAN, 0x1p-133f};
    static const uint16_t f16[] = {0,      0x8000, 0x3c00, 0xc100, 0x7bff, 0x0400,
                                   0x03ff, 0x0001, 0x8001, 0x7c00, 0xfc00, 0x7e01};
    static const float of_f16[] = {0,           -0.f,     1,         -2.5f,    65504,     0x1p-14f,
                                   0x3ff.p-24f, 0x1p-24f, -0x1p-24f, INFINITY, -INFINITY, NAN};

    (void)state;
    check_f32("F32", f32, sizeof(f32), f32, 7);
    check_f32("F64", f64, sizeof(f64), f32, 7);
    check_f32("BF16", bf16, sizeof(bf16), of_bf16, 7);
    check_f32("F16", f16, sizeof(f16), of_f16, 12);
}

static void check_i32(const char *dtype, const void *data, size_t bytes, const int32_t *want, int n)
{
    ckpt_file *f;
    int32_t values[8];
    float floats[8];

    write_one(dtype, n, data, bytes);
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_i32(f, 0, values, n), 0);
    assert_memory_equal(values, want, (size_t)n * sizeof(want[0]));
    assert_int_equal(ckpt_file_read_f32(f, 0, floats, n), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "cannot be read as fp32"));
    ckpt_file_close(f);
}

static void test_to_i32(void **state)
{
    static const int64_t i64[] = {0, -1, INT32_MAX, INT32_MIN}, too_large[] = {0, 1LL << 31};
    static const int32_t i32[] = {0, -1, INT32_MAX, INT32_MIN};
    static const uint8_t u8[] = {0, 255}, yes[] = {0, 1};
    static const int32_t of_u8[] = {0, 255}, of_bool[] = {0, 1};
    ckpt_file *f;
    int32_t values[2];

    (void)state;
    check_i32("I64", i64, sizeof(i64), i32, 4);
    check_i32("I32", i32, sizeof(i32), i32, 4);
    check_i32("U8", u8, sizeof(u8), of_u8, 2);
    check_i32("BOOL", yes, sizeof(yes), of_bool, 2);
    write_one("I64", 2, too_large, sizeof(too_large));
    assert_int_equal(ckpt_file_open(&f, path), 0);
    assert_int_equal(ckpt_file_read_i32(f, 0, values, 2), CKPT_EFORMAT);
    assert_non_null(strstr(error_get(), "element 1 does not fit"));
    ckpt_file_close(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_accepted),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_bad_length),
        cmocka_unit_test(test_bad_file),
        cmocka_unit_test(test_other_formats),
        cmocka_unit_test(test_control_characters),
        cmocka_unit_test(test_shrunk_file),
        cmocka_unit_test(test_mutations),
        cmocka_unit_test(test_to_f32),
        cmocka_unit_test(test_to_i32),
        cmocka_unit_test(test_parts),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir) ? 1 : 0;
}
