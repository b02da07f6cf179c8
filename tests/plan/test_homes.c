/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters and optimizer state in the lower tiers: programs that are larger than the device,
 * homes that another program decided on, several micro-steps; and the checker sees every way in
 * which such parks can be wrong.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "graphs.h"

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
    char message[CKPT_MESSAGE];
    struct plan *p;
    if (plan_make(g, &machine, b, 0, &p, message))
        fail_msg("no plan: %s", message);
    if (plan_check_arrays(g, p, message))
        fail_msg("plan_check: %s", message);
    assert_true(p->persistent + p->transient <= b->device);
    assert_true(p->host_bytes <= b->host - b->tier_base[TIER_HOST]);
    assert_true(p->nvme_bytes <= b->nvme - b->tier_base[TIER_NVME] || p->nvme_bytes == 0);
    assert_true(p->bound_seconds <= p->seconds * (1 + 1e-12));
    return p;
}

/* Device bytes for which there is a plan, and few less would not do. */
static int64_t least_device(const struct graph *g, int64_t host, int64_t nvme)
{
    struct budgets b = {.host = host, .nvme = nvme};
    int64_t low = 0, high = 2 * persistent_bytes(g);
    struct portfolio *pf;
    assert_int_equal(portfolio_build(g, &pf), 0);
    while (high - low > UNIT / 4) {
        int64_t middle = low + (high - low) / 2;
        struct plan *p;
        assert_int_equal(parked_plan(pf, &machine, &b, middle, 1e300, &p), 0);
        if (p)
            high = middle;
        else
            low = middle;
        plan_free(p);
    }
    portfolio_free(pf);
    return high;
}

/* Layers whose weights take more than what they make. */
static struct graph *training(int32_t n_micro)
{
    struct sketch *k = sketch_new();
    int32_t x = sketch_input(k, UNIT);
    for (int32_t i = 0; i < 6; i++) {
        x = sketch_unary(k, "linear", x, UNIT, 2 * UNIT, 1, 10e-3);
        x = sketch_unary(k, "gelu", x, UNIT, 0, 1, 1e-3);
    }
    return sketch_finish(k, x, n_micro);
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
    char message[CKPT_MESSAGE];
    assert_int_equal(plan_check_arrays(f->g, f->p, message), CKPT_EPLAN);
    if (!strstr(message, what))
        fail_msg("expected \"%s\", got \"%s\"", what, message);
    done(f);
}

enum want { ANY = -1, NO, YES };

static struct plan_park *find_park(const struct fixture *f, enum want clean, enum want wraps,
                                   enum graph_kind kind)
{
    for (int32_t i = 0; i < f->p->n_parks; i++) {
        struct plan_park *k = &f->p->parks[i];
        if (clean != ANY && k->clean != (clean == YES))
            continue;
        if (wraps != ANY && (k->use_step <= k->out_step) != (wraps == YES))
            continue;
        if (f->g->storages[k->storage].kind == kind)
            return k;
    }
    fail_msg("no such park");
    return NULL;
}

/* Forward ops alone: layers of weights, far more of them than of anything else. */
static struct graph *sampling(int32_t layers)
{
    struct sketch *k = sketch_new();
    int32_t x = sketch_storage(k, UNIT, KIND_INPUT, "x");
    sketch_op(k, GRAPH_FORWARD, "feed", 0, NULL, 1, &x, 1e-4);
    for (int32_t i = 0; i < layers; i++) {
        int32_t w = sketch_storage(k, 2 * UNIT, KIND_PARAMETER, "weight");
        int32_t y = sketch_storage(k, UNIT, KIND_ACTIVATION, "y"), reads[] = {x, w};
        sketch_op(k, GRAPH_FORWARD, "linear", 2, reads, 1, &y, 10e-3);
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
    struct plan_park *k = find_park(&f, YES, NO, KIND_PARAMETER);
    assert_int_equal(k->free_step, k->out_step);
    assert_true(f.p->exposed_seconds > 0);
    assert_true(f.p->host_bytes <= persistent_bytes(f.g) + f.p->transient * 4);
    assert_int_equal(f.p->staging_bytes, 0);
    done(&f);
}

static void test_micro_steps(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    int32_t crossing = 0;
    for (int32_t i = 0; i < f.p->n_parks; i++) {
        const struct plan_park *k = &f.p->parks[i];
        crossing += k->out_step < f.p->n_body && k->use_step >= f.p->n_body;
        assert_true(k->free_step >= k->out_step);
    }
    assert_true(crossing > 0);
    done(&f);
}

static void test_nvme(void **state)
{
    (void)state;
    struct fixture f = fixture(1, 0, PLENTY);
    assert_true(f.p->host_bytes == 0 && f.p->nvme_bytes > 0);
    assert_true(f.p->nvme_bytes % PLAN_NVME_ALIGN == 0);
    assert_int_equal(f.p->staging_bytes, 2 * PLAN_STAGING_SLOTS * PLAN_STAGING_SLOT);
    struct budgets both = {.device = f.p->budgets.device, .host = PLENTY, .nvme = PLENTY};
    struct plan *p = make(f.g, &both);
    assert_true(p->nvme_bytes == 0 && p->seconds < f.p->seconds);
    plan_free(p);
    done(&f);
}

/* Weights that stream hide behind the layers: 16 ms of copies for 20 ms of work. */
static void test_sampling(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY};
    struct plan *p = make(g, &b);
    for (int32_t i = 0; i < p->n_parks; i++)
        assert_true(p->parks[i].clean);
    assert_true(p->n_parks > 0 && p->exposed_seconds < 0.15 * p->seconds);
    plan_free(p);
    graph_free(g);
}

