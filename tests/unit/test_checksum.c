/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of blocks and files: known answers, changes that they must detect, and the table that
 * stores them. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/checksum.h"
#include "memory/tier/sum_table.h"

enum { BYTES = 4096 };

static void fill(unsigned char *data, uint64_t seed)
{
    for (int i = 0; i < BYTES; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        data[i] = (unsigned char)(seed >> 56);
    }
}

static void test_every_bit(void **state)
{
    (void)state;
    static unsigned char data[BYTES];
    for (int seed = 0; seed < 2; seed++) {
        memset(data, 0, BYTES);
        if (seed)
            fill(data, (uint64_t)seed);
        uint64_t sum = checksum(data, BYTES);
        for (int bit = 0; bit < 8 * BYTES; bit++) {
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
            assert_true(checksum(data, BYTES) != sum);
            data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        assert_true(checksum(data, BYTES) == sum);
    }
}

/* Changes that a plain sum would not detect: two flips of one bit in words of one chain; swapped
 * words and lines; a line of zeros more or less; swapped sectors. */
static void test_patterns(void **state)
{
    (void)state;
    static unsigned char data[BYTES], other[BYTES];
    fill(data, 7);
    uint64_t sum = checksum(data, BYTES);
    for (int bit = 0; bit < 64; bit++) {
        for (int far = 64; far < BYTES; far *= 2) {
            memcpy(other, data, BYTES);
            other[bit / 8] ^= (unsigned char)(1 << bit % 8);
            other[bit / 8 + far] ^= (unsigned char)(1 << bit % 8);
            assert_true(checksum(other, BYTES) != sum);
        }
    }
    for (int part = 8; part <= 512; part *= 2) {
        memcpy(other, data, BYTES);
        memcpy(other, data + part, (size_t)part);
        memcpy(other + part, data, (size_t)part);
        assert_true(checksum(other, BYTES) != sum);
    }
    memset(other, 0, BYTES);
    for (int n = 0; n < BYTES; n++)
        assert_true(checksum(other, n) != checksum(other, n + 1));
}

/* The sum depends on the bytes, not on their address. */
static void test_value(void **state)
{
    (void)state;
    static unsigned char data[BYTES + 64];
    fill(data, 9);
    uint64_t sum = checksum(data, 1000);
    for (int skew = 0; skew < 64; skew++) {
        memmove(data + skew, data + (skew ? skew - 1 : 0), 1000);
        assert_true(checksum(data + skew, 1000) == sum);
    }
    assert_true(checksum("", 0) == checksum(data, 0));
}

/* The definition is part of file formats: computed here by a separate implementation of the text in
 * checksum.h. */
static void test_known_answers(void **state)
{
    (void)state;
    static unsigned char data[200];
    for (int i = 0; i < 200; i++)
        data[i] = (unsigned char)(7 * i + 3);
    assert_true(checksum(data, 0) == UINT64_C(0xa6e46786235881d7));
    assert_true(checksum(data, 1) == UINT64_C(0x4d14b42a4dbd2c9c));
    assert_true(checksum(data, 8) == UINT64_C(0x8c489ab3528e98ec));
    assert_true(checksum(data, 63) == UINT64_C(0x084c74bb5b2fca6e));
    assert_true(checksum(data, 64) == UINT64_C(0x1b9d5919af62cd33));
    assert_true(checksum(data, 65) == UINT64_C(0xe941615f5fe5bea3));
    assert_true(checksum(data, 200) == UINT64_C(0x65ec0a371f6bce8b));
}

/* Parts of whole blocks give the sum of the whole. */
static void test_parts(void **state)
{
    (void)state;
    static unsigned char data[BYTES];
    fill(data, 11);
    for (int part = CHECKSUM_BLOCK; part < BYTES; part *= 2) {
        struct checksum s;
        int n = BYTES - 13;
        checksum_begin(&s);
        for (int at = 0; at < n; at += part)
            checksum_add(&s, data + at, at + part < n ? part : n - at);
        assert_true(checksum_end(&s) == checksum(data, n));
    }
}

static void test_table(void **state)
{
    (void)state;
    struct sum_table t;
    uint64_t sum = 0;
    sum_table_init(&t);
    assert_false(sum_table_get(&t, 0, 4096, &sum));
    for (int64_t i = 0; i < 5000; i++)
        assert_int_equal(sum_table_put(&t, i * 4096, 4096 * (1 + i % 3), (uint64_t)i), 0);
    for (int64_t i = 0; i < 5000; i += 2)
        assert_int_equal(sum_table_put(&t, i * 4096, 4096, (uint64_t)-i), 0);
    assert_int_equal(t.n, 5000);
    for (int64_t i = 0; i < 5000; i++) {
        int64_t bytes = i % 2 ? 4096 * (1 + i % 3) : 4096;
        assert_true(sum_table_get(&t, i * 4096, bytes, &sum));
        assert_true(sum == (i % 2 ? (uint64_t)i : (uint64_t)-i));
        assert_false(sum_table_get(&t, i * 4096, bytes + 4096, &sum));
        assert_false(sum_table_get(&t, i * 4096 + 2048, bytes, &sum));
    }
    sum_table_clear(&t);
    assert_false(sum_table_get(&t, 0, 4096, &sum));
    assert_int_equal(sum_table_put(&t, 4096, 4096, 1), 0);
    assert_true(sum_table_get(&t, 4096, 4096, &sum));
    sum_table_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_bit),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_value),
        cmocka_unit_test(test_known_answers),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
