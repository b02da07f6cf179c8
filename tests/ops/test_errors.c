/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every op with shapes or dtypes that do not fit: compiling must fail with CKPT_ESHAPE (CKPT_EINVAL
 * for an argument that is no shape), and the sentence must begin with the line of this file and the
 * name of the call, and name the offending shape.
 */
#include "ckpt_nn.h"

#include <stdio.h>
#include <string.h>

/* The case being recorded, counted through the lists below. */
struct bad {
    int wanted, index;
    const char *op, *mentions;
    int line;
    ckpt_tensor result;
};

/* Operands are recorded inside the argument list of the call under test.  C leaves open whether
 * that happens before or after the call notes its own line, so the line is noted here again. */
static ckpt_tensor zeros(ckpt_tape *t, int line, enum ckpt_dtype dtype, int ndim,
                         const int64_t *shape)
{
    static const int32_t data[4096];
    static int count;
    char name[16];
    snprintf(name, sizeof(name), "zeros%d", count++);
    ckpt_tensor x = ckpt_constant(t, name, dtype, ndim, shape, data);
    ckpt_tape_at(t, __FILE__, line);
    return x;
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define F(...)       zeros(t, __LINE__, CKPT_F32, SHAPE(__VA_ARGS__))
#define H(...)       zeros(t, __LINE__, CKPT_BF16, SHAPE(__VA_ARGS__))
#define I(...)       zeros(t, __LINE__, CKPT_I32, SHAPE(__VA_ARGS__))
#define NONE         CKPT_NONE
#define AXES(...)    ((int[]){__VA_ARGS__})
#define TENSORS(...) ((ckpt_tensor[]){__VA_ARGS__})

/* One case: `call` must be refused, naming op and `shape`. */
#define BAD(name, shape, call)                                                                     \
    if (b->index++ == b->wanted) {                                                                 \
        b->op = (name);                                                                            \
        b->mentions = (shape);                                                                     \
        b->line = __LINE__;                                                                        \
        b->result = (call);                                                                        \
    }

/* clang-format off */
static void bad_arithmetic(ckpt_tape *t, struct bad *b)
{
    BAD("linear", "[3, 5]", ckpt_linear(t, F(2, 4), F(3, 5), NONE))
    BAD("linear", "[4]", ckpt_linear(t, F(2, 5), F(3, 5), F(4)))
    BAD("linear", "[3, 5, 1]", ckpt_linear(t, F(2, 5), F(3, 5, 1), NONE))
    BAD("linear", "bf16 [3, 5]", ckpt_linear(t, F(2, 5), H(3, 5), NONE))
    BAD("linear", "i32 [2, 5]", ckpt_linear(t, I(2, 5), I(3, 5), NONE))
    BAD("linear", "none", ckpt_linear(t, F(2, 5), NONE, NONE))
    BAD("linear_add", "[2, 4]", ckpt_linear_add(t, F(2, 5), F(3, 5), NONE, F(2, 4)))
    BAD("linear_add", "bf16 [2, 3]", ckpt_linear_add(t, F(2, 5), F(3, 5), NONE, H(2, 3)))
    BAD("add", "[2, 3]", ckpt_add(t, F(2, 3), F(2, 4)))
    BAD("add", "i32", ckpt_add(t, F(2, 3), I(2, 3)))
    BAD("sub", "[4, 3]", ckpt_sub(t, F(2, 3), F(4, 3)))
    BAD("sub", "i32", ckpt_sub(t, I(2, 3), F(2, 3)))
    BAD("mul", "[3, 2, 3]", ckpt_mul(t, F(2, 2, 3), F(3, 2, 3)))
    BAD("mul", "i32", ckpt_mul(t, F(2, 3), I(2, 3)))
    BAD("add", "[3]", ckpt_add(t, I(2, 4), I(3)))
    BAD("affine", "whole", ckpt_affine(t, I(2, 3), 1, 0.5f))
    BAD("clamp", "whole", ckpt_clamp(t, I(2, 3), -1.5f, 2))
    BAD("affine", "missing", ckpt_affine(t, CKPT_NONE, 1, 0))
    BAD("where", "[3]", ckpt_where(t, I(3), F(2, 4), F(2, 4)))
    BAD("where", "fp32 [2, 1]", ckpt_where(t, F(2, 1), F(2, 4), F(2, 4)))
    BAD("where", "i32 [2, 4]", ckpt_where(t, I(2, 1), I(2, 4), F(2, 4)))
    BAD("gelu", "i32", ckpt_gelu_tanh(t, I(2, 3)))
    BAD("silu", "i32", ckpt_silu(t, I(2, 3)))
    BAD("silu", "none", ckpt_silu(t, NONE))
}

static void bad_functions(ckpt_tape *t, struct bad *b)
{
    BAD("exp", "i32 [2, 3]", ckpt_exp(t, I(2, 3)))
    BAD("erf", "none", ckpt_erf(t, NONE))
    BAD("div", "[2, 4]", ckpt_div(t, F(2, 3), F(2, 4)))
    BAD("div", "i32", ckpt_div(t, F(2, 3), I(2, 3)))
    BAD("pow", "[3, 3]", ckpt_pow(t, F(2, 3), F(3, 3)))
    BAD("maximum", "axis 0 has sizes 2 and 4", ckpt_maximum(t, F(2, 3), F(4, 3)))
    BAD("eq", "[2, 4]", ckpt_eq(t, I(2, 3), I(2, 4)))
    BAD("lt", "none", ckpt_lt(t, I(2, 3), NONE))
    BAD("and", "must be i32", ckpt_and(t, I(2, 3), F(2, 3)))
    BAD("not", "fp32 [2, 3]", ckpt_not(t, F(2, 3)))
    BAD("dropout", "i32", ckpt_dropout(t, I(2, 3), 0.5f))
    BAD("iota", "empty", ckpt_iota(t, CKPT_F32, SHAPE(2, 0), 0))
    BAD("bernoulli", "empty", ckpt_bernoulli(t, 0.5f, CKPT_F32, SHAPE(0, 2)))
}

static void bad_norms(ckpt_tape *t, struct bad *b)
{
    BAD("layer_norm", "i32", ckpt_layer_norm(t, I(2, 3), CKPT_NONE, CKPT_NONE, 1e-6f))
    /* No kernel gets a tensor without rows: gradients would divide by their number. */
    BAD("input", "axis 0 has size 0", ckpt_input(t, "rows", CKPT_F32, SHAPE(0, 3)))
    BAD("input", "6: the tensor would be too large", ckpt_input(t, "a", CKPT_F32, SHAPE(1L << 60)))
    BAD("input", "axis 1 has size 0", ckpt_input(t, "places", CKPT_BF16, SHAPE(2, 0, 5)))
    BAD("rms_norm", "[4]", ckpt_rms_norm(t, F(2, 3), F(4), 1e-6f))
    BAD("rms_norm", "[1, 3]", ckpt_rms_norm(t, F(2, 3), F(1, 3), 1e-6f))
    BAD("rms_norm", "bf16 [3]", ckpt_rms_norm(t, F(2, 3), H(3), 1e-6f))
    BAD("modulate", "[3, 1, 5]", ckpt_modulate(t, F(2, 4, 5), F(3, 1, 5), F(2, 1, 5)))
    BAD("modulate", "[2, 5]", ckpt_modulate(t, F(2, 4, 5), F(2, 5), F(2, 5)))
    BAD("modulate", "[2, 1, 1]", ckpt_modulate(t, F(2, 4, 5), F(2, 1, 5), F(2, 1, 1)))
    BAD("layer_norm_modulate", "i32", ckpt_layer_norm_modulate(t, I(2, 5), F(1, 5), F(1, 5), 0))
    BAD("layer_norm_modulate", "[3, 5]", ckpt_layer_norm_modulate(t, F(2, 5), F(1, 5), F(3, 5), 0))
    BAD("layer_norm_modulate", "eps", ckpt_layer_norm_modulate(t, F(2, 5), F(1, 5), F(1, 5), -1))
    BAD("gated_residual", "[2, 3, 5]", ckpt_gated_residual(t, F(2, 4, 5), F(2, 3, 5), F(2, 4, 5)))
    BAD("gated_residual", "[2, 4, 1]", ckpt_gated_residual(t, F(2, 4, 5), F(2, 4, 5), F(2, 4, 1)))
    BAD("gated_residual", "i32", ckpt_gated_residual(t, F(2, 4), I(2, 4), F(2, 4)))
}

#define SEE(q, k, v, spec) ckpt_attention(t, q, k, v, CKPT_NONE, spec)

static void bad_attention(ckpt_tape *t, struct bad *b)
{
    ckpt_tensor q = F(2, 4, 2, 8), k = F(5, 2, 8), lens;
    BAD("rope", "[2, 3, 5]", ckpt_rope(t, F(2, 3, 5), F(3, 2, 2), 1))
    BAD("rope", "[4, 3, 2]", ckpt_rope(t, F(2, 3, 6), F(4, 3, 2), 1))
    BAD("rope", "[2, 3, 6]", ckpt_rope(t, F(2, 3, 6), F(3, 3, 2), 3))
    BAD("rope", "bf16", ckpt_rope(t, F(2, 3, 6), H(3, 3, 2), 1))
    BAD("rms_norm_rope", "[4]", ckpt_rms_norm_rope(t, F(2, 3, 6), F(4), 0.f, F(3, 3, 2), 1))
    BAD("rms_norm_rope", "[4, 3, 2]", ckpt_rms_norm_rope(t, F(2, 3, 6), F(6), 0.f, F(4, 3, 2), 1))
    BAD("attention", "[4, 2, 6]", SEE(F(4, 2, 8), F(4, 2, 6), F(4, 2, 6), NULL))
    BAD("attention", "[5, 2, 8]", SEE(F(4, 2, 8), F(4, 2, 8), k, NULL))
    BAD("attention", "[4, 3, 8]", SEE(F(4, 2, 8), F(4, 3, 8), F(4, 3, 8), NULL))
    BAD("attention", "[3, 4, 2, 8]", SEE(q, F(3, 4, 2, 8), F(3, 4, 2, 8), NULL))
    BAD("attention", "[2, 8]", SEE(F(2, 8), F(2, 8), F(2, 8), NULL))
    BAD("attention", "bf16", SEE(F(4, 2, 8), H(4, 2, 8), F(4, 2, 8), NULL))
    struct ckpt_attention_spec window = CKPT_ATTENTION_INIT, first = CKPT_ATTENTION_INIT;
    struct ckpt_attention_spec lengths = CKPT_ATTENTION_INIT;
    window.window = 4;
    first.first = I(5);
    lengths.lengths = I(3);
    BAD("attention", "window 4", SEE(q, q, q, &window))
    BAD("attention", "first must be i32 [..., L]", SEE(q, q, q, &first))
    BAD("attention", "lengths must be i32 [...]", SEE(q, q, q, &lengths))
    BAD("attention", "not a multiple of 3", SEE(F(4, 2, 8), F(4, 3, 8), F(4, 3, 8), NULL))
    BAD("attention", "[..., H, L, M]", ckpt_attention(t, q, q, q, F(2, 5, 4), NULL))
    BAD("cross_attention", "[3]", ckpt_cross_attention(t, q, k, k, I(3), 1))
    BAD("cross_attention", "[5, 3, 8]", ckpt_cross_attention(t, q, F(5, 3, 8), F(5, 3, 8), I(2), 1))
    BAD("cross_attention", "[6, 2, 8]", ckpt_cross_attention(t, q, k, F(6, 2, 8), I(2), 1))
    BAD("cross_attention", "[4, 2, 8]", ckpt_cross_attention(t, F(4, 2, 8), k, k, I(4), 1))
    BAD("cross_attention", "fp32 [2]", ckpt_cross_attention(t, q, k, k, F(2), 1))
    BAD("pack", "[2, 4]", ckpt_pack(t, F(2, 3, 5), I(2, 4), &lens))
    BAD("pack", "[2, 3]", ckpt_pack(t, F(2, 3), I(2, 3), &lens))
    BAD("pack", "fp32 [2, 3]", ckpt_pack(t, F(2, 3, 5), F(2, 3), &lens))
}

static void bad_embeddings(ckpt_tape *t, struct bad *b)
{
    BAD("timestep_embedding", "[2]", ckpt_timestep_embedding(t, F(2), 7, 10000, CKPT_F32))
    BAD("timestep_embedding", "[2, 2]", ckpt_timestep_embedding(t, F(2, 2), 8, 10000, CKPT_F32))
    BAD("timestep_embedding", "i32", ckpt_timestep_embedding(t, I(2), 8, 10000, CKPT_F32))
    BAD("patchify", "[2, 3, 4, 5]", ckpt_patchify(t, F(2, 3, 4, 5), 1, 2, 2))
    BAD("patchify", "[1, 2, 3, 4, 5]", ckpt_patchify(t, F(1, 2, 3, 4, 5), 1, 0, 2))
    BAD("unpatchify", "[2, 3, 6, 8]", ckpt_unpatchify(t, F(2, 3, 6, 8), 3, 3, 4, 6, 1, 2, 2))
    BAD("unpatchify", "[2, 3, 5, 8]", ckpt_unpatchify(t, F(2, 3, 5, 8), 2, 3, 4, 6, 1, 2, 2))
    BAD("unpatchify", "[2, 4, 6, 8]", ckpt_unpatchify(t, F(2, 4, 6, 8), 2, 3, 4, 6, 1, 2, 2))
}

static void bad_lookup(ckpt_tape *t, struct bad *b)
{
    BAD("index_select", "fp32 [3]", ckpt_index_select(t, F(4, 5), 0, F(3)))
    BAD("index_select", "no axis 2", ckpt_index_select(t, F(4, 5), 2, I(3)))
    BAD("index_select", "9 axes", ckpt_index_select(t, F(1, 1, 1, 1, 1), 0, I(1, 1, 1, 1, 1)))
    BAD("embedding", "3 axes", ckpt_embedding(t, F(4, 5, 6), I(3), -1))
    BAD("embedding", "padding is 4", ckpt_embedding(t, F(4, 5), I(3), 4))
    BAD("gather", "axis 1", ckpt_gather(t, F(4, 5), 0, I(3, 4)))
    BAD("gather", "equally many axes", ckpt_gather(t, F(4, 5), 0, I(3)))
    BAD("scatter_add", "same shape", ckpt_scatter_add(t, F(4, 5), 0, I(3, 5), F(2, 5)))
    BAD("scatter_add", "axes other than 0", ckpt_scatter_add(t, F(4, 5), 0, I(3, 1), F(3, 1)))
    BAD("scatter_add", "i32", ckpt_scatter_add(t, F(4, 5), 0, I(3, 5), I(3, 5)))
    BAD("index_add", "axes other than 0", ckpt_index_add(t, F(4, 5), 0, I(3), F(3, 1)))
    BAD("index_add", "i32", ckpt_index_add(t, F(4, 5), 0, I(3), I(3, 5)))
    BAD("grouped_matmul", "same dtype", ckpt_grouped_matmul(t, H(4, 5), F(2, 5, 3), I(2), false))
    BAD("grouped_matmul", "5 in x and 3", ckpt_grouped_matmul(t, F(4, 5), F(2, 5, 3), I(2), true))
    BAD("grouped_matmul", "one number", ckpt_grouped_matmul(t, F(4, 5), F(2, 5, 3), I(3), false))
    BAD("grouped_matmul", "i32", ckpt_grouped_matmul(t, F(4, 5), F(2, 5, 3), F(2), false))
    BAD("grouped_matmul", "two axes", ckpt_grouped_matmul(t, F(4, 5, 1), F(2, 5, 3), I(2), false))
    BAD("argsort", "i32", ckpt_argsort(t, I(4, 5), false))
    BAD("topk", "k is 6", ckpt_topk(t, F(4, 5), 6, NULL))
}

static void bad_folds(ckpt_tape *t, struct bad *b)
{
    BAD("layer_norm", "[4]", ckpt_layer_norm(t, F(2, 3), F(4), NONE, 1e-6f))
    BAD("layer_norm", "needs a weight", ckpt_layer_norm(t, F(2, 3), NONE, F(3), 1e-6f))
    BAD("layer_norm", "bf16 [3]", ckpt_layer_norm(t, F(2, 3), F(3), H(3), 1e-6f))
    BAD("amax", "i32 [2, 3]", ckpt_amax(t, I(2, 3), 1))
    BAD("amin", "0x4", ckpt_amin(t, F(2, 3), 4))
    BAD("argmax", "no axis 2", ckpt_argmax(t, F(2, 3), 2))
    BAD("var", "correction is 3", ckpt_var(t, F(2, 3), 2, 3))
    BAD("softmax", "no axis -1", ckpt_softmax(t, F(2, 3), -1))
    BAD("log_softmax", "i32", ckpt_log_softmax(t, I(2, 3), 1))
    BAD("cumsum", "no axis 2", ckpt_cumsum(t, F(2, 3), 2))
    BAD("matmul", "4 in a and 5 in b", ckpt_matmul(t, F(3, 4), F(5, 6), false, false))
    BAD("matmul", "sizes 2 and 3", ckpt_matmul(t, F(2, 3, 4), F(3, 4, 6), false, false))
    BAD("matmul", "fewer than two", ckpt_matmul(t, F(4), F(4, 6), false, false))
    BAD("matmul", "bf16", ckpt_matmul(t, F(3, 4), H(4, 6), false, false))
    BAD("expand", "axis 0 does not broadcast", ckpt_expand(t, F(2, 3), SHAPE(4, 3)))
    BAD("expand", "more axes", ckpt_expand(t, F(2, 3), SHAPE(3)))
    BAD("squeeze", "not 1", ckpt_squeeze(t, F(2, 3), 0))
    BAD("pad", "reflection", ckpt_pad(t, F(2, 3), 0, 2, 0, CKPT_PAD_REFLECT, 0))
    BAD("avg_pool", "window", ckpt_avg_pool(t, F(1, 4, 4, 2), (int64_t[]){5, 1}, NULL))
    BAD("resize_linear", "below 1", ckpt_resize_linear(t, F(1, 4, 4, 2), (int64_t[]){0, 1}))
    BAD("resize_linear", "one to three", ckpt_resize_linear(t, F(4, 2), (int64_t[]){1, 1}))
    BAD("resize_nearest", "below 1", ckpt_resize_nearest(t, F(1, 4, 4, 2), (int64_t[]){4, 0}))
    BAD("resize_nearest", "one to three", ckpt_resize_nearest(t, F(4, 2), (int64_t[]){1, 1}))
    BAD("resize_nearest", "no sizes", ckpt_resize_nearest(t, F(1, 4, 2), NULL))
    BAD("adaptive_max_pool", "no sizes", ckpt_adaptive_max_pool(t, F(1, 4, 2), NULL))
    BAD("adaptive_max_pool", "below 1", ckpt_adaptive_max_pool(t, F(1, 4, 2), (int64_t[]){-1}))
    BAD("adaptive_max_pool", "below 1", ckpt_adaptive_max_pool(t, F(1, 4, 2), (int64_t[]){0}))
    BAD("adaptive_max_pool", "large", ckpt_adaptive_max_pool(t, F(1, 4, 2), (int64_t[]){1 << 30}))
    BAD("pixel_shuffle", "divide", ckpt_pixel_shuffle(t, F(1, 4, 4, 6), (int64_t[]){4, 1}))
    BAD("one_hot", "one class", ckpt_one_hot(t, I(2, 3), 0, CKPT_F32))
    BAD("one_hot", "i32", ckpt_one_hot(t, F(2, 3), 4, CKPT_F32))
    BAD("masked_fill", "fp32", ckpt_masked_fill(t, F(2, 3), F(2, 3), 0))
}

static void bad_views(ckpt_tape *t, struct bad *b)
{
    ckpt_tensor part[3] = {NONE, NONE, NONE};
    BAD("reshape", "[2, 6]", ckpt_reshape(t, F(2, 6), SHAPE(5, 2)))
    BAD("reshape", "[2, 6]", ckpt_reshape(t, F(2, 6), SHAPE(-3, -4)))
    BAD("reshape", "12 elements", ckpt_reshape(t, F(2, 6), SHAPE(-1, 5)))
    BAD("stop_gradient", "missing", ckpt_stop_gradient(t, CKPT_NONE))
    BAD("permute", "[2, 3, 4]", ckpt_permute(t, F(2, 3, 4), AXES(0, 1, 1)))
    BAD("permute", "[2, 3, 4]", ckpt_permute(t, F(2, 3, 4), AXES(0, 1, 3)))
    BAD("slice", "[2, 6]", ckpt_slice(t, F(2, 6), 1, 2, 7))
    BAD("slice", "[2, 6]", ckpt_slice(t, F(2, 6), 1, 4, 4))
    BAD("slice", "[2, 6]", ckpt_slice(t, F(2, 6), 2, 0, 1))
    BAD("slice", "[2, 6]", ckpt_slice(t, F(2, 6), 0, -1, 1))
    BAD("split", "[2, 5]", (ckpt_split(t, F(2, 5), 1, 3, part), part[0]))
    BAD("split", "[2, 6]", (ckpt_split(t, F(2, 6), 2, 3, part), part[0]))
    BAD("concat", "[3, 4]", ckpt_concat(t, 1, 2, TENSORS(F(2, 4), F(3, 4))))
    BAD("concat", "[2, 4, 1]", ckpt_concat(t, 1, 2, TENSORS(F(2, 4), F(2, 4, 1))))
    BAD("concat", "another dtype", ckpt_concat(t, 1, 2, TENSORS(F(2, 4), H(2, 4))))
    BAD("concat", "[2, 4]", ckpt_concat(t, 2, 2, TENSORS(F(2, 4), F(2, 4))))
    BAD("cast", "[2, 4]", ckpt_cast(t, F(2, 4), (enum ckpt_dtype)9))
}

#define NORM_SILU ckpt_group_norm_silu

static void bad_vae(ckpt_tape *t, struct bad *b)
{
    struct ckpt_conv_spec far = CKPT_CONV_INIT, still = CKPT_CONV_INIT;
    far.before[1] = -1;
    still.stride[0] = 0;
    BAD("conv", "[2, 5, 5, 3]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 3, 3, 2), NONE, NULL))
    BAD("conv", "[5, 3]", ckpt_conv(t, F(5, 3), F(4, 3), NONE, NULL))
    BAD("conv", "[4, 3, 3, 3]", ckpt_conv(t, F(2, 5, 5, 5, 3), F(4, 3, 3, 3), NONE, NULL))
    BAD("conv", "[4, 7, 3, 3]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 7, 3, 3), NONE, NULL))
    BAD("conv", "[3]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 3, 3, 3), F(3), NULL))
    BAD("conv", "bf16", ckpt_conv(t, F(2, 5, 5, 3), H(4, 3, 3, 3), NONE, NULL))
    BAD("conv", "bf16 [4]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 3, 3, 3), H(4), NULL))
    BAD("conv", "[2, 5, 5, 3]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 3, 3, 3), NONE, &far))
    BAD("conv", "[2, 5, 5, 3]", ckpt_conv(t, F(2, 5, 5, 3), F(4, 3, 3, 3), NONE, &still))
    BAD("group_norm_silu", "[2, 3, 6]", NORM_SILU(t, F(2, 3, 6), F(6), F(6), 4, 1e-5f, true))
    BAD("group_norm_silu", "[2, 3, 6]", NORM_SILU(t, F(2, 3, 6), F(6), F(6), 0, 1e-5f, true))
    BAD("group_norm_silu", "[5]", NORM_SILU(t, F(2, 3, 6), F(6), F(5), 2, 1e-5f, true))
    BAD("group_norm_silu", "bf16 [6]", NORM_SILU(t, F(2, 3, 6), H(6), F(6), 2, 1e-5f, true))
    BAD("group_norm_silu", "[2, 3, 6]", NORM_SILU(t, F(2, 3, 6), F(6), F(6), 2, -1, true))
    BAD("upsample_nearest", "[2, 3]", ckpt_upsample_nearest(t, F(2, 3), (int64_t[]){2}))
    BAD("upsample_nearest", "[2, 3, 4]", ckpt_upsample_nearest(t, F(2, 3, 4), (int64_t[]){0}))
    BAD("l1", "[2, 4]", ckpt_l1(t, F(2, 3), F(2, 4)))
    BAD("l1", "i32", ckpt_l1(t, F(2, 3), I(2, 3)))
    BAD("kl_normal", "[3]", ckpt_kl_normal(t, F(2, 3), F(3)))
    BAD("kl_normal", "bf16 [2, 3]", ckpt_kl_normal(t, F(2, 3), H(2, 3)))
    BAD("sample_normal", "[2, 4]", ckpt_sample_normal(t, F(2, 3), F(2, 3), F(2, 4)))
}

/* Specs with one invalid value each. */
static struct ckpt_conv_spec conv_spec(int64_t dilation, int64_t groups, int64_t more)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.dilation[0] = dilation;
    spec.groups = groups;
    spec.output_padding[0] = more;
    return spec;
}

static void bad_convs(ckpt_tape *t, struct bad *b)
{
    struct ckpt_conv_spec wide = conv_spec(3, 1, 0), none = conv_spec(0, 1, 0);
    struct ckpt_conv_spec halves = conv_spec(1, 2, 0), empty = conv_spec(1, 0, 0);
    struct ckpt_conv_spec more = conv_spec(1, 1, 1), cut = CKPT_CONV_INIT, same = CKPT_CONV_INIT;
    struct ckpt_conv_spec huge = conv_spec(1, INT64_MAX, 0);
    cut.before[0] = cut.after[0] = 4;
    same.invariant = true;
    BAD("conv", "dilated by 3", ckpt_conv(t, F(2, 5, 3), F(4, 3, 3), NONE, &wide))
    BAD("conv", "dilation of 0", ckpt_conv(t, F(2, 5, 3), F(4, 3, 3), NONE, &none))
    BAD("conv", "2 groups do not divide the 3", ckpt_conv(t, F(2, 5, 3), F(4, 3, 1), NONE, &halves))
    BAD("conv", "2 groups do not divide the 5", ckpt_conv(t, F(2, 5, 4), F(5, 3, 2), NONE, &halves))
    BAD("conv", "w is for 4", ckpt_conv(t, F(2, 5, 4), F(4, 3, 4), NONE, &halves))
    BAD("conv", "0 groups", ckpt_conv(t, F(2, 5, 4), F(4, 3, 4), NONE, &empty))
    BAD("conv", "groups do not", ckpt_conv(t, F(2, 5, 4), F(4, 3, 4), NONE, &huge))
    BAD("conv_transpose", "w is for 4", ckpt_conv_transpose(t, F(2, 5, 3), F(4, 3, 3), NONE, NULL))
    BAD("conv_transpose", "2 groups", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 3), NONE, &halves))
    BAD("conv_transpose", "output", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 3), NONE, &more))
    BAD("conv_transpose", "no position", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 3), NONE, &cut))
    BAD("conv_transpose", "size 4", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 4), F(3), NULL))
    BAD("conv_transpose", "dtype", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 4), H(4), NULL))
    BAD("conv_transpose", "invariant", ckpt_conv_transpose(t, F(2, 5, 3), F(3, 3, 4), NONE, &same))
    BAD("conv_transpose", "[5, 3]", ckpt_conv_transpose(t, F(5, 3), F(3, 3), NONE, NULL))
    BAD("conv_transpose", "bf16", ckpt_conv_transpose(t, F(2, 5, 3), H(3, 3, 4), NONE, NULL))
}

