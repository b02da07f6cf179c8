/* SPDX-License-Identifier: Apache-2.0 */
/* Values that are not finite: in outputs, in an update's settings, in files. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "exec/small.h"

struct line {
    ckpt_tensor w, b, unused;
    enum ckpt_dtype dtype; /* of the parameters */
};

static ckpt_tensor overflow(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_label(t, "head");
    ckpt_tensor y = ckpt_cast(t, ckpt_mul(t, x, x), m->dtype);
    return ckpt_mse(t, ckpt_linear(t, y, m->w, m->b), ckpt_slice(t, x, 1, 0, 2), CKPT_NONE);
}

static ckpt *open_line(struct line *m, enum ckpt_dtype dtype, const struct ckpt_options *opt)
{
    ckpt *c;
    m->dtype = dtype;
    assert_int_equal(ckpt_open(&c, opt), 0);
    m->w = ckpt_param(c, "w", dtype, 2, (int64_t[]){2, 3}, CKPT_NORMAL(1), true);
    m->b = ckpt_param(c, "b", dtype, 1, (int64_t[]){2}, CKPT_ZEROS, true);
    m->unused = ckpt_param(c, "unused", dtype, 1, (int64_t[]){5}, CKPT_ONES, true);
    return c;
}

static const float batch_x[4][3] = {{1, 2, 3}, {-1, 0.5f, 2}, {0, 0, 1}, {3, -2, 1}};
/* y = w x + b in the parameters' dtype: only an output can become non-finite. */
static ckpt_tensor scale(ckpt_tape *t, int64_t batch, void *user)
{
    const struct line *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 3});
    ckpt_label(t, "head");
    ckpt_tensor h = ckpt_mul(t, x, x);
    ckpt_tensor y = ckpt_linear(t, ckpt_cast(t, h, m->dtype), m->w, m->b);
    ckpt_output(t, "y", y);
    return y;
}

/* Without an optimizer the outputs must be finite; a failed step does not count, the next one can
 * succeed. */
static void check_output(enum ckpt_dtype dtype, int64_t micro)
{
    struct line m = {0};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    float x[4][3];
    o.micro_batch = micro;
    ckpt *c = open_line(&m, dtype, &o);
    assert_int_equal(ckpt_compile(c, scale, &m, NULL, 4, &p), 0);
    memcpy(x, batch_x, sizeof x);
    x[3][2] = 1e30f; /* its square overflows */
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, NULL), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "step 1: the output 'y'"));
    assert_non_null(strstr(ckpt_error(c), dtype == CKPT_BF16 ? "mul+cast in head" : "mul in head"));
    x[3][2] = INFINITY;
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_wait(p, NULL), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "the input 'x'"));
    assert_int_equal(ckpt_wait(p, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    ckpt_program_info(p, &info);
    assert_int_equal(info.steps, 1);
    ckpt_close(c);
}

static void test_outputs_are_finite(void **state)
{
    (void)state;
    for (int64_t micro = 1; micro <= 4; micro *= 4) {
        check_output(CKPT_F32, micro);
        check_output(CKPT_BF16, micro);
    }
}

/* Processors give NaN different signs, and printf prints the sign. */
static void test_nan_has_no_sign(void **state)
{
    (void)state;
    const float signs[] = {NAN, -NAN};
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt_program *p;
    float x[4][3], loss = 0;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
    for (int i = 0; i < 2; i++) {
        memcpy(x, batch_x, sizeof x);
        x[1][1] = signs[i];
        assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
        assert_int_equal(ckpt_step(p, &loss), CKPT_ENAN);
        assert_non_null(strstr(ckpt_error(c), "loss nan, gradient norm nan;"));
        ckpt_program_info(p, &info);
        assert_true(isnan(loss) && !signbit(loss));
        assert_true(isnan(info.grad_norm) && !signbit(info.grad_norm));
    }
    ckpt_close(c);
}

/* Non-finite settings of an update are refused where they are passed in. */
static void test_rates(void **state)
{
    (void)state;
    const float wrong[] = {NAN, INFINITY, -INFINITY, -1e-3f};
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    ckpt *c = open_line(&m, CKPT_F32, NULL);
    assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
    for (int i = 0; i < 4; i++) {
        float *const field[] = {&a.lr,           &a.beta1,     &a.beta2,    &a.eps,
                                &a.weight_decay, &a.clip_norm, &a.ema_decay};
        assert_int_equal(ckpt_set_lr(p, wrong[i]), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), "learning rate"));
        for (size_t k = 0; k < sizeof field / sizeof *field; k++) {
            ckpt_program *q;
            float good = *field[k];
            *field[k] = wrong[i];
            assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &q), CKPT_EINVAL);
            assert_non_null(strstr(ckpt_error(c), "adamw: "));
            *field[k] = good;
        }
    }
    assert_int_equal(ckpt_set_lr(p, 0.f), 0);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    ckpt_close(c);
}

