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

#include "ckpt.h"

enum { MAX_CALLS = 96, MAX_VALUES = 200, MAX_IN = 12, MAX_OUT = 8, MAX_RANK = 4, MAX_NUMEL = 4096 };

/* Leaves, then functions of the library.  UNARY has a function of its own, see unary. */
#define X(name, call, shape, fp64) CALL_##name,
enum call_kind {
#include "kinds.def"
    CALL_KINDS
};
#undef X

/*
 * X(name, function of x, its derivative, distance from where that jumps), in fp64.  First those
 * that are smooth everywhere, then those that are not, then those of positive numbers.
 */
#define SMOOTH(X)                                                                                  \
    X(tanh, tanh(x), 1 - tanh(x) * tanh(x), INFINITY)                                              \
    X(sigmoid, 1 / (1 + exp(-x)), exp(-x) / ((1 + exp(-x)) * (1 + exp(-x))), INFINITY)             \
    X(sin, sin(x), cos(x), INFINITY)                                                               \
    X(cos, cos(x), -sin(x), INFINITY)                                                              \
    X(exp, exp(x), exp(x), INFINITY)                                                               \
    X(expm1, expm1(x), exp(x), INFINITY)                                                           \
    X(erf, erf(x), 1.1283791670955126 * exp(-x * x), INFINITY)                                     \
    X(softplus, log1p(exp(x)), 1 / (1 + exp(-x)), INFINITY)                                        \
    X(neg, -x, -1., INFINITY)                                                                      \
    X(silu, x / (1 + exp(-x)), (1 + exp(-x) + x * exp(-x)) / ((1 + exp(-x)) * (1 + exp(-x))),      \
      INFINITY)                                                                                    \
    X(gelu_tanh, gelu(x), gelu_slope(x), INFINITY)                                                 \
    X(gelu_erf, x / 2 * (1 + erf(x * M_SQRT1_2)),                                                  \
      (1 + erf(x * M_SQRT1_2)) / 2 + x * exp(-x * x / 2) * 0.3989422804014327, INFINITY)           \
    X(mish, x *tanh(log1p(exp(x))), mish_slope(x), INFINITY)
#define BROKEN(X)                                                                                  \
    X(abs, fabs(x), x < 0 ? -1 : 1, fabs(x))                                                       \
    X(relu, fmax(x, 0), x > 0, fabs(x))                                                            \
    X(sign, x<0 ? -1 : x> 0, 0, fabs(x))                                                           \
    X(floor, floor(x), 0, fabs(x - rint(x)))                                                       \
    X(round, rint(x), 0, 0.5 - fabs(x - rint(x)))
#define POSITIVE(X)                                                                                \
    X(log, log(x), 1 / x, INFINITY)                                                                \
    X(log1p, log1p(x), 1 / (1 + x), INFINITY)                                                      \
    X(sqrt, sqrt(x), 0.5 / sqrt(x), INFINITY)                                                      \
    X(rsqrt, 1 / sqrt(x), -0.5 / (x * sqrt(x)), INFINITY)
#define UNARY(X)                SMOOTH(X) BROKEN(X) POSITIVE(X)
#define X(name, f, d, distance) UNARY_##name,
enum unary {
    UNARY(X) UNARIES,
    FIRST_BROKEN = UNARY_abs,
    FIRST_POSITIVE = UNARY_log,
};
#undef X

struct value {
    enum ckpt_dtype dtype;
    int ndim;
    int64_t shape[MAX_RANK];
    /* A bf16 that rounding may change: not the element of a leaf, or made of such ones. */
    bool rough;
    int call;  /* that makes it */
    int index; /* of the results of its call */
};

struct call {
    enum call_kind kind;
    enum unary unary;
    int n_in, in[MAX_IN]; /* values; -1: CKPT_NONE */
    int n_out, out;       /* values out .. out + n_out - 1 */
    int axis;             /* of reductions, splits, ...; -1: none */
    unsigned mask;        /* of sums; enum ckpt_padding of PAD */
    /* SLICE; elements before and after for PAD; groups of GROUP_NORM; window and stride of pools;
     * window of ATTENTION; lowest and highest code of FAKE_QUANTIZE; ... */
    int64_t begin, end;
    /* PERMUTE; times of REPEAT; of CONV stride, dilation, groups, padding; padding of pools */
    int axes[MAX_RANK];
    /* MATMUL, GROUPED_MATMUL: transposed; GROUP_NORM: silu; ATTENTION: causal, and bits of which
     * constants it has; pools: padding counts; losses: label 0 is ignored */
    bool flag[3];
    float a, b;   /* AFFINE, ...; label smoothing and z loss */
    int64_t seed; /* of the values of leaves, indices and labels */
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

/* Whether results are operands as they are, or leaves. */
bool call_keeps_bits(enum call_kind kind);

/* Whether x goes to a shape without a sum: the same, or with a size of 1 or no axis instead. */
bool value_broadcasts(const struct value *x, const struct value *to);

/* The values that the loss depends on. */
void recording_reach(const struct recording *r, bool *reaches);

int64_t value_numel(const struct value *v);

/* The first values of a parameter or a feed (all micro-steps), as fp32 that its dtype holds. */
void recording_fill(const struct recording *r, const struct call *c, float *x, int64_t n);

/* Indices, labels, lengths, ...: the shape and the elements of constant `which` of a call. */
void recording_indices(const struct recording *r, const struct call *c, int which,
                       struct value *shape, int32_t *x);
/* The table of a rotation, [shape[axis], last / 2, 2]: pairs of a cosine and a sine. */
void recording_table(const struct recording *r, const struct call *c, struct value *shape,
                     float *x);

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
