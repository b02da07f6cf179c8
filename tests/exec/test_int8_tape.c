/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --activations 8bit on the tape: which storages have codes and which ops read them, which values
 * stay exact, the error of single ops, 8-bit products beside it, gradients of gradients.
 * test_int8_steps tests whole steps.  "make check-gpu" runs it on the GPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/int8.h"
#include "exec/program.h"
#include "ops.h"
#include "modes.h"

enum { WIDTH = 128, ROWS = 32 };

static ckpt *open_mode(const char *activations, const char *matmul)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.activations = activations;
    o.matmul = matmul;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
}

/* ---- which storages -------------------------------------------------------------------------- */

/* A net with one layer before and after a middle part, which the test varies. */
struct net {
    ckpt_tensor w[4], norm;
    enum ckpt_dtype dtype;
    int64_t rows;
    bool gradients; /* of w0 and w1 are outputs */
    ckpt_tensor (*middle)(ckpt_tape *t, const struct net *n, ckpt_tensor x);
};

static void make_net(struct net *n, ckpt *c)
{
    const int64_t square[] = {WIDTH, WIDTH}, one = WIDTH;
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        n->w[i] = ckpt_param(c, name, n->dtype, 2, square, CKPT_XAVIER, true);
    }
    n->norm = ckpt_param(c, "norm", n->dtype, 1, &one, CKPT_ONES, true);
}

/* The input is fed in the model's dtype and the loss reads the result unchanged: neither is
 * compressed. */
static ckpt_tensor record_net(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", n->dtype, 3, (int64_t[]){batch, n->rows, WIDTH});
    ckpt_tensor y = n->middle(t, n, x);
    if (n->gradients) {
        ckpt_output_gradient(t, "dw0", n->w[0]);
        ckpt_output_gradient(t, "dw1", n->w[1]);
    }
    return ckpt_mse(t, y, ckpt_stop_gradient(t, x), CKPT_NONE);
}

static ckpt_program *compile_net(struct net *n, ckpt *c, bool trains)
{
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt_program *p;
    make_net(n, c);
    if (ckpt_compile(c, record_net, n, trains ? ckpt_adamw(c, &a) : NULL, 2, &p))
        fail_msg("%s", ckpt_error(c));
    return p;
}

static int count(const ckpt_tape *t, const struct ckpt_op_def *def)
{
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        n += t->ops.data[i].def == def;
    return n;
}

static int32_t storage_of(const ckpt_tape *t, int32_t x)
{
    return x > 0 ? t->tensors.data[x].storage : -1;
}

/* Whether an op after i, outside the forward pass, reads a storage. */
static bool is_read_behind(const ckpt_tape *t, int32_t i, int32_t storage)
{
    for (; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_in && !(o->def->flags & CKPT_OP_VIEW); k++)
            if (o->phase != PHASE_FORWARD && storage_of(t, op_in(t, o, k)) == storage)
                return true;
    }
    return false;
}

/* Codes are made right after their tensor, and the backward pass reads only the codes.  Copies are
 * made in the backward pass, and tensors know their ops. */
static void check_tape(const ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        for (int k = 0; k < o->n_out; k++)
            assert_true(op_out(t, o, k) <= 0 || t->tensors.data[op_out(t, o, k)].op == i);
        if (o->def == &op_from_int8)
            assert_int_equal(o->phase, PHASE_BACKWARD);
        if (o->def != &op_to_int8)
            continue;
        const int32_t s = storage_of(t, op_in(t, o, 0)), codes = storage_of(t, op_out(t, o, 0));
        assert_int_equal(o->phase, PHASE_FORWARD);
        assert_false(is_read_behind(t, 0, s));
        assert_true(is_read_behind(t, i, codes));
        assert_int_equal(t->storages.data[codes].bytes,
                         4 * int8_words(t->storages.data[s].bytes / 2));
    }
}

