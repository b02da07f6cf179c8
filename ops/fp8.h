/* SPDX-License-Identifier: Apache-2.0 */
/* Products of 8-bit operands (--matmul fp8): see fp8.c. */
#ifndef CKPT_OPS_FP8_H
#define CKPT_OPS_FP8_H

#include "core/base.h"
#include "core/fp8.h"

enum {
    FP8_SIDE = 16,  /* unit of matrix sizes: kernels read 16 bytes at a time */
    FP8_LINE = 128, /* bytes of a cache line; the unit of writing transposed copies */
    FP8_MIN_SIDE =
        128, /* minimum rows and weight sizes for which two passes over the operands pay off */
    /*
     * Longest sum that Hopper may keep in its 14-bit accumulators (short_sums of struct gemm).
     * They truncate, so sums of one sign come out too small: by 5.4 % at 4,608 values, no more than
     * rounding one factor to e4m3 may cost.  With mixed signs the error is 0.14 %, beside 3.7 %
     * from rounding.  Measured on an H100 (tests/gpu/test_gpu_fp8 errors).
     */
    FP8_SHORT_SUMS = 4608
};

/* The copies that to_fp8 writes: x as a row-major matrix, and its transpose. */
enum { FP8_ROWS = 1, FP8_COLUMNS = 2 };

struct to_fp8_attr {
    int32_t dtype;  /* CKPT_F8E4M3 or CKPT_F8E5M2 */
    int32_t copies; /* bit mask of FP8_ROWS and FP8_COLUMNS */
    int32_t fill;   /* rows of the transposed copy are padded to a multiple of it: FP8_LINE;
                     * FP8_SIDE for weights, which adds nothing, because dy has as many columns */
    int32_t source; /* enum fp8_source */
};

/* What is rounded: the operand, its GELU, or the operand normalised and modulated.  The latter two
 * are rounded to bf16 first, as the separate op does. */
enum fp8_source { FP8_OPERAND, FP8_GELU, FP8_NORM_MODULATE };

/* Operands of to_fp8.  SHIFT, SCALE and STATS (mean and 1 / deviation of each row) are for
 * FP8_NORM_MODULATE.  Where several ops wrote parts of FROM, MOST is the largest magnitude of the
 * first part, and those of the other parts follow after STATS. */
enum { FP8_FROM, FP8_MOST, FP8_SHIFT, FP8_SCALE, FP8_STATS, FP8_FROM_INPUTS };
enum { FP8_PARTS = 3 };

/* A broadcast row vector v: `share` consecutive rows of x use the same row of v; rows of v are
 * `step` elements apart. */
struct fp8_vector {
    int64_t share, step;
};

#ifdef __cplusplus
extern "C" {
#endif

/* Whether v is such a vector that kernels can read 16 bytes at a time, and its layout.  x must be
 * dense; both must be bf16. */
bool fp8_vector_of(const struct ckpt_desc *v, const struct ckpt_desc *x, struct fp8_vector *to);

#ifdef __cplusplus
}
#endif

struct op;

struct to_fp8_largest_attr {
    int32_t source; /* enum fp8_source, as in struct to_fp8_attr */
};

/* linear_fp8 and its gradients: dtype of the result.  Only fp32 can be accumulated into. */
struct linear_fp8_attr {
    int32_t dtype;
};

/* Operands of linear_fp8_dx_gelu: those of the product, then the input of GELU. */
enum { FP8_DX_PRE = 4, FP8_DX_INPUTS };

/* Operands of linear_fp8.  X and W are for the gradient rule only; no kernel reads them, and
 * pass_sources removes them. */
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

/* Row pitch of a transposed copy: the number of rows of x, rounded up.  Zeros fill the rest. */
static inline int64_t fp8_pitch(int64_t rows, const struct to_fp8_attr *attr)
{
    return round_up(rows, attr->fill);
}

/* Shape rule of a product whose operands start at input a: {matrix, scale, matrix, scale}, the
 * matrices 8-bit.  fp8_gradient_cost: the cost of a product whose operands start at input 0. */
int fp8_product_shape(struct ckpt_call *call, int a, int32_t dtype);
void fp8_gradient_cost(const struct ckpt_call *call, struct ckpt_cost *cost);

/* From linear.c: the gradient rule of layers without 8-bit products, and the gradient of a bias. */
void linear_grad(struct ckpt_grad *grad);
ckpt_tensor linear_bias_gradient(ckpt_tape *t, ckpt_tensor dy);
/* The column sums that the op which produced dy wrote as an output, or CKPT_NONE. */
ckpt_tensor linear_column_sums_of(const ckpt_tape *t, ckpt_tensor dy);

/* fp8_linear records y = x w^T + b + a with 8-bit operands.  fp8_applies: whether --matmul and the
 * sizes call for it; w is the argument of ckpt_linear. */
bool fp8_applies(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w);
ckpt_tensor fp8_linear(ckpt_tape *t, ckpt_tensor x, ckpt_tensor w, ckpt_tensor b, ckpt_tensor a);

/* Whether kernels that compute an op while they round its result can read x: bf16 and dense. */
bool fp8_reads(const ckpt_tape *t, int32_t x);

#endif
