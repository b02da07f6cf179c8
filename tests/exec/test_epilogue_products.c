/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GELU and gates in the epilogue of products: a model trains with the same bits as with separate
 * ops, without a budget and under small ones, with tiers and with micro-steps; which ops are
 * given epilogues; and that no value is stored for the backward pass if a product recomputes it.
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
#include "ops.h"

enum { ROWS = 264, TILES = 2, WIDTH = 64, HIDDEN = 72, LAYERS = 2, MORE_LAYERS = 3, STEPS = 2 };

/* How a layer differs from a plain perceptron, with GELU between two layers, or with a gate. */
enum variation {
    PLAIN,
    BIAS,       /* GELU: none of the layer before; a gate: of both layers before */
    SHOWN,      /* the result of GELU, or of the gate, is an output */
    READ_TWICE, /* and read by another op, before the product that computes its gradient */
    BEHIND,     /* and by another op, whose gradient comes after that product */
    ADDEND,     /* the layer before GELU, or the gate's layer, adds something */
    RESHAPED,   /* the next layer reads a view of the result */
    FROZEN,     /* only the first layer has gradients */
    NARROW,     /* too few rows for an epilogue */
    /* only for gates */
    UP_FIRST,    /* up's layer comes before the gate's layer, and up before the SiLU */
    SILU_SHOWN,  /* the SiLU is an output */
    UP_BETWEEN,  /* up is read before the layer of the gate */
    TWO_INPUTS,  /* gate and up are made of two tensors */
    ONE_WEIGHT,  /* gate and up are the same product */
    GATE_ITSELF, /* up is the gate */
    OTHER,       /* GELU instead of SiLU */
    ADAPTERS,    /* on the layers of gate and up */
    ADAPTER,     /* on the next layer */
    VARIATIONS
};

struct model {
    enum variation is;
    bool gated, epilogues, deep; /* of more layers */
    int64_t batch;
    ckpt_tensor up[MORE_LAYERS], up_bias[MORE_LAYERS], down[MORE_LAYERS], down_bias[MORE_LAYERS],
        gate[MORE_LAYERS], gate_bias[MORE_LAYERS], first;
};

static int layers(const struct model *m)
{
    return m->deep ? MORE_LAYERS : LAYERS;
}

static ckpt_tensor make_layer(ckpt_tape *t, const struct model *m, ckpt_tensor x, ckpt_tensor w,
                              ckpt_tensor bias, bool adds)
{
    const bool biased = m->gated == (m->is == BIAS);
    if (m->is == ADDEND && adds)
        return ckpt_linear_add(t, x, w, bias, ckpt_concat(t, 2, 2, (ckpt_tensor[]){x, x}));
    return ckpt_linear(t, x, w, biased ? bias : CKPT_NONE);
}

/* GELU of a layer, or its gate. */
static ckpt_tensor activation(ckpt_tape *t, const struct model *m, int i, ckpt_tensor x)
{
    if (!m->gated)
        return ckpt_gelu_tanh(t, make_layer(t, m, x, m->up[i], m->up_bias[i], true));
    const ckpt_tensor of_up = m->is == TWO_INPUTS ? ckpt_affine(t, x, 2.f, 0.f) : x;
    const ckpt_tensor w_up = m->is == ONE_WEIGHT ? m->gate[i] : m->up[i];
    const bool before = m->is == UP_FIRST || m->is == UP_BETWEEN;
    ckpt_tensor gate, silu, up = CKPT_NONE;
    if (before)
        up = make_layer(t, m, of_up, w_up, m->up_bias[i], false);
    if (m->is == UP_BETWEEN)
        ckpt_output(t, i ? "between1" : "between0", ckpt_cast(t, up, CKPT_F32));
    gate = make_layer(t, m, x, m->gate[i], m->gate_bias[i], true);
    silu = m->is == OTHER ? ckpt_gelu_tanh(t, gate) : ckpt_silu(t, gate);
    if (m->is == SILU_SHOWN)
        ckpt_output(t, i ? "silu1" : "silu0", ckpt_cast(t, silu, CKPT_F32));
    if (!before)
        up = m->is == GATE_ITSELF ? gate : make_layer(t, m, of_up, w_up, m->up_bias[i], false);
    return before ? ckpt_mul(t, up, silu) : ckpt_mul(t, silu, up);
}

