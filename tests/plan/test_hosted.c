/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Updates on the host: the planner uses them where they make a step faster; such a plan passes the
 * checker, is written and read back; and the checker finds their faults.
 */
#include <math.h>
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
#include "plan/search/bound.h"

static const struct machine machine = {
    .name = "test", .d2h = 1.1e9, .h2d = 1.1e9, .d2h_both = 1e9, .h2d_both = 1e9};

/* A layer with gradients in bf16, updated last to first, searched once for all tests. */
static const struct stdit_shape shape = {.depth = 1, .tokens = 2048, .narrow = true};
static struct graph *graph;
static struct frontier *plans;

static int setup(void **state)
{
    (void)state;
    graph = model_stdit_shape(&shape, &machine_cuda);
    int32_t from = graph->n_ops, to = graph->n_ops - 1;
    while (graph_op_updates(graph, &graph->ops[from - 1]))
        from--;
    for (; from < to; from++, to--) {
        struct graph_op first = graph->ops[from];
        graph->ops[from] = graph->ops[to];
        graph->ops[to] = first;
    }
    return frontier_build(graph, &plans);
}

static int teardown(void **state)
{
    (void)state;
    frontier_free(plans);
    graph_free(graph);
    return 0;
}

/* Plans with half of the needed device memory, on a machine with these rates of host updates and
 * copies. */
static struct plan *make_with(double host_update, double copies)
{
    struct machine m = machine;
    struct budgets b = {.host = INT64_C(1) << 40};
    struct plan *p;
    m.host_update = host_update;
    m.d2h_both = m.h2d_both = copies;
    for (int32_t s = 0; s < graph->n_storages; s++)
        b.device += graph->storages[s].persistent ? graph->storages[s].bytes / 2 : 0;
    if (frontier_plan(plans, &m, &b, 0, &p) || plan_check_again(graph, p) ||
        plan_check_times(graph, &m, p))
        fail_msg("%s", error_get());
    return p;
}

static struct plan *make(double host_update)
{
    return make_with(host_update, 1e9);
}

static void expect_fault(struct plan *p, const char *what)
{
    assert_int_equal(plan_check_again(graph, p), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\", got \"%s\"", what, error_get());
}

static void test_taken(void **state)
{
    (void)state;
    struct plan *p = make(1e11), *without = make(0), *again;
    struct plan_summary s;
    int32_t steps = 0;
    char path[] = "/tmp/ckpt-hosted-XXXXXX";
    for (int32_t k = 0; k < p->n_steps; k++)
        steps += p->steps[k].by == BY_HOST;
    plan_summarize(graph, p, &s);
    assert_true(steps > 0 && s.hosted > 0 && s.hosted + s.streamed <= s.optimizer);
    assert_true(p->seconds < without->seconds);
    close(mkstemp(path));
    assert_int_equal(plan_write(graph, p, path), 0);
    assert_int_equal(plan_read(graph, path, &again), 0);
    assert_int_equal(plan_check(graph, again), 0);
    unlink(path);
    plan_free(again);
    plan_free(without);
    plan_free(p);
}

/* A host that is too slow to make a step faster updates nothing; a fast one does. */
static void test_pays(void **state)
{
    (void)state;
    bool seen[2] = {false, false};
    struct plan *without = make(0);
    for (double rate = 1e8; rate < 1e11; rate *= 8) {
        struct plan *p = make(rate);
        assert_true(p->seconds <= without->seconds * (1 + 1e-9));
        seen[plan_uses_host(p)] = true;
        plan_free(p);
    }
    assert_true(seen[false] && seen[true]);
    plan_free(without);
}

/* Updates on the host are priced 25 % above the host rate: they share memory with copies. */
static void test_price(void **state)
{
    (void)state;
    struct machine slow = machine_cuda;
    struct pool memory = {NULL, false};
    double bytes = 0, meanwhile = 0;
    slow.host_update = 1e9;
    const bool *may = hosted_ops(graph, &slow, &memory);
    for (int32_t i = 0; i < graph->n_ops; i++) {
        const struct graph_op *o = &graph->ops[i];
        for (int32_t j = 0; j < o->n_writes && may[i]; j++)
            bytes += (double)graph->storages[graph->refs[o->writes + j]].bytes;
        meanwhile += o->phase != GRAPH_BACKWARD ? o->seconds : 0;
    }
    struct hosted_bounds most = hosted_most(graph, &slow, may);
    pool_free(&memory);
    double expected = meanwhile / (1.25 * 2 * bytes / 1e9), share = most.meanwhile / most.bytes;
    assert_true(share > expected * (1 - 1e-9) && share < expected * (1 + 1e-9) && share < 1);
}

/* The host gets gradients while the backward pass runs. */
static void test_gradients_leave_early(void **state)
{
    (void)state;
    struct plan *p = make_with(1e11, 1e11);
    struct leave *list;
    int32_t early = 0, n = list_leaves(graph, p, &list);
    for (int32_t i = 0; i < n; i++) {
        const struct offload *k = &list[i].is;
        early += graph->storages[k->storage].kind == KIND_PARAMETER && k->out &&
                 k->out_step < p->n_body && k->use_step >= p->n_body;
    }
    free(list);
    assert_true(early > 0);
    plan_free(p);
}

