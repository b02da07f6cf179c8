/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters and optimizer state in the lower tiers: programs larger than the device, backings
 * chosen by another program, several micro-steps; and the checker finds every fault of such
 * offloads.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "graphs.h"
#include "plan_make.h"
#include "plan/one_search.h"

#define UNIT   (INT64_C(1) << 22)
#define PLENTY (INT64_C(1) << 40)

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
};

static int64_t persistent_bytes(const struct graph *g)
{
    int64_t bytes = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        bytes += g->storages[s].persistent ? g->storages[s].bytes : 0;
    return bytes;
}

static struct plan *make(const struct graph *g, const struct budgets *b)
{
    struct plan *p;
    if (plan_make(g, &machine, b, 0, &p))
        fail_msg("no plan: %s", error_get());
    if (plan_check_again(g, p) || plan_check_times(g, &machine, p))
        fail_msg("plan_check: %s", error_get());
    assert_true(p->persistent + p->transient <= b->device);
    assert_true(p->host_bytes <= b->host - b->tier_base[TIER_HOST]);
    assert_true(p->nvme_bytes <= b->nvme - b->tier_base[TIER_NVME] || p->nvme_bytes == 0);
    assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
    return p;
}

/* Device bytes slightly above the smallest budget. */
static int64_t least_device(const struct graph *g, int64_t host, int64_t nvme)
{
    struct budgets b = {.host = host, .nvme = nvme};
    int64_t low = 0, high = 2 * persistent_bytes(g);
    struct frontier *pf;
    struct offloader *x;
    assert_int_equal(frontier_build(g, &pf), 0);
    assert_int_equal(offloader_new(pf, &machine, &x), 0);
    while (high - low > UNIT / 4) {
        int64_t middle = low + (high - low) / 2;
        struct point unplaced;
        struct plan *p;
        bool apart;
        assert_int_equal(offload_unplaced(x, &b, middle, &unplaced), 0);
        assert_int_equal(offload_plan(x, &b, middle, &unplaced, 0, INFINITY, &p, &apart), 0);
        if (p)
            high = middle;
        else
            low = middle;
        plan_free(p);
    }
    offloader_free(x);
    frontier_free(pf);
    return high;
}

/* Layers whose weights are larger than their activations. */
static struct graph *training(int32_t n_micro)
{
    struct graph_builder *k = build_new();
    int32_t x = build_input(k, UNIT);
    for (int32_t i = 0; i < 6; i++) {
        x = build_unary(k, "linear", x, UNIT, 2 * UNIT, 1, 10e-3);
        x = build_unary(k, "gelu", x, UNIT, 0, 1, 1e-3);
    }
    return build_finish(k, x, n_micro);
}

/* On a device that its parameters alone would fill. */
static struct fixture fixture(int32_t n_micro, int64_t host, int64_t nvme)
{
    struct fixture f = {.g = training(n_micro)};
    struct budgets b = {.device = least_device(f.g, host, nvme), .host = host, .nvme = nvme};
    assert_true(b.device < persistent_bytes(f.g));
    f.p = make(f.g, &b);
    return f;
}

static void done(struct fixture *f)
{
    plan_free(f->p);
    graph_free(f->g);
}

static void expect_fault(struct fixture *f, const char *what)
{
    assert_int_equal(plan_check_again(f->g, f->p), CKPT_EPLAN);
    if (!strstr(error_get(), what))
        fail_msg("expected \"%s\", got \"%s\"", what, error_get());
    done(f);
}

enum want { ANY = -1, NO, YES };

static struct leave find_leave(const struct fixture *f, enum want clean, enum want wraps,
                               enum graph_kind kind)
{
    struct leave *list, found = {.in = NULL};
    int32_t n = list_leaves(f->g, f->p, &list);
    for (int32_t i = 0; i < n && !found.in; i++)
        if ((clean == ANY || !list[i].out == (clean == YES)) &&
            (wraps == ANY || list[i].wraps == (wraps == YES)) &&
            f->g->storages[list[i].is.storage].kind == kind)
            found = list[i];
    free(list);
    assert_non_null(found.in);
    return found;
}

