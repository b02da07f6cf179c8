/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Optimizers against their formulas in double: every kind, fp32 and bf16, over several steps, each
 * from the gradients that the library computed; groups, and messages about wrong settings.  "make
 * check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "optimizer_kinds.h"
#include "plan/one_search.h"

enum {
    STEPS = 7,
    IN = KINDS_NARROW,
    HIDDEN = KINDS_WIDE,
    BATCH = 8,
    PARAMS = 4,
    MOST = KINDS_MOST
};

/* ---- a network of a wide and a tall matrix and two vectors -------------------------------------
 */

struct net {
    enum ckpt_dtype dtype;
    ckpt_tensor param[PARAMS];
};

static const char *const names[PARAMS] = {"up.weight", "up.bias", "down.weight", "down.bias"};
static const int64_t shapes[PARAMS][2] = {{HIDDEN, IN}, {HIDDEN, 0}, {IN, HIDDEN}, {IN, 0}};

static int64_t rows_of(int i)
{
    return shapes[i][0];
}

static int64_t cols_of(int i)
{
    return shapes[i][1] ? shapes[i][1] : 1;
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, m->dtype), m->param[0], m->param[1]);
    ckpt_tensor y = ckpt_linear(t, ckpt_gelu_tanh(t, h), m->param[2], m->param[3]);
    for (int i = 0; i < PARAMS; i++)
        ckpt_output_gradient(t, names[i], m->param[i]);
    return ckpt_mse(t, y, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

static void open_net(struct net *m, ckpt **c)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.verify = true;
    if (ckpt_open(c, &o))
        fail_msg("%s", ckpt_error(NULL));
    for (int i = 0; i < PARAMS; i++)
        m->param[i] = ckpt_param(*c, names[i], m->dtype, shapes[i][1] ? 2 : 1, shapes[i],
                                 CKPT_UNIFORM(0.5f), true);
}

static void feed(ckpt_program *p, int step)
{
    float x[BATCH * IN];
    ckpt_fill_normal(3, (uint64_t)step, 1, x, BATCH * IN);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
}

/* ---- comparison with the formulas ---------------------------------------------------------- */

static void get(ckpt *c, ckpt_tensor x, enum ckpt_slot slot, double *to, int64_t n)
{
    float values[MOST];
    if (ckpt_param_get(c, x, slot, values, n))
        fail_msg("%s", ckpt_error(c));
    for (int64_t i = 0; i < n; i++)
        to[i] = (double)values[i];
}

/* Gradients as fetched, clipped by their global norm. */
static void fetch_gradients(ckpt_program *p, double g[PARAMS][MOST])
{
    double sum = 0;
    for (int i = 0; i < PARAMS; i++) {
        float values[MOST];
        int64_t n = rows_of(i) * cols_of(i);
        assert_int_equal(ckpt_fetch(p, names[i], values, n * 4), 0);
        for (int64_t k = 0; k < n; k++) {
            g[i][k] = (double)values[k];
            sum += g[i][k] * g[i][k];
        }
    }
    double clip = fmin(1, 0.4 / (sqrt(sum) + 1e-6));
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < MOST; k++)
            g[i][k] *= clip;
}

/* The difference relative to the root mean square of all changes since the beginning. */
static double difference(const double *a, const double *b, const double *before, int64_t n)
{
    double change[MOST], error[MOST];
    for (int64_t i = 0; i < n; i++) {
        change[i] = b[i] - before[i];
        error[i] = a[i] - b[i];
    }
    return kinds_rms(error, n) / kinds_rms(change, n);
}

