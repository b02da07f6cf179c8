/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --matmul fp8: which layers use 8 bits; that budgets, tiers, threads and resuming
 * change no bit, also if copies are recomputed; that gradients are close to bf16's and a model
 * learns; non-finite values, gradients of gradients, and files of runs with other products.
 * test_fp8 tests conversions and single ops.  "make check-gpu" runs it on the GPU.
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
#include "modes.h"
#include "ops.h"
#include "plan/one_search.h"

enum { WIDTH = MODES_WIDTH };

/* ---- which layers ---------------------------------------------------------------------------- */

enum { FIRST, SECOND, NARROW, ODD, VECTOR, LAST, WEIGHTS };

struct net {
    ckpt_tensor w[WEIGHTS], bias;
    int64_t rows;
    enum ckpt_dtype dtype;
    bool frozen_first; /* a frozen layer reads a tensor before a trained one does */
};

static void make_net(struct net *n, ckpt *c)
{
    static const int64_t out[WEIGHTS] = {
        [FIRST] = 128, [SECOND] = 256, [NARROW] = 112, [ODD] = 136, [VECTOR] = 128, [LAST] = 160};
    const int64_t width = out[SECOND];
    for (int i = 0; i < WEIGHTS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        n->w[i] = ckpt_param(c, name, n->dtype, 2, (int64_t[]){out[i], 128}, CKPT_XAVIER,
                             !(n->frozen_first && i == SECOND));
    }
    n->bias = ckpt_param(c, "bias", n->dtype, 1, &width, CKPT_NORMAL(1.f), true);
}

static ckpt_tensor mean_square(ckpt_tape *t, ckpt_tensor y)
{
    y = ckpt_cast(t, y, CKPT_F32);
    return ckpt_mean(t, ckpt_mul(t, y, y), 7);
}

/* The first layer reads an input.  Of the next ones, one is too narrow, one is not a multiple of
 * 16, one has few rows, and the last is set to full precision. */
static ckpt_tensor record_net(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, n->rows, 128});
    ckpt_tensor h =
        ckpt_gelu_tanh(t, ckpt_linear(t, ckpt_cast(t, x, n->dtype), n->w[FIRST], CKPT_NONE));
    ckpt_tensor y = ckpt_linear(t, h, n->w[SECOND], n->bias);
    ckpt_tensor loss = ckpt_mean(t, ckpt_cast(t, y, CKPT_F32), 7);
    for (int i = NARROW; i <= LAST; i++) {
        ckpt_tensor z = i == VECTOR ? ckpt_slice(t, h, 1, 0, 1) : h;
        ckpt_full_precision(t, i == LAST);
        y = ckpt_linear(t, z, n->w[i], CKPT_NONE);
        loss = ckpt_add(t, loss, mean_square(t, y));
    }
    ckpt_full_precision(t, false);
    if (n->frozen_first)
        loss = ckpt_add(t, loss, mean_square(t, ckpt_linear_add(t, h, n->w[FIRST], CKPT_NONE, h)));
    return loss;
}

static int count(const ckpt_program *p, const struct ckpt_op_def *def)
{
    int n = 0;
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        n += p->tape->ops.data[i].def == def;
    return n;
}

static ckpt *open_fp8(const char *matmul)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.threads = 1;
    o.matmul = matmul;
    if (ckpt_open(&c, &o))
        fail_msg("%s", ckpt_error(NULL));
    return c;
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

static void expect_products(struct net n, const char *matmul, bool trains, int forward, int dx,
                            int dw, int copies)
{
    ckpt *c = open_fp8(matmul);
    ckpt_program *p = compile_net(&n, c, trains);
    assert_int_equal(count(p, &op_linear_fp8), forward);
    assert_int_equal(count(p, &op_linear_fp8_dx), dx);
    assert_int_equal(count(p, &op_linear_fp8_dw), dw);
    assert_int_equal(count(p, &op_to_fp8), copies);
    assert_int_equal(count(p, &op_linear), WEIGHTS + n.frozen_first - forward);
    ckpt_close(c);
}

