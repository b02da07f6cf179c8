/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: modules.  A part of ckpt.h, which includes it.
 *
 * A module is a small struct of parameters, made by one call and applied by another:
 *
 *   struct ckpt_nn nn = CKPT_NN_INIT;
 *   nn.context = c;
 *   struct ckpt_nn_linear fc = ckpt_nn_linear(&nn, 784, 256, true, "layers.%d.fc", i);
 *   ...
 *   h = ckpt_nn_apply_linear(t, &fc, x);
 *
 * Parameters are named NAME.weight and NAME.bias and are initialized as in PyTorch's modules with
 * the same name, unless a constructor says otherwise.  Constructors report errors like
 * ckpt_param(): the context keeps the error, ckpt_compile() returns it, and the module has no
 * parameters. ckpt_nn_apply_... are recording calls.  The structs of modules never change: programs
 * keep them in arrays.
 */
#ifndef CKPT_NN_H
#define CKPT_NN_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_attention_spec; /* see ckpt_ops.h */
struct ckpt_conv_spec;      /* see ckpt_conv.h */

/* Settings of constructors. */
struct ckpt_nn {
    size_t size;
    ckpt *context;
    enum ckpt_dtype dtype;
    bool frozen;                           /* the parameters are not trained */
    const struct ckpt_init *weight, *bias; /* initial values; NULL: as in PyTorch */
};

#define CKPT_NN_INIT                                                                               \
    {                                                                                              \
        sizeof(struct ckpt_nn), NULL, CKPT_F32, false, NULL, NULL                                  \
    }

/* ---- linear -------------------------------------------------------------------------------- */

/* weight [out, in]; bias [out] or none.  Both start as U(-1/sqrt(in), 1/sqrt(in)). */
struct ckpt_nn_linear {
    ckpt_tensor weight, bias;
};

CKPT_API struct ckpt_nn_linear ckpt_nn_linear(const struct ckpt_nn *nn, int64_t in, int64_t out,
                                              bool bias, const char *name, ...) CKPT_PRINTF(5, 6);
/* ckpt_linear(t, x, weight, bias). */
CKPT_API ckpt_tensor ckpt_nn_apply_linear(ckpt_tape *t, const struct ckpt_nn_linear *m,
                                          ckpt_tensor x);

/* ---- norms --------------------------------------------------------------------------------- */

/* Norm of the last axis, of size `width`. weight starts as ones, bias as zeros. */
struct ckpt_nn_norm {
    ckpt_tensor weight, bias; /* bias: CKPT_NONE if there is none */
    float eps;
    bool rms; /* ckpt_rms_norm, else ckpt_layer_norm */
};

CKPT_API struct ckpt_nn_norm ckpt_nn_layer_norm(const struct ckpt_nn *nn, int64_t width, float eps,
                                                const char *name, ...) CKPT_PRINTF(4, 5);
CKPT_API struct ckpt_nn_norm ckpt_nn_rms_norm(const struct ckpt_nn *nn, int64_t width, float eps,
                                              const char *name, ...) CKPT_PRINTF(4, 5);
CKPT_API ckpt_tensor ckpt_nn_apply_norm(ckpt_tape *t, const struct ckpt_nn_norm *m, ckpt_tensor x);

/*
 * Batch norm of the last axis, of size `width`; see ckpt_batch_norm(). weight starts as ones and
 * bias as zeros; the fp32 buffers running_mean and running_var as zeros and ones.  PyTorch's
 * momentum is 0.1, its eps 1e-5; there is no num_batches_tracked.
 */
struct ckpt_nn_batch_norm {
    ckpt_tensor weight, bias, running_mean, running_var;
    float momentum, eps;
};

CKPT_API struct ckpt_nn_batch_norm ckpt_nn_batch_norm(const struct ckpt_nn *nn, int64_t width,
                                                      float momentum, float eps, const char *name,
                                                      ...) CKPT_PRINTF(5, 6);
/* Batch norm of x. training: uses the moments of the micro-batch and updates the buffers; otherwise
 * uses the buffers. */
CKPT_API ckpt_tensor ckpt_nn_apply_batch_norm(ckpt_tape *t, const struct ckpt_nn_batch_norm *m,
                                              ckpt_tensor x, bool training);

/* ---- embedding ----------------------------------------------------------------------------- */

/* weight [rows, width] starts as N(0, 1).  Applied to an i32 index [...] it gives [..., width]. */
struct ckpt_nn_embedding {
    ckpt_tensor weight;
};

