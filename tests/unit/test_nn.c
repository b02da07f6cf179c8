/* SPDX-License-Identifier: Apache-2.0 */
/* Modules: names, shapes and initial values of their parameters, recorded ops, and refusals. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_nn.h"

static ckpt *open_context(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;

    o.threads = 1;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

static struct ckpt_nn modules_of(ckpt *c)
{
    struct ckpt_nn nn = CKPT_NN_INIT;

    nn.context = c;
    return nn;
}

/* Checks that a parameter has this name and shape; returns its largest magnitude. */
static float check(ckpt *c, const char *name, int ndim, const int64_t *shape)
{
    struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
    ckpt_tensor w;
    float most = 0;

    if (ckpt_param_find(c, name, &w))
        fail_msg("there is no %s", name);
    assert_int_equal(ckpt_param_info(c, w, &info), 0);
    assert_int_equal(info.desc.ndim, ndim);
    for (int i = 0; i < ndim; i++)
        assert_int_equal(info.desc.shape[i], shape[i]);
    float *x = malloc((size_t)info.numel * sizeof *x);
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, x, info.numel), 0);
    for (int64_t i = 0; i < info.numel; i++)
        most = fmaxf(most, fabsf(x[i]));
    free(x);
    return most;
}

static bool is_near(float most, double bound)
{
    return most <= (float)bound && most > 0.9f * (float)bound;
}

static void test_parameters(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_nn_mlp_spec spec = CKPT_NN_MLP_INIT;
    struct ckpt_init small = CKPT_UNIFORM(0.01f), zeros = CKPT_ZEROS;

    (void)state;
    ckpt_nn_linear(&nn, 16, 64, true, "a.%d", 3);
    assert_true(is_near(check(c, "a.3.weight", 2, (int64_t[]){64, 16}), 0.25));
    assert_true(is_near(check(c, "a.3.bias", 1, (int64_t[]){64}), 0.25));
    ckpt_nn_conv(&nn, 4, 32, 2, (int64_t[]){3, 2}, NULL, true, "b");
    assert_true(is_near(check(c, "b.weight", 4, (int64_t[]){32, 3, 2, 4}), 1 / sqrt(24)));
    ckpt_nn_embedding(&nn, 50, 20, "d");
    float most = check(c, "d.weight", 2, (int64_t[]){50, 20});
    assert_true(most > 2.5f && most < 6);
    ckpt_nn_layer_norm(&nn, 9, 1e-5f, "e");
    assert_true(check(c, "e.weight", 1, (int64_t[]){9}) == 1);
    assert_true(check(c, "e.bias", 1, (int64_t[]){9}) == 0);
    ckpt_nn_rms_norm(&nn, 9, 1e-5f, "f");
    assert_true(check(c, "f.weight", 1, (int64_t[]){9}) == 1);
    nn.weight = &small;
    nn.bias = &zeros;
    spec.width = 16;
    spec.inner = 40;
    spec.gated = true;
    spec.down_weight = &zeros;
    ckpt_nn_mlp(&nn, &spec, "c");
    assert_true(is_near(check(c, "c.gate_proj.weight", 2, (int64_t[]){40, 16}), 0.01));
    assert_true(is_near(check(c, "c.up_proj.weight", 2, (int64_t[]){40, 16}), 0.01));
    assert_true(check(c, "c.down_proj.weight", 2, (int64_t[]){16, 40}) == 0);
    assert_true(check(c, "c.gate_proj.bias", 1, (int64_t[]){40}) == 0);
    assert_int_equal(ckpt_param_count(c), 14);
    ckpt_close(c);
}

/* Shapes and bounds are those of PyTorch 2's Conv1d, Conv2d and ConvTranspose2d. */
static void test_convs(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_conv_spec four = CKPT_CONV_INIT;

    (void)state;
    four.groups = 4;
    ckpt_nn_conv(&nn, 8, 64, 1, (int64_t[]){5}, &four, true, "a");
    assert_true(is_near(check(c, "a.weight", 3, (int64_t[]){64, 5, 2}), 1 / sqrt(10)));
    assert_true(is_near(check(c, "a.bias", 1, (int64_t[]){64}), 1 / sqrt(10)));
    ckpt_nn_conv_transpose(&nn, 64, 12, 2, (int64_t[]){3, 2}, &four, true, "b");
    assert_true(is_near(check(c, "b.weight", 4, (int64_t[]){64, 3, 2, 3}), 1 / sqrt(18)));
    assert_true(check(c, "b.bias", 1, (int64_t[]){12}) <= 1 / sqrtf(18));
    ckpt_nn_conv(&nn, 8, 32, 3, (int64_t[]){3, 1, 2}, NULL, false, "c");
    assert_true(is_near(check(c, "c.weight", 5, (int64_t[]){32, 3, 1, 2, 8}), 1 / sqrt(48)));
    assert_int_equal(ckpt_param_count(c), 5);
    ckpt_close(c);
}

