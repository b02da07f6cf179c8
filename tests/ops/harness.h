/*
 * Runs one op through the public API and compares its result with the fp64 reference, and its
 * gradients with central differences of the reference.
 *
 * Each differentiable operand is a parameter.  It may reach the op as a permuted view, a slice, or
 * both, of a larger parameter.  The loss is sum(op(...) r) with a fixed random r.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include "reference.h"

#define MAX_OPERANDS 4

struct rng {
    uint64_t state;
};

uint64_t rng_next(struct rng *r);
int64_t rng_range(struct rng *r, int64_t low, int64_t high); /* both included */
double rng_normal(struct rng *r);
/* A size from 1 to high; often 1. */
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
    struct array weight; /* r */
};

/* Draws operands and attributes; trial 0 has the smallest shapes, the last one larger ones. */
typedef void (*draw_case)(struct op_case *c, struct rng *r, int trial);

#define TRIALS     12
#define TRIAL_TINY 0
#define TRIAL_BIG  (TRIALS - 1)

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

/* Runs every row in every trial and both dtypes, or only rows named argv[1].  Returns main's
 * result. */
int harness_main(int argc, char **argv, const struct op_row *rows);

/* |a - b| / max(|b|, floor), L2 norms. */
double relative_error(const double *a, const double *b, int64_t n, double floor);

#endif
