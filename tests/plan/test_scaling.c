/* SPDX-License-Identifier: Apache-2.0 */
/* A job of many ranks, planned from the graph of one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "models.h"
#include "plan_make.h"
#include "plan/search/comm_cost.h"
#include "plan/scale/scaling_study.h"

/* 12 layers of 64 MiB each, 10 ms forward; a host has four ranks, and slower links to others. */
static struct ranks_shape shape = {.layers = 12,
                                   .ranks = 2,
                                   .numel = 1 << 24,
                                   .gradient = 4,
                                   .stream = 8 << 20,
                                   .kept = 32 << 20,
                                   .flops = 1e10,
                                   .early = true};

static struct machine machine(void)
{
    struct machine m = machine_cuda;
    m.flops = 1e12;
    m.links = (struct links){.host = 50e9,
                             .host_latency = 4e-6,
                             .net = 5e9,
                             .net_latency = 1.5e-5,
                             .ranks_per_host = 4,
                             .contention = .05};
    return m;
}

static struct graph *graph_of(int32_t ranks, const struct machine *m)
{
    struct ranks_shape s = shape;
    s.ranks = ranks;
    return model_ranks(&s, m);
}

static struct scaling_step plan_for(struct scaling_study *w, int32_t ranks, int32_t group, int zero,
                                    int64_t device)
{
    struct scaling_layout l = {ranks, group, zero};
    struct scaling_step step;
    assert_int_equal(scaling_study_plan(w, &l, device, &step), 0);
    return step;
}

static struct scaling_study *open_world(const struct machine *m)
{
    struct graph *g = graph_of(2, m);
    struct scaling_study *w;
    if (scaling_study_open(g, m, &w))
        fail_msg("%s", error_get());
    graph_free(g);
    return w;
}

/* A resized graph gives the results of a graph recorded for that number of ranks. */
static void test_recorded(void **state)
{
    struct machine m = machine();
    struct scaling_study *w = open_world(&m);
    (void)state;
    for (int32_t ranks = 2; ranks <= 64; ranks *= 2) {
        struct graph *g = graph_of(ranks, &m);
        struct budgets b = {.device = INT64_MAX};
        struct plan *p;
        assert_int_equal(plan_make(g, &m, &b, 0, &p), 0);
        struct scaling_step s = plan_for(w, ranks, ranks, 3, INT64_MAX);
        double ratio = s.seconds / p->seconds;
        if (!s.fits || ratio < .995 || ratio > 1.005)
            fail_msg("%d ranks take %g s, recorded %g s", (int)ranks, s.seconds, p->seconds);
        assert_true(s.compute > 0 && s.exposed <= s.comm * (1 + m.links.contention));
        int64_t recorded = p->persistent + p->load;
        assert_true(s.bytes >= recorded * 9 / 10 && s.bytes <= recorded * 11 / 10);
        plan_free(p);
        graph_free(g);
    }
    scaling_study_free(w);
}

/* One rank alone has the work of one rank: it reads whole values. */
static void test_alone(void **state)
{
    struct machine m = machine();
    struct scaling_study *w = open_world(&m);
    struct graph *g = graph_of(1, &m);
    (void)state;
    double ratio = plan_for(w, 1, 1, 0, INT64_MAX).seconds / graph_seconds(g);
    if (ratio < .995 || ratio > 1.005)
        fail_msg("one rank takes %g of what is recorded", ratio);
    /* An update of shares costs the time of shares, also if values are whole. */
    struct scaling_step all = plan_for(w, 8, 8, 2, INT64_MAX);
    struct scaling_step values = plan_for(w, 8, 8, 1, INT64_MAX);
    assert_true(values.compute > .995 * all.compute && values.compute < 1.005 * all.compute);
    graph_free(g);
    scaling_study_free(w);
}

/* The state of a rank is the whole divided by the ranks; all of it without sharing. */
static void test_memory(void **state)
{
    struct machine m = machine();
    struct scaling_study *w = open_world(&m);
    int64_t all = 12 * (INT64_C(2) + 12) << 24;
    (void)state;
    int64_t one = plan_for(w, 1, 1, 0, INT64_MAX).bytes;
    int64_t eight = plan_for(w, 8, 8, 3, INT64_MAX).bytes;
    assert_true(one > all && plan_for(w, 8, 8, 0, INT64_MAX).bytes >= one);
    assert_true(one - eight > all / 2 && eight < one);
    int64_t values = plan_for(w, 8, 8, 1, INT64_MAX).bytes;
    assert_true(one - values > all / 2);
    assert_true(plan_for(w, 8, 4, 1, INT64_MAX).bytes > values);
    int64_t in_hosts = plan_for(w, 8, 4, 3, INT64_MAX).bytes;
    assert_true(in_hosts > eight && in_hosts < one);
    /* Plans keep the budget, and an impossible one is reported. */
    struct scaling_step s = plan_for(w, 8, 8, 3, eight - (64 << 20));
    assert_true(s.fits && s.bytes <= eight - (64 << 20));
    assert_false(plan_for(w, 8, 8, 3, all / 8).fits);
    scaling_study_free(w);
}

/* A single rank waits for no other; links between hosts make steps longer, sharing within hosts
 * less so. */
static void test_links(void **state)
{
    struct machine m = machine();
    struct scaling_study *w = open_world(&m);
    (void)state;
    struct scaling_step one = plan_for(w, 1, 1, 0, INT64_MAX);
    assert_true(one.exposed < 1e-3 && one.seconds < one.compute * 1.01);
    struct scaling_step host = plan_for(w, 4, 4, 3, INT64_MAX);
    struct scaling_step far = plan_for(w, 4096, 4096, 3, INT64_MAX);
    struct scaling_step near = plan_for(w, 4096, 4, 3, INT64_MAX);
    assert_true(far.exposed > host.exposed && far.seconds > 1.5 * host.seconds);
    assert_true(near.seconds < far.seconds);
    scaling_study_free(w);
}