/* ---- what they record ---------------------------------------------------------------------- */

enum { BATCH = 2, WIDTH = 3, INNER = 5 };

static ckpt_tensor record_gated(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, WIDTH});

    ckpt_output(t, "y", ckpt_nn_apply_mlp_add(t, user, x, x));
    return x;
}

static void get(ckpt *c, ckpt_tensor w, float *dst, int64_t n)
{
    assert_int_equal(ckpt_param_get(c, w, CKPT_VALUE, dst, n), 0);
}

static double product(const float *w, const float *x, int n)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += (double)w[i] * x[i];
    return sum;
}

static void test_gated(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_nn_mlp_spec spec = CKPT_NN_MLP_INIT;
    float gate[INNER][WIDTH], up[INNER][WIDTH], down[WIDTH][INNER], y[BATCH][WIDTH];
    const float x[BATCH][WIDTH] = {{1, -2, 3}, {0.5f, 4, -1}};
    ckpt_program *p;

    (void)state;
    spec.width = WIDTH;
    spec.inner = INNER;
    spec.gated = true;
    spec.bias = false;
    spec.activation = CKPT_NN_SILU;
    struct ckpt_nn_mlp m = ckpt_nn_mlp(&nn, &spec, "m");
    get(c, m.gate.weight, gate[0], INNER * WIDTH);
    get(c, m.up.weight, up[0], INNER * WIDTH);
    get(c, m.down.weight, down[0], WIDTH * INNER);
    assert_int_equal(ckpt_compile(c, record_gated, &m, NULL, BATCH, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    for (int b = 0; b < BATCH; b++) {
        float h[INNER];
        for (int i = 0; i < INNER; i++) {
            double g = product(gate[i], x[b], WIDTH);
            h[i] = (float)(g / (1 + exp(-g)) * product(up[i], x[b], WIDTH));
        }
        for (int i = 0; i < WIDTH; i++)
            assert_true(fabs(x[b][i] + product(down[i], h, INNER) - y[b][i]) < 1e-5);
    }
    ckpt_close(c);
}

/* Self attention of grouped heads, causal, against the formula; the names and first values of its
 * parts, and their order in files. */
enum { PLACES = 4, EMBED = 6, QUERIES = 4, GROUPS = 2, HEAD = 2 };

static ckpt_tensor record_attention(ckpt_tape *t, int64_t batch, void *user)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, PLACES, EMBED});

    spec.causal = true;
    ckpt_output(t, "y", ckpt_nn_apply_attention(t, user, x, CKPT_NONE, CKPT_NONE, &spec));
    return x;
}

/* One query of a head: the softmax over keys up to its position. */
static void attend(const float *q, float k[PLACES][GROUPS * HEAD], float v[PLACES][GROUPS * HEAD],
                   int place, int group, double *out)
{
    double p[PLACES], sum = 0;

    for (int j = 0; j <= place; j++)
        sum += p[j] = exp(product(q, &k[j][group * HEAD], HEAD) / sqrt(HEAD));
    for (int d = 0; d < HEAD; d++) {
        out[d] = 0;
        for (int j = 0; j <= place; j++)
            out[d] += p[j] / sum * (double)v[j][group * HEAD + d];
    }
}

