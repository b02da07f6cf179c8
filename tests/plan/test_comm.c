/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives in the planner: their time, and the part that the clock overlaps with compute. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "plan/one_search.h"
#include "plan/search/comm_cost.h"
#include "graphs.h"
#include "models.h"
#include "net.h"
#include "plan_make.h"
#include "plan/graph/graph_file.h"

static char file[] = "test_comm.tmp-XXXXXX";

static const struct links links = {
    .host = 100e9, .host_latency = 1e-6, .net = 10e9, .net_latency = 1e-5, .ranks_per_host = 8};

static void assert_near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-9 * fabs(b)))
        fail_msg("%.17g is not %.17g", a, b);
}

/* ---- prices ---------------------------------------------------------------------------------- */

static void test_prices(void **state)
{
    (void)state;
    assert_true(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 1) == 0);
    assert_true(collective_seconds(&links, GRAPH_LOCAL, 1e9, 8) == 0);
    /* Within a host: three hops, and three quarters of the bytes. */
    assert_near(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 4), 3e-6 + .75 * 1e9 / 100e9);
    assert_near(collective_seconds(&links, GRAPH_REDUCE_SCATTER, 1e9, 4), 3e-6 + .75 * 1e9 / 100e9);
    assert_near(collective_seconds(&links, GRAPH_ALL_REDUCE, 1e9, 4), 6e-6 + 1.5 * 1e9 / 100e9);
    /* Two hosts: eight links of 10e9 are less than the inner 100e9; two hops cross. */
    assert_near(collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, 16),
                14e-6 + 2e-5 + 15. / 16 * 1e9 / 80e9);
    /* Many hosts: a tree of 512 is 9 deep. */
    assert_near(collective_seconds(&links, GRAPH_ALL_REDUCE, 0, 4096), 2 * (7e-6 + 9e-5));
    struct links single = links;
    single.overhead = 1e-4;
    assert_near(collective_seconds(&single, GRAPH_ALL_GATHER, 1e9, 4),
                1e-4 + 3e-6 + .75 * 1e9 / 100e9);
    single.overhead = 0;
    single.ranks_per_host = 1;
    assert_near(collective_seconds(&single, GRAPH_ALL_GATHER, 1e9, 2), 2e-5 + .5 * 1e9 / 10e9);
}

/* The first hop out of the host costs; from there on nearly the same bytes pass every rank. */
static void test_hosts(void **state)
{
    (void)state;
    double before = 0;
    for (int64_t n = 2; n <= 4096; n *= 2) {
        double now = collective_seconds(&links, GRAPH_ALL_GATHER, 1e9, n);
        assert_true(now > before);
        if (n == 16)
            assert_true(now > 1.3 * before);
        before = now;
    }
}

/* Every rank sends directly: inside a host by its link there, between hosts by its own. */
static void test_exchange(void **state)
{
    const double bytes = 1e9;
    const struct links *l = &links;
    const int64_t host = l->ranks_per_host;
    (void)state;
    assert_near(collective_seconds(l, GRAPH_ALL_TO_ALL, bytes, 1), 0);
    assert_near(collective_seconds(l, GRAPH_ALL_TO_ALL, bytes, 2),
                l->overhead + l->host_latency + .5 * bytes / l->host);
    assert_near(collective_seconds(l, GRAPH_ALL_TO_ALL, bytes, 2 * host),
                l->overhead + l->net_latency + .5 * bytes / l->net);
}

