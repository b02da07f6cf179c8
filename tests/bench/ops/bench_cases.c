/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cases of bench_ops: a case records one op or a short chain, whose gradient is timed too.
 *
 * - The table at the end defines what is timed.  A case that tests a special shape has it in its
 *   name.  Ops and dtypes that no case records show "-" under --mode support.
 * - Operands are tensors without a producer; the bench fills them.
 * - Widths are those of STDiT3-XL/2, GPT-2, Llama and a video autoencoder; bench_full has lengths
 *   that fill a GPU, bench_small has shorter ones for a CPU.
 * - Heads are slices of their projection, as in the model, without a copy.
 */
#include "attr.h"
#include "bench/ops/bench_record.h"
#include "expr/expr.h"
#include "extra.h"
#include "passes/passes.h"

const struct bench_sizes bench_full = {.rows = MAX_ROWS,
                                       .places = 136,
                                       .spatial_frames = 4,
                                       .spatial_places = 920,
                                       .text = 300,
                                       .height = 90,
                                       .width = 160,
                                       .picture = 64,
                                       .latent_frames = 5,
                                       .sequences = 64,
                                       .tokens = 1024,
                                       .vocabulary = 50304};
const struct bench_sizes bench_small = {.rows = 128,
                                        .places = 16,
                                        .spatial_frames = 2,
                                        .spatial_places = 230,
                                        .text = 75,
                                        .height = 18,
                                        .width = 32,
                                        .picture = 16,
                                        .latent_frames = 3,
                                        .sequences = 2,
                                        .tokens = 160,
                                        .vocabulary = 1000};

/* ---- matrix products and attention ---------------------------------------------------------- */

static ckpt_tensor record_linear(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_linear(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                       operand(t, dtype, SHAPE(WIDTH, WIDTH)), operand(t, dtype, SHAPE(WIDTH)));
}

static ckpt_tensor record_linear_add(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    return ckpt_linear_add(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                           operand(t, dtype, SHAPE(WIDTH, WIDTH)), operand(t, dtype, SHAPE(WIDTH)),
                           operand(t, dtype, SHAPE(z->rows, WIDTH)));
}

static ckpt_tensor record_mlp(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_linear(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                       operand(t, dtype, SHAPE(MLP, WIDTH)), CKPT_NONE);
}

/* The gradient of GELU also computes the gradient of the bias. */
static ckpt_tensor record_mlp_gelu(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_gelu_tanh(t, ckpt_linear(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                                         operand(t, dtype, SHAPE(MLP, WIDTH)),
                                         operand(t, dtype, SHAPE(MLP))));
}

/* One of `parts` groups of heads in a projection [..., parts WIDTH]; shape holds the leading
 * axes. */
static ckpt_tensor heads(ckpt_tape *t, enum ckpt_dtype dtype, int parts, int ndim,
                         const int64_t *shape)
{
    struct ckpt_desc d = dense(dtype, ndim, shape);
    for (int i = 0; i < ndim; i++)
        d.stride[i] *= parts * WIDTH;
    d.shape[ndim] = HEADS;
    d.stride[ndim] = HEAD;
    d.shape[ndim + 1] = HEAD;
    d.stride[ndim + 1] = 1;
    d.ndim += 2;
    return operand_of(t, &d, true);
}

static ckpt_tensor swap_time(ckpt_tape *t, ckpt_tensor x)
{
    return ckpt_permute(t, x, (int[]){0, 2, 1, 3, 4});
}

static ckpt_tensor record_spatial(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x[3];
    for (int i = 0; i < 3; i++)
        x[i] = heads(t, dtype, 3, SHAPE(1, z->spatial_frames, z->spatial_places));
    return ckpt_attention(t, x[0], x[1], x[2], CKPT_NONE, NULL);
}

static ckpt_tensor record_temporal(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x[3];
    for (int i = 0; i < 3; i++)
        x[i] = swap_time(t, heads(t, dtype, 3, SHAPE(1, FRAMES, z->places)));
    return swap_time(t, ckpt_attention(t, x[0], x[1], x[2], CKPT_NONE, NULL));
}

