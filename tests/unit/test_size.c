/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes: accepted text, refused text, and how a size is written. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>
#include "core/base.h"
#include "ckpt_tools.h"

#define KIB ((int64_t)1024)

static const struct {
    const char *text;
    int64_t bytes;
} good[] = {
    {"0", 0},
    {"4096", 4096},
    {"4096B", 4096},
    {"12b", 12},
    {"007", 7},
    {"1K", KIB},
    {"24G", 24 * KIB *KIB *KIB},
    {"24g", 24 * KIB *KIB *KIB},
    {"24GB", 24 * KIB *KIB *KIB},
    {"24GiB", 24 * KIB *KIB *KIB},
    {"512M", 512 * KIB *KIB},
    {"2T", 2 * KIB *KIB *KIB *KIB},
    {"1.5G", 3 * KIB *KIB *KIB / 2},
    {"1.25K", 1280},
    {"0.1K", 102},
    {"0.99999999999999999999K", 1023},
    {"1.0", 1},
    {"9223372036854775806", INT64_MAX - 1},
    {"8388607T", 8388607 * KIB *KIB *KIB *KIB},
    {"1%", -1},
    {"80%", -80},
    {"100%", -100},
};

static void test_good(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t bytes = 77;
        if (ckpt_parse_size(good[i].text, &bytes) || bytes != good[i].bytes)
            fail_msg("'%s' gives %lld, not %lld", good[i].text, (long long)bytes,
                     (long long)good[i].bytes);
    }
}

static const char *const bad[] = {
    "",       " ",      "G",
    "24X",    "24 G",   " 24G",
    "24G ",   "-1",     "+1",
    "1e9",    "0x10",   ".5G",
    "1.G",    "1.5",    "1.5B",
    "1..5G",  "1.5.5G", "24GG",
    "24GiBs", "24iB",   "24i",
    "24Gi",   "%",      "0%",
    "101%",   "-5%",    "1.5%",
    "5%%",    "5 %",    "G%",
    "nan",    "inf",    "99999999999999999999%",
};

static const char *const too_large[] = {
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551617",
    "99999999999999999999999G",
    "8388608T",
    "9007199254740992K",
};

static void check_refused(const char *text, const char *expect)
{
    int64_t bytes = 77;

    if (ckpt_parse_size(text, &bytes) != CKPT_EINVAL)
        fail_msg("'%s' is taken for a size", text);
    assert_int_equal(bytes, 77);
    if (!strstr(error_get(), text) || !strstr(error_get(), expect))
        fail_msg("'%s': the sentence is '%s'", text, error_get());
}

static void test_bad(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        check_refused(bad[i], "%");
    for (size_t i = 0; i < sizeof(too_large) / sizeof(too_large[0]); i++)
        check_refused(too_large[i], "too large");
    int64_t bytes;
    assert_int_equal(ckpt_parse_size(NULL, &bytes), CKPT_EINVAL);
}

static void test_human(void **state)
{
    (void)state;
    assert_string_equal(human_bytes(0), "0 B");
    assert_string_equal(human_bytes(1023), "1023 B");
    assert_string_equal(human_bytes(1024), "1.00 KiB");
    assert_string_equal(human_bytes(1536), "1.50 KiB");
    assert_string_equal(human_bytes(1024 * 1024 - 1), "1.00 MiB");
    assert_string_equal(human_bytes((int64_t)5 << 28), "1.25 GiB");
    assert_string_equal(human_bytes(-2048), "-2.00 KiB");
    assert_string_equal(human_bytes(INT64_MAX), "8.00 EiB");
}

static void test_human_keeps_neighbours(void **state)
{
    (void)state;
    const char *a = human_bytes(1), *b = human_bytes(2), *c = human_bytes(3);
    assert_string_equal(a, "1 B");
    assert_string_equal(b, "2 B");
    assert_string_equal(c, "3 B");
}

static void test_human_times(void **state)
{
    (void)state;
    assert_string_equal(human_seconds(0), "0 s");
    assert_string_equal(human_seconds(1.5), "1.5 s");
    assert_string_equal(human_seconds(0.23456), "234.6 ms");
    assert_string_equal(human_seconds(12e-6), "12 us");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_human),       cmocka_unit_test(test_human_keeps_neighbours),
        cmocka_unit_test(test_human_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
