/* SPDX-License-Identifier: Apache-2.0 */
/* Vector quantisation: z [..., D] viewed as rows, a codebook [K, D]. */
#ifndef CKPT_OPS_QUANTIZE_H
#define CKPT_OPS_QUANTIZE_H

#include "core/base.h"

#define QUANTIZE_ROWS 64 /* rows per partial sum of the commitment loss */

static inline int64_t quantize_chunks(int64_t rows)
{
    return (rows + QUANTIZE_ROWS - 1) / QUANTIZE_ROWS;
}

#endif
