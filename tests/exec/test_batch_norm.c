/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batch norm and the buffers that it updates: against PyTorch in float64
 * (make_torch_batch_norm.py), under budgets, with recomputation, offloading, micro-steps, a saved
 * state, and in steps that fail.  "make check-gpu" runs it on the GPU.
 */
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
#include "ckpt_op.h"
#include "plan/one_search.h"
#include "small.h"
#include "torch_batch_norm.h"

static struct ckpt_options options(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
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
    X = TORCH_BATCH * TORCH_PLACES * TORCH_INPUTS,
    Y = TORCH_BATCH * TORCH_PLACES * TORCH_OUTPUTS
};

struct net {
    struct ckpt_nn_linear fc1, fc2;
    struct ckpt_nn_batch_norm bn1, bn2;
};

static void set(ckpt *c, ckpt_tensor w, const double *from, int n)
{
    float value[64];
    for (int i = 0; i < n; i++)
        value[i] = (float)from[i];
    if (ckpt_param_set(c, w, CKPT_VALUE, value, n))
        fail_msg("%s", ckpt_error(c));
}

static struct net make_net(ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    struct net m;
    nn.context = c;
    m.fc1 = ckpt_nn_linear(&nn, TORCH_INPUTS, TORCH_INNER, false, "fc1");
    m.bn1 = ckpt_nn_batch_norm(&nn, TORCH_INNER, 0.1f, 1e-5f, "bn1");
    m.fc2 = ckpt_nn_linear(&nn, TORCH_INNER, TORCH_OUTPUTS, true, "fc2");
    m.bn2 = ckpt_nn_batch_norm(&nn, TORCH_OUTPUTS, 0.3f, 1e-3f, "bn2");
    m.bn2.weight = m.bn2.bias = CKPT_NONE; /* affine=False */
    set(c, m.fc1.weight, torch_start_fc1_weight, TORCH_INNER * TORCH_INPUTS);
    set(c, m.bn1.weight, torch_start_bn1_weight, TORCH_INNER);
    set(c, m.bn1.bias, torch_start_bn1_bias, TORCH_INNER);
    set(c, m.fc2.weight, torch_start_fc2_weight, TORCH_OUTPUTS * TORCH_INNER);
    set(c, m.fc2.bias, torch_start_fc2_bias, TORCH_OUTPUTS);
    return m;
}

static ckpt_tensor forward(ckpt_tape *t, int64_t n, const struct net *m, bool training)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, TORCH_PLACES, TORCH_INPUTS});
    ckpt_tensor h = ckpt_nn_apply_linear(t, &m->fc1, x);
    h = ckpt_relu(t, ckpt_nn_apply_batch_norm(t, &m->bn1, h, training));
    return ckpt_nn_apply_batch_norm(t, &m->bn2, ckpt_nn_apply_linear(t, &m->fc2, h), training);
}

static ckpt_tensor record_training(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor y = forward(t, n, user, true);
    ckpt_tensor target =
        ckpt_input(t, "target", CKPT_F32, 3, (int64_t[]){n, TORCH_PLACES, TORCH_OUTPUTS});
    ckpt_tensor away = ckpt_sub(t, y, target);
    return ckpt_mean(t, ckpt_mul(t, away, away), 7);
}

static ckpt_tensor record_running(ckpt_tape *t, int64_t n, void *user)
{
    ckpt_tensor y = forward(t, n, user, false);
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

static void expect(const char *name, const float *got, const double *want, int n)
{
    double error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        error = fmax(error, fabs((double)got[i] - want[i]));
        size = fmax(size, fabs(want[i]));
    }
    if (!(error <= (small_on_gpu() ? 2e-5 : 2e-6) * fmax(size, 1)))
        fail_msg("%s is off by %g of %g", name, error, size);
}

