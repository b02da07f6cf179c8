/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Buffers that are updated once per step: with the mean over the micro-steps, so that the momentum
 * is that of a step however the batch is cut.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt.h"

enum { BATCH = 8, WIDTH = 4, STEPS = 3 };

struct model {
    ckpt_tensor w, average;
    struct ckpt_buffer_update first, second; /* the second with twice the value */
    bool two;
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor y = ckpt_mul(t, x, m->w);
    ckpt_tensor mean = ckpt_reshape(t, ckpt_mean(t, x, 1), 1, (int64_t[]){WIDTH});
    ckpt_update_buffer_by(t, m->average, mean, &m->first);
    if (m->two)
        ckpt_update_buffer_by(t, m->average, ckpt_affine(t, mean, 2.f, 0.f), &m->second);
    return ckpt_mean(t, ckpt_mul(t, y, y), CKPT_ALL_AXES);
}

/* The buffer after a few steps, which starts at 1. */
static void train(struct model m, int64_t micro, float average[WIDTH])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    const struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float x[STEPS][BATCH * WIDTH];
    ckpt *c;
    ckpt_program *p;
    o.device = "cpu", o.threads = 1, o.micro_batch = micro;
    assert_int_equal(ckpt_open(&c, &o), 0);
    m.w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ONES, true);
    m.average = ckpt_param(c, "average", CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ONES, false);
    if (ckpt_compile(c, record, &m, ckpt_sgd(c, &sgd), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    ckpt_fill_normal(5, 0, 1, x[0], STEPS * BATCH * WIDTH);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(ckpt_feed(p, "x", x[i], sizeof x[i]), 0);
        if (ckpt_step(p, NULL))
            fail_msg("%s", ckpt_error(c));
    }
    assert_int_equal(ckpt_param_get(c, m.average, CKPT_VALUE, average, WIDTH), 0);
    ckpt_close(c);
}

static bool near(const float *a, const float *b)
{
    for (int i = 0; i < WIDTH; i++)
        if (!(fabsf(a[i] - b[i]) <= 1e-6f))
            return false;
    return true;
}

static struct model model_of(float momentum, bool once)
{
    struct model m = {.first = CKPT_BUFFER_UPDATE_INIT};
    m.first.momentum = momentum;
    m.first.once = once;
    m.second = m.first;
    return m;
}

static void test_once(void **state)
{
    (void)state;
    const float momentum[] = {0.1f, 1.f};
    for (int i = 0; i < 2; i++) {
        float whole[WIDTH], cut[WIDTH], often[WIDTH];
        train(model_of(momentum[i], true), 0, whole);
        for (int64_t micro = 4; micro; micro /= 2) {
            train(model_of(momentum[i], true), micro, cut);
            assert_true(near(whole, cut));
        }
        train(model_of(momentum[i], false), 0, cut);
        assert_memory_equal(whole, cut, sizeof whole); /* in one micro-step both are the same */
        train(model_of(momentum[i], false), 2, often);
        assert_false(near(whole, often));
    }
}

/* Two updates of one buffer average in turn; one per micro-step comes before one per step. */
static void test_two(void **state)
{
    (void)state;
    float whole[WIDTH], cut[WIDTH];
    struct model m = model_of(0.25f, true);
    m.two = true;
    train(m, 0, whole);
    train(m, 2, cut);
    assert_true(near(whole, cut));
    m.second.momentum = 1.f; /* what was there before is gone: twice the mean of the last step */
    train(m, 4, whole);
    m.first.once = false;
    train(m, 2, cut);
    assert_true(near(whole, cut));
}

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t batch, void *user)
{
    struct model *m = user;
    m->first.size = 0;
    return record(t, batch, user);
}

static void test_refused(void **state)
{
    (void)state;
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    const struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct model m = model_of(1.5f, true);
    ckpt *c;
    ckpt_program *p;
    o.device = "cpu", o.threads = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    m.w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ONES, true);
    m.average = ckpt_param(c, "average", CKPT_F32, 1, (int64_t[]){WIDTH}, CKPT_ONES, false);
    ckpt_optimizer *optimizer = ckpt_sgd(c, &sgd);
    assert_int_equal(ckpt_compile(c, record, &m, optimizer, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "update_buffer: a momentum of 1.5"));
    assert_int_equal(ckpt_compile(c, record_wrong, &m, optimizer, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "struct ckpt_buffer_update"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_once), cmocka_unit_test(test_two),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