static void check_reference(const struct optimizer_kind *k, enum ckpt_dtype dtype)
{
    static struct reference r[PARAMS];
    static double g[PARAMS][MOST], before[PARAMS][MOST], w[MOST];
    struct net m = {.dtype = dtype};
    ckpt *c;
    ckpt_program *p;
    open_net(&m, &c);
    if (ckpt_compile(c, record, &m, k->make(c, NULL), BATCH, &p))
        fail_msg("%s: %s", k->name, ckpt_error(c));
    for (int i = 0; i < PARAMS; i++) {
        r[i] = (struct reference){.rows = rows_of(i), .cols = cols_of(i)};
        r[i].n = r[i].rows * r[i].cols;
        get(c, m.param[i], CKPT_VALUE, r[i].w, r[i].n);
        memcpy(r[i].ema, r[i].w, sizeof r[i].ema);
        memcpy(before[i], r[i].w, sizeof r[i].w);
    }
    for (int s = 0; s < STEPS; s++) {
        const struct reference_step step = {.lr = s < 4 ? 0.02 : 0.01, .k = s + 1};
        assert_int_equal(ckpt_set_lr(p, (float)step.lr), 0);
        feed(p, s);
        if (ckpt_step(p, NULL))
            fail_msg("%s: %s", k->name, ckpt_error(c));
        fetch_gradients(p, g);
        for (int i = 0; i < PARAMS; i++) {
            k->update(&r[i], g[i], &step);
            for (int64_t e = 0; e < r[i].n; e++)
                r[i].ema[e] = 0.9 * r[i].ema[e] + 0.1 * r[i].w[e];
        }
    }
    for (int i = 0; i < PARAMS; i++) {
        get(c, m.param[i], CKPT_VALUE, w, r[i].n);
        double values = difference(w, r[i].w, before[i], r[i].n);
        get(c, m.param[i], CKPT_EMA, w, r[i].n);
        double ema = difference(w, r[i].ema, before[i], r[i].n);
        print_message("%-10s %s %-12s %.1e %.1e\n", k->name, dtype == CKPT_F32 ? "fp32" : "bf16",
                      names[i], values, ema);
        assert_true(values < k->tolerance && ema < 10 * k->tolerance);
    }
    ckpt_close(c);
}

static void test_references(void **state)
{
    (void)state;
    for (int i = 0; i < OPTIMIZER_KINDS; i++) {
        check_reference(&optimizer_kinds[i], CKPT_F32);
        check_reference(&optimizer_kinds[i], CKPT_BF16);
    }
}

static ckpt_optimizer *make_kind(ckpt *c, const char *name)
{
    int i = 0;
    while (strcmp(optimizer_kinds[i].name, name))
        i++;
    return optimizer_kinds[i].make(c, NULL);
}

/* ---- groups ------------------------------------------------------------------------------------
 */

/* One step of the network with groups; returns each parameter's value after and before. */
static void step_once(struct net *m, void (*group)(ckpt_optimizer *o), double after[PARAMS][MOST],
                      double before[PARAMS][MOST], double g[PARAMS][MOST])
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    ckpt *c;
    ckpt_program *p;
    o.lr = 0.1f, o.weight_decay = 0.5f, o.clip_norm = 0.4f, o.clip_value = 0.05f;
    open_net(m, &c);
    ckpt_optimizer *sgd_of_net = ckpt_sgd(c, &o);
    group(sgd_of_net);
    if (ckpt_compile(c, record, m, sgd_of_net, BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < PARAMS; i++)
        get(c, m->param[i], CKPT_VALUE, before[i], rows_of(i) * cols_of(i));
    feed(p, 0);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
    for (int i = 0; i < PARAMS; i++)
        get(c, m->param[i], CKPT_VALUE, after[i], rows_of(i) * cols_of(i));
    fetch_gradients(p, g);
    ckpt_close(c);
}

static void no_decay_for_vectors(ckpt_optimizer *o)
{
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    g.max_ndim = 1, g.weight_decay = 0;
    assert_int_equal(ckpt_optimizer_group(o, "*", &g), 0);
    g = (struct ckpt_optimizer_group)CKPT_OPTIMIZER_GROUP_INIT;
    g.lr_factor = 9; /* the next has all that this one had */
    assert_int_equal(ckpt_optimizer_group(o, "do*n.w*", &g), 0);
    g.lr_factor = 0.25f;
    assert_int_equal(ckpt_optimizer_group(o, "down.weight", &g), 0);
}

static void test_groups(void **state)
{
    static double after[PARAMS][MOST], before[PARAMS][MOST], g[PARAMS][MOST];
    const double factors[PARAMS] = {1, 1, 0.25, 1}, decay[PARAMS] = {0.5, 0, 0.5, 0};
    struct net m = {.dtype = CKPT_F32};
    (void)state;
    step_once(&m, no_decay_for_vectors, after, before, g);
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < rows_of(i) * cols_of(i); k++) {
            double x = fmax(-0.05, fmin(0.05, g[i][k])) + decay[i] * before[i][k];
            assert_true(fabs(after[i][k] - (before[i][k] - 0.1 * factors[i] * x)) < 1e-6);
        }
}

