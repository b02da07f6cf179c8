/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Losses at the end of the forward pass: one op computes loss and gradient, with the bits of the
 * two ops that a program without a backward pass runs.  A loss in chunks processes them one by one.
 * Ops that depend on a loss come after it; where a gradient depends on it, nothing changes.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"
#include "ops.h"

enum { ROWS = 12, CLASSES = 37, WIDTH = 16, CHUNKS = 4, IGNORED = 5, NOISE = 64 };

struct model {
    enum ckpt_dtype dtype;
    int reduction;
    int chunks;
    bool weighs, squares, shows; /* class weights; the loss squared; logits are an output */
    float smoothing, z;
    ckpt_tensor logits, weight, x, w;
};

static struct ckpt_cross_entropy_spec spec_of(const struct model *m)
{
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    spec.reduction = m->reduction;
    spec.label_smoothing = m->smoothing;
    spec.z_loss = m->z;
    spec.ignore_index = IGNORED;
    if (m->weighs)
        spec.weight = m->weight;
    return spec;
}

static ckpt_tensor labels(ckpt_tape *t)
{
    static int32_t label[ROWS];
    for (int i = 0; i < ROWS; i++)
        label[i] = i % 4 == 2 ? IGNORED : (i * 13 + 1) % CLASSES;
    return ckpt_constant(t, "label", CKPT_I32, 1, (int64_t[]){ROWS}, label);
}

static ckpt_tensor loss_of(const struct model *m, ckpt_tape *t, ckpt_tensor logits)
{
    struct ckpt_cross_entropy_spec spec = spec_of(m);
    ckpt_tensor loss = ckpt_cross_entropy(t, logits, labels(t), &spec);
    if (m->reduction == CKPT_REDUCE_NONE)
        loss = ckpt_mean(t, loss, 1);
    loss = m->squares ? ckpt_mul(t, loss, loss) : loss;
    ckpt_output(t, "value", loss);
    return loss;
}

/* The gradient of the logits, which are a parameter, in the backward pass. */
static ckpt_tensor record_trained(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    (void)batch;
    ckpt_output_gradient(t, "dx", m->logits);
    if (m->shows)
        ckpt_output(t, "logits", ckpt_cast(t, m->logits, CKPT_F32));
    return loss_of(m, t, m->logits);
}

/* The same gradient in the forward pass. */
static ckpt_tensor record_asked(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    ckpt_tensor dx, loss = loss_of(m, t, m->logits);
    (void)batch;
    ckpt_gradients(t, loss, 1, &m->logits, &dx);
    ckpt_output(t, "dx", ckpt_cast(t, dx, CKPT_F32));
    return loss;
}

static ckpt *open_model(struct model *m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    float weight[CLASSES];
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.verify = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    for (int i = 0; i < CLASSES; i++)
        weight[i] = 0.5f + (float)(i % 5) / 4;
    m->logits =
        ckpt_param(c, "logits", m->dtype, 2, (int64_t[]){ROWS, CLASSES}, CKPT_NORMAL(3), true);
    m->x = ckpt_param(c, "x", m->dtype, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1), true);
    m->w = ckpt_param(c, "w", m->dtype, 2, (int64_t[]){CLASSES, WIDTH}, CKPT_NORMAL(1), true);
    m->weight = ckpt_param_from(c, "weight", CKPT_F32, 1, (int64_t[]){CLASSES}, weight, false);
    return c;
}

/* Number of ops of this kind on the tape. */
static int count(const ckpt_program *p, const struct ckpt_op_def *def)
{
    int n = 0;
    for (int32_t i = 0; i < p->tape->n_ops; i++)
        n += p->tape->ops.data[i].def == def;
    return n;
}

static void check_bits(struct model *m)
{
    float dx[2][ROWS * CLASSES], loss[2];
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p[2];
    ckpt *c = open_model(m);
    if (ckpt_compile(c, record_asked, m, NULL, 1, &p[0]) ||
        ckpt_compile(c, record_trained, m, ckpt_adamw(c, &adamw), 1, &p[1]))
        fail_msg("%s", ckpt_error(c));
    assert_int_equal(count(p[1], &op_cross_entropy_both), m->squares ? 0 : 1);
    assert_int_equal(count(p[1], &op_cross_entropy), m->squares ? 1 : 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ckpt_step(p[i], NULL), 0);
        assert_int_equal(ckpt_fetch(p[i], "dx", dx[i], sizeof dx[i]), 0);
        assert_int_equal(ckpt_fetch(p[i], "value", &loss[i], sizeof loss[i]), 0);
    }
    assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    ckpt_close(c);
}

