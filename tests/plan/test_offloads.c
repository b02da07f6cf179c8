/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Offloads: a program larger than the device runs with a lower tier at no cost; the plan passes the
 * checker, is written and read back; and the checker finds every fault of offloads.
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
#include "net.h"
#include "plan_make.h"
#include "plan/offload/transfer.h"
#include "plan/one_search.h"
#include "plan/plan_record.h"

#define UNIT (INT64_C(1) << 22)

/* A unit takes 4 ms to copy, as long as an elementwise op on it. */
static const struct machine machine = {.name = "test",
                                       .d2h = 1.1e9,
                                       .h2d = 1.1e9,
                                       .d2h_both = 1e9,
                                       .h2d_both = 1e9,
                                       .nvme_read = 5e8,
                                       .nvme_write = 4e8};

struct fixture {
    struct graph *g;
    struct plan *p;
    int64_t least, most; /* device bytes without offloads */
};

/* A layer with gradients in bf16, searched once for all tests of it. */
static struct graph *narrow;
static struct frontier *narrow_plans;

static int make_narrow(void **state)
{
    const struct stdit_shape shape = {.depth = 1, .tokens = 2048, .narrow = true};
    (void)state;
    narrow = model_stdit_shape(&shape, &machine_cuda);
    return frontier_build(narrow, &narrow_plans);
}

static int free_narrow(void **state)
{
    (void)state;
    frontier_free(narrow_plans);
    graph_free(narrow);
    return 0;
}

static int plan_for(const struct graph *g, const struct machine *m, const struct budgets *b,
                    struct plan **p)
{
    return g == narrow ? frontier_plan(narrow_plans, m, b, 0, p) : plan_make(g, m, b, 0, p);
}

static struct plan *make(const struct graph *g, int64_t device, int64_t host, int64_t nvme)
{
    struct budgets b = {.device = device, .host = host, .nvme = nvme};
    struct plan *p;
    if (plan_for(g, &machine, &b, &p))
        fail_msg("no plan: %s", error_get());
    if (plan_check_again(g, p) || plan_check_times(g, &machine, p))
        fail_msg("plan_check: %s", error_get());
    assert_true(p->persistent + p->transient <= device);
    assert_true(p->host_bytes <= host && p->nvme_bytes <= nvme);
    assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
    assert_true(p->exposed_seconds >= 0);
    return p;
}

/* A third of the way from the smallest to the largest budget without offloads; or below the
 * smallest, where state must be offloaded. */
static struct fixture fixture_at(bool below, int64_t host, int64_t nvme)
{
    static int64_t least, most; /* searched for once */
    struct fixture f = {.g = graph_transformer(2, UNIT, 1)};
    if (!most) {
        struct plan *all = make(f.g, INT64_MAX, 0, 0);
        least = all->min_budget;
        most = plan_peak(all);
        plan_free(all);
    }
    f.least = least;
    f.most = most;
    int64_t device = below ? f.least / 8 * 7 : f.least + (f.most - f.least) / 3;
    f.p = make(f.g, device, host, nvme);
    assert_true(f.p->n_copies > 0);
    return f;
}

static struct fixture fixture(int64_t host, int64_t nvme)
{
    return fixture_at(false, host, nvme);
}

static void done(struct fixture *f)
{
    plan_free(f->p);
    if (f->g != narrow)
        graph_free(f->g);
}

static void expect_fault(struct fixture *f, const char *what)
{
    assert_int_equal(plan_check_again(f->g, f->p), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\", got \"%s\"", what, error_get());
    done(f);
}

/* An offloaded activation, or an offload that wraps round the end of the step. */
static struct leave find_leave(const struct fixture *f, bool wraps)
{
    struct leave *list, found = {.in = NULL};
    int32_t n = list_leaves(f->g, f->p, &list);
    for (int32_t i = 0; i < n && !found.in; i++)
        if (list[i].wraps == wraps)
            found = list[i];
    free(list);
    assert_non_null(found.in);
    return found;
}