static ckpt_tensor record_three(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, m->dtype), m->param[0], m->param[1]);
    ckpt_tensor y = ckpt_linear(t, ckpt_gelu_tanh(t, h), m->param[2], m->param[3]);
    for (int i = 1; i < PARAMS; i++)
        ckpt_output_gradient(t, names[i], m->param[i]);
    return ckpt_mse(t, y, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

/* A frozen parameter keeps its bits and has no state; an unclipped one uses the full gradient. */
static void check_frozen(enum ckpt_dtype dtype)
{
    struct net m = {.dtype = dtype};
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    static double before[MOST], after[MOST];
    char path[64];
    ckpt *c;
    ckpt_program *p;
    open_net(&m, &c);
    o.ema_decay = 0.9f;
    ckpt_optimizer *a = ckpt_adamw(c, &o);
    g.frozen = true;
    assert_int_equal(ckpt_optimizer_group(a, "up.weight", &g), 0);
    if (ckpt_compile(c, record_three, &m, a, BATCH, &p))
        fail_msg("%s", ckpt_error(c));
    get(c, m.param[0], CKPT_VALUE, before, MOST);
    feed(p, 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    get(c, m.param[0], CKPT_VALUE, after, MOST);
    assert_memory_equal(before, after, sizeof before);
    float none[MOST];
    assert_int_equal(ckpt_param_get(c, m.param[0], CKPT_EXP_AVG, none, MOST), CKPT_ENAME);
    assert_int_equal(ckpt_compile(c, record, &m, a, BATCH, &p), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "'up.weight': only a trainable parameter"));
    assert_int_equal(ckpt_optimizer_group(a, "*", &g), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "add groups before"));
    small_path(path, sizeof path, "ema");
    assert_int_equal(ckpt_save_params(c, path, CKPT_EMA), 0);
    unlink(path);
    ckpt_close(c);
}

static void test_frozen(void **state)
{
    (void)state;
    check_frozen(CKPT_F32);
    check_frozen(CKPT_BF16);
}

/* ---- two programs with their own optimizers, as in a GAN ----------------------------------- */

static ckpt_tensor record_alone(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, IN});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, m->dtype), m->param[0], m->param[1]);
    ckpt_tensor y = ckpt_linear(t, ckpt_gelu_tanh(t, h), m->param[2], m->param[3]);
    return ckpt_mse(t, y, ckpt_affine(t, x, -1.f, 0.5f), CKPT_NONE);
}

static ckpt_optimizer *freezing(ckpt *c, const char *pattern)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    o.lr = 0.01f;
    g.frozen = true;
    ckpt_optimizer *a = ckpt_adamw(c, &o);
    ckpt_optimizer_group(a, pattern, &g);
    return a;
}

static void open_two(struct net *m, ckpt **c, ckpt_program *p[2])
{
    open_net(m, c);
    for (int i = 0; i < 2; i++)
        if (ckpt_compile(*c, record_alone, m, freezing(*c, i ? "up.*" : "down.*"), BATCH, &p[i]))
            fail_msg("%s", ckpt_error(*c));
}

static void step_program(ckpt *c, ckpt_program *p, int step)
{
    feed(p, step);
    if (ckpt_step(p, NULL))
        fail_msg("%s", ckpt_error(c));
}

/* AdamW's first update moves by the learning rate along the gradient's sign, whatever the other
 * program has done.  Both step counts continue from a state. */
static void test_two_programs(void **state)
{
    static double before[2][MOST], after[2][MOST], resumed[MOST];
    struct net m = {.dtype = CKPT_F32};
    char path[64];
    ckpt *c;
    ckpt_program *p[2];
    (void)state;
    small_path(path, sizeof path, "two");
    open_two(&m, &c, p);
    for (int i = 0; i < 3; i++)
        step_program(c, p[0], i);
    for (int i = 0; i < 2; i++)
        get(c, m.param[2 * i], CKPT_VALUE, before[i], MOST);
    step_program(c, p[1], 3);
    for (int i = 0; i < 2; i++)
        get(c, m.param[2 * i], CKPT_VALUE, after[i], MOST);
    assert_memory_equal(before[0], after[0], sizeof *before);
    for (int i = 0; i < MOST; i++)
        assert_true(fabs(fabs(after[1][i] - before[1][i]) - 0.01) < 1e-4);
    if (ckpt_save_state(c, path))
        fail_msg("%s", ckpt_error(c));
    step_program(c, p[1], 4);
    get(c, m.param[2], CKPT_VALUE, after[1], MOST);
    ckpt_close(c);
    open_two(&m, &c, p);
    if (ckpt_load_state(c, path))
        fail_msg("%s", ckpt_error(c));
    step_program(c, p[1], 4);
    get(c, m.param[2], CKPT_VALUE, resumed, MOST);
    assert_memory_equal(resumed, after[1], sizeof resumed);
    ckpt_close(c);
    unlink(path);
}

