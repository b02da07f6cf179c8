/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops without a gradient rule between parameters and the loss: refused, by name, where they are the
 * only path of a parameter; named in the plan table beside another path; ckpt_stop_gradient says
 * what it means.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_op.h"

enum { N = 8 };

static int same_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static int double_cpu(const struct ckpt_kernel_args *a)
{
    for (int i = 0; i < N; i++)
        ((float *)a->out[0].data)[i] = 2 * ((const float *)a->in[0].data)[i];
    return 0;
}

static const struct ckpt_op_def doubled = {
    .size = sizeof(struct ckpt_op_def), .name = "doubled", .shape = same_shape, .cpu = double_cpu};

static ckpt_tensor w, v;

static ckpt_tensor twice(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor y = CKPT_NONE;
    ckpt_record(t, &doubled, 1, &x, 1, &y, NULL, 0);
    return y;
}

static ckpt_tensor loss_of(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_mean(t, ckpt_mul(t, x, x), CKPT_ALL_AXES);
}

static ckpt_tensor record_alone(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch, (void)user;
    ckpt_label(t, "layer.3");
    return loss_of(t, ckpt_exp(t, twice(t, ckpt_exp(t, w))));
}

static ckpt_tensor record_beside_other(ckpt_tape *t, int64_t batch, void *user)
{
    return ckpt_add(t, loss_of(t, v), record_alone(t, batch, user));
}

static ckpt_tensor record_two_paths(ckpt_tape *t, int64_t batch, void *user)
{
    return ckpt_add(t, loss_of(t, w), record_beside_other(t, batch, user));
}

static ckpt_tensor record_stopped(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch, (void)user;
    ckpt_tensor constant = twice(t, ckpt_stop_gradient(t, ckpt_exp(t, w)));
    return loss_of(t, ckpt_add(t, constant, v));
}

static ckpt_tensor record_argmax(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch, (void)user;
    ckpt_tensor best = ckpt_cast(t, ckpt_argmax(t, w, 0), CKPT_F32);
    return ckpt_add(t, loss_of(t, v), ckpt_sum(t, best, CKPT_ALL_AXES));
}

/* Compiles; returns the sentence, or the plan table, for free(). */
static char *compile(int *rc, ckpt_recorder record, bool frozen)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    const struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_optimizer_group group = CKPT_OPTIMIZER_GROUP_INIT;
    ckpt *c;
    ckpt_program *p;
    char *text;
    size_t size;
    o.device = "cpu", o.threads = 1;
    assert_int_equal(ckpt_open(&c, &o), 0);
    w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){N}, CKPT_ONES, true);
    v = ckpt_param(c, "v", CKPT_F32, 1, (int64_t[]){N}, CKPT_ONES, true);
    ckpt_optimizer *optimizer = ckpt_sgd(c, &sgd);
    group.frozen = true;
    if (frozen)
        assert_int_equal(ckpt_optimizer_group(optimizer, "w", &group), 0);
    *rc = ckpt_compile(c, record, NULL, optimizer, 1, &p);
    FILE *f = open_memstream(&text, &size);
    if (*rc)
        fputs(ckpt_error(c), f);
    else
        ckpt_plan_print(p, f);
    fclose(f);
    ckpt_close(c);
    return text;
}

static void expect(ckpt_recorder record, bool frozen, int code, const char *says)
{
    int rc;
    char *text = compile(&rc, record, frozen);
    if (rc != code || (says ? !strstr(text, says) : strstr(text, "as constants") != NULL))
        fail_msg("%d: %s", rc, text);
    free(text);
}

static void test_only_path(void **state)
{
    (void)state;
    const char *what = "parameter 'w' only through doubled in layer.3 (test_no_gradient.c:";
    expect(record_alone, false, CKPT_EINVAL, what);
    expect(record_beside_other, false, CKPT_EINVAL, what);
    expect(record_argmax, false, CKPT_EINVAL, "parameter 'w' only through argmax");
}

static void test_another_path(void **state)
{
    (void)state;
    expect(record_two_paths, false, 0, "1  as constants: doubled in layer.3 (test_no_gradient.c:");
}

static void test_meant(void **state)
{
    (void)state;
    expect(record_stopped, false, 0, NULL);
    expect(record_beside_other, true, 0, NULL);
    expect(record_argmax, true, 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_only_path),
                                       cmocka_unit_test(test_another_path),
                                       cmocka_unit_test(test_meant)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
