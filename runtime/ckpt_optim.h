/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libckpt: optimizers.  A part of ckpt.h, which includes it.
 */
#ifndef CKPT_OPTIM_H
#define CKPT_OPTIM_H

#include "ckpt.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * An optimizer, to be passed to ckpt_compile().  It belongs to its context and may be used by
 * several of its programs, which then count their updates together (k below); ckpt_close() frees
 * it.  A parameter has one state for all programs: programs that train the same parameter need
 * optimizers of the same kind for it.
 */
typedef struct ckpt_optimizer ckpt_optimizer;

/*
 * The state of a bf16 parameter depends on options.state of its context:
 *
 *   "fp32"  a master, running means and EMA in fp32: 12 bytes an element with AdamW, 16 with EMA
 *   "bf16"  no master, and the element-wise running means (CKPT_EXP_AVG, CKPT_EXP_AVG_SQ) in bf16:
 *           4 bytes with AdamW, 2 with SGD's momentum, Lion and Muon.  EMA and Adafactor's factors
 *           of matrices stay fp32
 *   "8bit"  no master, and those means in 8 bits with a scale of 2 bytes per 64 elements: 2.0625
 *           bytes with AdamW, 1.03 with SGD's momentum and Lion.  Muon and Adafactor are
 *           CKPT_EINVAL when compiled.  A mean keeps 3 bits of the fp32 fraction, down to 2^-15 of
 *           the largest of its 64 elements, a mean of squares down to 2^-31, below which it never
 *           becomes 0 (runtime/core/mean8.h has the format)
 *
 * An fp32 parameter always has fp32 state; with "bf16" or "8bit" a context that trains no bf16
 * parameter is CKPT_EINVAL when compiled.  With these an update reads weight and means, computes in
 * fp32 as below, and rounds weight and means stochastically (as in LLMQ and llm.c; Zamirai et al.
 * 2020): a result between two representable values becomes either with the probabilities that make
 * the result the expectation, so that small updates are not lost; representable values do not
 * change.  The random bits are Philox's of options.seed, the number of updates before, the
 * parameter's name and the element: the same for any number of ranks, under every budget, in every
 * tier, on CPU and GPU, and after a resume.  The EMA averages the rounded weight, which the model
 * reads.  Gradients in bf16 (grad_dtype) need memory of their own, because the old weight could not
 * be recomputed from a master.
 */

/*
 * AdamW (Loshchilov & Hutter 2019) on fp32 values, with masters for bf16 parameters and moments in
 * fp32 (or smaller state, see above), after clipping by the global L2 norm of all gradients:
 *
 *   g *= min(1, clip_norm / (norm + 1e-6));  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^k) / (sqrt(v / (1-b2^k)) + eps) + weight_decay w)
 *   ema = ema_decay ema + (1 - ema_decay) w
 *
 * Every trained parameter decays, as in torch.optim.AdamW; decay for matrices only needs one group,
 * see below.  Gradients are fp32. With grad_dtype CKPT_BF16 the gradients of bf16 matrices used by
 * a single ckpt_linear, in one micro-step, are rounded once; and ranks exchange the gradients of
 * all bf16 parameters in bf16. With bf16 or 8-bit state the gradients of several micro-steps are
 * also summed in bf16: each addition is in fp32 and rounded stochastically as above, so that small
 * addends are not lost; the random bits also depend on the micro-step and the op's position on the
 * tape.
 */
struct ckpt_adamw {
    size_t size;
    float lr, beta1, beta2, eps, weight_decay;
    float clip_norm;            /* 0: no clipping */
    float ema_decay;            /* 0: no EMA is kept */
    enum ckpt_dtype grad_dtype; /* CKPT_F32 or CKPT_BF16 */
    float clip_value; /* each element of the clipped g is limited to [-clip_value, clip_value]; 0:
                         no limit */
    bool ema_warmup;  /* the decay is min(ema_decay, (1 + k) / (10 + k)) after k updates */
};