static void bad_pools(ckpt_tape *t, struct bad *b)
{
    struct ckpt_pool_spec back = CKPT_POOL_INIT, far = CKPT_POOL_INIT, pad = CKPT_POOL_INIT;
    const int64_t two[] = {2, 2}, none[] = {0, 2}, nine[] = {9, 2};
    back.stride[1] = -1;
    far.before[0] = 2;
    pad.after[1] = -1;
    BAD("max_pool", "stride of -1", ckpt_max_pool(t, F(2, 5, 5, 3), two, &back))
    BAD("max_pool", "less than the window", ckpt_max_pool(t, F(2, 5, 5, 3), two, &far))
    BAD("avg_pool", "padding of 0 and -1", ckpt_avg_pool(t, F(2, 5, 5, 3), two, &pad))
    BAD("avg_pool", "window of 0", ckpt_avg_pool(t, F(2, 5, 5, 3), none, NULL))
    BAD("avg_pool", "does not fit", ckpt_avg_pool(t, F(2, 5, 5, 3), nine, NULL))
    BAD("avg_pool", "i32", ckpt_avg_pool(t, I(2, 5, 5, 3), two, NULL))
    BAD("avg_pool", "[2, 3]", ckpt_avg_pool(t, F(2, 3), two, NULL))
    BAD("max_pool", "no window", ckpt_max_pool(t, F(2, 5, 5, 3), NULL, NULL))
}