static void test_attention(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_nn_attention_spec spec = CKPT_NN_ATTENTION_INIT;
    float wq[QUERIES * HEAD][EMBED], wk[GROUPS * HEAD][EMBED], wv[GROUPS * HEAD][EMBED];
    float wo[EMBED][QUERIES * HEAD], bo[EMBED], x[PLACES][EMBED], y[PLACES][EMBED];
    float q[PLACES][QUERIES * HEAD], k[PLACES][GROUPS * HEAD], v[PLACES][GROUPS * HEAD];
    ckpt_program *p;

    (void)state;
    spec.width = EMBED;
    spec.heads = QUERIES;
    spec.kv_heads = GROUPS;
    spec.head = HEAD;
    spec.qkv_bias = false;
    struct ckpt_nn_attention m = ckpt_nn_attention(&nn, &spec, "self");
    assert_true(check(c, "self.out_proj.weight", 2, (int64_t[]){EMBED, QUERIES * HEAD}) < 0.36f);
    get(c, m.q.weight, wq[0], QUERIES * HEAD * EMBED);
    get(c, m.k.weight, wk[0], GROUPS * HEAD * EMBED);
    get(c, m.v.weight, wv[0], GROUPS * HEAD * EMBED);
    get(c, m.out.weight, wo[0], EMBED * QUERIES * HEAD);
    get(c, m.out.bias, bo, EMBED);
    for (int i = 0; i < PLACES * EMBED; i++)
        x[i / EMBED][i % EMBED] = (float)(i * 7 % 11) / 4 - 1;
    assert_int_equal(ckpt_compile(c, record_attention, &m, NULL, 1, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "y", y, sizeof y), 0);
    for (int i = 0; i < PLACES; i++) {
        for (int d = 0; d < QUERIES * HEAD; d++)
            q[i][d] = (float)product(wq[d], x[i], EMBED);
        for (int d = 0; d < GROUPS * HEAD; d++) {
            k[i][d] = (float)product(wk[d], x[i], EMBED);
            v[i][d] = (float)product(wv[d], x[i], EMBED);
        }
    }
    for (int i = 0; i < PLACES; i++) {
        double heads[QUERIES * HEAD];
        for (int h = 0; h < QUERIES; h++)
            attend(&q[i][h * HEAD], k, v, i, h / (QUERIES / GROUPS), &heads[h * HEAD]);
        for (int o = 0; o < EMBED; o++) {
            double want = bo[o];
            for (int d = 0; d < QUERIES * HEAD; d++)
                want += wo[o][d] * heads[d];
            assert_true(fabs(want - y[i][o]) < 1e-5);
        }
    }
    ckpt_close(c);
}

/* One projection of q, k and v gives the result of three: its rows are their rows in order. */
static void test_joint(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_nn_attention_spec spec = CKPT_NN_ATTENTION_INIT;
    float all[(QUERIES + 2 * GROUPS) * HEAD * EMBED], out[EMBED * QUERIES * HEAD];
    float x[PLACES][EMBED], y[2][PLACES][EMBED];
    ckpt_program *p[2];

    (void)state;
    spec.width = EMBED;
    spec.heads = QUERIES;
    spec.kv_heads = GROUPS;
    spec.head = HEAD;
    spec.qkv_bias = spec.out_bias = false;
    struct ckpt_nn_attention m[2] = {ckpt_nn_attention(&nn, &spec, "apart")};
    spec.qkv_name = "qkv";
    m[1] = ckpt_nn_attention(&nn, &spec, "joint");
    get(c, m[0].q.weight, all, QUERIES * HEAD * EMBED);
    get(c, m[0].k.weight, all + QUERIES * HEAD * EMBED, GROUPS * HEAD * EMBED);
    get(c, m[0].v.weight, all + (QUERIES + GROUPS) * HEAD * EMBED, GROUPS * HEAD * EMBED);
    get(c, m[0].out.weight, out, EMBED * QUERIES * HEAD);
    assert_int_equal(ckpt_param_set(c, m[1].qkv.weight, CKPT_VALUE, all, sizeof all / 4), 0);
    assert_int_equal(ckpt_param_set(c, m[1].out.weight, CKPT_VALUE, out, sizeof out / 4), 0);
    for (int i = 0; i < PLACES * EMBED; i++)
        x[i / EMBED][i % EMBED] = (float)(i * 5 % 13) / 4 - 1;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ckpt_compile(c, record_attention, &m[i], NULL, 1, &p[i]), 0);
        assert_int_equal(ckpt_feed(p[i], "x", x, sizeof x), 0);
        assert_int_equal(ckpt_step(p[i], NULL), 0);
        assert_int_equal(ckpt_fetch(p[i], "y", y[i], sizeof y[i]), 0);
    }
    for (int i = 0; i < PLACES * EMBED; i++)
        assert_true(fabsf((&y[0][0][0])[i] - (&y[1][0][0])[i]) < 1e-6f);
    ckpt_close(c);
}

