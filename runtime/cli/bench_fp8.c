/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of ckpt bench: linear layers of 8-bit operands. */
#include "cli/bench_record.h"
#include "fp8.h"
#include "tape/tape.h"

/* With 8-bit operands, as --matmul fp8 has it, whatever the sizes. */
ckpt_tensor bench_record_fp8(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    t->trains = true;
    return fp8_linear(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                      operand(t, dtype, SHAPE(MLP, WIDTH)), operand(t, dtype, SHAPE(MLP)),
                      operand(t, dtype, SHAPE(z->rows, MLP)));
}

/* The same as --matmul fp8-block has it. */
ckpt_tensor bench_record_fp8_blocks(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    t->env.matmul = MATMUL_FP8_BLOCK;
    return bench_record_fp8(t, dtype, z);
}

static ckpt_tensor layer_fp8(ckpt_tape *t, ckpt_tensor x, bool bias)
{
    return fp8_linear(t, x, operand(t, CKPT_BF16, SHAPE(WIDTH, WIDTH)),
                      bias ? operand(t, CKPT_BF16, SHAPE(WIDTH)) : CKPT_NONE, CKPT_NONE);
}

/* The same behind all that leaves the largest magnitude of its result (ops/largest.c), and whose
 * gradients do. */
static ckpt_tensor record_chain(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z,
                                enum matmul_dtype matmul)
{
    ckpt_tensor x, row[2], one[2];
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    t->trains = true;
    t->env.matmul = matmul;
    const ckpt_tensor start = operand(t, dtype, SHAPE(2, z->rows / 2, WIDTH));
    x = layer_fp8(t, start, true);
    for (int i = 0; i < 2; i++) {
        row[i] = operand(t, dtype, SHAPE(2, 1, WIDTH));
        one[i] = operand(t, dtype, SHAPE(WIDTH));
    }
    x = layer_fp8(t, ckpt_gelu(t, x), false);
    x = layer_fp8(t, ckpt_gelu(t, x), false);
    x = layer_fp8(t, ckpt_tanh(t, x), false);
    x = layer_fp8(t, ckpt_modulate(t, x, row[0], row[1]), true);
    x = layer_fp8(t, ckpt_layer_norm_modulate(t, x, row[0], row[1], 1e-6f), true);
    x = layer_fp8(t, ckpt_layer_norm(t, x, one[0], one[1], 1e-6f), true);
    x = layer_fp8(t, ckpt_layer_norm(t, x, CKPT_NONE, CKPT_NONE, 1e-6f), true);
    x = layer_fp8(t, ckpt_rms_norm(t, x, one[0], 1e-6f), true);
    return layer_fp8(t, ckpt_gated_residual(t, start, row[0], x), false);
}

ckpt_tensor bench_record_fp8_chain(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return record_chain(t, dtype, z, MATMUL_FP8);
}

ckpt_tensor bench_record_fp8_blocks_chain(ckpt_tape *t, enum ckpt_dtype dtype,
                                          const struct bench_sizes *z)
{
    return record_chain(t, dtype, z, MATMUL_FP8_BLOCK);
}