static void bad_perceptual(ckpt_tape *t, struct bad *b)
{
    const int64_t wide[] = {9, 9};
    ckpt_tensor q = F(2, 6), m = F(2, 1, 2, 3);
    BAD("relu", "i32", ckpt_relu(t, I(2, 3)))
    BAD("max_pool", "[2, 3]", ckpt_max_pool(t, F(2, 3), wide, NULL))
    BAD("max_pool", "[2, 5, 9, 3]", ckpt_max_pool(t, F(2, 5, 9, 3), wide, NULL))
    BAD("feature_distance", "[2, 4]", ckpt_feature_distance(t, F(2, 3), F(2, 4), F(3)))
    BAD("feature_distance", "[4]", ckpt_feature_distance(t, F(2, 3), F(2, 3), F(4)))
    BAD("feature_distance", "bf16", ckpt_feature_distance(t, F(2, 3), H(2, 3), F(3)))
    BAD("quantize", "[5, 4]", ckpt_quantize(t, F(2, 3), F(5, 4), NULL, NULL))
    BAD("quantize", "[3]", ckpt_quantize(t, F(2, 3), F(3), NULL, NULL))
    BAD("quantize", "bf16", ckpt_quantize(t, F(2, 3), H(5, 3), NULL, NULL))
    BAD("group_norm_moments", "[2, 1, 6]", ckpt_group_norm_moments(t, F(2, 1, 6), 4))
    BAD("group_norm_moments", "[2, 6]", ckpt_group_norm_moments(t, F(2, 6), 2))
    BAD("group_norm_join", "[2, 1, 2, 2]", ckpt_group_norm_join(t, 1, TENSORS(F(2, 1, 2, 2)), 0))
    BAD("group_norm_join", "[2, 1, 3, 3]", ckpt_group_norm_join(t, 2, TENSORS(m, F(2, 1, 3, 3)), 0))
    BAD("group_norm_join", "[2, 1, 2, 3]", ckpt_group_norm_join(t, 1, TENSORS(F(2, 1, 2, 3)), -1))
    BAD("group_norm_apply", "[2, 4, 2]", ckpt_group_norm_apply(t, q, F(2, 4, 2), F(6), F(6), true))
    BAD("group_norm_apply", "[3, 2, 2]", ckpt_group_norm_apply(t, q, F(3, 2, 2), F(6), F(6), true))
    BAD("group_norm_apply", "[5]", ckpt_group_norm_apply(t, q, F(2, 2, 2), F(6), F(5), true))
}