/* Causal attention of heads[0] query heads and heads[1] key and value heads, of width heads[2]. */
static ckpt_tensor causal_attention(ckpt_tape *t, enum ckpt_dtype dtype, int64_t sequences,
                                    int64_t tokens, const int64_t heads[3], int64_t window)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor q = operand(t, dtype, SHAPE(sequences, tokens, heads[0], heads[2]));
    ckpt_tensor k = operand(t, dtype, SHAPE(sequences, tokens, heads[1], heads[2]));
    ckpt_tensor v = operand(t, dtype, SHAPE(sequences, tokens, heads[1], heads[2]));
    spec.causal = true;
    spec.window = window;
    return ckpt_attention(t, q, k, v, CKPT_NONE, &spec);
}

static ckpt_tensor record_gpt2(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return causal_attention(t, dtype, z->sequences, z->tokens, (int64_t[]){12, 12, 64}, 0);
}

static ckpt_tensor record_llama(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return causal_attention(t, dtype, 2, 2 * z->tokens, (int64_t[]){32, 8, 128}, 0);
}

static ckpt_tensor record_window(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return causal_attention(t, dtype, 2, z->tokens, (int64_t[]){14, 2, 64}, z->tokens / 4);
}

/* Packed documents, each a quarter of the tokens. */
static ckpt_tensor record_documents(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    int32_t first[2 * MAX_ROWS];
    const int64_t n = 2 * z->tokens, each = z->tokens / 4;
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    ckpt_tensor x[3];
    for (int64_t i = 0; i < 2 * n; i++)
        first[i] = (int32_t)(i % n / each * each);
    for (int i = 0; i < 3; i++)
        x[i] = operand(t, dtype, SHAPE(2, n, 12, 64));
    spec.causal = true;
    spec.first = ckpt_constant(t, "first", CKPT_I32, SHAPE(2, n), first);
    return ckpt_attention(t, x[0], x[1], x[2], CKPT_NONE, &spec);
}

/* Sequences of unequal lengths, as in an encoder. */
static ckpt_tensor record_lengths(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_attention_spec spec = CKPT_ATTENTION_INIT;
    const int32_t lengths[2] = {(int32_t)z->tokens, (int32_t)z->tokens * 2 / 3};
    ckpt_tensor x[3];
    for (int i = 0; i < 3; i++)
        x[i] = operand(t, dtype, SHAPE(2, z->tokens, 16, HEAD));
    spec.lengths = ckpt_constant(t, "lengths", CKPT_I32, SHAPE(2), lengths);
    return ckpt_attention(t, x[0], x[1], x[2], CKPT_NONE, &spec);
}

/* A learned bias of relative positions, as in T5. */
static ckpt_tensor record_biased(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x[3];
    for (int i = 0; i < 3; i++)
        x[i] = operand(t, dtype, SHAPE(2, z->tokens / 2, 8, 64));
    return ckpt_attention(t, x[0], x[1], x[2],
                          operand(t, CKPT_F32, SHAPE(8, z->tokens / 2, z->tokens / 2)), NULL);
}

static ckpt_tensor wide_attention(ckpt_tape *t, enum ckpt_dtype dtype, int64_t frames,
                                  int64_t places)
{
    ckpt_tensor x[3];
    for (int i = 0; i < 3; i++)
        x[i] = operand(t, dtype, SHAPE(frames, places, 1, WIDE));
    return ckpt_attention(t, x[0], x[1], x[2], CKPT_NONE, NULL);
}

/* Enough positions that a GPU splits the queries of a frame into several tiles. */
static ckpt_tensor record_wide(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return wide_attention(t, dtype, BATCH, z->picture * z->picture * 5 / 4);
}

static ckpt_tensor record_wide_clip(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    return wide_attention(t, dtype, CLIP, z->picture * z->picture / 4);
}

static ckpt_tensor record_cross(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int32_t lens[BATCH] = {z->text, z->text - z->text / 3};
    ckpt_tensor q = heads(t, dtype, 1, SHAPE(BATCH, z->rows / BATCH));
    ckpt_tensor k = heads(t, dtype, 2, SHAPE(BATCH * z->text));
    ckpt_tensor v = heads(t, dtype, 2, SHAPE(BATCH * z->text));
    return ckpt_cross_attention(t, q, k, v, ckpt_constant(t, "lens", CKPT_I32, SHAPE(BATCH), lens),
                                0.1f);
}