/* A graph whose ranks share nothing is refused, and the message says what to do. */
static void test_refused(void **state)
{
    struct machine m = machine();
    struct graph *g = graph_of(1, &m);
    struct scaling_study *w;
    (void)state;
    assert_int_equal(scaling_study_open(g, &m, &w), CKPT_EINVAL);
    assert_null(w);
    assert_non_null(strstr(error_get(), "--ranks 2 --plan-only --graph-out"));
    graph_free(g);
}

static void test_link_file(void **state)
{
    static const struct {
        const char *text, *says;
    } files[] = {
        {"{\"format\": \"libckpt-links 1\", \"link_net\": 1e9, \"ranks_per_host\": 2}", NULL},
        {"{\"format\": \"libckpt-links 2\"}", "this is no link file"},
        {"{\"format\": \"libckpt-links 1\", \"flops\": 1e9}", "unknown member \"flops\""},
        {"{\"format\": \"libckpt-links 1\", \"link_net\": -1}", "must be a number from 1"},
        {"[", "is not JSON"},
    };
    char file[] = "test_scaling.tmp-XXXXXX";
    int fd = mkstemp(file);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        struct machine m = machine(), before = m;
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fputs(files[i].text, f);
        assert_int_equal(fclose(f), 0);
        int rc = machine_read_links(file, &m);
        if (files[i].says) {
            assert_int_equal(rc, CKPT_EFORMAT);
            assert_non_null(strstr(error_get(), "link file test_scaling"));
            assert_non_null(strstr(error_get(), files[i].says));
            assert_memory_equal(&m.links, &before.links, sizeof(m.links));
        } else {
            assert_int_equal(rc, 0);
            assert_true(m.links.net == 1e9 && m.links.ranks_per_host == 2);
            assert_true(m.links.host == before.links.host);
        }
    }
    unlink(file);
    assert_int_equal(machine_read_links("no/such/file", &(struct machine){.n_costs = 0}), CKPT_EIO);
}

/* Ranks that split sequences are as many in a job of any size. */
static void test_sequence(void **state)
{
    struct machine m = machine();
    struct graph *g = graph_of(2, &m);
    struct scaling_graph *w;
    int32_t at = 0;
    (void)state;
    assert_int_equal(scaling_sequence(g), 1);
    while (g->ops[at].collective || g->ops[at].n_reads < 1 || g->ops[at].n_writes != 1)
        at++;
    g->ops[at].n_reads = 1;
    g->ops[at].collective = GRAPH_ALL_TO_ALL;
    g->ops[at].ranks = 2;
    assert_int_equal(scaling_sequence(g), 2);
    assert_int_equal(scaling_graph_new(g, SCALING_SHARED, &w), 0);
    scaling_graph_resize(w, &(struct scaling_layout){16, 16, 3}, &m);
    assert_int_equal(scaling_graph(w)->ops[at].ranks, 2);
    assert_int_equal(graph_ranks(scaling_graph(w)), 16);
    scaling_graph_free(w);
    graph_free(g);
}

/* Ranks that split layers are as many in a job of any size; what they have parts of is shared by an
 * N-th of the ranks. */
static void test_tensor(void **state)
{
    struct machine m = machine();
    struct graph *g = graph_of(2, &m), *whole = graph_of(8, &m);
    struct scaling_graph *w;
    int32_t at = 0, gather = -1;
    (void)state;
    assert_int_equal(scaling_tensor(g), 1);
    while (g->ops[at].collective || g->ops[at].n_reads < 1 || g->ops[at].n_writes != 1)
        at++;
    g->ops[at].n_reads = 1;
    g->ops[at].collective = GRAPH_ALL_REDUCE;
    g->ops[at].within_layer = true;
    g->ops[at].ranks = 4;
    assert_int_equal(scaling_tensor(g), 4);
    assert_true(scaling_has_groups(g, 4)); /* one group */
    assert_false(scaling_has_groups(g, 8));
    assert_non_null(strstr(error_get(), "record it with --ranks 8 --tensor 4"));
    for (int32_t i = 0; i < g->n_ops; i++) {
        const enum graph_collective kind = g->ops[i].collective;
        g->ops[i].stride = kind == GRAPH_ALL_GATHER || kind == GRAPH_REDUCE_SCATTER ? 4 : 0;
        gather = kind == GRAPH_ALL_GATHER ? i : gather;
    }
    assert_true(scaling_has_groups(g, 8));
    assert_int_equal(scaling_graph_new(g, SCALING_SHARED, &w), 0);
    scaling_graph_resize(w, &(struct scaling_layout){32, 32, 3}, &m);
    assert_int_equal(scaling_graph(w)->ops[at].ranks, 4);
    assert_int_equal(scaling_graph(w)->ops[gather].ranks, 8);
    for (int32_t s = 0; s < g->n_storages; s++) /* values, gradients and state: an eighth */
        assert_int_equal(scaling_graph(w)->storages[s].bytes, whole->storages[s].bytes);
    scaling_graph_resize(w, &(struct scaling_layout){4, 4, 3}, &m);
    assert_int_equal(scaling_graph(w)->ops[gather].ranks, 1);
    scaling_graph_free(w);
    graph_free(whole);
    graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sequence), cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_tensor),   cmocka_unit_test(test_alone),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_links),
        cmocka_unit_test(test_refused),  cmocka_unit_test(test_link_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
