/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: the ops that models record.  A part of ckpt.h, which includes it, and ckpt_conv.h with
 * the ops on pictures.
 *
 * An op takes tensors of one tape, or parameters of its context, and returns a tensor of that tape.
 * Shapes are checked immediately.  A mismatch is CKPT_ESHAPE, which the tape keeps and
 * ckpt_compile() returns; the op then returns CKPT_NONE.  The same holds for a tensor of another
 * tape and a parameter of another context (CKPT_EINVAL).
 *
 * Floating dtypes of one call must agree unless stated otherwise.  All arithmetic is fp32 inside;
 * results are rounded once, to nearest even.
 */
#ifndef CKPT_OPS_H
#define CKPT_OPS_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CKPT_MAX_PARTS 64 /* largest number of parts of a split or concat */

/*
 * y[..., n] = sum_k x[..., k] w[n, k] + b[n], or that + a[..., n]. x [..., K], w [N, K], b [N] or
 * CKPT_NONE.
 *
 * With options.matmul "fp8" a layer rounds x and w to 8 bits (e4m3) if both are bf16, w is a
 * parameter, N and K are multiples of 16, N, K and the rows of x are at least 128, and x depends on
 * a parameter.  Each is scaled by a power of two that follows from its largest magnitude, and
 * products are summed in fp32; the gradients of x and w use a rounded gradient of y (e5m2).  Other
 * layers, biases, stored tensors and gradients of parameters do not change.  The scale of x is
 * common to all rows of a micro-step, so the bits depend on the micro-batch, but not on the budget.
 * An infinite or NaN element makes all of y NaN.  A program that trains is CKPT_EINVAL if no
 * parameter is bf16.
 */
CKPT_API ckpt_tensor ckpt_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b);
/* While `on` is true, recorded layers are not rounded to 8 bits: for the last layer of a model.
 * The layer of ckpt_linear_cross_entropy never is. */
CKPT_API void ckpt_full_precision(ckpt_tape *t, bool on);
CKPT_API ckpt_tensor ckpt_linear_add(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                     ckpt_tensor a);

/*
 * Element-wise with NumPy broadcasting; fp32 with bf16 gives fp32. These three, ckpt_affine,
 * ckpt_neg, ckpt_abs, ckpt_sign, ckpt_minimum, ckpt_maximum, ckpt_clamp and ckpt_where also accept
 * i32 if all operands are i32 (constants must then be whole numbers, else CKPT_EINVAL): the result
 * is i32, exact for numbers up to 2^24, and has no gradient.
 */
