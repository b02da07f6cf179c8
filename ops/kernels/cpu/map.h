/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise maps in tiles of floats. */
#ifndef CKPT_CPU_MAP_H
#define CKPT_CPU_MAP_H

#include "core/random.h"
#include "cpu.h"
#include "loops.h"

/* Computes n results from n values of each input; y may be one of the inputs. */
typedef void (*map_fn)(float *y, const float *const *x, int64_t n, const void *ctx);

/*
 * y = fn(x...) element by element with broadcasting, computed in fp32 and rounded once.  i32 inputs
 * are converted to floats, and are 0 only where the integer is.  At most LOOPS_OPERANDS - 1 inputs.
 */
void cpu_map(const struct ckpt_view *y, int n_in, const struct ckpt_view *x, map_fn fn,
             const void *ctx);

/* Source of the values of an input. */
enum map_kind {
    MAP_MEMORY,
    MAP_INDEX,  /* the element's offset by the strides of view.desc; no memory */
    MAP_UNIFORM /* random values of a stream, numbered from `first` on */
};

struct map_source {
    enum map_kind kind;
    struct ckpt_view view;
    struct random_stream stream;
    int64_t first;
};

/* The same with inputs from any source. */
void cpu_map_sources(const struct ckpt_view *y, int n_in, const struct map_source *x, map_fn fn,
                     const void *ctx);

/* A value of each row: `scale` times the sum, or the largest, of fn(x...). */
struct map_reduction {
    map_fn fn;
    const void *ctx;
    float scale;
    bool max;
};

#define MAP_REDUCTIONS 8

/*
 * y = fn(x..., values...) over the rows of `domain`, which are its last `reduced` axes.  Each value
 * of a row, at most MAP_REDUCTIONS, is computed from x and the values before it.  If y has size 1
 * on the axes of a row (per_row), it is dense and fn is evaluated at the first element of the row.
 * Sums are fp64 in the order of cpu_sum(), extremes those of cpu_amax(), both rounded to fp32.
 */
struct map_rows {
    const struct ckpt_desc *domain;
    int reduced;
    bool per_row;
    int n_values;
    struct map_reduction value[MAP_REDUCTIONS];
};
void cpu_map_rows(const struct ckpt_view *y, const struct map_rows *rows, int n_in,
                  const struct map_source *x, map_fn fn, const void *ctx);

/* Whether the work is large enough for several threads. */
static inline bool loops_parallel(int64_t elements)
{
    return elements >= 32768;
}

#endif
