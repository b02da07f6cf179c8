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
 * An optimizer: what ckpt_compile() is given to train.  It belongs to its context and may be given
 * to several programs of it, which then count their updates together (k below); ckpt_close() frees
 * it.  The state of a parameter is one, whichever program trains it: two that train the same one
 * have optimizers of one kind for it.
 */
typedef struct ckpt_optimizer ckpt_optimizer;

/*
 * What is kept for a parameter in bf16, by options.state of its context:
 *
 *   "fp32"  a master, running means and EMA in fp32: 12 bytes an element with AdamW, 16 with EMA
 *   "bf16"  no master, and the element-wise running means (CKPT_EXP_AVG, CKPT_EXP_AVG_SQ) in bf16:
 *           4 bytes with AdamW, 2 with SGD's momentum, Lion and Muon.  EMA and Adafactor's factors
 *           of matrices stay fp32
 *   "8bit"  no master, and those means in 8 bits with a top of 2 bytes for each 64 elements:
 *           2.0625 bytes with AdamW, 1.03 with SGD's momentum and Lion.  Muon and Adafactor are
 *           CKPT_EINVAL at the compile.  A mean is an fp32 of which 3 bits of the fraction are
 *           kept, down to 2^-15 of the largest of its 64 elements, a mean of squares down to 2^-31,
 *           below which it never becomes 0 (runtime/core/mean8.h has the format)
 *
 * A parameter in fp32 keeps fp32 state either way.  With "bf16" and "8bit" an update reads weight
 * and means, computes in fp32 as below, and rounds weight and means stochastically (as in LLMQ and
 * llm.c; Zamirai et al. 2020): a result between two values becomes each with the probability that
 * makes the result the expectation, so updates below half a gap are not lost; what has a value
 * stays as it is.  The random bits are Philox's of options.seed, the number of updates before, the
 * parameter's name and the element: the same on one rank and on several, under every budget, in
 * every tier, on CPU and GPU, and after a resume.  The EMA is that of the rounded weight, which the
 * model sees. Gradients in bf16 (grad_dtype) take bytes of their own, for nobody could make the
 * weight again.
 */

/*
 * AdamW (Loshchilov & Hutter 2019) on fp32 values, masters where parameters are bf16, with moments
 * in fp32 (or all of it smaller, see above), after clipping by the global L2 norm of all gradients:
 *   g *= min(1, clip_norm / (norm + 1e-6));  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2
 *   w -= lr (m / (1-b1^k) / (sqrt(v / (1-b2^k)) + eps) + weight_decay w)
 *   ema = ema_decay ema + (1 - ema_decay) w
 * Every trained parameter decays, as in torch.optim.AdamW; "matrices decay, the rest does not" is
 * one group, see below.  Gradients are fp32.  With grad_dtype CKPT_BF16 those of bf16 matrices that
 * one ckpt_linear uses, in one micro-step, are rounded once; and ranks exchange those of all bf16
 * parameters in bf16.  With small state as well the gradients of several micro-steps are summed in
 * bf16, too: each addition is in fp32 and rounded stochastically as above, so that small ones are
 * not lost; the random bits also follow from the micro-step and the op's place on the tape.
 */
struct ckpt_adamw {
    size_t size;
    float lr, beta1, beta2, eps, weight_decay;
    float clip_norm;            /* 0: no clipping */
    float ema_decay;            /* 0: no EMA is kept */
    enum ckpt_dtype grad_dtype; /* CKPT_F32 or CKPT_BF16 */
    float clip_value; /* then each element of g is held in [-clip_value, clip_value]; 0: not */
    bool ema_warmup;  /* the decay is min(ema_decay, (1 + k) / (10 + k)) after k updates */
};

#define CKPT_ADAMW_INIT                                                                            \
    {                                                                                              \
        sizeof(struct ckpt_adamw), 1e-4f, 0.9f, 0.999f, 1e-8f, 0.f, 0.f, 0.f, CKPT_F32, 0.f, false \
    }

/*
 * Makes an AdamW of these settings, which are copied.  Like ckpt_param() it does not fail visibly:
 * NULL or settings without a size stick to the context, and ckpt_compile() returns CKPT_EINVAL.
 * So do those that follow.
 */
CKPT_API ckpt_optimizer *ckpt_adamw(ckpt *c, const struct ckpt_adamw *settings);

/*
 * The other kinds.  clip_norm, clip_value, ema_decay, ema_warmup and grad_dtype are those of
 * struct ckpt_adamw, k counts updates from 1, and g is clipped.
 */

