/* SPDX-License-Identifier: Apache-2.0 */
/* Placement of many items: the same holes as by a scan of all items, with far fewer visits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/models.h"
#include "plan/place/place.h"
#include "plan/place/place_pack.h"
#include "plan/places.h"
#include "plan/search/search.h"

/* Taken ranges, scanned one by one. */
struct taken {
    struct stretch life;
    int64_t begin, end;
};

static bool share(struct stretch a, struct stretch b)
{
    return a.lower < b.upper && b.lower < a.upper;
}

/* Moves up past obstacles until there is none. */
static int64_t lowest(const struct taken *t, int32_t n, struct stretch life,
                      const struct stretch *other, int64_t bytes)
{
    int64_t at = 0;
    for (int32_t j = 0; j < n; j++) {
        bool meets = share(t[j].life, life) || (other && share(t[j].life, *other));
        if (!meets || t[j].begin >= at + bytes || t[j].end <= at)
            continue;
        at = t[j].end;
        j = -1;
    }
    return at;
}

static struct stretch draw_life(uint32_t *x, int32_t sections)
{
    int32_t lower = (int32_t)places_draw(x, (uint32_t)sections);
    int32_t most = places_draw(x, 3) ? 4 : sections;
    int32_t life = 1 + (int32_t)places_draw(x, (uint32_t)most);
    return (struct stretch){lower, lower + life < sections ? lower + life : sections};
}

/* The same downwards. */
static int64_t highest(const struct taken *t, int32_t n, struct stretch life,
                       const struct stretch *other, int64_t bytes, int64_t cap)
{
    int64_t at = cap - bytes;
    for (int32_t j = 0; j < n && at >= 0; j++) {
        bool meets = share(t[j].life, life) || (other && share(t[j].life, *other));
        if (!meets || t[j].begin >= at + bytes || t[j].end <= at)
            continue;
        at = t[j].begin - bytes;
        j = -1;
    }
    return at >= 0 ? at : -1;
}

static void fill_room(struct room *r, int32_t sections, uint32_t seed)
{
    enum { N = 400 };
    struct taken t[2 * N];
    int32_t n = 0;
    for (int32_t i = 0; i < N; i++) {
        struct stretch life = draw_life(&seed, sections), other = draw_life(&seed, sections);
        bool two = places_draw(&seed, 5) == 0 && !share(life, other);
        int64_t bytes = 1 + places_draw(&seed, 50);
        int64_t at = room_lowest(r, life, two ? &other : NULL, bytes);
        assert_true(at == lowest(t, n, life, two ? &other : NULL, bytes));
        int64_t cap = places_draw(&seed, 4000);
        int64_t up = room_highest(r, life, two ? &other : NULL, bytes, cap);
        assert_true(up == highest(t, n, life, two ? &other : NULL, bytes, cap));
        at = up >= 0 && places_draw(&seed, 2) ? up : at;
        assert_int_equal(room_take(r, life, at, bytes), 0);
        t[n++] = (struct taken){life, at, at + bytes};
        if (!two)
            continue;
        assert_int_equal(room_take(r, other, at, bytes), 0);
        t[n++] = (struct taken){other, at, at + bytes};
    }
}

static void test_room(void **state)
{
    (void)state;
    static const int32_t sections[] = {1, 2, 3, 63, 64, 65, 300};
    for (int k = 0; k < 7; k++) {
        struct pool m = {NULL, false};
        struct room r;
        assert_int_equal(room_init(&r, sections[k], &m), 0);
        for (uint32_t seed = 1; seed < 6; seed++) {
            room_clear(&r);
            fill_room(&r, sections[k], seed);
        }
        pool_free(&m);
    }
}

/* Kept items do not move, and all others are placed as if all were placed at once. */
static void test_packing(void **state)
{
    (void)state;
    enum { N = 3500 };
    struct place_item *items = calloc(N, sizeof(*items));
    struct taken *t = calloc(N, sizeof(*t));
    int64_t *bytes = calloc(N, sizeof(*bytes)), peak, again;
    struct pool m = {NULL, false};
    struct sections s;
    struct packing k;
    model_trace(3, N, items);
    for (int32_t i = 0; i < N; i++)
        bytes[i] = items[i].bytes;
    assert_int_equal(sections_build(items, N, 0, &m, &s), 0);
    assert_int_equal(packing_init(&k, &s, bytes, &m), 0);
    for (int32_t j = 0; j < N; j++)
        k.order[j] = (int32_t)((int64_t)j * 1009 % N);
    assert_int_equal(packing_run(&k, 0, INT64_MAX, &peak), N);
    for (int32_t j = 0; j < N; j++) {
        int32_t i = k.order[j];
        struct stretch life = {s.lower[i], s.upper[i]};
        assert_true(k.offsets[i] == lowest(t, j, life, NULL, bytes[i]));
        t[j] = (struct taken){life, k.offsets[i], k.offsets[i] + bytes[i]};
    }
    assert_int_equal(packing_run(&k, N / 2, INT64_MAX, &again), N);
    assert_true(again == peak);
    for (int32_t j = 0; j < N; j++)
        assert_true(k.offsets[k.order[j]] == t[j].begin);
    assert_true(t[packing_highest(&k)].end == peak);
    pool_free(&m);
    free(items);
    free(bytes);
    free(t);
}

