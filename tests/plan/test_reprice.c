/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repricing of plans: on the machine that they were made for, their seconds equal those of the
 * search up to rounding; on a slower machine a step takes no less time, on a faster one no more.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "graphs.h"
#include "models.h"
#include "plan/graph/queues.h"

#define MIB  (INT64_C(1) << 20)
#define MOST (INT64_C(1) << 40)

/* plan_clock gives the same seconds, and the steps of a queue in order. */
static void check_clock(const struct graph *g, const struct machine *m, const struct plan *p)
{
    struct plan_clock c;
    double queues[3] = {0}, body = 0;
    assert_int_equal(plan_clock(g, m, p, &c), 0);
    for (int32_t k = 0; k < p->n_steps; k++) {
        const struct plan_step *s = &p->steps[k];
        double *queue = &queues[s->by == BY_HOST ? 2 : g->ops[s->op].collective != GRAPH_LOCAL];
        assert_true(c.steps[k].start >= *queue - 1e-12 && c.steps[k].end >= c.steps[k].start);
        *queue = c.steps[k].end;
        body = k < p->n_body ? fmax(body, c.steps[k].end) : body;
    }
    assert_true(c.body >= body - 1e-9 * body);
    assert_true(fabs(c.plan.seconds - p->seconds) <= 1e-9 * p->seconds);
    assert_true(queues[0] + (g->n_micro - 1) * c.body <= c.plan.seconds * (1 + 1e-9));
    for (int32_t i = 0; i < p->n_copies; i++)
        assert_true(isfinite(c.plan.copies[i].start) &&
                    c.plan.copies[i].end > c.plan.copies[i].start);
    plan_clock_free(&c);
}

/* The seconds of a plan on a machine. */
static double reprice(const struct graph *g, const struct machine *m, struct plan *p)
{
    assert_int_equal(plan_reprice(g, m, p), 0);
    if (plan_check(g, p))
        fail_msg("%s", error_get());
    check_clock(g, m, p);
    return p->seconds;
}

static void try_machines(const struct graph *g, struct plan *p)
{
    struct machine slow = graphs_machine, fast = graphs_machine;
    double said = p->seconds, bound = p->bound_seconds;
    double waits = p->exposed_seconds + p->exposed_comm;
    slow.d2h_both = slow.h2d_both = 2e9;
    slow.host_update = 5e9;
    slow.nvme_read = 1e9;
    fast.d2h_both = fast.h2d_both = fast.host_update = fast.nvme_read = fast.nvme_write = 1e12;
    double same = reprice(g, &graphs_machine, p);
    double waits_now = p->exposed_seconds + p->exposed_comm;
    if (fabs(same - said) > 1e-9 * said || fabs(waits_now - waits) > 1e-9 * said)
        fail_msg("%.12g s with %.12g s of waiting, the search said %.12g and %.12g", same,
                 waits_now, said, waits);
    assert_true(p->bound_seconds == bound);
    assert_true(reprice(g, &fast, p) <= said * (1 + 1e-9));
    double longer = reprice(g, &slow, p);
    assert_true(longer >= said * (1 - 1e-9));
    if (longer > said * 1.001)
        assert_true(p->bound_seconds == 0 && p->next_budget == 0);
}

/* Plans of a few budgets of each kind; returns how many there were with copies. */
static int try_budgets(struct graph *g, int64_t host, int64_t nvme)
{
    struct budgets b = {.device = MOST, .host = host, .nvme = nvme};
    struct frontier *pf;
    struct plan *p;
    int copied = 0;
    assert_int_equal(frontier_build(g, &pf), 0);
    assert_int_equal(frontier_plan(pf, &graphs_machine, &b, 0, &p), 0);
    int64_t least = p->min_budget, most = plan_peak(p);
    plan_free(p);
    for (int i = 0; i < 6; i++) {
        b.device = least + (most - least) * i * i / 25;
        if (frontier_plan(pf, &graphs_machine, &b, 0, &p))
            fail_msg("%s", error_get());
        copied += p->n_copies > 0;
        try_machines(g, p);
        plan_free(p);
    }
    frontier_free(pf);
    graph_free(g);
    return copied;
}

static void test_tiers(void **state)
{
    (void)state;
    assert_true(try_budgets(graph_transformer(2, 4 * MIB, 1), MOST, 0) >= 3);
    assert_true(try_budgets(graph_transformer(2, 4 * MIB, 1), 24 * MIB, MOST) >= 3);
    assert_true(try_budgets(graph_transformer(1, 4 * MIB, 3), MOST, 0) >= 3);
    assert_true(try_budgets(graph_unet(4, 4 * MIB), MOST, MOST) >= 3);
}

static void test_no_tier(void **state)
{
    (void)state;
    assert_int_equal(try_budgets(graph_transformer(2, 4 * MIB, 2), 0, 0), 0);
    assert_int_equal(try_budgets(graph_chain(1, 1 << 12), 0, 0), 0);
}

/* Collectives, alone and with copies. */
static void test_ranks(void **state)
{
    (void)state;
    struct ranks_shape s = {.layers = 8,
                            .ranks = 4,
                            .numel = 1 << 20,
                            .gradient = 4,
                            .stream = 1 << 20,
                            .kept = 4 << 20,
                            .flops = 1e10,
                            .early = true};
    try_budgets(model_ranks(&s, &machine_cpu), 0, 0);
    try_budgets(model_ranks(&s, &machine_cpu), MOST, 0);
    /* Shares so large that they are offloaded, after the gathers that read them. */
    s.numel = 8 << 20;
    s.layers = 6;
    assert_true(try_budgets(model_ranks(&s, &machine_cpu), MOST, 0) >= 3);
    s.early = false;
    assert_true(try_budgets(model_ranks(&s, &machine_cpu), MOST, 0) >= 3);
}

/* A copy in is slower while the host updates, and only then. */
static void test_beside_updates(void **state)
{
    const double cases[][3] = {{3, -1, 3}, {3, 0, 3}, {3, 1, 3.25}, {3, 4, 4}, {3, 10, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_true(fabs(queue_in_seconds(cases[i][0], cases[i][1]) - cases[i][2]) < 1e-12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_no_tier),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_beside_updates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
