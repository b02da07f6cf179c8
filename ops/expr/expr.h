/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Element-wise expressions: one op, `expr`, whose attribute is a small program.
 *
 * A program (struct expr) is a DAG over the elements of up to EXPR_INPUTS operands: nodes in an
 * order in which arguments come first, the last node is the result.  A function of ckpt_ops.h such
 * as ckpt_exp() records a program of one node or a few; expr_fuse() joins chains of them into one
 * when the tape is complete.  So a single function and a fused chain are the same op, with one
 * shape rule, one gradient rule, one cost and one kernel for each device.
 *
 * - Values: every node is fp32.  bf16 operands are widened as they are read; a bf16 result is
 *   rounded as it is written.  Where a chain is fused, a node BF16 rounds what the op before would
 *   have written, so the bits are those of the ops one by one.  i32 operands are converted to fp32
 *   (exact up to 2^24); an i32 result has integral values, which writing converts.
 * - Leaves besides operands: constants, the index along an axis, and uniform random values from
 *   the counter, whose stream is the number of the op that drew them first.  So a dropout mask
 *   is never stored: the backward pass draws it again.
 * - Building: expr_node() appends a node unless an equal one is there (hash-consing; programs are
 *   so short that a scan does) and applies identities that are exact for every value, NaN, infinite
 *   ones and zeros of either sign included.  What does not fit sets `full` and fails when recorded.
 * - Gradients (adjoint.c): reverse mode over the DAG gives another program over the same operands,
 *   the gradient of the result, and the result itself where that saves reading the operands.  It is
 *   recorded as an expr op, so gradients of gradients need no rule of their own.
 * - Fusion (fuse.c): a producer goes into its readers when nobody else reads it, and into a few
 *   readers when it is cheap: those of the backward pass compute it again.  It depends on the tape
 *   alone, never on a budget or a device.  Ops with kernels of their own (add, gelu, ...) can be
 *   swallowed: expr_of_op() has their programs.
 *   Their nodes call the functions of those kernels, so this changes no bit either.
 * - Pairs (pair.c): two gradients beside each other that read the same are one op of two results.
 * - Reductions: a sum or mean over the last axes takes in the chain that made its operand.  The
 *   program is then walked over the shape of that operand (e->shape), and each result is `scale`
 *   times the sum of a row of `reduced` axes.  Nothing joins such an op further.
 * - CPU (cpu/expr.c): an interpreter, a node at a time, over blocks that stay in the first cache.
 * - CUDA (cuda/expr*.c, .cu): a kernel for a program, compiled by NVRTC before the first step and
 *   kept on disk; where there is no NVRTC, a kernel that interprets the program.
 */
#ifndef CKPT_EXPR_H
#define CKPT_EXPR_H

#include <stddef.h>
#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    EXPR_INPUTS = 8,  /* operands of a recorded op, at most */
    EXPR_LIMIT = 128, /* nodes of a recorded op, at most */
    EXPR_OPERANDS =
        EXPR_INPUTS + 2, /* while a gradient is built: with that of the result, and it */
    EXPR_NODES = 250,    /* the same for nodes */
    EXPR_NAME = 48
};

/*
 * X(CODE, function, arguments, operations an element).  The function is the suffix of that of the
 * CPU (map_<function>) and of CUDA (expr_<function>).  Constants p and q stand in the node.
 */
#define EXPR_LEAVES(X)                                                                             \
    X(INPUT, input, 0, 0)       /* operand arg[0] */                                               \
    X(CONSTANT, constant, 0, 0) /* p */                                                            \
    X(INDEX, index, 0, 2)       /* along axis arg[0] of the result */                              \
    X(UNIFORM, uniform, 0, 25)  /* [0, 1), from the counter */
#define EXPR_FUNCTIONS(X)                                                                          \
    X(SCALE, scale, 1, 1)     /* p x */                                                            \
    X(AFFINE, affine, 1, 2)   /* p x + q */                                                        \
    X(CLAMP, clamp, 1, 2)     /* x held in [p, q]; NaN stays */                                    \
    X(LEAKY, leaky, 1, 2)     /* x, or p x below 0 */                                              \
    X(BF16, bf16, 1, 3)       /* rounded to bf16 */                                                \
    X(INTEGER, integer, 1, 3) /* towards 0, held in the range of i32; NaN is 0 */                  \
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
    X(ROUND, round, 1, 1)                                                                          \
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
enum expr_code { EXPR_LEAVES(X) EXPR_FUNCTIONS(X) EXPR_CODES };
#undef X

struct expr_node {
    uint8_t code;
    uint8_t arg[3]; /* nodes before this one; 0 where there is none */
    union {
        float p;
        uint32_t stream; /* of UNIFORM */
    };
    float q;
};

/* What an operand may be. */
enum expr_operand { EXPR_FLOAT, EXPR_I32, EXPR_ANY };