/* A decoder's layer, with RMS norms, gives what its parts give when applied one by one;
 * so does an encoder's, with layer norms. */
static ckpt_tensor record_layer(ckpt_tape *t, int64_t batch, void *user)
{
    const struct ckpt_nn_transformer_layer *m = user;
    struct ckpt_attention_spec causal = CKPT_ATTENTION_INIT;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, PLACES, EMBED});
    ckpt_tensor context = ckpt_input(t, "context", CKPT_F32, 3, (int64_t[]){batch, 3, 5}), u;
    ckpt_tensor none = CKPT_NONE;

    causal.causal = true;
    context = m->cross.out.weight.id ? context : none;
    ckpt_output(t, "whole", ckpt_nn_apply_transformer_layer(t, m, x, context, none, &causal));
    u = ckpt_nn_apply_norm(t, &m->norm1, x);
    x = ckpt_add(t, x, ckpt_nn_apply_attention(t, &m->attention, u, none, none, &causal));
    if (context.id) {
        u = ckpt_nn_apply_norm(t, &m->cross_norm, x);
        x = ckpt_add(t, x, ckpt_nn_apply_attention(t, &m->cross, u, context, none, NULL));
    }
    u = ckpt_nn_apply_norm(t, &m->norm2, x);
    x = ckpt_add(t, x, ckpt_nn_apply_mlp(t, &m->mlp, u));
    ckpt_output(t, "parts", x);
    return x;
}

/* Values that differ in all parameters, norms included. */
static void set_all(ckpt *c)
{
    float x[EMBED * EMBED + EMBED];

    for (int i = 0; i < ckpt_param_count(c); i++) {
        struct ckpt_param_info info = CKPT_PARAM_INFO_INIT;
        ckpt_tensor w = ckpt_param_at(c, i);
        assert_int_equal(ckpt_param_info(c, w, &info), 0);
        assert_true(info.numel <= (int64_t)(sizeof x / sizeof *x));
        ckpt_fill_normal(2, (uint64_t)i, 1, x, info.numel);
        assert_int_equal(ckpt_param_set(c, w, CKPT_VALUE, x, info.numel), 0);
    }
}

static void check_layer(ckpt *c, struct ckpt_nn_transformer_layer *m)
{
    float x[PLACES][EMBED], context[3][5], whole[PLACES][EMBED], parts[PLACES][EMBED];
    ckpt_program *p;

    ckpt_fill_normal(1, 0, 1, &x[0][0], PLACES * EMBED);
    ckpt_fill_normal(1, 0, 2, &context[0][0], 3 * 5);
    assert_int_equal(ckpt_compile(c, record_layer, m, NULL, 1, &p), 0);
    assert_int_equal(ckpt_feed(p, "x", x, sizeof x), 0);
    assert_int_equal(ckpt_feed(p, "context", context, sizeof context), 0);
    assert_int_equal(ckpt_step(p, NULL), 0);
    assert_int_equal(ckpt_fetch(p, "whole", whole, sizeof whole), 0);
    assert_int_equal(ckpt_fetch(p, "parts", parts, sizeof parts), 0);
    for (int i = 0; i < PLACES * EMBED; i++)
        assert_true(fabsf((&whole[0][0])[i] - (&parts[0][0])[i]) < 1e-4f);
}

static void test_transformer_layer(void **state)
{
    struct ckpt_nn_transformer_layer_spec spec = CKPT_NN_TRANSFORMER_LAYER_INIT;
    struct ckpt_nn_attention_spec self = CKPT_NN_ATTENTION_INIT, cross = CKPT_NN_ATTENTION_INIT;
    struct ckpt_nn_mlp_spec mlp = CKPT_NN_MLP_INIT;
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);

    (void)state;
    self.width = cross.width = mlp.width = EMBED;
    self.heads = cross.heads = 2;
    cross.context = 5;
    mlp.inner = 7;
    spec.attention = &self;
    spec.mlp = &mlp;
    struct ckpt_nn_transformer_layer encoder = ckpt_nn_transformer_layer(&nn, &spec, "e.%d", 1);
    spec.cross = &cross;
    spec.rms = true;
    spec.norm2_name = "last";
    struct ckpt_nn_transformer_layer decoder = ckpt_nn_transformer_layer(&nn, &spec, "d");
    assert_true(check(c, "e.1.norm1.bias", 1, (int64_t[]){EMBED}) == 0);
    assert_true(check(c, "e.1.norm2.weight", 1, (int64_t[]){EMBED}) == 1);
    check(c, "e.1.mlp.up_proj.weight", 2, (int64_t[]){7, EMBED});
    check(c, "d.attention.k_proj.weight", 2, (int64_t[]){EMBED, EMBED});
    check(c, "d.cross.k_proj.weight", 2, (int64_t[]){EMBED, 5});
    check(c, "d.cross_norm.weight", 1, (int64_t[]){EMBED});
    check(c, "d.last.weight", 1, (int64_t[]){EMBED});
    assert_int_equal(ckpt_param_count(c), 16 + 23);
    set_all(c);
    check_layer(c, &encoder);
    check_layer(c, &decoder);
    ckpt_close(c);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static ckpt_tensor record_nothing(ckpt_tape *t, int64_t batch, void *user)
{
    (void)user;
    return ckpt_input(t, "x", CKPT_F32, 1, &batch);
}