/* Ranks that exchange are groups of those that add their gradients up. */
static void test_exchange_in_files(void **state)
{
    static const char text[] =
        "libckpt-graph 1\nmicro 1\nstorages 4\nops 3\nbody 2\nrefs 6\n"
        "storage parameter 1024 persistent  # w\n"
        "storage activation 4096  # x\n"
        "storage activation 4096  # y\n"
        "storage gradient 1024  # w (gradient)\n"
        "op forward 0 0 0 4096 0000000000000000 0 rerun reads 0 writes 1  # a\n"
        "op forward 1 0 0 4096 0000000000000000 0 rerun all_to_all %d reads 1 writes 2  # b\n"
        "op update 2 0 0 1024 0000000000000000 0 all_reduce 8 reads 2 writes 3  # c\nend\n";
    struct graph *g;
    (void)state;
    for (int ranks = 3; ranks <= 4; ranks++) {
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fprintf(f, text, ranks);
        assert_int_equal(fclose(f), 0);
        const int rc = graph_read(file, &g);
        if (ranks == 3) {
            assert_int_equal(rc, CKPT_EFORMAT);
            assert_non_null(strstr(error_get(), "8 ranks do not divide into groups of 3"));
            continue;
        }
        if (rc)
            fail_msg("%s", error_get());
        assert_int_equal(g->ops[1].collective, GRAPH_ALL_TO_ALL);
        assert_int_equal(g->ops[1].ranks, 4);
        assert_int_equal(graph_ranks(g), 8);
        graph_free(g);
    }
}

/* Ranks with parts of a layer are neighbours; those with the same part are as far apart as these
 * are many, so fewer of them are on a host. */
static void test_layers_in_files(void **state)
{
    static const char text[] =
        "libckpt-graph 1\nmicro 1\nstorages 4\nops 3\nbody 2\nrefs 6\n"
        "storage parameter 1024 persistent  # w\n"
        "storage activation 4096  # x\n"
        "storage gradient 4096  # y\n"
        "storage gradient 1024  # w (gradient)\n"
        "op forward 0 0 0 4096 0000000000000000 0 rerun all_reduce 4 layer reads 0 writes 1  # a\n"
        "op backward 1 0 0 4096 0000000000000000 0 reduce_scatter %d stride %d reads 1 writes 2  # "
        "b\n"
        "op update 2 0 0 1024 0000000000000000 0 all_reduce 16 reads 2 writes 3  # c\nend\n";
    static const struct {
        int ranks, stride;
        const char *says;
    } all[] = {{4, 1, "the distance of ranks"},
               {4, 2, "4 ranks, 2 apart, are not those with one"},
               {2, 4, "2 ranks, 4 apart, are not those with one"},
               {4, 4, NULL}};
    struct machine m = machine_cuda;
    struct graph *g;
    (void)state;
    m.overhead = 0;
    m.links = links;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        FILE *f = fopen(file, "w");
        assert_non_null(f);
        fprintf(f, text, all[i].ranks, all[i].stride);
        assert_int_equal(fclose(f), 0);
        const int rc = graph_read(file, &g);
        assert_int_equal(rc, all[i].says ? CKPT_EFORMAT : 0);
        if (all[i].says && !strstr(error_get(), all[i].says))
            fail_msg("\"%s\" instead of \"%s\"", error_get(), all[i].says);
    }
    assert_true(g->ops[0].within_layer && g->ops[1].stride == 4 && !g->ops[2].stride);
    assert_int_equal(graph_ranks(g), 16);
    graph_price(g, &m);
    struct links two = links; /* a host of 8 has two of them */
    two.ranks_per_host = 2;
    assert_near(g->ops[0].comm_seconds, collective_seconds(&links, GRAPH_ALL_REDUCE, 4096, 4));
    assert_near(g->ops[1].comm_seconds, collective_seconds(&two, GRAPH_REDUCE_SCATTER, 4096, 4));
    const uint64_t signature = graph_signature(g);
    assert_int_equal(graph_write(g, file), 0);
    graph_free(g);
    assert_int_equal(graph_read(file, &g), 0);
    assert_true(graph_signature(g) == signature);
    g->ops[0].within_layer = false;
    assert_true(graph_signature(g) != signature);
    graph_free(g);
}

