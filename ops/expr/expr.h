/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise expressions: one op, `expr`, whose attribute is a small program.
 *
 * A program (struct expr) is a DAG over the elements of up to EXPR_INPUTS operands.  Nodes follow
 * their arguments; the last node is the result.  A function of ckpt_ops.h such as ckpt_exp()
 * records a program of one or a few nodes; pass_fuse() merges chains of them into one when the tape
 * is complete.  A single function and a fused chain are the same op, with one shape rule, one
 * gradient rule, one cost and one kernel per device.
 *
 * - Values: every node is fp32.  bf16 operands are converted when read, a bf16 result is rounded
 *   when written.  In a fused chain a BF16 node rounds what the separate op would have written, so
 *   the bits are those of the separate ops.  i32 operands are converted to fp32 (exact up to 2^24);
 *   an i32 result has integral values, which are converted when written.
 * - Leaves besides operands: constants, the index along an axis, and uniform random values from
 *   the counter, whose stream is the number of the op that drew them first.  So a dropout mask
 *   is never stored: the backward pass draws it again.
 * - Building: expr_node() appends a node unless an equal one exists (hash-consing by a scan, since
 *   programs are short) and applies identities that are exact for every value, including NaN,
 *   infinities and signed zeros.  A program that is too large sets `full` and fails when recorded.
 * - Gradients (adjoint.c): reverse mode over the DAG gives another program over the same operands,
 *   the gradient of the result, and the result itself where that saves reading the operands.  It is
 *   recorded as an expr op, so gradients of gradients need no further rule.
 * - Fusion (fuse.c): a producer is fused into its readers when no other op reads it, and into a few
 *   readers when it is cheap to recompute in each.  Fusion depends on the tape alone, never on a
 *   budget or a device.  Ops with kernels of their own (add, gelu, ...) can be fused: expr_of_op()
 *   has their programs, whose nodes call the functions of those kernels, so no bit changes.
 * - Pairs (pair.c): two adjacent gradients with the same operands become one op with two results.
 * - Rows: a sum or mean over the last axes is a SUM node, an extreme a MAX node: one value for the
 *   whole row of `reduced` axes.  Chains are fused before and after it, so that a softmax or a norm
 *   is one program.  It passes over the rows of e->shape once for each level of row nodes, and then
 *   stores one result per element, or one per row.
 * - CPU (kernels/cpu/expr.c): an interpreter, node by node, over blocks that fit the
 *   first-level cache.
 * - CUDA (kernels/cuda/expr*.c, .cu): a kernel per program, compiled by NVRTC before the first step
 *   and cached on disk; without NVRTC, a kernel that interprets the program.
 */
#ifndef CKPT_EXPR_H
#define CKPT_EXPR_H

#include <stddef.h>
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EXPR_INPUTS = 8,                 /* maximum operands of a recorded op */
    EXPR_LIMIT = 128,                /* maximum nodes of a recorded op */
    EXPR_OPERANDS = EXPR_INPUTS + 2, /* while a gradient is built: also the gradient of the result,
                                      * and the result */
    EXPR_NODES = 250,                /* maximum nodes while a gradient is built */
    EXPR_ROW_NODES = 8,              /* maximum SUM and MAX nodes */
    EXPR_NAME = 48
};

/*
 * X(CODE, function, arguments, flops per element).  The function is the suffix of its name on the
 * CPU (map_<function>) and in CUDA (expr_<function>).  The node has the constants p and q.
 */
#define EXPR_LEAVES(X)                                                                             \
    X(INPUT, input, 0, 0)       /* operand arg[0] */                                               \
    X(CONSTANT, constant, 0, 0) /* p */                                                            \
    X(INDEX, index, 0, 2)       /* along axis arg[0] of the result */                              \
    X(UNIFORM, uniform, 0, 25)  /* [0, 1), from the counter */
/* of a row, as fp32 */
#define EXPR_REDUCTIONS(X)                                                                         \
    X(SUM, sum, 1, 1) /* p times the sum */                                                        \
    X(MAX, max, 1, 2) /* NaN wins; p is 1 */