/* ---- rows ----------------------------------------------------------------------------------- */

static ckpt_tensor record_layer_norm(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    return ckpt_layer_norm(t, tokens(t, dtype, z), CKPT_NONE, CKPT_NONE, 1e-6f);
}

static ckpt_tensor record_rms_norm(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_rms_norm(t, heads(t, dtype, 3, SHAPE(BATCH, FRAMES, z->places)),
                         operand(t, dtype, SHAPE(HEAD)), 1e-6f);
}

/* Rows too long for a warp, as in language models with billions of parameters. */
enum { LONG_ROW = 1536 };

static ckpt_tensor record_rms_norm_wide(ckpt_tape *t, enum ckpt_dtype dtype,
                                        const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(8 * z->rows, LONG_ROW));
    return ckpt_add(t, x, ckpt_rms_norm(t, x, operand(t, dtype, SHAPE(LONG_ROW)), 1e-6f));
}

static ckpt_tensor record_norm_modulate_wide(ckpt_tape *t, enum ckpt_dtype dtype,
                                             const struct bench_sizes *z)
{
    return ckpt_layer_norm_modulate(t, operand(t, dtype, SHAPE(8 * z->rows, 2 * LONG_ROW)),
                                    operand(t, dtype, SHAPE(1, 2 * LONG_ROW)),
                                    operand(t, dtype, SHAPE(1, 2 * LONG_ROW)), 1e-6f);
}

static ckpt_tensor record_rope(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_desc table = dense(CKPT_F32, SHAPE(FRAMES, HEAD / 2, 2));
    return ckpt_rope(t, heads(t, dtype, 1, SHAPE(BATCH, FRAMES, z->places)),
                     operand_of(t, &table, false), 1);
}

static ckpt_tensor record_modulate(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_modulate(t, tokens(t, dtype, z), sample_row(t, dtype), sample_row(t, dtype));
}

static ckpt_tensor record_norm_modulate(ckpt_tape *t, enum ckpt_dtype dtype,
                                        const struct bench_sizes *z)
{
    return ckpt_layer_norm_modulate(t, tokens(t, dtype, z), sample_row(t, dtype),
                                    sample_row(t, dtype), 1e-6f);
}

static ckpt_tensor record_norm_rope(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    struct ckpt_desc table = dense(CKPT_F32, SHAPE(FRAMES, HEAD / 2, 2));
    return ckpt_rms_norm_rope(t, heads(t, dtype, 3, SHAPE(BATCH, FRAMES, z->places)),
                              operand(t, dtype, SHAPE(HEAD)), 1e-6f, operand_of(t, &table, false),
                              1);
}

static ckpt_tensor record_gated_residual(ckpt_tape *t, enum ckpt_dtype dtype,
                                         const struct bench_sizes *z)
{
    return ckpt_gated_residual(t, tokens(t, dtype, z), sample_row(t, dtype), tokens(t, dtype, z));
}

/* ---- element by element --------------------------------------------------------------------- */

static ckpt_tensor record_gelu(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_gelu_tanh(t, operand(t, dtype, SHAPE(z->rows, MLP)));
}

/* GELU in the epilogue of a product and of its input gradient. */
static ckpt_tensor record_linear_gelu(ckpt_tape *t, enum ckpt_dtype dtype,
                                      const struct bench_sizes *z)
{
    ckpt_tensor out[2], dx;
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    const ckpt_tensor in[] = {operand(t, dtype, SHAPE(z->rows, WIDTH)),
                              operand(t, dtype, SHAPE(MLP, WIDTH)), operand(t, dtype, SHAPE(MLP))};
    ckpt_record(t, &op_linear_gelu, 3, in, 2, out, NULL, 0);
    const ckpt_tensor of_dx[] = {operand(t, dtype, SHAPE(z->rows, WIDTH)),
                                 operand(t, dtype, SHAPE(WIDTH, MLP)), out[0]};
    if (ckpt_record(t, &op_linear_dx_gelu, 3, of_dx, 1, &dx, NULL, 0))
        return CKPT_NONE;
    const struct ckpt_desc d = ckpt_desc_of(t, dx), sums = column_sum_desc(&d);
    tape_add_extra(t, t->n_ops - 1, EXTRA_SUMS, &sums);
    tape_add_extra(t, t->n_ops - 1, EXTRA_GELU, &d);
    return CKPT_NONE;
}

