/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of the element-wise, reducing, copying and random ops, shared by their rules and their
 * kernels.  Fields fill the structs without padding, so that equal attributes are equal bytes.
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

/* sum: scale times the sum over the axes whose bit is set; they keep size 1. */
struct sum_attr {
    uint32_t mask;
    float scale;
};

/* broadcast: scale times x, spread to a shape (NumPy rules). */
struct broadcast_attr {
    int32_t dtype;
    float scale;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

struct cast_attr {
    int32_t dtype;
};

/* linear_dw: the dtype of the result; only fp32 can be added to. */
struct linear_dw_attr {
    int32_t dtype;
};

/* linear_dx_gelu: what follows the gradient as further results. */
struct linear_dx_gelu_attr {
    int32_t sums, post; /* of its columns; GELU once more */
};

/* clip_coefficient: what all updates of a step share. */
#define CLIP_BETAS 8 /* pairs of betas of one step, at most */
struct clip_attr {
    float clip_norm; /* 0: no clipping */
    float beta1, beta2;
    int32_t more;    /* pairs beside the first */
    int32_t scalars; /* whether the number of the update and the learning rate follow */
    float beta[2 * (CLIP_BETAS - 1)];
};

/*
 * The norm, the factor that clips it, and of k updates 1 / (1 - beta1^k) and 1 / (1 - beta2^k), as
 * often as there are pairs; then, where they are asked for, k and the learning rate.
 * Where the norm is not finite an update changes nothing but bf16 values that have masters, of
 * which it makes them all the same: their room may hold the gradient.
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
 * What run.halt holds: 0 as long as all is well, else why the updates behind change nothing.  An
 * index out of range leaves HALT_INDEX, a norm that is not finite HALT_NAN.  An update that made a
 * weight not finite, where gradients were, leaves HALT_UPDATE plus the parity of its run.opt_step,
 * for two steps may be under way.
 */
enum { HALT_INDEX = -1, HALT_NAN = 1, HALT_UPDATE = 2 };

/*
 * Behind run.bad_index: what kernels that read indices found out of range in this step.  The first
 * call that finds one stays, and of its indices the one at the first place.  A kernel makes NaN of
 * the values it has no index for, reports it (cpu/report.h, cuda/report.cuh) and goes on.
 */
struct index_report {
    uint64_t call;  /* micro-step << 32 | position on the tape + 1; 0: none is out of range */
    uint64_t first; /* smallest place << 32 | index as 32 bits; set to UINT64_MAX before */
    int64_t size;   /* indices are to be in [0, size) */
};

/*
 * The update ops (adamw, sgd, lion, step) change n parameters.  Operands: these states of each, n
 * gradients, the clip values.  A state that a kind does not keep is absent.
 */
enum {
    UPDATE_VALUE,
    UPDATE_MASTER, /* absent where the value is fp32, or `narrow` */
    UPDATE_EXP_AVG,
    UPDATE_EXP_AVG_SQ,
    UPDATE_EMA, /* absent where none is kept */
    UPDATE_STATES
};

#define UPDATE_PARAMS 32 /* of one op, at most */

static inline int update_params(int n_in)
{
    return (n_in - 1) / (UPDATE_STATES + 1);
}

/* What an update does to an element: see optim/update_math.h. */
enum update_kind { UPDATE_ADAMW, UPDATE_SGD, UPDATE_LION, UPDATE_STEP, UPDATE_KINDS };

/* The attribute of an update op. */
struct update_attr {
    int32_t kind;       /* enum update_kind */
    float lr_factor;    /* of the learning rate of the step */
    float beta1, beta2; /* sgd: momentum and dampening */
    float eps, weight_decay;
    float scale; /* step: of the operand; it is not multiplied by the learning rate where `plain` */
    float clip_value; /* 0: none */
    float ema_decay;  /* 0: none is kept */
    int32_t nesterov, plain;
    int32_t unclipped; /* neither the norm nor clip_value clip the gradient */
    int32_t ema_warmup;
    int32_t unbias; /* where in the clip values its first correction stands */
    int32_t narrow; /* enum narrow_state; above 0 a struct rounding follows */
};

/* What a bf16 value without a master is kept beside: means in bf16, or in 8 bits (core/mean8.h), of
 * whose operand the elements are words. */
enum narrow_state { NARROW_NOT, NARROW_BF16, NARROW_8BIT };

/*
 * Stochastic rounding of state in bf16.  Its random bits follow from the seed, the parameter's
 * name, the number of updates before and the element, so it does not matter where in which operand
 * an element stands: ranks, which update shares of buckets, round as one alone does.
 */
struct rounding_part {
    uint64_t name; /* a hash of the parameter's; exclusive-or with the seed it is the key */
    int64_t first; /* where in its operand the parameter begins, a multiple of LAYOUT_ALIGN (64);
                    * below 0: before */
};

#define ROUNDING_PARTS 64 /* of all operands of one op, at most */

/* Parts [begin[k], begin[k + 1]) are of parameter k of the op, and lie one behind the other. */
struct rounding {
    uint8_t begin[UPDATE_PARAMS + 1];
    struct rounding_part part[ROUNDING_PARTS];
};

/* What a random word of 32 bits is for: 16 bits each, any two of which are independent. */
enum { NOISE_VALUE, NOISE_MEAN, NOISE_SQUARE };

struct narrow_update_attr {
    struct update_attr update; /* with narrow set */
    struct rounding rounding;
};

/* assign: none, or where states are bf16 how values are rounded. */
struct narrow_assign_attr {
    int32_t noise;
    struct rounding rounding;
};

#define ASSIGN_PAIRS  32 /* of one assign, at most */
#define AVERAGE_PAIRS 4  /* of one moving_average, at most */

struct moving_average_attr {
    float momentum;
};

/* attention: query i of L stands at key place n - L + i of the n keys of its sequence. */
struct attention_attr {
    float scale;
    int16_t causal; /* a query sees no key behind its own place */
    uint16_t left;  /* of gradients: see attention_leave */
    int64_t window; /* above 0: and of those the last so many; only with causal */
};

struct cross_attention_attr {
    float scale;
    uint16_t left, unused;
};

/*
 * Which results of a gradient of attention (dq, dk, dv) outputs behind those of its rule are the
 * largest magnitudes of (ops/largest.c): 1 and their number, in two bits each, the first output
 * lowest.
 */
enum { ATTENTION_RESULTS = 3 };

static inline void attention_leave(uint16_t *left, int result)
{
    int k = 0;
    while (*left >> 2 * k)
        k++;
    *left |= (uint16_t)((result + 1) << 2 * k);
}

/* The output that is the largest magnitude of a result, or -1. */
static inline int attention_left(uint16_t left, int result)
{
    for (int k = 0; left >> 2 * k; k++)
        if ((left >> 2 * k & 3) == result + 1)
            return ATTENTION_RESULTS + k;
    return -1;
}

/*
 * Operands of attention, and of its gradients, which have three more in front of the optional ones.
 * These are left out together where there is none.
 */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_PLAIN, /* so many without optional ones */
    ATTENTION_O = ATTENTION_PLAIN,
    ATTENTION_LSE,
    ATTENTION_D_O,
    ATTENTION_DX_PLAIN
};
enum { ATTENTION_BIAS, ATTENTION_FIRST, ATTENTION_LENGTHS, ATTENTION_EXTRAS };

/* dequantize: what its codes (core/frozen.h) are made into. */
struct dequantize_attr {
    int32_t format; /* enum frozen_format */
    int32_t dtype;
    int64_t rows, cols;
};

/* cross_entropy and its gradient: see struct ckpt_cross_entropy_spec. */
struct cross_entropy_attr {
    int32_t ignore_index, reduction;
    float label_smoothing, z_loss;
};

/* fill and randn: what to make; randn has no value. */
struct make_attr {
    int32_t dtype;
    float value;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

#endif