#define LOSS  ckpt_linear_cross_entropy
#define LAYER ckpt_nn_apply_transformer_layer

/* Calls that record others: the sentence begins with the name of what was called. */
static void bad_composed(ckpt_tape *t, struct bad *b)
{
    const int64_t many[] = {3, 1LL << 60}, none[] = {0, 2}, two[] = {2, 2};
    struct ckpt_nn_norm norm = {.weight = F(4)};
    struct ckpt_nn_linear layer = {.weight = F(3, 4)};
    struct ckpt_nn_mlp mlp = {.up = layer, .down = layer};
    struct ckpt_nn_transformer_layer transformer = {.norm1 = norm};
    BAD("sort", "i32 [4, 5]", ckpt_sort(t, I(4, 5), false, NULL))
    BAD("sort", "none", ckpt_sort(t, NONE, false, NULL))
    BAD("topk", "i32 [4, 5]", ckpt_topk(t, I(4, 5), 2, NULL))
    BAD("bce_with_logits", "[2, 4]", ckpt_bce_with_logits(t, F(2, 3), F(2, 4), NONE, 0))
    BAD("huber", "[2, 4]", ckpt_huber(t, F(2, 3), F(2, 4), 1, 0))
    BAD("smooth_l1", "none", ckpt_smooth_l1(t, F(2, 3), NONE, 1, 0))
    BAD("kl_div", "[4, 3]", ckpt_kl_div(t, F(2, 3), F(4, 3), false, 0))
    BAD("cosine_embedding", "[2, 4]", ckpt_cosine_embedding(t, F(2, 3), F(2, 4), I(2), 0, 0))
    BAD("cosine_embedding", "[3]", ckpt_cosine_embedding(t, F(2, 3), F(2, 3), I(3), 0, 0))
    BAD("linear_cross_entropy", "[4, 7]", LOSS(t, F(2, 5), F(4, 7), NONE, I(2), NULL))
    BAD("linear_cross_entropy", "i32 [3]", LOSS(t, F(2, 5), F(4, 5), NONE, I(3), NULL))
    BAD("instance_norm", "[5]", ckpt_instance_norm(t, F(2, 3, 6), F(5), F(6), 1e-5f))
    BAD("instance_norm", "none", ckpt_instance_norm(t, NONE, F(6), F(6), 1e-5f))
    BAD("var", "i32 [2, 3]", ckpt_var(t, I(2, 3), 2, 1))
    BAD("var", "none", ckpt_var(t, NONE, 2, 1))
    BAD("logsumexp", "i32", ckpt_logsumexp(t, I(2, 3), 1))
    BAD("scatter_add", "[2, 5]", ckpt_scatter_add(t, F(4, 5), 0, I(3, 5), F(2, 5)))
    BAD("resize_nearest", "one to three", ckpt_resize_nearest(t, NONE, two))
    BAD("adaptive_max_pool", "i32", ckpt_adaptive_max_pool(t, I(1, 4, 4, 2), two))
    BAD("pixel_shuffle", "one to three", ckpt_pixel_shuffle(t, NONE, two))
    BAD("unsqueeze", "axis", ckpt_unsqueeze(t, F(2, 3), 4))
    BAD("transpose", "axis", ckpt_transpose(t, F(2, 3), 0, 2))
    BAD("stack", "[1, 2, 4]", ckpt_stack(t, 0, 2, TENSORS(F(2, 3), F(2, 4))))
    BAD("stack", "axis", ckpt_stack(t, 5, 2, TENSORS(F(2, 3), F(2, 3))))
    BAD("repeat", "[1, 2, 3]", ckpt_repeat(t, F(2, 3), none))
    BAD("repeat", "large", ckpt_repeat(t, F(2, 3), many))
    BAD("flip", "axis", ckpt_flip(t, F(2, 3), 2))
    BAD("roll", "axis", ckpt_roll(t, F(2, 3), 2, 1))
    BAD("pad", "large", ckpt_pad(t, F(2, 3), 0, 1LL << 60, 0, CKPT_PAD_CONSTANT, 0))
    BAD("pad", "large", ckpt_pad(t, F(2, 3), 0, 1LL << 60, 0, CKPT_PAD_REPLICATE, 0))
    BAD("pad", "axis", ckpt_pad(t, NONE, 0, 1, 0, CKPT_PAD_CONSTANT, 0))
    BAD("masked_fill", "[2, 4]", ckpt_masked_fill(t, F(2, 3), I(2, 4), 0))
    BAD("embedding", "i32", ckpt_embedding(t, F(4, 5), F(3), -1))
    BAD("nn_apply_norm", "[2, 3]", ckpt_nn_apply_norm(t, &norm, F(2, 3)))
    BAD("nn_apply_linear", "[2, 3]", ckpt_nn_apply_linear(t, &layer, F(2, 3)))
    BAD("nn_apply_mlp", "[2, 3]", ckpt_nn_apply_mlp(t, &mlp, F(2, 3)))
    BAD("nn_apply_transformer_layer", "[2, 3]", LAYER(t, &transformer, F(2, 3), NONE, NONE, NULL))
}