static void expect_param(ckpt *c, const char *name, const double *want, int n)
{
    float got[64];
    ckpt_tensor w;
    if (ckpt_param_find(c, name, &w) || ckpt_param_get(c, w, CKPT_VALUE, got, n))
        fail_msg("%s: %s", name, ckpt_error(c));
    expect(name, got, want, n);
}

static void check_torch(int n_micro, const double *loss, const double *weights[], const double *y)
{
    static const struct {
        const char *name;
        int n;
    } params[] = {{"fc1.weight", TORCH_INNER * TORCH_INPUTS},
                  {"bn1.weight", TORCH_INNER},
                  {"bn1.bias", TORCH_INNER},
                  {"bn1.running_mean", TORCH_INNER},
                  {"bn1.running_var", TORCH_INNER},
                  {"fc2.weight", TORCH_OUTPUTS * TORCH_INNER},
                  {"fc2.bias", TORCH_OUTPUTS},
                  {"bn2.running_mean", TORCH_OUTPUTS},
                  {"bn2.running_var", TORCH_OUTPUTS}};
    struct ckpt_options o = options();
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    float got[Y], one;
    ckpt_program *p, *q;
    o.micro_batch = TORCH_BATCH / n_micro;
    ckpt *c = open_with(&o);
    struct net m = make_net(c);
    sgd.lr = 0.1f;
    if (ckpt_compile(c, record_training, &m, ckpt_sgd(c, &sgd), TORCH_BATCH, &p) ||
        ckpt_compile(c, record_running, &m, NULL, TORCH_BATCH, &q))
        fail_msg("%s", ckpt_error(c));
    for (int s = 0; s < TORCH_STEPS; s++) {
        feed(c, p, "x", torch_x + s * X, X);
        feed(c, p, "target", torch_target + s * Y, Y);
        if (ckpt_step(p, &one))
            fail_msg("%s", ckpt_error(c));
        expect("loss", &one, loss + s, 1);
    }
    for (size_t i = 0; i < sizeof params / sizeof *params; i++)
        expect_param(c, params[i].name, weights[i], params[i].n);
    feed(c, q, "x", torch_x, X);
    if (ckpt_step(q, NULL) || ckpt_fetch(q, "y", got, sizeof got))
        fail_msg("%s", ckpt_error(c));
    expect("y", got, y, Y);
    ckpt_close(c);
}

#define WEIGHTS(n)                                                                                 \
    (const double *[])                                                                             \
    {                                                                                              \
        torch_##n##_fc1_weight, torch_##n##_bn1_weight, torch_##n##_bn1_bias,                      \
            torch_##n##_bn1_running_mean, torch_##n##_bn1_running_var, torch_##n##_fc2_weight,     \
            torch_##n##_fc2_bias, torch_##n##_bn2_running_mean, torch_##n##_bn2_running_var        \
    }

static void test_torch(void **state)
{
    (void)state;
    check_torch(1, torch_1_loss, WEIGHTS(1), torch_1_eval);
    check_torch(2, torch_2_loss, WEIGHTS(2), torch_2_eval);
}

/* ---- plans ----------------------------------------------------------------------------------- */

enum { BLOCKS = 6, WIDTH = 32, ROWS = 24, BATCH = 8, STEPS = 5, PARAMS = 6 * BLOCKS };

struct deep {
    enum ckpt_dtype dtype;
    struct ckpt_nn_linear fc[BLOCKS];
    struct ckpt_nn_batch_norm bn[BLOCKS];
    float values[PARAMS * WIDTH * WIDTH];
    float loss;
};

static ckpt_tensor record_deep(ckpt_tape *t, int64_t n, void *user)
{
    const struct deep *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){n, ROWS, WIDTH});
    ckpt_tensor h = ckpt_cast(t, x, m->dtype);
    for (int i = 0; i < BLOCKS; i++) {
        ckpt_label(t, "blocks.%d", i);
        ckpt_tensor u = ckpt_nn_apply_linear(t, &m->fc[i], h);
        h = ckpt_add(t, h, ckpt_relu(t, ckpt_nn_apply_batch_norm(t, &m->bn[i], u, true)));
    }
    return ckpt_mean(t, ckpt_mul(t, h, ckpt_add(t, h, x)), 7);
}

