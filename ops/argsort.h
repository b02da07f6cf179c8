/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a sort: 32 bits whose order is that of the floats, NaN last. */
#ifndef CKPT_OPS_ARGSORT_H
#define CKPT_OPS_ARGSORT_H

#include "core/base.h"

#ifdef __CUDACC__
#define SORT_INLINE static __host__ __device__ __forceinline__
#else
#define SORT_INLINE static inline
#endif

struct sort_attr {
    int32_t descending;
};

/* Bits of a float as a key.  -0 is 0; descending turns the order round, NaN first. */
SORT_INLINE uint32_t sort_key(uint32_t bits, bool descending)
{
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        key = ~0u;
    if ((bits & 0x7fffffffu) == 0)
        key = 0x80000000u;
    return descending ? ~key : key;
}

enum { SORT_SLOTS = 16 };

/* Keys with their places, twice, for each slot of rows. */
static inline int64_t cpu_argsort_workspace(int64_t rows, int64_t n)
{
    return min_i64(rows, SORT_SLOTS) * 2 * n * (int64_t)sizeof(uint64_t);
}

#endif