/* A program, and the attribute of the op: of `node` as many as there are. */
struct expr {
    char name[EXPR_NAME]; /* "exp", "mul+add+gelu" */
    int32_t n_in, n_nodes;
    int32_t dtype; /* of the result; EXPR_PROMOTE: that of the floating operands */
    int32_t ndim;  /* -1: the shape follows from the operands by broadcasting */
    int64_t shape[CKPT_MAX_DIMS];
    uint8_t operand[EXPR_OPERANDS]; /* enum expr_operand */
    uint8_t full;                   /* a node did not fit */
    uint8_t reduced; /* trailing axes that are summed: they keep size 1 in the result */
    uint8_t largest; /* the op has an output 1, the largest magnitude of the result */
    uint8_t second;  /* the op has an output 1 like the first, this node less one; 0: it has not */
    float scale;     /* of such a sum */
    struct expr_node node[EXPR_NODES];
};

enum { EXPR_PROMOTE = -1 };

/* ---- building ---------------------------------------------------------------------------------*/

/* An empty program of n_in operands that are EXPR_FLOAT; its first n_in nodes read them. */
void expr_init(struct expr *e, const char *name, int n_in);

/* Appends a node, or finds an equal one; both return its index.  p and q are 0 where the code has
 * none, and so are arguments. */
int expr_node(struct expr *e, enum expr_code code, int a, int b, int c, float p, float q);
int expr_constant(struct expr *e, float value);
int expr_unary(struct expr *e, enum expr_code code, int a);
int expr_binary(struct expr *e, enum expr_code code, int a, int b);
int expr_where(struct expr *e, int condition, int yes, int no);

/* x to a constant power, by simpler functions where they do. */
int expr_power(struct expr *e, int a, float p);

/* Makes node `result` the last one and drops what it does not need: nodes, and operands.  used[k]
 * becomes the index that operand k had before; NULL: operands stay. */
void expr_finish(struct expr *e, int result, int *used);

/* Bytes of the attribute; arguments and operations of a code; its name in CUDA sources. */
size_t expr_size(const struct expr *e);
int expr_arguments(enum expr_code code);
double expr_flops(const struct expr *e);
const char *expr_function(enum expr_code code);

/* Whether a node reads a leaf whose value follows from the place in the result. */
bool expr_has_place(const struct expr *e);

/* What the program is computed over: the result, or the operand of the sum at its end. */
struct ckpt_desc expr_walk(const struct expr *e, const struct ckpt_desc *out);

/* Equal for programs that take equally long. */
uint64_t expr_hash(const struct expr *e);

/* ---- the op -----------------------------------------------------------------------------------*/

ckpt_tensor expr_record(ckpt_tape *t, const struct expr *e, const ckpt_tensor *in);

/* Whether all of x are i32; not where one of them is no tensor of t. */
bool expr_are_integers(ckpt_tape *t, int n, const ckpt_tensor *x);

/* A node of arithmetic of i32 operands, with the result as i32: fp32 between, which is exact up to
 * 2^24.  p and q are its constants, whole numbers. */
ckpt_tensor expr_integers(ckpt_tape *t, const char *name, enum expr_code code, int n,
                          const ckpt_tensor *x, float p, float q);

/* x as i32, or i32 x as a floating dtype. */
ckpt_tensor expr_cast(ckpt_tape *t, ckpt_tensor x, enum ckpt_dtype dtype);

/*
 * The program of the gradient with respect to operand k: operand e->n_in is the gradient of the
 * result, e->n_in + 1 the result, which is of this dtype.  used: room for EXPR_OPERANDS.  Returns
 * false where it is 0 everywhere.
 */
bool expr_adjoint(const struct expr *e, int k, enum ckpt_dtype dtype, struct expr *d, int *used);

/* ---- fusion -----------------------------------------------------------------------------------*/

/* Joins chains of a complete tape.  Returns 0 or the tape's error. */
int expr_fuse(ckpt_tape *t);

/* Makes one op of two that read the same, when all else is decided.  Returns 0 or the tape's error.
 */
int expr_pair(ckpt_tape *t);

/* What both do (join.c).  A program of several: its operands are tensors of the tape. */
struct expr_joined {
    struct expr e;
    int32_t in[EXPR_INPUTS];
    bool fits;
};

struct op;

/* Appends the nodes of e, the program of o, for whose operand `replaced` node `value` stands, if it
 * is not -1; returns the result. */
int expr_append(struct expr_joined *j, const ckpt_tape *t, const struct op *o, const struct expr *e,
                int32_t replaced, int value);

/* Puts a program in the place of op i, with these results.  Returns 0 or CKPT_ENOMEM. */
int expr_replace_op(ckpt_tape *t, int32_t i, const struct expr_joined *j, const int32_t *out,
                    int n_out);

/* A gap: where an op stood that is part of another now.  Its results have no op then, unless
 * another makes them by now. */
extern const struct ckpt_op_def expr_fused;
void expr_remove_op(ckpt_tape *t, int32_t i);
/* b gets the lines of both, where they are of one file. */
void expr_join_lines(const struct op *a, struct op *b);

#ifdef __cplusplus
}
#endif
#endif
