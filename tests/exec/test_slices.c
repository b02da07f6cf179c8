/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gradients of slices: disjoint slices of one tensor are concatenated once; slices that overlap, or
 * along other axes, are summed.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_op.h"
#include "plan/one_search.h"
#include "small.h"

enum { ROWS = 4, COLS = 150, NUMEL = ROWS * COLS };

enum how { BY_SPLIT, BY_SLICES, WITH_GAPS, OVERLAPPING, TWO_AXES, BETWEEN, ONE };

struct cut {
    ckpt_tensor w;
    enum how how;
    bool backwards; /* the loop, which changes the order of uses */
};

static ckpt_tensor of_part(ckpt_tape *t, ckpt_tensor sum, ckpt_tensor part, int i)
{
    ckpt_tensor y = ckpt_sin(t, ckpt_affine(t, part, 1 + 0.01f * (float)i, 0.1f));
    y = ckpt_mean(t, y, 3);
    return sum.id ? ckpt_add(t, sum, y) : y;
}

/* Columns [i step, i step + width) of h. */
static ckpt_tensor columns(ckpt_tape *t, const struct cut *m, ckpt_tensor h, int step, int width)
{
    const int n = (COLS - width) / step + 1;
    ckpt_tensor sum = CKPT_NONE;
    for (int k = 0; k < n; k++) {
        int i = m->backwards ? n - 1 - k : k;
        sum = of_part(t, sum, ckpt_slice(t, h, 1, (int64_t)i * step, (int64_t)i * step + width), i);
    }
    return sum;
}

static ckpt_tensor rows(ckpt_tape *t, ckpt_tensor h, ckpt_tensor sum)
{
    for (int i = 0; i < ROWS; i++)
        sum = of_part(t, sum, ckpt_slice(t, h, 0, i, i + 1), i);
    return sum;
}

static ckpt_tensor by_split(ckpt_tape *t, ckpt_tensor h)
{
    ckpt_tensor part[COLS / 3], sum = CKPT_NONE;
    ckpt_split(t, h, 1, COLS / 3, part);
    for (int i = 0; i < COLS / 3; i++)
        sum = of_part(t, sum, part[i], i);
    return sum;
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct cut *m = user;
    ckpt_tensor h = ckpt_mul(t, m->w, m->w), sum;
    (void)n;
    switch (m->how) {
    case BY_SPLIT:
        return by_split(t, h);
    case BY_SLICES:
        return columns(t, m, h, 3, 3);
    case WITH_GAPS:
        return columns(t, m, ckpt_slice(t, h, 1, 1, COLS), 2, 1); /* more than a concat takes */
    case OVERLAPPING:
        return columns(t, m, h, 5, 8);
    case TWO_AXES:
        return rows(t, h, columns(t, m, h, 3, 3));
    case BETWEEN: /* the whole is used between slices */
        sum = columns(t, m, h, 50, 20);
        sum = of_part(t, sum, h, 1);
        return rows(t, h, sum);
    default:
        return of_part(t, CKPT_NONE, ckpt_slice(t, h, 1, 7, 31), 0);
    }
}

static ckpt *open_with(struct cut *m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    m->w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){ROWS, COLS}, CKPT_NORMAL(1), true);
    return c;
}

static void test_values(void **state)
{
    (void)state;
    for (int how = BY_SPLIT; how <= ONE; how++)
        for (int backwards = 0; backwards < 2; backwards++) {
            struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
            struct cut m = {.how = (enum how)how, .backwards = backwards};
            ckpt *c = open_with(&m);
            check.samples = 6;
            if (ckpt_gradcheck(c, record, &m, &check))
                fail_msg("%d: %s", how, ckpt_error(c));
            ckpt_close(c);
        }
}

static ckpt_tensor record_gradient(ckpt_tape *t, int64_t n, void *user)
{
    const struct cut *m = user;
    ckpt_output_gradient(t, "dw", m->w);
    return record(t, n, user);
}

/* Computes the gradient, and returns the number of ops with this name on the tape. */
static int run(enum how how, bool backwards, const char *name, float *dw)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct cut m = {.how = how, .backwards = backwards};
    ckpt *c = open_with(&m);
    ckpt_program *p;
    int count = 0;
    if (ckpt_compile(c, record_gradient, &m, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "dw", dw, NUMEL * 4))
        fail_msg("%s", ckpt_error(c));
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        count += !strcmp(p->tape->ops.data[i].def->name, name);
    ckpt_close(c);
    return count;
}

static void test_joined(void **state)
{
    float a[NUMEL], b[NUMEL];
    (void)state;
    run(BY_SPLIT, false, "pad", a);
    for (int backwards = 0; backwards < 2; backwards++) {
        assert_int_equal(run(BY_SLICES, backwards, "pad", b), 0);
        assert_memory_equal(a, b, sizeof a);
    }
    assert_int_equal(run(WITH_GAPS, false, "pad", b), 1); /* of the slice around them */
    assert_int_equal(run(ONE, false, "pad", b), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_joined)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