static void test_pays(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan *without = make(f.g, f.least + (f.most - f.least) / 3, 0, 0);
    assert_int_equal(without->n_copies, 0);
    /* The cost of recompute falls by at least a third. */
    assert_true(f.p->recompute_seconds <= without->recompute_seconds * 2 / 3);
    plan_free(without);
    done(&f);
}

/* Ops of 2.5 ms, forward and backward, that each read a frozen weight of 4 ms to copy. */
static struct graph *frozen_layers(void)
{
    enum { LAYERS = 16 };
    struct net *n = net_new();
    int32_t w[LAYERS], x = net_feed(n, UNIT / 64);
    for (int i = 0; i < LAYERS; i++) {
        w[i] = net_storage(n, KIND_PARAMETER, UNIT, "weight");
        struct net_op op = {.name = "linear", .in = {x, w[i]}, .seconds = 2.5e-3};
        x = net_make(n, KIND_ACTIVATION, UNIT / 64, &op);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        struct net_op op = {
            .phase = GRAPH_BACKWARD, .name = "linear_dx", .in = {x, w[i]}, .seconds = 2.5e-3};
        x = net_make(n, KIND_TEMPORARY, UNIT / 64, &op);
    }
    return net_finish(n, NULL);
}

/* Copies of frozen weights hide where every second layer is copied in, not where the first half of
 * the layers is. */
static void test_frozen_spread(void **state)
{
    (void)state;
    struct graph *g = frozen_layers();
    struct plan *p = make(g, 11 * UNIT, INT64_C(1) << 40, 0);
    assert_true(p->n_copies > 0);
    if (p->exposed_seconds > 0.1 * p->seconds)
        fail_msg("%g of %g s wait for copies", p->exposed_seconds, p->seconds);
    for (int32_t i = 0; i < p->n_copies; i++) /* a frozen weight is never copied out */
        assert_int_equal(p->residences[p->copies[i].from].tier, TIER_HOST);
    plan_free(p);
    graph_free(g);
}

static void test_declines(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct plan *p = make(f.g, f.most, INT64_C(1) << 40, INT64_C(1) << 40);
    assert_int_equal(p->n_copies, 0);
    plan_free(p);
    done(&f);
}

static void test_tiers(void **state)
{
    (void)state;
    struct fixture host = fixture(INT64_C(1) << 40, 0);
    struct fixture both = fixture(2 * UNIT, INT64_C(1) << 40);
    assert_true(both.p->host_bytes <= 2 * UNIT && both.p->nvme_bytes > 0);
    assert_true(both.p->seconds >= host.p->seconds);
    done(&host);
    done(&both);
}

static void test_sweep(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct frontier *pf;
    struct plan *plans[100];
    int64_t device[100];
    double slower = 1e300;
    for (int i = 0; i < 100; i++)
        device[i] = f.least + (f.most - f.least) * i / 99;
    assert_int_equal(frontier_build(f.g, &pf), 0);
    assert_int_equal(plan_sweep(pf, &machine, &f.p->budgets, device, 100, plans), 0);
    frontier_free(pf);
    for (int i = 0; i < 100; i++) {
        assert_non_null(plans[i]);
        assert_int_equal(plan_check_again(f.g, plans[i]), 0);
        assert_true(plans[i]->seconds <= slower);
        slower = plans[i]->seconds;
        plan_free(plans[i]);
    }
    done(&f);
}

static void test_file(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    char path[] = "/tmp/ckpt-parks-XXXXXX", again[] = "/tmp/ckpt-parks-XXXXXX";
    char command[128];
    struct plan *p;
    close(mkstemp(path));
    close(mkstemp(again));
    assert_int_equal(plan_write(f.g, f.p, path), 0);
    assert_int_equal(plan_read(f.g, path, &p), 0);
    assert_int_equal(plan_check(f.g, p), 0);
    assert_int_equal(plan_write(f.g, p, again), 0);
    snprintf(command, sizeof(command), "cmp %s %s", path, again);
    assert_int_equal(system(command), 0);
    assert_int_equal(p->n_copies, f.p->n_copies);
    plan_free(p);
    unlink(path);
    unlink(again);
    done(&f);
}

