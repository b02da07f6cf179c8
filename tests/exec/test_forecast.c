/* SPDX-License-Identifier: Apache-2.0 */
/* Forecasts of a program before it is compiled, and plans that reveal no more than needed. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "exec/program.h"
#include "tiny.h"

enum { BATCH = 4 };

struct run {
    struct tiny m;
    ckpt *c;
    ckpt_optimizer *optimizer;
};

static struct run open_run(int64_t vram, int64_t micro)
{
    struct run r = {.m = {.batch = BATCH, .length = 48, .width = 24, .heads = 2}};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = tiny_adamw();
    o.vram = vram;
    o.micro_batch = micro;
    o.verify = true;
    assert_int_equal(ckpt_open(&r.c, &o), 0);
    tiny_create(&r.m, r.c);
    r.optimizer = ckpt_adamw(r.c, &a);
    return r;
}

static int forecast(struct run *r, int64_t batch, double limit, struct ckpt_forecast *f)
{
    *f = (struct ckpt_forecast)CKPT_FORECAST_INIT;
    return ckpt_forecast(r->c, tiny_record, &r->m, r->optimizer, batch, limit, f);
}

static struct ckpt_program_info compile(struct run *r, int64_t batch)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    if (ckpt_compile(r->c, tiny_record, &r->m, r->optimizer, batch, &p))
        fail_msg("%s", ckpt_error(r->c));
    assert_int_equal(ckpt_program_info(p, &info), 0);
    return info;
}

/* ---- forecasts ------------------------------------------------------------------------------- */

/* A forecast equals the compile's result, for every budget and micro-step size, and leaves nothing
 * behind in the context. */
static void agrees(int64_t vram, int64_t micro)
{
    struct run r = open_run(vram, micro), other = open_run(vram, micro);
    struct ckpt_forecast f;
    for (int64_t batch = BATCH; batch <= 2 * BATCH; batch *= 2)
        assert_int_equal(forecast(&r, batch, 0, &f), 0);
    assert_int_equal(forecast(&r, BATCH, 0, &f), 0);
    struct ckpt_program_info asked = compile(&r, BATCH), plain = compile(&other, BATCH);
    assert_int_equal(f.batch, BATCH);
    assert_int_equal(f.micro_batch, plain.micro_batch);
    assert_true(f.step_seconds == plain.step_seconds && asked.step_seconds == plain.step_seconds);
    assert_int_equal(asked.planned_peak, plain.planned_peak);
    assert_int_equal(asked.min_budget, plain.min_budget);
    assert_true(f.planned_peak >= plain.planned_peak);
    assert_true(vram == 0 || f.planned_peak <= vram);
    /* Another program of the context. */
    assert_int_equal(forecast(&r, 2 * BATCH, 0, &f), 0);
    plain = compile(&r, 2 * BATCH);
    assert_true(f.step_seconds == plain.step_seconds && f.micro_batch == plain.micro_batch);
    ckpt_close(r.c);
    ckpt_close(other.c);
}

static void test_agrees(void **state)
{
    (void)state;
    struct run r = open_run(0, 0);
    struct ckpt_program_info all = compile(&r, 2 * BATCH);
    ckpt_close(r.c);
    agrees(0, 0);
    agrees(0, 2);
    agrees(0, CKPT_AUTO);
    agrees((all.min_budget + all.planned_peak) / 2, 0);
    agrees(all.min_budget, CKPT_AUTO);
}