static ckpt *make_deep(struct deep *m, const struct ckpt_options *o)
{
    struct ckpt_nn nn = CKPT_NN_INIT;
    ckpt *c = open_with(o);
    nn.context = c;
    nn.dtype = m->dtype;
    for (int i = 0; i < BLOCKS; i++) {
        m->fc[i] = ckpt_nn_linear(&nn, WIDTH, WIDTH, true, "blocks.%d.fc", i);
        m->bn[i] = ckpt_nn_batch_norm(&nn, WIDTH, 0.1f, 1e-5f, "blocks.%d.bn", i);
    }
    return c;
}

static ckpt_program *open_deep(struct deep *m, ckpt **c, const struct ckpt_options *o)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    *c = make_deep(m, o);
    adamw.lr = 1e-2f;
    if (ckpt_compile(*c, record_deep, m, ckpt_adamw(*c, &adamw), BATCH, &p))
        fail_msg("%s", ckpt_error(*c));
    return p;
}

static int step_deep(struct deep *m, ckpt_program *p, int step, float scale)
{
    static float x[BATCH * ROWS * WIDTH];
    for (int i = 0; i < BATCH * ROWS * WIDTH; i++)
        x[i] = scale * sinf((float)(i % 977 + 31 * step));
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    return ckpt_step(p, &m->loss);
}

static void collect(struct deep *m, ckpt *c)
{
    int64_t at = 0;
    memset(m->values, 0, sizeof m->values);
    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_param_info(c, ckpt_param_at(c, i), &info);
        if (ckpt_param_get(c, ckpt_param_at(c, i), CKPT_VALUE, m->values + at, info.numel))
            fail_msg("%s", ckpt_error(c));
        at += info.numel;
    }
}

static struct ckpt_program_info run_deep(struct deep *m, const struct ckpt_options *o)
{
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p = open_deep(m, &c, o);
    for (int s = 0; s < STEPS; s++)
        if (step_deep(m, p, s, 1))
            fail_msg("%s", ckpt_error(c));
    collect(m, c);
    ckpt_program_info(p, &info);
    ckpt_close(c);
    return info;
}

static void expect_same(const struct deep *a, const struct deep *b)
{
    assert_true(a->loss == b->loss);
    assert_memory_equal(a->values, b->values, sizeof a->values);
}

/* Runs a plan that offloads everything that can be offloaded, buffers too. */
static void run_offloaded(struct deep *m, const struct ckpt_options *given)
{
    struct ckpt_options o = *given;
    struct force_count count;
    struct plan *forced;
    char path[64], nvme[64];
    ckpt *c;
    snprintf(path, sizeof path, "test_batch_norm.%d.plan", (int)getpid());
    o.plan_only = true;
    ckpt_program *p = open_deep(m, &c, &o);
    const struct force f = {.seed = 1, .host = true, .nvme = true, .all = true};
    assert_int_equal(force_offloads(p->graph, p->plan, &f, &forced), 0);
    if (plan_check(p->graph, forced) || plan_write(p->graph, forced, path))
        fail_msg("%s", error_get());
    force_count(p->graph, forced, &count);
    assert_true(count.persistent[TIER_HOST] + count.persistent[TIER_NVME] > 4 * BLOCKS);
    o.plan_only = false;
    o.plan_in = path;
    o.host = forced->budgets.host;
    snprintf(nvme, sizeof nvme, ".:%lld", (long long)max_i64(forced->budgets.nvme, 1 << 20));
    o.nvme = nvme;
    plan_free(forced);
    ckpt_close(c);
    run_deep(m, &o);
    unlink(path);
}