static ckpt_tensor layer(ckpt_tape *t, const struct model *m, int i, ckpt_tensor x)
{
    const struct ckpt_desc d = ckpt_desc_of(t, x);
    const int64_t seen[] = {d.shape[0] * d.shape[1], HIDDEN};
    ckpt_tensor y, a = activation(t, m, i, x);
    if (m->is == READ_TWICE)
        a = ckpt_add(t, ckpt_tanh(t, a), a);
    if (m->is == SHOWN && i == 0)
        ckpt_output(t, "shown", ckpt_cast(t, a, CKPT_F32));
    if (m->is == RESHAPED)
        y = ckpt_linear(t, ckpt_reshape(t, a, 2, seen), m->down[i], m->down_bias[i]);
    else
        y = ckpt_linear(t, a, m->down[i], m->down_bias[i]);
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
    for (int i = 0; i < layers(m); i++)
        x = layer(t, m, i, x);
    x = ckpt_cast(t, x, CKPT_F32);
    return ckpt_mean(t, ckpt_mul(t, x, x), 7);
}

static ckpt_tensor param(ckpt *c, const char *kind, int i, int64_t rows, int64_t cols, bool trained)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d", kind, i);
    return ckpt_param(c, name, CKPT_BF16, cols ? 2 : 1, (int64_t[]){rows, cols}, CKPT_NORMAL(0.1f),
                      trained);
}

static void make_params(ckpt *c, struct model *m)
{
    const bool trains = m->is != FROZEN, biased = m->gated == (m->is == BIAS);
    const int64_t hidden = m->is == ADDEND ? 2 * WIDTH : HIDDEN;
    m->first = param(c, "first", 0, WIDTH, WIDTH, true);
    for (int i = 0; i < layers(m); i++) {
        if (m->gated)
            m->gate[i] = param(c, "gate", i, hidden, WIDTH, trains);
        if (m->gated && biased)
            m->gate_bias[i] = param(c, "gate_bias", i, hidden, 0, trains);
        if (m->is != ONE_WEIGHT && m->is != GATE_ITSELF)
            m->up[i] = param(c, "up", i, hidden, WIDTH, trains);
        if (biased || m->is == ADDEND)
            m->up_bias[i] = param(c, "up_bias", i, hidden, 0, trains);
        m->down[i] = param(c, "down", i, WIDTH, hidden, trains);
        m->down_bias[i] = param(c, "down_bias", i, WIDTH, 0, trains);
    }
}

static void adapt(ckpt *c, const struct model *m)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    if (m->is != ADAPTERS && m->is != ADAPTER)
        return;
    lora.pattern = m->is == ADAPTER ? "down?" : "*[pe]?";
    lora.rank = 8;
    if (ckpt_lora(c, &lora) < 1)
        fail_msg("%s", ckpt_error(c));
}

/* NULL if the budget is refused. */
static ckpt *open_model(struct model *m, const struct ckpt_options *o, ckpt_program **p)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt *c;
    if (ckpt_open(&c, o))
        fail_msg("%s", ckpt_error(NULL));
    c->programs.epilogue_tiles = m->epilogues ? TILES : 0;
    make_params(c, m);
    adapt(c, m);
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
    feed_normal(p, n, number);
    if (ckpt_step(p, loss))
        fail_msg("variation %d, step %d: %s", m->is, number, p->programs->error->text);
}

enum { VALUES = WIDTH * WIDTH + MORE_LAYERS * 4 * (2 * WIDTH * WIDTH + 2 * WIDTH) };