/* Two programs that train the same parameter need one kind of state for it. */
static void test_two_kinds(void **state)
{
    struct net m = {.dtype = CKPT_F32};
    ckpt *c;
    ckpt_program *p[2];
    (void)state;
    open_net(&m, &c);
    assert_int_equal(ckpt_compile(c, record, &m, make_kind(c, "adamw"), BATCH, &p[0]), 0);
    assert_int_equal(ckpt_compile(c, record, &m, make_kind(c, "lion"), BATCH, &p[1]), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "trained by lion here and by adamw"));
    ckpt_close(c);
}

/* The weight of the moving average is 1 - min(0.9, (1 + k) / (10 + k)). */
static void test_ema_warmup(void **state)
{
    struct net m = {.dtype = CKPT_F32};
    struct ckpt_lion o = CKPT_LION_INIT;
    static double w[MOST], ema[MOST], want[MOST];
    ckpt *c;
    ckpt_program *p;
    (void)state;
    o.ema_decay = 0.9f, o.ema_warmup = true, o.lr = 0.1f;
    open_net(&m, &c);
    assert_int_equal(ckpt_compile(c, record, &m, ckpt_lion(c, &o), BATCH, &p), 0);
    get(c, m.param[0], CKPT_VALUE, want, MOST);
    for (int s = 0; s < 4; s++) {
        double d = (1. + s) / (10. + s);
        feed(p, s);
        assert_int_equal(ckpt_step(p, NULL), 0);
        get(c, m.param[0], CKPT_VALUE, w, MOST);
        for (int i = 0; i < MOST; i++)
            want[i] = d * want[i] + (1 - d) * w[i];
    }
    get(c, m.param[0], CKPT_EMA, ema, MOST);
    for (int i = 0; i < MOST; i++)
        assert_true(fabs(ema[i] - want[i]) < 1e-6);
    ckpt_close(c);
}

/* ---- sentences ---------------------------------------------------------------------------------
 */

/* Checks the error message of compiling with an optimizer. */
static void expect_sentence(ckpt_optimizer *(*make)(ckpt *c), const char *part)
{
    struct net m = {.dtype = CKPT_F32};
    ckpt *c;
    ckpt_program *p;
    open_net(&m, &c);
    int rc = ckpt_compile(c, record, &m, make(c), BATCH, &p);
    if (rc != CKPT_EINVAL || !strstr(ckpt_error(c), part))
        fail_msg("%d, %s; must say %s", rc, ckpt_error(c), part);
    ckpt_close(c);
}

#define BAD(name, kind, init, set)                                                                 \
    static ckpt_optimizer *name(ckpt *c)                                                           \
    {                                                                                              \
        struct ckpt_##kind o = init;                                                               \
        set;                                                                                       \
        return ckpt_##kind(c, &o);                                                                 \
    }
BAD(bad_momentum, sgd, CKPT_SGD_INIT, o.momentum = 1)
BAD(bad_dampening, sgd, CKPT_SGD_INIT, o.dampening = -1)
BAD(bad_nesterov, sgd, CKPT_SGD_INIT, o.nesterov = true)
BAD(bad_beta, lion, CKPT_LION_INIT, o.beta2 = NAN)
BAD(bad_lr, lion, CKPT_LION_INIT, o.lr = -1)
BAD(bad_value, sgd, CKPT_SGD_INIT, o.clip_value = -1)
BAD(bad_eps, adafactor, CKPT_ADAFACTOR_INIT, o.eps1 = 0)
BAD(bad_steps, muon, CKPT_MUON_INIT, o.ns_steps = 0)
BAD(bad_axes, muon, CKPT_MUON_INIT, (void)o)

static ckpt_optimizer *with_group(ckpt *c, const char *pattern,
                                  const struct ckpt_optimizer_group *g)
{
    struct ckpt_adamw o = CKPT_ADAMW_INIT;
    ckpt_optimizer *a = ckpt_adamw(c, &o);
    ckpt_optimizer_group(a, pattern, g);
    return a;
}

#define BAD_GROUP(name, pattern, set)                                                              \
    static ckpt_optimizer *name(ckpt *c)                                                           \
    {                                                                                              \
        struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;                                 \
        set;                                                                                       \
        return with_group(c, pattern, &g);                                                         \
    }
