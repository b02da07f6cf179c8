/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU at the end of products: a model trains with the same bits as with GELU beside them, without
 * a budget and under small ones, with tiers and with micro-steps; what is joined and
 * what is not; and that nothing keeps the result of GELU for the backward pass.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "exec/small.h"
#include "ops.h"

enum { ROWS = 512, TILES = 2, WIDTH = 64, HIDDEN = 72, LAYERS = 2, STEPS = 3 };

/* What of a layer is another way than in a plain perceptron. */
enum variation {
    PLAIN,
    NO_BIAS,    /* of the layer before GELU */
    SHOWN,      /* GELU's result is an output */
    READ_TWICE, /* and read by another op, before the product that does its gradient */
    BEHIND,     /* and by another one, whose gradient comes behind that */
    ADDEND,     /* the layer before GELU adds something */
    RESHAPED,   /* a view of its result is what the next layer reads */
    FROZEN,     /* no layer takes gradients but the first of all */
    NARROW,     /* fewer rows than are worth it */
    VARIATIONS
};

struct model {
    enum variation is;
    bool joins;
    int64_t batch;
    ckpt_tensor w[2 * LAYERS], b[2 * LAYERS], first;
};

static ckpt_tensor layer(ckpt_tape *t, const struct model *m, int i, ckpt_tensor x)
{
    const ckpt_tensor bias = m->is == NO_BIAS ? CKPT_NONE : m->b[2 * i];
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t seen[] = {d.shape[0] * d.shape[1], HIDDEN};
    ckpt_tensor h = m->is == ADDEND
                        ? ckpt_linear_add(t, x, m->w[2 * i], bias,
                                          ckpt_concat(t, 2, 2, (ckpt_tensor[]){x, x}))
                        : ckpt_linear(t, x, m->w[2 * i], bias);
    ckpt_tensor y, a = ckpt_gelu(t, h);
    if (m->is == READ_TWICE)
        a = ckpt_add(t, ckpt_tanh(t, a), a);
    if (m->is == SHOWN && i == 0)
        ckpt_output(t, "shown", ckpt_cast(t, a, CKPT_F32));
    if (m->is == RESHAPED)
        y = ckpt_linear(t, ckpt_reshape(t, a, 2, seen), m->w[2 * i + 1], m->b[2 * i + 1]);
    else
        y = ckpt_linear(t, a, m->w[2 * i + 1], m->b[2 * i + 1]);
    y = ckpt_reshape(t, y, 3, d.shape);
    if (m->is == BEHIND)
        y = ckpt_add(t, y, ckpt_slice(t, ckpt_mul(t, a, a), 2, 0, WIDTH));
    return ckpt_add(t, x, y);
}

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    const int64_t rows = m->is == NARROW ? 8 : ROWS;
    ckpt_tensor x = ckpt_input(t, "x", CKPT_BF16, 3, (int64_t[]){batch, rows, WIDTH});
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
    return ckpt_param(c, name, CKPT_BF16, ndim, (int64_t[]){rows, cols}, CKPT_NORMAL(0.2f),
                      trained);
}

/* NULL where the budget is refused. */
static ckpt *open_model(struct model *m, const struct ckpt_options *o, ckpt_program **p)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    const bool trains = m->is != FROZEN;
    const int64_t hidden = m->is == ADDEND ? 2 * WIDTH : HIDDEN;
    ckpt *c;
    if (ckpt_open(&c, o))
        fail_msg("%s", ckpt_error(NULL));
    c->programs.gelu_tiles = m->joins ? TILES : 0;
    m->first = param(c, "first", 0, 2, WIDTH, WIDTH, true);
    for (int i = 0; i < 2 * LAYERS; i++) {
        const int64_t out = i % 2 ? WIDTH : hidden, in = i % 2 ? hidden : WIDTH;
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

static int count(const ckpt_program *p, const struct ckpt_op_def *def)
{
    int n = 0;
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        n += p->tape->ops.data[i].def == def;
    return n;
}

static void step(const struct model *m, ckpt_program *p, int number, float *loss)
{
    const int64_t n = m->batch * (m->is == NARROW ? 8 : ROWS) * WIDTH;
    float *x = malloc((size_t)n * sizeof *x);
    uint16_t *narrow = malloc((size_t)n * sizeof *narrow);
    ckpt_fill_normal(7, (uint64_t)number, 1, x, n);
    ckpt_to_bf16(x, narrow, n);
    assert_int_equal(ckpt_feed(p, "x", narrow, n * (int64_t)sizeof *narrow), 0);
    if (ckpt_step(p, loss))
        fail_msg("step %d", number);
    free(narrow);
    free(x);
}

/* All parameters, one behind the other. */
static void collect(ckpt *c, const struct model *m, float *to)
{
    const int64_t hidden = m->is == ADDEND ? 2 * WIDTH : HIDDEN;
    int64_t at = WIDTH * WIDTH;
    assert_int_equal(ckpt_param_get(c, m->first, CKPT_VALUE, to, at), 0);
    for (int i = 0; i < 2 * LAYERS; i++) {
        const int64_t size[] = {hidden * WIDTH, i % 2 ? WIDTH : hidden};
        assert_int_equal(ckpt_param_get(c, m->w[i], CKPT_VALUE, to + at, size[0]), 0);
        assert_int_equal(ckpt_param_get(c, m->b[i], CKPT_VALUE, to + at + size[0], size[1]), 0);
        at += size[0] + size[1];
    }
}

enum { VALUES = WIDTH * WIDTH + 2 * LAYERS * (2 * WIDTH * WIDTH + 2 * WIDTH) };

struct run {
    float loss[STEPS], value[VALUES];
    int forward, backward, posts; /* joined ops; of the latter those that make GELU again */
    int64_t bytes;                /* that the plan takes */
};

/* NULL where the budget is refused. */
static struct run *train(struct model m, bool joins, const struct ckpt_options *o)
{
    ckpt_program *p;
    m.joins = joins;
    ckpt *c = open_model(&m, o, &p);
    if (!c)
        return NULL;
    struct run *r = calloc(1, sizeof *r);
    r->bytes = p->reserved + p->plan->persistent + p->plan->transient;
    r->forward = count(p, &op_linear_gelu);
    r->backward = count(p, &op_linear_dx_gelu);
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct op *op = &p->tape->ops.data[i];
        if (op->def == &op_linear_dx_gelu)
            r->posts += ((const struct linear_dx_gelu_attr *)op->attr)->post;
    }
    for (int i = 0; i < STEPS; i++)
        step(&m, p, i, &r->loss[i]);
    collect(c, &m, r->value);
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
    o.verify = true;
    return o;
}

