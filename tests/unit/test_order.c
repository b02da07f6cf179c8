/* SPDX-License-Identifier: Apache-2.0 */
/* The order of samples: torch's, every row once per epoch, the same from any start. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "examples/common/order.h"

const char say_program[] = "test_order";

enum { ROWS = 10, EPOCHS = 3 };

static void take(int64_t *row, uint64_t seed, bool keeps)
{
    struct sample_order o;

    assert_int_equal(sample_order_open(&o, ROWS, seed, keeps), 0);
    for (int64_t i = 0; i < ROWS * EPOCHS; i++)
        row[i] = sample_order_row(&o, i);
    sample_order_close(&o);
}

/* torch.randperm(10, generator=torch.Generator().manual_seed(seed)), seed 42, then 43. */
static void is_torchs(void **state)
{
    static const int64_t expected[] = {2, 6, 1, 8, 4, 5, 0, 9, 3, 7, 8, 4, 9, 0, 5, 1, 6, 7, 2, 3};
    int64_t row[ROWS * EPOCHS];

    (void)state;
    take(row, 42, false);
    for (int i = 0; i < 2 * ROWS; i++)
        assert_int_equal(row[i], expected[i]);
}

static void has_every_row_once(void **state)
{
    int64_t row[ROWS * EPOCHS];

    (void)state;
    take(row, 7, false);
    for (int e = 0; e < EPOCHS; e++) {
        bool seen[ROWS] = {false};
        for (int i = 0; i < ROWS; i++) {
            assert_false(seen[row[e * ROWS + i]]);
            seen[row[e * ROWS + i]] = true;
        }
    }
}

/* In any order, and after any other sample. */
static void follows_from_the_sample(void **state)
{
    int64_t row[ROWS * EPOCHS];
    struct sample_order o;

    (void)state;
    take(row, 7, false);
    assert_int_equal(sample_order_open(&o, ROWS, 7, false), 0);
    for (int64_t i = 0; i < ROWS * EPOCHS; i++) {
        int64_t sample = i * 7 % (ROWS * EPOCHS);
        assert_int_equal(sample_order_row(&o, sample), row[sample]);
    }
    sample_order_close(&o);
}

static void keeps(void **state)
{
    int64_t row[ROWS * EPOCHS];
    struct sample_order o;

    (void)state;
    take(row, 7, true);
    for (int i = 0; i < ROWS * EPOCHS; i++)
        assert_int_equal(row[i], i % ROWS);
    assert_int_equal(sample_order_open(&o, 1, 7, false), 0);
    assert_int_equal(sample_order_row(&o, 5), 0);
    sample_order_close(&o);
    assert_int_equal(sample_order_open(&o, INT64_C(1) << 40, 7, false), -1);
    assert_int_equal(sample_order_open(&o, INT64_C(1) << 40, 7, true), 0);
    assert_int_equal(sample_order_row(&o, 5), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_torchs), cmocka_unit_test(has_every_row_once),
        cmocka_unit_test(follows_from_the_sample), cmocka_unit_test(keeps)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
