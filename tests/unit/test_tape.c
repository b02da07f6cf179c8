/* SPDX-License-Identifier: Apache-2.0 */
/* The ops that reverse mode records: no copy or addition that a kernel can do on the way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <string.h>
#include <cmocka.h>
#include "ops.h"
#include "passes/passes.h"
#include "recorders.h"

enum { HEADS = 2, WIDTH = 8, COLUMNS = HEADS * WIDTH };

/* A model of three parameters, differentiated.  There is no context: a tape only needs its
 * environment. */
struct recorded {
    struct param data[3];
    struct params params;
    ckpt_tensor w, v, scale; /* [3 COLUMNS, COLUMNS], [COLUMNS, COLUMNS], [WIDTH] */
    ckpt_tape *tape;
};

typedef ckpt_tensor (*model)(ckpt_tape *t, const struct recorded *r, ckpt_tensor x);

static ckpt_tensor add_param(struct params *p, char *name, enum ckpt_dtype dtype, int ndim,
                             const int64_t *shape)
{
    struct param *new = &p->data[p->n++];
    *new = (struct param){.name = name, .desc = {.dtype = dtype, .ndim = ndim}, .trainable = true};
    memcpy(new->desc.shape, shape, (size_t)ndim * sizeof *shape);
    desc_dense(&new->desc);
    return (ckpt_tensor){.id = -p->n};
}

/* x is an activation [2, 3, 5, COLUMNS]; so is the model's result, whose mean is the loss. */
static void record(struct recorded *r, enum ckpt_dtype dtype, model f)
{
    int64_t shape[] = {2, 3, 5, COLUMNS}, square[] = {COLUMNS, COLUMNS};
    int64_t wide[] = {3 * COLUMNS, COLUMNS}, width[] = {WIDTH};
    r->params = (struct params){.data = r->data};
    r->w = add_param(&r->params, "w", dtype, 2, wide);
    r->v = add_param(&r->params, "v", dtype, 2, square);
    r->scale = add_param(&r->params, "scale", dtype, 1, width);
    struct tape_env env = {.calls = &ops_calls,
                           .backend = CKPT_ON_CPU,
                           .params = &r->params,
                           .sharing = {.ranks = 1, .group_ranks = 1}};
    assert_int_equal(tape_new(&r->tape, &env, 2, 1), 0);
    ckpt_tape *t = r->tape;
    ckpt_tensor first = ckpt_linear(t, ckpt_randn(t, dtype, 4, shape), r->v, CKPT_NONE);
    ckpt_tensor y = f(t, r, first);
    const ckpt_tensor loss =
        ckpt_mse(t, ckpt_cast(t, y, CKPT_F32), ckpt_randn(t, CKPT_F32, 4, shape), CKPT_NONE);
    pass_differentiate(&(struct compilation){.tape = t, .loss = loss});
    assert_string_equal(t->error.text, "");
}

static void finish(struct recorded *r)
{
    tape_free(r->tape);
}

/* Counts the ops with a kernel and this name, in the backward pass or not. */
static int count(const ckpt_tape *t, const char *name, bool back)
{
    int n = 0;
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        n += !strcmp(o->def->name, name) && !(o->def->flags & CKPT_OP_VIEW) &&
             (o->phase == PHASE_BACKWARD) == back;
    }
    return n;
}

/* ---- the gradients of queries, keys and values are written side by side ------------------------
 */

static ckpt_tensor attend(ckpt_tape *t, const struct recorded *r, ckpt_tensor x, bool temporal)
{
    static const int swap[] = {0, 2, 1, 3, 4, 5};
    struct ckpt_desc d = ckpt_desc_of(t, x);
    ckpt_tensor part[3], qkv = ckpt_linear(t, x, r->w, CKPT_NONE);
    qkv = ckpt_reshape(t, qkv, 6, (int64_t[]){2, 3, 5, 3, HEADS, WIDTH});
    if (temporal)
        qkv = ckpt_permute(t, qkv, swap);
    ckpt_split(t, qkv, 3, 3, part);
    int64_t m = temporal ? 5 : 3, n = temporal ? 3 : 5;
    for (int i = 0; i < 3; i++)
        part[i] = ckpt_reshape(t, part[i], 5, (int64_t[]){2, m, n, HEADS, WIDTH});
    for (int i = 0; i < 2; i++)
        part[i] = ckpt_rms_norm(t, part[i], r->scale, 1e-6f);
    ckpt_tensor o = ckpt_attention(t, part[0], part[1], part[2], CKPT_NONE, NULL);
    return ckpt_reshape(t, temporal ? ckpt_permute(t, o, swap) : o, d.ndim, d.shape);
}

static ckpt_tensor attend_in_space(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    return attend(t, r, x, false);
}

static ckpt_tensor attend_in_time(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    return attend(t, r, x, true);
}

static void test_heads(void **state)
{
    static const model models[] = {attend_in_space, attend_in_time};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct recorded r;
        record(&r, i / 2 ? CKPT_BF16 : CKPT_F32, models[i % 2]);
        assert_int_equal(count(r.tape, "rms_norm_dx", true), 2);
        assert_int_equal(count(r.tape, "concat", true), 0);
        assert_int_equal(count(r.tape, "copy", true), 0);
        finish(&r);
    }
}

/* ---- further gradients of a tensor are added by the kernels that make them ------------------- */

