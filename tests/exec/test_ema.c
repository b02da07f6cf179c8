/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program without an optimizer that reads the moving averages of the weights (ckpt_read_ema)
 * gives what the weights would give if they were these averages, also where the averages lie on the
 * host and on NVMe.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "exec/force.h"
#include "exec/program.h"

enum { WIDTH = 64, BATCH = 4, LAYERS = 6, STEPS = 3 };

struct model {
    ckpt_tensor weight[LAYERS], fixed;
    enum ckpt_dtype dtype;
    bool reads_ema, late;
};

static ckpt_tensor apply(ckpt_tape *t, struct model *m, int64_t batch)
{
    ckpt_tensor x = ckpt_input(t, "x", m->dtype, 2, (int64_t[]){batch, WIDTH});
    if (m->late)
        ckpt_read_ema(t);
    for (int i = 0; i < LAYERS; i++)
        x = ckpt_gelu_tanh(t, ckpt_linear(t, x, m->weight[i], CKPT_NONE));
    return ckpt_cast(t, ckpt_mul(t, x, m->fixed), CKPT_F32);
}

static ckpt_tensor record_train(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor y = apply(t, user, batch);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

static ckpt_tensor record_sample(ckpt_tape *t, int64_t batch, void *user)
{
    struct model *m = user;
    if (m->reads_ema)
        ckpt_read_ema(t);
    ckpt_tensor y = apply(t, m, batch);
    ckpt_output(t, "y", y);
    return y;
}

static void must(ckpt *c, int rc)
{
    if (rc)
        fail_msg("%s: %s", ckpt_error_name(rc), ckpt_error(c));
}

struct where {
    int64_t host;
    const char *nvme, *plan_in;
    bool plan_only;
};

static ckpt *open_model(struct model *m, const struct where *w)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = "cpu", o.threads = 1, o.host = w->host, o.nvme = w->nvme;
    o.plan_in = w->plan_in, o.plan_only = w->plan_only;
    must(NULL, ckpt_open(&c, &o));
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w.%d", i);
        m->weight[i] =
            ckpt_param(c, name, m->dtype, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_NORMAL(0.3f), true);
    }
    m->fixed = ckpt_param(c, "fixed", m->dtype, 1, (int64_t[]){WIDTH}, CKPT_ONES, false);
    return c;
}

static ckpt_optimizer *adamw_of(ckpt *c, float decay)
{
    struct ckpt_adamw s = CKPT_ADAMW_INIT;
    s.lr = 0.05f, s.ema_decay = decay;
    return ckpt_adamw(c, &s);
}

static void sample(ckpt *c, ckpt_program *p, const void *x, int64_t bytes, float *y)
{
    must(c, ckpt_feed(p, "x", x, bytes));
    must(c, ckpt_step(p, NULL));
    must(c, ckpt_fetch(p, "y", y, BATCH * WIDTH * 4));
}

