/* SPDX-License-Identifier: Apache-2.0 */
/* Codebooks: z [..., D] as rows, a codebook [K, D]. */
#ifndef CKPT_OPS_QUANTIZE_H
#define CKPT_OPS_QUANTIZE_H

#include "core/base.h"

#define QUANTIZE_ROWS 64 /* of a partial sum of the commitment */

static inline int64_t quantize_chunks(int64_t rows)
{
    return (rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS;
}

#endif