static void bad_reductions(ckpt_tape *t, struct bad *b)
{
    BAD("sum", "[2, 4]", ckpt_sum(t, F(2, 4), 4))
    BAD("sum", "i32", ckpt_sum(t, I(2, 4), 1))
    BAD("mean", "[2, 4]", ckpt_mean(t, F(2, 4), 8))
    BAD("mse", "[2, 3, 5]", ckpt_mse(t, F(2, 3, 4), F(2, 3, 5), NONE))
    BAD("mse", "[2, 3]", ckpt_mse(t, F(2, 3, 4), F(2, 3, 4), I(2, 3)))
    BAD("mse", "fp32 [2, 4]", ckpt_mse(t, F(2, 3, 4), F(2, 3, 4), F(2, 4)))
    BAD("mse", "i32", ckpt_mse(t, I(2, 3, 4), F(2, 3, 4), NONE))
    BAD("cross_entropy", "[3]", ckpt_cross_entropy(t, F(2, 5), I(3), NULL))
    BAD("cross_entropy", "[2, 5, 1]", ckpt_cross_entropy(t, F(2, 5, 1), I(2), NULL))
    BAD("cross_entropy", "fp32 [2]", ckpt_cross_entropy(t, F(2, 5), F(2), NULL))
}
/* clang-format on */

