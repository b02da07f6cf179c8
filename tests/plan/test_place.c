/* Quick placement: disjoint, close to the lower bound, the same every time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/models.h"
#include "plan/places.h"

static void test_random_intervals(void **state)
{
    (void)state;
    enum { N = 300, STEPS = 200 };
    for (uint32_t seed = 1; seed < 12; seed++) {
        struct place_item a[N], b[N];
        uint32_t x = seed;
        for (int32_t i = 0; i < N; i++) {
            a[i] = (struct place_item){.first = (int32_t)places_draw(&x, STEPS)};
            int32_t life = (int32_t)places_draw(&x, places_draw(&x, 4) ? 8 : STEPS);
            a[i].last = (int32_t)min_i64(STEPS - 1, a[i].first + life);
            a[i].bytes = CKPT_ALIGN * (1 + places_draw(&x, 100));
            b[i] = a[i];
        }
        int64_t load = places_load(a, N), peak, again;
        assert_int_equal(place_items(a, N, load, &peak), 0);
        assert_int_equal(place_items(b, N, load, &again), 0);
        assert_true(places_valid(a, N, peak));
        assert_true(peak >= load && (double)peak <= 1.03 * (double)load);
        assert_memory_equal(a, b, sizeof(a));
    }
}

/* Every address is a sum of sizes, so what is aligned stays aligned. */
static void test_alignment(void **state)
{
    (void)state;
    enum { N = 2000 };
    struct place_item *items = calloc(N, sizeof(*items));
    int64_t peak, load = model_trace(7, N, items);
    assert_int_equal(place_items(items, N, load, &peak), 0);
    for (int32_t i = 0; i < N; i++)
        assert_true(items[i].offset % CKPT_ALIGN == 0);
    free(items);
}

/* A forward pass allocates, a backward pass frees: nested intervals pack without a hole. */
static void test_nested(void **state)
{
    (void)state;
    struct place_item a[50];
    for (int32_t i = 0; i < 50; i++)
        a[i] = (struct place_item){i, 99 - i, CKPT_ALIGN * (1 + i % 7), 0};
    int64_t load = places_load(a, 50), peak;
    assert_int_equal(place_items(a, 50, load, &peak), 0);
    assert_true(places_valid(a, 50, peak));
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

/* What training leaves behind is placed within 0.3 % of the bound. */
static void test_traces(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1000, 3000, 8000};
    for (int k = 0; k < 3; k++) {
        struct place_item *items = calloc((size_t)sizes[k], sizeof(*items));
        assert_non_null(items);
        int64_t load = model_trace((uint32_t)k, sizes[k], items), counted, peak;
        assert_int_equal(place_load(items, sizes[k], &counted), 0);
        assert_true(counted == places_load(items, sizes[k]) && counted == load);
        assert_int_equal(place_items(items, sizes[k], load, &peak), 0);
        assert_true(places_valid(items, sizes[k], peak));
        assert_true((double)peak <= 1.003 * (double)load);
        free(items);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_intervals), cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_nested),           cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_traces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