#define EXPR_FUNCTIONS(X)                                                                          \
    X(SCALE, scale, 1, 1)     /* p x */                                                            \
    X(AFFINE, affine, 1, 2)   /* p x + q */                                                        \
    X(CLAMP, clamp, 1, 2)     /* x clamped to [p, q]; NaN stays */                                 \
    X(LEAKY, leaky, 1, 2)     /* x, or p x below 0 */                                              \
    X(BF16, bf16, 1, 3)       /* rounded to bf16 */                                                \
    X(INTEGER, integer, 1, 3) /* toward 0, clamped to i32; NaN is 0 */                             \
    X(EXP, exp, 1, 16)                                                                             \
    X(EXPM1, expm1, 1, 20)                                                                         \
    X(LOG, log, 1, 20)                                                                             \
    X(LOG1P, log1p, 1, 26)                                                                         \
    X(SQRT, sqrt, 1, 4)                                                                            \
    X(RSQRT, rsqrt, 1, 8)                                                                          \
    X(ABS, abs, 1, 1)                                                                              \
    X(SIGN, sign, 1, 3)                                                                            \
    X(TANH, tanh, 1, 24)                                                                           \
    X(SIGMOID, sigmoid, 1, 22)                                                                     \
    X(SOFTPLUS, softplus, 1, 44)                                                                   \
    X(ERF, erf, 1, 40)                                                                             \
    X(SIN, sin, 1, 24)                                                                             \
    X(COS, cos, 1, 24)                                                                             \
    X(FLOOR, floor, 1, 1)                                                                          \
    X(ROUND, round, 1, 1) /* p 1: its gradient is that of x, else none */                          \
    X(NOT, not, 1, 1)                                                                              \
    X(RELU, relu, 1, 1)                                                                            \
    X(GELU, gelu, 1, 24)                                                                           \
    X(SILU, silu, 1, 24)                                                                           \
    X(ADD, add, 2, 1)                                                                              \
    X(SUB, sub, 2, 1)                                                                              \
    X(MUL, mul, 2, 1)                                                                              \
    X(DIV, div, 2, 4)                                                                              \
    X(POW, pow, 2, 80)                                                                             \
    X(MINIMUM, minimum, 2, 2)                                                                      \
    X(MAXIMUM, maximum, 2, 2)                                                                      \
    X(EQ, eq, 2, 1)                                                                                \
    X(NE, ne, 2, 1)                                                                                \
    X(LT, lt, 2, 1)                                                                                \
    X(LE, le, 2, 1)                                                                                \
    X(AND, and, 2, 2)                                                                              \
    X(OR, or, 2, 2)                                                                                \
    X(GELU_DX, gelu_dx, 2, 32) /* gradient, x */                                                   \
    X(SILU_DX, silu_dx, 2, 32) /* gradient, x */                                                   \
    X(RELU_DX, relu_dx, 2, 1)  /* gradient, result */                                              \
    X(WHERE, where, 3, 1)      /* condition, value, value */

#define X(code, function, arguments, flops) EXPR_##code,
enum expr_code { EXPR_LEAVES(X) EXPR_REDUCTIONS(X) EXPR_FUNCTIONS(X) EXPR_CODES };
#undef X

struct expr_node {
    uint8_t code;
    uint8_t arg[3]; /* earlier nodes; unused ones are 0 */
    union {
        float p;
        uint32_t stream; /* UNIFORM: random stream */
    };
    float q;
};

/* Permitted dtypes of an operand. */
enum expr_operand { EXPR_FLOAT, EXPR_I32, EXPR_ANY };