static void test_layers(void **state)
{
    (void)state;
    expect_products((struct net){.rows = 64, .dtype = CKPT_BF16}, NULL, true, 0, 0, 0, 0);
    expect_products((struct net){.rows = 64, .dtype = CKPT_BF16}, "bf16", true, 0, 0, 0, 0);
    expect_products((struct net){.rows = 64, .dtype = CKPT_BF16}, "fp8", true, 1, 1, 1, 3);
    expect_products((struct net){.rows = 64, .dtype = CKPT_BF16}, "fp8", false, 1, 0, 0, 2);
    expect_products((struct net){.rows = 63, .dtype = CKPT_BF16}, "fp8", true, 0, 0, 0, 0);
    expect_products((struct net){.rows = 64, .dtype = CKPT_F32}, "fp8", false, 0, 0, 0, 0);
    /* The frozen layer has no gradient of its weight, so the copy of h is made again for the other
     * one's: h, two weights, two gradients, h. */
    expect_products((struct net){.rows = 64, .dtype = CKPT_BF16, .frozen_first = true}, "fp8", true,
                    2, 2, 1, 6);
    /* 134 rows, no multiple of 4. */
    expect_products((struct net){.rows = 67, .dtype = CKPT_BF16}, "fp8", true, 1, 1, 1, 3);
}

/* Outputs without an address: nothing reads them before they are recomputed, if at all. */
static int count_spared(const ckpt_program *p)
{
    int n = 0;
    for (int32_t i = 0; i < p->lowered.n_instrs; i++) {
        const struct instr *instr = &p->lowered.instrs.data[i];
        if (instr->kind != INSTR_COMPUTE)
            continue;
        const struct op *o = &p->tape->ops.data[instr->op];
        for (int k = 0; k < o->n_out; k++) {
            const struct ckpt_view *v = &p->lowered.views.data[instr->first + o->n_in + k];
            assert_true(v->data || v->desc.ndim < 0 || o->def->flags & CKPT_OP_OPTIONAL_OUT);
            n += !v->data && v->desc.ndim >= 0;
        }
    }
    return n;
}

/* GELU between two 8-bit layers. */
static ckpt_tensor record_gelu(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, n->rows, 128});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, n->dtype), n->w[FIRST], CKPT_NONE);
    h = ckpt_gelu_tanh(t, ckpt_linear(t, h, n->w[VECTOR], CKPT_NONE));
    return mean_square(t, ckpt_linear(t, h, n->w[LAST], CKPT_NONE));
}

/* The same with a modulated norm, whose shift and scale have one row per sample. */
static ckpt_tensor record_norm(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, n->rows, 128});
    ckpt_tensor h = ckpt_linear(t, ckpt_cast(t, x, n->dtype), n->w[FIRST], CKPT_NONE);
    ckpt_tensor row = ckpt_slice(t, h, 1, 0, 1), y = ckpt_linear(t, h, n->w[VECTOR], CKPT_NONE);
    y = ckpt_layer_norm_modulate(t, y, row, row, 1e-6f);
    return mean_square(t, ckpt_linear(t, y, n->w[LAST], CKPT_NONE));
}

/* The norm's result is not read; its statistics and its largest magnitude are. */
static void test_norm(void **state)
{
    (void)state;
    const size_t bytes = 2 * 64 * 128 * sizeof(float);
    float *x = malloc(bytes);
    ckpt_fill_normal(1, 2, 3, x, (int64_t)bytes / 4);
    for (int trains = 0; trains < 2; trains++) {
        struct net n = {.rows = 64, .dtype = CKPT_BF16};
        struct ckpt_adamw a = CKPT_ADAMW_INIT;
        ckpt *c = open_fp8("fp8");
        ckpt_program *p;
        make_net(&n, c);
        if (ckpt_compile(c, record_norm, &n, trains ? ckpt_adamw(c, &a) : NULL, 2, &p))
            fail_msg("%s", ckpt_error(c));
        assert_int_equal(count(p, &op_linear_fp8), 2);
        assert_int_equal(count(p, &op_layer_norm_modulate), 1);
        assert_int_equal(count_spared(p), 1);
        assert_int_equal(ckpt_feed(p, "x", x, (int64_t)bytes), 0);
        assert_int_equal(ckpt_step(p, NULL), 0);
        ckpt_close(c);
    }
    free(x);
}