/* Trains, samples with the averages, then puts the averages in place of the weights. */
static void compare(enum ckpt_dtype dtype, const struct where *where)
{
    struct model m = {.dtype = dtype};
    float x[BATCH * WIDTH], averaged[BATCH * WIDTH], plain[BATCH * WIDTH], set[BATCH * WIDTH];
    uint16_t narrow[BATCH * WIDTH];
    float *values = malloc(sizeof(float) * WIDTH * WIDTH);
    const void *in = dtype == CKPT_BF16 ? (void *)narrow : x;
    const int64_t bytes = BATCH * WIDTH * ckpt_dtype_size(dtype);
    ckpt_program *train, *ema, *own;
    ckpt *c = open_model(&m, where);
    assert_non_null(values);
    ckpt_fill_normal(3, 0, 1, x, BATCH * WIDTH);
    ckpt_to_bf16(x, narrow, BATCH * WIDTH);
    must(c, ckpt_compile(c, record_train, &m, adamw_of(c, 0.5f), BATCH, &train));
    m.reads_ema = true;
    must(c, ckpt_compile(c, record_sample, &m, NULL, BATCH, &ema));
    m.reads_ema = false;
    must(c, ckpt_compile(c, record_sample, &m, NULL, BATCH, &own));
    for (int i = 0; i < STEPS; i++) {
        must(c, ckpt_feed(train, "x", in, bytes));
        must(c, ckpt_step(train, NULL));
        sample(c, ema, in, bytes, averaged); /* between steps, as a trainer samples */
        sample(c, own, in, bytes, plain);
    }
    assert_memory_not_equal(averaged, plain, sizeof plain);
    for (int i = 0; i < LAYERS; i++) {
        must(c, ckpt_param_get(c, m.weight[i], CKPT_EMA, values, WIDTH * WIDTH));
        must(c, ckpt_param_set(c, m.weight[i], CKPT_VALUE, values, WIDTH * WIDTH));
    }
    sample(c, own, in, bytes, set);
    assert_memory_equal(averaged, set, sizeof set);
    free(values);
    ckpt_close(c);
}

/* With all state in lower tiers, as the plan of the program that trains left it. */
static void test_tiers(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        struct model m = {.dtype = half ? CKPT_BF16 : CKPT_F32};
        struct where where = {.plan_only = true};
        struct force f = {.seed = 5, .host = true, .nvme = true, .all = true, .half = half};
        struct force_count count;
        struct plan *forced;
        char plan[] = "test_ema.plan", nvme[64];
        ckpt_program *p;
        ckpt *c = open_model(&m, &where);
        must(c, ckpt_compile(c, record_train, &m, adamw_of(c, 0.5f), BATCH, &p));
        assert_int_equal(force_offloads(p->graph, p->plan, &f, &forced), 0);
        if (plan_check(p->graph, forced) || plan_write(p->graph, forced, plan))
            fail_msg("%s", error_get());
        force_count(p->graph, forced, &count);
        assert_true(count.persistent[TIER_HOST] > LAYERS && count.persistent[TIER_NVME] > LAYERS);
        snprintf(nvme, sizeof nvme, ".:%lld", (long long)max_i64(forced->budgets.nvme, 1 << 20));
        where = (struct where){.host = forced->budgets.host, .nvme = nvme, .plan_in = plan};
        plan_free(forced);
        ckpt_close(c);
        compare(m.dtype, &where);
        remove(plan);
    }
}

static void test_values(void **state)
{
    (void)state;
    compare(CKPT_F32, &(struct where){0});
    compare(CKPT_BF16, &(struct where){0});
}

static void expect(struct model *m, ckpt *c, ckpt_recorder record, ckpt_optimizer *optimizer,
                   const char *says)
{
    ckpt_program *p;
    assert_int_equal(ckpt_compile(c, record, m, optimizer, BATCH, &p), CKPT_EINVAL);
    if (!strstr(ckpt_error(c), says))
        fail_msg("'%s' has no '%s'", ckpt_error(c), says);
}

static void test_refused(void **state)
{
    (void)state;
    struct model m = {.dtype = CKPT_F32, .reads_ema = true};
    ckpt_program *p;
    ckpt *c = open_model(&m, &(struct where){0});
    expect(&m, c, record_sample, NULL, "there is no moving average");
    must(c, ckpt_compile(c, record_train, &m, adamw_of(c, 0.f), BATCH, &p));
    expect(&m, c, record_sample, NULL, "there is no moving average");
    ckpt_close(c);
    c = open_model(&m, &(struct where){0});
    ckpt_optimizer *adamw = adamw_of(c, 0.5f);
    must(c, ckpt_compile(c, record_train, &m, adamw, BATCH, &p));
    expect(&m, c, record_sample, adamw, "a program that trains reads the weights");
    m.reads_ema = false, m.late = true;
    expect(&m, c, record_sample, NULL, "call it before anything is recorded");
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_tiers),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