/*
 * Stochastic gradient descent as torch.optim.SGD has it:
 *   g += weight_decay w;  m = momentum m + (1-dampening) g, but m = g where k = 1
 *   w -= lr m, or with nesterov lr (g + momentum m)
 * m is the slot CKPT_EXP_AVG.  With momentum 0 none is kept, and w -= lr g.
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
 * Adafactor (Shazeer & Stern 2018) as torch.optim.Adafactor has it.  A parameter of two axes and
 * more counts as a matrix [shape[0], rest] and keeps the means of g^2 of its rows and columns, the
 * slots CKPT_EXP_AVG_SQ_ROW and CKPT_EXP_AVG_SQ_COL; others keep CKPT_EXP_AVG_SQ.
 *   b = 1 - k^beta2_decay;  R = b R + (1-b) mean(g^2 over columns), C alike;  V = R C / mean(R)
 *   u = g / max(sqrt(V), eps1);  a = max(eps2, RMS(w)) min(lr, 1 / sqrt(k))
 *   w -= a u / max(1, RMS(u) / d) + lr weight_decay w
 * mean(R) is at least eps1.  Several ranks: gradients and fp32 values are gathered, a bucket at a
 * time, and R, C and the second moments of vectors are whole on every rank.
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
 * Muon (Jordan et al. 2024; torch.optim.Muon): momentum whose matrix is made nearly orthogonal by
 * Newton-Schulz steps in bf16, with fp32 sums.  A parameter of more than two axes counts as
 * [shape[0], rest]; one of less is refused: give it another optimizer by a group.
 *   m += (1-momentum) (g - m);  u = m, or with nesterov g + momentum (m - g)
 *   X = u / max(|u|, eps);  ns_steps times X = 3.4445 X + (-4.775 A + 2.0315 A A) X, A = X X^T
 *   w -= lr (s X + weight_decay w)
 * s = sqrt(max(1, rows / columns)), or with match_rms 0.2 sqrt(max(rows, columns)), which takes
 * learning rate and decay of AdamW.  m is the slot CKPT_EXP_AVG.  Several ranks: m is sharded as
 * AdamW's state is; u is gathered in fp32, and every rank computes all X.
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
 * What is different for some parameters.  Those whose name matches a pattern ("*" is any text, "?"
 * one character, "[..]" one of these) and whose number of axes is in [min_ndim, max_ndim] are of
 * the group; of several groups the last that was added has a parameter, and all its settings come
 * from that one and the optimizer.  AdamW that decays matrices only:
 *
 *   struct ckpt_optimizer_group g = CKPT_OPTIMIZER_GROUP_INIT;
 *   g.max_ndim = 1, g.weight_decay = 0;
 *   ckpt_optimizer_group(adamw, "*", &g);
 */
struct ckpt_optimizer_group {
    size_t size;
    float lr_factor;    /* of the learning rate */
    float weight_decay; /* below 0: that of the optimizer */
    int min_ndim, max_ndim;
    bool frozen;    /* not trained by programs of this optimizer: no gradient, no state */
    bool unclipped; /* neither clip_norm nor clip_value; the norm counts them all the same */
    /* Another optimizer's update, or NULL.  Its learning rate moves with that of the program, in
     * the ratio of the two settings; it has no groups, and clipping, EMA and grad_dtype are those
     * of the first: here they stay at their defaults. */
    const ckpt_optimizer *optimizer;
};

#define CKPT_OPTIMIZER_GROUP_INIT                                                                  \
    {                                                                                              \
        sizeof(struct ckpt_optimizer_group), 1.f, -1.f, 0, CKPT_MAX_DIMS, false, false, NULL       \
    }

/*
 * Adds a group, before the first program of the optimizer is compiled; pattern and settings are
 * copied.  Returns 0 or CKPT_EINVAL, which also sticks to the context.  ckpt_compile() refuses a
 * group to which no parameter of the context belongs.
 *
 * Several ranks: parameters of one group share a bucket, so all programs of a context need the
 * same groups, and one that trains is compiled first.
 */
CKPT_API int ckpt_optimizer_group(ckpt_optimizer *o, const char *pattern,
                                  const struct ckpt_optimizer_group *settings);

/* ---- learning rates over steps --------------------------------------------------------------- */

enum ckpt_schedule_kind {
    CKPT_SCHEDULE_CONSTANT,
    CKPT_SCHEDULE_LINEAR,      /* from 1 to `final` at the end */
    CKPT_SCHEDULE_COSINE,      /* half a wave from 1 to `final` (Loshchilov & Hutter 2017) */
    CKPT_SCHEDULE_WSD,         /* 1, then over the last part of the steps to `final` as 1 - sqrt(x)
                                  falls (Haegele et al. 2024) */
    CKPT_SCHEDULE_INVERSE_SQRT /* sqrt(warmup / step) (Vaswani et al. 2017) */
};