/* A program that does not fit, or takes too long, gives a result and not an error. */
static void test_refused(void **state)
{
    (void)state;
    struct run free_run = open_run(0, 0);
    struct ckpt_program_info all = compile(&free_run, BATCH);
    struct ckpt_forecast f;
    struct run r = open_run(all.min_budget, 0);
    assert_int_equal(forecast(&r, 64 * BATCH, 0, &f), CKPT_EBUDGET);
    assert_non_null(strstr(ckpt_error(r.c), "needs at least"));
    /* With a limit that is seen before a search. */
    assert_int_equal(forecast(&r, 64 * BATCH, all.step_seconds * 1e6, &f), 0);
    assert_true(isinf(f.step_seconds) && f.planned_peak == 0);
    assert_int_equal(forecast(&r, BATCH, all.step_seconds / 2, &f), 0);
    assert_true(isinf(f.step_seconds) && f.planned_peak == 0);
    assert_int_equal(forecast(&r, BATCH, all.step_seconds * 10, &f), 0);
    assert_true(f.planned_peak > 0);
    assert_int_equal(forecast(&r, 0, 0, &f), CKPT_EINVAL);
    assert_int_equal(ckpt_forecast(r.c, NULL, NULL, NULL, 1, 0, &f), CKPT_EINVAL);
    assert_int_equal(ckpt_forecast(r.c, tiny_record, &r.m, free_run.optimizer, BATCH, 0, &f),
                     CKPT_EINVAL);
    compile(&r, BATCH);
    ckpt_close(r.c);
    ckpt_close(free_run.c);
}

/* ---- plans that do not tell everything ------------------------------------------------------- */

static void feed(ckpt_program *p, const char *name, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    ckpt_fill_normal(7, 0, 1, x, n);
    assert_int_equal(ckpt_feed(p, name, x, n * (int64_t)sizeof *x), 0);
    free(x);
}

static void train(struct run *r, bool full, float *loss, struct ckpt_program_info *info)
{
    ckpt_program *p;
    assert_int_equal(ckpt_plan_in_full(r->c, full), 0);
    if (ckpt_compile(r->c, tiny_record, &r->m, r->optimizer, BATCH, &p))
        fail_msg("%s", ckpt_error(r->c));
    *info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, info);
    feed(p, "x", BATCH * r->m.length * r->m.width);
    feed(p, "c", BATCH * r->m.width);
    for (int step = 0; step < 3; step++)
        if (ckpt_step(p, &loss[step]))
            fail_msg("%s", ckpt_error(r->c));
}

static void test_brief(void **state)
{
    (void)state;
    struct ckpt_program_info full, brief, tight;
    float a[3], b[3], c[3];
    struct run r = open_run(0, 0);
    train(&r, true, a, &full);
    ckpt_close(r.c);
    r = open_run(0, 0);
    train(&r, false, b, &brief);
    ckpt_close(r.c);
    assert_true(full.min_budget > 0 && brief.min_budget == 0);
    assert_true(brief.step_seconds == full.step_seconds && !brief.recomputed_ops);
    assert_memory_equal(a, b, sizeof a);
    /* Where it does not fit there is nothing to leave out. */
    r = open_run(full.min_budget, 0);
    train(&r, false, c, &tight);
    ckpt_close(r.c);
    assert_int_equal(tight.min_budget, full.min_budget);
    assert_memory_equal(a, c, sizeof a);
}

/* Equal stages stand still for all but one of their passes; a slow link delays each. */
static void test_bubble(void **state)
{
    struct stage_seconds s[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        s[i] = (struct stage_seconds){.forward = 1, .backward = 2, .update = i};
    assert_true(pipeline_seconds(s, 4, 8) == (8 + 3) * 3 + 3);
    assert_true(pipeline_seconds(s, 4, 1) == 4 * 3 + 3);
    assert_true(pipeline_seconds(s, 2, 8) == (8 + 1) * 3 + 1);
    s[1].forward = 4; /* the others wait for it */
    assert_true(pipeline_seconds(s, 2, 8) == 1 + 8 * 6 + 2 + 1);
    s[0].send = s[1].send_back = .5;
    assert_true(pipeline_seconds(s, 2, 1) == 1 + .5 + 6 + .5 + 2 + 1);
    s[0] = s[1] = (struct stage_seconds){.forward = 1, .send = .5}; /* it does not train */
    assert_true(pipeline_seconds(s, 2, 4) == 4 + .5 + 1);
    s[0].send = 3; /* a link has one transfer at a time */
    assert_true(pipeline_seconds(s, 2, 4) == 1 + 4 * 3 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_agrees),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_brief),
        cmocka_unit_test(test_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