/* GELU is computed only within the conversion to 8-bit copies. */
static void test_gelu(void **state)
{
    struct net n = {.rows = 64, .dtype = CKPT_BF16};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    ckpt *c = open_fp8("fp8");
    ckpt_program *p;
    (void)state;
    make_net(&n, c);
    if (ckpt_compile(c, record_gelu, &n, ckpt_adamw(c, &a), 2, &p))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(count(p, &op_linear_fp8), 2);
    assert_int_equal(count(p, &op_gelu), 0);
    assert_int_equal(count(p, &op_gelu_dx), 1);
    ckpt_close(c);
}

static void test_option(void **state)
{
    (void)state;
    modes_expect_refused("--matmul", "fp4", "--matmul fp4: there are 'bf16' and 'fp8'");
    modes_expect_refused("--matmul", "fp8-block",
                         "--matmul fp8-block is gone: give fp8, which is faster and whose losses "
                         "are alike; --resume-changed continues states of fp8-block");
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void expect_budgets(int64_t micro, enum ckpt_dtype grad_dtype)
{
    struct ckpt_options o = modes_options();
    o.matmul = "fp8";
    o.micro_batch = micro;
    modes_expect_budgets(&o, grad_dtype);
}

static void test_budgets(void **state)
{
    (void)state;
    expect_budgets(0, CKPT_F32);
}

static void test_budgets_micro_steps(void **state)
{
    (void)state;
    expect_budgets(2, CKPT_F32);
}

static void test_budgets_bf16_gradients(void **state)
{
    (void)state;
    expect_budgets(0, CKPT_BF16);
}

static struct small make(int64_t n_micro, const char *matmul)
{
    struct small r = small_make(CKPT_BF16, WIDTH, n_micro, true);
    r.rows = 6 * n_micro;
    r.options.matmul = matmul;
    return r;
}

static const char path[] = "test_fp8_steps.tmp.safetensors";

static void test_tiers(void **state)
{
    (void)state;
    struct small wide = make(1, "fp8"), narrow = make(3, "fp8");
    narrow.options.state = "bf16";
    modes_expect_tiers(wide);
    modes_expect_tiers(narrow);
}

/* If copies are made twice, each run writes the copies that are read before the other run.
 * test_budgets checks that this changes no bit. */
static void test_spared(void **state)
{
    struct small r = make(1, "fp8");
    struct ckpt_program_info info = CKPT_PROGRAM_INFO_INIT;
    ckpt *c;
    ckpt_program *p;
    (void)state;
    if (small_on_gpu()) /* where the smallest budget has the context in it */
        skip();
    for (int k = 0; k < 2; k++) {
        small_open(&r, &c, &p);
        if (!k)
            assert_int_equal(count_spared(p), 0);
        else
            assert_true(count_spared(p) > 0);
        assert_int_equal(ckpt_program_info(p, &info), 0);
        r.options.vram = info.min_budget;
        ckpt_close(c);
    }
}

/* A bf16 model gets different numbers. */
static void test_other_bits(void **state)
{
    struct small half[2];
    (void)state;
    for (int k = 0; k < 2; k++) {
        half[k] = make(1, k ? "fp8" : NULL);
        small_run(&half[k], 2);
    }
    assert_memory_not_equal(half[0].state, half[1].state,
                            (size_t)half[0].numel * sizeof *half[0].state);
    for (int k = 0; k < 2; k++)
        free(half[k].state);
}

/* ---- accuracy -------------------------------------------------------------------------------- */

/* Compares gradients of all parameters after a step with bf16's. */
static void test_gradients(void **state)
{
    struct ckpt_options o = modes_options();
    struct ckpt_adamw a = tiny_adamw();
    struct tiny_result fp8, bf16;
    char message[1024];
    (void)state;
    assert_int_equal(tiny_train(modes_tiny, &o, &a, 1, &bf16, message), 0);
    o.matmul = "fp8";
    assert_int_equal(tiny_train(modes_tiny, &o, &a, 1, &fp8, message), 0);
    const double near = modes_cosine(fp8.gradients, bf16.gradients, bf16.numel);
    print_message("cosine of all gradients with those of bf16 %.5f, loss %.6f and %.6f\n", near,
                  (double)fp8.loss[0], (double)bf16.loss[0]);
    assert_true(near > 0.99 && near < 1);
    assert_true(fabs((double)(fp8.loss[0] - bf16.loss[0])) < 1e-2 * (double)bf16.loss[0]);
    tiny_result_free(&fp8);
    tiny_result_free(&bf16);
}

static void test_learning(void **state)
{
    (void)state;
    const double wide = modes_learn(make(1, "bf16"), 60), narrow = modes_learn(make(1, "fp8"), 60);
    print_message("loss %g with products of bf16, %g of fp8\n", wide, narrow);
    assert_true(fabs(narrow - wide) < 0.05 * wide);
}

/* ---- non-finite values ----------------------------------------------------------------------- */

/* Sets the values of the first weight, which every 8-bit layer depends on. */
static int step_with(struct small *r, float value, char *sentence, size_t size)
{
    const int64_t n = WIDTH * WIDTH;
    float *w = calloc((size_t)n, sizeof *w);
    ckpt *c;
    ckpt_program *p;
    small_open(r, &c, &p);
    assert_int_equal(ckpt_param_get(c, r->param[3], CKPT_VALUE, w, n), 0);
    w[n / 2 + 7] = value;
    int rc = ckpt_param_set(c, r->param[3], CKPT_VALUE, w, n);
    if (!rc) {
        small_feed(p, r, 0);
        rc = ckpt_step(p, NULL);
    }
    snprintf(sentence, size, "%s", ckpt_error(c));
    ckpt_close(c);
    free(w);
    return rc;
}

/* The message names the op that rounded the value: its scale is the first non-finite result. */
static void test_not_finite(void **state)
{
    char sentence[1024];
    (void)state;
    struct small r = make(1, "fp8");
    assert_int_equal(step_with(&r, NAN, sentence, sizeof sentence), CKPT_ENAN);
    print_message("%s\n", sentence);
    assert_non_null(strstr(sentence, "to_fp8"));
    assert_int_equal(step_with(&r, -INFINITY, sentence, sizeof sentence), CKPT_ENAN);
    assert_non_null(strstr(sentence, "to_fp8"));
    assert_int_equal(step_with(&r, 0x1p60f, sentence, sizeof sentence), 0);
}

/* Weights that are all zero have codes, products and gradients of zero. */
static void test_zeros(void **state)
{
    const int64_t n = WIDTH * WIDTH;
    float *w = calloc((size_t)n, sizeof *w), loss;
    (void)state;
    struct small r = make(1, "fp8");
    ckpt *c;
    ckpt_program *p;
    small_open(&r, &c, &p);
    for (int i = 0; i < SMALL_PARAMS; i++)
        if (i == 0 || i == 3)
            assert_int_equal(ckpt_param_set(c, r.param[i], CKPT_VALUE, w, n), 0);
    small_feed(p, &r, 0);
    assert_int_equal(ckpt_step(p, &loss), 0);
    assert_true(isfinite(loss));
    ckpt_close(c);
    free(w);
}

/* ---- gradients of gradients ------------------------------------------------------------------ */

/* Ops recorded by ckpt_gradients use bf16, and can be differentiated. */
static ckpt_tensor record_penalty(ckpt_tape *t, int64_t batch, void *user)
{
    const struct net *n = user;
    ckpt_tensor dh, x = ckpt_input(t, "x", CKPT_F32, 3, (int64_t[]){batch, n->rows, 128});
    ckpt_tensor h =
        ckpt_gelu_tanh(t, ckpt_linear(t, ckpt_cast(t, x, n->dtype), n->w[FIRST], CKPT_NONE));
    ckpt_tensor y = ckpt_tanh(t, ckpt_linear(t, h, n->w[SECOND], n->bias));
    ckpt_tensor loss = ckpt_mean(t, ckpt_cast(t, y, CKPT_F32), 7);
    ckpt_gradients(t, loss, 1, &h, &dh);
    dh = ckpt_affine(t, ckpt_cast(t, dh, CKPT_F32), 100.f, 0.f);
    return ckpt_add(t, loss, ckpt_sum(t, ckpt_mul(t, dh, dh), 7));
}

static void test_penalty(void **state)
{
    struct net n = {.rows = 64, .dtype = CKPT_BF16};
    struct ckpt_adamw a = CKPT_ADAMW_INIT;
    float *x = malloc((size_t)(2 * 64 * 128) * sizeof *x), loss[2];
    (void)state;
    ckpt_fill_normal(1, 2, 3, x, 2 * 64 * 128);
    for (int k = 0; k < 2; k++) {
        ckpt *c = open_fp8(k ? "fp8" : "bf16");
        ckpt_program *p;
        make_net(&n, c);
        if (ckpt_compile(c, record_penalty, &n, ckpt_adamw(c, &a), 2, &p))
            fail_msg("%s", ckpt_error(c));
        assert_int_equal(count(p, &op_linear_fp8), k > 0);
        assert_int_equal(count(p, &op_linear_fp8_dw), k > 0);
        assert_int_equal(ckpt_feed(p, "x", x, 2 * 64 * 128 * 4), 0);
        if (ckpt_step(p, &loss[k]))
            fail_msg("%s", ckpt_error(c));
        ckpt_close(c);
    }
    print_message("penalty and loss %g, of fp8 %g\n", (double)loss[0], (double)loss[1]);
    assert_true(fabs((double)(loss[1] - loss[0])) < 0.05 * fabs((double)loss[0]));
    free(x);
}

/* ---- reports and files ----------------------------------------------------------------------- */

static void test_table(void **state)
{
    char table[4096];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct small r = make(1, k ? "fp8" : NULL);
        ckpt *c;
        ckpt_program *p;
        small_open(&r, &c, &p);
        FILE *f = fmemopen(table, sizeof table, "w");
        ckpt_plan_print(p, f);
        fclose(f);
        ckpt_close(c);
        assert_int_equal(strstr(table, "(--matmul fp8)") != NULL, k);
    }
    print_message("%s", table);
    assert_non_null(strstr(table, "4 of 5 linear layers"));
}

