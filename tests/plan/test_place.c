/* SPDX-License-Identifier: Apache-2.0 */
/* Quick placement: disjoint addresses, close to the lower bound, the same every time. */
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
        int64_t load = places_load(a, N, 0), peak, again;
        assert_int_equal(place_items(a, N, load, &peak), 0);
        assert_int_equal(place_items(b, N, load, &again), 0);
        assert_true(places_valid(a, N, 0, peak));
        assert_true(peak >= load && (double)peak <= 1.03 * (double)load);
        assert_memory_equal(a, b, sizeof(a));
    }
}

/* Every address is a sum of sizes, so aligned sizes give aligned addresses. */
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
    int64_t load = places_load(a, 50, 0), peak;
    assert_int_equal(place_items(a, 50, load, &peak), 0);
    assert_true(places_valid(a, 50, 0, peak));
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

/* Lifetimes as in training are placed within 0.3 % of the bound. */
static void test_traces(void **state)
{
    (void)state;
    static const int32_t sizes[] = {1000, 3000, 8000};
    for (int k = 0; k < 3; k++) {
        struct place_item *items = calloc((size_t)sizes[k], sizeof(*items));
        assert_non_null(items);
        int64_t load = model_trace((uint32_t)k, sizes[k], items), counted, peak;
        assert_int_equal(place_load(items, sizes[k], &counted), 0);
        assert_true(counted == places_load(items, sizes[k], 0) && counted == load);
        assert_int_equal(place_items(items, sizes[k], load, &peak), 0);
        assert_true(places_valid(items, sizes[k], 0, peak));
        assert_true((double)peak <= 1.003 * (double)load);
        free(items);
    }
}

/* Up to a tenth of the items, all of them small, or all items: some begin late and end early in the
 * next turn. */
static void draw_cycle(struct place_item *items, int32_t n, int32_t steps, uint32_t bytes,
                       uint32_t *x)
{
    for (int32_t i = 0; i < n; i++) {
        int32_t first = (int32_t)places_draw(x, (uint32_t)steps);
        int32_t life = (int32_t)places_draw(x, places_draw(x, 3) ? (uint32_t)steps / 4 + 1
                                                                 : (uint32_t)steps - 1);
        items[i] = (struct place_item){first, first + life, 1 + places_draw(x, bytes), 0};
    }
}

/* On a cycle few items are at their lowest address, or near it. */
static void test_cycle_brute(void **state)
{
    (void)state;
    enum { N = 7, STEPS = 10, SEEDS = 300 };
    int32_t lowest = 0;
    for (uint32_t seed = 1; seed <= SEEDS; seed++) {
        struct place_item a[N], b[N];
        uint32_t x = seed;
        int64_t peak;
        draw_cycle(a, N, STEPS, 4, &x);
        memcpy(b, a, sizeof(a));
        assert_int_equal(place_cycle(a, N, NULL, STEPS, 0, INT64_MAX, &peak), 0);
        assert_true(places_valid(a, N, STEPS, peak));
        int64_t least = places_lowest(b, N, STEPS);
        assert_true(peak >= least && peak <= least + 1);
        lowest += peak == least;
    }
    assert_true(lowest >= SEEDS * 9 / 10);
}

static void test_cycle(void **state)
{
    (void)state;
    enum { N = 400, STEPS = 150 };
    for (uint32_t seed = 1; seed < 8; seed++) {
        struct place_item a[N], b[N];
        uint32_t x = seed;
        int64_t peak, again;
        draw_cycle(a, N, STEPS, 100, &x);
        for (int32_t i = 0; i < N; i++)
            a[i].bytes *= CKPT_ALIGN;
        memcpy(b, a, sizeof(a));
        int64_t load = places_load(a, N, STEPS);
        assert_int_equal(place_cycle(a, N, NULL, STEPS, 0, INT64_MAX, &peak), 0);
        assert_int_equal(place_cycle(b, N, NULL, STEPS, 0, INT64_MAX, &again), 0);
        assert_true(places_valid(a, N, STEPS, peak));
        assert_memory_equal(a, b, sizeof(a));
        assert_true((double)peak <= 1.1 * (double)load);
        for (int32_t i = 0; i < N; i++)
            assert_true(a[i].offset % CKPT_ALIGN == 0);
        assert_int_equal(place_cycle(b, N, NULL, STEPS, INT64_MAX, INT64_MAX, &again), 0);
        assert_true(places_valid(b, N, STEPS, again));
    }
}

/* The items that wrap in one placement stay fixed, another list of items is placed around them: all
 * are disjoint. */
