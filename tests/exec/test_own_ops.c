/* SPDX-License-Identifier: Apache-2.0 */
/* User-defined ops: red zones under --verify, threads, parallel loops, and gradcheck. */
#include <setjmp.h>
#include <stdarg.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"

enum { ROWS = 6, WIDTH = 16, N = ROWS * WIDTH };

/* ---- an op that writes too far ----------------------------------------------------------------*/

enum where { NOWHERE, BEHIND, BEFORE, BEHIND_SECOND, BEHIND_SCRATCH, INPUT };

struct wild_attr {
    enum where where;
};

static int wild_shape(struct ckpt_call *call)
{
    call->out[0] = call->out[1] = call->in[0];
    call->workspace = 100 + call->threads; /* so that it ends anywhere */
    return 0;
}

static int wild_cpu(const struct ckpt_kernel_args *a)
{
    const struct wild_attr *attr = a->attr;
    const float *x = a->in[0].data;
    float *y = a->out[0].data, *z = a->out[1].data;
    for (int i = 0; i < N; i++) {
        y[i] = 2 * x[i];
        z[i] = x[i];
    }
    memset(a->workspace, 1, (size_t)a->workspace_bytes + (attr->where == BEHIND_SCRATCH));
    if (attr->where == BEHIND)
        y[N] = 1;
    if (attr->where == BEHIND_SECOND)
        z[N + 5] = 0;
    if (attr->where == BEFORE)
        y[-1] = 1;
    if (attr->where == INPUT)
        ((float *)a->in[0].data)[N - 1] += 1;
    return 0;
}

static void wild_grad(struct ckpt_grad *g)
{
    g->din[0] = ckpt_affine(g->tape, g->dout[0], 2.f, 0.f);
}

static const struct ckpt_op_def wild = {.size = sizeof(struct ckpt_op_def),
                                        .name = "wild",
                                        .shape = wild_shape,
                                        .grad = wild_grad,
                                        .cpu = wild_cpu};

static ckpt_tensor w;

static ckpt_tensor record_wild(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch;
    ckpt_tensor y[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_label(t, "layer.3");
    ckpt_record(t, &wild, 1, &w, 2, y, user, sizeof(struct wild_attr));
    return ckpt_reshape(t, ckpt_mean(t, y[0], 3), 0, NULL);
}

static ckpt *open_context(bool verify)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.verify = verify;
    o.device = "cpu";
    assert_int_equal(ckpt_open(&c, &o), 0);
    w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1), true);
    return c;
}

static void expect_wild(enum where where, const char *sentence)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct wild_attr attr = {where};
    ckpt *c = open_context(true);
    ckpt_program *p;
    assert_int_equal(ckpt_compile(c, record_wild, &attr, ckpt_adamw(c, &a), 1, &p), 0);
    int rc = ckpt_step(p, NULL);
    assert_int_equal(rc, sentence ? CKPT_EINVAL : 0);
    if (sentence && (!strstr(ckpt_error(c), sentence) || !strstr(ckpt_error(c), "wild in layer.3")))
        fail_msg("'%s' has no '%s'", ckpt_error(c), sentence);
    ckpt_close(c);
}

static void test_red_zones(void **state)
{
    (void)state;
    expect_wild(NOWHERE, NULL);
    expect_wild(BEHIND, "its kernel wrote after output 0");
    expect_wild(BEFORE, "its kernel wrote before output 0");
    expect_wild(BEHIND_SECOND, "its kernel wrote after output 1");
    expect_wild(BEHIND_SCRATCH, "its kernel wrote after its workspace");
    expect_wild(INPUT, "its kernel wrote to input 0");
}

/* ---- an op whose kernel fails ----------------------------------------------------------------*/

static int failing_cpu(const struct ckpt_kernel_args *a)
{
    return *(const int *)a->attr;
}

static const struct ckpt_op_def failing = {.size = sizeof(struct ckpt_op_def),
                                           .name = "failing",
                                           .shape = wild_shape,
                                           .grad = wild_grad,
                                           .cpu = failing_cpu};

static ckpt_tensor record_failing(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch;
    ckpt_tensor y[2] = {CKPT_NONE, CKPT_NONE};
    ckpt_record(t, &failing, 1, &w, 2, y, user, sizeof(int));
    return ckpt_reshape(t, ckpt_mean(t, y[0], 3), 0, NULL);
}

