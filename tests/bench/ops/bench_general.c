/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of bench_ops: lookups, sorting, reductions, products and updates. */
#include <stdlib.h>
#include "attr.h"
#include "ckpt_tools.h"
#include "bench/ops/bench_record.h"
#include "core/frozen.h"
#include "core/mean8.h"
#include "expr/expr.h"
#include "int8.h"
#include "optim/optimizer.h"
#include "optim/update_math.h"
#include "passes/passes.h"

/* Half of the indices select the same row. */
ckpt_tensor bench_record_embedding(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    int32_t index[MAX_ROWS];
    for (int i = 0; i < MAX_ROWS; i++)
        index[i] = i % 2 ? 3 : i * 7919 % MLP;
    ckpt_tensor at = ckpt_constant(t, "index", CKPT_I32, SHAPE(z->rows), index);
    return ckpt_embedding(t, operand(t, dtype, SHAPE(MLP, WIDTH)), at, -1);
}

ckpt_tensor bench_record_gather(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, WIDTH));
    ckpt_tensor at = choice(t, SHAPE(z->rows, 1));
    return ckpt_scatter_add(t, x, 1, at, ckpt_gather(t, x, 1, at));
}

ckpt_tensor bench_record_norm_affine(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    return ckpt_layer_norm(t, tokens(t, dtype, z), operand(t, dtype, SHAPE(WIDTH)),
                           operand(t, dtype, SHAPE(WIDTH)), 1e-5f);
}

ckpt_tensor bench_record_extremes(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, WIDTH));
    ckpt_argmax(t, x, 1);
    return ckpt_add(t, ckpt_amax(t, x, 2), ckpt_amin(t, x, 2));
}

ckpt_tensor bench_record_prod(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    (void)z;
    return ckpt_prod(t, operand(t, dtype, SHAPE(WIDTH, 8)), 2);
}

ckpt_tensor bench_record_logsumexp(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_logsumexp(t, operand(t, dtype, SHAPE(z->rows, WIDTH)), 2);
}

ckpt_tensor bench_record_softmax(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_softmax(t, operand(t, dtype, SHAPE(z->rows, WIDTH)), 1);
}

/* ---- row functions written in single ops, fused ---------------------------------------------- */

static ckpt_tensor softmax_of_ops(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor y = ckpt_exp(t, ckpt_sub(t, x, ckpt_amax(t, x, 2)));
    return ckpt_div(t, y, ckpt_sum(t, y, 2));
}

static ckpt_tensor norm_of_ops(ckpt_tape *t, ckpt_tensor x)
{
    ckpt_tensor away = ckpt_sub(t, x, ckpt_mean(t, x, 2));
    ckpt_tensor square = ckpt_affine(t, ckpt_mean(t, ckpt_mul(t, away, away), 2), 1.f, 1e-6f);
    return ckpt_mul(t, away, ckpt_rsqrt(t, square));
}

/* Without a gradient by the bench, whose ops would be fused, too.  gradient: of the product with
 * another operand, which is the gradient of y. */
static ckpt_tensor record_rows(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z,
                               ckpt_tensor (*f)(ckpt_tape *, ckpt_tensor), bool gradient)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, WIDTH)), dx;
    struct ckpt_desc d = dense(dtype, SHAPE(z->rows, WIDTH));
    ckpt_tensor y = f(t, x);
    if (gradient)
        ckpt_gradients(t, ckpt_mul(t, y, operand_of(t, &d, false)), 1, &x, &dx);
    pass_fuse(&(struct compilation){.tape = t});
    return CKPT_NONE;
}

ckpt_tensor bench_record_rows_softmax(ckpt_tape *t, enum ckpt_dtype dtype,
                                      const struct bench_sizes *z)
{
    return record_rows(t, dtype, z, softmax_of_ops, false);
}

ckpt_tensor bench_record_rows_softmax_dx(ckpt_tape *t, enum ckpt_dtype dtype,
                                         const struct bench_sizes *z)
{
    return record_rows(t, dtype, z, softmax_of_ops, true);
}

ckpt_tensor bench_record_rows_norm(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return record_rows(t, dtype, z, norm_of_ops, false);
}

ckpt_tensor bench_record_rows_norm_dx(ckpt_tape *t, enum ckpt_dtype dtype,
                                      const struct bench_sizes *z)
{
    return record_rows(t, dtype, z, norm_of_ops, true);
}