static void check_budgets(enum ckpt_dtype dtype, int64_t micro)
{
    struct deep free = {.dtype = dtype}, tight = {.dtype = dtype};
    struct ckpt_options o = options();
    o.micro_batch = micro;
    struct ckpt_program_info info = run_deep(&free, &o);
    assert_true(isfinite(free.loss));
    /* Libraries of a GPU may keep a little more with every context of one process. */
    const int64_t kept = small_on_gpu() ? (int64_t)16 << 20 : 0;
    const int64_t low = info.min_budget + kept;
    const int64_t most = max_i64(low, info.planned_peak + info.overhead_bytes);
    for (int part = 0; part < 3; part++) {
        o.vram = low + part * (most - low) / 3;
        struct ckpt_program_info less = run_deep(&tight, &o);
        assert_true(part || kept || less.recomputed_ops > 0);
        expect_same(&free, &tight);
    }
    o.vram = 0;
    run_offloaded(&tight, &o);
    expect_same(&free, &tight);
}

static void test_budgets(void **state)
{
    (void)state;
    check_budgets(CKPT_F32, 2);
    check_budgets(CKPT_BF16, BATCH);
}

/* --micro-batch auto never selects a size that changes the model: under every budget the results
 * are the whole batch's, or the budget is refused with a reason although an explicit size fits. */
static void test_auto(void **state)
{
    static struct deep whole = {.dtype = CKPT_F32}, m = {.dtype = CKPT_F32};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    struct ckpt_options o = options();
    ckpt_program *p;
    (void)state;
    if (small_on_gpu())
        skip();
    o.micro_batch = BATCH;
    const int64_t least = run_deep(&whole, &o).min_budget;
    for (int tight = 0; tight < 2; tight++) {
        o.micro_batch = CKPT_AUTO;
        o.vram = tight ? least : 0;
        struct ckpt_program_info info = run_deep(&m, &o);
        assert_int_equal(info.micro_batch, BATCH);
        assert_false(info.choice_changes_bits);
        expect_same(&whole, &m);
    }
    o.vram = least - 1;
    ckpt *c = make_deep(&m, &o);
    assert_int_equal(ckpt_compile(c, record_deep, &m, ckpt_adamw(c, &a), BATCH, &p), CKPT_EBUDGET);
    assert_non_null(strstr(ckpt_error(c), "keeps the batch of"));
    assert_non_null(strstr(ckpt_error(c), "it needs at least"));
    ckpt_close(c);
    o.micro_batch = 2;
    run_deep(&m, &o);
}

/* Saves a state after half of the steps and runs the rest in another context. */
static void test_resume(void **state)
{
    struct deep whole = {.dtype = CKPT_BF16}, part = {.dtype = CKPT_BF16};
    struct ckpt_options o = options();
    char path[64];
    ckpt *c;
    (void)state;
    snprintf(path, sizeof path, "test_batch_norm.%d", (int)getpid());
    o.micro_batch = 2;
    run_deep(&whole, &o);
    ckpt_program *p = open_deep(&part, &c, &o);
    for (int s = 0; s < 2; s++)
        assert_int_equal(step_deep(&part, p, s, 1), 0);
    assert_int_equal(ckpt_save_state(c, path), 0);
    ckpt_close(c);
    p = open_deep(&part, &c, &o);
    if (ckpt_load_state(c, path))
        fail_msg("%s", ckpt_error(c));
    unlink(path);
    for (int s = 2; s < STEPS; s++)
        assert_int_equal(step_deep(&part, p, s, 1), 0);
    collect(&part, c);
    ckpt_close(c);
    expect_same(&whole, &part);
}

/* ---- steps that change nothing --------------------------------------------------------------- */

