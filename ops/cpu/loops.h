/* Loops over views of any strides: which axes to walk, and element-wise maps in float tiles. */
#ifndef CKPT_CPU_LOOPS_H
#define CKPT_CPU_LOOPS_H

#include "cpu.h"

#define LOOPS_OPERANDS 4

/*
 * A nest of loops over a few operands, outermost first.  stride[k][i] is what operand k moves, in
 * elements, per step of axis i; 0 where it is broadcast.  There is always at least one axis.
 */
struct loops {
    int ndim, n;
    int64_t shape[CKPT_MAX_DIMS];
    int64_t stride[LOOPS_OPERANDS][CKPT_MAX_DIMS];
};

/*
 * Loops over the shape of d[0]; the others are broadcast to it, aligned at the last axis.  The
 * order is that of d[0] in memory; axes of size 1 are left out and adjacent axes that every operand
 * walks as one are merged.
 */
void loops_init(struct loops *l, int n, const struct ckpt_desc *const *d);

/* The element offsets of every operand at position i of the first `axes` axes, row-major. */
void loops_seek(const struct loops *l, int axes, int64_t i, int64_t *offset);

/* Product of shape[from .. to - 1]. */
int64_t loops_count(const struct loops *l, int from, int to);

/* A stretch of n results from n values of each input; y may be one of the inputs. */
typedef void (*map_fn)(float *y, const float *const *x, int64_t n, const void *ctx);

/*
 * y = fn(x...) element by element with broadcasting, computed in fp32 and rounded once.  Inputs of
 * dtype i32 arrive as floats that are 0 exactly where the integer is.
 */
void cpu_map(const struct ckpt_view *y, int n_in, const struct ckpt_view *x, map_fn fn,
             const void *ctx);

/* Is the work worth several threads? */
static inline bool loops_parallel(int64_t elements)
{
    return elements >= 32768;
}

#endif