/* A graph prices its collectives by the links of the machine, whatever its memory rates. */
static void test_graph(void **state)
{
    static const char text[] =
        "libckpt-graph 1\nmicro 1\nstorages 3\nops 3\nbody 2\nrefs 5\n"
        "storage parameter 1048576 persistent  # w\n"
        "storage activation 8388608  # w\n"
        "storage gradient 1048576  # w (gradient)\n"
        "op forward 0 0 0 9437184 0000000000000000 0 rerun all_gather 8 reads 0 writes 1  # a\n"
        "op backward 1 0 0 9437184 0000000000000000 0 reduce_scatter 8 reads 1 writes 2  # b\n"
        "op update 2 0 0 1048576 0000000000000000 0 reads 2 writes  # c\nend\n";
    struct machine m = machine_cpu;
    struct graph *g;
    (void)state;
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    if (graph_read(file, &g))
        fail_msg("%s", error_get());
    assert_int_equal(g->ops[0].collective, GRAPH_ALL_GATHER);
    assert_int_equal(g->ops[1].collective, GRAPH_REDUCE_SCATTER);
    assert_int_equal(g->ops[2].collective, GRAPH_LOCAL);
    assert_int_equal(g->ops[0].ranks, 8);
    m.links = links;
    m.bandwidth = 1;
    graph_price(g, &m);
    double seconds = collective_seconds(&links, GRAPH_ALL_GATHER, 8388608, 8) + m.overhead;
    assert_near(g->ops[0].seconds, seconds);
    assert_near(g->ops[1].seconds, seconds);
    assert_int_equal(graph_write(g, file), 0);
    graph_free(g);
    assert_int_equal(graph_read(file, &g), 0);
    assert_int_equal(g->ops[0].collective, GRAPH_ALL_GATHER);
    assert_int_equal(g->ops[0].ranks, 8);
    graph_free(g);
}

/* ---- overlap --------------------------------------------------------------------------------- */

/* 16 layers of 10 ms forward and 20 ms backward; gathers take 1 ms, sums of gradients 2 ms. */
static struct graph *layers(bool early, double slower, struct machine *m)
{
    struct ranks_shape s = {.layers = 16,
                            .ranks = 4,
                            .numel = 1 << 20,
                            .gradient = 4,
                            .stream = 1 << 20,
                            .kept = 4 << 20,
                            .flops = 1e10,
                            .early = early};
    *m = machine_cpu;
    m->flops = 1e12;
    m->bandwidth = 1e15;
    m->h2d = 1e15;
    m->overhead = 0;
    m->links = (struct links){.host = .75 * 2 * s.numel / (1e-3 * slower),
                              .net = 1,
                              .ranks_per_host = 8,
                              .contention = .05};
    return model_ranks(&s, m);
}

static struct plan *make_with(const struct graph *g, const struct machine *m, int64_t device,
                              int64_t host)
{
    struct budgets b = {.device = device, .host = host};
    struct plan *p;
    if (plan_make(g, m, &b, 0, &p))
        fail_msg("%s", error_get());
    if (plan_check_again(g, p) || plan_check_times(g, m, p))
        fail_msg("%s", error_get());
    return p;
}

/* Without a search: as fast, and by the same clock. */
static void check_first(const struct graph *g, const struct machine *m)
{
    struct budgets b = {.device = INT64_MAX};
    struct plan *p = plan_unsearched(g, m, &b, 0), *all = make_with(g, m, INT64_MAX, 0);
    assert_non_null(p);
    assert_int_equal(plan_check_again(g, p), 0);
    assert_true(p->seconds == all->seconds);
    plan_free(p);
    plan_free(all);
}

static struct plan *make(const struct graph *g, const struct machine *m, int64_t device)
{
    return make_with(g, m, device, 0);
}

