/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions of elements, of constants on the host and of other tensors on the tape.  The result has
 * the dtype that the file gives it.
 */
#ifndef CKPT_IMPORT_MATH_H
#define CKPT_IMPORT_MATH_H

#include "import/tensor.h"

/* Converts to another dtype; on the tape also between truth values and whole numbers. */
struct tensor math_cast(struct recording *r, struct tensor a, int dtype);

/* A function of one float: its value on the host, its call on the tape. */
struct unary {
    double (*value)(double x);
    ckpt_tensor (*record)(ckpt_tape *t, ckpt_tensor x);
};
struct tensor math_unary(struct recording *r, const struct unary *f, struct tensor a, int dtype);

enum binary {
    BINARY_ADD,
    BINARY_SUB,
    BINARY_MUL,
    BINARY_DIV,
    BINARY_FLOOR_DIV,
    BINARY_REMAINDER,
    BINARY_POW,
    BINARY_MIN,
    BINARY_MAX,
    BINARY_EQ, /* from here on the result is a truth value */
    BINARY_NE,
    BINARY_LT,
    BINARY_LE,
    BINARY_GT,
    BINARY_GE,
    BINARY_AND,
    BINARY_OR,
    BINARY_XOR
};
struct tensor math_binary(struct recording *r, enum binary f, struct tensor a, struct tensor b,
                          int dtype);
struct tensor math_where(struct recording *r, struct tensor cond, struct tensor a, struct tensor b,
                         int dtype);
/* a x + b with numbers; x is a float. */
struct tensor math_affine(struct recording *r, struct tensor x, double a, double b);

#endif
