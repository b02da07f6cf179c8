/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models that random tapes (test_tapes.c) found wrong, made small.  The loss equals its closed
 * form, and gradients agree with central differences.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>
#include "ckpt_op.h"
#include "exec/small.h"

enum { SIDE = 4, SAMPLES = 3 };

static ckpt_tensor w[3]; /* [SIDE], [SIDE, SIDE], [SAMPLES, 1] */
static const double row[SIDE] = {0.5, -0.75, 1.25, -0.25};

static ckpt *open_context(bool verify)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    float square[SIDE * SIDE], first[SIDE], column[SAMPLES] = {-0.3f, 0.1f, 0.6f};
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = verify;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    for (int i = 0; i < SIDE * SIDE; i++)
        square[i] = (float)(i * 7 % 11 - 5) / 8;
    for (int i = 0; i < SIDE; i++)
        first[i] = (float)row[i];
    w[0] = ckpt_param(c, "row", CKPT_F32, 1, (int64_t[]){SIDE}, CKPT_ZEROS, true);
    w[1] = ckpt_param(c, "square", CKPT_F32, 2, (int64_t[]){SIDE, SIDE}, CKPT_ZEROS, true);
    w[2] = ckpt_param(c, "column", CKPT_F32, 2, (int64_t[]){SAMPLES, 1}, CKPT_ZEROS, true);
    ckpt_param_set(c, w[0], CKPT_VALUE, first, SIDE);
    ckpt_param_set(c, w[1], CKPT_VALUE, square, SIDE * SIDE);
    ckpt_param_set(c, w[2], CKPT_VALUE, column, SAMPLES);
    return c;
}

static ckpt_tensor mean_of(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_reshape(t, ckpt_mean(t, x, CKPT_ALL_AXES), 0, NULL);
}

static void check_gradients(ckpt_recorder record)
{
    struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
    ckpt *c = open_context(true);
    if (ckpt_gradcheck(c, record, NULL, &check))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

static double loss_of(ckpt_recorder record)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt *c = open_context(true);
    ckpt_program *p;
    float loss;
    if (ckpt_compile(c, record, NULL, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, &loss))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
    return (double)loss;
}

/* ---- one parameter as two operands -----------------------------------------------------------*/

/* The rule of a layer records the gradient of the bias before that of x. */
static ckpt_tensor record_bias(ckpt_tape *t, int64_t n, void *user)
{
    (void)n, (void)user;
    return mean_of(t, ckpt_sin(t, ckpt_linear(t, w[0], w[1], w[0])));
}

static ckpt_tensor record_square(ckpt_tape *t, int64_t n, void *user)
{
    (void)n, (void)user;
    return mean_of(t, ckpt_sin(t, ckpt_matmul(t, w[1], w[1], false, true)));
}

static ckpt_tensor record_norm(ckpt_tape *t, int64_t n, void *user)
{
    (void)n, (void)user;
    return mean_of(t, ckpt_sin(t, ckpt_layer_norm(t, w[1], w[0], w[0], 1e-3f)));
}

static void test_one_parameter(void **state)
{
    (void)state;
    check_gradients(record_bias);
    check_gradients(record_square);
    check_gradients(record_norm);
}

/* ---- norms of a broadcast view ---------------------------------------------------------------*/

static ckpt_tensor broadcast(ckpt_tape *t)
{
    return ckpt_expand(t, w[0], 2, (int64_t[]){SAMPLES, SIDE});
}

static ckpt_tensor record_layer_norm(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor x = broadcast(t);
    (void)n, (void)user;
    return mean_of(t, ckpt_mul(t, ckpt_layer_norm(t, x, w[0], w[0], 1e-3f), x));
}

static ckpt_tensor record_modulate(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor x = broadcast(t);
    (void)n, (void)user;
    return mean_of(t, ckpt_mul(t, ckpt_modulate(t, x, x, x), x));
}

static void test_broadcast(void **state)
{
    double mean = 0, square = 0, layer = 0, modulated = 0;
    (void)state;
    for (int i = 0; i < SIDE; i++) {
        mean += row[i] / SIDE;
        square += row[i] * row[i] / SIDE;
        modulated += (row[i] * (1 + row[i]) + row[i]) * row[i] / SIDE;
    }
    const double root = 1 / sqrt(square - mean * mean + 1e-3);
    for (int i = 0; i < SIDE; i++)
        layer += ((row[i] - mean) * root * row[i] + row[i]) * row[i] / SIDE;
    assert_true(fabs(loss_of(record_layer_norm) - layer) < 1e-6);
    assert_true(fabs(loss_of(record_modulate) - modulated) < 1e-6);
    check_gradients(record_layer_norm);
    check_gradients(record_modulate);
}

