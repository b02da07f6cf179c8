/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --qat int8: losses, gradients, weights and ranges of PyTorch's fake quantization
 * (make_torch_qat.py); the same bits under budgets, in tiers, in micro-steps and after a resume;
 * files of codes; what is refused.  "make check-gpu" runs it on the GPU.
 */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_nn.h"
#include "modes.h"
#include "plan/one_search.h"
#include "torch_qat.h"

static const char *const ranges[] = {"average", "learned", "dynamic"};
enum { AVERAGE, LEARNED, DYNAMIC, KINDS };

static struct ckpt_options options(int kind)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    o.qat = "int8";
    o.qat_ranges = ranges[kind];
    return o;
}

static ckpt *open_with(const struct ckpt_options *o)
{
    ckpt *c;
    if (ckpt_open(&c, o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

/* ---- PyTorch --------------------------------------------------------------------------------- */

enum {
    X = TORCH_BATCH * TORCH_SIDE * TORCH_SIDE * TORCH_CHANNELS,
    Y = TORCH_BATCH * TORCH_OUTPUTS,
    MOST = 64,
    PARAMS = 7
};

struct net {
    struct ckpt_nn_conv conv, up;
    struct ckpt_nn_linear fc1, fc2;
};

/* A parameter of the net: values at the start, of each kind after the steps, and the gradients of
 * the first step. */
#define ROW(name, text, n)                                                                         \
    {                                                                                              \
        text, n, torch_start_##name,                                                               \
            {torch_average_##name, torch_learned_##name, torch_dynamic_##name},                    \
        {                                                                                          \
            torch_average_d_##name, torch_learned_d_##name, torch_dynamic_d_##name                 \
        }                                                                                          \
    }

static const struct {
    const char *name;
    int n;
    const double *start, *end[KINDS], *gradient[KINDS];
} params[PARAMS] = {
    ROW(conv_weight, "conv.weight", TORCH_INNER * 9 * TORCH_CHANNELS),
    ROW(conv_bias, "conv.bias", TORCH_INNER),
    ROW(up_weight, "up.weight", TORCH_INNER * 4 * TORCH_CHANNELS),
    ROW(up_bias, "up.bias", TORCH_CHANNELS),
    ROW(fc1_weight, "fc1.weight", TORCH_WIDTH *TORCH_CHANNELS),
    ROW(fc1_bias, "fc1.bias", TORCH_WIDTH),
    ROW(fc2_weight, "fc2.weight", TORCH_OUTPUTS *TORCH_WIDTH),
};

static ckpt_tensor find(ckpt *c, const char *name)
{
    ckpt_tensor w;
    if (ckpt_param_find(c, name, &w))
        fail_msg("%s", ckpt_error(c));
    return w;
}

static struct net make_net(ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct net m;
    nn.context = c;
    m.conv =
        ckpt_nn_conv(&nn, TORCH_CHANNELS, TORCH_INNER, 2, (int64_t[]){3, 3}, NULL, true, "conv");
    m.up = ckpt_nn_conv_transpose(&nn, TORCH_INNER, TORCH_CHANNELS, 2, (int64_t[]){2, 2}, NULL,
                                  true, "up");
    m.fc1 = ckpt_nn_linear(&nn, TORCH_CHANNELS, TORCH_WIDTH, true, "fc1");
    m.fc2 = ckpt_nn_linear(&nn, TORCH_WIDTH, TORCH_OUTPUTS, false, "fc2");
    ckpt_param_file_axes(c, m.fc1.weight, 2, NULL, (int[]){1, 0}); /* as GPT-2's */
    for (int i = 0; i < PARAMS; i++) {
        float value[MOST];
        for (int k = 0; k < params[i].n; k++)
            value[k] = (float)params[i].start[k];
        if (ckpt_param_set(c, find(c, params[i].name), CKPT_VALUE, value, params[i].n))
            fail_msg("%s", ckpt_error(c));
    }
    return m;
}

static ckpt_tensor forward(ckpt_tape *t, int64_t n, const struct net *m)
{
    struct ckpt_conv_spec conv = CKPT_CONV_INIT, up = CKPT_CONV_INIT;
    ckpt_tensor x =
        ckpt_input(t, "x", CKPT_F32, 4, (int64_t[]){n, TORCH_SIDE, TORCH_SIDE, TORCH_CHANNELS});
    for (int i = 0; i < 2; i++) {
        conv.before[i] = conv.after[i] = 1;
        up.stride[i] = 2;
    }
    ckpt_tensor h = ckpt_relu(t, ckpt_nn_apply_conv(t, &m->conv, x, &conv));
    h = ckpt_mean(t, ckpt_nn_apply_conv_transpose(t, &m->up, h, &up), 6);
    h = ckpt_reshape(t, h, 2, (int64_t[]){n, TORCH_CHANNELS});
    return ckpt_nn_apply_linear(t, &m->fc2, ckpt_tanh(t, ckpt_nn_apply_linear(t, &m->fc1, h)));
}

static ckpt_tensor record_training(ckpt_tape *t, int64_t n, void *user)
{
    const struct net *m = user;
    const ckpt_tensor all[PARAMS] = {m->conv.weight, m->conv.bias, m->up.weight, m->up.bias,
                                     m->fc1.weight,  m->fc1.bias,  m->fc2.weight};
    ckpt_tensor y = forward(t, n, m);
    ckpt_tensor target = ckpt_input(t, "target", CKPT_F32, 2, (int64_t[]){n, TORCH_OUTPUTS});
    for (int i = 0; i < PARAMS; i++)
        ckpt_output_gradient(t, params[i].name, all[i]);
    return ckpt_mse(t, y, target, CKPT_NONE);
}

static ckpt_tensor record_running(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor y = forward(t, n, user);
    ckpt_output(t, "y", y);
    return y;
}

static void feed(ckpt *c, ckpt_program *p, const char *name, const double *from, int n)
{
    float value[X > Y ? X : Y];
    for (int i = 0; i < n; i++)
        value[i] = (float)from[i];
    if (ckpt_feed(p, name, value, n * 4))
        fail_msg("%s", ckpt_error(c));
}

static void expect(const char *kind, const char *name, const float *got, const double *want, int n)
{
    double error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        error = fmax(error, fabs((double)got[i] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    if (!(error <= (small_on_gpu() ? 2e-5 : 2e-6) * fmax(size, 1)))
        fail_msg("%s: %s is off by %g of %g", kind, name, error, size);
}

static void get(ckpt *c, const char *name, float *to, int n)
{
    if (ckpt_param_get(c, find(c, name), CKPT_VALUE, to, n))
        fail_msg("%s: %s", name, ckpt_error(c));
}

/* Ranges, in the order of the layers. */
static void expect_ranges(ckpt *c, int kind, const double *want)
{
    static const char *const layers[] = {"conv", "up", "fc1", "fc2"};
    for (int i = 0; want && i < 4; i++) {
        char name[64];
        float got[2];
        if (kind == AVERAGE) {
            snprintf(name, sizeof name, "%s.input_range", layers[i]);
            get(c, name, got, 2);
        } else {
            snprintf(name, sizeof name, "%s.input_scale_start", layers[i]);
            get(c, name, got, 1);
            snprintf(name, sizeof name, "%s.input_scale_change", layers[i]);
            get(c, name, got + 1, 1);
        }
        expect(ranges[kind], name, got, want + 2 * i, 2);
        if (kind == LEARNED && !small_on_gpu()) /* what was learned, by the sum of its gradients */
            assert_true(fabs((double)got[1] - want[2 * i + 1]) <= 1e-4 * fabs(want[2 * i + 1]));
    }
}

static ckpt_program *compile_training(ckpt *c, struct net *m)
{
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    ckpt_program *p;
    *m = make_net(c);
    sgd.lr = 1e-6f;
    if (ckpt_compile(c, record_training, m, ckpt_sgd(c, &sgd), TORCH_BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    return p;
}

static float step(ckpt *c, ckpt_program *p, int s)
{
    float loss = NAN;
    feed(c, p, "x", torch_x + s * X, X);
    feed(c, p, "target", torch_target + s * Y, Y);
    if (ckpt_step(p, &loss))
        fail_msg("%s", ckpt_error(c));
    return loss;
}

static void check_torch(int kind, const double *losses, const double *want)
{
    const struct ckpt_options o = options(kind);
    float got[MOST];
    struct net m;
    ckpt *c = open_with(&o);
    ckpt_program *p = compile_training(c, &m);
    for (int s = 0; s < TORCH_STEPS; s++) {
        const float loss = step(c, p, s);
        expect(ranges[kind], "the loss", &loss, losses + s, 1);
        for (int i = 0; i < PARAMS && !s; i++) {
            if (ckpt_fetch(p, params[i].name, got, params[i].n * 4))
                fail_msg("%s", ckpt_error(c));
            expect(ranges[kind], params[i].name, got, params[i].gradient[kind], params[i].n);
        }
    }
    for (int i = 0; i < PARAMS; i++) {
        get(c, params[i].name, got, params[i].n);
        expect(ranges[kind], params[i].name, got, params[i].end[kind], params[i].n);
    }
    expect_ranges(c, kind, want);
    ckpt_close(c);
}

static void test_torch(void **state)
{
    (void)state;
    check_torch(AVERAGE, torch_average_loss, torch_average_ranges);
    check_torch(LEARNED, torch_learned_loss, torch_learned_ranges);
    check_torch(DYNAMIC, torch_dynamic_loss, NULL);
}

/* ---- the op ---------------------------------------------------------------------------------- */

enum { VALUES = 9 };

static ckpt_tensor record_op(ckpt_tape *t, int64_t n, void *user)
{
    const ckpt_tensor *w = user; /* x, scale, zero */
    (void)n;
    for (int i = 0; i < 3; i++)
        ckpt_output_gradient(t, (const char *[]){"dx", "dscale", "dzero"}[i], w[i]);
    ckpt_tensor x = ckpt_input(t, "weights", CKPT_F32, 2, (int64_t[]){n, VALUES});
    ckpt_tensor y = ckpt_fake_quantize(t, w[0], w[1], w[2], -4, 3);
    ckpt_output(t, "y", ckpt_add(t, y, ckpt_affine(t, x, 0.f, 0.f)));
    return ckpt_sum(t, ckpt_mul(t, x, y), CKPT_ALL_AXES);
}

/* Every case of the rule: inside, on a tie, at both bounds, clamped; gradients of all operands. */
static void test_op(void **state)
{
    static const float x[VALUES] = {0.f, .3f, .25f, .75f, -.6f, 1.f, 1.3f, -2.6f, 9.f};
    const float scale = .5f, zero = 1.f;
    const struct ckpt_options o = options(AVERAGE);
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float weights[VALUES], y[VALUES], dx[VALUES], dscale, dzero;
    double want_scale = 0, want_zero = 0;
    ckpt_program *p;
    (void)state;
    ckpt *c = open_with(&o);
    ckpt_tensor w[] = {
        ckpt_param_from(c, "x", CKPT_F32, 1, (int64_t[]){VALUES}, x, true),
        ckpt_param_from(c, "scale", CKPT_F32, 1, (int64_t[]){1}, &scale, true),
        ckpt_param_from(c, "zero", CKPT_F32, 1, (int64_t[]){1}, &zero, true),
    };
    sgd.lr = 0.f;
    if (ckpt_compile(c, record_op, w, ckpt_sgd(c, &sgd), 1, &p))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < VALUES; i++)
        weights[i] = (float)(i + 1);
    if (ckpt_feed(p, "weights", weights, sizeof weights) || ckpt_step(p, NULL) ||
        ckpt_fetch(p, "y", y, sizeof y) || ckpt_fetch(p, "dx", dx, sizeof dx) ||
        ckpt_fetch(p, "dscale", &dscale, 4) || ckpt_fetch(p, "dzero", &dzero, 4))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < VALUES; i++) {
        const float q = rintf(x[i] / scale) + zero, code = fminf(fmaxf(q, -4.f), 3.f);
        assert_true(y[i] == (code - zero) * scale);
        assert_true(fabsf(dx[i] - (q == code ? weights[i] : 0.f)) < 1e-6f);
        want_scale += weights[i] * (code - zero - (q == code ? x[i] / scale : 0.f));
        want_zero += q == code ? 0. : -(double)(weights[i] * scale);
    }
    assert_true(fabs(dscale - want_scale) < 1e-5 && fabs(dzero - want_zero) < 1e-5);
    ckpt_close(c);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static struct small make(enum ckpt_dtype dtype, int64_t n_micro, int kind)
{
    struct small r = small_make(dtype, 32, n_micro, true);
    r.options.qat = "int8";
    r.options.qat_ranges = ranges[kind];
    return r;
}

static struct ckpt_program_info run(struct small *r)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    small_train(r, c, p, 0, 3);
    small_collect(r, c);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    return info;
}

/* Three budgets, from the smallest possible to that of nothing recomputed. */
static void test_budgets(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS && !small_on_gpu(); kind++) {
        struct small whole = make(kind == AVERAGE ? CKPT_BF16 : CKPT_F32, 1 + kind % 2, kind);
        const struct ckpt_program_info info = run(&whole);
        for (int i = 0; i < 3; i++) {
            struct small r = whole;
            r.options.vram = info.min_budget + i * (info.planned_peak - info.min_budget) / 2;
            assert_true(run(&r).recomputed_ops > 0 || i);
            small_expect_same("a budget", &whole, &r);
        }
        free(whole.state);
    }
}

static void test_tiers(void **state)
{
    (void)state;
    modes_expect_tiers(make(CKPT_BF16, 3, AVERAGE));
}

/* A resumed run has the bits of one that went on. */
static void test_resume(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        struct small whole = make(CKPT_F32, 2, kind), resumed = make(CKPT_F32, 2, kind);
        ckpt *c;
        ckpt_program *p;
        small_run(&whole, SMALL_STEPS);
        small_open_resumed(&resumed, &c, &p);
        memcpy(resumed.loss, whole.loss, SMALL_SAVED * sizeof *whole.loss);
        small_train(&resumed, c, p, SMALL_SAVED, SMALL_STEPS);
        small_collect(&resumed, c);
        ckpt_close(c);
        small_expect_same(ranges[kind], &whole, &resumed);
        free(whole.state);
    }
}

/* Ranges of single rows do not know of micro-steps; averages move once per step. */
static void test_micro_steps(void **state)
{
    float end[2][2][2]; /* kind, micro-steps: a range, the loss */
    (void)state;
    for (int kind = AVERAGE; kind <= DYNAMIC; kind += 2)
        for (int k = 0; k < 2; k++) {
            struct small r = make(CKPT_F32, k ? 4 : 1, kind);
            ckpt *c;
            ckpt_program *p;
            small_open(&r, &c, &p);
            small_train(&r, c, p, 0, 2);
            end[kind / 2][k][0] = 0.f;
            float range[2] = {0.f, 0.f};
            if (kind == AVERAGE)
                get(c, "in.input_range", range, 2);
            end[kind / 2][k][0] = range[1];
            end[kind / 2][k][1] = r.loss[0];
            assert_int_equal(p->tape->coupled[0] != 0, kind == AVERAGE);
            ckpt_close(c);
        }
    assert_true(fabsf(end[1][0][1] - end[1][1][1]) < 1e-5f * end[1][0][1]);
    /* the first step's mean of four largest elements is below the largest of all */
    assert_true(end[0][1][0] < end[0][0][0] && end[0][1][0] > 0.5f * end[0][0][0]);
}

/* A program that does not train reads the ranges and changes none. */
static void test_running(void **state)
{
    const struct ckpt_options o = options(AVERAGE);
    float y[2][Y], before[2], after[2];
    struct net m;
    ckpt_program *q;
    (void)state;
    ckpt *c = open_with(&o);
    ckpt_program *p = compile_training(c, &m);
    if (ckpt_compile(c, record_running, &m, NULL, TORCH_BATCH, &q))
        fail_msg("%s", ckpt_error(c));
    for (int k = 0; k < 2; k++) {
        feed(c, q, "x", torch_x, X);
        if (ckpt_step(q, NULL) || ckpt_fetch(q, "y", y[k], sizeof y[k]))
            fail_msg("%s", ckpt_error(c));
        get(c, "conv.input_range", k ? after : before, 2);
        assert_true(k || before[0] > before[1]);
        if (!k)
            step(c, p, 1);
        get(c, "conv.input_range", before, 2);
    }
    assert_memory_equal(before, after, sizeof before);
    assert_true(before[0] < before[1]);
    assert_memory_not_equal(y[0], y[1], sizeof y[0]);
    ckpt_close(c);
}

/* ---- files ----------------------------------------------------------------------------------- */

static const char path[] = "test_qat.tmp.safetensors";

static void read_entry(ckpt_file *f, const char *name, float *to, int64_t n)
{
    const int i = ckpt_file_find(f, name);
    if (i < 0 || ckpt_file_read_f32(f, i, to, n))
        fail_msg("%s: %s", name, ckpt_error(NULL));
}

/* Codes, scales and ranges in the file, by the values of the context. */
static void expect_codes(ckpt *c, ckpt_file *f, const char *layer, int rows, int n)
{
    char name[64];
    float w[MOST], codes[MOST], scale[MOST], range[2], by, zero;
    snprintf(name, sizeof name, "%s.weight", layer);
    get(c, name, w, n);
    read_entry(f, name, codes, n);
    snprintf(name, sizeof name, "%s.weight_scale", layer);
    read_entry(f, name, scale, rows);
    for (int i = 0; i < n; i++) { /* [in, out] */
        const int row = i % rows;
        const float s = scale[row];
        assert_true(codes[i] == rintf(codes[i]) && codes[i] >= -128 && codes[i] <= 127);
        assert_true(fabsf(codes[i] * s - w[row * (n / rows) + i / rows]) <= 0.5001f * s);
    }
    snprintf(name, sizeof name, "%s.input_range", layer);
    get(c, name, range, 2);
    assert_int_equal(ckpt_file_find(f, name), CKPT_ENAME);
    snprintf(name, sizeof name, "%s.input_scale", layer);
    read_entry(f, name, &by, 1);
    snprintf(name, sizeof name, "%s.input_zero_point", layer);
    read_entry(f, name, &zero, 1);
    const float low = fminf(range[0], 0.f), high = fmaxf(range[1], 0.f);
    assert_true(fabsf((-128 - zero) * by - low) <= by && fabsf((127 - zero) * by - high) <= by);
}

static void test_file(void **state)
{
    struct ckpt_options o = options(AVERAGE);
    struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
    float codes[MOST], scale[MOST], w[MOST];
    struct net m;
    ckpt_file *f;
    int unmatched = -1;
    (void)state;
    o.qat_skip = "fc2.weight,fc2.*";
    ckpt *c = open_with(&o);
    assert_int_equal(ckpt_save_params_int8(c, path, CKPT_VALUE, NULL, NULL, NULL), CKPT_EINVAL);
    ckpt_program *p = compile_training(c, &m);
    assert_int_equal(ckpt_save_params_int8(c, path, CKPT_VALUE, NULL, NULL, NULL), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "before the first step"));
    step(c, p, 0);
    if (ckpt_save_params_int8(c, path, CKPT_VALUE, NULL, NULL, NULL) || ckpt_file_open(&f, path))
        fail_msg("%s %s", ckpt_error(c), ckpt_error(NULL));
    assert_int_equal(ckpt_file_entry(f, ckpt_file_find(f, "fc1.weight"), &e), 0);
    assert_string_equal(e.dtype, "I8");
    expect_codes(c, f, "fc1", TORCH_WIDTH, TORCH_WIDTH * TORCH_CHANNELS);
    read_entry(f, "up.weight_scale", scale, 1); /* one scale */
    read_entry(f, "fc2.weight", codes, TORCH_OUTPUTS * TORCH_WIDTH);
    get(c, "fc2.weight", w, TORCH_OUTPUTS * TORCH_WIDTH);
    assert_memory_equal(codes, w, TORCH_OUTPUTS * TORCH_WIDTH * sizeof *w);
    assert_int_equal(ckpt_file_find(f, "fc2.weight_scale"), CKPT_ENAME);
    read_entry(f, "fc1.weight", codes, TORCH_WIDTH * TORCH_CHANNELS);
    read_entry(f, "fc1.weight_scale", scale, TORCH_WIDTH);
    assert_non_null(strstr(ckpt_file_note(f, "quantization_config"), "\"conv\",\"up\",\"fc1\""));
    ckpt_file_close(f);
    ckpt_close(c);
    o.qat = o.qat_ranges = o.qat_skip = NULL; /* another program: codes times scales */
    c = open_with(&o);
    m = make_net(c);
    if (ckpt_load_params(c, path, NULL, NULL, &unmatched))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(unmatched, 0);
    get(c, "fc1.weight", w, TORCH_WIDTH * TORCH_CHANNELS);
    for (int i = 0; i < TORCH_WIDTH * TORCH_CHANNELS; i++)
        assert_true(w[i] == codes[i % TORCH_CHANNELS * TORCH_WIDTH + i / TORCH_CHANNELS] *
                                scale[i / TORCH_CHANNELS]);
    ckpt_close(c);
    unlink(path);
}

/* Weights without ranges are loaded, and ranges begin anew. */
static void test_load(void **state)
{
    struct ckpt_options o = options(LEARNED);
    int unmatched = -1;
    (void)state;
    o.qat = o.qat_ranges = NULL;
    ckpt *c = open_with(&o);
    make_net(c);
    assert_int_equal(ckpt_save_params(c, path, CKPT_VALUE), 0);
    ckpt_close(c);
    o = options(LEARNED);
    c = open_with(&o);
    struct net m = make_net(c);
    (void)m;
    if (ckpt_load_params(c, path, NULL, NULL, &unmatched))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(unmatched, 0);
    ckpt_close(c);
    unlink(path);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void test_refusals(void **state)
{
    static const struct {
        const char *qat, *ranges, *skip, *matmul, *says;
    } all[] = {
        {"int4", NULL, NULL, NULL, "--qat int4: there is 'int8'"},
        {"int8", "mean", NULL, NULL, "--qat-ranges mean: there are"},
        {NULL, "dynamic", NULL, NULL, "--qat-ranges dynamic changes nothing"},
        {NULL, NULL, "a.*", NULL, "--qat-skip a.* changes nothing"},
        {"int8", NULL, NULL, "fp8", "leave one out"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct ckpt_options o = CKPT_OPTIONS_INIT;
        ckpt *c;
        o.device = "cpu";
        o.qat = all[i].qat;
        o.qat_ranges = all[i].ranges;
        o.qat_skip = all[i].skip;
        o.matmul = all[i].matmul;
        assert_int_equal(ckpt_open(&c, &o), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(NULL), all[i].says));
    }
    struct ckpt_options o = options(AVERAGE);
    struct ckpt_lora lora = CKPT_LORA_INIT;
    ckpt *c = open_with(&o);
    make_net(c);
    lora.rank = 2;
    lora.pattern = "fc*";
    assert_int_equal(ckpt_lora(c, &lora), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "--qat"));
    ckpt_close(c);
    o.qat_skip = "fc1.*,head.*";
    c = open_with(&o);
    struct net m = make_net(c);
    ckpt_program *p;
    assert_int_equal(ckpt_compile(c, record_running, &m, NULL, TORCH_BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "--qat-skip head.*: no parameter"));
    ckpt_close(c);
    o.qat_skip = "fc1.*,*";
    c = open_with(&o);
    m = make_net(c);
    assert_int_equal(ckpt_compile(c, record_running, &m, NULL, TORCH_BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "no weight is left to round"));
    ckpt_close(c);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),   cmocka_unit_test(test_op),
        cmocka_unit_test(test_budgets), cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_resume),  cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_running), cmocka_unit_test(test_file),
        cmocka_unit_test(test_load),    cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