/* A resumed run must use the products it began with, unless its program permits a change. */
static void test_resume(void **state)
{
    static const struct {
        const char *saved, *run, *sentence;
    } rows[] = {{NULL, "fp8", "ckpt.matmul bf16, this run has fp8"},
                {"fp8", NULL, "ckpt.matmul fp8, this run has bf16"}};
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        struct small r = make(1, rows[k].saved);
        ckpt *c;
        ckpt_program *p;
        small_open(&r, &c, &p);
        small_train(&r, c, p, 0, 1);
        assert_int_equal(ckpt_save_state(c, path), 0);
        ckpt_close(c);
        r.options.matmul = rows[k].run;
        small_open(&r, &c, &p);
        assert_int_equal(ckpt_load_state(c, path), CKPT_EINVAL);
        assert_non_null(strstr(ckpt_error(c), rows[k].sentence));
        ckpt_close(c);
        unlink(path);
    }
}

int main(int argc, char **argv)
{
    cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_gelu),
        cmocka_unit_test(test_norm),
        cmocka_unit_test(test_option),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_budgets_micro_steps),
        cmocka_unit_test(test_budgets_bf16_gradients),
        cmocka_unit_test(test_tiers),
        cmocka_unit_test(test_spared),
        cmocka_unit_test(test_other_bits),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_learning),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_zeros),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_resume),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