BAD_GROUP(no_match, "*.bia", (void)g)
BAD_GROUP(no_axes, "*.bias", g.min_ndim = 2)
BAD_GROUP(no_pattern, "", (void)g)
BAD_GROUP(bad_factor, "*", g.lr_factor = INFINITY)
BAD_GROUP(bad_range, "*", g.min_ndim = 3; g.max_ndim = 2)

static ckpt_optimizer *clips_twice(ckpt *c)
{
    struct ckpt_sgd o = CKPT_SGD_INIT;
    struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
    o.clip_norm = 1;
    g.optimizer = ckpt_sgd(c, &o);
    return with_group(c, "*", &g);
}

static void test_sentences(void **state)
{
    (void)state;
    expect_sentence(bad_momentum, "sgd: momentum is 1");
    expect_sentence(bad_dampening, "sgd: dampening is -1");
    expect_sentence(bad_nesterov, "sgd: nesterov needs a momentum");
    expect_sentence(bad_beta, "lion: beta1 is 0.9 and beta2 nan");
    expect_sentence(bad_lr, "lion: lr is -1");
    expect_sentence(bad_value, "clip_value -1");
    expect_sentence(bad_eps, "adafactor: beta2_decay");
    expect_sentence(bad_steps, "muon: ns_steps is 0");
    expect_sentence(bad_axes, "muon: 'up.bias' has 1 axes and is no matrix");
    expect_sentence(no_match, "a name like '*.bia', which is group 1");
    expect_sentence(no_axes, "no trained parameter of 2 to 8 axes");
    expect_sentence(no_pattern, "it needs a pattern");
    expect_sentence(bad_factor, "lr_factor must be finite");
    expect_sentence(bad_range, "min_ndim must be");
    expect_sentence(clips_twice, "clipping, EMA and grad_dtype are set by the first");
}

/* An optimizer refuses the state of another kind. */
static void test_other_state(void **state)
{
    struct net m = {.dtype = CKPT_F32};
    char path[64];
    ckpt *c;
    ckpt_program *p;
    (void)state;
    small_path(path, sizeof path, "lion");
    open_net(&m, &c);
    assert_int_equal(ckpt_compile(c, record, &m, make_kind(c, "lion"), BATCH, &p), 0);
    assert_int_equal(ckpt_save_state(c, path), 0);
    ckpt_close(c);
    open_net(&m, &c);
    assert_int_equal(ckpt_compile(c, record, &m, make_kind(c, "momentum"), BATCH, &p), 0);
    assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
    assert_non_null(strstr(ckpt_error(c), "is of another run"));
    ckpt_close(c);
    unlink(path);
}

static ckpt_optimizer *make_grouped(ckpt *c, bool grouped)
{
    struct ckpt_optimizer_group slower = CKPT_OPTIMIZER_GROUP_INIT;
    struct ckpt_adamw settings = CKPT_ADAMW_INIT;
    ckpt_optimizer *o = ckpt_adamw(c, &settings);
    slower.lr_factor = 0.5f;
    if (grouped)
        assert_int_equal(ckpt_optimizer_group(o, "*", &slower), 0);
    return o;
}

/* A group that the other run has not is another optimizer, whichever run has it. */
static void test_state_of_groups(void **state)
{
    struct net m = {.dtype = CKPT_F32};
    char path[64];
    ckpt *c;
    ckpt_program *p;
    (void)state;
    small_path(path, sizeof path, "groups");
    for (int grouped = 0; grouped < 2; grouped++) {
        open_net(&m, &c);
        assert_int_equal(ckpt_compile(c, record, &m, make_grouped(c, grouped), BATCH, &p), 0);
        assert_int_equal(ckpt_save_state(c, path), 0);
        assert_int_equal(ckpt_load_state(c, path), 0);
        ckpt_close(c);
        open_net(&m, &c);
        assert_int_equal(ckpt_compile(c, record, &m, make_grouped(c, !grouped), BATCH, &p), 0);
        assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), grouped ? "this run has plain adamw"
                                                      : "of program 1 plain adamw, this run has"));
        ckpt_close(c);
    }
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_references),      cmocka_unit_test(test_groups),
        cmocka_unit_test(test_frozen),          cmocka_unit_test(test_ema_warmup),
        cmocka_unit_test(test_two_programs),    cmocka_unit_test(test_two_kinds),
        cmocka_unit_test(test_sentences),       cmocka_unit_test(test_other_state),
        cmocka_unit_test(test_state_of_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
