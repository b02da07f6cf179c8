/* SPDX-License-Identifier: Apache-2.0 */
/* Feature distances: division into partial sums, for shape rules and kernels. */
#ifndef CKPT_OPS_PERCEPTUAL_H
#define CKPT_OPS_PERCEPTUAL_H

#include "core/base.h"

/* Rows per partial sum.  Sums are in double. */
#define DISTANCE_ROWS 256

static inline int64_t distance_chunks(int64_t rows)
{
    return (rows + DISTANCE_ROWS - 1) / DISTANCE_ROWS;
}

#endif
