/* SPDX-License-Identifier: Apache-2.0 */
/* Several programs of one context under one budget: the compile order does not matter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "plan/one_search.h"

enum { TRAIN, JUDGE, PROGRAMS };
enum { STEPS = 3, LAYERS = 4, BATCH = 32, WIDTH = 32, WIDE = 128, COLUMNS = 32 };

/* A training program, and a program with a large parameter that is not trained. */
struct pair {
    ckpt *c;
    ckpt_tensor layer[LAYERS], wide;
    ckpt_program *program[PROGRAMS];
};

static ckpt_tensor train(ckpt_tape *t, int64_t batch, void *user)
{
    const struct pair *r = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor h = ckpt_cast(t, x, CKPT_BF16);
    for (int i = 0; i < LAYERS; i++)
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, r->layer[i], CKPT_NONE));
    return ckpt_mse(t, h, x, CKPT_NONE);
}

static ckpt_tensor judge(ckpt_tape *t, int64_t batch, void *user)
{
    const struct pair *r = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, COLUMNS});
    ckpt_tensor y = ckpt_linear(t, x, r->wide, CKPT_NONE);
    ckpt_output(t, "y", y);
    return y;
}

static void pair_open(struct pair *r, const struct ckpt_options *o)
{
    *r = (struct pair){.c = NULL};
    assert_int_equal(ckpt_open(&r->c, o), 0);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer.%d", i);
        r->layer[i] =
            ckpt_param(r->c, name, CKPT_BF16, 2, (int64_t[]){WIDTH, WIDTH}, CKPT_XAVIER, true);
    }
    r->wide = ckpt_param(r->c, "wide", CKPT_F32, 2, (int64_t[]){WIDE, COLUMNS}, CKPT_XAVIER, false);
}

static int compile(struct pair *r, int which)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    a.ema_decay = 0.9f;
    a.clip_norm = 1.f;
    return which == TRAIN
               ? ckpt_compile(r->c, train, r, ckpt_adamw(r->c, &a), BATCH, &r->program[TRAIN])
               : ckpt_compile(r->c, judge, r, NULL, BATCH, &r->program[JUDGE]);
}

static int compile_both(struct pair *r, int first)
{
    int rc = compile(r, first);
    return rc ? rc : compile(r, !first);
}

static int64_t arena(const ckpt_program *p)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program_info(p, &info);
    assert_true(info.planned_peak <= info.budget && info.arena_bytes <= info.budget);
    return info.arena_bytes;
}

struct result {
    float loss[STEPS];
    float y[BATCH * WIDE];
};

/* Runs steps [from, end), with the second program between them. */
static void run(struct pair *r, int from, int end, struct result *out)
{
    float x[BATCH * WIDTH];
    for (int s = from; s < end; s++) {
        ckpt_fill_normal(7, (uint64_t)s, 1, x, BATCH * WIDTH);
        assert_int_equal(ckpt_feed(r->program[TRAIN], "x", x, sizeof x), 0);
        assert_int_equal(ckpt_step(r->program[TRAIN], &out->loss[s]), 0);
        if (!r->program[JUDGE])
            continue;
        assert_int_equal(ckpt_feed(r->program[JUDGE], "x", x, sizeof x), 0);
        assert_int_equal(ckpt_step(r->program[JUDGE], NULL), 0);
        assert_int_equal(ckpt_fetch(r->program[JUDGE], "y", out->y, sizeof out->y), 0);
    }
}

/* The smallest budget that the message of a refusal names. */
static int64_t named_budget(const ckpt *c)
{
    const char *at = strstr(ckpt_error(c), "needs at least ");
    assert_non_null(at);
    return strtoll(at + strlen("needs at least "), NULL, 10);
}

/* Compiles under a budget, then under the budgets that refusals name, until both programs fit;
 * returns that budget. */
static int64_t smallest_of_both(struct ckpt_options o, int first)
{
    for (int i = 0; i < 4; i++) {
        struct pair r;
        pair_open(&r, &o);
        int rc = compile_both(&r, first);
        if (rc) {
            assert_int_equal(rc, CKPT_EBUDGET);
            int64_t needs = named_budget(r.c);
            assert_true(needs > o.vram);
            o.vram = needs;
        }
        ckpt_close(r.c);
        if (!rc)
            return o.vram;
    }
    fail();
    return 0;
}

/* The smallest budget is the same for both orders; a byte less is refused in both.  Under it memory
 * is the same after the last step as before the first. */
static void test_order(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct pair r;
    struct result of[PROGRAMS], free;
    o.device = "cpu";
    pair_open(&r, &o);
    assert_int_equal(compile_both(&r, TRAIN), 0);
    run(&r, 0, STEPS, &free);
    ckpt_close(r.c);
    o.vram = 10 << 10;
    int64_t least = smallest_of_both(o, TRAIN);
    assert_true(smallest_of_both(o, JUDGE) == least);
    for (int first = 0; first < PROGRAMS; first++) {
        o.vram = least - 1;
        pair_open(&r, &o);
        assert_int_equal(compile_both(&r, first), CKPT_EBUDGET);
        assert_true(named_budget(r.c) == least);
        ckpt_close(r.c);
        o.vram = least + (first << 12);
        pair_open(&r, &o);
        assert_int_equal(compile_both(&r, first), 0);
        int64_t bytes = arena(r.program[TRAIN]);
        run(&r, 0, STEPS, &of[first]);
        assert_true(arena(r.program[TRAIN]) == bytes && arena(r.program[JUDGE]) == bytes);
        ckpt_close(r.c);
        assert_memory_equal(&of[first], &free, sizeof free);
    }
}

/* Also after steps: the training program continues under another plan with the same numbers.  If it
 * has no such plan, the compile is refused and it continues unchanged. */