/* A step returns codes of ckpt.h only, whatever a kernel returns. */
static void test_codes(void **state)
{
    const struct {
        int returned, code;
        const char *sentence;
    } cases[] = {{CKPT_EIO, CKPT_EIO, "failed with CKPT_EIO"},
                 {3, CKPT_EDEVICE, "failed with 3"},
                 {-77, CKPT_EDEVICE, "failed with -77"}};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int returned = cases[i].returned;
        ckpt *c = open_context(true);
        ckpt_program *p;
        assert_int_equal(ckpt_compile(c, record_failing, &returned, ckpt_adamw(c, &a), 1, &p), 0);
        assert_int_equal(ckpt_step(p, NULL), cases[i].code);
        if (!strstr(ckpt_error(c), "failing (") || !strstr(ckpt_error(c), cases[i].sentence))
            fail_msg("'%s' has no '%s'", ckpt_error(c), cases[i].sentence);
        ckpt_close(c);
    }
}

/* ---- loops in threads -------------------------------------------------------------------------*/

struct sums {
    const struct ckpt_kernel_args *a;
    double *piece;
    int *seen; /* per element */
};

enum { PIECE = 7 };

static void add_piece(int64_t begin, int64_t end, int thread, void *user)
{
    struct sums *s = user;
    const float *x = s->a->in[0].data;
    double *own = (double *)s->a->workspace + thread;
    *own = 0;
    for (int64_t i = begin; i < end; i++) {
        *own += x[i];
        s->seen[i]++;
    }
    s->piece[begin / PIECE] = *own;
}

static int total_cpu(const struct ckpt_kernel_args *a)
{
    int seen[N] = {0};
    double piece[N / PIECE + 1], sum = 0;
    struct sums s = {a, piece, seen};
    assert_true(a->threads >= 1);
    assert_int_equal(a->workspace_bytes, a->threads * (int64_t)sizeof(double));
    ckpt_parallel_for(a, N, PIECE, add_piece, &s);
    for (int i = 0; i < N; i++)
        assert_int_equal(seen[i], 1);
    for (int i = 0; i <= N / PIECE; i++)
        sum += piece[i];
    *(float *)a->out[0].data = (float)sum;
    ckpt_parallel_for(a, 0, PIECE, add_piece, NULL);
    return 0;
}

static int total_shape(struct ckpt_call *call)
{
    call->out[0] = (struct ckpt_desc){.dtype = CKPT_F32, .ndim = 0};
    call->workspace = call->threads * (int64_t)sizeof(double);
    return 0;
}

static const struct ckpt_op_def total = {
    .size = sizeof(struct ckpt_op_def), .name = "total", .shape = total_shape, .cpu = total_cpu};

static ckpt_tensor record_total(ckpt_tape *t, int64_t batch, void *user)
{
    (void)batch;
    (void)user;
    ckpt_tensor y = CKPT_NONE;
    ckpt_record(t, &total, 1, &w, 1, &y, NULL, 0);
    ckpt_output(t, "sum", y);
    return y;
}

static void test_threads(void **state)
{
    (void)state;
    float first = 0;
    for (int threads = 1; threads <= 4; threads++) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        ckpt *c;
        ckpt_program *p;
        float sum;
        o.device = "cpu";
        o.threads = threads;
        o.verify = threads % 2;
        assert_int_equal(ckpt_open(&c, &o), 0);
        w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1), true);
        assert_int_equal(ckpt_compile(c, record_total, NULL, NULL, 1, &p), 0);
        assert_int_equal(ckpt_step(p, NULL), 0);
        assert_int_equal(ckpt_fetch(p, "sum", &sum, sizeof sum), 0);
        first = threads == 1 ? sum : first;
        assert_memory_equal(&sum, &first, sizeof sum);
        ckpt_close(c);
    }
}

/* ---- gradcheck --------------------------------------------------------------------------------*/

/* tanh, with a gradient that is wrong by `factor`. */
static int bent_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

static int bent_cpu(const struct ckpt_kernel_args *a)
{
    const float *x = a->in[0].data;
    float *y = a->out[0].data;
    for (int i = 0; i < N; i++)
        y[i] = tanhf(x[i]);
    return 0;
}

