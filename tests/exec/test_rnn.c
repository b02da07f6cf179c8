/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers against PyTorch's in float64 (make_torch_rnn.py): results and gradients; step by
 * step and all at once; long sequences under a budget.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_nn.h"
#include "plan/one_search.h"
#include "small.h"
#include "torch_rnn.h"

enum {
    X = TORCH_BATCH * TORCH_LENGTH * TORCH_INPUTS,
    Y = TORCH_BATCH * TORCH_LENGTH * TORCH_WIDTH,
    STATE = TORCH_BATCH * TORCH_WIDTH,
    LONG = 150 /* more than a concat takes at once, twice */
};

struct net {
    struct ckpt_nn_rnn rnn;
    bool stepped; /* by ckpt_nn_rnn_step */
};

static ckpt *open_on_device(int64_t vram)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.vram = vram;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

static struct ckpt_nn_rnn make(ckpt *c, bool gru)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    nn.context = c;
    return gru ? ckpt_nn_gru(&nn, TORCH_INPUTS, TORCH_WIDTH, 0, true, "rnn.%d", 1)
               : ckpt_nn_lstm(&nn, TORCH_INPUTS, TORCH_WIDTH, 0, true, "rnn.%d", 1);
}

static ckpt_tensor all_steps(ckpt_tape *t, const struct net *m, ckpt_tensor x, ckpt_tensor *h,
                             ckpt_tensor *c)
{
    ckpt_tensor y[TORCH_LENGTH];
    if (!m->stepped)
        return ckpt_nn_apply_rnn(t, &m->rnn, x, h, c);
    for (int i = 0; i < TORCH_LENGTH; i++) {
        ckpt_nn_rnn_step(t, &m->rnn, ckpt_squeeze(t, ckpt_slice(t, x, 1, i, i + 1), 1), h, c);
        y[i] = *h;
    }
    return ckpt_stack(t, 1, TORCH_LENGTH, y);
}

static const char *const parts[] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct net *m = user;
    const ckpt_tensor w[] = {m->rnn.weight_ih, m->rnn.weight_hh, m->rnn.bias_ih, m->rnn.bias_hh};
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, TORCH_LENGTH, TORCH_INPUTS});
    ckpt_tensor weight =
        ckpt_input(t, "weight", CKPT_F32, 3, (int64_t[]){n, TORCH_LENGTH, TORCH_WIDTH});
    ckpt_tensor h = CKPT_NONE, c = CKPT_NONE, y = all_steps(t, m, x, &h, &c);
    ckpt_output(t, "y", y);
    ckpt_output(t, "h", h);
    if (c.id)
        ckpt_output(t, "c", c);
    for (int i = 0; i < 4; i++)
        ckpt_output_gradient(t, parts[i], w[i]);
    ckpt_tensor last = c.id ? c : h;
    ckpt_tensor loss = ckpt_sum(t, ckpt_mul(t, y, weight), 7);
    ckpt_tensor square = ckpt_sum(t, ckpt_mul(t, last, last), 3);
    return ckpt_add(t, ckpt_reshape(t, loss, 0, NULL), ckpt_reshape(t, square, 0, NULL));
}

static void expect(ckpt *c, ckpt_program *p, const char *name, const double *want, int n)
{
    float got[64];
    if (ckpt_fetch(p, name, got, n * 4))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= 1e-5 * fmax(1, fabs(want[i]))))
            fail_msg("%s[%d] is %.8g, not %.8g", name, i, (double)got[i], want[i]);
}

static void to_floats(float *dst, const double *src, int n)
{
    for (int i = 0; i < n; i++)
        dst[i] = (float)src[i];
}

