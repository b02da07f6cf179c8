/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers to record the cases of bench_ops. */
#ifndef CKPT_BENCH_RECORD_H
#define CKPT_BENCH_RECORD_H

#include <string.h>
#include "ckpt.h"
#include "bench/ops/bench.h"
#include "ops.h"

enum {
    WIDTH = 1152,
    MLP = 4 * WIDTH,
    HEADS = 16,
    HEAD = WIDTH / HEADS,
    MAX_ROWS = 2048,
    BATCH = 2,
    FRAMES = 15,
    TIMESTEPS = 64,
    CHANNELS = 4,
    FILTERS = 128, /* of autoencoders */
    WIDE = 512,    /* channels of their deepest level, and its one head */
    CLIP = 17,     /* frames per clip */
};

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static inline struct ckpt_desc dense(enum ckpt_dtype dtype, int ndim, const int64_t *shape)
{
    struct ckpt_desc d = {.dtype = dtype, .ndim = ndim};
    memcpy(d.shape, shape, (size_t)ndim * sizeof *shape);
    desc_dense(&d);
    return d;
}

static inline ckpt_tensor operand_of(ckpt_tape *t, const struct ckpt_desc *d, bool needs_grad)
{
    ckpt_tensor x = tape_new_tensor(t, d, STORAGE_ACTIVATION);
    if (x.id)
        t->tensors.data[x.id].needs_grad = needs_grad;
    return x;
}

static inline ckpt_tensor operand(ckpt_tape *t, enum ckpt_dtype dtype, int ndim,
                                  const int64_t *shape)
{
    struct ckpt_desc d = dense(dtype, ndim, shape);
    return operand_of(t, &d, true);
}

/* Integers for masks, choices and labels: 1 for two indices of three. */
static inline ckpt_tensor choice(ckpt_tape *t, int ndim, const int64_t *shape)
{
    int32_t value[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++)
        value[i] = i % 3 != 0;
    return ckpt_constant(t, "choice", CKPT_I32, ndim, shape, value);
}

/* A tensor [BATCH, FRAMES, places, WIDTH]. */
static inline ckpt_tensor tokens(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return operand(t, dtype, SHAPE(BATCH, FRAMES, z->places, WIDTH));
}

/* One row per sample, such as the modulation by the timestep. */
static inline ckpt_tensor sample_row(ckpt_tape *t, enum ckpt_dtype dtype)
{
    return operand(t, dtype, SHAPE(BATCH, 1, 1, WIDTH));
}

/* Cases of other files. */
bench_recorder bench_record_embedding, bench_record_gather, bench_record_norm_affine,
    bench_record_extremes, bench_record_prod, bench_record_logsumexp, bench_record_both,
    bench_record_softmax, bench_record_rows_softmax, bench_record_rows_softmax_dx,
    bench_record_rows_norm, bench_record_rows_norm_dx, bench_record_cumsum, bench_record_order,
    bench_record_matmul, bench_record_grouped_matmul, bench_record_expand, bench_record_frozen,
    bench_record_batch_norm, bench_record_update, bench_record_updates, bench_record_byte_state,
    bench_record_int8, bench_record_half_state, bench_record_conv, bench_record_conv_down,
    bench_record_conv_causal, bench_record_fp8, bench_record_fp8_chain, bench_record_fp8_gelu,
    bench_record_conv_groups, bench_record_depthwise, bench_record_sequence,
    bench_record_conv_transpose, bench_record_max_pool, bench_record_avg_pool;

#endif
