/* SPDX-License-Identifier: Apache-2.0 */
/* The course of a training run: the measured time of its steps excludes everything else. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>
#include <cmocka.h>
#include "../../examples/common/say.h"
#include "../../examples/common/training.h"

const char say_program[] = "test_training";

enum { STEPS = 6, LOOK = 20 /* ms */ };

struct course {
    ckpt_program *program;
    ckpt_tensor w;
    int looks;
    double ms; /* of all laps */
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct course *c = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 2});

    return ckpt_mse(t, ckpt_linear(t, x, c->w, CKPT_NONE), x, CKPT_NONE);
}

static int feed(struct training *t, int64_t step)
{
    const float x[2] = {1, (float)step};
    struct course *c = t->user;

    t->data_ms = 1;
    return ckpt_feed(c->program, "x", x, sizeof x) ? -1 : 0;
}

static int end(struct training *t, int64_t step)
{
    struct course *c = t->user;
    float loss;

    (void)step;
    if (ckpt_wait(c->program, &loss))
        return -1;
    double ms = training_lap(t, c->program);
    assert_true(ms > 0);
    c->ms += ms;
    training_ended(t, (double)loss);
    return 0;
}

static int look(void *run, int64_t step)
{
    struct course *c = run;

    (void)step;
    c->looks++;
    usleep(LOOK * 1000);
    return 0;
}

static void run(int64_t ahead)
{
    struct course course = {.looks = 0};
    const struct training_options o = {.steps = STEPS, .lr = 1e-3F, .rates = CKPT_SCHEDULE_INIT};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct training t = {.options = &o,
                         .ahead = ahead,
                         .feed = feed,
                         .end = end,
                         .look = {{look, 2, false}},
                         .run = &course,
                         .user = &course};
    double begun;

    assert_int_equal(ckpt_open(&t.context, NULL), 0);
    course.w =
        ckpt_param(t.context, "w", CKPT_F32, 2, (int64_t[]){2, 2}, CKPT_NORMAL(1), true);
    assert_int_equal(ckpt_compile(t.context, record, &course, ckpt_adamw(t.context, &a), 1,
                                  &course.program),
                     0);
    t.only = course.program;
    begun = run_clock_now();
    assert_int_equal(training_run(&t), 0);
    double took = (run_clock_now() - begun) * 1e3;
    assert_int_equal(course.looks, STEPS / 2 - 1);
    assert_true(course.ms <= took - course.looks * LOOK);
    assert_true(t.ms > course.ms - 1e-6 && t.ms < course.ms + 1e-6);
    assert_true(t.waited_ms == STEPS);
    ckpt_close(t.context);
}

static void test_looks_take_no_time_of_steps(void **state)
{
    (void)state;
    run(0);
    run(1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_looks_take_no_time_of_steps)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