static ckpt_tensor record_linear_gated(ckpt_tape *t, enum ckpt_dtype dtype,
                                       const struct bench_sizes *z)
{
    ckpt_tensor out[3], dx[3];
    if (dtype != CKPT_BF16)
        return CKPT_NONE;
    const ckpt_tensor in[] = {operand(t, dtype, SHAPE(z->rows, WIDTH)),
                              operand(t, dtype, SHAPE(MLP, WIDTH)),
                              operand(t, dtype, SHAPE(MLP, WIDTH))};
    ckpt_record(t, &op_linear_gated, 3, in, 3, out, NULL, 0);
    const ckpt_tensor of_dx[] = {operand(t, dtype, SHAPE(z->rows, WIDTH)),
                                 operand(t, dtype, SHAPE(WIDTH, MLP)), out[0], out[1]};
    ckpt_record(t, &op_linear_dx_gated, 4, of_dx, 3, dx, NULL, 0);
    return CKPT_NONE;
}

static ckpt_tensor record_silu(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_silu(t, operand(t, dtype, SHAPE(z->rows, MLP)));
}

/* Twelve functions, each a separate op: the baseline of the fused chain. */
static ckpt_tensor functions(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, MLP)), row = operand(t, dtype, SHAPE(MLP));
    ckpt_tensor y = ckpt_div(t, ckpt_add(t, ckpt_mul(t, x, row), row), ckpt_exp(t, ckpt_neg(t, x)));
    y = ckpt_maximum(t, ckpt_affine(t, ckpt_tanh(t, y), 0.5f, 0.5f), row);
    y = ckpt_dropout(t, ckpt_sigmoid(t, ckpt_abs(t, y)), 0.1f);
    return ckpt_gelu_erf(t, y);
}

/* Without a gradient: its ops would be fused with those that the bench adds. */
static ckpt_tensor record_chain(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    functions(t, dtype, z);
    pass_fuse(&(struct compilation){.tape = t});
    return CKPT_NONE;
}

/* Twelve cheap ops and the sum of each row. */
static ckpt_tensor cheap_functions(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    struct ckpt_desc d = dense(dtype, SHAPE(MLP));
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, MLP)), row = operand_of(t, &d, false);
    ckpt_tensor y = operand(t, dtype, SHAPE(z->rows, MLP));
    ckpt_tensor u = ckpt_add(t, ckpt_mul(t, x, row), y);
    u = ckpt_maximum(t, ckpt_sub(t, u, row), ckpt_affine(t, u, 0.5f, 0.25f));
    u = ckpt_mul(t, ckpt_clamp(t, u, -4.f, 4.f), ckpt_abs(t, y));
    u = ckpt_silu(t, ckpt_leaky_relu(t, ckpt_minimum(t, u, x), 0.1f));
    return ckpt_sum(t, ckpt_mul(t, u, u), 2);
}

static ckpt_tensor record_chain_sum(ckpt_tape *t, enum ckpt_dtype dtype,
                                    const struct bench_sizes *z)
{
    cheap_functions(t, dtype, z);
    pass_fuse(&(struct compilation){.tape = t});
    return CKPT_NONE;
}

/* With the gradients of both matrices, from one gradient per row. */
static ckpt_tensor record_chain_gradient(ckpt_tape *t, enum ckpt_dtype dtype,
                                         const struct bench_sizes *z)
{
    struct ckpt_desc d = dense(CKPT_F32, SHAPE(z->rows, 1));
    ckpt_tensor weight = operand_of(t, &d, false);
    const struct compilation c = {
        .tape = t, .loss = ckpt_mean(t, ckpt_mul(t, cheap_functions(t, dtype, z), weight), 3)};
    pass_differentiate(&c);
    pass_fuse(&c);
    pass_pair(&c);
    return CKPT_NONE;
}

/* The gradient of the row is a sum_to. */
static ckpt_tensor record_add(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = ckpt_add(t, tokens(t, dtype, z), tokens(t, dtype, z));
    return ckpt_add(t, x, sample_row(t, dtype));
}

static ckpt_tensor record_mul(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_mul(t, tokens(t, dtype, z), tokens(t, dtype, z));
}

