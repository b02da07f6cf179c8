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
/*
 * Whole numbers on the tape are exact up to 2^24.  Fails where a constant in their arithmetic is
 * above `most`: of a product a factor above 2^12, as the other may be that, too.
 */
enum { MOST_WHOLE = 1 << 24, MOST_FACTOR = 1 << 12 };
void math_check_whole(struct recording *r, const struct tensor *a, int64_t most);

/* Zeros of the shape of x.  An element of x that is not below `end` is an index that is out of
 * range, which the step reports with what is wrong. */
ckpt_tensor math_check_below(struct recording *r, ckpt_tensor x, float end, enum ckpt_dtype dtype,
                             const char *what);

/* A tensor on the tape with its axes as they are in memory, for a function of each element; and the
 * result, with the axes and the dtype of `a`. */
ckpt_tensor math_plain(struct recording *r, struct tensor *a);
struct tensor math_back(struct recording *r, const struct tensor *a, ckpt_tensor y);
/* a x + b with numbers; x is a float. */
struct tensor math_affine(struct recording *r, struct tensor x, double a, double b);
/* A multiple of floats or of whole numbers. */
struct tensor math_times(struct recording *r, struct tensor a, double by);

#endif