/* The backing residence of a parameter in a lower tier. */
static struct residence *find_below(const struct plan *p)
{
    for (int32_t i = 0; i < p->n_residences; i++)
        if (p->residences[i].tier != TIER_DEVICE)
            return &p->residences[i];
    fail_msg("nothing is below");
    return NULL;
}

/* Forward ops alone: weights are nearly all of the bytes. */
static struct graph *sampling(int32_t layers)
{
    struct graph_builder *k = build_new();
    int32_t x = build_storage(k, UNIT, KIND_INPUT, "x");
    build_op(k, GRAPH_FORWARD, "feed", 0, NULL, 1, &x, 1e-4);
    for (int32_t i = 0; i < layers; i++) {
        int32_t w = build_storage(k, 2 * UNIT, KIND_PARAMETER, "weight");
        int32_t y = build_storage(k, UNIT, KIND_ACTIVATION, "y"), reads[] = {x, w};
        build_op(k, GRAPH_FORWARD, "linear", 2, reads, 1, &y, 10e-3);
        x = y;
    }
    struct graph *g = k->g;
    g->n_micro = 1;
    g->n_body = g->n_ops;
    free(k->gradient);
    free(k->forward);
    free(k);
    return g;
}

/* ---- what is planned ------------------------------------------------------------------------ */

static void test_larger_than_device(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    find_leave(&f, YES, NO, KIND_PARAMETER);
    assert_true(f.p->exposed_seconds > 0);
    assert_true(f.p->host_bytes <= persistent_bytes(f.g) + f.p->transient * 4);
    assert_int_equal(f.p->staging_bytes, 0);
    done(&f);
}

static void test_micro_steps(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    struct leave *list;
    int32_t crossing = 0, n = list_leaves(f.g, f.p, &list);
    for (int32_t i = 0; i < n; i++) {
        const struct offload *k = &list[i].is;
        crossing += k->out_step < f.p->n_body && k->use_step >= f.p->n_body;
        assert_true(k->free_step >= k->out_step);
    }
    assert_true(crossing > 0);
    free(list);
    done(&f);
}

static void test_nvme(void **state)
{
    (void)state;
    struct fixture f = fixture(1, 0, PLENTY);
    assert_true(f.p->host_bytes == 0 && f.p->nvme_bytes > 0);
    assert_true(f.p->nvme_bytes % PLAN_NVME_ALIGN == 0);
    assert_int_equal(f.p->staging_bytes, PLAN_STAGING_MOST);
    struct budgets both = {.device = f.p->budgets.device, .host = PLENTY, .nvme = PLENTY};
    struct plan *p = make(f.g, &both);
    assert_true(p->nvme_bytes == 0 && p->seconds < f.p->seconds);
    plan_free(p);
    done(&f);
}

/* Copies of streamed weights overlap with compute: 16 ms of copies, 20 ms of ops. */
static void test_sampling(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY};
    struct plan *p = make(g, &b);
    for (int32_t i = 0; i < p->n_copies; i++)
        assert_false(copy_is_out(p->residences, &p->copies[i]));
    assert_true(p->n_copies > 0 && p->exposed_seconds < 0.15 * p->seconds);
    plan_free(p);
    graph_free(g);
}

/* Storages offloaded by another program stay in their range and need no new bytes. */
static void test_backing_in_tier(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    int64_t at = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        if (g->storages[s].persistent) {
            g->storages[s].backing = BACKING_HOST;
            g->storages[s].backing_offset = at;
            at += g->storages[s].bytes;
        }
    struct budgets b = {.device = PLENTY, .host = at, .tier_base = {at, 0}};
    struct plan *p = make(g, &b);
    assert_int_equal(p->persistent, 0);
    assert_int_equal(p->n_copies, 12);
    assert_int_equal(p->host_bytes, 0);
    find_below(p)->offset += CKPT_ALIGN;
    struct fixture f = {g, p};
    expect_fault(&f, "lives where the context does not have it");
}