/* All overlaps but the first gather and the last reduction, which have no compute beside them. */
static void test_hides(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 1, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX);
    assert_near(p->comm_seconds, 16 * 3e-3);
    check_first(g, &m);
    double contention = .05 * p->comm_seconds;
    assert_true(p->exposed_comm < 3.01e-3 + contention && p->exposed_comm > 2.8e-3 + contention);
    assert_true(fabs(p->seconds - 16 * 30e-3 - p->exposed_comm) < 1e-6);
    assert_true(p->bound_seconds <= p->seconds);
    /* Overlap slows the ops beside it (contention), also in graphs that were read from files. */
    double before = p->seconds;
    plan_free(p);
    m.links.contention = .5;
    graph_price(g, &m);
    p = make(g, &m, INT64_MAX);
    assert_near(p->seconds - before, .45 * 15 * 3e-3); /* all but the first and the last */
    plan_free(p);
    assert_int_equal(graph_write(g, file), 0);
    struct graph *same;
    assert_int_equal(graph_read(file, &same), 0);
    for (int32_t i = 0; i < g->n_ops; i++)
        assert_true(same->ops[i].contention_seconds == g->ops[i].contention_seconds &&
                    same->ops[i].seconds == g->ops[i].seconds);
    graph_free(same);
    /* In the update there is no compute to overlap with. */
    struct graph *late = layers(false, 1, &m);
    struct plan *q = make(late, &m, INT64_MAX);
    assert_true(q->exposed_comm > 32e-3);
    plan_free(q);
    graph_free(late);
    graph_free(g);
}

/* With a saturated link the step takes as long as its collectives. */
static void test_slow_link(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 16, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX);
    check_first(g, &m);
    assert_true(p->seconds >= p->comm_seconds);
    assert_true(p->seconds < 1.15 * p->comm_seconds);
    plan_free(p);
    graph_free(g);
}

/* With less memory values are gathered again, and most of that overlaps, too. */
static void test_gathers_again(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 1, &m);
    (void)state;
    struct plan *all = make(g, &m, INT64_MAX);
    double before = all->seconds;
    for (int64_t less = 4 << 20; less <= 24 << 20; less += 4 << 20) {
        struct plan *p = make(g, &m, all->persistent + all->transient - less);
        assert_true(p->seconds >= before - 1e-12);
        before = p->seconds;
        plan_free(p);
    }
    struct plan *p = make(g, &m, all->persistent + all->transient - (24 << 20));
    int32_t again = 0;
    for (int32_t k = 0; k < p->n_steps; k++)
        again += p->steps[k].again && g->ops[p->steps[k].op].collective;
    assert_true(again > 0 && p->recompute_seconds < 1e-6);
    assert_true(p->exposed_comm < all->exposed_comm + again * .3e-3);
    plan_free(p);
    plan_free(all);
    graph_free(g);
}

/* If the copies of four ranks share the rate of their host, offloads gain less; ranks on separate
 * hosts share nothing. */
static void test_shared_copies(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 1, &m);
    (void)state;
    struct plan *all = make(g, &m, INT64_MAX);
    int64_t device = all->persistent + all->transient - (48 << 20), host = 1 << 30;
    m.d2h_both = m.h2d_both = 10e9;
    struct plan *alone = make_with(g, &m, device, host);
    m.host_copies = 2e8;
    struct plan *together = make_with(g, &m, device, host);
    double seconds = alone->seconds;
    assert_true(alone->n_copies > 0 && together->seconds > 1.01 * seconds);
    assert_int_equal(plan_reprice(g, &m, alone), 0); /* as for a plan file */
    assert_true(alone->seconds >= together->seconds);
    m.links.ranks_per_host = 1;
    struct plan *apart = make_with(g, &m, device, host);
    assert_true(apart->seconds == seconds);
    plan_free(all);
    plan_free(alone);
    plan_free(together);
    plan_free(apart);
    graph_free(g);
}

/* Whether a share is on the device up to a gather; *held: and a while longer, for that is on its
 * way. */
