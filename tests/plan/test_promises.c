/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Promises of the planner: a plan under every budget from the smallest on, never slower with more,
 * refused one byte below; the same plan for the same request; every plan passes the checker.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "plan/watch.h"
#include "graphs.h"
#include "plan_make.h"

#define POINTS 100

/* A plan without lower tiers. */
static int make(const struct graph *g, int64_t device, int64_t reserved, struct plan **p)
{
    return plan_make(g, &machine_cpu, &(struct budgets){.device = device}, reserved, p);
}

static void sweep(struct graph *g)
{
    struct frontier *pf;
    assert_int_equal(frontier_build(g, &pf), 0);
    struct plan *all = frontier_checked(pf, INT64_MAX);
    int64_t least = all->min_budget, most = plan_peak(all);
    double slower = INFINITY;
    assert_true(least <= most);
    assert_true(all->recompute_seconds == 0 && all->next_budget == 0);
    for (int i = 0; i <= POINTS; i++) {
        struct plan *p = frontier_checked(pf, least + (most - least) / POINTS * i);
        assert_true(p->seconds <= slower);
        assert_true(p->min_budget == least);
        assert_true(p->seconds >= all->seconds);
        slower = p->seconds;
        plan_free(p);
    }
    plan_free(all);
    frontier_free(pf);
    graph_free(g);
}

static void test_sweep_chain(void **state)
{
    (void)state;
    sweep(graph_chain(24, 1 << 20));
}

static void test_sweep_transformer(void **state)
{
    (void)state;
    sweep(graph_transformer(3, 1 << 16, 1));
    sweep(graph_transformer(2, 1 << 16, 4));
}

static void test_sweep_unet(void **state)
{
    (void)state;
    sweep(graph_unet(5, 1 << 20));
}

static void test_sweep_random(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 4; seed++)
        sweep(graph_random(seed, 20));
}

/* Many random programs, a few budgets each. */
static void test_random_programs(void **state)
{
    (void)state;
    for (uint32_t seed = 100; seed < 130; seed++) {
        struct graph *g = graph_random(seed, 6 + (int32_t)(seed % 30));
        struct frontier *pf;
        assert_int_equal(frontier_build(g, &pf), 0);
        struct plan *all = frontier_checked(pf, INT64_MAX);
        struct plan *middle = frontier_checked(pf, (all->min_budget + plan_peak(all)) / 2);
        struct plan *least = frontier_checked(pf, all->min_budget);
        assert_true(least->seconds >= middle->seconds && middle->seconds >= all->seconds);
        plan_free(all);
        plan_free(middle);
        plan_free(least);
        frontier_free(pf);
        graph_free(g);
    }
}

static void test_refusal_is_exact(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(2, 1 << 16, 1);
    struct plan *all = plan_checked(g, INT64_MAX), *p;
    char bytes[32];
    int64_t least = all->min_budget;
    assert_int_equal(make(g, least, 0, &p), 0);
    assert_true(plan_peak(p) <= least);
    plan_free(p);
    assert_int_equal(make(g, least - 1, 0, &p), CKPT_EBUDGET);
    assert_null(p);
    snprintf(bytes, sizeof(bytes), "%lld bytes", (long long)least);
    assert_non_null(strstr(error_get(), bytes));
    assert_non_null(strstr(error_get(), g->ops[all->min_peak_op].name));
    assert_non_null(strstr(error_get(), "\n  try "));
    assert_int_equal(make(g, 0, 0, &p), CKPT_EBUDGET);
    plan_free(all);
    graph_free(g);
}

/* Reserved bytes count against the budget like all others. */
static void test_reserved(void **state)
{
    (void)state;
    struct graph *g = graph_chain(8, 1 << 16);
    struct plan *all = plan_checked(g, INT64_MAX), *p;
    int64_t reserved = 12345;
    assert_int_equal(make(g, all->min_budget + reserved - 1, reserved, &p), CKPT_EBUDGET);
    assert_int_equal(make(g, all->min_budget + reserved, reserved, &p), 0);
    assert_true(p->min_budget == all->min_budget + reserved);
    assert_true(plan_peak(p) + reserved <= p->budgets.device);
    plan_free(p);
    plan_free(all);
    graph_free(g);
}

