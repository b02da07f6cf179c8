/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stages against the simulation: after any moves, undone or not, the incrementally updated bytes
 * and ticks equal those of a simulation of the whole schedule, exactly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include "graphs.h"
#include "plan/search/stages.h"

struct fixture {
    struct program *p;
    struct simulator *sim;
    struct stages *x;
    const int32_t *retention;
    uint32_t random;
    int moves, dropped_twice;
};

static uint32_t draw(struct fixture *f, uint32_t n)
{
    f->random = f->random * 1664525u + 1013904223u;
    return (f->random >> 10) % n;
}

/* Storages with several gaps in one pass, which only spans can express. */
static int count_dropped_twice(const struct fixture *f)
{
    int count = 0, n_storages = f->p->g->n_storages;
    for (int32_t s = 0; s < n_storages; s++) {
        int32_t n = 0;
        if (retention_has_spans(f->retention[s]))
            retention_spans(f->retention, n_storages, s, &n);
        count += n > 2;
    }
    return count;
}

/* The largest sum of bytes over all residences; a simulation adds only the bytes that no retention
 * interval changes. */
static int64_t peak_of_instances(struct fixture *f, const struct schedule *s)
{
    const struct graph *g = f->p->g;
    int64_t now = 0, most = 0, *change = calloc((size_t)s->n_steps + 2, sizeof(*change));
    assert_int_equal(schedule_complete(f->sim), 0);
    for (int32_t i = 0; i < s->n_residences; i++) {
        const struct residence *t = &s->residences.data[i];
        change[t->first] += g->storages[t->storage].bytes;
        change[t->last + 1] -= g->storages[t->storage].bytes;
    }
    for (int32_t k = 0; k < s->n_steps; k++) {
        now += change[k];
        most = max_i64(most, now + g->ops[s->steps.data[k].op].workspace);
    }
    free(change);
    return most;
}

static void compare(struct fixture *f)
{
    const struct schedule *s;
    f->retention = stages_retention(f->x);
    assert_non_null(f->retention);
    int rc = simulate(f->sim, f->retention, &s);
    if (rc == SIMULATE_TOO_LONG)
        return;
    assert_int_equal(rc, 0);
    assert_true(f->x->ticks == s->ticks);
    assert_int_equal(f->x->n_steps, s->n_steps);
    assert_int_equal(stages_peak(f->x), s->load);
    assert_int_equal(peak_of_instances(f, s), s->load);
    f->dropped_twice += count_dropped_twice(f);
}

static int64_t excess_of(const struct fixture *f)
{
    int64_t sum = 0;
    for (int32_t t = 0; t < f->p->g->n_ops; t++)
        sum += max_i64(range_max_at(&f->x->top, t) - f->x->top.target, 0);
    return sum;
}

static bool move(struct fixture *f)
{
    int32_t s = (int32_t)draw(f, (uint32_t)f->p->g->n_storages);
    const struct uses *l = &f->x->uses[s];
    if (!f->p->droppable[s] || l->n < 2)
        return false;
    int32_t i = (int32_t)draw(f, (uint32_t)l->n - 1);
    int32_t from = use_stage(l, i), to = use_stage(l, i + 1), room = to - from - 1;
    if (stages_fixed(f->x, s, i))
        return false;
    bool shift = room > 0 && draw(f, 3) == 0;
    if (shift)
        stages_shift(f->x, s, i, from + 1 + (int32_t)draw(f, (uint32_t)room));
    else
        stages_toggle(f->x, s, i);
    return true;
}

static void walk(struct fixture *f)
{
    for (int n = 0; n < 600; n++) {
        int64_t peak = stages_peak(f->x), excess = f->x->top.excess, ticks = f->x->ticks;
        if (!move(f))
            continue;
        f->moves++;
        assert_false(f->x->memory.failed);
        assert_int_equal(f->x->top.excess, excess_of(f));
        if (draw(f, 2)) {
            stages_undo(f->x);
            assert_int_equal(stages_peak(f->x), peak);
            assert_int_equal(f->x->top.excess, excess);
            assert_true(f->x->ticks == ticks);
        } else {
            stages_accept(f->x);
        }
        if (n % 4 == 0)
            compare(f);
    }
}

static void run(struct fixture *f, struct graph *g)
{
    const struct schedule *s;
    struct pool m = {NULL, false};
    assert_int_equal(program_build(g, &f->p), 0);
    assert_int_equal(simulator_new(f->p, &f->sim), 0);
    assert_int_equal(stages_new(f->p, &f->x), 0);
    f->retention = retain_all(f->p, &m);
    assert_non_null(f->retention);
    assert_int_equal(simulate(f->sim, f->retention, &s), 0);
    assert_int_equal(stages_load(f->x, s), 0);
    assert_int_equal(stages_peak(f->x), s->load);
    range_max_aim(&f->x->top, s->load / 2);
    walk(f);
    /* The final schedule, loaded again, is the same. */
    compare(f);
    if (!simulate(f->sim, f->retention, &s)) {
        assert_int_equal(stages_load(f->x, s), 0);
        compare(f);
    }
    pool_free(&m);
    stages_free(f->x);
    simulator_free(f->sim);
    program_free(f->p);
    graph_free(g);
}

static void test_regular(void **state)
{
    (void)state;
    struct fixture f = {.random = 1};
    run(&f, graph_chain(12, 1 << 12));
    run(&f, graph_transformer(2, 1 << 12, 1));
    run(&f, graph_transformer(1, 1 << 12, 3));
    run(&f, graph_unet(4, 1 << 12));
    assert_true(f.moves > 500 && f.dropped_twice > 50);
}

static void test_random(void **state)
{
    (void)state;
    struct fixture f = {.random = 2};
    for (uint32_t seed = 1; seed <= 60; seed++)
        run(&f, graph_random(seed, 4 + (int32_t)(seed % 30)));
    assert_true(f.moves > 5000 && f.dropped_twice > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regular),
        cmocka_unit_test(test_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