CKPT_API ckpt_tensor ckpt_add(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_sub(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_mul(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);

/* y = a x + b with constants. */
CKPT_API ckpt_tensor ckpt_affine(ckpt_tape *t, ckpt_tensor x, float a, float b);

/* cond != 0 ? a : b, with broadcasting; cond is i32 and has no gradient. a and b have one dtype. */
CKPT_API ckpt_tensor ckpt_where(ckpt_tape *t, ckpt_tensor cond, ckpt_tensor a, ckpt_tensor b);

/*
 * Element-wise functions.  Chains of them, and of the ops above, are fused into one kernel when the
 * program is compiled, with the same bits.  Each has a gradient that can be differentiated again,
 * unless its line says that it is 0 everywhere.
 */
CKPT_API ckpt_tensor ckpt_exp(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_expm1(ckpt_tape *t, ckpt_tensor x); /* exp(x) - 1, exact near 0 */
CKPT_API ckpt_tensor ckpt_log(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_log1p(ckpt_tape *t, ckpt_tensor x); /* log(1 + x), exact near 0 */
CKPT_API ckpt_tensor ckpt_sqrt(ckpt_tape *t, ckpt_tensor x);  /* the gradient is infinite at 0 */
CKPT_API ckpt_tensor ckpt_rsqrt(ckpt_tape *t, ckpt_tensor x); /* 1 / sqrt(x) */
CKPT_API ckpt_tensor ckpt_neg(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_abs(ckpt_tape *t, ckpt_tensor x);   /* gradient 0 at 0 */
CKPT_API ckpt_tensor ckpt_sign(ckpt_tape *t, ckpt_tensor x);  /* -1, 0 or 1; no gradient */
CKPT_API ckpt_tensor ckpt_floor(ckpt_tape *t, ckpt_tensor x); /* no gradient */
CKPT_API ckpt_tensor ckpt_round(ckpt_tape *t, ckpt_tensor x); /* half to even; no gradient */
CKPT_API ckpt_tensor ckpt_sin(ckpt_tape *t, ckpt_tensor x);   /* for |x| up to 2^30 */
CKPT_API ckpt_tensor ckpt_cos(ckpt_tape *t, ckpt_tensor x);   /* for |x| up to 2^30 */
CKPT_API ckpt_tensor ckpt_tanh(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_sigmoid(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_erf(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_div(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
/* a to the power b: NaN where a < 0 and b is not an integer.  At a = 0 the gradient of b is 0. */
CKPT_API ckpt_tensor ckpt_pow(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_pow_scalar(ckpt_tape *t, ckpt_tensor x, float p);
/* NaN if either operand is; equal ones get half of the gradient each. */
CKPT_API ckpt_tensor ckpt_minimum(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_maximum(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
/* x in [low, high], low <= high (CKPT_EINVAL); NaN stays; the gradient passes at the bounds. */
CKPT_API ckpt_tensor ckpt_clamp(ckpt_tape *t, ckpt_tensor x, float low, float high);

/* 1 where true, else 0, as i32, with broadcasting; a and b of any dtypes (i32 is exact up to 2^24).
 * NaN is not equal, smaller or larger than anything. */
CKPT_API ckpt_tensor ckpt_eq(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_ne(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_lt(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_le(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_gt(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_ge(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
/* Logical and, or, not of i32, where every value except 0 is true; the result is 1 or 0. */
CKPT_API ckpt_tensor ckpt_and(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_or(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b);
CKPT_API ckpt_tensor ckpt_not(ckpt_tape *t, ckpt_tensor a);

/* x/2 (1 + erf(x / sqrt(2))): gelu() of PyTorch. */
CKPT_API ckpt_tensor ckpt_gelu_erf(ckpt_tape *t, ckpt_tensor x);
/* x, or slope x below 0; gradient slope at 0. */
CKPT_API ckpt_tensor ckpt_leaky_relu(ckpt_tape *t, ckpt_tensor x, float slope);
/* x, or alpha (exp(x) - 1) below 0; Clevert et al. 2015. */
CKPT_API ckpt_tensor ckpt_elu(ckpt_tape *t, ckpt_tensor x, float alpha);
/* log(1 + exp(x)), and x tanh of that; Misra 2019. */
CKPT_API ckpt_tensor ckpt_softplus(ckpt_tape *t, ckpt_tensor x);
CKPT_API ckpt_tensor ckpt_mish(ckpt_tape *t, ckpt_tensor x);

/* A tensor filled with `value`, of any dtype; with ndim 0 a scalar for sums, comparisons, where. */
CKPT_API ckpt_tensor ckpt_full(ckpt_tape *t, float value, enum ckpt_dtype dtype, int ndim,
                               const int64_t *shape);
/* The index along an axis of size at most 2^24, as any dtype. */
CKPT_API ckpt_tensor ckpt_iota(ckpt_tape *t, enum ckpt_dtype dtype, int ndim, const int64_t *shape,
                               int axis);
/* 1 with probability p (0 to 1; CKPT_EINVAL), else 0, as any dtype; random numbers as in
 * ckpt_randn. */
CKPT_API ckpt_tensor ckpt_bernoulli(ckpt_tape *t, float p, enum ckpt_dtype dtype, int ndim,
                                    const int64_t *shape);
/* 0 with probability p (below 1), else x / (1 - p); Srivastava et al. 2014. The backward pass draws
 * the same mask again, so it is not stored.  Axis 0 of x is the micro-batch, as in ckpt_randn. */
CKPT_API ckpt_tensor ckpt_dropout(ckpt_tape *t, ckpt_tensor x, float p);

/* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); Hendrycks & Gimpel 2016.  PyTorch calls it
 * gelu(approximate="tanh"); its gelu() is ckpt_gelu_erf(). */
CKPT_API ckpt_tensor ckpt_gelu_tanh(ckpt_tape *t, ckpt_tensor x);
/* ckpt_gelu_tanh() under its older name, which goes with the release after 0.3. */
CKPT_API ckpt_tensor ckpt_gelu(ckpt_tape *t, ckpt_tensor x) CKPT_DEPRECATED("use ckpt_gelu_tanh");
/* x / (1 + exp(-x)). */
CKPT_API ckpt_tensor ckpt_silu(ckpt_tape *t, ckpt_tensor x);

/* (x - mean) / sqrt(var + eps) w + b over the last axis, biased variance; w and b [D], b or both
 * CKPT_NONE; Ba et al. 2016. */
CKPT_API ckpt_tensor ckpt_layer_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                     float eps);

/* round(x / sqrt(mean(x^2) + eps)) w over the last axis, w [D]; Zhang & Sennrich 2019.  The
 * normalised value is rounded to the dtype of x before the product with w. */
CKPT_API ckpt_tensor ckpt_rms_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps);

/* x (1 + scale) + shift. shift and scale have the rank of x, the size of its last axis, and on
 * every other axis its size or 1 (adaptive layer norm; Peebles & Xie 2023). */
CKPT_API ckpt_tensor ckpt_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                                   ckpt_tensor scale);

/*
 * layer_norm(x) (1 + scale) + shift in one pass; shift and scale as for ckpt_modulate.  The
 * normalised value is neither rounded nor stored; mean and 1 / sqrt(var + eps) of each row are
 * kept.
 */
CKPT_API ckpt_tensor ckpt_layer_norm_modulate(ckpt_tape *t, ckpt_tensor x, ckpt_tensor shift,
                                              ckpt_tensor scale, float eps);

/* x + gate a. gate has the rank of x, the size of its last axis, and on every other axis its size
 * or 1. */
CKPT_API ckpt_tensor ckpt_gated_residual(ckpt_tape *t, ckpt_tensor x, ckpt_tensor gate,
                                         ckpt_tensor a);

/*
 * Rotary embedding of interleaved pairs (Su et al. 2021): with p the index on axis `axis`, (a, b) =
 * x[..., 2k], x[..., 2k+1] becomes (a cos - b sin, b cos + a sin) with cos and sin of row p. table
 * fp32 [shape[axis], D/2, 2] holds (cos, sin).
 */
CKPT_API ckpt_tensor ckpt_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis);
/* ckpt_rope() of the pairs x[..., k], x[..., k + D/2]: the two halves of a head, as models of
 * transformers have them. */
CKPT_API ckpt_tensor ckpt_rope_halves(ckpt_tape *t, ckpt_tensor x, ckpt_tensor table, int axis);

/* rope(rms_norm(x, w, eps), table, axis) in one pass.  The normalised value is rounded to the dtype
 * of x, as in ckpt_rms_norm; its product with w is not rounded before the rotation. */
CKPT_API ckpt_tensor ckpt_rms_norm_rope(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, float eps,
                                        ckpt_tensor table, int axis);

/*
 * The keys that a query sees.  A sequence has n keys: M, or lengths[...] of them; its other rows
 * are not read.  Query i of L is at key position p = n - L + i, so that the last query is at the
 * last key (with L = M and no lengths, query i at key i).  It sees key j if all of these hold; a
 * query that sees no key gives zeros and gets zero gradients.
 *
 *   causal:     j <= p
 *   window > 0: j > p - window; only with causal
 *   first:      j >= first[..., i], the start of its document among several in one sequence
 *
 * Values of lengths and first outside of [0, M] are clamped.
 *
 * sink: probabilities are exp(score) / (exp(sink) + sum exp(score)), with a gradient (gpt-oss).  It
 * is one more key, recorded so on any device; a window is then a bias.  Not with bias, first, cap.
 */
struct ckpt_attention_spec {
    size_t size;
    float scale; /* of q k^T; 0: 1 / sqrt(D) */
    bool causal;
    int64_t window;
    ckpt_tensor first;   /* i32 [..., L], the axes of q except the last two, or CKPT_NONE */
    ckpt_tensor lengths; /* i32 [...], the leading axes, or CKPT_NONE */
    ckpt_tensor bias;    /* where the call's own is CKPT_NONE, so that modules can pass it */
    ckpt_tensor sink;    /* float [H]: a score without a value; or CKPT_NONE */
    float cap;           /* of scores, see ckpt_attention(); 0: none */
};

#define CKPT_ATTENTION_INIT                                                                        \
    {                                                                                              \
        sizeof(struct ckpt_attention_spec), 0.f, false, 0, {0, 0}, {0, 0}, {0, 0}, {0, 0}, 0.f     \
    }

/*
 * softmax(scale q k^T + bias) v per head (Vaswani et al. 2017). q [..., L, H, D], k and v [..., M,
 * KV, D] with KV dividing H: query head h uses head h / (H / KV) of k and v, whose gradients are
 * sums over their query heads (Ainslie et al. 2023).  The leading axes are equal.  Strides may be
 * any if the last axis is dense, so a permuted view needs no copy. bias CKPT_NONE, or a float
 * tensor that broadcasts to [..., H, L, M]; -INFINITY hides a key.  It has a gradient. spec NULL:
 * every query sees every key.  The result has the shape and memory order of q.  A query that sees a
 * single key gets its value; with M = 1 dq and dk are exactly 0.
 *
 * With a cap c a score s = scale q k^T becomes c tanh(s / c) before the bias (Gemma Team 2024), by
 * products and a softmax instead of a kernel: the scores are tensors, which plans may recompute.
 */
CKPT_API ckpt_tensor ckpt_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                    ckpt_tensor bias, const struct ckpt_attention_spec *spec);

/*
 * Attention of B sequences of queries on packed keys: q [B, L, H, D], L any axes, k and v [R, H,
 * D], lens i32 [B].  Sample b sees the lens[b] rows after the rows of the samples before it; rows
 * past the sum of lens are ignored and get zero gradient.  A sample without rows gives zeros; with
 * one row as above.
 */
CKPT_API ckpt_tensor ckpt_cross_attention(ckpt_tape *t, ckpt_tensor q, ckpt_tensor k, ckpt_tensor v,
                                          ckpt_tensor lens, float scale);

/* Moves the rows of x [B, L, C] whose mask (i32 [B, L]) is not 0 to the front of the result [B L,
 * C], in order, and fills the rest with zeros; *lens becomes i32 [B]. */
CKPT_API ckpt_tensor ckpt_pack(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask, ckpt_tensor *lens);

/* [cos(x f_0..), sin(x f_0..)], f_i = max_period^(-i / (dim/2)); x fp32 [B] -> [B, dim] of dtype.
 * dim is even.  No gradient. */
CKPT_API ckpt_tensor ckpt_timestep_embedding(ckpt_tape *t, ckpt_tensor x, int64_t dim,
                                             float max_period, enum ckpt_dtype dtype);

/* x [B, C, T, H, W] -> [B, ceil(T/pt), ceil(H/ph) ceil(W/pw), C pt ph pw], zero-padded at the end;
 * inside a patch the order is (c, t, h, w), as in a convolution's weight. */
CKPT_API ckpt_tensor ckpt_patchify(ckpt_tape *t, ckpt_tensor x, int64_t pt, int64_t ph, int64_t pw);

/* The inverse of ckpt_patchify(), cropped to [B, C, T, H, W]; inside a patch the order is (t, h, w,
 * c). */
CKPT_API ckpt_tensor ckpt_unpatchify(ckpt_tape *t, ckpt_tensor x, int64_t channels, int64_t frames,
                                     int64_t height, int64_t width, int64_t pt, int64_t ph,
                                     int64_t pw);

/* Views: no bytes move, except if a reshape cannot merge the strides (then it copies).  One size of
 * a reshape may be -1: it is inferred. */
CKPT_API ckpt_tensor ckpt_reshape(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape);
CKPT_API ckpt_tensor ckpt_permute(ckpt_tape *t, ckpt_tensor x, const int *axes);
CKPT_API ckpt_tensor ckpt_slice(ckpt_tape *t, ckpt_tensor x, int axis, int64_t begin, int64_t end);
/* Splits an axis into n equal parts; the axis stays. out has room for n. */
CKPT_API void ckpt_split(ckpt_tape *t, ckpt_tensor x, int axis, int n, ckpt_tensor *out);

/* Joins n tensors along an axis.  No bytes are copied if the producers can write into the
 * result. */
CKPT_API ckpt_tensor ckpt_concat(ckpt_tape *t, int axis, int n, const ckpt_tensor *x);

/* A dense row-major copy; x itself if it is already dense. */
CKPT_API ckpt_tensor ckpt_contiguous(ckpt_tape *t, ckpt_tensor x);

/* Converts between dtypes; x itself if nothing changes.  To i32: rounds towards 0, saturates
 * out-of-range values, NaN becomes 0, and there is no gradient. */
CKPT_API ckpt_tensor ckpt_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype);

#define CKPT_ALL_AXES (~0u) /* as a mask: all axes of x */

/* Sum or mean over the axes whose bit is set in mask; these axes keep size 1. The result is
 * fp32. */
CKPT_API ckpt_tensor ckpt_sum(ckpt_tape *t, ckpt_tensor x, unsigned mask);
CKPT_API ckpt_tensor ckpt_mean(ckpt_tape *t, ckpt_tensor x, unsigned mask);

/*
 * The mean of the elements of x whose mask is not 0, fp32 scalar (ndim 0); 0 if there are none.
 * mask: i32, or float weights w for sum(w x) / sum(w); it broadcasts to x and has no gradient.
 *
 * It is the mean over the whole step, whatever its micro-steps and, in a program that trains, its
 * ranks: each part divides by the mean of the counts of all parts, and the loss of a step is the
 * mean over its parts.  For this the mask must depend on inputs and constants alone; the host
 * computes the count before the step.  If it depends on a parameter, on ckpt_randn or on a product
 * of matrices, each micro-step has its own count, and samples are coupled (ckpt_couple_samples).
 * The library recognises most such means that are written in single ops (doc/ops.md).
 */
CKPT_API ckpt_tensor ckpt_masked_mean(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask);

/* N(0,1) values that depend only on (seed, step, this call, sample, element): recomputing them
 * gives the same bits for any micro-batch. shape[0] is the micro-batch. */
CKPT_API ckpt_tensor ckpt_randn(ckpt_tape *t, enum ckpt_dtype dtype, int ndim,
                                const int64_t *shape);

/*
 * Mean over the batch of each sample's mean squared error, fp32 scalar (ndim 0). pred and target
 * [B, C, T, ...], any float dtypes.  With mask (i32 [B, T]) only frames whose mask is not 0 count:
 * sum / (frames C ...).  A sample without such frames counts as 0.
 */
CKPT_API ckpt_tensor ckpt_mse(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, ckpt_tensor mask);

enum ckpt_reduction { CKPT_REDUCE_MEAN, CKPT_REDUCE_SUM, CKPT_REDUCE_NONE }; /* of rows' losses */

struct ckpt_cross_entropy_spec {
    size_t size;
    int32_t ignore_index;  /* rows with this label do not count */
    float label_smoothing; /* e in the formula; 0 to 1 */
    float z_loss;          /* z in the formula; Chowdhery et al. 2022 */
    int reduction;         /* enum ckpt_reduction */
    ckpt_tensor weight;    /* of the classes, fp32 [V], no gradient; or CKPT_NONE: all 1 */
    int64_t chunk;         /* ckpt_linear_cross_entropy: rows per chunk; 0: up to 2^29 logits */
    float cap;             /* c: x becomes c tanh(x / c) before all else; 0: it stays */
};

#define CKPT_CROSS_ENTROPY_INIT                                                                    \
    {                                                                                              \
        sizeof(struct ckpt_cross_entropy_spec), -100, 0.f, 0.f, 0, {0, 0}, 0, 0.f                  \
    }

/*
 * Cross entropy of rows x [..., V] with labels i32 [...]; p = softmax(x), m = log sum exp(x), c =
 * weight:
 *
 *   (1 - e) c[label] (-log p[label]) + e/V sum over v of c[v] (-log p[v]) + z c[label] m^2
 *
 * The mean divides by the sum of c[label] over the rows that count, as ckpt_masked_mean() does by
 * its count: over all micro-steps and ranks.  It is 0 if no row of the step counts.  The result is
 * fp32, a scalar, or [...] with CKPT_REDUCE_NONE.  A label that is neither in [0, V) nor
 * ignore_index ends the step with CKPT_EINDEX. spec NULL: the mean of -log p[label].
 */
CKPT_API ckpt_tensor ckpt_cross_entropy(ckpt_tape *t, ckpt_tensor x, ckpt_tensor label,
                                        const struct ckpt_cross_entropy_spec *spec);

/*
 * ckpt_cross_entropy(ckpt_linear(x, w, b), label), in equal chunks of rows, at most 64. The logits
 * of each chunk are a separate tensor: training computes the loss and the gradient of a chunk
 * before the next one, so the logits of only one chunk exist at a time, under every budget.  Where
 * the gradient depends on the losses, as it may with CKPT_REDUCE_NONE, a plan keeps the logits of a
 * chunk for the gradient, or recomputes them.  In bf16 the layer has up to 7 rows that are no
 * classes, so that rows of logits are aligned; no result depends on them.
 */
CKPT_API ckpt_tensor ckpt_linear_cross_entropy(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w,
                                               ckpt_tensor b, ckpt_tensor label,
                                               const struct ckpt_cross_entropy_spec *spec);

/*
 * Element-wise losses, fp32 for any operands, with broadcasting; reduction is an enum
 * ckpt_reduction, over all elements. s is softplus, d = pred - target.
 *
 *   - bce_with_logits: s(x) - target x; with pos_weight w (or CKPT_NONE) (1 - target) x + (1 + (w -
 *     1) target) s(-x).
 *   - huber (Huber 1964): d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2); delta > 0.
 *   - smooth_l1 (Girshick 2015): huber with delta = beta, divided by beta.
 *   - kl_div: target (log target - x), 0 where target is 0; x is a logarithm, and so is target with
 *     log_target.
 *   - cosine_embedding: for rows a and b [..., D] with cosine c and label i32 [...]: 1 - c where
 *     the label is 1, max(0, c - margin) where it is -1; 1e-12 is added under the root.
 */
CKPT_API ckpt_tensor ckpt_bce_with_logits(ckpt_tape *t, ckpt_tensor x, ckpt_tensor target,
                                          ckpt_tensor pos_weight, int reduction);
CKPT_API ckpt_tensor ckpt_huber(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, float delta,
                                int reduction);
CKPT_API ckpt_tensor ckpt_smooth_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target, float beta,
                                    int reduction);
CKPT_API ckpt_tensor ckpt_kl_div(ckpt_tape *t, ckpt_tensor x, ckpt_tensor target, bool log_target,
                                 int reduction);
CKPT_API ckpt_tensor ckpt_cosine_embedding(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b,
                                           ckpt_tensor label, float margin, int reduction);

/*
 * Batch norm (Ioffe & Szegedy 2015) of x [N, ..., C]: (x - mean) / sqrt(var + eps) w + b with mean
 * and biased variance over all axes but the last; w and b [C] with the dtype of x, or CKPT_NONE.
 * mean and var, fp32 buffers [C] or both CKPT_NONE, are updated (ckpt_update_buffer), var with the
 * unbiased variance.  A micro-step normalises with its own moments, so its size is part of the
 * model: with micro_batch CKPT_AUTO the batch stays whole.
 */
CKPT_API ckpt_tensor ckpt_batch_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                     ckpt_tensor mean, ckpt_tensor var, float momentum, float eps);
/* ckpt_batch_norm() with the given mean and variance, for inference: an element-wise expression. */
CKPT_API ckpt_tensor ckpt_batch_norm_apply(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w,
                                           ckpt_tensor b, ckpt_tensor mean, ckpt_tensor var,
                                           float eps);
/* Instance norm (Ulyanov et al. 2016), per sample and channel: group norm with one channel per
 * group. */
CKPT_API ckpt_tensor ckpt_instance_norm(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                        float eps);

/*
 * Group norm (Wu & He 2018) of x [N, ..., C]: per sample and group of C / groups adjacent channels,
 * (x - mean) / sqrt(var + eps) w + b with biased variance over the group and all axes between; w
 * and b [C].  With silu, SiLU of the result, without rounding in between.
 */
CKPT_API ckpt_tensor ckpt_group_norm_silu(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b,
                                          int groups, float eps, bool silu);

/* Mean of |pred - target| over all elements, fp32 scalar.  Equal shapes, any float dtypes.  The
 * gradient of equal elements is 0. */
CKPT_API ckpt_tensor ckpt_l1(ckpt_tape *t, ckpt_tensor pred, ckpt_tensor target);

/*
 * Divergence of N(mean, exp(logvar)) from N(0, 1), summed over a sample, mean over the batch:
 *
 *   1/(2B) sum(mean^2 + exp(v) - 1 - v), v = logvar clamped to [-30, 20]; Kingma & Welling 2014.
 *
 * mean and logvar [B, ...]; fp32 scalar.  Clamped elements have no gradient.
 */
CKPT_API ckpt_tensor ckpt_kl_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar);

/* mean + exp(v / 2) noise, v as above: a sample, if noise comes from ckpt_randn.  Equal shapes and
 * dtypes. noise has no gradient. */
CKPT_API ckpt_tensor ckpt_sample_normal(ckpt_tape *t, ckpt_tensor mean, ckpt_tensor logvar,
                                        ckpt_tensor noise);

/* ---- autoencoders ---------------------------------------------------------------------------- */

/* max(x, 0); NaN stays. */
CKPT_API ckpt_tensor ckpt_relu(ckpt_tape *t, ckpt_tensor x);

/*
 * A layer of LPIPS (Zhang et al. 2018): with u and v the rows of a and b along the last axis,
 * normalised to unit length, the mean over all rows of sum over c of w[c] (u[c] - v[c])^2, fp32
 * scalar. a and b [..., C], w [C], one dtype.  A row of zeros is not normalised and has no
 * gradient; w has none either.
 */
CKPT_API ckpt_tensor ckpt_feature_distance(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b,
                                           ckpt_tensor w);

/*
 * The nearest entry of a codebook (van den Oord et al. 2017): z [..., D], codebook [K, D] with one
 * dtype.  The result has the entries in place of the rows of z; its gradient passes to z unchanged.
 * *index (may be NULL) becomes i32 [...]: the index of the entry, the first of equally near ones.
 * *commitment (may be NULL) becomes the mean of (z - entry)^2 over all elements, fp32 scalar, with
 * a gradient to z.  The codebook has no gradient; the program updates it.
 */
CKPT_API ckpt_tensor ckpt_quantize(ckpt_tape *t, ckpt_tensor z, ckpt_tensor codebook,
                                   ckpt_tensor *index, ckpt_tensor *commitment);

/*
 * ckpt_group_norm_silu of a tensor that is processed in parts, cut along the first spatial axis:
 *
 *   moments: for each row of a part [N, H, ..., C], fp32 [N, H, groups, 3]: mean, sum of squared
 *   deviations, count;
 *   join: combines the moments of all rows of n parts, in order, to fp32 [N, groups, 2]: mean and 1
 *   / sqrt(var + eps);
 *   apply: applies these to a part (or to rows of several).
 *
 * Each sample has the same bits for any division into parts and any number of samples.  For
 * forward-only programs: there are no gradients, and differentiation reports an error.
 */
CKPT_API ckpt_tensor ckpt_group_norm_moments(ckpt_tape *t, ckpt_tensor x, int groups);
CKPT_API ckpt_tensor ckpt_group_norm_join(ckpt_tape *t, int n, const ckpt_tensor *moments,
                                          float eps);
CKPT_API ckpt_tensor ckpt_group_norm_apply(ckpt_tape *t, ckpt_tensor x, ckpt_tensor stats,
                                           ckpt_tensor w, ckpt_tensor b, bool silu);

/* ---- lookup, order, reductions, products ----------------------------------------------------- */

/*
 * x with axis `axis` replaced by the axes of index (i32 [...]): selects elements by index. x has
 * any dtype.  The gradient sums, in fp32 and in the order of the index, the contributions to an
 * element.  An index that is negative or not below the size of the axis is an error of the step.
 */
CKPT_API ckpt_tensor ckpt_index_select(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index);

/* ckpt_index_select of the rows of a table [V, D].  Rows with index `padding` have no gradient; -1:
 * no such index. padding outside of -1 ..  V - 1 is CKPT_EINVAL. */
CKPT_API ckpt_tensor ckpt_embedding(ckpt_tape *t, ckpt_tensor table, ckpt_tensor index,
                                    int64_t padding);

/* y[..., i, ...] = x[..., index[..., i, ...], ...] on axis `axis`; x and index (i32) have the same
 * sizes on every other axis.  The gradient is a ckpt_scatter_add to zeros. */
CKPT_API ckpt_tensor ckpt_gather(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index);

/* x, with source[..., i, ...] added to element index[..., i, ...] of axis `axis`, in the order of i
 * and in fp32, with one rounding. source and index (i32) have equal shapes, that of x except on the
 * axis. */
CKPT_API ckpt_tensor ckpt_scatter_add(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index,
                                      ckpt_tensor source);

/* The adjoint of ckpt_index_select(): x, with what source has for each index added to that position
 * of axis `axis`, in the order of the index and in fp32, with one rounding. source has the axes of
 * index (i32 [...]) in place of the axis, and the sizes of x on all others. */
CKPT_API ckpt_tensor ckpt_index_add(ckpt_tape *t, ckpt_tensor x, int axis, ckpt_tensor index,
                                    ckpt_tensor source);

/* Largest, smallest and product of the elements over the axes whose bit is set in mask; these axes
 * keep size 1 and the result is fp32, as for ckpt_sum.  Equal largest (smallest) elements share the
 * gradient equally (PyTorch's amax); NaN wins. */
CKPT_API ckpt_tensor ckpt_amax(ckpt_tape *t, ckpt_tensor x, unsigned mask);
CKPT_API ckpt_tensor ckpt_amin(ckpt_tape *t, ckpt_tensor x, unsigned mask);
CKPT_API ckpt_tensor ckpt_prod(ckpt_tape *t, ckpt_tensor x, unsigned mask);
/* Mean squared distance from the mean, divided by n - correction; correction is 0 to n - 1
 * (CKPT_EINVAL). */
CKPT_API ckpt_tensor ckpt_var(ckpt_tape *t, ckpt_tensor x, unsigned mask, int64_t correction);
/* log(sum exp(x)); -infinity, without a gradient, if all of x is -infinity. */
CKPT_API ckpt_tensor ckpt_logsumexp(ckpt_tape *t, ckpt_tensor x, unsigned mask);
/* sqrt(sum x^2); its gradient is 0 at 0. */
CKPT_API ckpt_tensor ckpt_norm(ckpt_tape *t, ckpt_tensor x, unsigned mask);
/* The index of the largest element on an axis, which keeps size 1: i32, the first of equal ones. */
CKPT_API ckpt_tensor ckpt_argmax(ckpt_tape *t, ckpt_tensor x, int axis);

/* exp(x) / sum exp(x) along an axis, and its logarithm; dtype of x, fp32 inside. */
CKPT_API ckpt_tensor ckpt_softmax(ckpt_tape *t, ckpt_tensor x, int axis);
CKPT_API ckpt_tensor ckpt_log_softmax(ckpt_tape *t, ckpt_tensor x, int axis);
/* y[i] = x[0] + ... + x[i] along an axis; dtype of x. */
CKPT_API ckpt_tensor ckpt_cumsum(ckpt_tape *t, ckpt_tensor x, int axis);

/* The indices that sort the last axis: i32, equal elements in the order of x; NaN is larger than
 * all other values.  No gradient. */
CKPT_API ckpt_tensor ckpt_argsort(ckpt_tape *t, ckpt_tensor x, bool descending);
/* The elements of the last axis in the order of ckpt_argsort(), which is stored in *index (may be
 * NULL). */
CKPT_API ckpt_tensor ckpt_sort(ckpt_tape *t, ckpt_tensor x, bool descending, ckpt_tensor *index);
/* The k largest elements of the last axis, in descending order; *index (may be NULL) becomes their
 * indices, i32. */
CKPT_API ckpt_tensor ckpt_topk(ckpt_tape *t, ckpt_tensor x, int64_t k, ckpt_tensor *index);

/*
 * y = a b of the last two axes, a [..., M, K] and b [..., K, N] with one dtype; with transpose_a a
 * is [..., K, M], with transpose_b b [..., N, K].  The leading axes broadcast (NumPy rules).  A
 * view that is dense along one of its last two axes needs no copy.
 */
CKPT_API ckpt_tensor ckpt_matmul(ckpt_tape *t, ckpt_tensor a, ckpt_tensor b, bool transpose_a,
                                 bool transpose_b);

/*
 * Products of row groups (PyTorch: grouped_mm), as in layers of experts: y [rows, N] of x [rows, K]
 * and w [groups, K, N], with transpose_w [groups, N, K]; fp32 or bf16, one dtype.  The rows of a
 * group follow each other: offsets (i32 [groups]) has the end of each, and the next one begins
 * there.  A group may be empty; rows after the last one are 0.  An offset below one before it
 * counts as that one; one below 0 or above the number of rows is an error of the step, and no row
 * out of range is read.  Gradients of x and w; the cost is that of all rows.
 */
CKPT_API ckpt_tensor ckpt_grouped_matmul(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w,
                                         ckpt_tensor offsets, bool transpose_w);

/* x broadcast to a shape by NumPy's rules: a view whose elements share bytes. */
CKPT_API ckpt_tensor ckpt_expand(ckpt_tape *t, ckpt_tensor x, int ndim, const int64_t *shape);
/* x repeated `times` times along each of its axes. */
CKPT_API ckpt_tensor ckpt_repeat(ckpt_tape *t, ckpt_tensor x, const int64_t *times);
/* Views: swaps two axes; removes an axis of size 1, or inserts one before `axis`. */
CKPT_API ckpt_tensor ckpt_transpose(ckpt_tape *t, ckpt_tensor x, int axis, int other);
CKPT_API ckpt_tensor ckpt_squeeze(ckpt_tape *t, ckpt_tensor x, int axis);
CKPT_API ckpt_tensor ckpt_unsqueeze(ckpt_tape *t, ckpt_tensor x, int axis);
/* n tensors of one shape along a new axis. */
CKPT_API ckpt_tensor ckpt_stack(ckpt_tape *t, int axis, int n, const ckpt_tensor *x);
/* Reverses an axis; shifts it up by `shift` elements, with the last ones moving to the front. */
CKPT_API ckpt_tensor ckpt_flip(ckpt_tape *t, ckpt_tensor x, int axis);
CKPT_API ckpt_tensor ckpt_roll(ckpt_tape *t, ckpt_tensor x, int axis, int64_t shift);

/* Beyond the ends of an axis: a constant; x mirrored at its end elements; these elements. */
enum ckpt_padding { CKPT_PAD_CONSTANT, CKPT_PAD_REFLECT, CKPT_PAD_REPLICATE };
/* Extends one axis by `before` and `after` elements.  Reflection needs fewer than the axis has. */
CKPT_API ckpt_tensor ckpt_pad(ckpt_tape *t, ckpt_tensor x, int axis, int64_t before, int64_t after,
                              enum ckpt_padding mode, float value);

/* index i32 [...] to [..., classes] of dtype: 1 at the index, else 0. */
CKPT_API ckpt_tensor ckpt_one_hot(ckpt_tape *t, ckpt_tensor index, int64_t classes,
                                  enum ckpt_dtype dtype);
/* value where mask (i32, broadcast) is not 0, else x. */
CKPT_API ckpt_tensor ckpt_masked_fill(ckpt_tape *t, ckpt_tensor x, ckpt_tensor mask, float value);

/* Each op stores the caller's source location: see the end of ckpt.h. */
#ifndef CKPT_NO_AT
#define ckpt_linear(t, ...)               ckpt_linear(CKPT_AT(t), __VA_ARGS__)
#define ckpt_linear_add(t, ...)           ckpt_linear_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_add(t, ...)                  ckpt_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sub(t, ...)                  ckpt_sub(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mul(t, ...)                  ckpt_mul(CKPT_AT(t), __VA_ARGS__)
#define ckpt_affine(t, ...)               ckpt_affine(CKPT_AT(t), __VA_ARGS__)
#define ckpt_where(t, ...)                ckpt_where(CKPT_AT(t), __VA_ARGS__)
#define ckpt_exp(t, ...)                  ckpt_exp(CKPT_AT(t), __VA_ARGS__)
#define ckpt_expm1(t, ...)                ckpt_expm1(CKPT_AT(t), __VA_ARGS__)
#define ckpt_log(t, ...)                  ckpt_log(CKPT_AT(t), __VA_ARGS__)
#define ckpt_log1p(t, ...)                ckpt_log1p(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sqrt(t, ...)                 ckpt_sqrt(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rsqrt(t, ...)                ckpt_rsqrt(CKPT_AT(t), __VA_ARGS__)
#define ckpt_neg(t, ...)                  ckpt_neg(CKPT_AT(t), __VA_ARGS__)
#define ckpt_abs(t, ...)                  ckpt_abs(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sign(t, ...)                 ckpt_sign(CKPT_AT(t), __VA_ARGS__)
#define ckpt_floor(t, ...)                ckpt_floor(CKPT_AT(t), __VA_ARGS__)
#define ckpt_round(t, ...)                ckpt_round(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sin(t, ...)                  ckpt_sin(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cos(t, ...)                  ckpt_cos(CKPT_AT(t), __VA_ARGS__)
#define ckpt_tanh(t, ...)                 ckpt_tanh(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sigmoid(t, ...)              ckpt_sigmoid(CKPT_AT(t), __VA_ARGS__)
#define ckpt_erf(t, ...)                  ckpt_erf(CKPT_AT(t), __VA_ARGS__)
#define ckpt_div(t, ...)                  ckpt_div(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pow(t, ...)                  ckpt_pow(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pow_scalar(t, ...)           ckpt_pow_scalar(CKPT_AT(t), __VA_ARGS__)
#define ckpt_minimum(t, ...)              ckpt_minimum(CKPT_AT(t), __VA_ARGS__)
#define ckpt_maximum(t, ...)              ckpt_maximum(CKPT_AT(t), __VA_ARGS__)
#define ckpt_clamp(t, ...)                ckpt_clamp(CKPT_AT(t), __VA_ARGS__)
#define ckpt_eq(t, ...)                   ckpt_eq(CKPT_AT(t), __VA_ARGS__)
#define ckpt_ne(t, ...)                   ckpt_ne(CKPT_AT(t), __VA_ARGS__)
#define ckpt_lt(t, ...)                   ckpt_lt(CKPT_AT(t), __VA_ARGS__)
#define ckpt_le(t, ...)                   ckpt_le(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gt(t, ...)                   ckpt_gt(CKPT_AT(t), __VA_ARGS__)
#define ckpt_ge(t, ...)                   ckpt_ge(CKPT_AT(t), __VA_ARGS__)
#define ckpt_and(t, ...)                  ckpt_and(CKPT_AT(t), __VA_ARGS__)
#define ckpt_or(t, ...)                   ckpt_or(CKPT_AT(t), __VA_ARGS__)
#define ckpt_not(t, ...)                  ckpt_not(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gelu_erf(t, ...)             ckpt_gelu_erf(CKPT_AT(t), __VA_ARGS__)
#define ckpt_leaky_relu(t, ...)           ckpt_leaky_relu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_elu(t, ...)                  ckpt_elu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_softplus(t, ...)             ckpt_softplus(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mish(t, ...)                 ckpt_mish(CKPT_AT(t), __VA_ARGS__)
#define ckpt_full(t, ...)                 ckpt_full(CKPT_AT(t), __VA_ARGS__)
#define ckpt_iota(t, ...)                 ckpt_iota(CKPT_AT(t), __VA_ARGS__)
#define ckpt_bernoulli(t, ...)            ckpt_bernoulli(CKPT_AT(t), __VA_ARGS__)
#define ckpt_dropout(t, ...)              ckpt_dropout(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gelu_tanh(t, ...)            ckpt_gelu_tanh(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gelu(t, ...)                 ckpt_gelu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_silu(t, ...)                 ckpt_silu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_layer_norm(t, ...)           ckpt_layer_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rms_norm(t, ...)             ckpt_rms_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_modulate(t, ...)             ckpt_modulate(CKPT_AT(t), __VA_ARGS__)
#define ckpt_layer_norm_modulate(t, ...)  ckpt_layer_norm_modulate(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gated_residual(t, ...)       ckpt_gated_residual(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rope(t, ...)                 ckpt_rope(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rope_halves(t, ...)          ckpt_rope_halves(CKPT_AT(t), __VA_ARGS__)
#define ckpt_rms_norm_rope(t, ...)        ckpt_rms_norm_rope(CKPT_AT(t), __VA_ARGS__)
#define ckpt_attention(t, ...)            ckpt_attention(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cross_attention(t, ...)      ckpt_cross_attention(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pack(t, ...)                 ckpt_pack(CKPT_AT(t), __VA_ARGS__)
#define ckpt_timestep_embedding(t, ...)   ckpt_timestep_embedding(CKPT_AT(t), __VA_ARGS__)
#define ckpt_patchify(t, ...)             ckpt_patchify(CKPT_AT(t), __VA_ARGS__)
#define ckpt_unpatchify(t, ...)           ckpt_unpatchify(CKPT_AT(t), __VA_ARGS__)
#define ckpt_reshape(t, ...)              ckpt_reshape(CKPT_AT(t), __VA_ARGS__)
#define ckpt_permute(t, ...)              ckpt_permute(CKPT_AT(t), __VA_ARGS__)
#define ckpt_slice(t, ...)                ckpt_slice(CKPT_AT(t), __VA_ARGS__)
#define ckpt_split(t, ...)                ckpt_split(CKPT_AT(t), __VA_ARGS__)
#define ckpt_concat(t, ...)               ckpt_concat(CKPT_AT(t), __VA_ARGS__)
#define ckpt_contiguous(t, ...)           ckpt_contiguous(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cast(t, ...)                 ckpt_cast(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sum(t, ...)                  ckpt_sum(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mean(t, ...)                 ckpt_mean(CKPT_AT(t), __VA_ARGS__)
#define ckpt_masked_mean(t, ...)          ckpt_masked_mean(CKPT_AT(t), __VA_ARGS__)
#define ckpt_randn(t, ...)                ckpt_randn(CKPT_AT(t), __VA_ARGS__)
#define ckpt_mse(t, ...)                  ckpt_mse(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cross_entropy(t, ...)        ckpt_cross_entropy(CKPT_AT(t), __VA_ARGS__)
#define ckpt_bce_with_logits(t, ...)      ckpt_bce_with_logits(CKPT_AT(t), __VA_ARGS__)
#define ckpt_huber(t, ...)                ckpt_huber(CKPT_AT(t), __VA_ARGS__)
#define ckpt_smooth_l1(t, ...)            ckpt_smooth_l1(CKPT_AT(t), __VA_ARGS__)
#define ckpt_kl_div(t, ...)               ckpt_kl_div(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cosine_embedding(t, ...)     ckpt_cosine_embedding(CKPT_AT(t), __VA_ARGS__)
#define ckpt_linear_cross_entropy(t, ...) ckpt_linear_cross_entropy(CKPT_AT(t), __VA_ARGS__)
#define ckpt_batch_norm(t, ...)           ckpt_batch_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_batch_norm_apply(t, ...)     ckpt_batch_norm_apply(CKPT_AT(t), __VA_ARGS__)
#define ckpt_instance_norm(t, ...)        ckpt_instance_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_silu(t, ...)      ckpt_group_norm_silu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_l1(t, ...)                   ckpt_l1(CKPT_AT(t), __VA_ARGS__)
#define ckpt_kl_normal(t, ...)            ckpt_kl_normal(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sample_normal(t, ...)        ckpt_sample_normal(CKPT_AT(t), __VA_ARGS__)
#define ckpt_relu(t, ...)                 ckpt_relu(CKPT_AT(t), __VA_ARGS__)
#define ckpt_feature_distance(t, ...)     ckpt_feature_distance(CKPT_AT(t), __VA_ARGS__)
#define ckpt_quantize(t, ...)             ckpt_quantize(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_moments(t, ...)   ckpt_group_norm_moments(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_join(t, ...)      ckpt_group_norm_join(CKPT_AT(t), __VA_ARGS__)
#define ckpt_group_norm_apply(t, ...)     ckpt_group_norm_apply(CKPT_AT(t), __VA_ARGS__)
#define ckpt_index_select(t, ...)         ckpt_index_select(CKPT_AT(t), __VA_ARGS__)
#define ckpt_embedding(t, ...)            ckpt_embedding(CKPT_AT(t), __VA_ARGS__)
#define ckpt_gather(t, ...)               ckpt_gather(CKPT_AT(t), __VA_ARGS__)
#define ckpt_scatter_add(t, ...)          ckpt_scatter_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_index_add(t, ...)            ckpt_index_add(CKPT_AT(t), __VA_ARGS__)
#define ckpt_amax(t, ...)                 ckpt_amax(CKPT_AT(t), __VA_ARGS__)
#define ckpt_amin(t, ...)                 ckpt_amin(CKPT_AT(t), __VA_ARGS__)
#define ckpt_prod(t, ...)                 ckpt_prod(CKPT_AT(t), __VA_ARGS__)
#define ckpt_var(t, ...)                  ckpt_var(CKPT_AT(t), __VA_ARGS__)
#define ckpt_logsumexp(t, ...)            ckpt_logsumexp(CKPT_AT(t), __VA_ARGS__)
#define ckpt_norm(t, ...)                 ckpt_norm(CKPT_AT(t), __VA_ARGS__)
#define ckpt_argmax(t, ...)               ckpt_argmax(CKPT_AT(t), __VA_ARGS__)
#define ckpt_softmax(t, ...)              ckpt_softmax(CKPT_AT(t), __VA_ARGS__)
#define ckpt_log_softmax(t, ...)          ckpt_log_softmax(CKPT_AT(t), __VA_ARGS__)
#define ckpt_cumsum(t, ...)               ckpt_cumsum(CKPT_AT(t), __VA_ARGS__)
#define ckpt_argsort(t, ...)              ckpt_argsort(CKPT_AT(t), __VA_ARGS__)
#define ckpt_sort(t, ...)                 ckpt_sort(CKPT_AT(t), __VA_ARGS__)
#define ckpt_topk(t, ...)                 ckpt_topk(CKPT_AT(t), __VA_ARGS__)
#define ckpt_matmul(t, ...)               ckpt_matmul(CKPT_AT(t), __VA_ARGS__)
#define ckpt_grouped_matmul(t, ...)       ckpt_grouped_matmul(CKPT_AT(t), __VA_ARGS__)
#define ckpt_expand(t, ...)               ckpt_expand(CKPT_AT(t), __VA_ARGS__)
#define ckpt_repeat(t, ...)               ckpt_repeat(CKPT_AT(t), __VA_ARGS__)
#define ckpt_transpose(t, ...)            ckpt_transpose(CKPT_AT(t), __VA_ARGS__)
#define ckpt_squeeze(t, ...)              ckpt_squeeze(CKPT_AT(t), __VA_ARGS__)
#define ckpt_unsqueeze(t, ...)            ckpt_unsqueeze(CKPT_AT(t), __VA_ARGS__)
#define ckpt_stack(t, ...)                ckpt_stack(CKPT_AT(t), __VA_ARGS__)
#define ckpt_flip(t, ...)                 ckpt_flip(CKPT_AT(t), __VA_ARGS__)
#define ckpt_roll(t, ...)                 ckpt_roll(CKPT_AT(t), __VA_ARGS__)
#define ckpt_pad(t, ...)                  ckpt_pad(CKPT_AT(t), __VA_ARGS__)
#define ckpt_one_hot(t, ...)              ckpt_one_hot(CKPT_AT(t), __VA_ARGS__)
#define ckpt_masked_fill(t, ...)          ckpt_masked_fill(CKPT_AT(t), __VA_ARGS__)
#endif

#ifdef __cplusplus
}
#endif
#endif
