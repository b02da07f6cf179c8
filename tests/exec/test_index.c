/* SPDX-License-Identifier: Apache-2.0 */
/* Indices out of range: the step reports the index and changes nothing, and the next step succeeds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"

enum { BATCH = 8, WIDTH = 3, CLASSES = 5 };

static ckpt_tensor classify(ckpt_tape *t, int64_t batch, void *w)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});
    ckpt_tensor label = ckpt_input(t, "label", CKPT_I32, 1, (int64_t[]){batch});
    ckpt_label(t, "head");
    ckpt_tensor loss =
        ckpt_cross_entropy(t, ckpt_linear(t, x, *(ckpt_tensor *)w, CKPT_NONE), label, NULL);
    ckpt_output(t, "loss", loss);
    return loss;
}

struct run {
    ckpt *c;
    ckpt_program *p;
    ckpt_tensor w;
    float weight[CLASSES * WIDTH];
};

static void open_run(struct run *r, int64_t micro, bool trains)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    float x[BATCH * WIDTH];
    o.micro_batch = micro;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    assert_int_equal(ckpt_open(&r->c, &o), 0);
    r->w = ckpt_param(r->c, "w", CKPT_F32, 2, (int64_t[]){CLASSES, WIDTH}, CKPT_NORMAL(1), true);
    assert_int_equal(
        ckpt_compile(r->c, classify, &r->w, trains ? ckpt_adamw(r->c, &a) : NULL, BATCH, &r->p), 0);
    for (int i = 0; i < BATCH * WIDTH; i++)
        x[i] = (float)(i % 7) - 3;
    assert_int_equal(ckpt_feed(r->p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_param_get(r->c, r->w, CKPT_VALUE, r->weight, CLASSES * WIDTH), 0);
}

static void feed_labels(struct run *r, int at, int32_t label)
{
    int32_t labels[BATCH] = {0, 1, 2, 3, 4, 0, 1, 2};
    if (at >= 0)
        labels[at] = label;
    assert_int_equal(ckpt_feed(r->p, "label", labels, sizeof labels), 0);
}

static void expect_weights(struct run *r, bool same)
{
    float now[CLASSES * WIDTH];
    assert_int_equal(ckpt_param_get(r->c, r->w, CKPT_VALUE, now, CLASSES * WIDTH), 0);
    assert_int_equal(!memcmp(now, r->weight, sizeof now), same);
    memcpy(r->weight, now, sizeof now);
}

static void expect_index(struct run *r, int rc, const char *what)
{
    assert_int_equal(rc, CKPT_EINDEX);
    if (!strstr(ckpt_error(r->c), what) || !strstr(ckpt_error(r->c), "cross_entropy") ||
        !strstr(ckpt_error(r->c), " in head"))
        fail_msg("'%s' has no '%s'", ckpt_error(r->c), what);
}

static void check_step(int64_t micro)
{
    struct run r;
    open_run(&r, micro, true);
    feed_labels(&r, 6, CLASSES);
    expect_index(&r, ckpt_step(r.p, NULL),
                 micro == BATCH ? "index 5 at place 6 is not in [0, 5)"
                                : "of micro-step 4: index 5 at place 0 is not in [0, 5)");
    expect_weights(&r, true);
    feed_labels(&r, 1, -7);
    expect_index(&r, ckpt_step(r.p, NULL), "index -7 at place 1 is not in [0, 5)");
    expect_weights(&r, true);
    feed_labels(&r, -1, 0);
    assert_int_equal(ckpt_step(r.p, NULL), 0);
    expect_weights(&r, false);
    ckpt_close(r.c);
}

static void test_steps(void **state)
{
    (void)state;
    check_step(BATCH);
    check_step(2);
}

/* The step before a bad one counts, the one after it does not. */
static void test_under_way(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, BATCH, true);
    feed_labels(&r, -1, 0);
    assert_int_equal(ckpt_submit(r.p), 0);
    feed_labels(&r, 3, 9);
    assert_int_equal(ckpt_submit(r.p), 0);
    assert_int_equal(ckpt_wait(r.p, NULL), 0);
    expect_weights(&r, false);
    feed_labels(&r, -1, 0);
    assert_int_equal(ckpt_submit(r.p), 0);
    expect_index(&r, ckpt_wait(r.p, NULL), "step 2");
    assert_int_equal(ckpt_wait(r.p, NULL), CKPT_EINVAL);
    expect_weights(&r, true);
    assert_int_equal(ckpt_step(r.p, NULL), 0);
    expect_weights(&r, false);
    ckpt_close(r.c);
}

static void test_forward_only(void **state)
{
    (void)state;
    struct run r;
    open_run(&r, BATCH, false);
    feed_labels(&r, 0, INT32_MIN);
    expect_index(&r, ckpt_step(r.p, NULL), "index -2147483648 at place 0");
    assert_null(strstr(ckpt_error(r.c), "weights"));
    feed_labels(&r, -1, 0);
    assert_int_equal(ckpt_step(r.p, NULL), 0);
    ckpt_close(r.c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_steps),
                                       cmocka_unit_test(test_under_way),
                                       cmocka_unit_test(test_forward_only)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