/* Loss and gradient of a chunk of a language model's tokens, as in training. */
ckpt_tensor bench_record_both(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    enum { MAX_LABELS = 4096 };
    static int32_t label[MAX_LABELS];
    const struct cross_entropy_attr attr = {.ignore_index = -100, .reduction = CKPT_REDUCE_MEAN};
    const int64_t rows = min_i64(MAX_LABELS, (int64_t)z->sequences * z->tokens);
    for (int64_t i = 0; i < rows; i++)
        label[i] = (int32_t)(i * 7919 % z->vocabulary);
    ckpt_tensor in[] = {ckpt_full(t, 1, CKPT_F32, 0, NULL),
                        operand(t, dtype, SHAPE(rows, z->vocabulary)),
                        ckpt_constant(t, "label", CKPT_I32, 1, &rows, label)};
    ckpt_tensor out[2];
    ckpt_record(t, &op_cross_entropy_both, 3, in, 2, out, &attr, sizeof attr);
    return CKPT_NONE;
}

ckpt_tensor bench_record_cumsum(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_cumsum(t, operand(t, dtype, SHAPE(z->rows, WIDTH)), 0);
}

ckpt_tensor bench_record_order(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_argsort(t, operand(t, dtype, SHAPE(z->rows, WIDTH)), true);
    return CKPT_NONE;
}

ckpt_tensor bench_record_matmul(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_matmul(t, operand(t, dtype, SHAPE(HEADS, z->places, HEAD)),
                       operand(t, dtype, SHAPE(HEADS, z->places, HEAD)), false, true);
}

/* Experts: the first has half of the rows, the last ones none. */
ckpt_tensor bench_record_grouped_matmul(ckpt_tape *t, enum ckpt_dtype dtype,
                                        const struct bench_sizes *z)
{
    enum { EXPERTS = 8 };
    int32_t ends[EXPERTS];
    for (int i = 0; i < EXPERTS; i++)
        ends[i] = (int32_t)min_i64(z->rows, z->rows / 2 + z->rows * i / 10);
    ckpt_tensor at = ckpt_constant(t, "ends", CKPT_I32, SHAPE(EXPERTS), ends);
    return ckpt_grouped_matmul(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                               operand(t, dtype, SHAPE(EXPERTS, WIDTH, MLP)), at, false);
}

/* A view; its gradient is a sum. */
ckpt_tensor bench_record_expand(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_expand(t, sample_row(t, dtype), SHAPE(BATCH, FRAMES, z->places, WIDTH));
}

/* Batch norm with the moments of the batch, then with given moments, and the update of these. */
ckpt_tensor bench_record_batch_norm(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    const struct moving_average_attr attr = {.momentum = 0.1f};
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, z->picture, z->picture, 2 * FILTERS));
    ckpt_tensor w = operand(t, dtype, SHAPE(2 * FILTERS));
    ckpt_tensor b = operand(t, dtype, SHAPE(2 * FILTERS));
    ckpt_tensor in[6], out[2];
    for (int i = 0; i < 6; i++)
        in[i] = operand(t, CKPT_F32, SHAPE(2 * FILTERS));
    ckpt_record(t, &op_moving_average, 6, in, 2, out, &attr, sizeof attr);
    ckpt_tensor one = ckpt_iota(t, CKPT_F32, SHAPE(2 * FILTERS), 0);
    x = ckpt_batch_norm(t, x, w, b, CKPT_NONE, CKPT_NONE, 0.1f, 1e-5f);
    return ckpt_batch_norm_apply(t, x, w, b, in[0], one, 1e-5f);
}

/* A weight stored in codes of one format, decoded as for its product. */
static void record_codes(ckpt_tape *t, enum ckpt_dtype dtype, int format)
{
    const struct dequantize_attr attr = {format, (int32_t)dtype, MLP, WIDTH};
    const int64_t n = (int64_t)MLP * WIDTH, words = frozen_words(format, n);
    float *values = malloc((size_t)n * sizeof *values);
    int32_t *codes = malloc((size_t)words * sizeof *codes);
    if (values && codes) {
        ckpt_fill_normal(1, 0, 0, values, n);
        frozen_encode(values, n, format, codes);
        ckpt_tensor x = ckpt_constant(t, frozen_name(format), CKPT_I32, SHAPE(words), codes);
        OPS_RECORD(t, &op_dequantize, &attr, x);
    } else {
        ckpt_tape_fail(t, CKPT_ENOMEM, "no memory for codes");
    }
    free(values);
    free(codes);
}

ckpt_tensor bench_record_frozen(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    (void)z;
    record_codes(t, dtype, FROZEN_INT8);
    record_codes(t, dtype, FROZEN_NF4);
    return CKPT_NONE;
}

/* Encodes an activation in 8 bits and decodes it. */
ckpt_tensor bench_record_int8(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    if (dtype == CKPT_BF16)
        int8_decode(t, int8_encode(t, operand(t, dtype, SHAPE(z->rows, MLP))), z->rows * MLP);
    return CKPT_NONE;
}

/* State i of an update op, or its gradient. */
static ckpt_tensor record_state(ckpt_tape *t, enum ckpt_dtype dtype, int narrow, int i)
{
    const bool mean = i == UPDATE_EXP_AVG || i == UPDATE_EXP_AVG_SQ;
    if (mean && narrow == NARROW_8BIT)
        return operand(t, CKPT_I32, SHAPE(mean8_words((int64_t)MLP * WIDTH)));
    return operand(t, i == UPDATE_VALUE || (mean && narrow) ? dtype : CKPT_F32, SHAPE(MLP, WIDTH));
}

