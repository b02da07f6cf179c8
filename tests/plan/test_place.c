/* Static addresses: disjoint, close to the lower bound, the same every time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "plan/search.h"

static int64_t load_of(const struct place_item *a, int32_t n, int32_t steps)
{
    int64_t most = 0;
    for (int32_t k = 0; k < steps; k++) {
        int64_t now = 0;
        for (int32_t i = 0; i < n; i++)
            now += a[i].first <= k && k <= a[i].last ? a[i].bytes : 0;
        most = max_i64(most, now);
    }
    return most;
}

static void expect_disjoint(const struct place_item *a, int32_t n, int64_t peak)
{
    int64_t end = 0;
    for (int32_t i = 0; i < n; i++) {
        assert_true(a[i].offset >= 0 && a[i].offset % CKPT_ALIGN == 0);
        end = max_i64(end, a[i].offset + a[i].bytes);
        for (int32_t j = 0; j < i; j++) {
            bool apart_in_time = a[i].last < a[j].first || a[j].last < a[i].first;
            bool apart_in_space =
                a[i].offset + a[i].bytes <= a[j].offset || a[j].offset + a[j].bytes <= a[i].offset;
            assert_true(apart_in_time || apart_in_space);
        }
    }
    assert_true(end == peak);
}

static uint32_t draw(uint32_t *state, uint32_t n)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 10) % n;
}

static void test_random_intervals(void **state)
{
    (void)state;
    enum { N = 300, STEPS = 200 };
    for (uint32_t seed = 1; seed < 12; seed++) {
        struct place_item a[N], b[N];
        uint32_t x = seed;
        for (int32_t i = 0; i < N; i++) {
            a[i] = (struct place_item){.first = (int32_t)draw(&x, STEPS)};
            int32_t life = (int32_t)draw(&x, draw(&x, 4) ? 8 : STEPS);
            a[i].last = (int32_t)min_i64(STEPS - 1, a[i].first + life);
            a[i].bytes = CKPT_ALIGN * (1 + draw(&x, 100));
            b[i] = a[i];
        }
        int64_t load = load_of(a, N, STEPS), peak, again;
        assert_int_equal(place_items(a, N, load, &peak), 0);
        assert_int_equal(place_items(b, N, load, &again), 0);
        expect_disjoint(a, N, peak);
        assert_true(peak >= load && (double)peak <= 1.12 * (double)load);
        assert_true(peak == again);
        for (int32_t i = 0; i < N; i++)
            assert_true(a[i].offset == b[i].offset);
    }
}

/* A forward pass allocates, a backward pass frees: nested intervals pack without a hole. */
static void test_nested(void **state)
{
    (void)state;
    struct place_item a[50];
    for (int32_t i = 0; i < 50; i++)
        a[i] = (struct place_item){i, 99 - i, CKPT_ALIGN * (1 + i % 7), 0};
    int64_t load = load_of(a, 50, 100), peak;
    assert_int_equal(place_items(a, 50, load, &peak), 0);
    expect_disjoint(a, 50, peak);
    assert_true(peak == load);
}

static void test_nothing(void **state)
{
    (void)state;
    struct place_item none;
    int64_t peak = -1;
    assert_int_equal(place_items(&none, 0, 0, &peak), 0);
    assert_true(peak == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_intervals),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
