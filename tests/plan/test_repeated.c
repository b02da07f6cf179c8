/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates that the host repeats, in their place or deferred: the planner uses them where they make
 * a step faster; such a plan passes the checker, is written and read back; and the checker finds
 * their faults.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "graphs.h"
#include "models.h"
#include "plan_make.h"
#include "plan/one_search.h"

/* A step of three blocks, whose state does not fit, and a host that updates some of it. */
static const struct stdit_shape shape = {.depth = 3, .tokens = 2048, .narrow = true};
static struct machine machine;
static struct graph *graph;
static struct plan *plan;

static struct plan *make(struct graph *g)
{
    struct budgets b = {.host = INT64_C(1) << 40};
    struct plan *p;
    for (int32_t s = 0; s < g->n_storages; s++)
        b.device += g->storages[s].persistent ? g->storages[s].bytes / 4 : 0;
    if (plan_make(g, &machine, &b, 0, &p) || plan_check_again(g, p) ||
        plan_check_times(g, &machine, p))
        fail_msg("%s", error_get());
    assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
    return p;
}

static int setup(void **state)
{
    (void)state;
    machine = machine_cuda;
    machine.d2h = machine.h2d = machine.d2h_both = machine.h2d_both = 8.1e10;
    machine.host_update = 1.62e11;
    graph = model_stdit_shape(&shape, &machine_cuda);
    plan = make(graph);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plan_free(plan);
    graph_free(graph);
    return 0;
}

struct count {
    int32_t hosted, deferred, repeated;
};

static struct count count(const struct plan *p)
{
    struct count n = {0, 0, 0};
    for (int32_t k = 0; k < p->n_steps; k++) {
        n.hosted += p->steps[k].by == BY_HOST;
        n.deferred += p->steps[k].before > 0;
        n.repeated += p->steps[k].by == BY_BOTH && !p->steps[k].before;
    }
    return n;
}

static void expect_fault(const char *what)
{
    assert_int_equal(plan_check_again(graph, plan), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\", got \"%s\"", what, error_get());
}

/* All kinds of updates; state of repeated ones is copied in and never out. */
static void test_taken(void **state)
{
    (void)state;
    struct count n = count(plan), again;
    struct plan_summary s;
    struct plan *same;
    char path[] = "/tmp/ckpt-repeated-XXXXXX";
    plan_summarize(graph, plan, &s);
    assert_true(n.hosted > 0 && n.deferred > 0 && n.repeated > 0);
    assert_true(s.deferred > 0 && s.repeated > s.deferred);
    assert_true(s.hosted + s.repeated + s.streamed <= s.optimizer);
    close(mkstemp(path));
    assert_int_equal(plan_write(graph, plan, path), 0);
    assert_int_equal(plan_read(graph, path, &same), 0);
    assert_int_equal(plan_check(graph, same), 0);
    again = count(same);
    assert_memory_equal(&n, &again, sizeof n);
    unlink(path);
    plan_free(same);
}

/* Where another program trains in turn a step is slower: nothing is deferred, nor is state put in
 * the host tier to be repeated there. */
static void test_limits(void **state)
{
    (void)state;
    graph->in_turn = true;
    struct plan *p = make(graph);
    const struct count n = count(p);
    assert_true(n.deferred == 0 && n.repeated == 0 && n.hosted > 0);
    assert_true(p->seconds > 1.01 * plan->seconds);
    plan_free(p);
    graph->in_turn = false;
}

/* The clock has each update on the host once: after the device began it, one after the other. */
static void test_clock(void **state)
{
    (void)state;
    struct plan_clock c;
    double host = 0;
    assert_int_equal(plan_clock(graph, &machine, plan, &c), 0);
    for (int32_t k = 0; k < plan->n_steps; k++) {
        const struct plan_step *s = &plan->steps[k];
        host += s->by == BY_HOST ? c.steps[k].end - c.steps[k].start : 0;
        host += s->by == BY_BOTH ? c.repeats[k].end - c.repeats[k].start : 0;
        assert_true(s->by != BY_BOTH || s->before || c.repeats[k].start >= c.steps[k].start);
        assert_true(!s->before || c.steps[k].end <= c.steps[s->before].start);
    }
    assert_true(host > 0.3 * plan->seconds && host <= plan->seconds * (1 + 1e-9));
    plan_clock_free(&c);
}

