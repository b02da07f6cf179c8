/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A random model for the differential test of tapes: a list of calls of the library's functions,
 * which can be drawn, recorded on a tape, computed in fp64, made smaller, and printed as C.
 *
 * Values are numbered in the order of their calls.  The shapes are computed here, without the
 * library, so that a wrong shape rule is found, too.
 */
#ifndef CKPT_TESTS_RECORDING_H
#define CKPT_TESTS_RECORDING_H

#include "ckpt_conv.h"
#include "ckpt_ops.h"

enum { MAX_CALLS = 96, MAX_VALUES = 200, MAX_IN = 12, MAX_OUT = 8, MAX_RANK = 4, MAX_NUMEL = 4096 };

/* X(name): leaves, then functions of the library.  UNARY has a function of its own, see unary. */
#define CALLS(X)                                                                                   \
    X(PARAM)                                                                                       \
    X(INPUT) X(UNARY) X(AFFINE) X(ADD) X(SUB) X(MUL) X(DIV) X(MAXIMUM) X(WHERE) X(CAST) X(SUM)     \
        X(MEAN) X(AMAX) X(LOGSUMEXP) X(SOFTMAX) X(CUMSUM) X(LAYER_NORM) X(RMS_NORM) X(GROUP_NORM)  \
            X(MODULATE) X(GATED) X(LINEAR) X(MATMUL) X(CONV) X(SPLIT) X(SLICE) X(CONCAT)           \
                X(RESHAPE) X(PERMUTE) X(EXPAND) X(PAD) X(FLIP) X(ROWS) X(CROSS_ENTROPY) X(MSE)
#define X(name) CALL_##name,
enum call_kind { CALLS(X) CALL_KINDS };
#undef X

/* X(name, function of x, its derivative), in fp64. */
#define UNARY(X)                                                                                   \
    X(tanh, tanh(x), 1 - tanh(x) * tanh(x))                                                        \
    X(sigmoid, 1 / (1 + exp(-x)), exp(-x) / ((1 + exp(-x)) * (1 + exp(-x))))                       \
    X(sin, sin(x), cos(x))                                                                         \
    X(cos, cos(x), -sin(x))                                                                        \
    X(exp, exp(x), exp(x))                                                                         \
    X(erf, erf(x), 1.1283791670955126 * exp(-x * x))                                               \
    X(softplus, log1p(exp(x)), 1 / (1 + exp(-x)))                                                  \
    X(neg, -x, -1.)                                                                                \
    X(silu, x / (1 + exp(-x)), (1 + exp(-x) + x * exp(-x)) / ((1 + exp(-x)) * (1 + exp(-x))))      \
    X(gelu_tanh, gelu(x), gelu_slope(x))
#define X(name, f, d) UNARY_##name,
enum unary { UNARY(X) UNARIES };
#undef X

struct value {
    enum ckpt_dtype dtype;
    int ndim;
    int64_t shape[MAX_RANK];
    int call;  /* that makes it */
    int index; /* of the results of its call */
};

struct call {
    enum call_kind kind;
    enum unary unary;
    int n_in, in[MAX_IN]; /* values; -1: CKPT_NONE */
    int n_out, out;       /* values out .. out + n_out - 1 */
    int axis;             /* of reductions, splits, ...; -1: none */
    unsigned mask;        /* of sums */
    int64_t begin, end;   /* SLICE; elements before and after for PAD; groups of GROUP_NORM */
    int axes[MAX_RANK];   /* PERMUTE */
    bool flag[2];         /* MATMUL: transposed; GROUP_NORM: silu */
    float a, b;           /* AFFINE */
    int64_t seed;         /* of the values of leaves, indices and labels */
};

struct recording {
    int n_calls, n_values;
    struct call call[MAX_CALLS];
    struct value value[MAX_VALUES];
    int loss;           /* the value that is the loss: fp32, of no axes */
    int64_t n_micro;    /* micro-steps */
    bool adamw;         /* else SGD */
    bool bf16_gradient; /* grad_dtype */
    bool verify;        /* poisoned memory */
    int threads;
};

/* Draws recording number `seed`.  The same for all versions of the compiler and libc. */
void recording_draw(struct recording *r, int64_t seed);

/* Computes the shapes and dtypes of the results of call c, appended last.  Returns false if its
 * operands do not fit. */
bool recording_infer(struct recording *r, struct call *c);

/* The values that the loss depends on. */
void recording_reach(const struct recording *r, bool *reaches);

int64_t value_numel(const struct value *v);

/* The first values of a parameter or a feed (all micro-steps), as fp32 that its dtype holds; the
 * indices of ROWS and the labels of CROSS_ENTROPY, below `limit`. */
void recording_fill(const struct recording *r, const struct call *c, float *x, int64_t n);
void recording_indices(const struct call *c, int64_t limit, int32_t *x, int64_t n);

/* Records it.  param and input: the tensors of leaves, per value.  Fails the tape if a shape is not
 * what recording_infer computed. */
ckpt_tensor recording_play(const struct recording *r, ckpt_tape *t, const ckpt_tensor *param);

/* Prints a C function that records it, and what calls it. */
void recording_print(const struct recording *r, FILE *f);

/*
 * The loss and the gradients of parameters in fp64.  gradient: per value, room for its elements;
 * NULL where it is no parameter.  ROUND_...: every result is rounded to its dtype, and every
 * gradient of a bf16 tensor: what this changes is the size of rounding errors.  One way of rounding
 * may happen to change little, so there are two.  near: an element is so close to a branch (a
 * maximum) that rounding may choose another one.  largest: magnitude of any value.  scale: L2 norm
 * of the gradient if nothing cancelled, which rounding errors are relative to.
 */
struct reference {
    double loss, largest;
    bool near;
    double *gradient[MAX_VALUES];
    double scale[MAX_VALUES];
};
enum rounding { ROUND_NOTHING, ROUND_NEAREST, ROUND_DOWN, ROUNDINGS };
void recording_compute(const struct recording *r, enum rounding rounding, struct reference *f);

#endif
