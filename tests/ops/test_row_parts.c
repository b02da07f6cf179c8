/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums of rows whose readers write parts of a concat, and gradients of a split that are such parts:
 * values and gradients equal the closed forms.  Along axis 1 the elements of a part are not
 * adjacent.
 *
 * The model: y[b, i] = exp(sum over s of tanh(w[b, i]) scale[s]), for each part i of a split of w,
 * and the loss is the sum of y.  With a second sum, y is exp(sum) / (1 + sum), whose reader has two
 * sums.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_op.h"
#include "exec/small.h"

enum { MOST = 8 * CKPT_MAX_PARTS, LONGEST = 200 };

struct rows {
    int parts, length, batch; /* parts of the split, elements of a row, size of the other axis */
    int axis;                 /* of split and concat: 1, or 0 where parts are dense */
    enum ckpt_dtype dtype;
    bool twice; /* the reader has two sums */
    ckpt_tensor w, scale;
};

static ckpt_tensor of_part(ckpt_tape *t, const struct rows *m, ckpt_tensor part)
{
    ckpt_tensor x = ckpt_tanh(t, part);
    ckpt_tensor y = ckpt_exp(t, ckpt_sum(t, ckpt_mul(t, x, m->scale), 1u << 2));
    if (!m->twice)
        return y;
    ckpt_tensor sum = ckpt_sum(t, ckpt_mul(t, ckpt_sub(t, part, x), m->scale), 1u << 2);
    return ckpt_div(t, y, ckpt_affine(t, ckpt_mul(t, sum, sum), 1.f, 1.f));
}

static ckpt_tensor record(ckpt_tape *t, int64_t n, void *user)
{
    const struct rows *m = user;
    ckpt_tensor p[CKPT_MAX_PARTS], y[CKPT_MAX_PARTS];
    (void)n;
    ckpt_split(t, m->w, m->axis, m->parts, p);
    for (int i = 0; i < m->parts; i++)
        y[i] = of_part(t, m, p[i]);
    ckpt_tensor all = ckpt_cast(t, ckpt_concat(t, m->axis, m->parts, y), CKPT_F32);
    ckpt_output(t, "y", all);
    ckpt_output_gradient(t, "dw", m->w);
    return ckpt_reshape(t, ckpt_sum(t, all, CKPT_ALL_AXES), 0, NULL);
}

/* Multiples of 1/64, which bf16 holds. */
static double weight(int i)
{
    return (double)(i * 37 % 101 - 50) / 64;
}

static double scale_of(const struct rows *m, int i)
{
    return (double)(1 << (i % 3)) / (m->length > 64 ? 512 : 64);
}

/* The value of an element and its derivative. */
static void closed_form(const struct rows *m, double w, double *y, double *dw)
{
    double s = 0, x = tanh(w), dx = 1 - x * x;
    for (int i = 0; i < m->length; i++)
        s += scale_of(m, i);
    *y = exp(s * x);
    *dw = *y * s * dx;
    if (m->twice) {
        const double u = s * (w - x), du = s * (1 - dx), q = 1 + u * u;
        *dw = *dw / q - *y * 2 * u * du / (q * q);
        *y /= q;
    }
}

static void fill(ckpt *c, const struct rows *m, float *w)
{
    float scale[LONGEST];
    for (int i = 0; i < m->batch * m->parts; i++)
        w[i] = (float)weight(i);
    for (int i = 0; i < m->length; i++)
        scale[i] = (float)scale_of(m, i);
    assert_int_equal(ckpt_param_set(c, m->w, CKPT_VALUE, w, m->batch * m->parts), 0);
    assert_int_equal(ckpt_param_set(c, m->scale, CKPT_VALUE, scale, m->length), 0);
}

static void compare(const struct rows *m, const float *w, const float *y, const float *dw)
{
    /* bf16: each result of the chain is rounded to 8 bits. */
    const double bound = m->dtype == CKPT_BF16 ? 0.04 : 2e-6;
    for (int i = 0; i < m->batch * m->parts; i++) {
        double want, want_dw;
        closed_form(m, w[i], &want, &want_dw);
        if (!(fabs(y[i] - want) <= bound * want) || !(fabs(dw[i] - want_dw) <= bound * (1 + want)))
            fail_msg("%d parts of rows of %d, axis %d, %s%s: element %d is %g, not %g; its "
                     "gradient is %g, not %g",
                     m->parts, m->length, m->axis, m->dtype == CKPT_BF16 ? "bf16" : "fp32",
                     m->twice ? ", two sums" : "", i, y[i], want, dw[i], want_dw);
    }
}

static void check(struct rows m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float w[MOST], y[MOST], dw[MOST];
    const int n = m.batch * m.parts;
    ckpt *c;
    ckpt_program *p;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    const int64_t shape[] = {m.axis ? m.batch : m.parts, m.axis ? m.parts : m.batch, 1};
    m.w = ckpt_param(c, "w", m.dtype, 3, shape, CKPT_ZEROS, true);
    m.scale = ckpt_param(c, "scale", m.dtype, 1, (int64_t[]){m.length}, CKPT_ZEROS, true);
    fill(c, &m, w);
    if (ckpt_compile(c, record, &m, ckpt_sgd(c, &sgd), 1, &p) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", y, n * 4) || ckpt_fetch(p, "dw", dw, n * 4))
        fail_msg("%s", ckpt_error(c));
    compare(&m, w, y, dw);
    ckpt_close(c);
}

static void test_parts(void **state)
{
    static const int sizes[][3] = {{2, 8, 4}, {3, 33, 5}, {5, 200, 3}, {2, 1, 7}, {4, 32, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int k = 0; k < 8; k++)
            check((struct rows){.parts = sizes[i][0],
                                .length = sizes[i][1],
                                .batch = sizes[i][2],
                                .axis = k & 1,
                                .dtype = k & 2 ? CKPT_BF16 : CKPT_F32,
                                .twice = k & 4});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
