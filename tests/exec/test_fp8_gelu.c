/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU in the epilogue of 8-bit products: a model trains with the same bits as with separate GELU
 * ops, without a budget and under small ones, with tiers and with micro-steps; and which ops are
 * joined.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "exec/epilogue_products.h"
#include "exec/small.h"
#include "extra.h"
#include "fp8.h"
#include "ops.h"

enum { ROWS = 256, TILES = 1, WIDTH = 128, HIDDEN = 144, LAYERS = 2, STEPS = 2 };

/* How a layer differs from a plain perceptron. */
enum variation {
    PLAIN,
    NO_BIAS,    /* of the layer before GELU */
    SHOWN,      /* GELU's result is an output */
    READ_TWICE, /* and another op reads it */
    ADDEND,     /* the layer before GELU adds something */
    RESHAPED,   /* the next layer reads a view of GELU's result */
    FROZEN,     /* only the first layer has gradients */
    NARROW,     /* too few rows for a joined op */
    VARIATIONS
};

struct model {
    enum variation is;
    bool joins;
    int64_t batch;
    ckpt_tensor w[2 * LAYERS], b[2 * LAYERS], first;
};

static int64_t rows_of(const struct model *m)
{
    return m->is == NARROW ? 128 : ROWS;
}

static int64_t hidden_of(const struct model *m)
{
    return m->is == ADDEND ? 2 * WIDTH : HIDDEN;
}

static ckpt_tensor layer(ckpt_tape *t, const struct model *m, int i, ckpt_tensor x)
{
    const ckpt_tensor bias = m->is == NO_BIAS ? CKPT_NONE : m->b[2 * i];
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t seen[] = {d.shape[0] * d.shape[1], hidden_of(m)};
    ckpt_tensor h = m->is == ADDEND ? ckpt_linear_add(t, x, m->w[2 * i], bias,
                                                      ckpt_concat(t, 2, 2, (ckpt_tensor[]){x, x}))
                                    : ckpt_linear(t, x, m->w[2 * i], bias);
    ckpt_tensor a = ckpt_gelu_tanh(t, h);
    if (m->is == READ_TWICE)
        a = ckpt_add(t, ckpt_tanh(t, a), a);
    if (m->is == SHOWN && i == 0)
        ckpt_output(t, "shown", ckpt_cast(t, a, CKPT_F32));
    if (m->is == RESHAPED)
        a = ckpt_reshape(t, a, 2, seen);
    a = ckpt_linear(t, a, m->w[2 * i + 1], m->b[2 * i + 1]);
    return ckpt_add(t, x, ckpt_reshape(t, a, 3, d.shape));
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_BF16, 3, (int64_t[]){batch, rows_of(m), WIDTH});
    x = ckpt_linear(t, x, m->first, CKPT_NONE);
    for (int i = 0; i < LAYERS; i++)
        x = layer(t, m, i, x);
    x = ckpt_cast(t, x, CKPT_F32);
    return ckpt_mean(t, ckpt_mul(t, x, x), 7);
}

static ckpt_tensor param(ckpt *c, const char *kind, int i, int ndim, int64_t rows, int64_t cols,
                         bool trained)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return ckpt_param(c, name, CKPT_BF16, ndim, (int64_t[]){rows, cols}, CKPT_NORMAL(0.1f),
                      trained);
}

/* NULL if the budget is refused. */
static ckpt *open_model(struct model *m, const struct ckpt_options *o, ckpt_program **p)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    const bool trains = m->is != FROZEN;
    ckpt *c;
    if (ckpt_open(&c, o))
        fail_msg("%s", ckpt_error(NULL));
    c->programs.epilogue_tiles = m->joins ? TILES + (m->is == NARROW) : 0;
    m->first = param(c, "first", 0, 2, WIDTH, WIDTH, true);
    for (int i = 0; i < 2 * LAYERS; i++) {
        const int64_t out = i % 2 ? WIDTH : hidden_of(m), in = i % 2 ? hidden_of(m) : WIDTH;
        m->w[i] = param(c, "w", i, 2, out, in, trains);
        m->b[i] = param(c, "b", i, 1, out, 0, trains);
    }
    const int rc = ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), m->batch, p);
    if (rc && rc != CKPT_EBUDGET)
        fail_msg("%s", ckpt_error(c));
    if (!rc)
        return c;
    ckpt_close(c);
    return NULL;
}

struct joined {
    int forward;       /* layers that leave the largest magnitude of GELU */
    int backward;      /* products with its gradient */
    int sums, largest; /* of the latter: those that leave sums, and largest magnitudes */
    int passes;        /* that find the largest magnitude of GELU */
    int gradients;     /* of GELU, beside products */
};

