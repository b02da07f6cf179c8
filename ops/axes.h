/* SPDX-License-Identifier: Apache-2.0 */
/* Axes of a loop nest over several operands: sorts the axes and merges those that can be one loop.
 * Used by loops.h and rows.h. */
#ifndef CKPT_AXES_H
#define CKPT_AXES_H

#include "core/base.h"

/*
 * Takes n operands on ndim axes of the given sizes.  step[k][i] is the stride of operand k on axis
 * i, in elements.
 *
 * Drops axes of size 1, sorts the others by the stride of operand 0, largest first (a stable sort),
 * and merges adjacent axes that are contiguous for every operand.  Axes with stride 0 in operand
 * `still` come last; -1: no such operand.  Returns the number of remaining axes, at least 1.
 */
int axes_simplify(int ndim, int64_t *size, int n, int64_t (*step)[CKPT_MAX_DIMS], int still);

#endif
