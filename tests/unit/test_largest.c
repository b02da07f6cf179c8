/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes that come from the ops that make them (ops/largest.c): a chain of 8-bit layers
 * behind every op that can, and its gradients, run op by op on the CPU, with them and without, has
 * the same bytes in every storage; what is left or found is the largest by its definition; and
 * which operand of to_fp8 has one left.  GELU and a modulated norm done where copies are made, with
 * their results nowhere, leave the same bytes as well.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "core/bits.h"
#include "cpu.h"
#include "cpu/blas.h"
#include "expr/expr.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

enum { WIDTH = 32, ROWS = 24, OPERANDS = 16 };

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* ---- the chain ------------------------------------------------------------------------------- */

/* A tensor that nobody makes: the test gives it values. */
static ckpt_tensor operand(ckpt_tape *t, int ndim, const int64_t *shape)
{
    struct ckpt_desc d = {.dtype = CKPT_BF16, .ndim = ndim};
    memcpy(d.shape, shape, (size_t)ndim * sizeof *shape);
    desc_dense(&d);
    ckpt_tensor x = tape_new_tensor(t, &d, STORAGE_ACTIVATION);
    t->tensors.data[x.id].needs_grad = true;
    return x;
}

static ckpt_tensor layer(ckpt_tape *t, ckpt_tensor x, bool bias)
{
    return fp8_linear(t, x, operand(t, SHAPE(WIDTH, WIDTH)),
                      bias ? operand(t, SHAPE(WIDTH)) : CKPT_NONE, CKPT_NONE);
}

/* Ten layers: the operands of nine of them and the gradients of as many are made by such ops, that
 * of the first is nobody's, and its gradient that of the last one is broadcast. */
static ckpt_tensor chain(ckpt_tape *t)
{
    const int64_t seen[] = {2, ROWS / 2 * WIDTH};
    ckpt_tensor start = operand(t, SHAPE(2, ROWS / 2, WIDTH)), x = layer(t, start, true);
    ckpt_tensor row[] = {operand(t, SHAPE(2, 1, WIDTH)), operand(t, SHAPE(2, 1, WIDTH))};
    ckpt_tensor one[] = {operand(t, SHAPE(WIDTH)), operand(t, SHAPE(WIDTH))};
    x = layer(t, ckpt_gelu(t, x), false);
    x = layer(t, ckpt_gelu(t, x), false);
    x = layer(t, ckpt_mul(t, ckpt_silu(t, x), start), false);
    x = layer(t, ckpt_modulate(t, x, row[0], row[1]), true);
    x = layer(t, ckpt_layer_norm_modulate(t, x, row[0], row[1], 1e-6f), true);
    x = layer(t, ckpt_layer_norm(t, x, one[0], one[1], 1e-6f), true);
    x = layer(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f), true);
    x = layer(t, ckpt_rms_norm(t, x, one[0], 1e-6f), true);
    x = ckpt_gated_residual(t, start, row[0], x);
    x = ckpt_reshape(t, ckpt_reshape(t, x, 2, seen), 3, (int64_t[]){2, ROWS / 2, WIDTH});
    return layer(t, x, false);
}

struct run {
    struct params params;
    ckpt_tape *t;
    char **bytes;       /* of each storage */
    int32_t n_storages; /* without those of ops that find largest magnitudes */
};

/* Who finds the largest magnitudes: ops of their own, or those that make operands where they can;
 * or besides GELU and norms are done on the way. */
enum way { ALONE, LEFT, ON_THE_WAY, WAYS };

static struct run record(enum way way)
{
    struct run r = {0};
    struct tape_env env = {.backend = CKPT_ON_CPU,
                           .matmul = MATMUL_FP8,
                           .threads = 1,
                           .params = &r.params,
                           .sharing = {.ranks = 1, .sharers = 1}};
    assert_int_equal(tape_new(&r.t, &env, 2, 1), 0);
    r.t->trains = true;
    ckpt_tensor y = ckpt_cast(r.t, chain(r.t), CKPT_F32);
    tape_differentiate(r.t, ckpt_sum(r.t, ckpt_mul(r.t, y, y), 7));
    assert_int_equal(expr_fuse(r.t), 0);
    if (way == ON_THE_WAY)
        ops_forget_sources(r.t);
    if (way != ALONE)
        assert_int_equal(ops_leave_largest(r.t), 0);
    r.n_storages = r.t->n_storages;
    assert_int_equal(ops_find_largest(r.t), 0);
    assert_string_equal(r.t->error.text, "");
    return r;
}

static void drop(struct run *r)
{
    for (int32_t s = 0; s < r->t->n_storages; s++)
        free(r->bytes[s]);
    free(r->bytes);
    tape_free(r->t);
}

/* ---- running it ------------------------------------------------------------------------------ */

static void give_bytes(struct run *r)
{
    const ckpt_tape *t = r->t;
    r->bytes = calloc((size_t)t->n_storages, sizeof *r->bytes);
    for (int32_t s = 0; s < t->n_storages; s++)
        r->bytes[s] = calloc(1, (size_t)t->storages.data[s].bytes + 64);
    for (int32_t i = 1; i < t->n_tensors; i++) {
        const struct tensor *v = &t->tensors.data[i];
        const int64_t n = desc_numel(&v->desc);
        if (v->op >= 0 || v->desc.dtype != CKPT_BF16)
            continue;
        float *x = malloc((size_t)n * sizeof *x);
        ckpt_fill_normal(3, 0, (uint32_t)v->storage, x, n);
        cpu_store(r->bytes[v->storage], x, CKPT_BF16, n);
        free(x);
    }
}