static void bent_grad(struct ckpt_grad *g)
{
    float factor = *(const float *)g->attr;
    ckpt_tensor y = g->out[0], slope = ckpt_affine(g->tape, ckpt_mul(g->tape, y, y), -1.f, 1.f);
    g->din[0] = ckpt_affine(g->tape, ckpt_mul(g->tape, g->dout[0], slope), factor, 0.f);
}

static const struct ckpt_op_def bent = {.size = sizeof(struct ckpt_op_def),
                                        .name = "bent",
                                        .shape = bent_shape,
                                        .grad = bent_grad,
                                        .cpu = bent_cpu};

static ckpt_tensor record_bent(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor y = CKPT_NONE, x = ckpt_input(t, "x", CKPT_F32, 1, (int64_t[]){batch});
    ckpt_record(t, &bent, 1, &w, 1, &y, user, sizeof(float));
    y = ckpt_dropout(t, y, 0.25f); /* draws the same in every step of the check */
    y = ckpt_mean(t, ckpt_mul(t, y, y), 3);
    return ckpt_reshape(t, ckpt_mul(t, y, ckpt_mean(t, x, 1)), 0, NULL);
}

static int feed_bent(ckpt_program *p, void *user)
{
    (void)user;
    float x[2] = {1, 2};
    return ckpt_feed(p, "x", x, sizeof x);
}

static void test_gradcheck(void **state)
{
    (void)state;
    float right = 1.f, wrong = 1.1f, before[N], after[N];
    struct ckpt_gradcheck g = CKPT_GRADCHECK_INIT;
    g.feed = feed_bent;
    g.batch = 2;
    ckpt *c = open_context(false);
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, before, N), 0);
    int rc = ckpt_gradcheck(c, record_bent, &right, &g);
    if (rc)
        fail_msg("%s", ckpt_error(c));
    assert_true(g.error < 2e-3);
    assert_int_equal(ckpt_gradcheck(c, record_bent, &wrong, &g), CKPT_EGRADIENT);
    assert_true(g.error > 0.05);
    assert_string_equal(g.param, "w");
    assert_non_null(strstr(ckpt_error(c), "the gradient of w["));
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, after, N), 0);
    assert_memory_equal(before, after, sizeof before);
    /* The defaults have no inputs. */
    assert_int_equal(ckpt_gradcheck(c, record_bent, &right, NULL), CKPT_EINVAL);
    g.size = 0;
    assert_int_equal(ckpt_gradcheck(c, record_bent, &right, &g), CKPT_EINVAL);
    assert_int_equal(ckpt_gradcheck(c, NULL, NULL, NULL), CKPT_EINVAL);
    assert_int_equal(ckpt_gradcheck(NULL, record_bent, &right, NULL), CKPT_EINVAL);
    ckpt_close(c);
}

/* A gradient of about 1 in a loss of 20,000, whose fp32 values are 0.002 apart. */
static ckpt_tensor record_large(ckpt_tape *t, int64_t batch, void *user)
{
    return ckpt_affine(t, record_bent(t, batch, user), 8.f, 20000.f);
}

static void test_gradcheck_large_loss(void **state)
{
    (void)state;
    float right = 1.f, wrong = 1.5f;
    struct ckpt_gradcheck g = CKPT_GRADCHECK_INIT;
    g.feed = feed_bent;
    g.batch = 2;
    ckpt *c = open_context(false);
    if (ckpt_gradcheck(c, record_large, &right, &g))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_gradcheck(c, record_large, &wrong, &g), CKPT_EGRADIENT);
    ckpt_close(c);
}

static int feed_nothing(ckpt_program *p, void *user)
{
    (void)p;
    return *(float *)user < 2.f ? 7 : ckpt_feed(p, "nothing", user, 4);
}

static void expect_refused(const struct ckpt_gradcheck *settings, float factor, int code,
                           const char *sentence)
{
    struct ckpt_gradcheck g = *settings;
    ckpt *c = open_context(false);
    assert_int_equal(ckpt_gradcheck(c, record_bent, &factor, &g), code);
    if (!strstr(ckpt_error(c), sentence))
        fail_msg("'%s' has no '%s'", ckpt_error(c), sentence);
    ckpt_close(c);
}