/* Updates on the host make a step faster even if everything fits. */
static void test_all_fits(void **state)
{
    (void)state;
    struct machine fast = machine_cuda;
    const struct budgets b = {.device = INT64_C(1) << 40, .host = INT64_C(1) << 40};
    struct plan *p;
    fast.host_update = 1e13;
    fast.d2h_both = fast.h2d_both = 1e12;
    assert_int_equal(frontier_plan(plans, &fast, &b, 0, &p), 0);
    assert_true(plan_uses_host(p) && p->seconds < graph_seconds(graph));
    assert_int_equal(plan_check(graph, p), 0);
    plan_free(p);
}

/* The lower bound does not rise with memory, up to where everything fits. */
static void test_bound_falls(void **state)
{
    (void)state;
    struct machine fast = machine_cuda;
    double before = INFINITY;
    struct bound *bound;
    fast.host_update = 1e11;
    assert_int_equal(bound_new(plans, &fast, &bound), 0);
    for (int64_t device = INT64_C(1) << 28; device <= INT64_C(1) << 36; device *= 2) {
        const struct budgets b = {.device = device, .host = INT64_C(1) << 40};
        double seconds = bound_seconds(bound, &b);
        assert_true(seconds <= before);
        before = seconds;
    }
    bound_free(bound);
}

/* Storages in the host tier use the ranges chosen by another program of the context. */
static void take_backings(struct graph *g, const struct plan *p)
{
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (!plan_is_backing(g, p, r))
            continue;
        g->storages[r->storage].backing = r->tier == TIER_HOST ? BACKING_HOST : BACKING_DEVICE;
        g->storages[r->storage].backing_offset = r->tier == TIER_HOST ? r->offset : -1;
    }
}

/* The end of these ranges. */
static int64_t backings_end(const struct plan *p)
{
    int64_t end = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (r->tier == TIER_HOST && plan_is_backing(graph, p, r))
            end = max_i64(end, r->offset + residence_bytes(graph, p, r));
    }
    return end;
}

static int32_t count_hosted(const struct plan *p)
{
    int32_t n = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        n += p->steps[k].by == BY_HOST;
    return n;
}

/* State that another program has put in host memory is updated there too, without an extra copy on
 * the device; a tier that is full of it has capacity for it. */
static void test_state_of_another_program(void **state)
{
    (void)state;
    struct plan *first = make(1e11);
    struct graph *other = model_stdit_shape(&shape, &machine_cuda);
    take_backings(other, first);
    for (double rate = 1e9; rate <= 1e12; rate *= 10)
        for (int full = 0; full < 2; full++) {
            struct machine m = machine;
            struct budgets b = first->budgets;
            struct plan *p;
            m.host_update = rate;
            b.tier_base[TIER_HOST] = backings_end(first);
            b.host = full ? first->host_bytes + (64 << 20) : b.host;
            if (plan_make(other, &m, &b, 0, &p) || plan_check_again(other, p))
                fail_msg("%s", error_get());
            assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
            assert_true(count_hosted(p) > 0 || rate < 1e10);
            assert_true(p->seconds < 1.05 * first->seconds || rate < 1e11);
            plan_free(p);
        }
    graph_free(other);
    plan_free(first);
}

static int32_t first_use(const struct plan *p, int32_t s)
{
    int32_t k = 0;
    while (!graph_op_reads(graph, &graph->ops[p->steps[k].op], s))
        k++;
    return k;
}

/* The host updates first what the forward pass uses first; the checker accepts any order in which
 * each update follows the ops that write its inputs. */
static void test_order(void **state)
{
    (void)state;
    struct plan *p = make(1e11);
    int32_t last = -1, moved = 0;
    for (int32_t k = p->n_body; k < p->n_steps; k++) {
        const struct graph_op *o = &graph->ops[p->steps[k].op];
        moved += k + graph->n_ops != p->n_steps + p->steps[k].op;
        for (int32_t j = 0; j < o->n_writes && p->steps[k].by == BY_HOST; j++) {
            int32_t s = graph->refs[o->writes + j];
            if (graph->storages[s].kind != KIND_PARAMETER)
                continue;
            assert_true(first_use(p, s) > last);
            last = first_use(p, s);
        }
    }
    assert_true(last >= 0 && moved > 0);
    struct plan_step first = p->steps[p->n_body];
    p->steps[p->n_body] = p->steps[p->n_steps - 1];
    p->steps[p->n_steps - 1] = first;
    expect_fault(p, "");
    p->steps[p->n_steps - 1] = p->steps[p->n_steps - 2];
    expect_fault(p, "is due");
    plan_free(p);
}

/* Faults: a copy to the host before its storage is complete; a device residence of hosted state. */
static void test_faults(void **state)
{
    (void)state;
    struct plan *p = make(1e11);
    int32_t clip = 0, backing = 0;
    while (graph->storages[p->residences[p->copies[clip].to].storage].persistent ||
           !copy_is_out(p->residences, p->copies + clip))
        clip++;
    p->copies[clip].after--;
    expect_fault(p, "and is on the device from");
    p->copies[clip].after++;
    while (p->residences[backing].tier == TIER_DEVICE)
        backing++;
    p->persistent += residence_bytes(graph, p, &p->residences[backing]);
    expect_fault(p, "persistent storages take");
    plan_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_taken),       cmocka_unit_test(test_pays),
        cmocka_unit_test(test_price),       cmocka_unit_test(test_gradients_leave_early),
        cmocka_unit_test(test_all_fits),    cmocka_unit_test(test_state_of_another_program),
        cmocka_unit_test(test_bound_falls), cmocka_unit_test(test_order),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
