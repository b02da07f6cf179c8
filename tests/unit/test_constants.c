/* SPDX-License-Identifier: Apache-2.0 */
/* Values that a program contains: unnamed constants, constants of one value, parameters that start
 * from an array; and the bias of attention in its spec. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt.h"

static ckpt *open_context(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;

    o.device = getenv("CKPT_TEST_GPU") ? "cuda" : "cpu";
    o.threads = 1;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

/* Runs a model without inputs; n values of its output "y". */
static void run(ckpt_recorder record, void *user, void *y, int64_t bytes)
{
    ckpt *c = open_context();
    ckpt_program *p;

    if (ckpt_compile(c, record, user, NULL, 1, &p) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", y, bytes))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
}

static const float table[3] = {1, 2, 3};

static ckpt_tensor record_unnamed(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t n = 3;
    float twice[3] = {2, 4, 6};

    (void)user, (void)batch;
    ckpt_tensor y = ckpt_constant(t, NULL, CKPT_F32, 1, &n, table);
    y = ckpt_add(t, y, ckpt_constant(t, NULL, CKPT_F32, 1, &n, twice));
    twice[0] = 100; /* it was copied */
    y = ckpt_add(t, y, ckpt_constant(t, "", CKPT_F32, 1, &n, table));
    y = ckpt_add(t, y, ckpt_constant(t, "constant", CKPT_F32, 1, &n, table));
    ckpt_output(t, "y", y);
    return y;
}

static void test_unnamed(void **state)
{
    float y[3];

    (void)state;
    run(record_unnamed, NULL, y, sizeof y);
    for (int i = 0; i < 3; i++)
        assert_true(y[i] == 5 * table[i]);
}

/* x + 0.5 where x > 1.5, else an i32 7 as a float; x from a constant. */
static ckpt_tensor record_full(ckpt_tape *t, int64_t batch, void *user)
{
    const int64_t n = 3, shape[] = {2, 3};

    (void)user, (void)batch;
    ckpt_tensor x = ckpt_constant(t, NULL, CKPT_F32, 1, &n, table);
    ckpt_tensor large = ckpt_gt(t, x, ckpt_full(t, 1.5f, CKPT_F32, 0, NULL));
    ckpt_tensor seven = ckpt_cast(t, ckpt_full(t, 7, CKPT_I32, 2, shape), CKPT_F32);
    x = ckpt_add(t, x, ckpt_full(t, 0.5f, CKPT_F32, 0, NULL));
    ckpt_tensor y = ckpt_where(t, large, x, seven);
    ckpt_output(t, "y", y);
    return y;
}

static void test_full(void **state)
{
    float y[6];

    (void)state;
    run(record_full, NULL, y, sizeof y);
    for (int i = 0; i < 6; i++)
        assert_true(y[i] == (i % 3 ? table[i % 3] + 0.5f : 7));
}

static ckpt_tensor record_param(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch;
    ckpt_tensor y = ckpt_affine(t, *(ckpt_tensor *)user, 2, 0);
    ckpt_output(t, "y", y);
    return y;
}

static void test_param(void **state)
{
    const int64_t n = 3;
    float y[3], values[3];
    ckpt *c = open_context();
    ckpt_program *p;

    (void)state;
    memcpy(values, table, sizeof values);
    ckpt_tensor w = ckpt_param_from(c, "w", CKPT_F32, 1, &n, values, false);
    memset(values, 0, sizeof values);
    if (ckpt_compile(c, record_param, &w, NULL, 1, &p) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", y, sizeof y))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < 3; i++)
        assert_true(y[i] == 2 * table[i]);
    assert_int_equal(ckpt_param_from(c, "v", CKPT_F32, 1, &n, NULL, true).id, 0);
    assert_non_null(strstr(ckpt_error(c), "no first values"));
    assert_int_equal(ckpt_compile(c, record_param, &w, NULL, 1, &p), CKPT_EINVAL);
    ckpt_close(c);
}

/* ---- attention ------------------------------------------------------------------------------- */

/* user: 0 the bias is an operand, 1 it is in the spec, 2 it is both. */
static ckpt_tensor record_attention(ckpt_tape *t, int64_t batch, void *user)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const int how = *(int *)user;
    ckpt_tensor q[3];

    for (int i = 0; i < 3; i++)
        q[i] = ckpt_randn(t, CKPT_F32, 4, (int64_t[]){batch, 3, 2, 4});
    ckpt_tensor bias = ckpt_randn(t, CKPT_F32, 3, (int64_t[]){2, 3, 3});
    spec.bias = how ? bias : CKPT_NONE;
    ckpt_tensor y = ckpt_attention(t, q[0], q[1], q[2], how == 1 ? CKPT_NONE : bias, &spec);
    ckpt_output(t, "y", y);
    return y;
}

static void test_bias(void **state)
{
    float y[2][24];
    int both = 2;
    ckpt *c = open_context();
    ckpt_program *p;

    (void)state;
    for (int how = 0; how < 2; how++)
        run(record_attention, &how, y[how], sizeof y[how]);
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_int_equal(ckpt_compile(c, record_attention, &both, NULL, 1, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "the bias is given both"));
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_unnamed), cmocka_unit_test(test_full),
                                       cmocka_unit_test(test_param), cmocka_unit_test(test_bias)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