static void test_backing_on_device(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    struct plan *p;
    for (int32_t s = 0; s < g->n_storages; s++)
        g->storages[s].backing = g->storages[s].persistent ? BACKING_DEVICE : BACKING_ANY;
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY};
    assert_int_equal(plan_make(g, &machine, &b, 0, &p), CKPT_EBUDGET);
    for (int32_t s = 0; s < g->n_storages; s++)
        g->storages[s].backing = BACKING_ANY;
    p = make(g, &b);
    g->storages[find_below(p)->storage].backing = BACKING_DEVICE;
    struct fixture f = {g, p};
    expect_fault(&f, "lives where the context does not have it");
}

/* Tells g which storages p leaves for the next step, this many bytes above their addresses; returns
 * how many. */
static int32_t tell_crossings(struct graph *g, const struct plan *p, int64_t above)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        if (r->storage < 0 || r->last < p->n_steps || !g->storages[r->storage].persistent)
            continue;
        g->storages[r->storage].crosses = true;
        g->storages[r->storage].crossing = r->offset + above;
        n++;
    }
    return n;
}

/* Copies into the next step use the addresses of another program, unless those are too high. */
static void test_crossings(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    for (int32_t i = 0; i < f.g->n_body; i += 2)
        f.g->ops[i].seconds *= 1.2;
    struct plan *apart = make(f.g, &f.p->budgets);
    assert_true(tell_crossings(f.g, f.p, 0) > 0);
    struct plan *p = make(f.g, &f.p->budgets);
    int32_t common = 0;
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *r = &p->residences[i];
        bool told = r->storage >= 0 && r->last >= p->n_steps && f.g->storages[r->storage].crosses;
        assert_true(!told || r->offset == f.g->storages[r->storage].crossing);
        common += told;
    }
    assert_true(common > 0 && p->seconds <= apart->seconds * 1.02);
    plan_free(p);
    tell_crossings(f.g, f.p, f.p->budgets.device);
    p = make(f.g, &f.p->budgets);
    assert_true(p->seconds == apart->seconds && p->transient == apart->transient);
    plan_free(p);
    plan_free(apart);
    done(&f);
}

/* New backing residences lie above the bytes of other programs. */
static void test_tier_base(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY, .tier_base = {10 * UNIT, 0}};
    struct plan *p = make(g, &b);
    for (int32_t i = 0; i < p->n_residences; i++)
        assert_true(p->residences[i].tier == TIER_DEVICE || p->residences[i].offset >= 10 * UNIT);
    find_below(p)->offset = 0;
    struct fixture f = {g, p};
    expect_fault(&f, "leave the");
}

/* ---- faults --------------------------------------------------------------------------------- */

static void test_clean_but_written(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    struct leave k = find_leave(&f, NO, YES, KIND_OPTIMIZER);
    k.before->last = k.is.out_step;
    memmove(k.out, k.out + 1, (size_t)(f.p->copies + f.p->n_copies - k.out - 1) * sizeof(*k.out));
    f.p->n_copies--;
    expect_fault(&f, "ends the step in version");
}

static void test_two_backings(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    struct residence again = *find_below(f.p);
    again.offset += CKPT_ALIGN;
    assert_int_equal(plan_reserve(f.p, 1, 0), 0);
    plan_add_residence(f.p, again);
    expect_fault(&f, "has two backing residences");
}

/* With one micro-step it may: a gradient in the address range of its value. */
static void test_body_writes(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    int32_t written = find_leave(&f, NO, YES, KIND_PARAMETER).is.storage;
    for (int32_t step = 0; step < f.p->n_body; step++) {
        struct graph_op *o = &f.g->ops[f.p->steps[step].op];
        for (int32_t j = 0; j < o->n_reads; j++)
            if (f.g->refs[o->reads + j] == written && j == o->n_reads - 1) {
                /* Turns the last read storage into one that is written. */
                o->n_reads--;
                o->writes--;
                o->n_writes++;
                f.p->signature = graph_signature(f.g);
                expect_fault(&f, "which does not live on the device");
                return;
            }
    }
    fail_msg("no op of the body reads it last");
}