struct ckpt_schedule {
    size_t size;
    enum ckpt_schedule_kind kind;
    int64_t warmup; /* steps before: (step + 1) / (warmup + 1) */
    int64_t total;  /* steps in all, those of the warm-up included; behind them the last value */
    double final;   /* of linear, cosine and WSD: what is left of the rate; 0 or more */
    double decay;   /* of WSD: the part of the steps that decay, in (0, 1] */
};

#define CKPT_SCHEDULE_INIT                                                                         \
    {                                                                                              \
        sizeof(struct ckpt_schedule), CKPT_SCHEDULE_CONSTANT, 0, 0, 0., 0.2                        \
    }

/*
 * The learning rate of a step (0, 1, 2, ...), where lr is that after the warm-up: for
 * ckpt_set_lr().  It follows from its arguments alone, so a run that is resumed goes on exactly.
 * NaN, which ckpt_set_lr() refuses, for settings that are not as above, or a step below 0.
 */
CKPT_API double ckpt_schedule(const struct ckpt_schedule *s, double lr, int64_t step);

/* ---- LoRA ------------------------------------------------------------------------------------ */

/*
 * Low-rank adapters (Hu et al. 2022) on weights W [out, in] whose name matches `pattern`: wherever
 * ckpt_linear or ckpt_linear_add of this context is given such a parameter,
 *   y = x W^T + b + (alpha / rank) (x A^T) B^T
 * A [rank, in] and B [out, rank] are parameters of W's dtype, named as PEFT names them: for
 * "h.0.qkv.weight" prefix "h.0.qkv.lora_A.weight" and "...lora_B.weight".  A begins as PEFT has it,
 * U(-1 / sqrt(in), 1 / sqrt(in)), B at 0.
 */
struct ckpt_lora {
    size_t size;
    const char *pattern; /* as of ckpt_optimizer_group */
    int64_t rank;
    float alpha;
    const char *prefix;
};

#define CKPT_LORA_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ckpt_lora), "*", 8, 16.f, "base_model.model."                                \
    }

/*
 * Adds adapters to the parameters made so far, and makes buffers of all of those but adapters: they
 * are not trained.  Before a program is compiled.  Returns how many weights got one, or
 * CKPT_EINVAL: none does, or one has an adapter already; the error sticks to the context as that of
 * ckpt_param().
 */
CKPT_API int ckpt_lora(ckpt *c, const struct ckpt_lora *settings);

/* A filter for ckpt_save_params_filtered: adapters alone, as PEFT reads them.  user is not used. */
CKPT_API bool ckpt_lora_only(void *user, const char *name);

/*
 * Adds (alpha / rank) B A to every W that has an adapter, in fp32 and rounded once to its dtype,
 * and sets B to 0: the model computes the same, up to rounding, and its weights can be saved
 * without adapters.  Returns 0 or a code, the sentence in the context: CKPT_EINVAL where a weight
 * is kept in codes (ckpt_quantize_frozen).
 */
CKPT_API int ckpt_lora_merge(ckpt *c);

/* ---- frozen weights in codes ----------------------------------------------------------------- */

/*
 * Keeps weights that are not trained in codes (QLoRA: Dettmers et al. 2023): parameters of two axes
 * whose name matches `pattern` (as of ckpt_optimizer_group), with a multiple of 64 elements, 4096
 * or more, but for adapters.  Others stay as they are.
 *
 *   "int8"  a byte an element, 1.03 with scales: w = q s / 127
 *   "nf4"   4 bits, 4.25 with scales: w = v[q] s, v the 16 quantiles of a normal distribution by
 *           which QLoRA defines NF4
 *
 * s is the largest magnitude of 64 elements, one behind the other, rounded to bf16; q is the
 * nearest.  A model sees such a weight in its dtype, as an op (dequantize) makes it where the
 * weight is first used, and again before a later use where the plan finds that cheaper than keeping
 * it: products, adapters and gradients are those of that weight.  ckpt_param_get() gives what the
 * codes stand for, which has the same codes when it is set again; states have the codes themselves.
 * ckpt_lora_merge() refuses weights in codes, ckpt_save_params_merged() writes them merged.
 *
 * Called behind ckpt_lora(), for what is trained cannot be kept so, and before a program is
 * compiled; values may be set before or after it.  Returns how many weights are kept so, or
 * CKPT_EINVAL: no weight is, one that matches is trained or has another format, or a program was
 * compiled; CKPT_ENOMEM; the error sticks to the context as that of ckpt_param().
 */
CKPT_API int ckpt_quantize_frozen(ckpt *c, const char *pattern, const char *format);

#ifdef __cplusplus
}
#endif
#endif