/* Ops of the model that the backward pass recomputes. */
static int count_again(const ckpt_tape *t)
{
    int32_t last = 0;
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].phase == PHASE_FORWARD && t->ops.data[i].def != &op_to_int8 &&
            t->ops.data[i].def != &op_to_fp8_largest)
            last = t->ops.data[i].number > last ? t->ops.data[i].number : last;
    for (int32_t i = 0; i < t->n_ops; i++)
        n += t->ops.data[i].phase == PHASE_BACKWARD && t->ops.data[i].number <= last &&
             !(t->ops.data[i].def->flags & CKPT_OP_VIEW);
    return n;
}

/* Checks the numbers of codes, of decoded copies and of recomputed results of a net. */
static void expect_codes(struct net n, const char *activations, bool trains, int codes, int copies,
                         int again)
{
    ckpt *c = open_mode(activations, NULL);
    ckpt_program *p = compile_net(&n, c, trains);
    check_tape(p->tape);
    assert_int_equal(count(p->tape, &op_to_int8), codes);
    assert_int_equal(count(p->tape, &op_from_int8), copies);
    assert_int_equal(count_again(p->tape), again);
    ckpt_close(c);
}

static ckpt_tensor layer(ckpt_tape *t, const struct net *n, int i, ckpt_tensor x)
{
    return ckpt_linear(t, x, n->w[i], CKPT_NONE);
}

/* GELU's gradient reads the first layer's result; the second layer's input is recomputed from it.
 */
static ckpt_tensor with_gelu(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    return layer(t, n, 1, ckpt_gelu_tanh(t, layer(t, n, 0, x)));
}

/* Two layers and a norm read one tensor, through different views. */
static ckpt_tensor with_many_readers(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor h = layer(t, n, 0, x);
    ckpt_tensor flat = ckpt_reshape(t, h, 2, (int64_t[]){2 * n->rows, WIDTH});
    ckpt_tensor a = layer(t, n, 1, h), b = layer(t, n, 2, flat);
    b = ckpt_reshape(t, b, 3, (int64_t[]){2, n->rows, WIDTH});
    return ckpt_add(t, ckpt_add(t, a, b), ckpt_rms_norm(t, h, n->norm, 1e-6f));
}

/* The backward pass reads only the input, and operands of attention. */
static ckpt_tensor with_attention(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor q[3];
    for (int i = 0; i < 3; i++)
        q[i] = ckpt_reshape(t, layer(t, n, i, x), 4, (int64_t[]){2, n->rows, 4, WIDTH / 4});
    ckpt_tensor o = ckpt_attention(t, q[0], q[1], q[2], CKPT_NONE, NULL);
    return layer(t, n, 3, ckpt_reshape(t, o, 3, (int64_t[]){2, n->rows, WIDTH}));
}

/* Signs, masks and steep functions of layer results. */
static ckpt_tensor with_exact(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor h = ckpt_exp(t, ckpt_clamp(t, layer(t, n, 0, x), -4.f, 4.f));
    h = ckpt_add(t, h, ckpt_softmax(t, layer(t, n, 1, x), 2));
    h = ckpt_add(t, h, ckpt_sqrt(t, ckpt_affine(t, ckpt_abs(t, layer(t, n, 2, x)), 1.f, 1.f)));
    return ckpt_add(t, h, ckpt_relu(t, layer(t, n, 3, x)));
}

/* A chain with dropout, whose mask is drawn again.  It is not recomputed from recomputed tensors,
 * such as the last norm's result. */
static ckpt_tensor with_chain(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor h = layer(t, n, 0, x);
    ckpt_tensor y = layer(t, n, 1, ckpt_dropout(t, ckpt_silu(t, ckpt_mul(t, h, n->norm)), 0.5f));
    y = ckpt_rms_norm(t, ckpt_rms_norm(t, y, n->norm, 1e-6f), n->norm, 1e-6f);
    return layer(t, n, 2, y);
}

