/* SPDX-License-Identifier: Apache-2.0 */
/* The tree search: hard instances, the true optimum of small ones, and honest answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cli/place_csv.h"
#include "plan/places.h"

#define HARD 1048576 /* the capacity of the hard instances */

static void read_instance(const char *name, struct place_file *file)
{
    const char *srcdir = getenv("srcdir");
    char path[512];
    snprintf(path, sizeof(path), "%s/tests/data/minimalloc/%s.csv", srcdir ? srcdir : ".", name);
    if (place_file_read(path, file))
        fail_msg("%s", error_get());
}

static void expect_placed(struct place_item *items, int32_t n, int64_t capacity)
{
    struct place_request q = {.capacity = capacity, .work = 400000000};
    struct place_result r;
    assert_int_equal(plan_place(items, n, &q, &r), 0);
    assert_true(places_valid(items, n, 0, r.peak));
    assert_true(r.load == places_load(items, n, 0));
    assert_true(r.peak <= capacity);
}

static void test_hard_instances(void **state)
{
    (void)state;
    static const char *const names[] = {"A", "B", "C", "D", "E", "F"};
    for (int k = 0; k < 6; k++) {
        struct place_file file;
        char name[32];
        snprintf(name, sizeof(name), "%s.%d", names[k], HARD);
        read_instance(name, &file);
        expect_placed(file.items, file.n, HARD);
        place_file_free(&file);
    }
}

/* The same instance looks different with its time reversed, its ids shuffled, its sizes scaled. */
static void test_variations(void **state)
{
    (void)state;
    struct place_file file;
    read_instance("B.1048576", &file);
    for (uint32_t seed = 1; seed < 4; seed++) {
        uint32_t x = seed;
        for (int32_t i = 0; i < file.n; i++) {
            struct place_item *a = &file.items[i];
            int32_t first = a->first;
            a->first = 100000 - a->last;
            a->last = 100000 - first;
            a->bytes *= seed;
        }
        for (int32_t i = file.n - 1; i > 0; i--) {
            int32_t j = (int32_t)places_draw(&x, (uint32_t)i + 1);
            struct place_item swap = file.items[i];
            file.items[i] = file.items[j];
            file.items[j] = swap;
        }
        int64_t scale = seed == 3 ? 6 : seed;
        expect_placed(file.items, file.n, HARD * scale);
    }
    place_file_free(&file);
}

enum { FEW = 9 };

static void draw_small(uint32_t seed, struct place_item *a)
{
    static const int32_t steps[] = {9, 12, 7}, lives[] = {3, 5, 4};
    uint32_t x = seed * 77 + FEW;
    for (int32_t i = 0; i < FEW; i++) {
        int32_t first = i * steps[seed % 3] / FEW;
        int32_t life = (int32_t)places_draw(&x, (uint32_t)lives[seed % 3]);
        a[i] = (struct place_item){first, first + life, 1 + places_draw(&x, 9), 0};
    }
}

/* Without a capacity the true optimum is found and proved; one byte less is proved impossible. */
static void test_brute_force(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 1500; seed++) {
        struct place_item a[FEW];
        struct place_request q = {0};
        struct place_result r;
        draw_small(seed, a);
        int64_t lowest = places_lowest(a, FEW, 0);
        assert_int_equal(plan_place(a, FEW, &q, &r), 0);
        assert_true(places_valid(a, FEW, 0, r.peak));
        assert_true(r.peak == lowest && r.proved);
        q.capacity = lowest - 1;
        assert_int_equal(plan_place(a, FEW, &q, &r), 0);
        assert_true(r.peak >= lowest && r.proved && places_valid(a, FEW, 0, r.peak));
    }
}

