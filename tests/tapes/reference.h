/* SPDX-License-Identifier: Apache-2.0 */
/* The calls of a recording in fp64, a function for each family of them (kinds.def). */
#ifndef CKPT_TESTS_REFERENCE_H
#define CKPT_TESTS_REFERENCE_H

#include "graph.h"

/* A call, the nodes of the elements of all values so far, and which result is computed. */
struct context {
    const struct recording *r;
    struct graph *g;
    int32_t *const *at;
    const struct call *c;
    int64_t micro;
    int part;
};

/* Operand k and its nodes; a node of it.  An operand that is CKPT_NONE has none. */
bool has_operand(const struct context *x, int k);
const struct value *operand(const struct context *x, int k);
const int32_t *nodes(const struct context *x, int k);
double number(const struct context *x, int k, int64_t i);

/* Splits element i of v into indices. */
void indices_of(const struct value *v, int64_t i, int64_t *index);
/* The element of x, which broadcasts to a shape of ndim axes, at these indices. */
int64_t element(const struct value *x, int ndim, const int64_t *index);
int64_t last_of(const struct value *v);

/* Elements before, along and behind an axis. */
struct around {
    int64_t outer, n, inner;
};
struct around around(const struct value *v, int axis);

int32_t node_unary(struct graph *g, enum unary f, int32_t x);

/* Fill y with a node for each element of v, the result. */
#define X(name, call, shape, fp64)                                                                 \
    void fp64(const struct context *x, int32_t *y, const struct value *v);
#include "kinds.def"
#undef X

#endif