/* The error persists until the context is compiled, with this text in its sentence. */
static void check_refused(ckpt *c, int code, const char *text)
{
    ckpt_program *p;

    assert_int_equal(ckpt_compile(c, record_nothing, NULL, NULL, 1, &p), code);
    if (!strstr(ckpt_error(c), text))
        fail_msg("no '%s' in: %s", text, ckpt_error(c));
    ckpt_close(c);
}

/* A parameter that no file could store, or without a defined first value. */
static void test_parameters_refused(void **state)
{
    const struct {
        const char *name;
        struct ckpt_init init;
        const char *sentence;
    } wrong[] = {
        {"__metadata__", CKPT_ZEROS, "safetensors reserves the name"},
        {"w\xff", CKPT_ZEROS, "the name is not UTF-8"},
        {"w", CKPT_NORMAL(NAN), "its first values would not be finite"},
        {"w", CKPT_UNIFORM(INFINITY), "its first values would not be finite"},
        {"w", ckpt_init_of((enum ckpt_init_kind)44, 1.f), "there are no such first values"},
        {"w", ckpt_init_of((enum ckpt_init_kind) - 1, 1.f), "there are no such first values"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        ckpt *c = open_context();
        ckpt_tensor w =
            ckpt_param(c, wrong[i].name, CKPT_F32, 1, (int64_t[]){4}, wrong[i].init, true);
        assert_int_equal(w.id, 0);
        check_refused(c, CKPT_EINVAL, wrong[i].sentence);
    }
}

static void test_refused(void **state)
{
    ckpt *c = open_context();
    struct ckpt_nn nn = modules_of(c);
    struct ckpt_nn_mlp_spec spec = CKPT_NN_MLP_INIT;

    (void)state;
    ckpt_nn_linear(&nn, 2, 2, false, "a");
    ckpt_nn_linear(&nn, 2, 2, false, "a");
    check_refused(c, CKPT_EINVAL, "used twice");
    nn.context = c = open_context();
    ckpt_nn_linear(&nn, 0, 2, false, "a");
    check_refused(c, CKPT_ESHAPE, "a.weight");
    nn.context = c = open_context();
    ckpt_nn_linear(&nn, 2, 2, false, "%0300d", 1);
    check_refused(c, CKPT_EINVAL, "too long");
    nn.context = c = open_context();
    spec.up_name = NULL;
    ckpt_nn_mlp(&nn, &spec, "m");
    check_refused(c, CKPT_EINVAL, "name of a part");
    nn.context = c = open_context();
    ckpt_nn_mlp(&nn, NULL, "m");
    check_refused(c, CKPT_EINVAL, "NULL");
    struct ckpt_nn_attention_spec attention = CKPT_NN_ATTENTION_INIT;
    nn.context = c = open_context();
    ckpt_nn_attention(&nn, &attention, "m");
    check_refused(c, CKPT_EINVAL, "do not match");
    nn.context = c = open_context();
    attention.width = 8;
    attention.heads = 2;
    attention.context = 4;
    attention.qkv_name = "qkv";
    ckpt_nn_attention(&nn, &attention, "m");
    check_refused(c, CKPT_EINVAL, "for self attention");
    nn.context = c = open_context();
    ckpt_nn_conv(&nn, 2, 2, 4, (int64_t[]){1, 1, 1, 1}, NULL, false, "m");
    check_refused(c, CKPT_EINVAL, "one to three");
    struct ckpt_nn_transformer_layer_spec layer = CKPT_NN_TRANSFORMER_LAYER_INIT;
    nn.context = c = open_context();
    ckpt_nn_transformer_layer(&nn, &layer, "m");
    check_refused(c, CKPT_EINVAL, "NULL for its struct ckpt_nn_attention_spec");
    struct ckpt_conv_spec four = CKPT_CONV_INIT;
    four.groups = 4;
    nn.context = c = open_context();
    ckpt_nn_conv(&nn, 8, 6, 1, (int64_t[]){1}, &four, false, "m");
    check_refused(c, CKPT_EINVAL, "groups of a convolution divide");
}

static ckpt_tensor record_wrong_context(ckpt_tape *t, int64_t batch, void *user)
{
    const struct ckpt_nn_transformer_layer *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4}), none = CKPT_NONE;

    return ckpt_nn_apply_transformer_layer(t, m, x, m->cross.out.weight.id ? none : x, none, NULL);
}

