/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of bench_ops: linear layers with 8-bit operands. */
#include "bench/ops/bench_record.h"
#include "attr.h"
#include "extra.h"
#include "fp8.h"
#include "ops.h"
#include "tape/tape.h"

/* As with --matmul fp8, for any size. */
ckpt_tensor bench_record_fp8(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    t->trains = true;
    return fp8_linear(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                      operand(t, dtype, SHAPE(MLP, WIDTH)), operand(t, dtype, SHAPE(MLP)),
                      operand(t, dtype, SHAPE(z->rows, MLP)));
}

static ckpt_tensor layer_fp8(ckpt_tape *t, ckpt_tensor x, bool bias)
{
    return fp8_linear(t, x, operand(t, CKPT_BF16, SHAPE(WIDTH, WIDTH)),
                      bias ? operand(t, CKPT_BF16, SHAPE(WIDTH)) : CKPT_NONE, CKPT_NONE);
}

/* Such layers after every op that outputs the largest magnitude of its result (extra.c), and
 * with gradients that do. */
ckpt_tensor bench_record_fp8_chain(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x, row[2], one[2];
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    t->trains = true;
    t->env.matmul = MATMUL_FP8;
    const ckpt_tensor start = operand(t, dtype, SHAPE(2, z->rows / 2, WIDTH));
    x = layer_fp8(t, start, true);
    for (int i = 0; i < 2; i++) {
        row[i] = operand(t, dtype, SHAPE(2, 1, WIDTH));
        one[i] = operand(t, dtype, SHAPE(WIDTH));
    }
    x = layer_fp8(t, ckpt_gelu_tanh(t, x), false);
    x = layer_fp8(t, ckpt_gelu_tanh(t, x), false);
    x = layer_fp8(t, ckpt_tanh(t, x), false);
    x = layer_fp8(t, ckpt_modulate(t, x, row[0], row[1]), true);
    x = layer_fp8(t, ckpt_layer_norm_modulate(t, x, row[0], row[1], 1e-6f), true);
    x = layer_fp8(t, ckpt_layer_norm(t, x, one[0], one[1], 1e-6f), true);
    x = layer_fp8(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f), true);
    x = layer_fp8(t, ckpt_rms_norm(t, x, one[0], 1e-6f), true);
    return layer_fp8(t, ckpt_gated_residual(t, start, row[0], x), false);
}

/* Codes of [rows, cols], and their scale. */
static void record_codes(ckpt_tape *t, enum ckpt_dtype dtype, int64_t rows, int64_t cols,
                         ckpt_tensor *to)
{
    const struct to_fp8_largest_attr find = {FP8_OPERAND};
    const struct to_fp8_attr attr = {.dtype = dtype, .copies = FP8_ROWS, .fill = FP8_LINE};
    ckpt_tensor x = operand(t, CKPT_BF16, SHAPE(rows, cols)), out[2] = {CKPT_NONE, CKPT_NONE};
    const ckpt_tensor in[FP8_FROM_INPUTS] = {
        x, ops_record1(t, &op_to_fp8_largest, 1, &x, &find, sizeof find), CKPT_NONE, CKPT_NONE,
        CKPT_NONE};
    ckpt_record(t, &op_to_fp8, FP8_FROM_INPUTS, in, 2, out, &attr, sizeof attr);
    to[0] = out[1];
    to[1] = out[0];
}

/* A layer before GELU that outputs its largest magnitude, and the gradient of GELU in the epilogue
 * of the next layer's input gradient. */
ckpt_tensor bench_record_fp8_gelu(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const struct linear_fp8_attr layer = {CKPT_BF16};
    const struct ckpt_desc largest = {.dtype = CKPT_F32, .ndim = 0};
    ckpt_tensor x[4], dy[4], dx;
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    record_codes(t, CKPT_F8E4M3, z->rows, WIDTH, x);
    record_codes(t, CKPT_F8E4M3, MLP, WIDTH, x + 2);
    record_codes(t, CKPT_F8E5M2, z->rows, WIDTH, dy);
    record_codes(t, CKPT_F8E4M3, MLP, WIDTH, dy + 2);
    const ckpt_tensor in[FP8_INPUTS] = {
        CKPT_NONE, CKPT_NONE, operand(t, dtype, SHAPE(MLP)), CKPT_NONE, x[0], x[1], x[2], x[3]};
    const ckpt_tensor pre = ops_record1(t, &op_linear_fp8, FP8_INPUTS, in, &layer, sizeof layer);
    if (t->error.code)
        return CKPT_NONE;
    tape_add_extra(t, t->n_ops - 1, EXTRA_GELU_LARGEST, &largest);
    const ckpt_tensor of_dx[FP8_DX_INPUTS] = {dy[0], dy[1], dy[2], dy[3], pre};
    if (ckpt_record(t, &op_linear_fp8_dx_gelu, FP8_DX_INPUTS, of_dx, 1, &dx, NULL, 0))
        return CKPT_NONE;
    const struct ckpt_desc d = ckpt_desc_of(t, dx), sums = column_sum_desc(&d);
    tape_add_extra(t, t->n_ops - 1, EXTRA_SUMS, &sums);
    tape_add_extra(t, t->n_ops - 1, EXTRA_LARGEST, &largest);
    return CKPT_NONE;
}
