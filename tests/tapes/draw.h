/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A recording that is drawn.  Calls that draw return the first result of a call, or -1 if it does
 * not fit; an operand of -1 does not fit either, so that they can be nested.
 */
#ifndef CKPT_TESTS_DRAW_H
#define CKPT_TESTS_DRAW_H

#include "recording.h"

struct draw {
    struct recording *r;
    uint64_t state;
    int64_t size[3]; /* axes of this recording; the first is that of the batch */
    int64_t most;    /* elements of a value */
    enum ckpt_dtype dtype;
    bool full; /* no room for more calls */
};

/* ---- numbers and values (draw_calls.c) -------------------------------------------------------*/

uint64_t draw_next(struct draw *d);
int64_t draw_below(struct draw *d, int64_t n);
bool draw_chance(struct draw *d, int percent);

const struct value *draw_value(const struct draw *d, int x);
int64_t draw_last(const struct value *v);
/* A value, mostly one of the last; an axis of x; axes of it. */
int draw_pick(struct draw *d);
int draw_axis(struct draw *d, int x);
unsigned draw_mask(struct draw *d, int x);

/* ---- calls -----------------------------------------------------------------------------------*/

int draw_call(struct draw *d, struct call c);
int draw_call1(struct draw *d, enum call_kind kind, int x);
int draw_call2(struct draw *d, enum call_kind kind, int x, int y);
int draw_along(struct draw *d, enum call_kind kind, int x, int axis);
int draw_reduction(struct draw *d, enum call_kind kind, int x, unsigned mask);
int draw_shaped(struct draw *d, enum call_kind kind, int x, int ndim, const int64_t *shape);
int draw_affine(struct draw *d, int x, float a, float b);

int draw_leaf(struct draw *d, enum call_kind kind, enum ckpt_dtype dtype, int ndim,
              const int64_t *shape, float scale);
/* A parameter; often one that was used before. */
int draw_param(struct draw *d, enum ckpt_dtype dtype, int ndim, const int64_t *shape, float scale);
/* A parameter that broadcasts with x: axes of size 1, leading ones left out. */
int draw_broadcast_param(struct draw *d, int x, bool same_dtype);

/* ---- functions of one value ------------------------------------------------------------------*/

int draw_unary(struct draw *d, int x);
int draw_with_param(struct draw *d, int x);
int draw_layer(struct draw *d, int x);
int draw_norm(struct draw *d, int x);
/* One function of x alone, which draws the same for values of one shape. */
int draw_function(struct draw *d, int x);

/* The same by families of ops (draw_elements.c, draw_rows.c, draw_layers.c, draw_moves.c). */
int draw_elements(struct draw *d, int x);
int draw_rows(struct draw *d, int x);
int draw_layers(struct draw *d, int x);
int draw_moves(struct draw *d, int x);
int draw_windows(struct draw *d, int x);

void draw_pattern(struct draw *d);

#endif