static void test_micro_step_copies(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    struct leave *list, k = {.in = NULL};
    int32_t n = list_leaves(f.g, f.p, &list);
    for (int32_t i = 0; i < n; i++)
        if (list[i].is.use_step >= f.p->n_body && list[i].is.out_step < f.p->n_body)
            k = list[i];
    free(list);
    assert_non_null(k.in);
    k.behind->first = f.p->n_body - 1;
    k.in->after = f.p->n_body - 2;
    expect_fault(&f, "stays from the body to the update");
    f = fixture(3, PLENTY, 0);
    k = find_leave(&f, YES, NO, KIND_PARAMETER);
    const struct copy again = {(int32_t)(k.before - f.p->residences),
                               (int32_t)(k.below - f.p->residences),
                               k.is.out_step,
                               k.is.free_step + 1,
                               0,
                               0};
    assert_int_equal(plan_reserve(f.p, 0, 1), 0); /* moves them */
    f.p->copies[f.p->n_copies++] = again;
    expect_fault(&f, "goes out in every micro-step");
}

static void test_nvme_rules(void **state)
{
    (void)state;
    struct fixture f = fixture(1, 0, PLENTY);
    f.p->staging_bytes = 0;
    expect_fault(&f, "for staging");
    f = fixture(1, 0, PLENTY); /* as a plan of before: the host budget was for its tier alone */
    f.p->budgets.host = CKPT_ALIGN;
    expect_fault(&f, "to stage transfers of NVMe");
    f = fixture(1, 0, PLENTY);
    f.p->nvme_bytes += PLAN_NVME_ALIGN;
    find_leave(&f, NO, YES, KIND_OPTIMIZER).below->offset += CKPT_ALIGN;
    expect_fault(&f, "no multiple of");
}

static void test_late_residence(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    find_leave(&f, NO, YES, KIND_OPTIMIZER).behind->first++;
    expect_fault(&f, "and is on the device from");
}

/* ---- promises ------------------------------------------------------------------------------- */

static void test_monotone(void **state)
{
    (void)state;
    enum { POINTS = 40 };
    struct graph *g = training(1);
    int64_t least = least_device(g, PLENTY, 0), most = 2 * persistent_bytes(g), device[POINTS];
    struct frontier *pf;
    struct plan *plans[POINTS], *alone;
    struct budgets b = {.host = PLENTY};
    for (int i = 0; i < POINTS; i++)
        device[i] = least + (most - least) * i / (POINTS - 1);
    assert_int_equal(frontier_build(g, &pf), 0);
    assert_int_equal(plan_sweep(pf, &machine, &b, device, POINTS, plans), 0);
    frontier_free(pf);
    for (int i = 0; i < POINTS; i++) {
        assert_non_null(plans[i]);
        assert_int_equal(plan_check_again(g, plans[i]), 0);
        assert_true(i == 0 || plans[i]->seconds <= plans[i - 1]->seconds);
        if (i % 8)
            continue;
        b.device = device[i];
        alone = make(g, &b);
        assert_true(alone->seconds <= plans[i]->seconds * 1.01);
        plan_free(alone);
    }
    for (int i = 0; i < POINTS; i++)
        plan_free(plans[i]);
    graph_free(g);
}

static void test_deterministic(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    struct plan *p = make(f.g, &f.p->budgets);
    assert_int_equal(p->n_residences, f.p->n_residences);
    assert_int_equal(p->n_copies, f.p->n_copies);
    for (int32_t i = 0; i < p->n_residences; i++) {
        const struct residence *a = &p->residences[i], *b = &f.p->residences[i];
        assert_true(a->storage == b->storage && a->first == b->first && a->last == b->last &&
                    a->offset == b->offset);
    }
    for (int32_t i = 0; i < p->n_copies; i++) {
        const struct copy *a = &p->copies[i], *b = &f.p->copies[i];
        assert_true(a->from == b->from && a->to == b->to && a->start == b->start);
    }
    plan_free(p);
    done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_larger_than_device),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_nvme),
        cmocka_unit_test(test_sampling),
        cmocka_unit_test(test_backing_in_tier),
        cmocka_unit_test(test_backing_on_device),
        cmocka_unit_test(test_crossings),
        cmocka_unit_test(test_tier_base),
        cmocka_unit_test(test_clean_but_written),
        cmocka_unit_test(test_two_backings),
        cmocka_unit_test(test_body_writes),
        cmocka_unit_test(test_micro_step_copies),
        cmocka_unit_test(test_nvme_rules),
        cmocka_unit_test(test_late_residence),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
