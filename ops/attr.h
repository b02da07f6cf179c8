/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of the element-wise, reduction, copy and random ops, shared by their rules and
 * kernels.  The structs have no padding, so equal attributes have equal bytes.
 */
#ifndef CKPT_OPS_ATTR_H
#define CKPT_OPS_ATTR_H

#include "ckpt.h"

struct affine_attr {
    float a, b;
};

/* sum_to: the shape of the result. */
struct sum_to_attr {
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

/* sum: scale times the sum over the axes whose bit in mask is set.  Summed axes keep size 1. */
struct sum_attr {
    uint32_t mask;
    float scale;
};

/* broadcast: scale times x, broadcast to a shape (NumPy rules). */
struct broadcast_attr {
    int32_t dtype;
    float scale;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

struct cast_attr {
    int32_t dtype;
};

/* linear_dw: the dtype of the result.  Only an fp32 result can be accumulated into. */
struct linear_dw_attr {
    int32_t dtype;
};

/* clip_coefficient: the values that all updates of a step share. */
#define CLIP_BETAS 8 /* maximum number of (beta1, beta2) pairs in one step */
struct clip_attr {
    float clip_norm; /* 0: no clipping */
    float beta1, beta2;
    int32_t more;    /* number of pairs besides the first */
    int32_t scalars; /* whether the update number and the learning rate follow */
    float beta[2 * (CLIP_BETAS - 1)];
};

/*
 * The clip values: the gradient norm; the clipping factor; for update k the bias corrections
 * 1 / (1 - beta1^k) and 1 / (1 - beta2^k), once per pair; then, if requested, k and the learning
 * rate.
 *
 * If the norm is not finite, an update changes nothing except bf16 values that have masters.  It
 * rounds these from the master all the same, because the gradient may occupy their address range.
 */
enum { CLIP_NORM, CLIP_FACTOR, CLIP_UNBIAS1, CLIP_UNBIAS2, CLIP_VALUES };

static inline int clip_step(const struct clip_attr *a)
{
    return CLIP_VALUES + 2 * a->more;
}

static inline int clip_values(const struct clip_attr *a)
{
    return clip_step(a) + (a->scalars ? 2 : 0);
}

/*
 * Values of run.halt.  0: no fault; otherwise the reason why later updates change nothing.
 * HALT_INDEX: an index was out of range.  HALT_NAN: the gradient norm was not finite.  HALT_UPDATE:
 * an update with finite gradients made a weight that is not finite.  The parity of run.opt_step is
 * added to HALT_UPDATE, because two steps may be in progress.
 */
enum { HALT_INDEX = -1, HALT_NAN = 1, HALT_UPDATE = 2 };

/*
 * The struct that run.bad_index points to: the out-of-range index that kernels reported in this
 * step.  The first faulty call is kept, and of its indices the one at the smallest position.  A
 * kernel writes NaN for a value without a valid index, reports the index (kernels/cpu/report.h,
 * kernels/cuda/report.cuh) and continues.
 */
struct index_report {
    uint64_t call;  /* micro-step << 32 | position on the tape + 1; 0: no index is out of range */
    uint64_t first; /* smallest position << 32 | index as 32 bits; initialised to UINT64_MAX */
    int64_t size;   /* valid indices are [0, size) */
};

/*
 * The update ops (adamw, sgd, lion, step) update n parameters.  Operands: the states below for each
 * parameter, n gradients, the clip values.  A state that the optimizer does not keep is absent.
 */
enum {
    UPDATE_VALUE,
    UPDATE_MASTER, /* absent where the value is fp32, or `narrow` is set */
    UPDATE_EXP_AVG,
    UPDATE_EXP_AVG_SQ,
    UPDATE_EMA, /* absent without EMA */
    UPDATE_STATES
};

#define UPDATE_PARAMS 32 /* maximum number of parameters in one op */

static inline int update_params(int n_in)
{
    return (n_in - 1) / (UPDATE_STATES + 1);
}

/* The element-wise formula of an update: see optim/update_math.h. */
enum update_kind { UPDATE_ADAMW, UPDATE_SGD, UPDATE_LION, UPDATE_STEP, UPDATE_KINDS };

/* The attribute of an update op. */
struct update_attr {
    int32_t kind;       /* enum update_kind */
    float lr_factor;    /* factor on the learning rate of the step */
    float beta1, beta2; /* sgd: momentum and dampening */
    float eps, weight_decay;
    float scale; /* step: factor on the operand; `plain`: not multiplied by the learning rate */
    float clip_value; /* 0: no clipping by value */
    float ema_decay;  /* 0: no EMA */
    int32_t nesterov, plain;
    int32_t unclipped; /* neither the norm nor clip_value clips the gradient */
    int32_t ema_warmup;
    int32_t unbias; /* index of its first bias correction in the clip values */
    int32_t narrow; /* enum narrow_state; if above 0, a struct rounding follows */
};

/* The optimizer state beside a bf16 value without a master: moments in bf16, or in 8 bits
 * (core/mean8.h), whose operand holds packed words. */
enum narrow_state { NARROW_NOT, NARROW_BF16, NARROW_8BIT };

/*
 * Stochastic rounding of bf16 state.  The random bits are a function of the seed, the parameter's
 * name, the update number and the element.  They do not depend on where an operand holds the
 * element, so ranks that update shares of buckets round exactly as a single rank does.
 */
struct rounding_part {
    uint64_t name; /* hash of the parameter's name; XOR with the seed gives the key */
    int64_t first; /* offset of the parameter in its operand, a multiple of LAYOUT_ALIGN (64);
                    * negative: it begins before the operand */
};

#define ROUNDING_PARTS 64 /* maximum over all operands of one op */

/* Parts [begin[k], begin[k + 1]) belong to parameter k of the op and are consecutive. */
struct rounding {
    uint8_t begin[UPDATE_PARAMS + 1];
    struct rounding_part part[ROUNDING_PARTS];
};

/* Uses of a random 32-bit word: 16 bits each; any two uses are independent. */
enum { NOISE_VALUE, NOISE_MEAN, NOISE_SQUARE };

struct narrow_update_attr {
    struct update_attr update; /* with narrow above 0 */
    struct rounding rounding;
};

/* assign: no attribute, or for bf16 states how values are rounded. */
struct narrow_assign_attr {
    int32_t noise;
    struct rounding rounding;
};

#define ASSIGN_PAIRS  32 /* maximum number of pairs in one assign */
#define AVERAGE_PAIRS 4  /* maximum number of pairs in one moving_average */

struct moving_average_attr {
    float momentum;
};

/* attention: query i of L is at key position n - L + i, where its sequence has n keys. */
struct attention_attr {
    float scale;
    int32_t causal; /* a query sees no key after its own position */
    int64_t window; /* above 0: only the last `window` of these keys; requires causal */
};

struct cross_attention_attr {
    float scale;
};

enum { ATTENTION_RESULTS = 3 }; /* of its gradients: dq, dk, dv */

/*
 * Operands of attention.  The gradients have three more (o, lse, do) before the optional ones.  The
 * optional operands are all omitted if none is used.
 */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_PLAIN, /* number of required operands */
    ATTENTION_O = ATTENTION_PLAIN,
    ATTENTION_LSE,
    ATTENTION_D_O,
    ATTENTION_DX_PLAIN
};
enum { ATTENTION_BIAS, ATTENTION_FIRST, ATTENTION_LENGTHS, ATTENTION_EXTRAS };

/* dequantize: format of the codes (core/frozen.h) and shape of the result. */
struct dequantize_attr {
    int32_t format; /* enum frozen_format */
    int32_t dtype;
    int64_t rows, cols;
};

/* cross_entropy and its gradient: see struct ckpt_cross_entropy_spec. */
struct cross_entropy_attr {
    int32_t ignore_index, reduction;
    float label_smoothing, z_loss;
    int64_t classes; /* labels are below it; columns from it on are padding.  0: all columns */
};

/* The number of classes in rows of n scores. */
static inline int64_t cross_entropy_classes(const struct cross_entropy_attr *a, int64_t n)
{
    return a->classes ? a->classes : n;
}

/* fill and randn: dtype and shape of the result; randn ignores value. */
struct make_attr {
    int32_t dtype;
    float value;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

#endif