CKPT_API struct ckpt_nn_embedding ckpt_nn_embedding(const struct ckpt_nn *nn, int64_t rows,
                                                    int64_t width, const char *name, ...)
    CKPT_PRINTF(4, 5);
CKPT_API ckpt_tensor ckpt_nn_apply_embedding(ckpt_tape *t, const struct ckpt_nn_embedding *m,
                                             ckpt_tensor index);

/* ---- attention ----------------------------------------------------------------------------- */

struct ckpt_nn_attention_spec {
    size_t size;
    int64_t width, heads; /* width: of input and output */
    int64_t kv_heads;     /* of keys and values, a divisor of heads; 0: heads */
    int64_t head;         /* width of a head; 0: width / heads */
    int64_t context;      /* input width of keys and values; 0: width */
    bool qkv_bias, out_bias;
    /* Names of the parts, appended to NAME and a dot.  With qkv_name one projection computes q, k
     * and v, concatenated; this is for self attention, and q_name, k_name and v_name are
     * ignored. */
    const char *q_name, *k_name, *v_name, *qkv_name, *out_name;
    bool halves; /* files store rotary pairs as two halves of a head, like Hugging Face */
    const struct ckpt_init *out_weight; /* initial values; NULL: like the others */
};

#define CKPT_NN_ATTENTION_INIT                                                                     \
    {                                                                                              \
        sizeof(struct ckpt_nn_attention_spec), 0, 0, 0, 0, 0, true, true, "q_proj", "k_proj",      \
            "v_proj", NULL, "out_proj", false, NULL                                                \
    }

struct ckpt_nn_attention {
    struct ckpt_nn_linear q, k, v, qkv, out; /* q, k and v, or qkv */
    int64_t heads, kv_heads, head;
};

/* Makes the projections of queries, keys, values and output. spec has their widths and names; its
 * width and heads must be set. */
CKPT_API struct ckpt_nn_attention ckpt_nn_attention(const struct ckpt_nn *nn,
                                                    const struct ckpt_nn_attention_spec *spec,
                                                    const char *name, ...) CKPT_PRINTF(3, 4);

/*
 * Attention of x [..., L, width] to context [..., M, context], or to itself if context is
 * CKPT_NONE. rope: a table for ckpt_rope [L, head / 2, 2], applied to q and k, or CKPT_NONE. spec
 * as for ckpt_attention(), NULL: every query sees every key.
 */
CKPT_API ckpt_tensor ckpt_nn_apply_attention(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                             ckpt_tensor x, ckpt_tensor context, ckpt_tensor rope,
                                             const struct ckpt_attention_spec *spec);
/* ckpt_nn_apply_attention() plus a [..., L, width], added by the last product. */
CKPT_API ckpt_tensor ckpt_nn_apply_attention_add(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                                 ckpt_tensor x, ckpt_tensor context,
                                                 ckpt_tensor rope,
                                                 const struct ckpt_attention_spec *spec,
                                                 ckpt_tensor a);

/* The parts of attention, for programs that keep keys and values: q [..., L, heads, head], k and v
 * [..., M, kv_heads, head], without rotary embedding; and the output projection. */
CKPT_API void ckpt_nn_attention_heads(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                      ckpt_tensor x, ckpt_tensor context, ckpt_tensor *q,
                                      ckpt_tensor *k, ckpt_tensor *v);
CKPT_API ckpt_tensor ckpt_nn_attention_out(ckpt_tape *t, const struct ckpt_nn_attention *m,
                                           ckpt_tensor heads, ckpt_tensor a);

/* ---- recurrent cells ----------------------------------------------------------------------- */

/*
 * One layer of PyTorch's LSTM or GRU: NAME.weight_ih_l0 [gates width, in], weight_hh_l0 [gates
 * width, width], and, with bias, bias_ih_l0 and bias_hh_l0 [gates width]; all start as
 * U(-1/sqrt(width), 1/sqrt(width)).  The number after the l is `layer`.  With s = sigmoid and a =
 * weight_ih x + bias_ih, b = weight_hh h + bias_hh split into gates:
 *
 *   LSTM (Hochreiter & Schmidhuber 1997), gates i, f, g, o:
 *   c = s(a_f + b_f) c + s(a_i + b_i) tanh(a_g + b_g),  h = s(a_o + b_o) tanh(c)
 *   GRU (Cho et al. 2014), gates r, z, n:
 *   n = tanh(a_n + s(a_r + b_r) b_n),  h = n + s(a_z + b_z) (h - n)
 */