/* A norm shifted by small rows of a large tensor. */
static ckpt_tensor with_rows(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor h = layer(t, n, 0, x), row = layer(t, n, 1, x);
    ckpt_tensor shift = ckpt_slice(t, row, 1, 0, 1), scale = ckpt_slice(t, row, 1, 1, 2);
    return layer(t, n, 2, ckpt_layer_norm_modulate(t, h, shift, scale, 1e-6f));
}

/* A gated MLP: its product is recomputed from both parts. */
static ckpt_tensor with_gate(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor gate = layer(t, n, 0, x), up = layer(t, n, 1, x);
    return layer(t, n, 2, ckpt_mul(t, ckpt_silu(t, gate), up));
}

/* Parts that are written into one storage, of which a product reads the whole. */
static ckpt_tensor with_parts(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    ckpt_tensor part[2] = {layer(t, n, 0, x), layer(t, n, 1, x)};
    ckpt_tensor both = ckpt_concat(t, 1, 2, part);
    return ckpt_slice(t, layer(t, n, 2, both), 1, 0, n->rows);
}

static void test_storages(void **state)
{
    struct net n = {.dtype = CKPT_BF16, .rows = ROWS, .middle = with_gelu};
    (void)state;
    expect_codes(n, NULL, true, 0, 0, 0);
    expect_codes(n, "", true, 0, 0, 0);
    expect_codes(n, "bf16", true, 0, 0, 0);
    expect_codes(n, "8bit", true, 1, 1, 1);
    expect_codes(n, "8bit", false, 0, 0, 0);
    n.rows = ROWS - 1; /* too small */
    expect_codes(n, "8bit", true, 0, 0, 0);
    n.rows = 1;
    expect_codes(n, "8bit", true, 0, 0, 0);
    n.rows = ROWS + 1; /* no whole block */
    expect_codes(n, "8bit", true, 1, 1, 1);
    n = (struct net){.dtype = CKPT_BF16, .rows = ROWS, .middle = with_many_readers};
    expect_codes(n, "8bit", true, 1, 1, 0);
    n.middle = with_attention;
    expect_codes(n, "8bit", true, 0, 0, 0);
    n.middle = with_exact;
    expect_codes(n, "8bit", true, 0, 0, 0);
    n.middle = with_chain;
    expect_codes(n, "8bit", true, 3, 3, 2);
    n.middle = with_rows;
    expect_codes(n, "8bit", true, 1, 1, 1);
    n.middle = with_gate;
    expect_codes(n, "8bit", true, 2, 2, 1);
    n.middle = with_parts;
    expect_codes(n, "8bit", true, 1, 1, 0);
}

static void test_option(void **state)
{
    (void)state;
    modes_expect_refused("--activations", "4bit",
                         "--activations 4bit: there are 'bf16' and '8bit'");
}

/* ---- what stays exact ------------------------------------------------------------------------ */

/* Returns the loss of two steps, and the weights after them. */
static void run_net(struct net n, const char *activations, const char *matmul, float *loss,
                    float *weights)
{
    const int64_t size = 2 * n.rows * WIDTH, bytes = size * ckpt_dtype_size(n.dtype);
    float *x = malloc((size_t)size * sizeof *x);
    void *fed = malloc((size_t)bytes);
    ckpt *c = open_mode(activations, matmul);
    ckpt_program *p = compile_net(&n, c, true);
    for (int s = 0; s < 2; s++) {
        ckpt_fill_normal(3, (uint64_t)s, 1, x, size);
        if (n.dtype == CKPT_BF16)
            ckpt_to_bf16(x, fed, size);
        else
            memcpy(fed, x, (size_t)bytes);
        assert_int_equal(ckpt_feed(p, "x", fed, bytes), 0);
        if (ckpt_step(p, &loss[s]))
            fail_msg("%s", ckpt_error(c));
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            ckpt_param_get(c, n.w[i], CKPT_VALUE, weights + i * WIDTH * WIDTH, WIDTH * WIDTH), 0);
    ckpt_close(c);
    free(x);
    free(fed);
}