/* Non-finite values never replace a file, and are never loaded from one. */
static void check_files(enum ckpt_dtype dtype, bool whole)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    float w[6] = {1, 2, 3, 4, 5, 6}, v[6];
    char path[64];
    ckpt *c = open_line(&m, dtype, NULL);
    snprintf(path, sizeof path, "test_steps.%d.finite", (int)getpid());
    assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
    assert_int_equal(ckpt_param_set(c, m.w, CKPT_VALUE, w, 6), 0);
    assert_int_equal(whole ? ckpt_save_state(c, path) : ckpt_save_params(c, path, CKPT_VALUE), 0);
    v[0] = v[1] = v[2] = v[3] = v[4] = 0;
    v[5] = INFINITY;
    assert_int_equal(ckpt_param_set(c, m.w, whole ? CKPT_EXP_AVG : CKPT_VALUE, v, 6), 0);
    assert_int_equal(whole ? ckpt_save_state(c, path) : ckpt_save_params(c, path, CKPT_VALUE),
                     CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "'w'"));
    assert_int_equal(whole ? ckpt_load_state(c, path) : ckpt_load_params(c, path, NULL, NULL, NULL),
                     0);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, v, 6), 0);
    assert_memory_equal(v, w, sizeof v);
    unlink(path);
    ckpt_file_writer *file;
    v[2] = NAN;
    assert_int_equal(ckpt_file_create(&file, path), 0);
    assert_int_equal(ckpt_file_add(file, "w", CKPT_F32, 2, (int64_t[]){2, 3}, v), 0);
    assert_int_equal(ckpt_file_commit(file), 0);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), CKPT_EFORMAT);
    assert_non_null(strstr(ckpt_error(c), "tensor 'w'"));
    unlink(path);
    ckpt_close(c);
}

static void test_files_are_finite(void **state)
{
    (void)state;
    for (int whole = 0; whole < 2; whole++) {
        check_files(CKPT_F32, whole);
        check_files(CKPT_BF16, whole);
    }
}

/* Gradients are finite but the update is not: the step fails and names the parameter, and the
 * weights do not replace a saved file. */