/* A plan that says too little about its waits, as one of a machine with faster copies does. */
static void test_wait_not_counted(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct machine slow = machine;
    slow.h2d_both /= 8;
    assert_int_equal(plan_check_times(f.g, &slow, f.p), CKPT_EPLAN);
    f.p->seconds *= 2;
    assert_int_equal(plan_check_times(f.g, &machine, f.p), CKPT_EPLAN);
    assert_non_null(strstr(error_get(), "with its copies a step takes"));
    done(&f);
}

static void test_used_while_away(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct leave k = find_leave(&f, false);
    k.in->before = ++k.below->last;
    expect_fault(&f, "before its copy has come");
}

static void test_order(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct leave k = find_leave(&f, false);
    k.before->last = k.is.in_step;
    assert_int_equal(plan_measure(f.g, f.p), 0);
    expect_fault(&f, "overlap at step");
}

static void test_residence(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct leave k = find_leave(&f, false);
    k.behind->last++;
    k.before->last--;
    expect_fault(&f, "and is on the device from");
}

/* Two copies swap places in a queue: the first then waits for a step after the one that waits for
 * the second. */
static void test_event_cycle(void **state)
{
    (void)state;
    struct fixture f = fixture_at(true, INT64_C(1) << 40, 0);
    int32_t i = 1;
    while (copy_is_out(f.p->residences, &f.p->copies[i - 1]) ||
           f.p->copies[i - 1].after == f.p->copies[i].after)
        i++;
    struct copy first = f.p->copies[i - 1];
    f.p->copies[i - 1] = f.p->copies[i];
    f.p->copies[i] = first;
    assert_int_equal(plan_check(f.g, f.p), CKPT_EPLAN);
    assert_non_null(strstr(error_get(), "wait for each other"));
    done(&f);
}

static void test_tier_overflow(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    f.p->budgets.host = f.p->host_bytes - 1;
    expect_fault(&f, "over its budget");
    f = fixture(INT64_C(1) << 40, 0);
    f.p->host_bytes -= CKPT_ALIGN;
    expect_fault(&f, "leave the");
}

static void test_tier_overlap(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct residence *last = &f.p->residences[f.p->n_residences - 1];
    assert_true(last[-1].tier == TIER_HOST);
    last->offset = last[-1].offset;
    expect_fault(&f, "overlap");
}

static void test_cannot_leave(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    f.g->storages[find_leave(&f, false).is.storage].carried = true;
    f.p->signature = graph_signature(f.g);
    expect_fault(&f, "is carried but");
}

/* A storage that is recomputed between two uses is not resident, so it cannot be offloaded. */
static void test_idle_gaps(void **state)
{
    (void)state;
    struct graph *g = graph_transformer(3, UNIT, 1);
    struct frontier *pf;
    int32_t found = 0;
    assert_int_equal(frontier_build(g, &pf), 0);
    for (int32_t i = 0; i < pf->n; i++) {
        struct pool m = {NULL, false};
        struct plan *p;
        struct idle_gap *list;
        int32_t n;
        assert_int_equal(option_steps(pf, &pf->options.data[i], &p), 0);
        assert_int_equal(idle_gaps_find(g, &machine, p, &m, &list, &n), 0);
        for (int32_t k = 0; k < n; k++) {
            if (list[k].residence < 0)
                continue;
            const struct residence *t = &p->residences[list[k].residence];
            assert_true(t->first <= list[k].out_step && t->last >= list[k].use_step);
            found++;
        }
        pool_free(&m);
        plan_free(p);
    }
    assert_true(found > 0);
    frontier_free(pf);
    graph_free(g);
}