static void check_failure(int64_t micro)
{
    static struct deep m = {.dtype = CKPT_F32}, before;
    struct ckpt_options o = options();
    ckpt *c;
    o.micro_batch = micro;
    ckpt_program *p = open_deep(&m, &c, &o);
    assert_int_equal(step_deep(&m, p, 0, 1), 0);
    collect(&m, c);
    before = m;
    assert_int_equal(step_deep(&m, p, 1, NAN), CKPT_ENAN);
    collect(&m, c);
    assert_memory_equal(m.values, before.values, sizeof m.values);
    assert_int_equal(step_deep(&m, p, 1, 1), 0);
    collect(&m, c);
    assert_memory_not_equal(m.values, before.values, sizeof m.values);
    ckpt_close(c);
}

static ckpt_tensor record_overflow(ckpt_tape *t, int64_t n, void *user)
{
    const struct ckpt_nn_batch_norm *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, 2});
    return ckpt_mean(t, ckpt_nn_apply_batch_norm(t, m, x, true), 3);
}

/* Only the variance overflows: the normalized values are then 0, and the loss is finite. */
static void check_overflow(int64_t micro)
{
    static const float x[4][2] = {{1e24f, 0}, {-1e24f, 1}, {2e24f, 2}, {-2e24f, 3}};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct ckpt_options o = options();
    struct ckpt_nn nn = CKPT_NN_INIT;
    float loss = NAN, var[2];
    ckpt_program *p;
    o.micro_batch = micro;
    ckpt *c = open_with(&o);
    nn.context = c;
    struct ckpt_nn_batch_norm m = ckpt_nn_batch_norm(&nn, 2, 0.1f, 1e-5f, "bn");
    if (ckpt_compile(c, record_overflow, &m, ckpt_sgd(c, &sgd), 4, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, &loss), CKPT_ENAN);
    if (!strstr(ckpt_error(c), "loss 0, gradient norm") || !strstr(ckpt_error(c), "unbiased_var"))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_param_get(c, m.running_var, CKPT_VALUE, var, 2), 0);
    assert_true(var[0] == 1 && var[1] == 1);
    ckpt_close(c);
}

static void test_failure(void **state)
{
    (void)state;
    check_overflow(4);
    check_overflow(2);
    check_failure(BATCH);
    check_failure(2);
}

/* ---- single buffers -------------------------------------------------------------------------- */

struct simple {
    ckpt_tensor w, count, mean, half;
    int wrong;
};

/* count: incremented in each step; mean: running mean of two halves of x in turn. */
static ckpt_tensor record_simple(ckpt_tape *t, int64_t n, void *user)
{
    const struct simple *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){n, 4});
    ckpt_tensor halves[2];
    ckpt_split(t, x, 1, 2, halves);
    ckpt_update_buffer(t, m->count, ckpt_affine(t, m->count, 1, 1), 1);
    for (int i = 0; i < 2; i++)
        ckpt_update_buffer(t, m->mean,
                           ckpt_reshape(t, ckpt_mean(t, halves[i], 1), 1, (int64_t[]){2}), 0.5f);
    if (m->wrong == 1)
        ckpt_update_buffer(t, m->w, m->w, 1);
    if (m->wrong == 2)
        ckpt_update_buffer(t, m->mean, x, 1);
    if (m->wrong == 3)
        ckpt_update_buffer(t, m->half, m->half, 1);
    if (m->wrong == 4)
        ckpt_update_buffer(t, m->mean, m->mean, 1.5f);
    if (m->wrong == 5)
        ckpt_update_buffer(t, x, x, 1);
    ckpt_output(t, "seen", m->count);
    return ckpt_mean(t, ckpt_mul(t, ckpt_mul(t, x, m->w), x), 3);
}

static ckpt *open_simple(struct simple *m, int64_t micro)
{
    struct ckpt_options o = options();
    o.micro_batch = micro;
    ckpt *c = open_with(&o);
    *m = (struct simple){.wrong = 0};
    m->w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){4}, CKPT_ONES, true);
    m->count = ckpt_param(c, "count", CKPT_F32, 1, (int64_t[]){1}, CKPT_ZEROS, false);
    m->mean = ckpt_param(c, "mean", CKPT_F32, 1, (int64_t[]){2}, CKPT_ZEROS, false);
    m->half = ckpt_param(c, "half", CKPT_BF16, 1, (int64_t[]){2}, CKPT_ZEROS, false);
    return c;
}

