/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last layer with a number of classes whose rows of scores are not aligned to 16 bytes: it has
 * rows that are no classes, and loss and gradients are those of the layer as it is.  A label among
 * these rows is refused like any other that is no class.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "exec/small.h"
#include "ops.h"

enum { ROWS = 12, CLASSES = 301, ALIGNED = 304, WIDTH = 16, IGNORED = 5 };

struct model {
    bool whole; /* the layer as it is */
    bool biased, adapted;
    int64_t chunk;
    int32_t label; /* of the first row */
    ckpt_tensor x, w, b;
};

struct results {
    float loss, dx[ROWS * WIDTH], dw[CLASSES * WIDTH], db[CLASSES];
};

static ckpt_tensor record(ckpt_tape *t, int64_t batch, void *user)
{
    const struct model *m = user;
    struct ckpt_cross_entropy_spec spec = CKPT_CROSS_ENTROPY_INIT;
    int32_t label[ROWS];
    (void)batch;
    for (int i = 0; i < ROWS; i++)
        label[i] = !i ? m->label : i % 4 == 2 ? IGNORED : (i * 29 + 1) % CLASSES;
    ckpt_tensor at = ckpt_constant(t, "label", CKPT_I32, 1, (int64_t[]){ROWS}, label);
    spec.ignore_index = IGNORED;
    spec.chunk = m->chunk;
    if (!m->adapted) {
        ckpt_output_gradient(t, "dx", m->x);
        ckpt_output_gradient(t, "dw", m->w);
    }
    if (m->biased)
        ckpt_output_gradient(t, "db", m->b);
    ckpt_tensor b = m->biased ? m->b : CKPT_NONE;
    return m->whole ? ckpt_cross_entropy(t, ckpt_linear(t, m->x, m->w, b), at, &spec)
                    : ckpt_linear_cross_entropy(t, m->x, m->w, b, at, &spec);
}

static ckpt *open_model(struct model *m)
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    ckpt *c;
    o.device = small_on_gpu() ? "cuda" : "cpu";
    o.verify = true;
    assert_int_equal(ckpt_open(&c, &o), 0);
    m->x = ckpt_param(c, "x", CKPT_BF16, 2, (int64_t[]){ROWS, WIDTH}, CKPT_NORMAL(1), true);
    m->w = ckpt_param(c, "w", CKPT_BF16, 2, (int64_t[]){CLASSES, WIDTH}, CKPT_NORMAL(1), true);
    m->b = ckpt_param(c, "b", CKPT_BF16, 1, (int64_t[]){CLASSES}, CKPT_NORMAL(1), true);
    return c;
}

static ckpt_program *compile(ckpt *c, struct model *m)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    ckpt_program *p;
    if (ckpt_compile(c, record, m, ckpt_adamw(c, &adamw), 1, &p))
        fail_msg("%s", ckpt_error(c));
    return p;
}

/* Layers with this number of columns. */
static int layers(const ckpt_program *p, int64_t columns)
{
    const ckpt_tape *t = p->tape;
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++)
        if (t->ops.data[i].def == &op_linear)
            n += t->tensors.data[op_out(t, &t->ops.data[i], 0)].desc.shape[1] == columns;
    return n;
}

static void run(struct model m, struct results *r)
{
    ckpt *c = open_model(&m);
    ckpt_program *p = compile(c, &m);
    assert_int_equal(layers(p, m.whole ? CLASSES : ALIGNED), m.chunk ? ROWS / m.chunk : 1);
    assert_int_equal(ckpt_step(p, &r->loss), 0);
    assert_int_equal(ckpt_fetch(p, "dx", r->dx, sizeof r->dx), 0);
    assert_int_equal(ckpt_fetch(p, "dw", r->dw, sizeof r->dw), 0);
    if (m.biased)
        assert_int_equal(ckpt_fetch(p, "db", r->db, sizeof r->db), 0);
    ckpt_close(c);
}

/* Closer than bf16 rounds: the gradients of the parameters are not rounded. */
static void check_close(const float *a, const float *b, int n)
{
    float apart = 0, most = 0;
    for (int i = 0; i < n; i++) {
        apart = fmaxf(apart, fabsf(a[i] - b[i]));
        most = fmaxf(most, fabsf(b[i]));
    }
    if (!(apart <= 1e-5f * most))
        fail_msg("%g apart, of %g", (double)apart, (double)most);
}

static void test_values(void **state)
{
    static struct results aligned, whole;
    (void)state;
    for (int biased = 0; biased < 2; biased++) {
        run((struct model){.biased = biased, .whole = true, .label = 3}, &whole);
        for (int64_t chunk = 0; chunk <= ROWS / 2; chunk += ROWS / 2) {
            run((struct model){.biased = biased, .chunk = chunk, .label = 3}, &aligned);
            check_close(&aligned.loss, &whole.loss, 1);
            check_close(aligned.dw, whole.dw, CLASSES * WIDTH);
            check_close(aligned.db, whole.db, biased ? CLASSES : 0);
            check_close(aligned.dx, whole.dx, chunk ? 0 : ROWS * WIDTH);
        }
    }
}

static void test_labels(void **state)
{
    (void)state;
    for (int trains = 0; trains < 2; trains++)
        for (int32_t label = CLASSES - 1; label <= ALIGNED; label++) {
            struct model m = {.label = label};
            ckpt *c = open_model(&m);
            ckpt_program *p;
            float loss;
            if (trains)
                p = compile(c, &m);
            else
                assert_int_equal(ckpt_compile(c, record, &m, NULL, 1, &p), 0);
            assert_int_equal(ckpt_step(p, &loss), label < CLASSES ? 0 : CKPT_EINDEX);
            if (label >= CLASSES)
                assert_non_null(strstr(ckpt_error(c), "301"));
            ckpt_close(c);
        }
}

/* The layer of a weight with an adapter is as it is: the adapter adds to all its rows. */
static void test_adapter(void **state)
{
    struct ckpt_lora lora = CKPT_LORA_INIT;
    struct model m = {.label = 3, .adapted = true};
    ckpt *c = open_model(&m);
    (void)state;
    lora.pattern = "w";
    assert_int_equal(ckpt_lora(c, &lora), 1);
    ckpt_program *p = compile(c, &m);
    assert_int_equal(layers(p, CLASSES), 2); /* its own, and the second one of the adapter */
    assert_int_equal(ckpt_step(p, NULL), 0);
    ckpt_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_values), cmocka_unit_test(test_labels),
                                       cmocka_unit_test(test_adapter)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
