/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit operands (--matmul fp8): see fp8.c. */
#ifndef CKPT_OPS_FP8_H
#define CKPT_OPS_FP8_H

#include "core/base.h"
#include "core/fp8.h"

enum {
    FP8_SIDE = 16,      /* sizes of matrices are multiples of it: kernels read 16 bytes at a time */
    FP8_SCALE_SIDE = 4, /* rows of scales are filled up to a multiple of it, for the same reason */
    FP8_LINE = 128,     /* bytes of a line of the cache, of which transposed copies are made */
    FP8_LEAST = 128,    /* rows, and sizes of weights, from which on a product is worth two passes
                         * over its operands */
    /*
     * Values that Hopper may sum in its accumulators of 14 bits (short_sums of struct gemm).  They
     * cut what does not fit, so sums of one sign come out too small: at 4,608 values by 5.4 %, no
     * more than rounding one factor to e4m3 may cost.  Where signs differ it is 0.14 %, where
     * rounding costs 3.7 %.  Measured on an H100 (tests/gpu/test_gpu_fp8 errors).
     */
    FP8_SHORT_SUMS = 4608
};

/* The copies that to_fp8 makes, as matrices: x as it lies, and transposed. */
enum { FP8_ROWS = 1, FP8_COLUMNS = 2 };

struct to_fp8_attr {
    int32_t dtype;  /* CKPT_F8E4M3 or CKPT_F8E5M2 */
    int32_t copies; /* a sum of the above */
    int32_t fill;   /* rows of the transposed copy are filled up to a multiple of it: FP8_LINE; of
                     * weights FP8_SIDE, so not at all, for dy has as many columns */
    int32_t square; /* of to_fp8_blocks: a scale is for 128 x 128 elements, of weights, not for 128
                     * along the axis that the copy is summed over */
    int32_t source; /* enum fp8_source; of to_fp8 no gradient, where the largest magnitude is that
                     * of what is rounded */
    int32_t sums;   /* the sums over the rows, the gradient of a bias, are one more output */
};

/* What is rounded: the operand, GELU of that, the gradient of GELU, of {dy, x}, or the operand
 * normalised and modulated; each rounded to bf16 first, as the op of that name does. */
enum fp8_source { FP8_OPERAND, FP8_GELU, FP8_GELU_DX, FP8_NORM_MODULATE };

/* Operands of to_fp8.  The last three are those of FP8_NORM_MODULATE: of each row mean and 1 over
 * its deviation.  Where several ops have written FROM side by side, MOST is the largest magnitude
 * of the first part, and those of the others stand behind. */
enum { FP8_FROM, FP8_MOST, FP8_SHIFT, FP8_SCALE, FP8_STATS, FP8_FROM_INPUTS };
enum { FP8_PARTS = 3 };

/* Rows of x, of which `share` neighbours have one of v, `step` elements from the one before. */
struct fp8_vector {
    int64_t share, step;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Whether v is such rows that kernels read in pieces of 16 bytes; x is dense, both are bf16. */
bool fp8_vector_of(const struct ckpt_desc *v, const struct ckpt_desc *x, struct fp8_vector *to);

#ifdef __cplusplus
}
#endif

struct op;

struct to_fp8_largest_attr {
    int32_t source; /* as in struct to_fp8_attr */
};

/* linear_fp8 and its gradients: of the result; only fp32 can be added to. */
struct linear_fp8_attr {
    int32_t dtype;
};

/* Operands of linear_fp8_dx_gelu, whose attributes are those of linear_dx_gelu (no post): those of
 * the product, and what GELU is of. */
enum { FP8_DX_PRE = 4, FP8_DX_INPUTS };

/* Operands of linear_fp8.  The first two are there for its gradient rule: no kernel reads them, and
 * ops_forget_sources takes them away. */
enum {
    FP8_X,
    FP8_W,
    FP8_BIAS,
    FP8_ADDEND,
    FP8_QX,
    FP8_SX, /* the scale of qx */
    FP8_QW,
    FP8_SW,
    FP8_INPUTS
};

/* Rows of the matrix that a copy stands for, and what lies between rows of the transposed one: as
 * many, rounded up; there are zeros behind them. */
static inline int64_t fp8_pitch(int64_t rows, const struct to_fp8_attr *attr)
{
    return round_up(rows, attr->fill);
}

/* The scales of a copy [rows, cols], cols summed over: a row of them for 128 columns, or, square,
 * for 128 rows; there are zeros behind. */
static inline struct ckpt_desc fp8_scales(int64_t rows, int64_t cols, bool square)
{
    const int64_t blocks = (cols + FP8_BLOCK - 1) / FP8_BLOCK;
    struct ckpt_desc d = {.dtype = CKPT_F32, .ndim = 2};
    d.shape[0] = square ? (rows + FP8_BLOCK - 1) / FP8_BLOCK : blocks;
    d.shape[1] = round_up(square ? blocks : rows, FP8_SCALE_SIDE);
    desc_dense(&d);
    return d;
}

/* The result of a product whose operands begin with input a: two 8-bit matrices, each with its
 * scale or scales behind it.  And what a product costs whose operands do so with the first. */
int fp8_product_shape(struct ckpt_call *call, int a, int32_t dtype);
void fp8_gradient_cost(const struct ckpt_call *call, struct ckpt_cost *cost);

/* Whether op o is a linear_fp8 that can leave the largest magnitude of GELU of its result, as one
 * more output (fp8_gelu.c). */
bool fp8_leaves_gelu(const ckpt_tape *t, const struct op *o);

/* Linear layers (linear.c): the rule of those that are not of 8 bits, and the gradient of a bias.
 */
void linear_grad(struct ckpt_grad *grad);
ckpt_tensor linear_bias_gradient(ckpt_tape *t, ckpt_tensor dy);
/* The sums over the rows that the op which made dy has left, or none. */
ckpt_tensor linear_sums_left(const ckpt_tape *t, ckpt_tensor dy);

/* Records y = x w^T + b + a with 8-bit operands.  fp8_takes: whether it should be, as --matmul and
 * sizes are; w is what the caller of ckpt_linear gave. */
bool fp8_takes(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w);
ckpt_tensor fp8_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor a);

#endif