static void check_in_turn(int64_t micro)
{
    static const float x[2][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct simple m;
    float count, mean[2], want[2] = {0, 0}, seen[2];
    ckpt_program *p, *q;
    ckpt *c = open_simple(&m, micro);
    if (ckpt_compile(c, record_simple, &m, ckpt_sgd(c, &sgd), 2, &p) ||
        ckpt_compile(c, record_simple, &m, NULL, 2, &q))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_feed(q, "x", x, sizeof x), 0);
    for (int step = 1; step <= 3; step++) {
        assert_int_equal(ckpt_step(p, NULL), 0);
        assert_int_equal(ckpt_step(q, NULL), 0); /* which changes nothing */
        assert_int_equal(ckpt_fetch(p, "seen", seen, micro == 1 ? 8 : 4), 0);
        assert_true(seen[0] == (float)(step - 1));
        assert_int_equal(ckpt_param_get(c, m.count, CKPT_VALUE, &count, 1), 0);
        assert_true(count == (float)step);
        for (int k = 0; k < (micro == 1 ? 2 : 1); k++) /* exact in binary */
            for (int i = 0; i < 4; i++)
                want[i % 2] = (want[i % 2] + (micro == 1 ? x[k][i] : (x[0][i] + x[1][i]) / 2)) / 2;
        assert_int_equal(ckpt_param_get(c, m.mean, CKPT_VALUE, mean, 2), 0);
        assert_memory_equal(mean, want, sizeof mean);
    }
    ckpt_close(c);
}

static void test_in_turn(void **state)
{
    (void)state;
    check_in_turn(2);
    check_in_turn(1);
}

static void test_errors(void **state)
{
    static const char *const words[] = {"'w' is trained", "'mean' is", "'half' is not fp32",
                                        "a momentum of 1.5", "must be a parameter"};
    struct ckpt_sgd sgd = CKPT_SGD_INIT;
    struct simple m;
    ckpt_program *p;
    ckpt *c = open_simple(&m, 2);
    (void)state;
    for (m.wrong = 1; m.wrong <= 5; m.wrong++)
        for (int trains = 0; trains < 2; trains++) {
            assert_true(
                ckpt_compile(c, record_simple, &m, trains ? ckpt_sgd(c, &sgd) : NULL, 2, &p) < 0);
            if (!strstr(ckpt_error(c), words[m.wrong - 1]) ||
                !strstr(ckpt_error(c), "test_batch_norm.c"))
                fail_msg("%d: %s", m.wrong, ckpt_error(c));
        }
    ckpt_close(c);
}

/* Batch norm of x [4, 3], except in one case. */
static ckpt_tensor record_refused(ckpt_tape *t, int64_t n, void *user)
{
    const ckpt_tensor *p = user, w = p[1], three = p[2], two = p[3];
    const int i = p[0].id;
    ckpt_tensor x = ckpt_full(t, 1, CKPT_F32, 2, (int64_t[]){i == 0 ? 1 : 4, 3});
    (void)n;
    if (i == 2)
        return ckpt_batch_norm(t, x, CKPT_NONE, CKPT_NONE, three, CKPT_NONE, 0.1f, 1e-5f);
    if (i == 3)
        return ckpt_batch_norm(t, x, w, w, two, three, 0.1f, 1e-5f);
    if (i == 4)
        return ckpt_batch_norm_apply(t, x, w, w, CKPT_NONE, CKPT_NONE, 1e-5f);
    if (i == 5)
        return ckpt_batch_norm(t, x, w, w, three, three, 0.1f, -1);
    if (i == 6)
        return ckpt_nn_apply_batch_norm(t, NULL, x, true);
    return ckpt_batch_norm(t, x, i == 1 ? two : w, w, three, three, 0.1f, 1e-5f);
}

