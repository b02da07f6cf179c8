/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention operands as tensors for TMA copies: [width, rows, heads, inner, outer], the last two
 * being leading axes, which packed rows do not have.  A box belongs to one head.
 */
#ifndef CKPT_CUDA_ATTENTION_BOXES_CUH
#define CKPT_CUDA_ATTENTION_BOXES_CUH

#include "kernels/cuda/attention/attention_args.cuh"
#include "kernels/cuda/hopper_map.h"

constexpr int ATTENTION_BOX_LEADS = 2;

/* The coordinates of a sequence along the leading axes. */
struct attention_lead_place {
    int inner, outer;
};

__device__ __forceinline__ struct attention_lead_place
attention_lead_place_of(const struct attention_args &a, int sequence)
{
    struct attention_lead_place p = {sequence, 0};
    if (a.n_lead > 1) {
        const unsigned n = (unsigned)a.lead[a.n_lead - 1];
        p.outer = (int)((unsigned)sequence / n);
        p.inner = sequence - p.outer * (int)n;
    }
    return p;
}

/* Can TMA copy the operand?  Rows and strides must be multiples of 16 bytes, no axis may be
 * broadcast, and sizes must be within the limits of tensor maps. */
static inline bool attention_box_takes(const struct attention_args &a,
                                       const struct attention_operand &x, int64_t rows,
                                       int64_t heads, bool packed)
{
    const int64_t limit = (int64_t)1 << 38; /* elements of a stride */
    bool good = x.vectors && rows < INT32_MAX && heads < INT32_MAX &&
                (packed || a.n_lead <= ATTENTION_BOX_LEADS) &&
                (rows == 1 || (x.row > 0 && x.row < limit)) &&
                (heads == 1 || (x.head > 0 && x.head < limit));
    for (int i = 0; !packed && i < a.n_lead; i++)
        good = good && x.lead[i] > 0 && x.lead[i] < limit && a.lead[i] < INT32_MAX;
    return good;
}

/* Makes the map for boxes of `columns` x `box_rows`; the swizzle is as wide as a row of a box, 2
 * bytes per column. */
static inline bool attention_box_map(CUtensorMap *map, const struct attention_args &a,
                                     const struct attention_operand &x, int64_t rows, int64_t heads,
                                     bool packed, int columns, int box_rows)
{
    struct hopper_tensor t = {
        x.data, HOPPER_AXES, {a.width, rows, heads, 1, 1}, {1, x.row, x.head}};
    const int box[HOPPER_AXES] = {columns, box_rows, 1, 1, 1};
    for (int i = 0; !packed && i < a.n_lead; i++) {
        t.size[3 + i] = a.lead[a.n_lead - 1 - i];
        t.step[3 + i] = x.lead[a.n_lead - 1 - i];
    }
    return cuda_hopper_map(map, &t, box, 2 * columns);
}

#endif