struct ckpt_nn_rnn {
    ckpt_tensor weight_ih, weight_hh, bias_ih, bias_hh;
    int64_t width;
    bool gru; /* false: LSTM */
};

CKPT_API struct ckpt_nn_rnn ckpt_nn_lstm(const struct ckpt_nn *nn, int64_t in, int64_t width,
                                         int layer, bool bias, const char *name, ...)
    CKPT_PRINTF(6, 7);
CKPT_API struct ckpt_nn_rnn ckpt_nn_gru(const struct ckpt_nn *nn, int64_t in, int64_t width,
                                        int layer, bool bias, const char *name, ...)
    CKPT_PRINTF(6, 7);

/* One step: x [B, in]; replaces *h and, for an LSTM, *c, [B, width].  CKPT_NONE: zeros. */
CKPT_API void ckpt_nn_rnn_step(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x,
                               ckpt_tensor *h, ckpt_tensor *c);
/*
 * All steps of x [B, L, in], labelled "step.0", "step.1", ...: returns h of each, [B, L, width].
 * *h and *c are the states before the first step, CKPT_NONE: zeros, and receive the states after
 * the last step; both may be NULL.
 */
CKPT_API ckpt_tensor ckpt_nn_apply_rnn(ckpt_tape *t, const struct ckpt_nn_rnn *m, ckpt_tensor x,
                                       ckpt_tensor *h, ckpt_tensor *c);

/* ---- multi-layer perceptrons --------------------------------------------------------------- */

enum ckpt_nn_activation {
    CKPT_NN_GELU_TANH,
    CKPT_NN_GELU_ERF,
    CKPT_NN_SILU,
    CKPT_NN_RELU,
    /* Its older name, which goes with the release after 0.3. */
    CKPT_NN_GELU CKPT_DEPRECATED("use CKPT_NN_GELU_TANH") = CKPT_NN_GELU_TANH
};

struct ckpt_nn_mlp_spec {
    size_t size;
    int64_t width, inner; /* width: of input and output; inner: between the two projections */
    enum ckpt_nn_activation activation;
    bool gated;                                  /* down(activation(gate(x)) up(x)); Shazeer 2020 */
    bool bias;                                   /* of all projections */
    const char *gate_name, *up_name, *down_name; /* appended to NAME and a dot */
    const struct ckpt_init *down_weight;         /* initial values; NULL: like the others */
    /* With gate_up_name, for a gated one, one projection computes gate and up, concatenated;
     * gate_name and up_name are ignored. */
    const char *gate_up_name;
};

#define CKPT_NN_MLP_INIT                                                                           \
    {                                                                                              \
        sizeof(struct ckpt_nn_mlp_spec), 0, 0, CKPT_NN_GELU_TANH, false, true, "gate_proj",        \
            "up_proj", "down_proj", NULL, NULL                                                     \
    }

/* down(activation(up(x))), or gated.  gate is CKPT_NONE if not gated, and where the projection `up`
 * has the rows of both, twice as many as `down` has columns. */
struct ckpt_nn_mlp {
    struct ckpt_nn_linear gate, up, down;
    enum ckpt_nn_activation activation;
};

CKPT_API struct ckpt_nn_mlp ckpt_nn_mlp(const struct ckpt_nn *nn,
                                        const struct ckpt_nn_mlp_spec *spec, const char *name, ...)
    CKPT_PRINTF(3, 4);
CKPT_API ckpt_tensor ckpt_nn_apply_mlp(ckpt_tape *t, const struct ckpt_nn_mlp *m, ckpt_tensor x);
/* ckpt_nn_apply_mlp() plus a [..., width], added by the last product. */
CKPT_API ckpt_tensor ckpt_nn_apply_mlp_add(ckpt_tape *t, const struct ckpt_nn_mlp *m, ckpt_tensor x,
                                           ckpt_tensor a);

/* ---- transformer layers -------------------------------------------------------------------- */

struct ckpt_nn_transformer_layer_spec {
    size_t size;
    const struct ckpt_nn_attention_spec *attention; /* its width is the layer's */
    const struct ckpt_nn_attention_spec *cross;     /* NULL: no cross attention */
    const struct ckpt_nn_mlp_spec *mlp;
    float eps; /* of the norms */
    bool rms;  /* RMS norms, else layer norms */
    /* Names of the parts, appended to NAME and a dot. */
    const char *norm1_name, *attention_name, *cross_norm_name, *cross_name, *norm2_name, *mlp_name;
};