struct run {
    float loss[STEPS], value[VALUES];
    int forward, backward,
        again;     /* ops with epilogues; of the latter those that make a result again */
    int64_t bytes; /* that the plan takes */
};

static void count_epilogues(struct run *r, const ckpt_program *p)
{
    r->forward = count(p, &op_linear_gelu) + count(p, &op_linear_gated);
    r->backward = count(p, &op_linear_dx_gelu) + count(p, &op_linear_dx_gated);
    for (int32_t i = 0; i < p->tape->n_ops; i++) {
        const struct op *op = &p->tape->ops.data[i];
        if (op->def == &op_linear_dx_gelu)
            r->again += extra_has(op->extra, EXTRA_GELU);
        if (op->def == &op_linear_dx_gated)
            r->again += op->n_out > 2;
    }
}

/* NULL if the budget is refused. */
static struct run *train(struct model m, bool epilogues, const struct ckpt_options *o)
{
    ckpt_program *p;
    m.epilogues = epilogues;
    ckpt *c = open_model(&m, o, &p);
    if (!c)
        return NULL;
    struct run *r = calloc(1, sizeof *r);
    r->bytes = p->reserved + p->plan->persistent + p->plan->transient;
    count_epilogues(r, p);
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
    o.verify = true;
    return o;
}

struct expected {
    int forward, backward, again;
};

static void expect_epilogues(const struct model *m, const struct expected *e)
{
    const struct ckpt_options o = options();
    struct run *apart = train(*m, false, &o), *with = train(*m, true, &o);
    assert_int_equal(apart->forward + apart->backward, 0);
    if (with->forward != e->forward || with->backward != e->backward || with->again != e->again)
        fail_msg("variation %d%s: %d, %d, %d with epilogues", m->is, m->gated ? " of a gate" : "",
                 with->forward, with->backward, with->again);
    expect_same(apart, with);
    free(apart);
}

/* Counts the ops with epilogues of each variation, and checks that epilogues change no bit. */
static void test_gelu(void **state)
{
    static const struct expected expected[NARROW + 1] = {
        [PLAIN] = {LAYERS, LAYERS, LAYERS},
        [BIAS] = {LAYERS, LAYERS, LAYERS},
        [SHOWN] = {LAYERS, LAYERS, LAYERS},
        [READ_TWICE] = {0, 0, 0},
        [BEHIND] = {0, 0, 0},
        [ADDEND] = {0, LAYERS, 0},
        [RESHAPED] = {0, 0, 0},
        [FROZEN] = {LAYERS, LAYERS, 0},
        [NARROW] = {0, 0, 0},
    };
    (void)state;
    for (int i = 0; i <= NARROW; i++)
        expect_epilogues(&(struct model){.is = (enum variation)i, .batch = 1}, &expected[i]);
}

/* The gradient has an epilogue, and h recomputed, whether or not the layers have them. */
static void test_gates(void **state)
{
    static const struct expected expected[VARIATIONS] = {
        [PLAIN] = {LAYERS, LAYERS, LAYERS},
        [BIAS] = {0, LAYERS, LAYERS},
        [SHOWN] = {LAYERS, LAYERS, LAYERS},
        [READ_TWICE] = {0, 0, 0},
        [BEHIND] = {0, 0, 0},
        [ADDEND] = {0, LAYERS, LAYERS},
        [RESHAPED] = {0, 0, 0},
        [FROZEN] = {LAYERS, LAYERS, 0},
        [NARROW] = {0, 0, 0},
        [UP_FIRST] = {LAYERS, LAYERS, LAYERS},
        [SILU_SHOWN] = {0, LAYERS, LAYERS},
        [UP_BETWEEN] = {0, LAYERS, LAYERS},
        [TWO_INPUTS] = {0, LAYERS, LAYERS},
        [ONE_WEIGHT] = {LAYERS, LAYERS, LAYERS},
        [GATE_ITSELF] = {0, LAYERS, LAYERS},
        [OTHER] = {0, 0, 0},
        [ADAPTERS] = {0, LAYERS, 0},
        [ADAPTER] = {0, 0, 0},
    };
    (void)state;
    for (int i = 0; i < VARIATIONS; i++)
        expect_epilogues(&(struct model){.is = (enum variation)i, .gated = true, .batch = 1},
                         &expected[i]);
}