static void test_clean_activation(void **state)
{
    (void)state;
    struct fixture f = fixture(INT64_C(1) << 40, 0);
    struct copy *out = find_leave(&f, false).out;
    memmove(out, out + 1, (size_t)(f.p->copies + f.p->n_copies - out - 1) * sizeof(*out));
    f.p->n_copies--;
    expect_fault(&f, "before anything wrote it");
}

/* y = w x, whose gradient uses the addresses of w; the last op of the backward pass reads y or not.
 * */
static bool runs_again(bool late)
{
    struct graph_builder *k = build_new();
    struct graph *g = k->g;
    struct program *p;
    int32_t x = build_input(k, UNIT), w = build_storage(k, UNIT, KIND_PARAMETER, "w");
    int32_t m = build_storage(k, UNIT, KIND_OPTIMIZER, "master");
    int32_t y = build_storage(k, UNIT, KIND_ACTIVATION, "y");
    int32_t d = build_storage(k, UNIT, KIND_TEMPORARY, "dy");
    int32_t e = build_storage(k, UNIT, KIND_TEMPORARY, "dx");
    int32_t op = build_op(k, GRAPH_FORWARD, "linear", 2, (int32_t[]){x, w}, 1, &y, 1e-3);
    build_op(k, GRAPH_BACKWARD, "dy", 1, &y, 1, &d, 1e-3);
    build_op(k, GRAPH_BACKWARD, "dw", 2, (int32_t[]){d, x}, 1, &w, 1e-3);
    build_op(k, GRAPH_BACKWARD, "dx", 1, late ? &y : &d, 1, &e, 1e-3);
    g->n_body = g->n_ops;
    g->n_micro = 1;
    build_op(k, GRAPH_UPDATE, "adamw", 2, (int32_t[]){w, m}, 2, (int32_t[]){w, m}, 1e-3);
    assert_int_equal(program_build(g, &p), 0);
    bool again = p->rerun[op];
    program_free(p);
    graph_free(g);
    free(k->gradient);
    free(k->forward);
    free(k);
    return again;
}

/* Gradients in the ranges of values: ops that read a value can rerun until it is overwritten, and
 * an offload moves the current contents. */
static void test_gradients_in_values(void **state)
{
    (void)state;
    const struct graph *g = narrow;
    struct plan *all = make(g, INT64_MAX, 0, 0), *least = make(g, all->min_budget, 0, 0);
    struct plan *offloaded = make(g, all->persistent / 7 * 2, INT64_C(1) << 40, 0);
    bool *written = calloc((size_t)g->n_storages, sizeof(*written));
    int32_t again = 0, weights = 0;
    for (int32_t i = 0; i < g->n_body; i++)
        for (int32_t j = 0; j < g->ops[i].n_writes; j++)
            written[g->refs[g->ops[i].writes + j]] = true;
    for (int32_t k = 0; k < least->n_steps; k++)
        for (int32_t j = 0; j < g->ops[least->steps[k].op].n_reads; j++)
            again += least->steps[k].again &&
                     written[g->refs[g->ops[least->steps[k].op].reads + j]] &&
                     g->storages[g->refs[g->ops[least->steps[k].op].reads + j]].persistent;
    for (int32_t i = 0; i < offloaded->n_copies; i++) {
        int32_t s = offloaded->residences[offloaded->copies[i].from].storage;
        weights += written[s] && g->storages[s].persistent;
    }
    assert_true(again > 0 && weights > 0);
    assert_true(runs_again(false) && !runs_again(true));
    free(written);
    plan_free(all);
    plan_free(least);
    plan_free(offloaded);
}

/* Seconds during which copies in run from both tiers. */
static double both_come(const struct plan *p)
{
    double seconds = 0;
    for (int32_t i = 0; i < p->n_copies; i++)
        for (int32_t j = 0; j < p->n_copies; j++) {
            const struct copy *a = &p->copies[i], *b = &p->copies[j];
            double from = a->start > b->start ? a->start : b->start;
            double to = a->end < b->end ? a->end : b->end;
            if (p->residences[a->from].tier == TIER_HOST &&
                p->residences[b->from].tier == TIER_NVME && from < to)
                seconds += to - from;
        }
    return seconds;
}

