/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Logits of odd numbers of classes: rows begin at aligned addresses where the pass of padded rows
 * finds it worth it, and nowhere else.  Loss and gradients are compared with fp64, and on the CPU
 * with the same step without the pass, bit for bit.  make check-gpu runs the test on a GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "core/base.h"
#include "core/bf16.h"
#include "exec/small.h"
#include "ops.h"

enum { ROWS = 12, WIDTH = 16, IGNORED = -100, ALIGNED = 128 };

struct row {
    enum ckpt_dtype dtype;
    int64_t classes;
    bool biased;
    int chunks;
    float smoothing, z;
    bool weighs; /* classes have weights */
    bool two;    /* two ops of the model, as files record them, instead of one call */
    bool adds;   /* constants to the logits, in fp32 */
    bool shows;  /* the logits are an output, and dense; their gradient is not */
    bool padded; /* expected */
};

static const struct row rows[] = {
    {CKPT_BF16, 50257, false, 1, 0, 0, false, false, false, false, true},
    {CKPT_BF16, 50257, true, 3, .1f, .01f, true, false, false, false, true},
    {CKPT_F32, 50257, true, 3, 0, 0, false, false, false, false, true},
    {CKPT_BF16, 1031, true, 1, .1f, 0, false, false, false, false, true},
    {CKPT_BF16, 1031, false, 4, 0, .01f, true, true, false, false, true},
    {CKPT_BF16, 1031, false, 1, 0, 0, false, true, false, true, true}, /* but the logits */
    {CKPT_BF16, 1030, true, 2, 0, 0, false, true, false, false, true},
    {CKPT_F32, 517, true, 1, .1f, .01f, true, true, false, false, true},
    {CKPT_F32, 517, false, 1, .1f, 0, false, true, true, false, true},
    {CKPT_BF16, 1024, true, 3, .1f, 0, false, false, false, false, false},
    {CKPT_BF16, 151, true, 3, .1f, .01f, true, false, false, false, false},
    {CKPT_F32, 151, false, 1, 0, 0, false, true, false, false, false},
    {CKPT_BF16, 7, true, 1, .1f, 0, false, false, false, false, false},
    {CKPT_BF16, 1, true, 3, 0, 0, false, false, false, false, false},
};

/* Exact in bf16. */
struct data {
    float x[ROWS * WIDTH], *w, *b, *weight;
    int32_t label[ROWS];
    ckpt_tensor px, pw, pb, pweight;
    const struct row *r;
};

/* Of one step. */
struct result {
    float loss, dx[ROWS * WIDTH], *dw, *db;
};

static float draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return (float)((int)(*seed >> 20) % 64 - 32) / 64.f;
}