static ckpt_tensor residuals(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    enum ckpt_dtype dtype = ckpt_desc_of(t, x).dtype;
    int64_t one[] = {1, 1, 1, COLUMNS};
    ckpt_tensor row = ckpt_randn(t, dtype, 4, one);
    x = ckpt_gated_residual(t, x, row, ckpt_layer_norm_modulate(t, x, row, row, 1e-6f));
    x = ckpt_add(t, x, ckpt_linear(t, x, r->v, CKPT_NONE));
    x = ckpt_add(t, x, ckpt_rms_norm(t, x, ckpt_randn(t, dtype, 1, &one[3]), 1e-6f));
    return ckpt_add(t, x, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f));
}

static void test_residuals(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct recorded r;
        record(&r, i ? CKPT_BF16 : CKPT_F32, residuals);
        assert_int_equal(count(r.tape, "add", false), 3);
        assert_int_equal(count(r.tape, "add", true), 0);
        finish(&r);
    }
}

/* The third and the fourth likewise: queries, keys and values of one x, and a residual. */
static ckpt_tensor read_by_four(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    ckpt_tensor q = ckpt_linear(t, x, r->v, CKPT_NONE), k = ckpt_linear(t, x, r->v, CKPT_NONE);
    return ckpt_add(t, x, ckpt_mul(t, ckpt_mul(t, q, k), ckpt_linear(t, x, r->v, CKPT_NONE)));
}

static void test_four(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct recorded r;
        record(&r, i ? CKPT_BF16 : CKPT_F32, read_by_four);
        assert_int_equal(count(r.tape, "linear_dx", true), 3);
        assert_int_equal(count(r.tape, "add", true), 0);
        assert_int_equal(count(r.tape, "accumulate", true), 0);
        finish(&r);
    }
}

static void expect_no_addend(const ckpt_tape *t)
{
    for (int32_t i = 0; i < t->n_ops; i++) {
        const struct op *o = &t->ops.data[i];
        if (o->def->flags & CKPT_OP_ADDEND)
            assert_true(op_in(t, o, o->n_in - 1) < 0);
    }
}

/* Up to seven gradients, as with an adapter beside each of the three. */
static ckpt_tensor read_by(ckpt_tape *t, const struct recorded *r, ckpt_tensor x, int n)
{
    ckpt_tensor y = read_by_four(t, r, x);
    for (int i = 4; i < n; i++)
        y = ckpt_mul(t, y, ckpt_linear(t, x, r->v, CKPT_NONE));
    return y;
}

static ckpt_tensor read_by_seven(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    return read_by(t, r, x, 7);
}

static void test_seven(void **state)
{
    struct recorded r;
    (void)state;
    record(&r, CKPT_BF16, read_by_seven);
    assert_int_equal(count(r.tape, "linear_dx", true), 6);
    assert_int_equal(count(r.tape, "add", true), 1); /* the residual's, which no kernel makes */
    assert_int_equal(count(r.tape, "accumulate", true), 0);
    finish(&r);
}

/* More are summed in fp32, in place. */
static ckpt_tensor read_by_eight(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    return read_by(t, r, x, 8);
}

static void test_eight(void **state)
{
    struct recorded r;
    (void)state;
    record(&r, CKPT_BF16, read_by_eight);
    expect_no_addend(r.tape);
    assert_int_equal(count(r.tape, "add", true), 0);
    assert_int_equal(count(r.tape, "accumulate", true), 7);
    finish(&r);
}

/* A kernel that cannot add leaves the addition to a separate op: a gate, and a mean. */
static ckpt_tensor gated_by_its_mean(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    ckpt_tensor row = ckpt_cast(t, ckpt_mean(t, x, 7), CKPT_BF16);
    ckpt_tensor a = ckpt_add(t, x, ckpt_linear(t, row, r->v, CKPT_NONE));
    return ckpt_gated_residual(t, x, row, a);
}

static void test_what_stays(void **state)
{
    struct recorded r;
    (void)state;
    record(&r, CKPT_BF16, gated_by_its_mean);
    expect_no_addend(r.tape);
    assert_int_equal(count(r.tape, "add", true), 3);
    assert_int_equal(count(r.tape, "accumulate", true), 0);
    finish(&r);
}

/* ---- gradients of modulation rows are written side by side in fp32, and rounded together ----- */

static ckpt_tensor modulated(ckpt_tape *t, const struct recorded *r, ckpt_tensor x)
{
    int64_t one[] = {1, 1, 1, COLUMNS}, three[] = {1, 1, 3, COLUMNS};
    ckpt_tensor row = ckpt_randn(t, ckpt_desc_of(t, x).dtype, 4, one), part[3];
    ckpt_split(t, ckpt_reshape(t, ckpt_linear(t, row, r->w, CKPT_NONE), 4, three), 2, 3, part);
    ckpt_tensor a = ckpt_layer_norm_modulate(t, x, part[0], part[1], 1e-6f);
    return ckpt_gated_residual(t, x, part[2], a);
}

static void test_modulation(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct recorded r;
        record(&r, i ? CKPT_BF16 : CKPT_F32, modulated);
        assert_int_equal(count(r.tape, "concat", true), 0);
        assert_int_equal(count(r.tape, "copy", true), 0);
        assert_int_equal(count(r.tape, "cast", true), i ? 2 : 0); /* and the loss */
        finish(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),      cmocka_unit_test(test_residuals),
        cmocka_unit_test(test_four),       cmocka_unit_test(test_seven),
        cmocka_unit_test(test_eight),      cmocka_unit_test(test_what_stays),
        cmocka_unit_test(test_modulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