/* What another program parked stays where it is, and takes nothing anew. */
static void test_home_in_tier(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    int64_t at = 0;
    for (int32_t s = 0; s < g->n_storages; s++)
        if (g->storages[s].persistent) {
            g->storages[s].home = HOME_HOST;
            g->storages[s].home_offset = at;
            at += g->storages[s].bytes;
        }
    struct budgets b = {.device = PLENTY, .host = at, .tier_base = {at, 0}};
    struct plan *p = make(g, &b);
    assert_int_equal(p->persistent, 0);
    assert_int_equal(p->n_parks, 12);
    assert_int_equal(p->host_bytes, 0);
    p->parks[3].tier_offset += CKPT_ALIGN;
    struct fixture f = {g, p};
    expect_fault(&f, "lives where the context does not have it");
}

static void test_home_on_device(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    char message[CKPT_MESSAGE];
    struct plan *p;
    for (int32_t s = 0; s < g->n_storages; s++)
        g->storages[s].home = g->storages[s].persistent ? HOME_DEVICE : HOME_ANY;
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY};
    assert_int_equal(plan_make(g, &machine, &b, 0, &p, message), CKPT_EBUDGET);
    for (int32_t s = 0; s < g->n_storages; s++)
        g->storages[s].home = HOME_ANY;
    p = make(g, &b);
    g->storages[p->parks[0].storage].home = HOME_DEVICE;
    struct fixture f = {g, p};
    expect_fault(&f, "lives where the context does not have it");
}

/* New homes lie behind what other programs have taken. */
static void test_tier_base(void **state)
{
    (void)state;
    struct graph *g = sampling(12);
    struct budgets b = {.device = 8 * UNIT, .host = PLENTY, .tier_base = {10 * UNIT, 0}};
    struct plan *p = make(g, &b);
    for (int32_t i = 0; i < p->n_parks; i++)
        assert_true(p->parks[i].tier_offset >= 10 * UNIT);
    p->parks[0].tier_offset = 0;
    struct fixture f = {g, p};
    expect_fault(&f, "leave the");
}

/* ---- faults --------------------------------------------------------------------------------- */

static void test_clean_but_written(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    struct plan_park *k = find_park(&f, NO, YES, KIND_OPTIMIZER);
    struct plan_instance *i = f.p->instances;
    while (i->storage != k->storage || i->last != k->free_step)
        i++;
    k->clean = true;
    i->last = k->free_step = k->out_step;
    expect_fault(&f, "ends the step in version");
}

static void test_two_homes(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    find_park(&f, YES, NO, KIND_PARAMETER)->tier_offset += CKPT_ALIGN;
    expect_fault(&f, "has two homes");
}