static float *floats(int64_t n)
{
    float *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static void fill(struct data *d, const struct row *r)
{
    uint32_t seed = (uint32_t)r->classes;
    *d = (struct data){.r = r};
    d->w = floats(r->classes * WIDTH);
    d->b = floats(r->classes);
    d->weight = floats(r->classes);
    for (int i = 0; i < ROWS * WIDTH; i++)
        d->x[i] = 2 * draw(&seed);
    for (int64_t i = 0; i < r->classes * WIDTH; i++)
        d->w[i] = draw(&seed);
    for (int64_t i = 0; i < r->classes; i++) {
        d->b[i] = r->biased || r->adds ? draw(&seed) : 0;
        d->weight[i] = r->weighs ? .5f + (float)(i % 5) / 4 : 1;
    }
    for (int i = 0; i < ROWS; i++) /* the last class is beside the padding */
        d->label[i] = i % 4 == 2 ? IGNORED
                      : i == 1   ? (int32_t)r->classes - 1
                                 : (int32_t)(i * 977 % r->classes);
}

static void drop(struct data *d)
{
    free(d->w);
    free(d->b);
    free(d->weight);
}

/* ---- in fp64 --------------------------------------------------------------------------------- */

/* What a value is once it is stored. */
static double stored(const struct row *r, double x)
{
    return r->dtype == CKPT_BF16 ? (double)bf16_load(bf16_round((float)x)) : x;
}

/* Adds row i of the loss and its gradients; all: the sum of the weights; count: the divisor. */
static double add_row(const struct data *d, int i, double all, double count, double *y, double *dx,
                      struct result *to)
{
    const struct row *r = d->r;
    const int64_t n = r->classes, at = d->label[i];
    double top = -INFINITY, sum = 0, weighted = 0;
    if (at == IGNORED)
        return 0;
    for (int64_t j = 0; j < n; j++) {
        y[j] = (double)d->b[j];
        for (int k = 0; k < WIDTH; k++)
            y[j] += (double)d->x[i * WIDTH + k] * (double)d->w[j * WIDTH + k];
        y[j] = stored(r, y[j]);
        top = fmax(top, y[j]);
        weighted += (double)d->weight[j] * y[j];
    }
    for (int64_t j = 0; j < n; j++)
        sum += exp(y[j] - top);
    const double lse = top + log(sum), e = (double)r->smoothing, z = (double)r->z;
    const double w = (double)d->weight[at], part = e / (double)n;
    for (int64_t j = 0; j < n; j++) {
        double slope = ((1 - e) * w + part * all + 2 * z * lse * w) * exp(y[j] - lse);
        slope -= (j == at ? (1 - e) * w : 0) + part * (double)d->weight[j];
        slope = stored(r, slope / count);
        to->db[j] += (float)slope;
        for (int k = 0; k < WIDTH; k++) {
            to->dw[j * WIDTH + k] += (float)(slope * (double)d->x[i * WIDTH + k]);
            dx[k] += slope * (double)d->w[j * WIDTH + k];
        }
    }
    return ((1 - e) * w * (lse - y[at]) + part * (all * lse - weighted) + z * w * lse * lse) /
           count;
}

static struct result results(int64_t classes)
{
    return (struct result){.dw = floats(classes * WIDTH), .db = floats(classes)};
}

static void drop_result(struct result *r)
{
    free(r->dw);
    free(r->db);
}

static struct result expected(const struct data *d)
{
    const int64_t n = d->r->classes;
    struct result to = results(n);
    double *y = calloc((size_t)n, sizeof *y), all = 0, count = 0, loss = 0;
    assert_non_null(y);
    for (int64_t j = 0; j < n; j++)
        all += (double)d->weight[j];
    for (int i = 0; i < ROWS; i++)
        count += d->label[i] == IGNORED ? 0 : (double)d->weight[d->label[i]];
    for (int i = 0; i < ROWS; i++) {
        double dx[WIDTH] = {0};
        loss += add_row(d, i, all, count, y, dx, &to);
        for (int k = 0; k < WIDTH; k++)
            to.dx[i * WIDTH + k] = (float)dx[k];
    }
    to.loss = (float)loss;
    free(y);
    return to;
}

/* ---- by the library -------------------------------------------------------------------------- */

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct data *d = user;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    ckpt_tensor label = ckpt_constant(t, "label", CKPT_I32, 1, (int64_t[]){ROWS}, d->label);
    (void)batch;
    spec.label_smoothing = d->r->smoothing;
    spec.z_loss = d->r->z;
    spec.ignore_index = IGNORED;
    spec.chunk = ROWS / d->r->chunks;
    if (d->r->weighs)
        spec.weight = d->pweight;
    const ckpt_tensor b = d->r->biased ? d->pb : CKPT_NONE;
    ckpt_output_gradient(t, "dx", d->px);
    ckpt_output_gradient(t, "dw", d->pw);
    if (d->r->biased)
        ckpt_output_gradient(t, "db", d->pb);
    if (!d->r->two)
        return ckpt_linear_cross_entropy(t, d->px, d->pw, b, label, &spec);
    /* The layer sees three axes and the loss two, as in language models. */
    ckpt_tensor x = ckpt_reshape(t, d->px, 3, (int64_t[]){2, ROWS / 2, WIDTH});
    ckpt_tensor y = ckpt_linear(t, x, d->pw, b);
    if (d->r->adds)
        y = ckpt_add(t, y, ckpt_constant(t, "added", CKPT_F32, 1, &d->r->classes, d->b));
    if (d->r->shows)
        ckpt_output(t, "logits", y);
    y = ckpt_reshape(t, y, 2, (int64_t[]){ROWS, d->r->classes});
    return ckpt_cross_entropy(t, y, label, &spec);
}

static ckpt *open_model(struct data *d, unsigned without)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    const int64_t n = d->r->classes;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.verify = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    c->programs.without = without;
    d->px = ckpt_param_from(c, "x", d->r->dtype, 2, (int64_t[]){ROWS, WIDTH}, d->x, true);
    d->pw = ckpt_param_from(c, "w", d->r->dtype, 2, (int64_t[]){n, WIDTH}, d->w, true);
    d->pb = ckpt_param_from(c, "b", d->r->dtype, 1, &n, d->b, true);
    d->pweight = ckpt_param_from(c, "weight", CKPT_F32, 1, &n, d->weight, false);
    return c;
}

