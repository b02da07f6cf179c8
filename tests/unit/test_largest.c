/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Largest magnitudes that come from the ops that make them (passes/extra.c): a chain of 8-bit
 * layers behind every op that can, and its gradients, run op by op on the CPU, with them and
 * without, has the same bytes in every storage; what is left or found is the largest by its
 * definition; and which operand of to_fp8 has one left.  The same of attention, whose gradients lie
 * side by side in that of one layer, from one op or three.  GELU and a modulated norm done where
 * copies are made, with their results nowhere, leave the same bytes as well.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "ckpt_tools.h"
#include "attr.h"
#include "core/bits.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/blas.h"
#include "kernels/kernel.h"
#include "expr/expr.h"
#include "extra.h"
#include "fp8.h"
#include "ops.h"
#include "passes/passes.h"
#include "recorders.h"

enum { WIDTH = 32, HEADS = 2, ROWS = 24, OPERANDS = 16 };

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* ---- the chain ------------------------------------------------------------------------------- */

/* A tensor without a producer: the test sets its values. */
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
    x = layer(t, ckpt_gelu_tanh(t, x), false);
    x = layer(t, ckpt_gelu_tanh(t, x), false);
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

/* Queries, keys and values of one layer, n of them. */
static void heads(ckpt_tape *t, ckpt_tensor x, int n, const int64_t *tokens, int ndim,
                  ckpt_tensor *part)
{
    int64_t shape[5];
    memcpy(shape, tokens, (size_t)ndim * sizeof *shape);
    shape[ndim] = n;
    shape[ndim + 1] = HEADS;
    shape[ndim + 2] = WIDTH / HEADS;
    x = fp8_linear(t, x, operand(t, SHAPE(n * WIDTH, WIDTH)), operand(t, SHAPE(n * WIDTH)),
                   CKPT_NONE);
    ckpt_split(t, ckpt_reshape(t, x, ndim + 3, shape), ndim, n, part);
    memmove(shape + ndim, shape + ndim + 1, 2 * sizeof *shape);
    for (int i = 0; i < n; i++)
        part[i] = ckpt_reshape(t, part[i], ndim + 2, shape);
}

/* scale: small where values are large, or probabilities would be 0 and 1 and gradients 0. */
static ckpt_tensor attend(ckpt_tape *t, const ckpt_tensor *qkv, float scale)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    spec.scale = scale;
    ckpt_tensor y = ckpt_attention(t, qkv[0], qkv[1], qkv[2], CKPT_NONE, &spec);
    return ckpt_reshape(t, y, 3, (int64_t[]){2, ROWS / 2, WIDTH});
}

/*
 * Nine layers.  Gradients of the first are attention's alone, those of the third come from a norm,
 * one with angles and attention; then text is attended to, and last is an attention whose queries,
 * keys and values are three layers'.
 */
static ckpt_tensor attended(ckpt_tape *t)
{
    const int64_t tokens[] = {2, ROWS / 2}, packed[] = {ROWS};
    ckpt_tensor x = operand(t, SHAPE(2, ROWS / 2, WIDTH)), qkv[3], kv[2], w = operand(t, SHAPE(16));
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = 3, .shape = {ROWS / 2, 8, 2}},
                     one = {.dtype = CKPT_I32, .ndim = 1, .shape = {2}};
    desc_dense(&d), desc_dense(&one);
    ckpt_tensor table = tape_new_tensor(t, &d, STORAGE_ACTIVATION);
    ckpt_tensor lens = tape_new_tensor(t, &one, STORAGE_ACTIVATION);
    heads(t, x, 3, tokens, 2, qkv);
    x = layer(t, attend(t, qkv, 1e-2f), true);
    heads(t, x, 3, tokens, 2, qkv);
    qkv[0] = ckpt_rms_norm(t, qkv[0], w, 1e-6f);
    qkv[1] = ckpt_rms_norm_rope(t, qkv[1], w, 1e-6f, table, 1);
    x = layer(t, attend(t, qkv, 0.25f), true);
    heads(t, x, 1, tokens, 2, qkv);
    heads(t, operand(t, SHAPE(ROWS, WIDTH)), 2, packed, 1, kv);
    x = ckpt_cross_attention(t, qkv[0], kv[0], kv[1], lens, 1e-4f);
    x = layer(t, ckpt_reshape(t, x, 3, (int64_t[]){2, ROWS / 2, WIDTH}), true);
    for (int i = 0; i < 3; i++)
        heads(t, x, 1, tokens, 2, qkv + i);
    return attend(t, qkv, 1e-8f);
}

typedef ckpt_tensor (*model)(ckpt_tape *t);