/* ---- two losses of one value -----------------------------------------------------------------*/

/* The maximum, which moves with the second loss, reads what moves with the first one. */
static ckpt_tensor record_losses(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor x = ckpt_sin(t, w[0]), y = ckpt_maximum(t, w[2], x);
    (void)n, (void)user;
    ckpt_tensor a = ckpt_constant(t, "a", CKPT_I32, 0, NULL, (int32_t[]){1});
    ckpt_tensor b = ckpt_constant(t, "b", CKPT_I32, 1, (int64_t[]){SAMPLES}, (int32_t[]){3, 1, 0});
    ckpt_tensor first = ckpt_cross_entropy(t, x, a, NULL);
    return ckpt_add(t, first, ckpt_cross_entropy(t, y, b, NULL));
}

/* Minus the logarithm of the softmax. */
static double cross_entropy(const double *x, int label)
{
    double sum = 0;
    for (int i = 0; i < SIDE; i++)
        sum += exp(x[i]);
    return log(sum) - x[label];
}

static void test_losses(void **state)
{
    static const double column[SAMPLES] = {-0.3, 0.1, 0.6};
    static const int label[SAMPLES] = {3, 1, 0};
    double x[SIDE], y[SIDE], loss = 0;
    (void)state;
    for (int i = 0; i < SIDE; i++)
        x[i] = sin(row[i]);
    for (int k = 0; k < SAMPLES; k++) {
        for (int i = 0; i < SIDE; i++)
            y[i] = fmax(column[k], x[i]);
        loss += cross_entropy(y, label[k]) / SAMPLES;
    }
    assert_true(fabs(loss_of(record_losses) - loss - cross_entropy(x, 1)) < 1e-6);
    check_gradients(record_losses);
}

/* ---- logits and their gradient as parts of others --------------------------------------------*/

/* The logits begin 4 bytes behind their storage, and their gradient at the beginning of its own: a
 * kernel on a GPU stored 16 bytes at a time as if both began alike. */
static ckpt_tensor record_parts(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor all = ckpt_sin(t, ckpt_reshape(t, w[1], 1, (int64_t[]){SIDE * SIDE}));
    ckpt_tensor most = ckpt_slice(t, all, 0, 1, 3 * SIDE + 1);
    ckpt_tensor x = ckpt_slice(t, most, 0, 0, 2 * SIDE);
    ckpt_tensor label = ckpt_constant(t, "label", CKPT_I32, 1, (int64_t[]){2}, (int32_t[]){3, 1});
    (void)n, (void)user;
    x = ckpt_cross_entropy(t, ckpt_reshape(t, x, 2, (int64_t[]){2, SIDE}), label, NULL);
    return ckpt_add(t, x, mean_of(t, ckpt_slice(t, most, 0, 2 * SIDE, 3 * SIDE)));
}

static void test_parts(void **state)
{
    (void)state;
    check_gradients(record_parts);
}

/* ---- a codebook for a single row -------------------------------------------------------------*/

/* It was refused, although z is [..., D]. */
static ckpt_tensor record_entry(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor index;
    (void)n, (void)user;
    ckpt_tensor y = ckpt_quantize(t, w[0], w[1], &index, NULL);
    ckpt_output(t, "index", index);
    return mean_of(t, ckpt_mul(t, y, y));
}

static double square_at(int row_of, int i)
{
    return (double)((row_of * SIDE + i) * 7 % 11 - 5) / 8;
}

static void test_entry(void **state)
{
    double near = INFINITY, loss = 0;
    (void)state;
    for (int k = 0; k < SIDE; k++) {
        double distance = 0, sum = 0;
        for (int i = 0; i < SIDE; i++) {
            distance += pow(row[i] - square_at(k, i), 2);
            sum += pow(square_at(k, i), 2) / SIDE;
        }
        loss = distance < near ? sum : loss;
        near = fmin(near, distance);
    }
    assert_true(fabs(loss_of(record_entry) - loss) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_parameter), cmocka_unit_test(test_broadcast),
        cmocka_unit_test(test_losses), cmocka_unit_test(test_parts), cmocka_unit_test(test_entry)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