/* With one micro-step it may: a gradient that takes the room of its value. */
static void test_body_writes(void **state)
{
    (void)state;
    struct fixture f = fixture(3, PLENTY, 0);
    struct plan_park *k = find_park(&f, NO, YES, KIND_PARAMETER);
    for (int32_t step = 0; step < f.p->n_body; step++) {
        struct graph_op *o = &f.g->ops[f.p->steps[step].op];
        for (int32_t j = 0; j < o->n_reads; j++)
            if (f.g->refs[o->reads + j] == k->storage && j == o->n_reads - 1) {
                /* The last one read becomes one that is written. */
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
    struct plan_park *k = find_park(&f, YES, NO, KIND_PARAMETER);
    for (int32_t i = 0; i < f.p->n_parks; i++)
        if (f.p->parks[i].use_step >= f.p->n_body && f.p->parks[i].out_step < f.p->n_body)
            k = &f.p->parks[i];
    k->in_step = f.p->n_body - 1;
    expect_fault(&f, "no instance of");
    f = fixture(3, PLENTY, 0);
    k = find_park(&f, YES, NO, KIND_PARAMETER);
    k->clean = false;
    expect_fault(&f, "goes out in every micro-step");
}

static void test_in_order(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    f.g->ops[0].seconds *= 2; /* times of another machine: only their order counts */
    for (int32_t i = 0; i < f.p->n_parks; i++)
        for (int32_t j = 0; j < f.p->n_parks; j++) {
            struct plan_park *a = &f.p->parks[i], *b = &f.p->parks[j];
            if (a->in_step >= b->in_step || b->use_step <= b->out_step)
                continue;
            double start = a->in_start, end = a->in_end;
            a->in_start = b->in_start;
            a->in_end = b->in_end;
            b->in_start = start;
            b->in_end = end;
            expect_fault(&f, "");
            return;
        }
    fail_msg("all copies are for one step");
}

static void test_nvme_rules(void **state)
{
    (void)state;
    struct fixture f = fixture(1, 0, PLENTY);
    f.p->staging_bytes = 0;
    expect_fault(&f, "for staging");
    f = fixture(1, 0, PLENTY);
    f.p->nvme_bytes += PLAN_NVME_ALIGN;
    find_park(&f, NO, YES, KIND_OPTIMIZER)->tier_offset += CKPT_ALIGN;
    expect_fault(&f, "no multiple of");
}

static void test_extra_instance(void **state)
{
    (void)state;
    struct fixture f = fixture(1, PLENTY, 0);
    const struct plan_park *k = find_park(&f, NO, YES, KIND_OPTIMIZER);
    struct plan_instance *i = f.p->instances;
    while (i->storage != k->storage || i->first != k->in_step)
        i++;
    i->first++;
    expect_fault(&f, "");
}

/* ---- promises ------------------------------------------------------------------------------- */

static void test_monotone(void **state)
{
    (void)state;
    enum { POINTS = 40 };
    struct graph *g = training(1);
    int64_t least = least_device(g, PLENTY, 0), most = 2 * persistent_bytes(g), device[POINTS];
    struct portfolio *pf;
    struct plan *plans[POINTS], *alone;
    struct budgets b = {.host = PLENTY};
    char message[CKPT_MESSAGE];
    for (int i = 0; i < POINTS; i++)
        device[i] = least + (most - least) * i / (POINTS - 1);
    assert_int_equal(portfolio_build(g, &pf), 0);
    assert_int_equal(portfolio_sweep(pf, &machine, &b, 0, device, POINTS, plans), 0);
    portfolio_free(pf);
    for (int i = 0; i < POINTS; i++) {
        assert_non_null(plans[i]);
        assert_int_equal(plan_check_arrays(g, plans[i], message), 0);
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
    assert_int_equal(p->n_parks, f.p->n_parks);
    for (int32_t i = 0; i < p->n_parks; i++) {
        const struct plan_park *a = &p->parks[i], *b = &f.p->parks[i];
        assert_true(a->storage == b->storage && a->in_step == b->in_step &&
                    a->free_step == b->free_step && a->tier_offset == b->tier_offset &&
                    a->in_start == b->in_start && a->out_start == b->out_start);
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
        cmocka_unit_test(test_home_in_tier),
        cmocka_unit_test(test_home_on_device),
        cmocka_unit_test(test_tier_base),
        cmocka_unit_test(test_clean_but_written),
        cmocka_unit_test(test_two_homes),
        cmocka_unit_test(test_body_writes),
        cmocka_unit_test(test_micro_step_copies),
        cmocka_unit_test(test_in_order),
        cmocka_unit_test(test_nvme_rules),
        cmocka_unit_test(test_extra_instance),
        cmocka_unit_test(test_monotone),
        cmocka_unit_test(test_deterministic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