static ckpt_tensor record_affine(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = ckpt_sub(t, tokens(t, dtype, z), tokens(t, dtype, z));
    return ckpt_affine(t, x, 2.f, 1.f);
}

static ckpt_tensor record_where(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_where(t, choice(t, SHAPE(BATCH, FRAMES, 1, 1)), tokens(t, dtype, z),
                      tokens(t, dtype, z));
}

static ckpt_tensor record_accumulate(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    OPS_RECORD(t, &op_accumulate, (const char *)NULL, tokens(t, CKPT_F32, z), tokens(t, dtype, z));
    return CKPT_NONE;
}

static ckpt_tensor record_accumulate_narrow(ckpt_tape *t, enum ckpt_dtype dtype,
                                            const struct bench_sizes *z)
{
    OPS_RECORD(t, &op_accumulate_narrow, (const char *)NULL, tokens(t, CKPT_BF16, z),
               tokens(t, dtype, z));
    return CKPT_NONE;
}

/* ---- movement and reduction ----------------------------------------------------------------- */

static ckpt_tensor record_copy(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_contiguous(
        t, ckpt_permute(t, operand(t, dtype, SHAPE(FRAMES, z->places, WIDTH)), (int[]){1, 0, 2}));
}

/* The operands have no producer that could write in place, so the concat copies bytes. */
static ckpt_tensor record_concat(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor part[] = {operand(t, dtype, SHAPE(z->rows, WIDTH)),
                          operand(t, dtype, SHAPE(z->rows, WIDTH))};
    return ckpt_concat(t, 1, 2, part);
}

/* The gradient of a slice is a pad. */
static ckpt_tensor record_slice(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_slice(t, operand(t, dtype, SHAPE(z->rows, 2 * WIDTH)), 1, 0, WIDTH);
}

static ckpt_tensor record_cast(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_cast(t, tokens(t, dtype, z), dtype == CKPT_F32 ? CKPT_BF16 : CKPT_F32);
}

static ckpt_tensor record_sum(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_sum(t, tokens(t, dtype, z), 0xf);
}

/* The mean over the tokens of each frame, and its gradient. */
static ckpt_tensor record_mean(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    return ckpt_mean(t, tokens(t, dtype, z), 0x4);
}

static ckpt_tensor record_make(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {t->micro_batch, FRAMES, z->places, WIDTH};
    ops_fill(t, 1.f, dtype, 4, shape);
    ckpt_randn(t, dtype, 4, shape);
    return CKPT_NONE;
}

/* ---- the ends of the model ------------------------------------------------------------------ */

static ckpt_tensor record_patchify(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, CHANNELS, FRAMES, z->height, z->width));
    return ckpt_patchify(t, x, 1, 2, 2);
}

static ckpt_tensor record_unpatchify(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    int64_t places = z->height / 2 * (z->width / 2);
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, FRAMES, places, CHANNELS * 4));
    return ckpt_unpatchify(t, x, CHANNELS, FRAMES, z->height, z->width, 1, 2, 2);
}

static ckpt_tensor record_timestep(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    (void)z;
    ckpt_timestep_embedding(t, operand(t, CKPT_F32, SHAPE(TIMESTEPS)), 256, 10000.f, dtype);
    return CKPT_NONE;
}

static ckpt_tensor record_pack(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor lens;
    return ckpt_pack(t, operand(t, dtype, SHAPE(BATCH, z->text, WIDTH)),
                     choice(t, SHAPE(BATCH, z->text)), &lens);
}

static ckpt_tensor record_mse(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {BATCH, CHANNELS, FRAMES, z->height, z->width};
    return ckpt_mse(t, operand(t, dtype, 5, shape), operand(t, dtype, 5, shape),
                    choice(t, SHAPE(BATCH, FRAMES)));
}

static ckpt_tensor record_cross_entropy(ckpt_tape *t, enum ckpt_dtype dtype,
                                        const struct bench_sizes *z)
{
    return ckpt_cross_entropy(t, operand(t, dtype, SHAPE(z->rows, WIDTH)),
                              choice(t, SHAPE(z->rows)), NULL);
}