#define CKPT_ADAMW_INIT                                                                            \
    {                                                                                              \
        sizeof(struct ckpt_adamw), 1e-4f, 0.9f, 0.999f, 1e-8f, 0.f, 0.f, 0.f, CKPT_F32, 0.f, false \
    }

/*
 * Makes an AdamW with these settings, which are copied.  Like ckpt_param() it reports errors later:
 * for NULL or settings without a size the context keeps the error, and ckpt_compile() returns
 * CKPT_EINVAL.  The same holds for the following calls.
 */
CKPT_API ckpt_optimizer *ckpt_adamw(ckpt *c, const struct ckpt_adamw *settings);

/*
 * The other optimizers. clip_norm, clip_value, ema_decay, ema_warmup and grad_dtype are as in
 * struct ckpt_adamw, k counts updates from 1, and g is clipped.
 */

/*
 * Stochastic gradient descent with the semantics of torch.optim.SGD:
 *
 *   g += weight_decay w;  m = momentum m + (1-dampening) g, but m = g for k = 1
 *   w -= lr m, or with nesterov lr (g + momentum m)
 *
 * m is the slot CKPT_EXP_AVG.  With momentum 0 there is no m, and w -= lr g.
 */
struct ckpt_sgd {
    size_t size;
    float lr, momentum, dampening, weight_decay;
    bool nesterov;
    bool ema_warmup;
    float clip_norm, clip_value, ema_decay;
    enum ckpt_dtype grad_dtype;
};

#define CKPT_SGD_INIT                                                                              \
    {                                                                                              \
        sizeof(struct ckpt_sgd), 1e-3f, 0.f, 0.f, 0.f, false, false, 0.f, 0.f, 0.f, CKPT_F32       \
    }

CKPT_API ckpt_optimizer *ckpt_sgd(ckpt *c, const struct ckpt_sgd *settings);

/*
 * Lion (Chen et al. 2023):
 *   w -= lr (sign(b1 m + (1-b1) g) + weight_decay w);  m = b2 m + (1-b2) g
 * m is the slot CKPT_EXP_AVG.
 */
struct ckpt_lion {
    size_t size;
    float lr, beta1, beta2, weight_decay;
    float clip_norm, clip_value, ema_decay;
    bool ema_warmup;
    enum ckpt_dtype grad_dtype;
};

#define CKPT_LION_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_lion), 1e-4f, 0.9f, 0.99f, 0.f, 0.f, 0.f, 0.f, false, CKPT_F32          \
    }

CKPT_API ckpt_optimizer *ckpt_lion(ckpt *c, const struct ckpt_lion *settings);

/*
 * Adafactor (Shazeer & Stern 2018) with the semantics of torch.optim.Adafactor.  A parameter of two
 * or more axes is treated as a matrix [shape[0], rest] and keeps the means of g^2 over its rows and
 * columns, the slots CKPT_EXP_AVG_SQ_ROW and CKPT_EXP_AVG_SQ_COL; other parameters keep
 * CKPT_EXP_AVG_SQ.
 *
 *   b = 1 - k^beta2_decay;  R = b R + (1-b) mean(g^2 over columns), C alike;  V = R C / mean(R)
 *   u = g / max(sqrt(V), eps1);  a = max(eps2, RMS(w)) min(lr, 1 / sqrt(k))
 *   w -= a u / max(1, RMS(u) / d) + lr weight_decay w
 *
 * mean(R) is at least eps1. Several ranks: gradients and fp32 values are gathered, one bucket at a
 * time; every rank holds all of R, C and the second moments of vectors.
 */
struct ckpt_adafactor {
    size_t size;
    float lr, beta2_decay, eps1, eps2, d, weight_decay;
    float clip_norm, clip_value, ema_decay;
    bool ema_warmup;
    enum ckpt_dtype grad_dtype;
};

#define CKPT_ADAFACTOR_INIT                                                                        \
    {                                                                                              \
        sizeof(struct ckpt_adafactor), 1e-2f, -0.8f, 1.1920929e-7f, 1e-3f, 1.f, 0.f, 0.f, 0.f,     \
            0.f, false, CKPT_F32                                                                   \
    }