/* The update of one weight: value, fp32 master if there is one, the running means of the kind, EMA,
 * gradient. */
static void record_kind(ckpt_tape *t, enum ckpt_dtype dtype, const struct ckpt_op_def *def,
                        const struct update_attr *attr, size_t attr_size)
{
    struct clip_attr clip = {.clip_norm = 1.f};
    ckpt_tensor in[7] = {CKPT_NONE}, out[5];
    const bool has[6] = {true,
                         dtype == CKPT_BF16 && !attr->narrow,
                         update_has_mean(attr),
                         update_has_square(attr),
                         true,
                         true};
    for (int i = 0; i < 6; i++)
        if (has[i])
            in[i] = record_state(t, dtype, attr->narrow, i);
    if (in[3].id) /* a mean of squares: the bench fills it with positive values */
        t->storages.data[t->tensors.data[in[3].id].storage].kind = STORAGE_EXP_AVG_SQ;
    ckpt_tensor sum = OPS_RECORD(t, &op_sum_squares, (const char *)NULL, in[5]);
    in[6] = OPS_RECORD(t, &op_clip_coefficient, &clip, sum, sum);
    ckpt_record(t, def, 7, in, 5, out, attr, attr_size);
}

ckpt_tensor bench_record_update(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    adamw.ema_decay = 0.99f;
    const struct update_attr attr = optim_adamw_attr(&adamw);
    (void)z;
    record_kind(t, dtype, &op_adamw, &attr, sizeof attr);
    return CKPT_NONE;
}

/* Two parts, whose values and means are rounded. */
static const struct rounding two_parts = {.begin = {0, 2}, .part = {{1, 0}, {2, 1024}}};

static void record_narrow(ckpt_tape *t, enum narrow_state narrow)
{
    struct ckpt_adamw adamw = CKPT_ADAMW_INIT;
    struct narrow_update_attr attr = {.update = optim_adamw_attr(&adamw), .rounding = two_parts};
    attr.update.narrow = narrow;
    attr.update.ema_decay = 0.99f;
    record_kind(t, CKPT_BF16, &op_adamw, &attr.update, sizeof attr);
}

/* Means in 8 bits: always bf16 values without masters, whatever the dtype of the case. */
ckpt_tensor bench_record_byte_state(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    (void)z;
    (void)dtype;
    record_narrow(t, NARROW_8BIT);
    return CKPT_NONE;
}

/* State in bf16, without masters, whatever the dtype of the case. */
ckpt_tensor bench_record_half_state(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    const struct narrow_assign_attr assign = {.noise = NOISE_MEAN, .rounding = two_parts};
    struct clip_attr clip = {.clip_norm = 1.f};
    (void)z;
    (void)dtype;
    record_narrow(t, NARROW_BF16);
    ckpt_tensor state = operand(t, CKPT_BF16, SHAPE(MLP, WIDTH));
    ckpt_tensor next = operand(t, CKPT_F32, SHAPE(MLP, WIDTH));
    ckpt_tensor sum = OPS_RECORD(t, &op_sum_squares, (const char *)NULL, next);
    ckpt_tensor values = OPS_RECORD(t, &op_clip_coefficient, &clip, sum, sum);
    ops_record1(t, &op_assign, 3, (ckpt_tensor[]){state, next, values}, &assign, sizeof assign);
    return CKPT_NONE;
}

/* The other kinds, and the assignment of a state. */
ckpt_tensor bench_record_updates(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct update_attr attr = {.lr_factor = 1.f, .beta1 = 0.9f, .scale = 1.f, .ema_decay = 0.99f};
    struct clip_attr clip = {.clip_norm = 1.f};
    (void)z;
    attr.kind = UPDATE_SGD;
    record_kind(t, dtype, &op_sgd, &attr, sizeof attr);
    attr.kind = UPDATE_LION;
    attr.beta2 = 0.99f;
    record_kind(t, dtype, &op_lion, &attr, sizeof attr);
    attr.kind = UPDATE_STEP;
    record_kind(t, dtype, &op_step, &attr, sizeof attr);
    ckpt_tensor state = operand(t, CKPT_F32, SHAPE(MLP, WIDTH));
    ckpt_tensor next = operand(t, CKPT_F32, SHAPE(MLP, WIDTH));
    ckpt_tensor sum = OPS_RECORD(t, &op_sum_squares, (const char *)NULL, next);
    ckpt_tensor values = OPS_RECORD(t, &op_clip_coefficient, &clip, sum, sum);
    ops_record1(t, &op_assign, 3, (ckpt_tensor[]){state, next, values}, NULL, 0);
    return CKPT_NONE;
}