static bool is_left_by_gather(const struct graph *g, const struct plan *p,
                              const struct residence *r, int32_t *held)
{
    int32_t k = r->last;
    if (r->storage < 0 || r->tier != TIER_DEVICE || r->offset == -1 || r->last >= p->n_steps ||
        !g->storages[r->storage].persistent)
        return false;
    while (k > r->first && !graph_op_reads(g, &g->ops[p->steps[k].op], r->storage))
        k--;
    const struct graph_op *o = &g->ops[p->steps[k].op];
    bool left = o->collective == GRAPH_ALL_GATHER && graph_op_reads(g, o, r->storage);
    *held += left && k < r->last;
    return left;
}

/* Copies of 2e9 bytes a second and gathers of 4.2 ms beside 10 ms forward. */
static struct graph *layers_of_large_shares(bool norm, int64_t gradient, double contention,
                                            struct machine *m)
{
    struct ranks_shape s = {.layers = 3,
                            .ranks = 4,
                            .numel = 8 << 20,
                            .gradient = gradient,
                            .stream = 1 << 20,
                            .kept = 2 << 20,
                            .flops = 1e10,
                            .early = true,
                            .norm = norm};
    *m = machine_cpu;
    m->flops = 1e12;
    m->bandwidth = 1e11;
    m->h2d = m->d2h = m->h2d_both = m->d2h_both = 2e9;
    m->overhead = m->copy_overhead = 1e-6;
    m->links = (struct links){.host = 3e9, .net = 1, .ranks_per_host = 8, .contention = contention};
    return model_ranks(&s, m);
}

/*
 * Shares so large that they are offloaded.  A share is freed when the gather that reads it is done,
 * and stays that long if there is room.  A copy in that were delayed to the gather's step would
 * delay a gather that can begin earlier.  A copy that is done early ends then, even if another
 * follows.
 */
static void test_shares_leave(void **state)
{
    static const struct {
        bool norm;
        int64_t gradient;
        double contention;
    } cases[] = {{true, 4, .05}, {false, 2, .05}, {false, 4, .3}};
    (void)state;
    for (size_t c = 0; c < sizeof(cases) / sizeof(*cases); c++) {
        struct machine m;
        struct graph *g =
            layers_of_large_shares(cases[c].norm, cases[c].gradient, cases[c].contention, &m);
        struct plan *all = make_with(g, &m, INT64_MAX, INT64_C(1) << 40);
        int64_t least = all->min_budget, most = plan_peak(all);
        int32_t left = 0, held = 0;
        for (int64_t i = 0; i < 6; i++) {
            struct plan *p = make_with(g, &m, least + (most - least) * i / 6, INT64_C(1) << 40);
            for (int32_t n = 0; n < p->n_residences; n++)
                left += is_left_by_gather(g, p, &p->residences[n], &held);
            plan_free(p);
        }
        assert_true(left > held && held > 0);
        plan_free(all);
        graph_free(g);
    }
}

/* ---- updates on the host --------------------------------------------------------------------- */

enum { HOSTED = 3, STATES = 3 };

/* Layers whose gradients use the ranges of the values; after the norm a slow collective, then
 * updates.  The last update also reads the norm, so it runs on the device. */