/* If the update waits for copies, a drive in addition to the host's link shortens the wait. */
static void test_two_lines(void **state)
{
    (void)state;
    const struct graph *g = narrow;
    int64_t device = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        device += g->storages[s].persistent ? g->storages[s].bytes / 3 : 0;
    struct plan *file = make(g, device, 0, INT64_C(1) << 40);
    struct plan *both = make(g, device, file->nvme_bytes * 3 / 5, INT64_C(1) << 40);
    assert_true(both_come(both) > both->seconds / 4);
    assert_true(both->seconds < file->seconds * 0.7);
    plan_free(file);
    plan_free(both);
}

/* Copies out of the update that run far into the next step leave holes between addresses.  A budget
 * which is too small for these holes gets steps that end with their last copy; only the smallest
 * budgets have steps that wait for each copy. */
static void test_slow_drive(void **state)
{
    (void)state;
    struct plan *some = make(narrow, INT64_MAX, 0, INT64_C(1) << 40);
    int64_t least = some->min_budget;
    struct plan *serial = make(narrow, least, 0, INT64_C(1) << 40);
    struct plan *above = make(narrow, least + least / 25, 0, INT64_C(1) << 40);
    assert_true(above->seconds < 0.7 * serial->seconds);
    assert_true(above->seconds < 1.4 * above->bound_seconds);
    plan_free(some);
    plan_free(serial);
    plan_free(above);
}

/* The time of a copy: its bytes at the rate, plus an overhead. */
static void test_copy_overhead(void **state)
{
    (void)state;
    struct machine slow = machine;
    struct budgets b = {.host = INT64_C(1) << 40};
    struct plan *p, *other;
    slow.copy_overhead = 2e-3;
    for (int32_t s = 0; s < narrow->n_storages; s++)
        b.device += narrow->storages[s].persistent ? narrow->storages[s].bytes / 2 : 0;
    assert_int_equal(plan_for(narrow, &machine, &b, &other), 0);
    assert_int_equal(plan_for(narrow, &slow, &b, &p), 0);
    assert_int_equal(plan_check_again(narrow, p), 0);
    assert_true(p->n_copies > 0 && p->seconds > other->seconds);
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        double bytes = (double)residence_bytes(narrow, p, &p->residences[c->from]);
        assert_true(c->end - c->start >= (bytes / 1e9 + 2e-3) * (1 - 1e-9));
    }
    plan_free(other);
    plan_free(p);
}

/* A drive that shares its rate between both ways: a copy beside another takes longer. */
static void test_drive_both_ways(void **state)
{
    (void)state;
    struct machine shared = machine;
    struct budgets b = {.nvme = INT64_C(1) << 40};
    struct plan *p, *other;
    int32_t slower = 0;
    shared.nvme_both = 2e8;
    for (int32_t s = 0; s < narrow->n_storages; s++)
        b.device += narrow->storages[s].persistent ? narrow->storages[s].bytes / 2 : 0;
    assert_int_equal(plan_for(narrow, &machine, &b, &other), 0);
    assert_int_equal(plan_for(narrow, &shared, &b, &p), 0);
    assert_int_equal(plan_check_again(narrow, p), 0);
    assert_true(p->n_copies > 0 && p->seconds > 1.2 * other->seconds);
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *c = &p->copies[i];
        double alone = (double)residence_bytes(narrow, p, &p->residences[c->from]);
        alone /= machine.nvme_read;
        double took = c->end - c->start;
        if (copy_is_out(p->residences, c))
            continue;
        assert_true(took >= alone * (1 - 1e-9) && took <= 2.5 * alone * (1 + 1e-9));
        slower += took > 2.4 * alone;
    }
    assert_true(slower > 0);
    plan_free(other);
    plan_free(p);
}