static void test_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 48; i++) {
        struct model m = {.dtype = i % 2 ? CKPT_BF16 : CKPT_F32,
                          .reduction = i / 2 % 3,
                          .weighs = i / 6 % 2,
                          .smoothing = i / 12 % 2 ? 0.1f : 0.f,
                          .z = i / 12 % 2 ? 0.01f : 0.f,
                          .squares = i >= 24 && i % 3 == 0,
                          .shows = i >= 24};
        check_bits(&m);
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

static ckpt_tensor record_chunks(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    struct ckpt_cross_entropy_spec spec = spec_of(m);
    (void)batch;
    spec.chunk = ROWS / m->chunks;
    ckpt_tensor loss =
        ckpt_linear_cross_entropy(t, ckpt_tanh(t, m->x), m->w, CKPT_NONE, labels(t), &spec);
    if (m->reduction != CKPT_REDUCE_NONE)
        return loss;
    ckpt_output(t, "rows", loss);
    return ckpt_mean(t, ckpt_mul(t, loss, loss), 1); /* a gradient that depends on the losses */
}

static ckpt_tensor record_noise(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_tensor loss = record_chunks(t, batch, user);
    ckpt_output(t, "noise", ckpt_bernoulli(t, .5f, CKPT_F32, 1, (int64_t[]){NOISE}));
    return loss;
}

/* The next op before (by -1) or after (by 1) op i, without ops that have no kernel and sums of
 * single values. */
static const struct op *beside(const ckpt_tape *t, int32_t i, int by)
{
    const struct op *o;
    do
        o = &t->ops.data[i += by];
    while (o->def->flags & CKPT_OP_VIEW || !o->n_out || o->def == &op_expr);
    return o;
}

/* Each chunk runs its layer, its loss, and the gradients of both. */
static void test_chunks(void **state)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    (void)state;
    for (int reduction = CKPT_REDUCE_MEAN; reduction <= CKPT_REDUCE_SUM; reduction++) {
        struct model m = {
            .dtype = CKPT_BF16, .reduction = reduction, .chunks = CHUNKS, .weighs = true};
        ckpt *c = open_model(&m);
        ckpt_program *p;
        float first, last;
        if (ckpt_compile(c, record_chunks, &m, ckpt_adamw(c, &adamw), 1, &p))
            fail_msg("%s", ckpt_error(c));
        const ckpt_tape *t = p->tape;
        assert_int_equal(count(p, &op_cross_entropy_both), CHUNKS);
        assert_int_equal(count(p, &op_cross_entropy), 0);
        assert_int_equal(count(p, &op_cross_entropy_dx), 0);
        for (int32_t i = 0; i < t->n_ops; i++) {
            if (t->ops.data[i].def != &op_cross_entropy_both)
                continue;
            assert_ptr_equal(beside(t, i, -1)->def, &op_linear);
            assert_int_equal(beside(t, i, -1)->phase, PHASE_BACKWARD);
            /* the gradient is written over the logits */
            assert_int_equal(t->tensors.data[op_in(t, &t->ops.data[i], 1)].storage,
                             t->tensors.data[op_out(t, &t->ops.data[i], 1)].storage);
            assert_true(beside(t, i, 1)->def == &op_linear_dx ||
                        beside(t, i, 1)->def == &op_linear_dw);
        }
        assert_int_equal(ckpt_step(p, &first), 0);
        for (int i = 0; i < 20; i++)
            assert_int_equal(ckpt_step(p, &last), 0);
        assert_true(last < first);
        ckpt_close(c);
    }
}

static ckpt_tensor record_rows(ckpt_tape *t, int64_t batch, void *user)
{
    ckpt_output_gradient(t, "dx", ((const struct model *)user)->x);
    return record_chunks(t, batch, user);
}

static void assert_close(const float *x, const float *y, int n)
{
    for (int i = 0; i < n; i++)
        assert_true(fabsf(x[i] - y[i]) <= 1e-5f * (1 + fabsf(y[i])));
}

/* The losses of single rows: each chunk has its logits, and its gradient reads them. */
static void test_rows(void **state)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    float rows[2][ROWS], dx[2][ROWS * WIDTH];
    (void)state;
    for (int chunks = 1; chunks <= ROWS; chunks++) {
        struct model m = {.reduction = CKPT_REDUCE_NONE, .chunks = chunks, .weighs = true};
        const int k = chunks > 1;
        ckpt *c = open_model(&m);
        ckpt_program *p;
        if (ckpt_compile(c, record_rows, &m, ckpt_adamw(c, &adamw), 1, &p))
            fail_msg("%s", ckpt_error(c));
        if (ROWS % chunks == 0) {
            assert_int_equal(count(p, &op_cross_entropy), chunks);
            assert_int_equal(count(p, &op_cross_entropy_dx), chunks);
        }
        assert_int_equal(ckpt_step(p, NULL), 0);
        assert_int_equal(ckpt_fetch(p, "rows", rows[k], sizeof rows[k]), 0);
        assert_int_equal(ckpt_fetch(p, "dx", dx[k], sizeof dx[k]), 0);
        assert_close(rows[k], rows[0], ROWS);
        assert_close(dx[k], dx[0], ROWS * WIDTH);
        ckpt_close(c);
    }
}

/* Noise that is recorded after the loss does not depend on the number of chunks. */
static void test_noise(void **state)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    (void)state;
    for (int trains = 0; trains < 2; trains++)
        for (int reduction = CKPT_REDUCE_MEAN; reduction <= CKPT_REDUCE_NONE; reduction++) {
            float one[NOISE], noise[NOISE];
            for (int chunks = 1; chunks <= ROWS; chunks++) {
                struct model m = {.reduction = reduction, .chunks = chunks, .weighs = true};
                ckpt *c = open_model(&m);
                const struct ckpt_optimizer *own = trains ? ckpt_adamw(c, &adamw) : NULL;
                ckpt_program *p;
                if (ckpt_compile(c, record_noise, &m, own, 1, &p))
                    fail_msg("%s", ckpt_error(c));
                assert_int_equal(ckpt_step(p, NULL), 0);
                assert_int_equal(ckpt_fetch(p, "noise", noise, sizeof noise), 0);
                if (chunks == 1)
                    memcpy(one, noise, sizeof noise);
                assert_memory_equal(noise, one, sizeof one);
                ckpt_close(c);
            }
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_chunks),
                                       cmocka_unit_test(test_rows), cmocka_unit_test(test_noise)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
