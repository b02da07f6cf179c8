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

/* clip_coefficient: what all updates of a step share. */
struct clip_attr {
    float clip_norm; /* 0: no clipping */
    float beta1, beta2;
};

/* The norm, the factor that clips it, and of k updates 1 / (1 - beta1^k) and 1 / (1 - beta2^k).
 * Where the norm is not finite an update changes nothing but bf16 values, which it makes from their
 * masters all the same: their room may hold the gradient. */
enum { CLIP_NORM, CLIP_FACTOR, CLIP_UNBIAS1, CLIP_UNBIAS2, CLIP_VALUES };

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

/* adamw updates n parameters.  Operands: these states of each, n gradients, the clip values. */
enum {
    ADAMW_VALUE,
    ADAMW_MASTER, /* absent where the value is fp32 */
    ADAMW_EXP_AVG,
    ADAMW_EXP_AVG_SQ,
    ADAMW_EMA, /* absent where none is kept */
    ADAMW_STATES
};

#define ADAMW_PARAMS 32 /* of one op, at most */

static inline int adamw_params(int n_in)
{
    return (n_in - 1) / (ADAMW_STATES + 1);
}

/* fill and randn: what to make; randn has no value. */
struct make_attr {
    int32_t dtype;
    float value;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

#endif