/* Addresses of a plan do for one whose residences are not longer, and for no other. */
static void test_share(void **state)
{
    struct graph *g = graph_transformer(1, 1 << 14, 1);
    struct plan *p = plan_checked(g, INT64_MAX), *far = plan_checked(g, INT64_MAX);
    (void)state;
    for (int32_t i = 0; i < far->n_residences; i++)
        far->residences[i].offset += far->residences[i].offset < 0 ? 0 : p->transient;
    far->transient *= 2;
    assert_int_equal(plan_share_offsets(g, p, far), 0); /* they need more */
    assert_int_equal(plan_check(g, p), 0);
    assert_int_equal(plan_share_offsets(g, far, p), 0);
    assert_true(far->transient == p->transient);
    assert_int_equal(plan_check(g, far), 0);
    far->transient *= 2;
    for (int32_t i = 0; i < p->n_residences; i++)
        p->residences[i].last -= p->residences[i].last > p->residences[i].first;
    assert_int_equal(plan_share_offsets(g, far, p), 0);
    assert_true(far->transient == 2 * p->transient);
    plan_free(p);
    plan_free(far);
    graph_free(g);
}

/* The most live bytes of a plan with the copies of t. */
static int64_t most_alive(const struct transfer *t, struct plan *from)
{
    struct plan *p;
    assert_int_equal(plan_copy(from, &p), 0);
    assert_int_equal(transfer_rewrite((struct transfer *)t, p), 0);
    assert_int_equal(plan_measure(t->g, p), 0);
    int64_t bytes = p->persistent + p->load;
    plan_free(p);
    return bytes;
}

/* A slow drive is busy all through a step.  Copies out in another order need no more of the device
 * than in their own: one that stands behind others is not gone before it is submitted. */
static void test_order_within(void **state)
{
    const double none[AMOUNTS] = {0};
    const struct budgets b = {.host = 0, .nvme = INT64_C(1) << 40};
    (void)state;
    for (int part = 4; part < 9; part++) {
        struct machine m = machine;
        struct plan *p;
        struct transfer *t;
        bool fits = false;
        m.nvme_write = 1e9 / part;
        const struct option *all = &narrow_plans->options.data[narrow_plans->n - 1];
        assert_int_equal(option_steps(narrow_plans, all, &p), 0);
        assert_int_equal(transfer_new(narrow, &m, p, &t), 0);
        int64_t device = (p->persistent + p->load) / 10 * part;
        t->b = &b;
        t->most = INT64_MAX;
        if (transfer_choose(t, none, device) <= device)
            assert_int_equal(transfer_try(t, device, INFINITY, &fits), 0);
        if (fits) {
            assert_true(most_alive(t, p) <= device);
            assert_int_equal(transfer_order_outs(t, device), 0);
            assert_true(most_alive(t, p) <= device);
        }
        transfer_free(t);
        plan_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pays),
        cmocka_unit_test(test_frozen_spread),
        cmocka_unit_test(test_share),
        cmocka_unit_test(test_declines),
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_wait_not_counted),
        cmocka_unit_test(test_used_while_away),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_residence),
        cmocka_unit_test(test_event_cycle),
        cmocka_unit_test(test_tier_overflow),
        cmocka_unit_test(test_tier_overlap),
        cmocka_unit_test(test_cannot_leave),
        cmocka_unit_test(test_clean_activation),
        cmocka_unit_test(test_idle_gaps),
        cmocka_unit_test(test_gradients_in_values),
        cmocka_unit_test(test_two_lines),
        cmocka_unit_test(test_slow_drive),
        cmocka_unit_test(test_copy_overhead),
        cmocka_unit_test(test_drive_both_ways),
        cmocka_unit_test(test_order_within),
    };
    return cmocka_run_group_tests(tests, make_narrow, free_narrow);
}
