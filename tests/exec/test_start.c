/* SPDX-License-Identifier: Apache-2.0 */
/* The start of a program: buffers of the runs that it expects, and the seconds of each phase. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "context/context.h"
#include "exec/program.h"

struct line {
    ckpt_tensor w, b;
};

static ckpt_tensor predict(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_tensor y = ckpt_linear(t, x, m->w, m->b);
    ckpt_output(t, "y", y);
    return y;
}

static ckpt *open_line(struct line *m, const struct ckpt_options *opt)
{
    ckpt *c;
    assert_int_equal(ckpt_open(&c, opt), 0);
    m->w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){2, 3}, CKPT_NORMAL(1), true);
    m->b = ckpt_param(c, "b", CKPT_F32, 1, (int64_t[]){2}, CKPT_ZEROS, true);
    return c;
}

static const float batch_x[4][3] = {{1, 2, 3}, {-1, 0.5f, 2}, {0, 0, 1}, {3, -2, 1}};

/* Two steps under way, and one more, of a program that expects so many runs. */
static void run_three(int64_t runs, float y[3][4][2])
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    float other[4][3] = {{4, -1, 0}};
    struct line m;
    ckpt_program *p;
    opt.runs = runs;
    ckpt *c = open_line(&m, &opt);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &p), 0);
    assert_int_equal(p->fetches[0].data[1] == NULL, runs == 1);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_feed(p, "x", other, sizeof other), 0);
    assert_int_equal(ckpt_submit(p), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ckpt_wait(p, NULL), 0);
        assert_int_equal(ckpt_fetch(p, "y", y[i], sizeof y[i]), 0);
    }
    assert_int_equal(ckpt_step(p, NULL), 0); /* with the input of the step before */
    assert_int_equal(ckpt_fetch(p, "y", y[2], sizeof y[2]), 0);
    ckpt_close(c);
}

/* `runs` is an expectation: buffers of a second slot are made when it is used. */
static void test_more_than_once(void **state)
{
    float once[3][4][2], many[3][4][2];
    (void)state;
    run_three(1, once);
    run_three(0, many);
    assert_memory_equal(once, many, sizeof once);
    assert_memory_equal(once[1], once[2], sizeof once[1]);
}

/* Seconds of the start are printed once a step has begun, and a later program adds none. */
static void test_profile_of_start(void **state)
{
    struct ckpt_options opt = CKPT_OPTIONS_INIT;
    struct line m;
    ckpt_program *p, *later;
    double start[STARTUP_COUNT];
    char *text = NULL;
    size_t size = 0;
    (void)state;
    opt.profile = true;
    ckpt *c = open_line(&m, &opt);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 4, &p), 0);
    for (int steps = 0; steps < 2; steps++) {
        FILE *f = open_memstream(&text, &size);
        assert_non_null(f);
        ckpt_profile_print(p, f);
        assert_int_equal(fclose(f), 0);
        assert_int_equal(strstr(text, "profile: start") != NULL, steps > 0);
        free(text);
        assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
        assert_int_equal(ckpt_step(p, NULL), 0);
    }
    memcpy(start, c->programs.startup, sizeof start);
    assert_int_equal(ckpt_compile(c, predict, &m, NULL, 2, &later), 0);
    assert_memory_equal(start, c->programs.startup, sizeof start);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_once),
        cmocka_unit_test(test_profile_of_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
