/* SPDX-License-Identifier: Apache-2.0 */
/* The axes along which several operands are walked together: their order, and which become one.
 * Behind loops.h and rows.h. */
#ifndef CKPT_AXES_H
#define CKPT_AXES_H

#include "core/base.h"

/*
 * n operands on ndim axes of these sizes: step[k][i] is what operand k moves per step of axis i.
 * Drops axes of size 1, puts those on which operand 0 moves most first (ties keep their order), and
 * joins neighbours that every operand walks as one.  Axes on which operand `still` does not move
 * come last; -1: no matter which.  Returns how many are left; there is always one.
 */
int axes_simplify(int ndim, int64_t *size, int n, int64_t (*step)[CKPT_MAX_DIMS], int still);

#endif