/* Seldom must a peak exceed the load; here it must. */
static void test_above_load(void **state)
{
    (void)state;
    static const int64_t lowest[] = {20, 21}, loads[] = {18, 20};
    static const struct place_item sets[2][FEW] = {
        {{0, 1, 4, 0},
         {1, 2, 1, 0},
         {2, 3, 9, 0},
         {3, 5, 8, 0},
         {4, 6, 4, 0},
         {5, 7, 5, 0},
         {6, 7, 4, 0},
         {7, 8, 9, 0},
         {8, 10, 7, 0}},
        {{0, 0, 8, 0},
         {1, 2, 8, 0},
         {2, 6, 9, 0},
         {4, 4, 2, 0},
         {5, 8, 5, 0},
         {6, 9, 6, 0},
         {8, 9, 6, 0},
         {9, 10, 7, 0},
         {10, 13, 8, 0}},
    };
    for (int k = 0; k < 2; k++) {
        struct place_item a[FEW];
        struct place_request q = {0};
        struct place_result r;
        memcpy(a, sets[k], sizeof(a));
        assert_true(places_lowest(a, FEW, 0) == lowest[k]);
        assert_int_equal(plan_place(a, FEW, &q, &r), 0);
        assert_true(places_valid(a, FEW, 0, r.peak));
        assert_true(r.peak == lowest[k] && r.load == loads[k] && r.proved);
    }
}

/* A perfect packing, made by cutting a block, is found again. */
static int32_t cut_block(uint32_t *x, struct place_item *a, int32_t most)
{
    int32_t n = 1;
    a[0] = (struct place_item){0, 39, 1000, 0};
    while (n < most) {
        struct place_item *it = &a[places_draw(x, (uint32_t)n)];
        a[n] = *it;
        if (places_draw(x, 2) && it->last > it->first) {
            it->last = it->first + (int32_t)places_draw(x, (uint32_t)(it->last - it->first));
            a[n++].first = it->last + 1;
        } else if (it->bytes > 1) {
            it->bytes = 1 + places_draw(x, (uint32_t)it->bytes - 1);
            a[n++].bytes -= it->bytes;
        }
    }
    return n;
}

static void test_perfect_packings(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 12; seed++) {
        struct place_item a[60];
        uint32_t x = seed;
        int32_t n = cut_block(&x, a, 40);
        assert_true(places_load(a, n, 0) == 1000);
        expect_placed(a, n, 1000);
    }
}

/* Work is counted, not timed: the same offsets on a busy machine. */
static void test_same_again(void **state)
{
    (void)state;
    struct place_request q = {.capacity = HARD, .work = 20000000};
    struct place_result first, second;
    struct place_file file, again;
    read_instance("E.1048576", &file);
    read_instance("E.1048576", &again);
    assert_int_equal(plan_place(file.items, file.n, &q, &first), 0);
    assert_int_equal(plan_place(again.items, again.n, &q, &second), 0);
    assert_memory_equal(&first.peak, &second.peak, sizeof(first.peak));
    assert_true(first.work == second.work);
    assert_memory_equal(file.items, again.items, (size_t)file.n * sizeof(*file.items));
    place_file_free(&file);
    place_file_free(&again);
}

/* Too little work gives a valid placement that is reported as not proved. */
static void test_little_work(void **state)
{
    (void)state;
    struct place_request q = {.capacity = 1000, .work = 1};
    struct place_result r;
    struct place_file file;
    read_instance("D.1048576", &file);
    assert_int_equal(plan_place(file.items, file.n, &q, &r), 0);
    assert_true(places_valid(file.items, file.n, 0, r.peak));
    assert_true(r.proved && r.load > 1000);
    q.capacity = r.load;
    assert_int_equal(plan_place(file.items, file.n, &q, &r), 0);
    assert_true(places_valid(file.items, file.n, 0, r.peak));
    assert_true(r.peak > q.capacity && !r.proved);
    place_file_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hard_instances),   cmocka_unit_test(test_variations),
        cmocka_unit_test(test_brute_force),      cmocka_unit_test(test_above_load),
        cmocka_unit_test(test_perfect_packings), cmocka_unit_test(test_same_again),
        cmocka_unit_test(test_little_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
