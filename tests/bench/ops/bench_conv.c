/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of bench_ops: convolutions of video autoencoders, and convolutions and pools of other
 * models. */
#include "bench/ops/bench_record.h"

static ckpt_tensor picture(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z,
                           int64_t channels)
{
    return operand(t, dtype, SHAPE(BATCH, z->picture, z->picture, channels));
}

ckpt_tensor bench_record_conv(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    return ckpt_conv(t, picture(t, dtype, z, FILTERS),
                     operand(t, dtype, SHAPE(FILTERS, 3, 3, FILTERS)),
                     operand(t, dtype, SHAPE(FILTERS)), &spec);
}

/* Stride 2 with zero padding at the far ends. */
ckpt_tensor bench_record_conv_down(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = 2;
        spec.after[i] = 1;
    }
    return ckpt_conv(t, picture(t, dtype, z, FILTERS),
                     operand(t, dtype, SHAPE(FILTERS, 3, 3, FILTERS)), CKPT_NONE, &spec);
}

ckpt_tensor bench_record_conv_causal(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 3; i++) {
        spec.before[i] = i ? 1 : 2;
        spec.after[i] = i ? 1 : 0;
    }
    return ckpt_conv(
        t, operand(t, dtype, SHAPE(1, z->latent_frames, z->picture / 2, z->picture / 2, FILTERS)),
        operand(t, dtype, SHAPE(FILTERS, 3, 3, 3, FILTERS)), CKPT_NONE, &spec);
}

/* As in ResNeXt. */
ckpt_tensor bench_record_conv_groups(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.groups = 32;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 1;
    return ckpt_conv(t, picture(t, dtype, z, 2 * FILTERS),
                     operand(t, dtype, SHAPE(2 * FILTERS, 3, 3, 2 * FILTERS / 32)), CKPT_NONE,
                     &spec);
}

/* As in ConvNeXt. */
ckpt_tensor bench_record_depthwise(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.groups = FILTERS;
    for (int i = 0; i < 2; i++)
        spec.before[i] = spec.after[i] = 3;
    return ckpt_conv(t, picture(t, dtype, z, FILTERS), operand(t, dtype, SHAPE(FILTERS, 7, 7, 1)),
                     operand(t, dtype, SHAPE(FILTERS)), &spec);
}

/* Causal, as in WaveNet. */
ckpt_tensor bench_record_sequence(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    spec.dilation[0] = 8;
    spec.before[0] = 16;
    return ckpt_conv(t, operand(t, dtype, SHAPE(BATCH, (int64_t)z->picture * z->picture, FILTERS)),
                     operand(t, dtype, SHAPE(FILTERS, 3, FILTERS)),
                     operand(t, dtype, SHAPE(FILTERS)), &spec);
}

/* Doubles the size, as in DCGAN. */
ckpt_tensor bench_record_conv_transpose(ckpt_tape *t, enum ckpt_dtype dtype,
                                        const struct bench_sizes *z)
{
    struct ckpt_conv_spec spec = CKPT_CONV_INIT;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = 2;
        spec.before[i] = spec.after[i] = 1;
    }
    return ckpt_conv_transpose(
        t, operand(t, dtype, SHAPE(BATCH, z->picture / 2, z->picture / 2, FILTERS)),
        operand(t, dtype, SHAPE(FILTERS, 4, 4, FILTERS / 2)), CKPT_NONE, &spec);
}

/* As in ResNet. */
ckpt_tensor bench_record_max_pool(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_pool_spec spec = CKPT_POOL_INIT;
    for (int i = 0; i < 2; i++) {
        spec.stride[i] = 2;
        spec.before[i] = spec.after[i] = 1;
    }
    return ckpt_max_pool(t, picture(t, dtype, z, FILTERS), (int64_t[]){3, 3}, &spec);
}

ckpt_tensor bench_record_avg_pool(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_avg_pool(t, picture(t, dtype, z, FILTERS), (int64_t[]){2, 2}, NULL);
}