/* Recomputed values are not stored: the step needs less memory, and a smaller budget suffices. */
static void check_budgets(bool gated)
{
    const struct model m = {.gated = gated, .deep = true, .batch = 4};
    struct ckpt_options o = options();
    struct run *free_apart = train(m, false, &o), *free_with = train(m, true, &o);
    const int64_t wide = 4 * ROWS * HIDDEN * 2; /* bytes of a result of GELU, or of h */
    const int fewer = MORE_LAYERS - 1 - gated; /* of those; for a gate the CPU has one as scratch */
    int ran = 0;
    assert_true(free_with->bytes <= free_apart->bytes - fewer * wide * 9 / 10);
    for (int tier = 0; tier < 3; tier++)
        for (int share = 90; share > 40; share -= 15) {
            o.vram = free_with->bytes * share / 100;
            o.host = tier ? INT64_C(64) << 20 : 0;
            o.nvme = tier == 2 ? ".:64M" : NULL;
            struct run *r = train(m, true, &o);
            if (!r)
                break;
            assert_true(r->bytes <= o.vram);
            ran++;
            expect_same(free_with, r);
        }
    assert_true(ran >= 6);
    expect_same(free_apart, free_with);
    free(free_apart);
}

static void test_budgets(void **state)
{
    (void)state;
    check_budgets(false);
    check_budgets(true);
}

/* Gradients are summed over micro-steps, each of which has an epilogue in the same way. */
static void test_micro_steps(void **state)
{
    struct ckpt_options o = options();
    (void)state;
    o.micro_batch = 2;
    for (int gated = 0; gated < 2; gated++) {
        const struct model m = {.gated = gated, .batch = 4};
        struct run *apart = train(m, false, &o), *with = train(m, true, &o);
        assert_int_equal(with->backward, LAYERS);
        expect_same(apart, with);
        free(apart);
    }
}

/* Without a backward pass only the result of GELU, or of the gate, is read. */
static void check_forward(bool gated)
{
    const struct ckpt_options o = options();
    float loss[2];
    for (int i = 0; i < 2; i++) {
        struct model m = {.gated = gated, .batch = 2, .epilogues = i};
        ckpt_program *p, *alone;
        ckpt *c = open_model(&m, &o, &p);
        assert_int_equal(ckpt_compile(c, record, &m, NULL, m.batch, &alone), 0);
        assert_int_equal(count(alone, gated ? &op_linear_gated : &op_linear_gelu), i ? LAYERS : 0);
        step(&m, alone, 1, &loss[i]);
        ckpt_close(c);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
}

static void test_forward(void **state)
{
    (void)state;
    check_forward(false);
    check_forward(true);
}

/* With 8-bit products or 8-bit activations none of these ops has an epilogue. */
static void test_modes(void **state)
{
    struct ckpt_options o = options();
    (void)state;
    for (int i = 0; i < 4; i++) {
        const struct model m = {.gated = i % 2, .batch = 1};
        o.matmul = i / 2 ? "fp8" : NULL;
        o.activations = i / 2 ? NULL : "8bit";
        struct run *apart = train(m, false, &o), *with = train(m, true, &o);
        assert_int_equal(with->forward + with->backward, 0);
        expect_same(apart, with);
        free(apart);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu),    cmocka_unit_test(test_gates),
        cmocka_unit_test(test_budgets), cmocka_unit_test(test_micro_steps),
        cmocka_unit_test(test_forward), cmocka_unit_test(test_modes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