static void test_behind_steps(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_program_info before = CKPT_PROGRAM_INFO_INIT, after = CKPT_PROGRAM_INFO_INIT;
    struct result whole, parts;
    struct pair r;
    o.device = "cpu";
    o.vram = 10 << 10;
    int64_t least = smallest_of_both(o, TRAIN);
    for (int fits = 0; fits < 2; fits++) {
        o.vram = fits ? least : least - 1;
        pair_open(&r, &o);
        assert_int_equal(compile(&r, TRAIN), 0);
        run(&r, 0, STEPS, &whole);
        ckpt_close(r.c);
        pair_open(&r, &o);
        assert_int_equal(compile(&r, TRAIN), 0);
        run(&r, 0, 2, &parts);
        ckpt_program_info(r.program[TRAIN], &before);
        assert_int_equal(compile(&r, JUDGE), fits ? 0 : CKPT_EBUDGET);
        ckpt_program_info(r.program[TRAIN], &after);
        assert_int_equal(after.recompute_seconds > before.recompute_seconds, fits);
        run(&r, 2, STEPS, &parts);
        arena(r.program[TRAIN]);
        assert_memory_equal(parts.loss, whole.loss, sizeof whole.loss);
        ckpt_close(r.c);
    }
}

/* Compiles both with refusals gathered; returns the last refusal, or 0. */
static int gather_both(struct pair *r, int first)
{
    int rc = ckpt_gather_refusals(r->c, true);
    for (int i = 0; i < PROGRAMS && (!rc || rc == CKPT_EBUDGET); i++) {
        int which = i ? !first : first, one = compile(r, which);
        assert_non_null(r->program[which]);
        rc = one ? one : rc;
    }
    return rc;
}

/* One refusal names the budget for both programs, in both orders, from any smaller budget; then
 * nothing runs.  It speaks of the budget that was asked for. */
static void test_gathered(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct pair r;
    float loss;
    assert_int_equal(ckpt_gather_refusals(NULL, true), CKPT_EINVAL);
    o.device = "cpu";
    o.vram = 10 << 10;
    const int64_t least = smallest_of_both(o, TRAIN), asked[] = {10 << 10, least / 2, least - 1};
    for (int i = 0; i < 6; i++) {
        o.vram = asked[i / 2];
        pair_open(&r, &o);
        assert_int_equal(gather_both(&r, i % 2), CKPT_EBUDGET);
        assert_true(named_budget(r.c) == least);
        if (i < 2 && !strstr(ckpt_error(r.c), "no plan fits 10.00 KiB"))
            fail_msg("%s", ckpt_error(r.c));
        assert_int_equal(ckpt_step(r.program[TRAIN], &loss), CKPT_EINVAL);
        assert_int_equal(ckpt_feed(r.program[JUDGE], "x", &loss, sizeof loss), CKPT_EINVAL);
        ckpt_close(r.c);
        o.vram = least;
        pair_open(&r, &o);
        assert_int_equal(gather_both(&r, i % 2), 0);
        ckpt_close(r.c);
    }
}

/* With --plan-only the second program is placed above the first one's parameters, too. */
static void test_plan_only(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct pair r;
    o.device = "cpu";
    o.vram = 10 << 10;
    int64_t least = smallest_of_both(o, TRAIN);
    o.plan_only = true;
    assert_true(smallest_of_both(o, TRAIN) == least && smallest_of_both(o, JUDGE) == least);
    o.vram = least;
    pair_open(&r, &o);
    assert_int_equal(compile_both(&r, JUDGE), 0);
    ckpt_program_info(r.program[JUDGE], &info);
    assert_true(info.planned_peak <= least && info.plan_only);
    ckpt_close(r.c);
}

/* --plan-out writes the plan that the training program uses, and --plan-in fits beside the other
 * program. */
static void test_plan_files(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    char path[64];
    struct result a, b;
    struct pair r;
    snprintf(path, sizeof path, "test_together.%d.plan", (int)getpid());
    o.device = "cpu";
    o.vram = 10 << 10;
    o.vram = smallest_of_both(o, TRAIN);
    o.plan_out = path;
    pair_open(&r, &o);
    assert_int_equal(compile_both(&r, TRAIN), 0);
    run(&r, 0, STEPS, &a);
    ckpt_close(r.c);
    o.plan_in = path;
    o.plan_out = NULL;
    for (int first = 0; first < PROGRAMS; first++) {
        pair_open(&r, &o);
        assert_int_equal(compile_both(&r, first), 0);
        run(&r, 0, STEPS, &b);
        ckpt_close(r.c);
        assert_memory_equal(&a, &b, sizeof a);
    }
    unlink(path);
}

/* With a lower tier, in both orders, the numbers are the same. */
static void test_tiers(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct result free, tight;
    struct pair r;
    int fitted = 0;
    o.device = "cpu";
    pair_open(&r, &o);
    assert_int_equal(compile_both(&r, TRAIN), 0);
    run(&r, 0, STEPS, &free);
    ckpt_close(r.c);
    o.host = 1 << 20;
    for (o.vram = 104 << 10; o.vram <= 120 << 10; o.vram += 8 << 10)
        for (int first = 0; first < PROGRAMS; first++) {
            pair_open(&r, &o);
            int rc = compile_both(&r, first);
            if (!rc) {
                fitted++;
                run(&r, 0, STEPS, &tight);
                assert_memory_equal(&tight, &free, sizeof free);
            }
            assert_true(!rc || rc == CKPT_EBUDGET);
            ckpt_close(r.c);
        }
    assert_true(fitted > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),      cmocka_unit_test(test_behind_steps),
        cmocka_unit_test(test_gathered),   cmocka_unit_test(test_plan_only),
        cmocka_unit_test(test_plan_files), cmocka_unit_test(test_tiers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