CKPT_API ckpt_optimizer *ckpt_adafactor(ckpt *c, const struct ckpt_adafactor *settings);

/*
 * Muon (Jordan et al. 2024; torch.optim.Muon): momentum orthogonalized by Newton-Schulz iterations
 * in bf16, with fp32 sums.  A parameter of more than two axes is treated as [shape[0], rest]; one
 * with fewer is refused: assign it another optimizer by a group.
 *
 *   m += (1-momentum) (g - m);  u = m, or with nesterov g + momentum (m - g)
 *   X = u / max(|u|, eps);  ns_steps times X = 3.4445 X + (-4.775 A + 2.0315 A A) X, A = X X^T
 *   w -= lr (s X + weight_decay w)
 *
 * s = sqrt(max(1, rows / columns)), or with match_rms 0.2 sqrt(max(rows, columns)), which suits the
 * learning rate and decay of AdamW. m is the slot CKPT_EXP_AVG.  Several ranks: m is sharded like
 * AdamW's state; u is gathered in fp32, and every rank computes all X.
 */
struct ckpt_muon {
    size_t size;
    float lr, momentum, weight_decay, eps;
    int ns_steps;
    bool nesterov, match_rms;
    bool ema_warmup;
    float clip_norm, clip_value, ema_decay;
    enum ckpt_dtype grad_dtype;
};

#define CKPT_MUON_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_muon), 0.02f, 0.95f, 0.f, 1e-7f, 5, true, false, false, 0.f, 0.f, 0.f,  \
            CKPT_F32                                                                               \
    }

CKPT_API ckpt_optimizer *ckpt_muon(ckpt *c, const struct ckpt_muon *settings);

/*
 * Settings for some parameters.  A parameter belongs to the group if its name matches the pattern
 * ("*" is any text, "?" one character, "[..]" one of these) and its number of axes is in [min_ndim,
 * max_ndim].  If several groups match, the last added one applies, and all settings come from it
 * and the optimizer.  AdamW that decays matrices only:
 *
 *   struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
 *   g.max_ndim = 1, g.weight_decay = 0;
 *   ckpt_optimizer_group(adamw, "*", &g);
 */
struct ckpt_optimizer_group {
    size_t size;
    float lr_factor;    /* factor of the learning rate */
    float weight_decay; /* below 0: the optimizer's */
    int min_ndim, max_ndim;
    bool frozen;    /* not trained by programs of this optimizer: no gradient, no state */
    bool unclipped; /* neither clip_norm nor clip_value applies; the norm includes its gradients
                       anyway */
    /* Another optimizer's update, or NULL.  Its learning rate follows the program's, in the ratio
     * of the two settings.  It has no groups; its clipping, EMA and grad_dtype must have their
     * defaults, because the first optimizer's apply. */
    const ckpt_optimizer *optimizer;
};

#define CKPT_OPTIMIZER_GROUP_INIT                                                                  \
    {                                                                                              \
        sizeof(struct ckpt_optimizer_group), 1.f, -1.f, 0, CKPT_MAX_DIMS, false, false, NULL       \
    }

/*
 * Adds a group, before the first program of the optimizer is compiled; pattern and settings are
 * copied.  Returns 0 or CKPT_EINVAL, which the context also keeps. ckpt_compile() refuses a group
 * that no parameter of the context matches.  Several ranks: make all optimizers and groups before
 * the first program is compiled, because parameters that any of them treats differently share no
 * bucket.
 */
CKPT_API int ckpt_optimizer_group(ckpt_optimizer *o, const char *pattern,
                                  const struct ckpt_optimizer_group *settings);

/* ---- learning rates over steps --------------------------------------------------------------- */