/* A layer has a context if, and only if, it has cross attention. */
static void test_context_refused(void **state)
{
    struct ckpt_nn_transformer_layer m = {.norm1.eps = 0};
    ckpt *c = open_context();
    ckpt_program *p;

    (void)state;
    for (int i = 0; i < 2; i++) {
        m.cross.out.weight.id = i;
        assert_int_equal(ckpt_compile(c, record_wrong_context, &m, NULL, 2, &p), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), i ? "needs a context" : "has no context"));
    }
    ckpt_close(c);
}

/* Applies the i-th module, which is NULL. */
static ckpt_tensor record_null(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 2, (int64_t[]){batch, 4}), none = CKPT_NONE;

    switch (*(int *)user) {
    case 0:
        return ckpt_nn_apply_linear(t, NULL, x);
    case 1:
        return ckpt_nn_apply_norm(t, NULL, x);
    case 2:
        return ckpt_nn_apply_embedding(t, NULL, x);
    case 3:
        return ckpt_nn_apply_attention(t, NULL, x, none, none, NULL);
    case 4:
        return ckpt_nn_apply_attention_add(t, NULL, x, none, none, NULL, x);
    case 5:
        return ckpt_nn_attention_out(t, NULL, x, x);
    case 6:
        ckpt_nn_attention_heads(t, NULL, x, x, NULL, NULL, NULL);
        return x;
    case 7:
        return ckpt_nn_apply_mlp(t, NULL, x);
    case 8:
        return ckpt_nn_apply_mlp_add(t, NULL, x, x);
    case 9:
        return ckpt_nn_apply_conv_transpose(t, NULL, x, NULL);
    case 10:
        return ckpt_nn_apply_transformer_layer(t, NULL, x, none, none, NULL);
    default:
        return ckpt_nn_apply_conv(t, NULL, x, NULL);
    }
}

static void test_null(void **state)
{
    struct ckpt_nn nowhere = CKPT_NN_INIT;
    ckpt *c = open_context();
    ckpt_program *p;

    (void)state;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(ckpt_compile(c, record_null, &i, NULL, 2, &p), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), "NULL for its module"));
    }
    for (int i = 0; i < 2; i++) {
        const struct ckpt_nn *nn = i ? &nowhere : NULL;
        assert_int_equal(ckpt_nn_linear(nn, 2, 2, true, "m").weight.id, 0);
        assert_int_equal(ckpt_nn_layer_norm(nn, 2, 0, "m").weight.id, 0);
        assert_int_equal(ckpt_nn_rms_norm(nn, 2, 0, "m").weight.id, 0);
        assert_int_equal(ckpt_nn_embedding(nn, 2, 2, "m").weight.id, 0);
        assert_int_equal(ckpt_nn_attention(nn, NULL, "m").out.weight.id, 0);
        assert_int_equal(ckpt_nn_mlp(nn, NULL, "m").up.weight.id, 0);
        assert_int_equal(ckpt_nn_transformer_layer(nn, NULL, "m").norm1.weight.id, 0);
        assert_int_equal(ckpt_nn_conv(nn, 2, 2, 2, NULL, NULL, true, "m").weight.id, 0);
    }
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_convs),
        cmocka_unit_test(test_gated),
        cmocka_unit_test(test_attention),
        cmocka_unit_test(test_joint),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_parameters_refused),
        cmocka_unit_test(test_transformer_layer),
        cmocka_unit_test(test_context_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