#define CKPT_NN_TRANSFORMER_LAYER_INIT                                                             \
    {                                                                                              \
        sizeof(struct ckpt_nn_transformer_layer_spec), NULL, NULL, NULL, 1e-5f, false, "norm1",    \
            "attention", "cross_norm", "cross", "norm2", "mlp"                                     \
    }

/*
 * A layer with norms before its parts, as PyTorch's TransformerEncoderLayer with norm_first:
 *
 *   x += attention(norm1(x));  x += cross(cross_norm(x), context);  x += mlp(norm2(x))
 *
 * With cross it is a decoder's layer, which reads an encoder's result.
 */
struct ckpt_nn_transformer_layer {
    struct ckpt_nn_norm norm1, cross_norm, norm2;
    struct ckpt_nn_attention attention, cross; /* cross: CKPT_NONE if there is none */
    struct ckpt_nn_mlp mlp;
};

/* Makes a layer. spec's attention and mlp must be set. */
CKPT_API struct ckpt_nn_transformer_layer
ckpt_nn_transformer_layer(const struct ckpt_nn *nn,
                          const struct ckpt_nn_transformer_layer_spec *spec, const char *name, ...)
    CKPT_PRINTF(3, 4);
/* Applies the layer to x [..., L, width]. context [..., M, width of cross's context] is for cross
 * attention, where every query sees every key; CKPT_NONE without it. rope and spec: of the self
 * attention, as for ckpt_nn_apply_attention(). */
CKPT_API ckpt_tensor ckpt_nn_apply_transformer_layer(ckpt_tape *t,
                                                     const struct ckpt_nn_transformer_layer *m,
                                                     ckpt_tensor x, ckpt_tensor context,
                                                     ckpt_tensor rope,
                                                     const struct ckpt_attention_spec *spec);

/* ---- convolution --------------------------------------------------------------------------- */

/*
 * weight [out, kernel..., in / groups] with one size per spatial axis, one to three; files store it
 * like PyTorch, [out, in / groups, kernel...]. bias [out] or none.  Both start as U(-1/sqrt(fan),
 * 1/sqrt(fan)), fan = in / groups times the size of the kernel.  Transposed: weight [in, kernel...,
 * out / groups], in files [in, out / groups, kernel...], and fan = out / groups times the size of
 * the kernel, as in PyTorch.
 */
struct ckpt_nn_conv {
    ckpt_tensor weight, bias;
};

/* spec: the spec passed to ckpt_nn_apply_conv, or NULL for its defaults; only groups is read. */
CKPT_API struct ckpt_nn_conv ckpt_nn_conv(const struct ckpt_nn *nn, int64_t in, int64_t out,
                                          int spatial, const int64_t *kernel,
                                          const struct ckpt_conv_spec *spec, bool bias,
                                          const char *name, ...) CKPT_PRINTF(8, 9);
CKPT_API struct ckpt_nn_conv ckpt_nn_conv_transpose(const struct ckpt_nn *nn, int64_t in,
                                                    int64_t out, int spatial, const int64_t *kernel,
                                                    const struct ckpt_conv_spec *spec, bool bias,
                                                    const char *name, ...) CKPT_PRINTF(8, 9);
/* ckpt_conv(t, x, weight, bias, spec), and ckpt_conv_transpose. */
CKPT_API ckpt_tensor ckpt_nn_apply_conv(ckpt_tape *t, const struct ckpt_nn_conv *m, ckpt_tensor x,
                                        const struct ckpt_conv_spec *spec);
CKPT_API ckpt_tensor ckpt_nn_apply_conv_transpose(ckpt_tape *t, const struct ckpt_nn_conv *m,
                                                  ckpt_tensor x, const struct ckpt_conv_spec *spec);

/* ---- training for 8-bit inference --------------------------------------------------------------
 */