static ckpt_tensor record_element_losses(ckpt_tape *t, enum ckpt_dtype dtype,
                                         const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(z->rows, WIDTH));
    ckpt_tensor y = operand(t, dtype, SHAPE(z->rows, WIDTH));
    return ckpt_add(t, ckpt_bce_with_logits(t, x, y, CKPT_NONE, CKPT_REDUCE_MEAN),
                    ckpt_huber(t, x, y, 1, CKPT_REDUCE_MEAN));
}

enum { MAX_TOKENS = 1 << 16 };

/* The cross entropy of a language model's tokens. */
static ckpt_tensor record_vocabulary(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    static int32_t label[MAX_TOKENS];
    const int64_t rows = min_i64(MAX_TOKENS, (int64_t)z->sequences * z->tokens);
    for (int64_t i = 0; i < rows; i++)
        label[i] = (int32_t)(i * 7919 % z->vocabulary);
    return ckpt_cross_entropy(t, operand(t, dtype, SHAPE(rows, z->vocabulary)),
                              ckpt_constant(t, "label", CKPT_I32, 1, &rows, label), NULL);
}

/* ---- video autoencoders --------------------------------------------------------------------- */

static ckpt_tensor record_group_norm(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    return ckpt_group_norm_silu(
        t, operand(t, dtype, SHAPE(BATCH, z->picture, z->picture, 2 * FILTERS)),
        operand(t, dtype, SHAPE(2 * FILTERS)), operand(t, dtype, SHAPE(2 * FILTERS)), 32, 1e-6f,
        true);
}

/* These ops have no gradient. */
static ckpt_tensor record_norm_parts(ckpt_tape *t, enum ckpt_dtype dtype,
                                     const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, z->picture, z->picture, 2 * FILTERS));
    ckpt_tensor moments = ckpt_group_norm_moments(t, x, 32);
    ckpt_group_norm_apply(t, x, ckpt_group_norm_join(t, 1, &moments, 1e-6f),
                          operand(t, dtype, SHAPE(2 * FILTERS)),
                          operand(t, dtype, SHAPE(2 * FILTERS)), true);
    return CKPT_NONE;
}

static ckpt_tensor record_upsample(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, z->picture / 2, z->picture / 2, 2 * FILTERS));
    return ckpt_upsample_nearest(t, x, (int64_t[]){2, 2});
}

static ckpt_tensor record_l1(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {BATCH, CHANNELS, FRAMES, z->height, z->width};
    return ckpt_l1(t, operand(t, dtype, 5, shape), operand(t, dtype, 5, shape));
}

static ckpt_tensor record_latents(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {BATCH, FRAMES, z->height, z->width, CHANNELS};
    ckpt_tensor mean = operand(t, dtype, 5, shape), logvar = operand(t, dtype, 5, shape);
    ckpt_tensor x = ckpt_sample_normal(t, mean, logvar, operand(t, dtype, 5, shape));
    return ckpt_add(t, ckpt_mean(t, x, 0x1f), ckpt_kl_normal(t, mean, logvar));
}

/* A stage of VGG16 (ReLU and pooling), before the LPIPS distance. */
static ckpt_tensor record_pool(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    ckpt_tensor x = operand(t, dtype, SHAPE(BATCH, z->picture, z->picture, FILTERS));
    return ckpt_max_pool(t, ckpt_relu(t, x), (int64_t[]){2, 2}, NULL);
}

static ckpt_tensor record_distance(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {BATCH, z->picture, z->picture, FILTERS};
    return ckpt_feature_distance(t, operand(t, dtype, 4, shape), operand(t, dtype, 4, shape),
                                 operand(t, dtype, SHAPE(FILTERS)));
}

static ckpt_tensor record_codebook(ckpt_tape *t, enum ckpt_dtype dtype, const struct bench_sizes *z)
{
    const int64_t shape[] = {BATCH, FRAMES, z->height, z->width, CHANNELS};
    ckpt_tensor commitment, book = operand(t, dtype, SHAPE(1024, CHANNELS));
    ckpt_tensor x = ckpt_quantize(t, operand(t, dtype, 5, shape), book, NULL, &commitment);
    return ckpt_add(t, ckpt_mean(t, x, 0x1f), commitment);
}