/* The number of logits and gradients of them with padded rows; all must begin at aligned
 * addresses. */
static int count_padded(const ckpt_tape *t, int64_t classes)
{
    int n = 0;
    for (int32_t x = 1; x < t->n_tensors; x++) {
        const struct ckpt_desc *d = &t->tensors.data[x].desc;
        if (d->ndim < 2 || d->shape[d->ndim - 1] != classes || desc_is_dense(d))
            continue;
        assert_int_equal(d->stride[d->ndim - 2] * ckpt_dtype_size(d->dtype) % ALIGNED, 0);
        assert_in_range(d->stride[d->ndim - 2] - classes, 1, ALIGNED - 1);
        n++;
    }
    return n;
}

static struct result run(struct data *d, unsigned without, int *padded)
{
    const int64_t n = d->r->classes;
    struct result r = results(n);
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c = open_model(d, without);
    ckpt_program *p;
    if (ckpt_compile(c, record, d, ckpt_adamw(c, &adamw), 1, &p) || ckpt_step(p, &r.loss))
        fail_msg("%s", ckpt_error(c));
    *padded = count_padded(p->tape, n);
    assert_int_equal(ckpt_fetch(p, "dx", r.dx, sizeof r.dx), 0);
    assert_int_equal(ckpt_fetch(p, "dw", r.dw, (size_t)(n * WIDTH) * sizeof *r.dw), 0);
    if (d->r->biased)
        assert_int_equal(ckpt_fetch(p, "db", r.db, (size_t)n * sizeof *r.db), 0);
    ckpt_close(c);
    return r;
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void expect_near(const struct row *r, const char *what, const float *x, const float *y,
                        int64_t n)
{
    double far = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        far += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        all += (double)y[i] * (double)y[i];
    }
    const double error = sqrt(far / (all > 0 ? all : 1));
    if (!(error <= (r->dtype == CKPT_BF16 ? 1e-2 : 2e-6)))
        fail_msg("%lld classes, row %d: %s differs from fp64 by %g", (long long)r->classes,
                 (int)(r - rows), what, error);
}

static void check(const struct row *r)
{
    const int64_t n = r->classes;
    struct data d;
    int padded, none;
    fill(&d, r);
    struct result want = expected(&d), got = run(&d, 0, &padded);
    struct result dense = run(&d, 1u << REWRITE_ROWS, &none);
    assert_int_equal(none, 0);
    assert_int_equal(padded > 0, r->padded);
    if (r->adds) /* of the layer, of the sum, for the loss, and of the gradient */
        assert_true(padded >= 4);
    expect_near(r, "the loss", &got.loss, &want.loss, 1);
    expect_near(r, "dx", got.dx, want.dx, ROWS * WIDTH);
    expect_near(r, "dw", got.dw, want.dw, n * WIDTH);
    if (r->biased)
        expect_near(r, "db", got.db, want.db, n);
    if (!small_on_gpu()) {
        assert_memory_equal(&got.loss, &dense.loss, sizeof got.loss);
        assert_memory_equal(got.dx, dense.dx, sizeof got.dx);
        assert_memory_equal(got.dw, dense.dw, (size_t)(n * WIDTH) * sizeof *got.dw);
        assert_memory_equal(got.db, dense.db, (size_t)n * sizeof *got.db);
    }
    drop_result(&want);
    drop_result(&got);
    drop_result(&dense);
    drop(&d);
}

static void test_rows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(&rows[i]);
}

/* A logit that is not finite is found in the layer that computed it, beside padding. */
static void test_found(void **state)
{
    struct data d;
    float loss;
    ckpt_program *p;
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    (void)state;
    fill(&d, &rows[3]);
    d.w[(d.r->classes - 1) * WIDTH] = INFINITY;
    ckpt *c = open_model(&d, 0);
    if (ckpt_compile(c, record, &d, ckpt_adamw(c, &adamw), 1, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_not_equal(ckpt_step(p, &loss), 0);
    assert_non_null(strstr(ckpt_error(c), "linear"));
    ckpt_close(c);
    drop(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows), cmocka_unit_test(test_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