static ckpt_tensor record_bad(ckpt_tape *t, int64_t micro_batch, void *user)
{
    struct bad *b = user;
    (void)micro_batch;
    bad_arithmetic(t, b);
    bad_functions(t, b);
    bad_norms(t, b);
    bad_attention(t, b);
    bad_embeddings(t, b);
    bad_lookup(t, b);
    bad_folds(t, b);
    bad_views(t, b);
    bad_vae(t, b);
    bad_convs(t, b);
    bad_pools(t, b);
    bad_perceptual(t, b);
    bad_reductions(t, b);
    bad_composed(t, b);
    /* The error persists: later calls neither repair nor hide it. */
    return ckpt_add(t, b->result, F(7, 7, 7));
}

static int complain(const struct bad *b, const char *what, int code, const char *message)
{
    printf("FAIL line %d, %s: %s (%s: %s)\n", b->line, b->op, what, ckpt_error_name(code), message);
    return 1;
}

static int judge(const struct bad *b, int code, const char *message)
{
    char place[64];
    snprintf(place, sizeof(place), "test_errors.c:%d:", b->line);
    if (code != CKPT_ESHAPE && code != CKPT_EINVAL)
        return complain(b, "was not refused as a shape", code, message);
    if (!strstr(message, b->mentions))
        return complain(b, "the message does not name the shape", code, message);
    const char *name = strstr(message, place);
    if (!name)
        return complain(b, "the message does not name the line", code, message);
    name += strlen(place) + 1;
    size_t n = strlen(b->op);
    if (strncmp(name, b->op, n) || !strchr(": ", name[n]))
        return complain(b, "the message does not begin with the name of the call", code, message);
    return 0;
}

int main(void)
{
    int failures = 0;
    struct bad b = {.wanted = 0};
    for (;; b.wanted++) {
        ckpt *c = NULL;
        ckpt_program *p = NULL;
        b.index = 0;
        b.op = NULL;
        b.result = CKPT_NONE;
        if (ckpt_open(&c, NULL)) {
            printf("FAIL ckpt_open: %s\n", ckpt_error(NULL));
            return 1;
        }
        int code = ckpt_compile(c, record_bad, &b, NULL, 1, &p);
        if (b.op)
            failures += judge(&b, code, ckpt_error(c));
        ckpt_program_free(p);
        ckpt_close(c);
        if (!b.op)
            break;
    }
    printf("%d refused calls, %d failures\n", b.wanted, failures);
    return failures || b.wanted < 100 ? 1 : 0;
}
