/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizers for tests: constructors of each kind, and reference formulas in double. */
#ifndef CKPT_TESTS_OPTIMIZER_KINDS_H
#define CKPT_TESTS_OPTIMIZER_KINDS_H

#include "small.h"

enum { KINDS_WIDE = 20, KINDS_NARROW = 12, KINDS_MOST = KINDS_WIDE * KINDS_NARROW };

/* The state of one parameter, in double; cols is 1 for a vector. */
struct reference {
    double w[KINDS_MOST], m[KINDS_MOST], v[KINDS_MOST], row[KINDS_WIDE], col[KINDS_WIDE];
    double ema[KINDS_MOST];
    int64_t rows, cols, n;
};

struct reference_step {
    double lr;
    int k; /* from 1 */
};

/* g is clipped to a global norm of 0.4. */
struct optimizer_kind {
    const char *name;
    ckpt_optimizer *(*make)(ckpt *c, const struct small *small);
    void (*update)(struct reference *r, const double *g, const struct reference_step *s);
    double tolerance; /* allowed error of a weight's change, relative to its root mean square */
    bool host;        /* the host can run its updates */
    bool no_state;    /* no state besides master and EMA */
};

enum { OPTIMIZER_KINDS = 7 };
extern const struct optimizer_kind optimizer_kinds[OPTIMIZER_KINDS];

double kinds_rms(const double *x, int64_t n);

#endif