/* A program, the attribute of the op.  The attribute ends after the used elements of `node`. */
struct expr {
    char name[EXPR_NAME]; /* "exp", "mul+add+gelu" */
    int32_t n_in, n_nodes;
    int32_t dtype; /* of the result; EXPR_PROMOTE: common dtype of the floating-point operands */
    int32_t ndim;  /* -1: broadcast shape of the operands */
    int64_t shape[CKPT_MAX_DIMS];
    uint8_t operand[EXPR_OPERANDS]; /* enum expr_operand */
    uint8_t full;                   /* 1: a node did not fit */
    uint8_t reduced; /* number of trailing axes that form a row, if there are row nodes */
    uint8_t per_row; /* 1: the result has one element per row: size 1 on these axes */
    uint8_t largest; /* 1: output 1 is the largest magnitude of the result */
    uint8_t second;  /* above 0: output 1 has the shape of output 0 and is the value of node
                      * second - 1 */
    uint8_t exact;   /* 1: the gradient reads the operands themselves, never 8-bit codes of them */
    struct expr_node node[EXPR_NODES];
};

enum { EXPR_PROMOTE = -1 };

static inline bool expr_is_row_node(const struct expr_node *n)
{
    return n->code == EXPR_SUM || n->code == EXPR_MAX;
}

/* ---- building ---------------------------------------------------------------------------------*/

/* Initialises a program with n_in operands of kind EXPR_FLOAT, read by its first n_in nodes. */
void expr_init(struct expr *e, const char *name, int n_in);

/* Appends a node or finds an equal one, and returns its index.  Unused constants and arguments are
 * 0. */
int expr_node(struct expr *e, enum expr_code code, int a, int b, int c, float p, float q);
int expr_constant(struct expr *e, float value);
int expr_unary(struct expr *e, enum expr_code code, int a);
int expr_binary(struct expr *e, enum expr_code code, int a, int b);
int expr_where(struct expr *e, int condition, int yes, int no);

/* x to a constant power, by simpler functions where they give it. */
int expr_power(struct expr *e, int a, float p);

/* Makes node `result` the last one and drops nodes and operands that it does not need.  used[k]
 * becomes the old index of operand k; NULL: keeps all operands. */
void expr_finish(struct expr *e, int result, int *used);

/* Size of the attribute in bytes; number of arguments of a code; flops per element of a program;
 * name of a code in CUDA sources. */
size_t expr_size(const struct expr *e);
int expr_arguments(enum expr_code code);
double expr_flops(const struct expr *e);
const char *expr_function(enum expr_code code);

/* Whether a leaf of the program depends on the position in the result; whether one is random. */
bool expr_has_place(const struct expr *e);
bool expr_draws(const struct expr *e);

/* The row nodes (SUM and MAX) in order; those of one level, from 1 to `levels`, need only values of
 * lower levels. */
struct expr_row_nodes {
    int n, levels; /* above EXPR_ROW_NODES: the program is too large */
    struct {
        int node, level;
    } at[EXPR_ROW_NODES];
};
struct expr_row_nodes expr_row_nodes(const struct expr *e);

/* The shape over which the program is evaluated: the result, or all elements of its rows. */
struct ckpt_desc expr_walk(const struct expr *e, const struct ckpt_desc *out);

/* Equal for programs that take the same time. */
uint64_t expr_hash(const struct expr *e);

/* ---- the op -----------------------------------------------------------------------------------*/

ckpt_tensor expr_record(ckpt_tape *t, const struct expr *e, const ckpt_tensor *in);

/* Whether all of x are i32.  False if one is not a tensor of t. */
bool expr_are_integers(ckpt_tape *t, int n, const ckpt_tensor *x);

/* Records arithmetic on i32 operands with an i32 result; fp32 inside, exact up to 2^24.  The
 * constants p and q must be integers. */
ckpt_tensor expr_integers(ckpt_tape *t, const char *name, enum expr_code code, int n,
                          const ckpt_tensor *x, float p, float q);

/* Casts x to i32, or i32 x to a floating-point dtype. */
ckpt_tensor expr_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype);

/*
 * Builds the program of the gradient with respect to operand k.  Its operand e->n_in is the
 * gradient of the result, operand e->n_in + 1 the result, which has this dtype.  used:
 * EXPR_OPERANDS elements, the operands that it reads.  Returns false if the gradient is 0.
 */
bool expr_adjoint(const struct expr *e, int k, enum ckpt_dtype dtype, struct expr *d, int *used);

#ifdef __cplusplus
}
#endif
#endif