/* The next budget named by a plan gives the named time. */
static void test_next_budget(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(3, 1 << 16, 1);
    struct frontier *pf;
    assert_int_equal(frontier_build(g, &pf), 0);
    struct plan *all = frontier_checked(pf, INT64_MAX);
    int64_t budget = all->min_budget;
    int steps = 0;
    for (;;) {
        struct plan *p = frontier_checked(pf, budget);
        if (p->next_budget == 0) {
            assert_true(p->seconds == all->seconds);
            plan_free(p);
            break;
        }
        assert_true(p->next_budget > budget && p->next_seconds < p->seconds);
        struct plan *below = frontier_checked(pf, p->next_budget - 1);
        struct plan *there = frontier_checked(pf, p->next_budget);
        assert_true(below->seconds == p->seconds);
        assert_true(there->seconds == p->next_seconds);
        budget = p->next_budget;
        steps++;
        plan_free(p);
        plan_free(below);
        plan_free(there);
        budget += (plan_peak(all) - all->min_budget) / 12;
    }
    assert_true(steps > 3);
    plan_free(all);
    frontier_free(pf);
    graph_free(g);
}

static void test_same_question_same_plan(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct graph *g = i ? graph_random(9, 40) : graph_transformer(2, 1 << 16, 2);
        struct plan *all = plan_checked(g, INT64_MAX);
        int64_t budget = (all->min_budget + plan_peak(all)) / 2;
        struct plan *a = plan_checked(g, budget), *b = plan_checked(g, budget);
        assert_int_equal(a->n_steps, b->n_steps);
        assert_int_equal(a->n_residences, b->n_residences);
        for (int32_t k = 0; k < a->n_steps; k++)
            assert_true(a->steps[k].op == b->steps[k].op && a->steps[k].again == b->steps[k].again);
        for (int32_t k = 0; k < a->n_residences; k++) {
            struct residence x = a->residences[k], y = b->residences[k];
            assert_true(x.storage == y.storage && x.offset == y.offset);
            assert_true(x.first == y.first && x.last == y.last);
        }
        assert_true(a->transient == b->transient && a->seconds == b->seconds);
        plan_free(a);
        plan_free(b);
        plan_free(all);
        graph_free(g);
    }
}

/* Near half of the memory of a uniform chain costs each dropped layer once; the smallest plan of a
 * long chain takes far less than the square root of it. */
static void test_curve_of_a_chain(void **state)
{
    (void)state;
    struct graph *g = graph_chain(64, 1 << 20);
    struct plan *all = plan_checked(g, INT64_MAX);
    struct plan *half = plan_checked(g, plan_peak(all) / 2);
    struct plan *third = plan_checked(g, plan_peak(all) / 3);
    assert_true(half->seconds <= 1.30 * all->seconds);
    assert_true(third->seconds <= 1.42 * all->seconds);
    assert_true(all->min_budget <= 8 << 20);
    plan_free(all);
    plan_free(half);
    plan_free(third);
    graph_free(g);
}

/* The cheap outputs are dropped first: a transformer frees a third for a few per cent of time. */
static void test_curve_of_a_transformer(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(6, 1 << 18, 1);
    struct plan *all = plan_checked(g, INT64_MAX);
    struct plan *p = plan_checked(g, all->persistent + all->transient * 7 / 10);
    assert_true(p->seconds <= 1.05 * all->seconds);
    plan_free(all);
    plan_free(p);
    graph_free(g);
}

/* If a step fits with everything kept, no search finds a faster plan; one byte below, the
 * unsearched frontier has no answer. */
static void first_is_fastest(struct graph *g)
{
    struct budgets b = {.device = INT64_MAX};
    struct plan *all = plan_checked(g, INT64_MAX), *p = plan_unsearched(g, &machine_cpu, &b, 0);
    assert_non_null(p);
    assert_int_equal(plan_check(g, p), 0);
    assert_true(p->seconds == all->seconds && p->bound_seconds == all->bound_seconds);
    assert_true(p->recompute_seconds == 0 && p->min_budget == 0 && p->next_budget == 0);
    b.device = plan_peak(p) + 100;
    plan_free(p);
    p = plan_unsearched(g, &machine_cpu, &b, 100);
    assert_non_null(p);
    assert_true(plan_peak(p) + 100 == b.device);
    plan_free(p);
    assert_null(plan_unsearched(g, &machine_cpu, &b, 101));
    plan_free(all);
    graph_free(g);
}

static void test_first(void **state)
{
    (void)state;
    first_is_fastest(graph_chain(24, 1 << 20));
    first_is_fastest(graph_transformer(2, 1 << 16, 4));
    first_is_fastest(graph_unet(5, 1 << 20));
    for (uint32_t seed = 1; seed <= 8; seed++)
        first_is_fastest(graph_random(seed, 20));
}

