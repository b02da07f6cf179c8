/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cost of alternating programs of one optimizer, by a simulated device (clock.h).  Residences
 * that continue in the next step lie at the address where other programs have them, so that the
 * next step need not wait for copies.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "context/context.h"
#include "exec/clock.h"
#include "plan/one_search.h"

enum { LAYERS = 8, WIDTH = 1024, SHAPES = 3, STEPS = 60, WARM = 4 };

/* Rows per sample; the first program has the most. */
static const int64_t rows[SHAPES] = {3072, 1280, 2048};

struct run {
    ckpt *c;
    ckpt_tensor layer[LAYERS];
    ckpt_program *program[SHAPES];
    struct clock clock;
};

struct shape {
    const struct run *run;
    int64_t rows;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct shape *s = user;
    ckpt_tensor x = ckpt_randn(t, CKPT_F32, 3, (int64_t[]){batch, s->rows, WIDTH});
    ckpt_tensor h = ckpt_cast(t, x, CKPT_BF16);
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, s->run->layer[i], CKPT_NONE));
    ckpt_tensor error = ckpt_sub(t, h, x);
    return ckpt_reshape(t, ckpt_mean(t, ckpt_mul(t, error, error), CKPT_ALL_AXES), 0, NULL);
}

/* A slow GPU, and a link that copies an update's state in both directions in about a step. */
static void write_machine(const char *path)
{
    struct machine m = machine_cuda;
    m.flops = 4e12;
    m.bandwidth = 1e11;
    m.d2h = m.h2d = m.d2h_both = m.h2d_both = 4e9;
    m.nvme_read = m.nvme_write = 1e9;
    m.process = 0;
    assert_int_equal(machine_write(&m, path), 0);
}

static void forget_crossings(struct run *r)
{
    for (int32_t i = 0; i < r->c->params.n; i++)
        memset(r->c->params.data[i].place.crosses, 0, sizeof r->c->params.data[i].place.crosses);
}

/* common: later programs are planned with the addresses that earlier ones use for such residences.
 */
static void run_open(struct run *r, struct ckpt_options o, bool common)
{
    char path[] = "/tmp/test_turns-XXXXXX";
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    close(mkstemp(path));
    write_machine(path);
    o.machine = path;
    o.plan_only = true;
    memset(r, 0, sizeof *r);
    assert_int_equal(ckpt_open(&r->c, &o), 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer.%d", i);
        r->layer[i] =
            ckpt_param(r->c, name, CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    const ckpt_optimizer *adamw = ckpt_adamw(r->c, &a);
    for (int i = 0; i < SHAPES; i++) {
        if (!common)
            forget_crossings(r);
        if (ckpt_compile(r->c, record, &(struct shape){r, rows[i]}, adamw, 2, &r->program[i]))
            fail_msg("%s", ckpt_error(r->c));
    }
    assert_int_equal(clock_begin(&r->clock, &r->c->programs), 0);
    unlink(path);
}

static void run_close(struct run *r)
{
    clock_end(&r->clock);
    ckpt_close(r->c);
}

static double planned(const struct run *r, int shape)
{
    return r->program[shape]->plan->seconds;
}

/* After a step of the same program a step takes the planned time. */
static void check_alone(struct run *r)
{
    for (int i = 0; i < SHAPES; i++) {
        double from = 0, end = 0;
        for (int s = 0; s < 2 * WARM; s++) {
            from = s == WARM ? end : from;
            end = clock_step(&r->clock, r->program[i]);
        }
        assert_true((end - from) / WARM < planned(r, i) * 1.01);
    }
}

/* Runs steps in turn; returns their time relative to the planned time. */
static double take_turns(struct run *r)
{
    double sum = 0, from = clock_step(&r->clock, r->program[0]), end = from;
    for (int s = 0; s < STEPS; s++) {
        int shape = (s + 1) % SHAPES;
        sum += planned(r, shape);
        end = clock_step(&r->clock, r->program[shape]);
    }
    return (end - from) / sum;
}

static double turns_under(struct ckpt_options o, bool common)
{
    struct run r;
    run_open(&r, o, common);
    check_alone(&r);
    double ratio = take_turns(&r);
    run_close(&r);
    return ratio;
}

/* Switching costs almost nothing if programs know each other's addresses, and a fraction of each
 * step otherwise.  No program's own plan is slower for it by more than 2 %. */
static void check_turns(const char *state, int64_t host, const char *nvme, double apart_costs)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.vram = 128 << 20;
    o.state = state;
    o.host = host;
    o.nvme = nvme;
    assert_true(turns_under(o, true) < 1.02);
    assert_true(turns_under(o, false) > 1 + apart_costs);
}

static void test_state_bf16(void **state)
{
    (void)state;
    check_turns("bf16", 1 << 30, NULL, 0.05);
}

static void test_state_8bit(void **state)
{
    (void)state;
    check_turns("8bit", 1 << 30, NULL, 0.03);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_bf16),
        cmocka_unit_test(test_state_8bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