static int32_t first_deferred(void)
{
    return plan_find_deferred(plan, plan->n_body);
}

/* The value of the update at step k. */
static int32_t value_of(int32_t k)
{
    const struct graph_op *o = &graph->ops[plan->steps[k].op];
    for (int32_t j = 0; j < o->n_writes; j++)
        if (graph->storages[graph->refs[o->writes + j]].kind == KIND_PARAMETER)
            return graph->refs[o->writes + j];
    fail();
    return -1;
}

/* The copy of the gradient of the update at step k. */
static struct copy *gradient_of(int32_t k)
{
    for (int32_t i = 0; i < plan->n_copies; i++)
        if (copy_is_out(plan->residences, &plan->copies[i]) &&
            plan->residences[plan->copies[i].from].storage == value_of(k))
            return &plan->copies[i];
    fail();
    return NULL;
}

static void test_faults_of_steps(void **state)
{
    (void)state;
    int32_t k = first_deferred(), next = plan_find_deferred(plan, k + 1);
    struct plan_step was = plan->steps[k];
    plan->steps[k].by = BY_DEVICE;
    expect_fault("cannot run before step");
    plan->steps[k] = was;
    plan->steps[k].before = plan->n_body;
    expect_fault("cannot run before step");
    plan->steps[k].before = plan->steps[next].before + 1;
    expect_fault("is deferred out of order");
    plan->steps[k].before = 0; /* the state leaves before the tail */
    expect_fault("");
    plan->steps[k].before = 1; /* and comes later than that */
    expect_fault("");
    plan->steps[k] = was;
    plan->steps[0].by = BY_BOTH;
    expect_fault("the host cannot repeat");
    plan->steps[0].by = BY_DEVICE;
    for (k = plan->n_body; plan->steps[k].by != BY_BOTH || plan->steps[k].before; k++)
        ;
    plan->steps[k].by = BY_DEVICE;
    expect_fault("in version");
    plan->steps[k].by = BY_BOTH;
    assert_int_equal(plan_check_again(graph, plan), 0);
}

/* A value that is used before its deferred update. */
static void test_fault_of_order(void **state)
{
    (void)state;
    int32_t last = -1;
    for (int32_t k = first_deferred(); k < plan->n_steps; k = plan_find_deferred(plan, k + 1))
        last = k;
    plan->steps[last].before++;
    expect_fault("");
    plan->steps[last].before--;
    assert_int_equal(plan_check_again(graph, plan), 0);
}

/* Copies of a gradient before it is complete, or of a clip value that ends with its step. */
static void test_faults_of_copies(void **state)
{
    (void)state;
    int32_t k = first_deferred();
    struct copy *c = gradient_of(k);
    struct residence *below = &plan->residences[c->to];
    below->first = --c->after;
    expect_fault("");
    below->first = ++c->after;
    int32_t last = below->last;
    below->last = plan->n_steps - 1;
    expect_fault("");
    below->last = last;
    for (int32_t i = 0; i < plan->n_residences; i++) {
        struct residence *r = &plan->residences[i];
        if (r->tier != TIER_DEVICE || r->last < plan->n_steps || r->storage < 0 ||
            graph->storages[r->storage].persistent)
            continue;
        last = r->last;
        r->last = plan->n_steps - 1;
        expect_fault("");
        r->last = last;
    }
    assert_int_equal(plan_check_again(graph, plan), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),          cmocka_unit_test(test_limits),
        cmocka_unit_test(test_clock),          cmocka_unit_test(test_faults_of_steps),
        cmocka_unit_test(test_fault_of_order), cmocka_unit_test(test_faults_of_copies),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