static double bound(struct frontier *pf, int64_t device)
{
    struct budgets b = {.device = device};
    double seconds;
    assert_int_equal(frontier_bound(pf, &machine_cpu, &b, 0, &seconds), 0);
    return seconds;
}

/* The bound and the plan use one cached frontier, also for a new graph with equal numbers, and it
 * gives the answers of a new one. */
static void test_first_is_kept(void **state)
{
    struct graph *g = graph_chain(24, 1 << 20), *same = graph_chain(24, 1 << 20);
    struct graph *other = graph_unet(5, 1 << 20);
    struct budgets b = {.device = INT64_MAX};
    struct frontiers *all;
    struct frontier *pf, *again, *fresh;
    struct plan *p, *want = plan_unsearched(g, &machine_cpu, &b, 0);
    (void)state;
    assert_int_equal(frontiers_new(&all), 0);
    assert_int_equal(frontier_build_first(g, &fresh), 0);
    const double at_all = bound(fresh, INT64_MAX), at_little = bound(fresh, 1);
    assert_true(at_all == want->seconds && at_little == INFINITY);
    assert_int_equal(frontiers_get_first(all, g, &pf), 0);
    assert_true(bound(pf, 1) == at_little && bound(pf, INT64_MAX) == at_all);
    frontier_free(fresh);
    graph_free(g);
    assert_int_equal(frontiers_get_first(all, same, &again), 0);
    assert_ptr_equal(pf, again);
    assert_int_equal(frontier_first(again, &machine_cpu, &b, 0, &p), 0);
    assert_int_equal(plan_check(same, p), 0);
    assert_true(p->seconds == want->seconds && plan_peak(p) == plan_peak(want));
    assert_int_equal(frontiers_get_first(all, other, &pf), 0);
    assert_true(bound(pf, INT64_MAX) != at_all);
    plan_free(p);
    plan_free(want);
    frontiers_free(all);
    graph_free(same);
    graph_free(other);
}

static void test_gaps(void **state)
{
    (void)state;
    struct graph *g = graph_chain(12, 1 << 16);
    struct plan *all = plan_checked(g, INT64_MAX), *least = plan_checked(g, all->min_budget);
    struct gap *gaps;
    int32_t n, dropped = 0;
    assert_int_equal(plan_gaps(g, all, &gaps, &n), 0);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++)
        assert_int_equal(gaps[i].fate, FATE_KEEP);
    free(gaps);
    assert_int_equal(plan_gaps(g, least, &gaps, &n), 0);
    for (int32_t i = 0; i < n; i++) {
        assert_true(gaps[i].from < gaps[i].to);
        assert_true(i == 0 || gaps[i - 1].storage < gaps[i].storage ||
                    gaps[i - 1].to <= gaps[i].from);
        dropped += gaps[i].fate == FATE_DROP;
        if (gaps[i].fate == FATE_DROP)
            assert_true(least->steps[gaps[i].to].again);
    }
    assert_true(dropped > 0);
    free(gaps);
    plan_free(all);
    plan_free(least);
    graph_free(g);
}

static void test_summary(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(2, 1 << 16, 1);
    struct plan *all = plan_checked(g, INT64_MAX), *least = plan_checked(g, all->min_budget);
    struct plan_summary a, b;
    plan_summarize(g, all, &a);
    plan_summarize(g, least, &b);
    assert_true(a.parameters + a.optimizer == all->persistent);
    assert_true(a.gradients == 2 * a.parameters && a.optimizer == 2 * a.parameters);
    assert_true(a.workspace == 1 << 14);
    assert_int_equal(a.recomputed_ops, 0);
    assert_true(a.recomputed == 0 && a.kept > 0);
    assert_true(b.recomputed_ops > 0 && b.recomputed > 0 && b.kept < a.kept);
    plan_free(all);
    plan_free(least);
    graph_free(g);
}

/* A change of anything that matters changes the signature; seconds and names do not. */
static void test_signature(void **state)
{
    (void)state;
    struct graph *g = graph_chain(4, 1 << 12);
    uint64_t was = graph_signature(g);
    g->ops[2].seconds *= 2;
    g->ops[2].name[0] = '?';
    assert_true(graph_signature(g) == was);
    g->storages[2].bytes += CKPT_ALIGN;
    assert_true(graph_signature(g) != was);
    g->storages[2].bytes -= CKPT_ALIGN;
    g->n_micro++;
    assert_true(graph_signature(g) != was);
    g->n_micro--;
    g->refs[g->ops[3].reads] ^= 1;
    assert_true(graph_signature(g) != was);
    graph_free(g);
}