/* weights: value and gradient of each parameter. */
static void check_torch(bool gru, bool stepped, const double *const weights[8], const double *y,
                        const double *last)
{
    const int n[] = {TORCH_WIDTH * TORCH_INPUTS, TORCH_WIDTH * TORCH_WIDTH, TORCH_WIDTH,
                     TORCH_WIDTH};
    const int gates = gru ? 3 : 4;
    ckpt *c = open_on_device(0);
    struct net m = {make(c, gru), stepped};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float value[64];
    ckpt_program *p;
    for (int i = 0; i < 4; i++) {
        char name[64];
        ckpt_tensor w;
        snprintf(name, sizeof name, "rnn.1.%s", parts[i]);
        assert_int_equal(ckpt_param_find(c, name, &w), 0);
        to_floats(value, weights[2 * i], gates * n[i]);
        if (ckpt_param_set(c, w, CKPT_VALUE, value, gates * n[i]))
            fail_msg("%s", ckpt_error(c));
    }
    if (ckpt_compile(c, record, &m, ckpt_sgd(c, &sgd), TORCH_BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    to_floats(value, torch_x, X);
    assert_int_equal(ckpt_feed(p, "x", value, X * 4), 0);
    to_floats(value, torch_weight, Y);
    assert_int_equal(ckpt_feed(p, "weight", value, Y * 4), 0);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
    expect(c, p, "y", y, Y);
    expect(c, p, "h", last, STATE);
    if (!gru)
        expect(c, p, "c", last + STATE, STATE);
    for (int i = 0; i < 4; i++)
        expect(c, p, parts[i], weights[2 * i + 1], gates * n[i]);
    ckpt_close(c);
}

#define WEIGHTS(kind)                                                                              \
    (const double *[])                                                                             \
    {                                                                                              \
        torch_##kind##_weight_ih_l0, torch_##kind##_weight_ih_l0_gradient,                         \
            torch_##kind##_weight_hh_l0, torch_##kind##_weight_hh_l0_gradient,                     \
            torch_##kind##_bias_ih_l0, torch_##kind##_bias_ih_l0_gradient,                         \
            torch_##kind##_bias_hh_l0, torch_##kind##_bias_hh_l0_gradient                          \
    }

static void test_torch(void **state)
{
    (void)state;
    for (int stepped = 0; stepped < 2; stepped++) {
        check_torch(false, stepped, WEIGHTS(lstm), torch_lstm_y, torch_lstm_last);
        check_torch(true, stepped, WEIGHTS(gru), torch_gru_y, torch_gru_last);
    }
}

/* ---- long sequences -------------------------------------------------------------------------- */

static ckpt_tensor record_long(ckpt_tape *t, int64_t n, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, LONG, TORCH_INPUTS});
    ckpt_tensor y = ckpt_nn_apply_rnn(t, &m->rnn, x, NULL, NULL);
    return ckpt_mean(t, ckpt_mul(t, y, y), 7);
}

static struct ckpt_program_info run_long(bool gru, int64_t vram, float *w, float *loss)
{
    enum { BATCH = 16 };
    static float x[BATCH * LONG * TORCH_INPUTS];
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = open_on_device(vram);
    struct net m = {make(c, gru), false};
    ckpt_program *p;
    if (ckpt_compile(c, record_long, &m, ckpt_adamw(c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < BATCH * LONG * TORCH_INPUTS; i++)
        x[i] = sinf(0.37f * (float)(i * i % 1009));
    for (int s = 0; s < 2; s++) {
        assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
        if (ckpt_step(p, loss))
            fail_msg("%s", ckpt_error(c));
    }
    ckpt_program_info(p, &info);
    int64_t n = (int64_t)(gru ? 3 : 4) * TORCH_WIDTH * TORCH_WIDTH;
    assert_int_equal(ckpt_param_get(c, m.rnn.weight_hh, CKPT_VALUE, w, n), 0);
    ckpt_close(c);
    return info;
}

static void test_long(void **state)
{
    float w[2][64] = {{0}}, loss[2];
    (void)state;
    for (int gru = 0; gru < 2; gru++) {
        run_long(gru, 0, w[0], &loss[0]);
        /* Run again: the first run on a GPU leaves loaded kernels, which the next budget must
         * include. */
        struct ckpt_program_info info = run_long(gru, 0, w[0], &loss[0]);
        int64_t half = (info.planned_peak + info.overhead_bytes + info.min_budget) / 2;
        half = max_i64(half, info.min_budget);
        run_long(gru, half, w[1], &loss[1]);
        assert_true(isfinite(loss[0]) && loss[0] == loss[1]);
        assert_memory_equal(w[0], w[1], sizeof w[0]);
    }
}

/* ---- refused uses ---------------------------------------------------------------------------- */

static ckpt_tensor record_wrong(ckpt_tape *t, int64_t n, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, TORCH_INPUTS}), h = CKPT_NONE;
    if (m->stepped)
        ckpt_nn_rnn_step(t, NULL, x, &h, NULL);
    return ckpt_nn_apply_rnn(t, m->rnn.width ? &m->rnn : NULL, x, NULL, NULL);
}

static void test_refused(void **state)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    ckpt_program *p;
    ckpt *c = open_on_device(0);
    struct net m = {make(c, true), false};
    (void)state;
    assert_int_equal(ckpt_compile(c, record_wrong, &m, NULL, 2, &p), CKPT_ESHAPE);
    assert_non_null(strstr(ckpt_error(c), "[B, L, in]"));
    m.stepped = true;
    assert_int_equal(ckpt_compile(c, record_wrong, &m, NULL, 2, &p), CKPT_EINVAL);
    m = (struct net){.stepped = false};
    assert_int_equal(ckpt_compile(c, record_wrong, &m, NULL, 2, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "NULL for its module"));
    nn.context = c;
    assert_int_equal(ckpt_nn_lstm(&nn, 0, 2, 0, true, "m").weight_ih.id, 0);
    assert_non_null(strstr(ckpt_error(c), "module 'm'"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_torch), cmocka_unit_test(test_long),
                                       cmocka_unit_test(test_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