enum ckpt_schedule_kind {
    CKPT_SCHEDULE_CONSTANT,
    CKPT_SCHEDULE_LINEAR, /* from 1 to `final` at the end */
    CKPT_SCHEDULE_COSINE, /* half a cosine wave from 1 to `final` (Loshchilov & Hutter 2017) */
    CKPT_SCHEDULE_WSD, /* 1, then at the end of the run down to `final` as 1 - sqrt(x) (Haegele et
                          al. 2024) */
    CKPT_SCHEDULE_INVERSE_SQRT /* sqrt(warmup / step) (Vaswani et al. 2017) */
};

struct ckpt_schedule {
    size_t size;
    enum ckpt_schedule_kind kind;
    int64_t warmup; /* number of warm-up steps with factor (step + 1) / (warmup + 1) */
    int64_t total;  /* number of steps, including the warm-up; afterwards the factor stays */
    double final;   /* linear, cosine, WSD: last factor of the rate; 0 or more */
    double decay;   /* WSD: fraction of the steps that decay, in (0, 1] */
};

#define CKPT_SCHEDULE_INIT                                                                         \
    {                                                                                              \
        sizeof(struct ckpt_schedule), CKPT_SCHEDULE_CONSTANT, 0, 0, 0., 0.2                        \
    }

/*
 * The learning rate of a step (0, 1, 2, ...), where lr is the rate after the warm-up: for
 * ckpt_set_lr().  It depends only on its arguments, so a resumed run continues exactly.  NaN, which
 * ckpt_set_lr() refuses, for invalid settings or a step below 0.
 */
CKPT_API double ckpt_schedule(const struct ckpt_schedule *s, double lr, int64_t step);

/* ---- LoRA ------------------------------------------------------------------------------------ */

/*
 * Low-rank adapters (Hu et al. 2022) on weights W [out, in] whose name matches `pattern`: whenever
 * ckpt_linear or ckpt_linear_add of this context has such a parameter,
 *
 *   y = x W^T + b + (alpha / rank) (x A^T) B^T
 *
 * A [rank, in] and B [out, rank] are parameters with W's dtype and PEFT's names: for
 * "h.0.qkv.weight" prefix "h.0.qkv.lora_A.weight" and "...lora_B.weight".  As in PEFT, A starts as
 * U(-1 / sqrt(in), 1 / sqrt(in)), B as 0.  In files the rows of B have the order of those of W
 * (ckpt_param_file_axes).  ckpt_embedding refuses such a parameter; other ops read W alone.
 *
 * dropout: in programs that train, the adapter reads ckpt_dropout(x) (the axis 0 of x is the
 * micro-batch); other programs have none.  ckpt_linear_cross_entropy refuses it.
 *
 * dora: DoRA (Liu et al. 2024).  Row i of W + (alpha / rank) B A is scaled to the length m[i]:
 * "...lora_magnitude_vector" [out], a parameter, in files in the order of W's rows.  Its own length
 * is a constant for gradients, as in PEFT.  m starts as 1: call ckpt_lora_magnitudes() once W has
 * its values.  Such a weight has one adapter.
 *
 * frozen: the adapter is not trained.  Several adapters of one weight, of other prefixes, add up.
 */
struct ckpt_lora {
    size_t size;
    const char *pattern; /* as for ckpt_optimizer_group */
    int64_t rank;
    float alpha;
    const char *prefix;
    float dropout; /* 0 to below 1 */
    bool dora, frozen;
};

#define CKPT_LORA_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_lora), "*", 8, 16.f, "base_model.model.", 0.f, false, false             \
    }

/*
 * Adds adapters to the parameters made so far, and makes all of these except adapters and those of
 * ckpt_lora_whole() untrained buffers.  Call it before a program is compiled.  Returns the number
 * of weights with new adapters, or CKPT_EINVAL if no weight matches, or one is trained as a whole
 * or already has an adapter of that prefix; the context keeps the error, as for ckpt_param().
 */
CKPT_API int ckpt_lora(ckpt *c, const struct ckpt_lora *settings);

