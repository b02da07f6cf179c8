/* SPDX-License-Identifier: Apache-2.0 */
/* Feature distances: how they are cut, for shape rules and kernels. */
#ifndef CKPT_OPS_PERCEPTUAL_H
#define CKPT_OPS_PERCEPTUAL_H

#include "core/base.h"

/* A feature distance is summed in double, so many rows to a partial sum. */
#define DISTANCE_ROWS 256

static inline int64_t distance_chunks(int64_t rows)
{
    return (rows + DISTANCE_ROWS - 1) / DISTANCE_ROWS;
}

#endif
