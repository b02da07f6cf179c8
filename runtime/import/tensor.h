/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor of one recording: a constant, whose values the host knows and folds, or a result on the
 * tape.  A constant is copied to the tape by the first op there that reads it.
 *
 * Constants are int64 (whole numbers and truth values) or double; a result in a narrower float is
 * rounded as PyTorch rounds it.  An axis of stride 0 repeats one element, so that a mask of a batch
 * has the bytes of one sample.
 */
#ifndef CKPT_IMPORT_TENSOR_H
#define CKPT_IMPORT_TENSOR_H

#include "import/heap.h"
#include "import/calls.h"
#include "import/program.h"

enum { TENSOR_AXES = CKPT_MAX_DIMS };

struct tensor {
    int dtype; /* enum pt2_dtype */
    int ndim;
    int64_t shape[TENSOR_AXES];
    bool constant;
    int64_t stride[TENSOR_AXES]; /* of constants, in elements */
    union {
        int64_t *i; /* of constants whose dtype is no float */
        double *f;  /* of constants whose dtype is a float */
    };
    ckpt_tensor x; /* id 0: a constant that is not on the tape yet */
    /* On the tape: x is `plain` with its axes in this order; id 0: it is no permutation. */
    ckpt_tensor plain;
    int order[TENSOR_AXES];
    ckpt_tensor whole; /* On the tape: x is `whole` with another shape; id 0: it is not. */
    const struct tensor *imaginary; /* of complex numbers, of which this is the real part */
};

/* What records: the tape, the memory of this recording, and whether it has failed. */
struct call;
struct recording {
    ckpt_tape *t;
    struct recorded *constants;  /* that are on the tape */
    const char *path;            /* of the archive */
    const struct pt2_node *node; /* that is recorded, or NULL */
    struct rope_table *ropes;    /* that were made (ops_rope.c) */
    struct rnn_results *rnns;    /* the same (ops_rnn.c) */
    const struct call *deferred; /* a copy in place that is not recorded yet (node_call.h) */
    struct variable *pending;    /* results that nobody has read yet (node_call.h) */
    struct heap heap;
    bool evaluates; /* dropout and batch norm as where modules are evaluated */
    bool stops; /* in a region without gradients: so is what ops in place write */
    bool failed;
};

/* Ends the recording; the tape keeps the sentence, which names the node.  A failure after the first
 * changes nothing. */
void recording_fail(struct recording *r, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

static inline bool pt2_is_float(int dtype)
{
    return dtype >= PT2_F16 && dtype <= PT2_F64 ? true : dtype == PT2_BF16;
}

static inline bool pt2_is_complex(int dtype)
{
    return dtype == PT2_C64 || dtype == PT2_C128;
}

/* The dtype on the tape: fp64 is computed in fp32, whole numbers and truth values are i32. */
enum ckpt_dtype tape_dtype(int dtype);
/* Whether tensors of the dtype can be on the tape. */
bool tape_has_dtype(int dtype);

int64_t tensor_numel(const struct tensor *a);
/* An axis counted from the end where it is negative; fails and returns 0 where there is none. */
int tensor_axis(struct recording *r, const struct tensor *a, int64_t axis);

/* A constant of zeros. */
struct tensor tensor_zeros(struct recording *r, int dtype, int ndim, const int64_t *shape);
/* A bool constant [n, m]: whether column - row is at most `diagonal`; upper: at least. */
struct tensor tensor_triangle(struct recording *r, int64_t n, int64_t m, int64_t diagonal,
                              bool upper);
/* A constant with no axis. */
struct tensor tensor_number(struct recording *r, int dtype, double f, int64_t i);
/* The tensor of a result on the tape. */
struct tensor tensor_of(struct recording *r, int dtype, ckpt_tensor x);

/* Continues with a node, whose module labels what is recorded. */
void recording_enter(struct recording *r, const struct pt2_node *node);

/* The tensor on the tape.  The same elements of a constant are recorded once. */
ckpt_tensor tensor_record(struct recording *r, struct tensor *a);

/* The element of a constant at a position of row-major order of its shape, as a number. */
double tensor_f(const struct tensor *a, int64_t at);
int64_t tensor_i(const struct tensor *a, int64_t at);
/* A dense copy of a constant, or the constant itself if it is dense. */
struct tensor tensor_dense(struct recording *r, struct tensor a);
/* The value of a dtype nearest to f. */
double tensor_round(int dtype, double f);

#endif