struct run {
    struct params params;
    ckpt_tape *t;
    char **bytes;       /* of each storage */
    int32_t n_storages; /* without those of largest magnitudes */
};

/* Who finds the largest magnitudes: ops of their own, or those that make operands where they can;
 * or besides GELU and norms are done on the way. */
enum way { ALONE, LEFT, ON_THE_WAY, WAYS };

static struct run record(model of, enum way way)
{
    struct run r = {0};
    struct tape_env env = {.calls = &ops_calls,
                           .backend = CKPT_ON_CPU,
                           .matmul = MATMUL_FP8,
                           .threads = 1,
                           .params = &r.params,
                           .without = way == ALONE ? 1u << REWRITE_LARGEST : 0,
                           .sharing = {.ranks = 1, .group_ranks = 1}};
    assert_int_equal(tape_new(&r.t, &env, 2, 1), 0);
    r.t->trains = true;
    ckpt_tensor y = ckpt_cast(r.t, of(r.t), CKPT_F32);
    const struct compilation c = {.tape = r.t, .loss = ckpt_sum(r.t, ckpt_mul(r.t, y, y), 7)};
    pass_differentiate(&c);
    assert_int_equal(pass_fuse(&c), 0);
    if (way == ON_THE_WAY)
        pass_sources(&c);
    r.n_storages = r.t->n_storages;
    assert_int_equal(pass_extra(&c), 0);
    assert_int_equal(kernel_bind(r.t), 0);
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
        for (int64_t k = 0; v->op < 0 && v->desc.dtype == CKPT_I32 && k < n; k++)
            ((int32_t *)r->bytes[v->storage])[k] = ROWS / 2 - 1;
        if (v->op >= 0 || v->desc.dtype == CKPT_I32)
            continue;
        float *x = malloc((size_t)n * sizeof *x);
        ckpt_fill_normal(3, 0, (uint32_t)v->storage, x, n);
        cpu_store(r->bytes[v->storage], x, v->desc.dtype, n);
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

/* An output without a reader has no address if the kernel supports that. */
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
                                 .extra = o->extra,
                                 .in = view,
                                 .out = view + o->n_in,
                                 .attr = o->attr,
                                 .workspace = scratch,
                                 .workspace_bytes = o->workspace,
                                 .run = &at,
                                 .threads = 1};
    assert_int_equal(o->run(&a), 0);
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

/* Whether the result of GELU, its gradient or a norm is one that `other` fuses into copies. */
static bool is_nowhere(const ckpt_tape *t, const ckpt_tape *other, int32_t storage)
{
    const int32_t x = t->storages.data[storage].tensor, op = t->tensors.data[x].op;
    const struct ckpt_op_def *def = op >= 0 ? t->ops.data[op].def : NULL;
    const bool gone = def == &op_gelu || def == &op_gelu_dx || def == &op_layer_norm_modulate;
    return gone && !is_read(other, x);
}

/* nowhere: results that are done on the way. */
static void check_same_bytes(model of, int nowhere_at_all)
{
    struct run alone = record(of, ALONE);
    assert_int_equal(blas_open(1), 0);
    run_all(&alone);
    for (enum way way = LEFT; way < WAYS; way++) {
        struct run other = record(of, way);
        int nowhere = 0;
        run_all(&other);
        if (way == LEFT)
            assert_true(other.t->n_ops < alone.t->n_ops);
        for (int32_t s = 0; s < alone.n_storages; s++) {
            const bool gone = way == ON_THE_WAY && is_nowhere(alone.t, other.t, s);
            assert_int_equal(other.t->storages.data[s].bytes, alone.t->storages.data[s].bytes);
            if (!gone)
                assert_memory_equal(other.bytes[s], alone.bytes[s],
                                    (size_t)alone.t->storages.data[s].bytes);
            nowhere += gone;
        }
        assert_int_equal(nowhere, way == ON_THE_WAY ? nowhere_at_all : 0);
        drop(&other);
    }
    drop(&alone);
}