/* Visits per item do not grow with the number of items; without a tree each of 30,000 items was
 * visited 15,000 times. */
static void test_looks(void **state)
{
    (void)state;
    static const int32_t sizes[] = {3000, 10000, 30000};
    for (int k = 0; k < 3; k++) {
        int32_t n = sizes[k];
        struct place_item *items = calloc((size_t)n, sizeof(*items));
        struct place_item *twice = calloc((size_t)n, sizeof(*twice));
        int64_t load = model_trace((uint32_t)k, n, items), peak, again, looks;
        memcpy(twice, items, (size_t)n * sizeof(*items));
        assert_int_equal(place_counted(items, n, load, &peak, &looks), 0);
        assert_true(looks < 300 * (int64_t)n);
        assert_true((double)peak <= 1.001 * (double)load);
        assert_int_equal(place_items(twice, n, load, &again), 0);
        assert_true(again == peak);
        assert_memory_equal(items, twice, (size_t)n * sizeof(*items));
        assert_true(n > 10000 || places_valid(items, n, 0, peak));
        free(items);
        free(twice);
    }
}

/* A capacity above the load suffices: no further recipe is tried once it is reached. */
static void test_capacity(void **state)
{
    (void)state;
    enum { N = 4000, STEPS = 300 };
    struct place_item *items = calloc(N, sizeof(*items));
    uint32_t x = 9;
    for (int32_t i = 0; i < N; i++) {
        items[i].first = (int32_t)places_draw(&x, STEPS);
        items[i].last = items[i].first + (int32_t)places_draw(&x, STEPS);
        items[i].bytes = 1 + places_draw(&x, 100000);
    }
    int64_t load, peak, looks, fewer;
    assert_int_equal(place_load(items, N, &load), 0);
    assert_int_equal(place_counted(items, N, load, &peak, &looks), 0);
    assert_int_equal(place_counted(items, N, 2 * load, &peak, &fewer), 0);
    assert_true(peak <= 2 * load && fewer < looks);
    free(items);
}

static int32_t count_placed(const struct frontier *pf)
{
    int32_t n = 0;
    for (int32_t i = 0; i < pf->n; i++)
        n += pf->options.data[i].plan != NULL;
    return n;
}

/*
 * Limits on the work of planning a large graph: simulated steps, placed options, and their peaks
 * over the lower bound, since loose placements cause more options to be placed.  A few have 6 % of
 * fragmentation; the next option that fits is as fast for its bytes.
 */
static void check_effort(struct graph *g, double share, int64_t work, int32_t placed,
                         double loosest)
{
    struct frontier *pf;
    struct plan *p;
    assert_int_equal(frontier_build(g, &pf), 0);
    int64_t least = pf->options.data[0].load, most = pf->options.data[pf->n - 1].load;
    int64_t device = pf->p->persistent + least + (int64_t)(share * (double)(most - least));
    struct budgets b = {.device = device};
    assert_int_equal(frontier_plan(pf, &machine_cpu, &b, 0, &p), 0);
    assert_int_equal(plan_check(g, p), 0);
    assert_true(simulator_work(pf->sim) < work);
    assert_true(count_placed(pf) <= placed);
    for (int32_t i = 0; i < pf->n; i++) {
        const struct option *o = &pf->options.data[i];
        assert_true(!o->plan || (double)o->plan->transient <= loosest * (double)o->plan->load);
    }
    plan_free(p);
    frontier_free(pf);
    graph_free(g);
}

static void test_effort(void **state)
{
    (void)state;
    check_effort(model_synthetic(12000), 0.4, 12000000, 5, 1.05);
    check_effort(model_stdit(56, false, &machine_cpu), 0.2, 12000000, 5, 1.07);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_room),   cmocka_unit_test(test_packing),
        cmocka_unit_test(test_looks),  cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_effort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