static void test_refused(void **state)
{
    static const char *const words[] = {"one value per channel",  "weight and bias must be [3]",
                                        "must be given together", "must be fp32 [3]",
                                        "variance are missing",   "eps is -1",
                                        "NULL for its module"};
    struct ckpt_options o = options();
    ckpt_program *p;
    ckpt_tensor of[4] = {CKPT_NONE};
    ckpt *c = open_with(&o);
    (void)state;
    of[1] = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){3}, CKPT_ONES, true);
    of[2] = ckpt_param(c, "three", CKPT_F32, 1, (int64_t[]){3}, CKPT_ONES, false);
    of[3] = ckpt_param(c, "two", CKPT_F32, 1, (int64_t[]){2}, CKPT_ONES, false);
    for (int i = 0; i < 7; i++) {
        of[0].id = i;
        assert_true(ckpt_compile(c, record_refused, of, NULL, 1, &p) < 0);
        if (!strstr(ckpt_error(c), words[i]))
            fail_msg("%d: %s", i, ckpt_error(c));
    }
    ckpt_close(c);
}

/* ---- gradients ------------------------------------------------------------------------------- */

struct norms {
    ckpt_tensor x, w, b, mean, var;
    int kind;
};

static ckpt_tensor record_norms(ckpt_tape *t, int64_t n, void *user)
{
    const struct norms *m = user;
    ckpt_tensor y;
    (void)n;
    if (m->kind == 0)
        y = ckpt_batch_norm(t, m->x, m->w, m->b, m->mean, m->var, 0.1f, 1e-5f);
    else if (m->kind == 1)
        y = ckpt_batch_norm_apply(t, m->x, m->w, m->b, m->mean, m->var, 1e-5f);
    else if (m->kind == 2)
        y = ckpt_instance_norm(t, m->x, m->w, m->b, 1e-5f);
    else
        y = ckpt_batch_norm(t, ckpt_permute(t, m->x, (int[]){1, 0, 2}), CKPT_NONE, CKPT_NONE,
                            CKPT_NONE, CKPT_NONE, 0.1f, 1e-5f);
    return ckpt_mean(t, ckpt_sin(t, ckpt_affine(t, y, 0.7f, 0.3f)), 7);
}

static void test_gradients(void **state)
{
    struct ckpt_gradcheck check = CKPT_GRADCHECK_INIT;
    (void)state;
    check.length = 0.02;
    for (int kind = 0; kind < 4; kind++) {
        struct ckpt_options o = options();
        ckpt *c = open_with(&o);
        struct norms m = {.kind = kind};
        float var[3];
        m.x = ckpt_param(c, "x", CKPT_F32, 3, (int64_t[]){4, 5, 3}, CKPT_NORMAL(1), true);
        if (kind < 3) {
            m.w = ckpt_param(c, "w", CKPT_F32, 1, (int64_t[]){3}, CKPT_NORMAL(1), true);
            m.b = ckpt_param(c, "b", CKPT_F32, 1, (int64_t[]){3}, CKPT_NORMAL(1), true);
        }
        m.mean = ckpt_param(c, "mean", CKPT_F32, 1, (int64_t[]){3}, CKPT_NORMAL(1), false);
        m.var = ckpt_param(c, "var", CKPT_F32, 1, (int64_t[]){3}, CKPT_ONES, false);
        if (ckpt_gradcheck(c, record_norms, &m, &check))
            fail_msg("%d: %s", kind, ckpt_error(c));
        assert_int_equal(ckpt_param_get(c, m.var, CKPT_VALUE, var, 3), 0);
        assert_true(var[0] == 1 && var[1] == 1 && var[2] == 1);
        ckpt_close(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_torch),   cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_auto),    cmocka_unit_test(test_resume),
        cmocka_unit_test(test_failure), cmocka_unit_test(test_in_turn),
        cmocka_unit_test(test_errors),  cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