const struct bench_case bench_cases[] = {
    {"linear", record_linear},
    {"linear, add", record_linear_add},
    {"linear, MLP", record_mlp},
    {"linear, activation", record_mlp_gelu},
    {"linear, gelu", record_linear_gelu},
    {"linear, gate", record_linear_gated},
    {"linear, 8 bits", bench_record_fp8},
    {"frozen weights", bench_record_frozen},
    {"linear, 8 bits, chain", bench_record_fp8_chain},
    {"linear, 8 bits, gelu", bench_record_fp8_gelu},
    {"activations in 8 bits", bench_record_int8},
    {"attention, spatial", record_spatial},
    {"attention, temporal", record_temporal},
    {"attention, causal", record_gpt2},
    {"attention, grouped", record_llama},
    {"attention, window", record_window},
    {"attention, documents", record_documents},
    {"attention, lengths", record_lengths},
    {"attention, bias", record_biased},
    {"attention, wide", record_wide},
    {"attention, wide, of a clip", record_wide_clip},
    {"cross attention", record_cross},
    {"layer norm", record_layer_norm},
    {"RMS norm", record_rms_norm},
    {"RMS norm, wide", record_rms_norm_wide},
    {"layer norm, modulate, wide", record_norm_modulate_wide},
    {"rotary embedding", record_rope},
    {"modulate", record_modulate},
    {"layer norm, modulate", record_norm_modulate},
    {"RMS norm, rotary", record_norm_rope},
    {"gated residual", record_gated_residual},
    {"GELU", record_gelu},
    {"SiLU", record_silu},
    {"functions", functions},
    {"fused chain", record_chain},
    {"fused sum", record_chain_sum},
    {"fused sum, gradient", record_chain_gradient},
    {"fused softmax", bench_record_rows_softmax},
    {"fused softmax, gradient", bench_record_rows_softmax_dx},
    {"fused layer norm", bench_record_rows_norm},
    {"fused layer norm, gradient", bench_record_rows_norm_dx},
    {"add", record_add},
    {"multiply", record_mul},
    {"affine", record_affine},
    {"choice", record_where},
    {"gradient sum", record_accumulate},
    {"gradient sum, bf16", record_accumulate_narrow},
    {"copy", record_copy},
    {"concat", record_concat},
    {"slice", record_slice},
    {"cast", record_cast},
    {"sum", record_sum},
    {"mean", record_mean},
    {"fill", record_make},
    {"patchify", record_patchify},
    {"unpatchify", record_unpatchify},
    {"timestep embedding", record_timestep},
    {"pack", record_pack},
    {"frame-masked MSE", record_mse},
    {"cross entropy", record_cross_entropy},
    {"cross entropy, vocabulary", record_vocabulary},
    {"cross entropy, both", bench_record_both},
    {"losses of elements", record_element_losses},
    {"convolution", bench_record_conv},
    {"convolution, halving", bench_record_conv_down},
    {"convolution, causal 3-D", bench_record_conv_causal},
    {"convolution, 32 groups", bench_record_conv_groups},
    {"convolution, depthwise", bench_record_depthwise},
    {"convolution, 1-D dilated", bench_record_sequence},
    {"convolution, transposed", bench_record_conv_transpose},
    {"max pooling, overlapping", bench_record_max_pool},
    {"average pooling", bench_record_avg_pool},
    {"group norm, SiLU", record_group_norm},
    {"group norm in parts", record_norm_parts},
    {"nearest upsampling", record_upsample},
    {"L1", record_l1},
    {"normal latents", record_latents},
    {"ReLU, max pooling", record_pool},
    {"feature distance", record_distance},
    {"codebook", record_codebook},
    {"embedding", bench_record_embedding},
    {"gather, scatter", bench_record_gather},
    {"layer norm, affine", bench_record_norm_affine},
    {"largest, smallest", bench_record_extremes},
    {"product", bench_record_prod},
    {"logsumexp", bench_record_logsumexp},
    {"softmax", bench_record_softmax},
    {"cumulative sum", bench_record_cumsum},
    {"order", bench_record_order},
    {"batched product", bench_record_matmul},
    {"products of groups", bench_record_grouped_matmul},
    {"expand", bench_record_expand},
    {"batch norm", bench_record_batch_norm},
    {"update", bench_record_update},
    {"update, other kinds", bench_record_updates},
    {"update, bf16 state", bench_record_half_state},
    {"update, 8-bit state", bench_record_byte_state},
    {NULL, NULL},
};