enum { WEIGHTS = 4 * WIDTH * WIDTH };

static bool gives_same(struct net n, float *narrow, float *wide)
{
    float loss[2][2];
    run_net(n, "8bit", NULL, loss[0], narrow);
    run_net(n, NULL, NULL, loss[1], wide);
    assert_true(loss[0][0] == loss[1][0]); /* the forward pass reads bf16 */
    return loss[0][1] == loss[1][1] && !memcmp(narrow, wide, WEIGHTS * sizeof *wide);
}

static void test_exact(void **state)
{
    struct net n = {.dtype = CKPT_BF16, .rows = ROWS, .middle = with_attention};
    float *narrow = calloc(WEIGHTS, sizeof *narrow), *wide = calloc(WEIGHTS, sizeof *wide);
    (void)state;
    assert_true(gives_same(n, narrow, wide));
    n.middle = with_exact;
    assert_true(gives_same(n, narrow, wide));
    n.middle = with_gelu;
    assert_false(gives_same(n, narrow, wide));
    free(narrow);
    free(wide);
}

/* ---- the error of single ops -------------------------------------------------------------------
 */

static ckpt_tensor with_silu(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    return layer(t, n, 1, ckpt_silu(t, layer(t, n, 0, x)));
}

static ckpt_tensor with_layer_norm(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    return layer(t, n, 1, ckpt_layer_norm(t, layer(t, n, 0, x), n->norm, CKPT_NONE, 1e-6f));
}

static ckpt_tensor with_rms_norm(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    return layer(t, n, 1, ckpt_rms_norm(t, layer(t, n, 0, x), n->norm, 1e-6f));
}

static ckpt_tensor with_tanh(ckpt_tape *t, const struct net *n, ckpt_tensor x)
{
    return layer(t, n, 1, ckpt_tanh(t, layer(t, n, 0, x)));
}

/* x is exact, and so is the gradient of y: gradients of w0 have the error of the op between, and
 * gradients of w1 have the error of the product with its result. */
static void find_gradients(struct net n, const char *activations, float *gradients)
{
    const int64_t size = 2 * n.rows * WIDTH;
    float *x = malloc((size_t)size * sizeof *x);
    uint16_t *fed = malloc((size_t)size * sizeof *fed);
    ckpt *c = open_mode(activations, NULL);
    n.gradients = true;
    ckpt_program *p = compile_net(&n, c, true);
    ckpt_fill_normal(3, 0, 1, x, size);
    ckpt_to_bf16(x, fed, size);
    assert_int_equal(ckpt_feed(p, "x", fed, size * 2), 0);
    if (ckpt_step(p, NULL) || ckpt_fetch(p, "dw0", gradients, WIDTH * WIDTH * 4) ||
        ckpt_fetch(p, "dw1", gradients + WIDTH * WIDTH, WIDTH * WIDTH * 4))
        fail_msg("%s", ckpt_error(c));
    ckpt_close(c);
    free(x);
    free(fed);
}

static double relative_error(const float *x, const float *exact, int64_t n)
{
    double square = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        square += ((double)x[i] - (double)exact[i]) * ((double)x[i] - (double)exact[i]);
        norm += (double)exact[i] * (double)exact[i];
    }
    return sqrt(square / norm);
}