static void test_empty_program(void **state)
{
    (void)state;
    struct graph *g = calloc(1, sizeof(*g));
    g->n_micro = 1;
    struct plan *p = plan_checked(g, 0);
    assert_true(p->transient == 0 && p->n_steps == 0);
    plan_free(p);
    graph_free(g);
}

/*
 * A tensor is written in parts that are far apart, and read only at the end: frames of a clip that
 * are joined at the end of a forward-only program.  The first part must stay under every budget.
 */
static void test_parts_far_apart(void **state)
{
    (void)state;
    struct graph_builder *k = build_new();
    int32_t input = build_input(k, 8 * CKPT_ALIGN), loss;
    int32_t whole = build_storage(k, 24 * CKPT_ALIGN, KIND_ACTIVATION, "whole");
    for (int32_t part = 0; part < 3; part++) {
        int32_t x = input;
        for (int32_t layer = 0; layer < 4; layer++) {
            int32_t y = build_storage(k, 8 * CKPT_ALIGN, KIND_ACTIVATION, "layer");
            build_op(k, GRAPH_FORWARD, "layer", 1, &x, 1, &y, 1e-3);
            x = y;
        }
        build_op(k, GRAPH_FORWARD, "part", 1, &x, 1, &whole, 1e-3);
    }
    loss = build_storage(k, CKPT_ALIGN, KIND_ACTIVATION, "loss");
    build_op(k, GRAPH_FORWARD, "loss", 1, &whole, 1, &loss, 1e-3);
    struct graph *g = k->g;
    g->n_body = g->n_ops;
    g->n_micro = 1;
    struct plan *free_plan = plan_checked(g, INT64_MAX);
    plan_free(plan_checked(g, free_plan->min_budget));
    plan_free(free_plan);
    graph_free(g);
    free(k->gradient);
    free(k->forward);
    free(k);
}

/* A request that comes after the search began ends it, in any phase; an earlier one does not. */
static void test_stop(void **state)
{
    struct graph *g = graph_transformer(2, 1 << 20, 1);
    atomic_int asked = 1;
    struct plan_watch w = {.stop = &asked};
    const struct budgets b = {.device = 30 << 20, .host = 1 << 28};
    struct frontier *pf;
    struct plan *p;
    (void)state;
    g->watch = &w;
    plan_watch_start(&w);
    assert_int_equal(frontier_build(g, &pf), 0);
    asked = 2;
    assert_int_equal(frontier_plan(pf, &graphs_machine, &b, 0, &p), CKPT_ESTOP);
    assert_null(p);
    assert_non_null(strstr(error_get(), "stopped by a request"));
    frontier_free(pf);
    assert_int_equal(plan_make(g, &machine_cpu, &b, 0, &p), CKPT_ESTOP);
    assert_null(p);
    graph_free(g);
}

static void count_seconds(void *user, int seconds)
{
    int *last = user;
    assert_true(seconds > *last);
    *last = seconds;
}

/* Each second is reported once. */
static void test_reports(void **state)
{
    int last = 0;
    struct plan_watch w = {.report = count_seconds, .user = &last};
    (void)state;
    plan_watch_start(&w);
    assert_int_equal(plan_watch_check(&w), 0);
    assert_int_equal(last, 0);
    w.start -= 3;
    for (int i = 0; i < 2; i++)
        assert_int_equal(plan_watch_check(&w), 0);
    assert_int_equal(last, 3);
    assert_int_equal(plan_watch_check(NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_far_apart),
        cmocka_unit_test(test_sweep_chain),
        cmocka_unit_test(test_sweep_transformer),
        cmocka_unit_test(test_sweep_unet),
        cmocka_unit_test(test_sweep_random),
        cmocka_unit_test(test_random_programs),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_reports),
        cmocka_unit_test(test_refusal_is_exact),
        cmocka_unit_test(test_reserved),
        cmocka_unit_test(test_next_budget),
        cmocka_unit_test(test_same_question_same_plan),
        cmocka_unit_test(test_curve_of_a_chain),
        cmocka_unit_test(test_curve_of_a_transformer),
        cmocka_unit_test(test_first),
        cmocka_unit_test(test_first_is_kept),
        cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_summary),
        cmocka_unit_test(test_signature),
        cmocka_unit_test(test_empty_program),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