/*
 * options.qat "int8": quantization-aware training.  Linear layers and convolutions whose weight is
 * trained read a weight and an operand that are rounded to 8-bit codes and back, as
 * ckpt_fake_quantize() does: weights with a scale for each row, from its largest magnitude (for a
 * transposed convolution one scale); operands by options.qat_ranges:
 *
 *   - "average": moving averages of the least and the largest element, one scale and zero point for
 *     a layer.  A weight NAME.weight has a buffer NAME.input_range [2] for it.
 *   - "learned": one scale, that of the first step plus what the optimizer adds: a buffer
 *     NAME.input_scale_start [1] and a trained parameter NAME.input_scale_change [1].
 *   - "dynamic": the largest magnitude of each row of a linear layer's operand, and of each sample
 *     of a convolution's.
 *
 * The first two depend on what a micro-step has in it (ckpt_couple_samples); averages move once per
 * step, by the mean over the micro-steps and ranks.  A program without an optimizer reads ranges
 * and changes none; before the first step it uses those of its own operand.  Layers under
 * ckpt_full_precision() and weights whose names match options.qat_skip, patterns of fnmatch(3)
 * between commas, are not rounded.  Parameters of ranges are made with the weight, and loading
 * weights does not miss them.  ckpt_save_params_int8() writes the codes.  With matmul "fp8", and
 * with ckpt_lora(), it is CKPT_EINVAL.
 */

/*
 * Fake quantization (Jacob et al. 2018): (q - zero) scale with q = x / scale, rounded to nearest
 * even, plus zero, clamped to low ... high; x / scale is x times the fp32 number 1 / scale. scale
 * and zero (CKPT_NONE: 0) are fp32 and broadcast to x.  The gradient of x passes where q was not
 * clamped (a straight-through estimate); those of scale and zero are of the same formula (Esser et
 * al. 2020).  The numbers of PyTorch's fake_quantize_per_tensor_affine and _per_channel_affine and,
 * with a trained scale, of its learnable ones.
 */
CKPT_API ckpt_tensor ckpt_fake_quantize(ckpt_tape *t, ckpt_tensor x, ckpt_tensor scale,
                                        ckpt_tensor zero, int low, int high);

/* ---- what programs remember ------------------------------------------------------------------ */

/*
 * State that programs without training write while they run, such as the keys and values of tokens
 * read so far: a cache [samples, positions, ...], initially zeros.  It is a parameter that no
 * optimizer trains: plans keep it on the device or offload it like weights, ckpt_param_get and
 * ckpt_param_set read and write it, and all programs of the context share it.  The library writes
 * it to no file; each rank has its own, which is not compared between ranks.  Errors as for
 * ckpt_param().
 */
CKPT_API ckpt_tensor ckpt_cache(ckpt *c, const char *name, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/*
 * Writes x [B, T, ...], with the dtype of the cache [B, S, ...], to the rows at[b] to at[b] + T - 1
 * of each sample b; at is i32 [B].  Returns the updated cache.  B is the size of a micro-step, and
 * the cache holds a whole batch: smaller micro-steps are refused.  A program writes a cache once,
 * and reads it afterwards.  A row beyond the end (the cache is full) ends the step with
 * CKPT_EINDEX.  After a failed step the content of a cache is undefined.  No gradient; not in
 * training programs.
 */
CKPT_API ckpt_tensor ckpt_cache_append(ckpt_tape *t, ckpt_tensor cache, ckpt_tensor x,
                                       ckpt_tensor at);

/* Each call stores the caller's source location: see the end of ckpt.h. */
#ifndef CKPT_NO_AT
#define ckpt_nn_apply_linear(t, ...)         ckpt_nn_apply_linear(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_norm(t, ...)           ckpt_nn_apply_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_batch_norm(t, ...)     ckpt_nn_apply_batch_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_embedding(t, ...)      ckpt_nn_apply_embedding(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_attention(t, ...)      ckpt_nn_apply_attention(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_attention_add(t, ...)  ckpt_nn_apply_attention_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_attention_heads(t, ...)      ckpt_nn_attention_heads(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_attention_out(t, ...)        ckpt_nn_attention_out(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_rnn_step(t, ...)             ckpt_nn_rnn_step(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_rnn(t, ...)            ckpt_nn_apply_rnn(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_mlp(t, ...)            ckpt_nn_apply_mlp(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_mlp_add(t, ...)        ckpt_nn_apply_mlp_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_conv(t, ...)           ckpt_nn_apply_conv(CKPT_AT(t), __VA_ARGS__)
#define ckpt_fake_quantize(t, ...)           ckpt_fake_quantize(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cache_append(t, ...)            ckpt_cache_append(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_conv_transpose(t, ...) ckpt_nn_apply_conv_transpose(CKPT_AT(t), __VA_ARGS__)
#define ckpt_nn_apply_transformer_layer(t, ...)                                                    \
    ckpt_nn_apply_transformer_layer(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