static void test_errors(void **state)
{
    static const struct {
        const char *name;
        ckpt_tensor (*middle)(ckpt_tape *t, const struct net *n, ckpt_tensor x);
    } ops[] = {{"gelu", with_gelu},
               {"silu", with_silu},
               {"tanh", with_tanh},
               {"layer norm", with_layer_norm},
               {"rms norm", with_rms_norm}};
    float *narrow = calloc(WEIGHTS, sizeof *narrow), *wide = calloc(WEIGHTS, sizeof *wide);
    (void)state;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        struct net n = {.dtype = CKPT_BF16, .rows = 8 * ROWS, .middle = ops[i].middle};
        find_gradients(n, "8bit", narrow);
        find_gradients(n, NULL, wide);
        const int64_t one = WIDTH * WIDTH;
        const double dx = relative_error(narrow, wide, one);
        const double dw = relative_error(narrow + one, wide + one, one);
        print_message("%-10s error of its gradient %.4f, of the product with its result %.4f\n",
                      ops[i].name, dx, dw);
        assert_true(dx > 0 && dx < 0.012 && dw > 0 && dw < 0.012);
    }
    free(narrow);
    free(wide);
}

/* ---- beside other modes ---------------------------------------------------------------------- */

/* The input of an 8-bit product already has codes: they are not made twice. */
static void test_products(void **state)
{
    struct net n = {.dtype = CKPT_BF16, .rows = 2 * ROWS, .middle = with_gelu};
    (void)state;
    for (int k = 0; k < 2; k++) {
        ckpt *c = open_mode("8bit", k ? "fp8" : NULL);
        ckpt_program *p = compile_net(&n, c, true);
        check_tape(p->tape);
        assert_int_equal(count(p->tape, &op_linear_fp8_dw), k);
        assert_int_equal(count(p->tape, &op_to_int8), 1);
        assert_int_equal(count_again(p->tape), !k);
        ckpt_close(c);
    }
    float loss[2], *weights = calloc(WEIGHTS, sizeof *weights);
    run_net(n, "8bit", "fp8", loss, weights);
    assert_true(isfinite(loss[1]));
    free(weights);
}

/* Gradients as part of a model belong to the forward pass, which is exact. */
static ckpt_tensor record_penalty(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor dh, x = ckpt_input(t, "x", CKPT_BF16, 3, (int64_t[]){batch, n->rows, WIDTH});
    ckpt_tensor h = ckpt_gelu_tanh(t, layer(t, n, 0, x));
    ckpt_tensor y = ckpt_tanh(t, layer(t, n, 1, h));
    ckpt_tensor loss = ckpt_mean(t, ckpt_cast(t, y, CKPT_F32), 7);
    ckpt_gradients(t, loss, 1, &h, &dh);
    dh = ckpt_affine(t, ckpt_cast(t, dh, CKPT_F32), 100.f, 0.f);
    return ckpt_add(t, loss, ckpt_sum(t, ckpt_mul(t, dh, dh), 7));
}

static void test_penalty(void **state)
{
    struct net n = {.dtype = CKPT_BF16, .rows = ROWS};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    const int64_t size = 2 * ROWS * WIDTH;
    float *x = malloc((size_t)size * sizeof *x), loss[2];
    uint16_t *fed = malloc((size_t)size * sizeof *fed);
    (void)state;
    ckpt_fill_normal(1, 2, 3, x, size);
    ckpt_to_bf16(x, fed, size);
    for (int k = 0; k < 2; k++) {
        ckpt *c = open_mode(k ? "8bit" : NULL, NULL);
        ckpt_program *p;
        make_net(&n, c);
        if (ckpt_compile(c, record_penalty, &n, ckpt_adamw(c, &a), 2, &p))
            fail_msg("%s", ckpt_error(c));
        check_tape(p->tape);
        assert_int_equal(count(p->tape, &op_to_int8) > 0, k);
        assert_int_equal(ckpt_feed(p, "x", fed, size * 2), 0);
        for (int s = 0; s < 2; s++)
            if (ckpt_step(p, s ? NULL : &loss[k]))
                fail_msg("%s", ckpt_error(c));
        ckpt_close(c);
    }
    assert_true(loss[0] == loss[1]);
    free(x);
    free(fed);
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_storages), cmocka_unit_test(test_option),
        cmocka_unit_test(test_exact),    cmocka_unit_test(test_products),
        cmocka_unit_test(test_penalty),  cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
