/* SPDX-License-Identifier: Apache-2.0 */
/* A step recorded in several variants: the fastest that fits is selected, and the plan reports
 * whether the selection may change bits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "context/context.h"
#include "plan/one_search.h"

enum { ROWS = 64, WIDTH = 16, HIDDEN = 256 };

struct model {
    ckpt *c;
    ckpt_tensor in, out;
};

/* Processes the rows in `pieces` pieces, one after the other. */
struct variant {
    const struct model *m;
    int pieces;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant *w = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, ROWS, WIDTH}), y[8];

    for (int i = 0; i < w->pieces; i++) {
        int64_t rows = ROWS / w->pieces;
        ckpt_tensor h = ckpt_slice(t, x, 1, i * rows, (i + 1) * rows);
        h = ckpt_gelu_tanh(t, ckpt_linear(t, h, w->m->in, CKPT_NONE));
        y[i] = ckpt_linear(t, ckpt_gelu_tanh(t, h), w->m->out, CKPT_NONE);
    }
    return ckpt_mse(t, w->pieces > 1 ? ckpt_concat(t, 1, w->pieces, y) : y[0], x, CKPT_NONE);
}

static struct model open_model(int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct model m;

    o.device = "cpu";
    o.vram = vram;
    assert_int_equal(ckpt_open(&m.c, &o), 0);
    m.in = ckpt_param(m.c, "in", CKPT_F32, 2, (int64_t[]){HIDDEN, WIDTH}, CKPT_XAVIER, true);
    m.out = ckpt_param(m.c, "out", CKPT_F32, 2, (int64_t[]){WIDTH, HIDDEN}, CKPT_XAVIER, true);
    return m;
}

struct outcome {
    int rc, variant;
    float loss;
    char sentence[512];
    struct ckpt_program_info info;
};

/* The last of three steps under a budget, with variants from first to last. */
static struct outcome run(int64_t vram, int first, int last)
{
    struct model m = open_model(vram);
    struct variant user[] = {{&m, 1}, {&m, 4}, {&m, 8}};
    struct ckpt_variant variants[] = {{.record = record, .user = &user[0]},
                                      {.record = record, .user = &user[1]},
                                      {.record = record, .user = &user[2]}};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct outcome o = {.variant = -1};
    ckpt_program *p;
    float x[ROWS * WIDTH];

    ckpt_fill_normal(1, 0, 1, x, ROWS * WIDTH);
    o.rc = ckpt_compile_variants(m.c, last - first + 1, variants + first, ckpt_adamw(m.c, &adamw),
                                 1, &p, &o.variant);
    o.variant += first;
    if (!o.rc) {
        assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
        for (int i = 0; i < 3; i++)
            assert_int_equal(ckpt_step(p, &o.loss), 0);
        o.info = (struct ckpt_program_info)CKPT_PROGRAM_INFO_INIT;
        ckpt_program_info(p, &o.info);
    }
    snprintf(o.sentence, sizeof o.sentence, "%s", ckpt_error(m.c));
    ckpt_close(m.c);
    return o;
}

static void test_choice(void **state)
{
    struct outcome whole = run(0, 0, 2), eighths = run(0, 2, 2);
    int64_t low = eighths.info.min_budget, high = run(0, 0, 0).info.min_budget;

    (void)state;
    assert_int_equal(whole.rc, 0);
    assert_int_equal(whole.variant, 0); /* fewer calls of ops are faster */
    assert_true(low < high);
    assert_true(whole.info.choice_changes_bits);
    assert_false(eighths.info.choice_changes_bits);
    struct outcome tight = run(low, 0, 2), refused = run(low - 1, 0, 2);
    assert_int_equal(tight.rc, 0);
    assert_int_equal(tight.variant, 2);
    assert_true(tight.info.planned_peak <= low);
    assert_int_equal(refused.rc, CKPT_EBUDGET);
    /* If no op of any variant fits, the message is the last variant's. */
    struct outcome hopeless = run(6 << 10, 0, 2), alone = run(6 << 10, 2, 2);
    assert_int_equal(hopeless.rc, CKPT_EBUDGET);
    assert_non_null(strstr(hopeless.sentence, "needs at least"));
    assert_string_equal(hopeless.sentence, alone.sentence);
    assert_true(fabsf(tight.loss - whole.loss) <= 1e-5f * whole.loss);
    struct outcome same = run(0, 2, 2);
    assert_true(same.loss == tight.loss);
    struct outcome enough = run(high, 0, 2);
    assert_int_equal(enough.rc, 0);
    assert_true(enough.info.step_seconds <= run(high, 0, 0).info.step_seconds);
}