static struct graph *updates_behind_a_collective(const struct machine *m, int32_t *collective)
{
    const int64_t mib = 1 << 20;
    struct net *n = net_new();
    int32_t x[HOSTED + 2] = {net_feed(n, mib)}, value[HOSTED + 1];
    for (int32_t i = 0; i <= HOSTED; i++) {
        value[i] = net_storage(n, KIND_PARAMETER, 2 * mib, "value");
        x[i + 1] =
            net_make(n, KIND_ACTIVATION, mib,
                     &(struct net_op){.name = "layer", .in = {x[i], value[i]}, .flops = 1e10});
    }
    int32_t dy =
        net_make(n, KIND_TEMPORARY, mib,
                 &(struct net_op){.phase = GRAPH_BACKWARD, .name = "loss", .in = {x[HOSTED + 1]}});
    for (int32_t i = HOSTED; i >= 0; i--) {
        int32_t dx = net_storage(n, KIND_TEMPORARY, mib, "dx");
        net_add(n, &(struct net_op){.phase = GRAPH_BACKWARD,
                                    .name = "gradient",
                                    .in = {dy, x[i], value[i]},
                                    .out = {dx, value[i]},
                                    .flops = 2e10});
        dy = dx;
    }
    int32_t norm = net_make(n, KIND_TEMPORARY, 64,
                            &(struct net_op){.phase = GRAPH_UPDATE,
                                             .name = "norm",
                                             .in = {value[0], value[1], value[2], value[3]}});
    int32_t clip = net_make(n, KIND_TEMPORARY, 64,
                            &(struct net_op){.phase = GRAPH_UPDATE, .name = "clip", .in = {norm}});
    int32_t all = net_make(n, KIND_TEMPORARY, 4 * mib,
                           &(struct net_op){.phase = GRAPH_UPDATE, .name = "all", .in = {norm}});
    net_make(n, KIND_TEMPORARY, 4 * mib,
             &(struct net_op){.phase = GRAPH_UPDATE, .name = "all_reduce", .in = {all}});
    *collective = n->g->n_ops - 1;
    n->g->ops[*collective].collective = GRAPH_ALL_REDUCE;
    n->g->ops[*collective].ranks = 4;
    for (int32_t i = 0; i <= HOSTED; i++) {
        struct net_op op = {.phase = GRAPH_UPDATE, .name = "update", .out = {value[i]}};
        for (int32_t k = 1; k <= STATES; k++)
            op.out[k] = net_storage(n, KIND_OPTIMIZER, 4 * mib, "state");
        memcpy(op.in, op.out, sizeof(op.in));
        op.in[STATES + 1] = clip;
        op.in[STATES + 2] = i == HOSTED ? norm : 0;
        net_add(n, &op);
    }
    return net_finish(n, m);
}

/* Whether state is copied in after an update on the host and before a collective is done. */
static bool comes_meanwhile(const struct graph *g, const struct machine *m, const struct plan *p,
                            int32_t collective)
{
    struct plan_clock c;
    double end = 0;
    bool found = false;
    assert_int_equal(plan_clock(g, m, p, &c), 0);
    for (int32_t k = 0; k < p->n_steps; k++)
        end = p->steps[k].op == collective ? c.steps[k].end : end;
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *k = &p->copies[i];
        found |= !copy_is_out(p->residences, k) && k->after >= p->n_body &&
                 p->steps[k->after].by == BY_HOST && k->start < end;
    }
    plan_clock_free(&c);
    return found;
}

/* An update on the host waits only for its copies, and so do the copies after it. */
static void test_host_waits_for_copies(void **state)
{
    struct machine m = machine_cpu;
    const int64_t host = INT64_C(1) << 40;
    int32_t collective, found = 0;
    (void)state;
    m.flops = 1e12;
    m.bandwidth = 1e12;
    m.overhead = 0;
    m.d2h = m.h2d = m.d2h_both = m.h2d_both = 4e9;
    m.host_update = 1e11;
    m.links = (struct links){.host = 1e8, .net = 1, .ranks_per_host = 8};
    struct graph *g = updates_behind_a_collective(&m, &collective);
    struct plan *all = make_with(g, &m, INT64_MAX, host);
    for (int64_t i = 0; i < 8; i++) {
        int64_t most = plan_peak(all), least = all->min_budget;
        struct plan *p = make_with(g, &m, least + (most - least) * i / 8, host);
        found += comes_meanwhile(g, &m, p, collective);
        plan_free(p);
    }
    assert_true(found > 0);
    plan_free(all);
    graph_free(g);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void expect_fault(const struct graph *g, struct plan *p, const char *what)
{
    assert_int_equal(plan_check_again(g, p), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\" in \"%s\"", what, error_get());
}

static int32_t next_collective(const struct graph *g, const struct plan *p, int32_t k)
{
    while (k < p->n_steps && !g->ops[p->steps[k].op].collective)
        k++;
    assert_true(k < p->n_steps);
    return k;
}

/* Two ranks whose collectives differ in order would deadlock. */
static void test_swapped(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 1, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX);
    int32_t a = next_collective(g, p, 0), b = next_collective(g, p, a + 1);
    struct plan_step first = p->steps[a];
    p->steps[a] = p->steps[b];
    p->steps[b] = first;
    expect_fault(g, p, "op");
    plan_free(p);
    graph_free(g);
}