static void test_same_bytes(void **state)
{
    (void)state;
    check_same_bytes(chain, 3 + 1); /* sums that are nobody's gradient here */
    check_same_bytes(attended, 0);
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

/* How many magnitudes come from the ops that make operands, and are found by ops of their own. */
struct found {
    int known, alone;
};

static struct found check_largest(model of)
{
    struct run r = record(of, LEFT);
    struct found n = {0};
    assert_int_equal(blas_open(1), 0);
    run_all(&r);
    for (int32_t i = 0; i < r.t->n_ops; i++) {
        const struct op *o = &r.t->ops.data[i];
        if (o->def != &op_to_fp8)
            continue;
        float most = 0;
        bool alone = false;
        for (int k = FP8_MOST; k < o->n_in; k = k == FP8_MOST ? FP8_FROM_INPUTS : k + 1) {
            const int32_t x = op_in(r.t, o, k);
            alone |= r.t->ops.data[r.t->tensors.data[x].op].def == &op_to_fp8_largest;
            most = fmaxf(most, *(float *)view_of(&r, x).data);
        }
        n.known += !alone;
        n.alone += alone;
        assert_true(most > 0 && most == largest_of(&r, op_in(r.t, o, 0)));
    }
    drop(&r);
    return n;
}

static void test_largest(void **state)
{
    (void)state;
    /* Ten operands but the first, ten gradients; ten weights. */
    struct found n = check_largest(chain);
    assert_int_equal(n.known, 9 + 10);
    assert_int_equal(n.alone, 1 + 10);
    /* Operands of three layers behind attention; gradients of queries, keys and values, seven; ten
     * weights.  Those of products are the operands of five layers, the first one's and text are
     * nobody's, three share one; gradients of results of attention are those of layers. */
    n = check_largest(attended);
    assert_int_equal(n.known, 3 + 7);
    assert_int_equal(n.alone, 10 + 5 + 3);
}

/* How many ops that round sum the rows of what they do; each as a sum in double has it. */
static int check_sums(model of)
{
    struct run r = record(of, ALONE);
    int n = 0;
    assert_int_equal(blas_open(1), 0);
    run_all(&r);
    for (int32_t i = 0; i < r.t->n_ops; i++) {
        const struct op *o = &r.t->ops.data[i];
        assert_true(o->def != &op_column_sum);
        if (o->def != &op_to_fp8 || !extra_has(o->extra, EXTRA_SUMS) ||
            ((const struct to_fp8_attr *)o->attr)->source)
            continue;
        struct ckpt_view x = view_of(&r, op_in(r.t, o, FP8_FROM));
        const float *sum = view_of(&r, op_out(r.t, o, o->n_out - 1)).data;
        const int64_t cols = x.desc.shape[x.desc.ndim - 1], rows = desc_numel(&x.desc) / cols;
        for (int64_t j = 0; j < cols; j++) {
            double want = 0, size = 0;
            for (int64_t k = 0; k < rows; k++) {
                float value;
                cpu_load(&value, (uint16_t *)x.data + k * cols + j, CKPT_BF16, 1);
                want += value;
                size += fabs((double)value);
            }
            assert_true(fabs(sum[j] - want) <= 1e-6 * size);
        }
        n++;
    }
    drop(&r);
    return n;
}

/* Gradients of all ten layers with attention, which attention, its norms or products have made;
 * those of the chain's biases come from the ops in front. */
static void test_sums(void **state)
{
    (void)state;
    assert_int_equal(check_sums(attended), 10);
    assert_int_equal(check_sums(chain), 0);
}

/* Extra outputs are the last ones of a call, in whatever order they were asked for. */
static void test_list(void **state)
{
    (void)state;
    enum { N = 7 };
    for (int first = EXTRA_SUMS; first < EXTRA_LARGEST + ATTENTION_RESULTS; first++)
        for (int second = EXTRA_SUMS; second < EXTRA_LARGEST + ATTENTION_RESULTS; second++) {
            const uint32_t list = (uint32_t)(first | second << 4);
            assert_int_equal(extra_index((uint32_t)first, N, first), N - 1);
            if (second == first)
                continue;
            assert_int_equal(extra_index((uint32_t)first, N, second), -1);
            assert_int_equal(extra_count(list), 2);
            assert_int_equal(extra_index(list, N, first), N - 2);
            assert_int_equal(extra_index(list, N, second), N - 1);
        }
}

/* Each op provides at most one magnitude, whatever its readers. */
static void test_outputs(void **state)
{
    (void)state;
    for (enum way way = ALONE; way <= LEFT; way++) {
        struct run r = record(chain, way);
        int n = 0;
        for (int32_t i = 0; i < r.t->n_ops; i++) {
            const struct op *o = &r.t->ops.data[i];
            n += o->def == &op_layer_norm_modulate_dx && o->n_out == 5;
            n += o->def == &op_gated_residual_dx && o->n_out == 4;
            n += o->def == &op_gelu_dx && o->n_out == 3;
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
        cmocka_unit_test(test_same_bytes), cmocka_unit_test(test_largest),
        cmocka_unit_test(test_outputs),    cmocka_unit_test(test_sums),
        cmocka_unit_test(test_list),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
