/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one op through the public API and compares its result with the fp64 reference, and its
 * gradients with central differences of the reference.
 *
 * Each differentiable operand is a parameter.  It may reach the op as a permuted view, a slice, or
 * both, of a larger parameter.  The loss is sum(op(...) r) with a fixed random r.
 *
 * The first trials run once more with a loss that depends on gradients (ckpt_gradients): with
 * y = op(...) and f = sum(r (y + y^2 / 2)) it is the sum over all operands of df/dx s, s fixed and
 * random.  Central differences of f along s, in fp64, are its reference, and those of them that of
 * its gradients: second ones of op, also along the gradient that reaches it.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include "reference.h"

#define MAX_OPERANDS 7

struct rng {
    uint64_t state;
    int64_t scale; /* of the sizes that rng_dim draws */
};

int64_t rng_range(struct rng *r, int64_t low, int64_t high); /* both included */
double rng_normal(struct rng *r);
/* A size from 1 to high times the scale; often 1. */
int64_t rng_dim(struct rng *r, int64_t high);

enum role {
    ROLE_ABSENT,
    ROLE_PARAM, /* trained: its gradient is checked */
    ROLE_FIXED, /* an fp32 constant */
    ROLE_INDEX  /* an i32 constant */
};

struct operand {
    enum role role;
    struct array value; /* what the op sees */
    bool keep_f32;      /* stays fp32 in a bf16 run */
    bool keep_last;     /* the last axis stays dense */
    bool permuted, sliced;
    int axes[CKPT_MAX_DIMS]; /* of the permutation from the parameter to what is sliced */
    int axis;                /* that is sliced, from begin */
    int64_t begin;
    struct array map; /* place in the parameter of each element of value */
    int base_ndim;
    int64_t base_shape[CKPT_MAX_DIMS];
    int64_t base_n;
};

struct op_case;
typedef ckpt_tensor (*record_op)(ckpt_tape *t, const ckpt_tensor *in, const struct op_case *c);

struct op_case {
    const char *name;
    record_op record;
    reference_op reference;
    enum ckpt_dtype dtype; /* of the parameters */
    int n_in;
    struct operand in[MAX_OPERANDS];
    struct op_attr attr;
    struct array weight;              /* r */
    bool second;                      /* the loss depends on gradients */
    struct array along[MAX_OPERANDS]; /* s */
};

/*
 * Draws operands and attributes.  Trial 0 has the smallest shapes.  From TRIAL_LARGE on they are so
 * large that kernels work in several tiles and chunks; gradients are then compared along random
 * directions, not element by element.
 */
typedef void (*draw_case)(struct op_case *c, struct rng *r, int trial);

enum { TRIAL_TINY = 0, TRIALS_SECOND = 4, TRIAL_LARGE = 12, TRIALS = 14 };

struct op_row {
    const char *name;
    draw_case draw;
    record_op record;
    reference_op reference;
};

/* Adds an operand with N(0, 1) values; ROLE_INDEX operands start with zeros. */
struct operand *case_add(struct op_case *c, struct rng *r, enum role role, int ndim,
                         const int64_t *shape);
void case_add_absent(struct op_case *c);

/* Sizes for ndim axes, all 1 in the first trial; a number of axes; one operand of 1 to 4 axes. */
void draw_shape(struct rng *r, int trial, int ndim, int64_t high, int64_t *shape);
int draw_rank(struct rng *r, int low, int high);
struct operand *draw_one(struct op_case *c, struct rng *r, int trial);
/* Adds an operand that broadcasts to shape: axes of size 1, leading axes left out. */
void draw_broadcast(struct op_case *c, struct rng *r, enum role role, int ndim,
                    const int64_t *shape);
/* Fills with zeros and ones, ones more often. */
void draw_mask(struct operand *o, struct rng *r);

/* Rounds the values to the dtype and chooses the parameters of the operands. */
void case_prepare(struct op_case *c, struct rng *r);
void case_free(struct op_case *c);

/* Runs every row in every trial and both dtypes, or only rows named argv[1].  Returns main's
 * result. */
int harness_main(int argc, char **argv, const struct op_row *rows);
/* The same with the first trials only, for many ops that share one kernel. */
int harness_run(int argc, char **argv, const struct op_row *rows, int trials);

/* |a - b| / max(|b|, floor), L2 norms. */
double relative_error(const double *a, const double *b, int64_t n, double floor);

#endif