static struct ckpt_view view_of(const struct run *r, int32_t x)
{
    if (x <= 0)
        return (struct ckpt_view){.desc = {.ndim = -1}};
    const struct tensor *v = &r->t->tensors.data[x];
    return (struct ckpt_view){
        r->bytes[v->storage] + v->desc.offset * ckpt_dtype_size(v->desc.dtype), v->desc};
}

static bool is_read(const ckpt_tape *t, int32_t x)
{
    for (int32_t i = 0; i < t->n_ops; i++)
        for (int k = 0; k < t->ops.data[i].n_in; k++)
            if (op_in(t, &t->ops.data[i], k) == x)
                return true;
    return false;
}

/* An output that nobody reads has no address where the kernel bears that. */
static void run_op(const struct run *r, int32_t i)
{
    const struct op *o = &r->t->ops.data[i];
    struct ckpt_view view[OPERANDS];
    struct ckpt_run at = {0};
    void *scratch = calloc(1, (size_t)o->workspace + 64);
    assert_in_range(o->n_in + o->n_out, 0, OPERANDS);
    for (int k = 0; k < o->n_in + o->n_out; k++) {
        const int32_t x = r->t->operands.data[o->operands + k];
        view[k] = view_of(r, x);
        if (k == o->n_in && o->def->flags & CKPT_OP_OPTIONAL_OUT && !is_read(r->t, x))
            view[k].data = NULL;
    }
    struct ckpt_kernel_args a = {.n_in = o->n_in,
                                 .n_out = o->n_out,
                                 .in = view,
                                 .out = view + o->n_in,
                                 .attr = o->attr,
                                 .workspace = scratch,
                                 .workspace_bytes = o->workspace,
                                 .run = &at,
                                 .threads = 1};
    assert_int_equal(o->def->cpu(&a), 0);
    free(scratch);
}

static void run_all(struct run *r)
{
    give_bytes(r);
    for (int32_t i = 0; i < r->t->n_ops; i++)
        if (!(r->t->ops.data[i].def->flags & CKPT_OP_VIEW))
            run_op(r, i);
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Whether the result of GELU or a norm is one that `other` does on its way to copies. */
static bool is_nowhere(const ckpt_tape *t, const ckpt_tape *other, int32_t storage)
{
    const int32_t x = t->storages.data[storage].tensor, op = t->tensors.data[x].op;
    const struct ckpt_op_def *def = op >= 0 ? t->ops.data[op].def : NULL;
    return (def == &op_gelu || def == &op_layer_norm_modulate) && t->tensors.data[x].index == 0 &&
           !is_read(other, x);
}

static void test_same_bytes(void **state)
{
    struct run alone = record(ALONE);
    (void)state;
    assert_int_equal(blas_open(1), 0);
    run_all(&alone);
    for (enum way way = LEFT; way < WAYS; way++) {
        struct run other = record(way);
        int nowhere = 0;
        run_all(&other);
        assert_true(other.n_storages > alone.n_storages || way != LEFT);
        for (int32_t s = 0; s < alone.n_storages; s++) {
            const bool gone = is_nowhere(alone.t, other.t, s);
            assert_int_equal(other.t->storages.data[s].bytes, alone.t->storages.data[s].bytes);
            if (!gone)
                assert_memory_equal(other.bytes[s], alone.bytes[s],
                                    (size_t)alone.t->storages.data[s].bytes);
            nowhere += gone;
        }
        assert_int_equal(nowhere, way == ON_THE_WAY ? 3 : 0);
        drop(&other);
    }
    drop(&alone);
}

static float largest_of(const struct run *r, int32_t x)
{
    struct ckpt_view v = view_of(r, x);
    float most = 0, value;
    for (int64_t i = 0; i < desc_numel(&v.desc); i++) {
        cpu_load(&value, (char *)v.data + i * ckpt_dtype_size(v.desc.dtype), v.desc.dtype, 1);
        most = fmaxf(most, fabsf(value));
    }
    return most;
}

static void test_largest(void **state)
{
    struct run r = record(LEFT);
    int known = 0, alone = 0;
    (void)state;
    assert_int_equal(blas_open(1), 0);
    run_all(&r);
    for (int32_t i = 0; i < r.t->n_ops; i++) {
        const struct op *o = &r.t->ops.data[i];
        if (o->def != &op_to_fp8)
            continue;
        const int32_t most = op_in(r.t, o, 1);
        const bool found = r.t->ops.data[r.t->tensors.data[most].op].def == &op_to_fp8_largest;
        known += !found;
        alone += found;
        assert_true(*(float *)view_of(&r, most).data == largest_of(&r, op_in(r.t, o, 0)));
    }
    /* Ten operands but the first, ten gradients; ten weights. */
    assert_int_equal(known, 9 + 10);
    assert_int_equal(alone, 1 + 10);
    drop(&r);
}

/* Each op leaves one at most, whoever reads it. */
static void test_outputs(void **state)
{
    (void)state;
    for (enum way way = ALONE; way <= LEFT; way++) {
        struct run r = record(way);
        int n = 0;
        for (int32_t i = 0; i < r.t->n_ops; i++) {
            const struct op *o = &r.t->ops.data[i];
            n += o->def == &op_layer_norm_modulate_dx_sums && o->n_out == 5;
            n += o->def == &op_gated_residual_dx_sums && o->n_out == 4;
            n += o->def == &op_gelu_dx_sums && o->n_out == 3;
            n += o->def == &op_expr && o->n_out == 2;
        }
        assert_int_equal(n > 0, way == LEFT);
        r.bytes = calloc((size_t)r.t->n_storages, sizeof *r.bytes);
        drop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_largest),
        cmocka_unit_test(test_outputs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