static void check_update(enum ckpt_dtype dtype, int ahead)
{
    struct line m = {0};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    char path[64];
    float v[6];
    ckpt *c = open_line(&m, dtype, NULL);
    snprintf(path, sizeof path, "test_finite.%d.update", (int)getpid());
    a.lr = 0.f;
    a.weight_decay = 10.f;
    assert_int_equal(ckpt_compile(c, overflow, &m, ckpt_adamw(c, &a), 4, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", batch_x, sizeof batch_x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), 0);
    assert_int_equal(ckpt_set_lr(p, 3e38f), 0);
    for (int i = 0; i <= ahead; i++)
        assert_int_equal(ckpt_submit(p), 0);
    assert_int_equal(ckpt_wait(p, NULL), CKPT_ENAN);
    assert_non_null(strstr(ckpt_error(c), "step 2: the update made 'w'"));
    assert_int_equal(ckpt_wait(p, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), CKPT_EDEVICE);
    assert_int_equal(ckpt_step(p, NULL), CKPT_EDEVICE);
    ckpt_close(c);
    c = open_line(&m, dtype, NULL);
    assert_int_equal(ckpt_load_params(c, path, NULL, NULL, NULL), 0);
    assert_int_equal(ckpt_param_get(c, m.w, CKPT_VALUE, v, 6), 0);
    for (int i = 0; i < 6; i++)
        assert_true(isfinite(v[i]));
    ckpt_close(c);
    unlink(path);
}

static void test_update(void **state)
{
    (void)state;
    for (int ahead = 0; ahead < 2; ahead++) {
        check_update(CKPT_F32, ahead);
        check_update(CKPT_BF16, ahead);
    }
}

/* The same with state in both lower tiers, and with updates by host threads, which may end after
 * the step. */
static void test_update_with_tiers(void **state)
{
    (void)state;
    for (int stepped = 0; stepped < 2; stepped++) {
        struct small r = small_make(CKPT_BF16, 64, 3, true);
        struct force f = {.seed = 5, .host = true, .nvme = true, .all = true, .stepped = stepped};
        struct force_count count;
        struct budgets tiers;
        char plan[64], saved[64], nvme[64];
        ckpt *c;
        ckpt_program *p;
        int rc = 0;
        r.adamw.weight_decay = 10.f;
        small_path(plan, sizeof plan, "plan");
        small_path(saved, sizeof saved, "state");
        small_force(&r, &f, plan, &tiers, &count);
        assert_true(count.persistent[TIER_HOST] + count.persistent[TIER_NVME] > 0);
        assert_true((count.stepped > 0) == stepped);
        small_use_tiers(&r, plan, &tiers, nvme);
        small_open(&r, &c, &p);
        small_train(&r, c, p, 0, 2);
        assert_int_equal(ckpt_save_state(c, saved), 0);
        assert_int_equal(ckpt_set_lr(p, 3e38f), 0);
        for (int step = 2; step < 4 && !rc; step++) {
            small_feed(p, &r, step);
            rc = ckpt_step(p, NULL);
        }
        assert_int_equal(rc, CKPT_ENAN);
        assert_non_null(strstr(ckpt_error(c), "step 3: the update made '"));
        assert_int_equal(ckpt_save_state(c, saved), CKPT_EDEVICE);
        assert_int_equal(ckpt_step(p, NULL), CKPT_EDEVICE);
        ckpt_close(c);
        small_open(&r, &c, &p);
        assert_int_equal(ckpt_load_state(c, saved), 0);
        small_train(&r, c, p, 2, 3);
        ckpt_close(c);
        unlink(saved);
        unlink(plan);
    }
}

static ckpt_tensor record_hidden(ckpt_tape *t, int64_t batch, void *user)
{
    const ckpt_tensor *w = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, 1, 3});
    ckpt_tensor y = ckpt_input(t, "y", CKPT_F32, 3, (int64_t[]){batch, 1, 3});
    ckpt_tensor mask = ckpt_input(t, "mask", CKPT_I32, 2, (int64_t[]){batch, 3});
    return ckpt_mse(t, ckpt_mul(t, x, *w), y, mask);
}

/* A frame that is masked adds nothing to the loss or its gradient, whatever its values; nor does a
 * sample without frames. */
static void test_hidden_frames(void **state)
{
    static const float x[2][3] = {{1, 2, 3}, {4, 5, 6}}, y[2][3] = {{0, NAN, 1}, {NAN, INFINITY}};
    static const int32_t mask[2][3] = {{1, 0, 7}};
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    const int64_t one = 1;
    ckpt_program *p;
    ckpt *c;
    float loss;
    (void)state;
    assert_int_equal(ckpt_open(&c, &o), 0);
    ckpt_tensor w = ckpt_param(c, "w", CKPT_F32, 1, &one, CKPT_ONES, true);
    assert_int_equal(ckpt_compile(c, record_hidden, &w, ckpt_adamw(c, &a), 2, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_feed(p, "y", y, sizeof y), 0);
    assert_int_equal(ckpt_feed(p, "mask", mask, sizeof mask), 0);
    assert_int_equal(ckpt_step(p, &loss), 0);
    assert_true(loss == (1 + 4) / 2.f / 2);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_outputs_are_finite),
        cmocka_unit_test(test_nan_has_no_sign),
        cmocka_unit_test(test_rates),
        cmocka_unit_test(test_files_are_finite),
        cmocka_unit_test(test_update),
        cmocka_unit_test(test_update_with_tiers),
        cmocka_unit_test(test_hidden_frames),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
