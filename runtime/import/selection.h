/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a tensor that indices select, to be read (ops_index.c) or written (ops_scatter.c). */
#ifndef CKPT_IMPORT_SELECTION_H
#define CKPT_IMPORT_SELECTION_H

#include "import/node_call.h"

/* Several indices are one into the product of their axes. */
struct selection {
    struct tensor a; /* "self", its indexed axes brought together and joined to axis `first` */
    struct tensor index;
    int first, count, ndim;     /* joined axes; axes of "self" */
    int64_t shape[TENSOR_AXES]; /* of "self" with its axes in the order `axes` */
    int axes[TENSOR_AXES];
};

/* That of the arguments "self" and "indices". */
struct selection selection_of(struct call *c);

/* An index of one axis of `size`, counted from its start where it is known, or one of `several`;
 * constants are checked, and others by the step. */
struct tensor index_of(struct call *c, struct tensor index, int64_t size, bool several);

/* The axis is replaced by the axes of the index. */
struct tensor select_rows(struct call *c, struct tensor a, int axis, struct tensor index);

#endif
