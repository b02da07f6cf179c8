/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which op computes the gradient of a bias: the op that computes the gradient of the layer's result
 * (passes_request_sums), or a separate pass over it. test_composites checks the values.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
#include "extra.h"
#include "ops.h"
#include "passes/passes.h"
#include "recorders.h"

enum { WIDTH = 16, ROWS = 6 };

/* A model: the biases of its layers are `bias`, which may be CKPT_NONE. */
typedef ckpt_tensor (*record_fn)(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias);

static ckpt_tensor operand(ckpt_tape *t, int ndim, bool trained)
{
    struct ckpt_desc d = {
        .dtype = CKPT_BF16, .ndim = ndim, .shape = {ndim > 1 ? ROWS : WIDTH, WIDTH}};
    desc_dense(&d);
    ckpt_tensor x = tape_new_tensor(t, &d, STORAGE_ACTIVATION);
    t->tensors.data[x.id].needs_grad = trained;
    return x;
}

static ckpt_tensor row(ckpt_tape *t)
{
    return ckpt_reshape(t, operand(t, 1, true), 2, (int64_t[]){1, WIDTH});
}

static ckpt_tensor layer(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    ckpt_tensor w = ckpt_slice(t, operand(t, 2, true), 0, 0, 1);
    return ckpt_linear(t, x, ckpt_contiguous(t, ckpt_expand(t, w, 2, (int64_t[]){WIDTH, WIDTH})),
                       bias);
}

static ckpt_tensor plain_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    return ckpt_layer_norm(t, layer(t, x, bias), CKPT_NONE, CKPT_NONE, 1e-6f);
}

static ckpt_tensor affine_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    return ckpt_layer_norm(t, layer(t, x, bias), operand(t, 1, true), operand(t, 1, true), 1e-6f);
}

static ckpt_tensor modulated_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    return ckpt_layer_norm_modulate(t, layer(t, x, bias), row(t), row(t), 1e-6f);
}

static ckpt_tensor rms_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    return ckpt_rms_norm(t, layer(t, x, bias), operand(t, 1, true), 1e-6f);
}

static ckpt_tensor gate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    return ckpt_gated_residual(t, x, row(t), layer(t, x, bias));
}

/* z + norm(z): the gradient of the norm comes last and has the other gradient as its addend. */
static ckpt_tensor residual(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    ckpt_tensor z = layer(t, x, bias);
    return ckpt_add(t, z, ckpt_layer_norm_modulate(t, z, row(t), row(t), 1e-6f));
}

/* norm(z) + tanh(z): the gradient of z is not the norm's alone, because tanh comes after it. */
static ckpt_tensor shared(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    ckpt_tensor z = layer(t, x, bias), first = ckpt_tanh(t, z);
    return ckpt_add(t, first, ckpt_layer_norm_modulate(t, z, row(t), row(t), 1e-6f));
}

/* The layer computes the scale, whose gradient is another output of the norm's rule. */
static ckpt_tensor scale(ckpt_tape *t, ckpt_tensor x, ckpt_tensor bias)
{
    ckpt_tensor z = layer(t, x, bias), s = layer(t, row(t), bias);
    return ckpt_layer_norm_modulate(t, z, row(t), s, 1e-6f);
}

struct count {
    int sums, reads; /* ops that sum on the way, column_sum */
};

static struct count count(record_fn record, bool has_bias, bool trained)
{
    struct params params = {0};
    struct tape_env env = {.calls = &ops_calls,
                           .backend = CKPT_ON_CPU,
                           .threads = 1,
                           .params = &params,
                           .sharing = {.ranks = 1, .group_ranks = 1}};
    struct count n = {0};
    ckpt_tape *t;
    assert_int_equal(tape_new(&t, &env, 1, 1), 0);
    t->trains = true;
    ckpt_tensor bias = has_bias ? operand(t, 1, trained) : CKPT_NONE;
    ckpt_tensor y = ckpt_cast(t, record(t, operand(t, 2, true), bias), CKPT_F32);
    const ckpt_tensor loss = ckpt_sum(t, ckpt_mul(t, y, y), 3);
    pass_differentiate(&(struct compilation){.tape = t, .loss = loss});
    assert_string_equal(t->error.text, "");
    for (int32_t i = 0; i < t->n_ops; i++) {
        n.sums += extra_has(t->ops.data[i].extra, EXTRA_SUMS);
        n.reads += t->ops.data[i].def == &op_column_sum;
    }
    tape_free(t);
    return n;
}

static void check(record_fn record, bool has_bias, bool trained, int sums, int reads)
{
    const struct count n = count(record, has_bias, trained);
    assert_int_equal(n.sums, sums);
    assert_int_equal(n.reads, reads);
}

static void test_alone(void **state)
{
    const record_fn all[] = {plain_norm, affine_norm, modulated_norm, rms_norm, gate, residual};
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        check(all[i], true, true, 1, 0);
        check(all[i], true, false, 0, 0); /* a frozen bias */
        check(all[i], false, false, 0, 0);
    }
}

static void test_shared(void **state)
{
    (void)state;
    check(shared, true, true, 1, 1);
    check(scale, true, true, 1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