/* Which ops are joined, of how many; and that no bit depends on it. */
static void test_variations(void **state)
{
    static const struct {
        int forward, backward, posts;
    } expected[VARIATIONS] = {
        [PLAIN] = {LAYERS, LAYERS, LAYERS},      [NO_BIAS] = {LAYERS, LAYERS, LAYERS},
        [SHOWN] = {LAYERS, LAYERS, LAYERS},      [READ_TWICE] = {0, 0, 0},
        [BEHIND] = {0, 0, 0},                    [ADDEND] = {0, LAYERS, 0},
        [RESHAPED] = {0, 0, 0},                  [FROZEN] = {LAYERS, LAYERS, 0},
        [NARROW] = {0, 0, 0},
    };
    const struct ckpt_options o = options();
    (void)state;
    for (int i = 0; i < VARIATIONS; i++) {
        const struct model m = {.is = (enum variation)i, .batch = 1};
        struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
        assert_int_equal(apart->forward + apart->backward, 0);
        if (joined->forward != expected[i].forward || joined->backward != expected[i].backward ||
            joined->posts != expected[i].posts)
            fail_msg("variation %d: %d, %d, %d joined", i, joined->forward, joined->backward,
                     joined->posts);
        expect_same(apart, joined);
        free(apart);
    }
}

/* GELU's results are not kept: the step takes less, and a smaller budget will do. */
static void test_budgets(void **state)
{
    const struct model m = {.batch = 4};
    struct ckpt_options o = options();
    struct run *free_apart = train(m, false, &o), *free_joined = train(m, true, &o);
    const int64_t wide = 4 * ROWS * HIDDEN * 2; /* bytes of a result of GELU */
    int ran = 0;
    (void)state;
    assert_true(free_joined->bytes <= free_apart->bytes - (LAYERS - 1) * wide * 9 / 10);
    for (int tier = 0; tier < 3; tier++)
        for (int share = 95; share > 40; share -= 10) {
            o.vram = free_joined->bytes * share / 100;
            o.host = tier ? INT64_C(64) << 20 : 0;
            o.nvme = tier == 2 ? ".:64M" : NULL;
            struct run *r = train(m, true, &o);
            if (!r)
                break;
            assert_true(r->bytes <= o.vram);
            ran++;
            expect_same(free_joined, r);
        }
    assert_true(ran >= 6);
    expect_same(free_apart, free_joined);
    free(free_apart);
}

/* Gradients are added up over micro-steps, of which each is joined alike. */
static void test_micro_steps(void **state)
{
    const struct model m = {.batch = 4};
    struct ckpt_options o = options();
    (void)state;
    o.micro_batch = 2;
    struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
    assert_int_equal(joined->backward, LAYERS);
    expect_same(apart, joined);
    free(apart);
}

/* Without a backward pass only the result of GELU is read. */
static void test_forward(void **state)
{
    const struct ckpt_options o = options();
    float loss[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct model m = {.batch = 2, .joins = i};
        ckpt_program *p, *alone;
        ckpt *c = open_model(&m, &o, &p);
        assert_int_equal(ckpt_compile(c, record, &m, NULL, m.batch, &alone), 0);
        assert_int_equal(count(alone, &op_linear_gelu), i ? LAYERS : 0);
        assert_int_equal(count(alone, &op_gelu), i ? 0 : LAYERS);
        step(&m, alone, 1, &loss[i]);
        ckpt_close(c);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
}

/* 8-bit products and activations have ways of their own. */
static void test_modes(void **state)
{
    const struct model m = {.batch = 1};
    struct ckpt_options o = options();
    (void)state;
    for (int i = 0; i < 2; i++) {
        o.matmul = i ? "fp8" : NULL;
        o.activations = i ? NULL : "8bit";
        struct run *apart = train(m, false, &o), *joined = train(m, true, &o);
        assert_int_equal(joined->forward + joined->backward, 0);
        expect_same(apart, joined);
        free(apart);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variations),
        cmocka_unit_test(test_budgets),
        cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_forward),
        cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