/* A plan that claims more overlap than possible. */
static void test_times(void **state)
{
    struct machine m;
    struct graph *g = layers(false, 1, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX);
    double exposed = p->exposed_comm;
    p->seconds -= exposed / 2;
    p->exposed_comm -= exposed / 2;
    assert_int_equal(plan_check_times(g, &m, p), CKPT_EPLAN);
    assert_non_null(strstr(error_get(), "with its copies a step takes"));
    p->seconds += exposed / 2;
    p->exposed_comm += exposed / 2;
    assert_int_equal(plan_check_times(g, &m, p), 0);
    /* A residence that begins later delays its gather. */
    int32_t n = 0;
    while (p->residences[n].storage < 0 || plan_is_backing(g, p, &p->residences[n]) ||
           !g->ops[p->steps[p->residences[n].first + 1].op].collective ||
           p->residences[n].storage !=
               g->refs[g->ops[p->steps[p->residences[n].first + 1].op].writes])
        n++;
    p->residences[n].first++;
    assert_int_equal(plan_check_times(g, &m, p), CKPT_EPLAN);
    plan_free(p);
    graph_free(g);
}

/* A reduction whose input is freed too early, or a value that is read before its copy in ends. */
static void test_too_early(void **state)
{
    struct machine m;
    struct graph *g = layers(true, 1, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX);
    int32_t k = next_collective(g, p, 0);
    struct plan_step gather = p->steps[k];
    p->steps[k] = p->steps[k + 1];
    p->steps[k + 1] = gather;
    assert_int_equal(plan_check_again(g, p), CKPT_EPLAN);
    plan_free(p);
    graph_free(g);
}

/* Plan files keep the two times. */
static void test_file(void **state)
{
    struct machine m;
    struct graph *g = layers(false, 1, &m);
    (void)state;
    struct plan *p = make(g, &m, INT64_MAX), *q;
    assert_int_equal(plan_write(g, p, file), 0);
    if (plan_read(g, file, &q))
        fail_msg("%s", error_get());
    assert_true(q->exposed_comm == p->exposed_comm && q->comm_seconds == p->comm_seconds);
    assert_int_equal(plan_check(g, q), 0);
    plan_free(p);
    plan_free(q);
    graph_free(g);
}

/* A machine file without links gets the links of the built-in machine of its kind. */
static void test_defaults(void **state)
{
    struct machine m;
    char text[8192];
    (void)state;
    assert_int_equal(machine_write(&machine_cuda, file), 0);
    FILE *f = fopen(file, "r");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    text[n] = 0;
    char *from = strstr(text, "  \"link_host\""), *to = strstr(text, "  \"costs\"");
    assert_true(from && to > from);
    memmove(from, to, strlen(to) + 1);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
    if (machine_read(file, &m))
        fail_msg("%s", error_get());
    assert_memory_equal(&m.links, &machine_cuda.links, sizeof(m.links));
    machine_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prices),
        cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_exchange),
        cmocka_unit_test(test_exchange_in_files),
        cmocka_unit_test(test_layers_in_files),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_defaults),
        cmocka_unit_test(test_hides),
        cmocka_unit_test(test_slow_link),
        cmocka_unit_test(test_gathers_again),
        cmocka_unit_test(test_shared_copies),
        cmocka_unit_test(test_swapped),
        cmocka_unit_test(test_times),
        cmocka_unit_test(test_too_early),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_shares_leave),
        cmocka_unit_test(test_host_waits_for_copies),
    };
    int fd = mkstemp(file);
    if (fd < 0)
        return 1;
    close(fd);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(file);
    return rc;
}