static struct joined count(const ckpt_program *p)
{
    struct joined n = {0};
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct op *o = &p->tape->ops.data[i];
        n.forward += o->def == &op_linear_fp8 && extra_has(o->extra, EXTRA_GELU_LARGEST);
        n.gradients += o->def == &op_gelu_dx;
        if (o->def == &op_to_fp8_largest)
            n.passes += ((const struct to_fp8_largest_attr *)o->attr)->source == FP8_GELU;
        if (o->def != &op_linear_fp8_dx_gelu)
            continue;
        n.backward++;
        n.sums += extra_has(o->extra, EXTRA_SUMS);
        n.largest += extra_has(o->extra, EXTRA_LARGEST);
    }
    return n;
}

static void step(const struct model *m, ckpt_program *p, int number, float *loss)
{
    const int64_t n = m->batch * rows_of(m) * WIDTH;
    feed_normal(p, n, number);
    if (ckpt_step(p, loss))
        fail_msg("step %d", number);
}

enum { VALUES = WIDTH * WIDTH + 2 * LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH) };

struct run {
    float loss[STEPS], value[VALUES];
    struct joined joined;
    int64_t bytes; /* that the plan takes */
};

/* NULL if the budget is refused. */
static struct run *train(struct model m, bool joins, const struct ckpt_options *o)
{
    ckpt_program *p;
    m.joins = joins;
    ckpt *c = open_model(&m, o, &p);
    if (!c)
        return NULL;
    struct run *r = calloc(1, sizeof *r);
    r->bytes = p->reserved + p->plan->persistent + p->plan->transient;
    r->joined = count(p);
    for (int i = 0; i < STEPS; i++)
        step(&m, p, i, &r->loss[i]);
    collect(c, r->value, VALUES);
    ckpt_close(c);
    return r;
}

static void expect_same(const struct run *a, struct run *b)
{
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->value, b->value, sizeof a->value);
    free(b);
}

static struct ckpt_options options(void)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = "cpu";
    o.matmul = "fp8";
    o.verify = true;
    return o;
}

static void expect_joined(const struct joined *got, const struct joined *expected, const char *what,
                          int i)
{
    if (memcmp(got, expected, sizeof *got))
        fail_msg("%s %d: %d %d, %d %d, %d %d", what, i, got->forward, got->backward, got->sums,
                 got->largest, got->passes, got->gradients);
}

/* Counts the joined ops of each variation, and checks that joining changes no bit. */
static void test_variations(void **state)
{
    static const struct joined expected[VARIATIONS] = {
        [PLAIN] = {2, 2, 2, 2, 0, 0},  [NO_BIAS] = {2, 2, 0, 2, 0, 0},
        [SHOWN] = {1, 2, 2, 2, 0, 0},  [READ_TWICE] = {0, 0, 0, 0, 0, 2},
        [ADDEND] = {0, 2, 2, 2, 2, 0}, [RESHAPED] = {0, 0, 0, 0, 0, 2},
        [FROZEN] = {2, 2, 0, 2, 0, 0}, [NARROW] = {0, 0, 0, 0, 2, 2},
    };
    const struct ckpt_options o = options();
    (void)state;
    for (int i = 0; i < VARIATIONS; i++) {
        const struct model m = {.is = (enum variation)i, .batch = 1};
        struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
        assert_int_equal(apart->joined.forward + apart->joined.backward, 0);
        expect_joined(&joined->joined, &expected[i], "variation", i);
        expect_same(apart, joined);
        free(apart);
    }
}

static void test_budgets(void **state)
{
    const struct model m = {.batch = 4};
    struct ckpt_options o = options();
    struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
    int ran = 0;
    (void)state;
    for (int tier = 0; tier < 3; tier++)
        for (int share = 95; share > 40; share -= 10) {
            o.vram = joined->bytes * share / 100;
            o.host = tier ? INT64_C(64) << 20 : 0;
            o.nvme = tier == 2 ? ".:64M" : NULL;
            struct run *r = train(m, true, &o);
            if (!r)
                break;
            assert_true(r->bytes <= o.vram);
            ran++;
            expect_same(joined, r);
        }
    assert_true(ran >= 6);
    expect_same(apart, joined);
    free(apart);
}

/* Every micro-step is joined in the same way. */
static void test_micro_steps(void **state)
{
    const struct model m = {.batch = 4};
    struct ckpt_options o = options();
    (void)state;
    o.micro_batch = 2;
    struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
    assert_int_equal(joined->joined.backward, LAYERS);
    expect_same(apart, joined);
    free(apart);
}

/* Ops with other operands are not joined. */
static void test_modes(void **state)
{
    const struct model m = {.batch = 1};
    struct ckpt_options o = options();
    (void)state;
    for (int fp8 = 0; fp8 < 2; fp8++) {
        o.matmul = fp8 ? "fp8" : "bf16";
        o.activations = fp8 ? "8bit" : NULL;
        struct run *r = train(m, true, &o);
        assert_int_equal(r->joined.backward, 0);
        assert_int_equal(r->joined.forward, fp8 ? LAYERS : 0);
        free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variations),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