/* Compiles two variants with the same bits or not; returns whether the plan reports that bits may
 * differ. */
static bool says(bool trains, bool first, bool second, int64_t micro)
{
    struct model m = open_model(0);
    struct variant user[] = {{&m, 1}, {&m, 4}};
    struct ckpt_variant variants[] = {{record, &user[0], first}, {record, &user[1], second}};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    char table[4096] = "";
    ckpt_program *p;

    m.c->options.micro_batch = micro;
    assert_int_equal(ckpt_compile_variants(m.c, 2, variants,
                                           trains ? ckpt_adamw(m.c, &adamw) : NULL, 2, &p, NULL),
                     0);
    ckpt_program_info(p, &info);
    FILE *f = fmemopen(table, sizeof table, "w");
    assert_non_null(f);
    ckpt_plan_print(p, f);
    fclose(f);
    assert_int_equal(strstr(table, "depend on the budget") != NULL, info.choice_changes_bits);
    ckpt_close(m.c);
    return info.choice_changes_bits;
}

static void test_bits_are_told(void **state)
{
    (void)state;
    assert_true(says(true, true, true, 0)); /* sums of gradients have another order */
    assert_true(says(false, true, false, 0));
    assert_false(says(false, true, true, 0));
    assert_true(says(false, true, true, CKPT_AUTO)); /* 1 or 2 samples at a time */
}

static ckpt_tensor record_other(ckpt_tape *t, int64_t batch, void *user)
{
    const struct variant *w = user;
    const int64_t shape[] = {batch, w->pieces == 2 ? ROWS / 2 : ROWS, WIDTH};
    ckpt_tensor x = ckpt_input(t, w->pieces == 1 ? "z" : "x", CKPT_F32, 3, shape);
    ckpt_tensor h = ckpt_gelu_tanh(t, ckpt_linear(t, x, w->m->in, CKPT_NONE));
    if (w->pieces == 3)
        ckpt_output(t, "h", h);
    return ckpt_mse(t, ckpt_linear(t, h, w->m->out, CKPT_NONE), x, CKPT_NONE);
}

/* A program that feeds and fetches one variant's names would fail under the budgets that take
 * another one. */
static void test_other_inputs(void **state)
{
    const char *const sentence = "variant 1 has other inputs or outputs than variant 0";

    (void)state;
    for (int which = 0; which < 4; which++) { /* the same; a name, a shape, an output */
        struct model m = open_model(0);
        struct variant user[] = {{&m, 1}, {&m, which}};
        const struct ckpt_variant variants[] = {{.record = record, .user = &user[0]},
                                                {.record = record_other, .user = &user[1]}};
        struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
        ckpt_program *p;
        int rc = ckpt_compile_variants(m.c, 2, variants, ckpt_adamw(m.c, &adamw), 1, &p, NULL);

        assert_int_equal(rc, which ? CKPT_EINVAL : 0);
        if (which && !strstr(ckpt_error(m.c), sentence))
            fail_msg("%s", ckpt_error(m.c));
        ckpt_close(m.c);
    }
}

static void test_arguments(void **state)
{
    struct model m = open_model(0);
    ckpt_program *p;
    int variant;

    (void)state;
    assert_int_equal(ckpt_compile_variants(m.c, 0, NULL, NULL, 1, &p, &variant), CKPT_EINVAL);
    assert_int_equal(
        ckpt_compile_variants(m.c, 1, &(struct ckpt_variant){0}, NULL, 1, &p, &variant),
        CKPT_EINVAL);
    ckpt_close(m.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_bits_are_told),
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_other_inputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
