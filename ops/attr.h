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

/* clip_coefficient. */
struct clip_attr {
    float clip_norm; /* 0: no clipping */
};

/* fill and randn: what to make; randn has no value. */
struct make_attr {
    int32_t dtype;
    float value;
    int64_t ndim;
    int64_t shape[CKPT_MAX_DIMS];
};

#endif