/* Before ckpt_lora(): the trained parameters that match the pattern stay trained beside adapters
 * (PEFT: modules_to_save).  A pattern of ckpt_lora() that matches one of them is CKPT_EINVAL.
 * Returns their number, or CKPT_EINVAL: there is none. */
CKPT_API int ckpt_lora_whole(ckpt *c, const char *pattern);

/* Sets the magnitudes of all DoRA adapters to the lengths of the rows of W + (alpha / rank) B A, so
 * that the model computes what it computes without them.  All ranks call it.  Returns 0 or a code:
 * CKPT_EINVAL if a row is 0. */
CKPT_API int ckpt_lora_magnitudes(ckpt *c);

/* Whether layers recorded after it add their adapters; they do unless it was called.  Without them
 * a model is the one that the adapters were added to: the reference of a preference loss, in the
 * same program. */
CKPT_API void ckpt_use_adapters(ckpt_tape *t, bool on);

/* A filter for ckpt_save_params_filtered that selects adapters only, as PEFT reads them: the file
 * has their rank, alpha and layers, and adapter_config.json beside it. user is ignored. */
CKPT_API bool ckpt_lora_only(void *user, const char *name);

/*
 * Adds the adapters of every W to it, in fp32 and rounded once to its dtype, sets B to 0 and, of
 * DoRA, the magnitude to the lengths of the new rows: the model computes the same up to rounding,
 * and its weights can be saved without adapters.  Returns 0 or a code, with the sentence in the
 * context: CKPT_EINVAL if a weight is stored in codes (ckpt_quantize_frozen).
 */
CKPT_API int ckpt_lora_merge(ckpt *c);

/* ---- frozen weights in codes ----------------------------------------------------------------- */

/*
 * Stores weights that are not trained in codes (QLoRA: Dettmers et al. 2023): parameters of two
 * axes whose name matches `pattern` (as for ckpt_optimizer_group), with a multiple of 64 elements,
 * 4096 or more, except adapters and those of ckpt_lora_whole().  Other parameters do not change.
 *
 *   "int8"  a byte an element, 1.03 with scales: w = q s / 127
 *   "nf4"   4 bits, 4.25 with scales: w = v[q] s, v the 16 quantiles of a normal distribution with
 *           which QLoRA defines NF4
 *
 * s is the largest magnitude of 64 consecutive elements, rounded to bf16; q is the nearest code.  A
 * model reads such a weight in its dtype.  An op (dequantize) decodes it before its first use, and
 * again before a later use if the plan finds that cheaper than keeping it: products, adapters and
 * gradients use the decoded weight. ckpt_param_get() returns the decoded values, which give the
 * same codes when set again; states store the codes. ckpt_lora_merge() refuses weights in codes;
 * ckpt_save_params_merged() writes them merged.  Call it after ckpt_lora(), because trained
 * parameters cannot be stored in codes, and before a program is compiled; values may be set before
 * or after it.  Returns the number of weights stored in codes, or CKPT_EINVAL: no weight matches, a
 * matching one is trained or has another format, or a program was compiled; CKPT_ENOMEM; the
 * context keeps the error, as for ckpt_param().
 */
CKPT_API int ckpt_quantize_frozen(ckpt *c, const char *pattern, const char *format);

/*
 * Stores weights that are not trained below the device, for programs that read different ones: a
 * plan knows no program that is compiled later, and may keep what its own program reads on the
 * device in the steps of all others, too.  Parameters of 1 MiB or more whose name matches `pattern`
 * (as for ckpt_optimizer_group) are stored in the host tier, up to 7/8 of it, and then in files
 * (--nvme); programs copy them in where they read them.  Nothing changes if together they take at
 * most half of the device budget, or if there are no tiers; what tiers have no space for is left to
 * the plans.  No number depends on it.  Call it before a program is compiled, after
 * ckpt_quantize_frozen().  Returns the number of weights stored so, or CKPT_EINVAL: a program was
 * compiled.
 */
CKPT_API int ckpt_offload_frozen(ckpt *c, const char *pattern);

#ifdef __cplusplus
}
#endif
#endif