static void test_around(void **state)
{
    (void)state;
    enum { N = 300, STEPS = 150 };
    for (uint32_t seed = 1; seed < 8; seed++) {
        struct place_item a[N], b[N], again[N];
        bool fixed[N];
        uint32_t x = seed, n_fixed = 0;
        int64_t peak, around, same;
        draw_cycle(a, N, STEPS, 100, &x);
        assert_int_equal(place_cycle(a, N, NULL, STEPS, 0, INT64_MAX, &peak), 0);
        draw_cycle(b, N, STEPS, 100, &x);
        for (int32_t i = 0; i < N; i++) {
            fixed[i] = a[i].last >= STEPS;
            n_fixed += fixed[i];
            b[i] = fixed[i] ? a[i] : b[i];
        }
        assert_true(n_fixed > 10);
        memcpy(again, b, sizeof(b));
        assert_int_equal(place_cycle(b, N, fixed, STEPS, 0, INT64_MAX, &around), 0);
        assert_true(places_valid(b, N, STEPS, around));
        for (int32_t i = 0; i < N; i++)
            assert_true(!fixed[i] || b[i].offset == a[i].offset);
        assert_int_equal(place_cycle(again, N, fixed, STEPS, 0, INT64_MAX, &same), 0);
        assert_memory_equal(again, b, sizeof(b));
        assert_int_equal(place_cycle(again, N, fixed, STEPS, INT64_MAX, INT64_MAX, &same), 0);
        assert_true(same >= around && places_valid(again, N, STEPS, same));
    }
}

/* All items fixed: none moves.  No item fixed: like any other cycle. */
static void test_around_all(void **state)
{
    (void)state;
    enum { N = 60, STEPS = 40 };
    struct place_item a[N], b[N];
    bool all[N], none[N] = {false};
    uint32_t x = 3;
    int64_t peak, around;
    memset(all, true, sizeof(all));
    draw_cycle(a, N, STEPS, 100, &x);
    assert_int_equal(place_cycle(a, N, NULL, STEPS, 0, INT64_MAX, &peak), 0);
    memcpy(b, a, sizeof(a));
    assert_int_equal(place_cycle(b, N, all, STEPS, 0, INT64_MAX, &around), 0);
    assert_memory_equal(a, b, sizeof(a));
    assert_true(around == peak);
    assert_int_equal(place_cycle(b, N, none, STEPS, 0, INT64_MAX, &around), 0);
    assert_memory_equal(a, b, sizeof(a));
}

/*
 * Two peaks: items that wrap are nested around the end of the turn, all others around its middle,
 * and together they reach nearly the load at all times.  Sizes do not match, so that only an arena
 * filled from both ends has few holes.
 */
static void test_two_ends(void **state)
{
    (void)state;
    enum { LAYERS = 60, STEPS = 4 * LAYERS };
    struct place_item a[3 * LAYERS];
    uint32_t x = 5;
    int64_t peak;
    int32_t n = 0;
    for (int32_t i = 0; i < LAYERS; i++) {
        a[n++] = (struct place_item){2 * i + 1, STEPS - 2 - 2 * i, CKPT_ALIGN * 64, 0};
        a[n++] =
            (struct place_item){2 * i + 1, 2 * i + 1, CKPT_ALIGN * (1 + places_draw(&x, 99)), 0};
        a[n++] = (struct place_item){STEPS - 1 - 2 * i, STEPS + 2 * i, CKPT_ALIGN * 65, 0};
    }
    assert_int_equal(place_cycle(a, n, NULL, STEPS, 0, INT64_MAX, &peak), 0);
    assert_true(places_valid(a, n, STEPS, peak));
    assert_true((double)peak <= 1.01 * (double)places_load(a, n, STEPS));
}

/* A cycle without items that wrap is a line. */
static void test_no_cycle(void **state)
{
    (void)state;
    enum { N = 1000 };
    struct place_item a[N], b[N];
    int64_t load = model_trace(3, N, a), peak, line;
    int32_t steps = 0;
    for (int32_t i = 0; i < N; i++)
        steps = a[i].last >= steps ? a[i].last + 1 : steps;
    memcpy(b, a, sizeof(a));
    assert_int_equal(place_cycle(a, N, NULL, steps, load, INT64_MAX, &peak), 0);
    assert_int_equal(place_items(b, N, load, &line), 0);
    assert_true(peak == line);
    assert_memory_equal(a, b, sizeof(a));
    assert_int_equal(place_cycle(a, N, NULL, steps, INT64_MAX, INT64_MAX, &peak), 0);
    assert_true(places_valid(a, N, 0, peak));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_intervals),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_nested),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_traces),
        cmocka_unit_test(test_cycle_brute),
        cmocka_unit_test(test_cycle),
        cmocka_unit_test(test_two_ends),
        cmocka_unit_test(test_no_cycle),
        cmocka_unit_test(test_around),
        cmocka_unit_test(test_around_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