/* With these settings a check would compare nothing, or compare with NaN. */
static void test_gradcheck_refused(void **state)
{
    const double wrong[] = {0, -1, NAN, INFINITY};
    const struct ckpt_gradcheck right = {.size = sizeof right,
                                         .batch = 2,
                                         .feed = feed_bent,
                                         .samples = 4,
                                         .length = .25,
                                         .tolerance = .01,
                                         .smallest = 1e-6};
    const char *sentence = "ckpt_gradcheck: samples, length, tolerance and smallest must be";
    struct ckpt_gradcheck g = right;
    (void)state;
    g.samples = 0;
    expect_refused(&g, 1.1f, CKPT_EINVAL, sentence);
    for (int i = 0; i < 4; i++) {
        g = right, g.length = wrong[i];
        expect_refused(&g, 1.1f, CKPT_EINVAL, sentence);
        g = right, g.smallest = wrong[i];
        expect_refused(&g, 1.1f, CKPT_EINVAL, sentence);
        g = right, g.tolerance = wrong[i];
        expect_refused(&g, 1.1f, i ? CKPT_EINVAL : CKPT_EGRADIENT, i ? sentence : "w[");
    }
    g = right, g.feed = feed_nothing;
    expect_refused(&g, 1.f, CKPT_EINVAL, "ckpt_gradcheck: feed returned 7");
    expect_refused(&g, 2.f, CKPT_ENAME, "there is no input 'nothing'");
}

/* ---- gradients of one's own
 * --------------------------------------------------------------------*/

static int same_shape(struct ckpt_call *call)
{
    call->out[0] = call->in[0];
    return 0;
}

/* A view of operand 0.  Operand 1, if present, receives the gradient; otherwise operand 0 receives
 * it times -3. */
static void own_grad(struct ckpt_grad *g)
{
    g->din[g->n_in - 1] = ckpt_affine(g->tape, g->dout[0], -3.f, 0.f);
}

static const struct ckpt_op_def view = {.size = sizeof(struct ckpt_op_def),
                                        .name = "view",
                                        .flags = CKPT_OP_VIEW | CKPT_OP_STRIDED,
                                        .shape = same_shape,
                                        .grad = own_grad};

/* y = view(tanh w) + view(round(2 w), w), where the second term's gradient bypasses the rounding.
 */
static ckpt_tensor record_view(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor h = ckpt_tanh(t, w), a, b;
    const ckpt_tensor two[] = {ckpt_stop_gradient(t, ckpt_round(t, ckpt_affine(t, w, 2.f, 0.f))),
                               w};
    (void)batch;
    (void)user;
    ckpt_record(t, &view, 1, &h, 1, &a, NULL, 0);
    ckpt_record(t, &view, 2, two, 1, &b, NULL, 0);
    ckpt_output_gradient(t, "grad", w);
    return ckpt_sum(t, ckpt_add(t, a, ckpt_mul(t, b, w)), CKPT_ALL_AXES);
}

static void test_gradient_of_ones_own(void **state)
{
    const struct ckpt_options o = {
        .size = sizeof o, .device = "cpu", .threads = 1, .verify = true, .seed = 3};
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    float x[N], grad[N], loss;
    double sum = 0;
    ckpt_program *p;
    ckpt *c;
    (void)state;
    assert_int_equal(ckpt_open(&c, &o), 0);
    w = ckpt_param(c, "w", CKPT_F32, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1), true);
    if (ckpt_compile(c, record_view, NULL, ckpt_adamw(c, &adamw), 1, &p) ||
        ckpt_param_get(c, w, CKPT_VALUE, x, N) || ckpt_step(p, &loss) ||
        ckpt_fetch(p, "grad", grad, sizeof grad))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < N; i++) {
        double h = tanh((double)x[i]), r = (double)roundf(2 * x[i]);
        double expected = -3 * (1 - h * h) + r - 3 * (double)x[i];
        sum += h + r * (double)x[i];
        if (fabs((double)grad[i] - expected) > 1e-5)
            fail_msg("element %d: %g, not %g", i, (double)grad[i], expected);
    }
    assert_true(fabs((double)loss - sum) < 1e-4);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_red_zones),
                                       cmocka_unit_test(test_gradient_of_ones_own),
                                       cmocka_unit_test(test_threads),
                                       cmocka_unit_test(test_gradcheck),
                                       cmocka_unit_test(test_gradcheck_large_loss),
                                       cmocka_unit_test(test_gradcheck_refused),
                                       cmocka_unit_test(test_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
