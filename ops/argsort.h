/* SPDX-License-Identifier: Apache-2.0 */
/* Sort keys: unsigned 32-bit integers in the same order as the floats, NaN last. */
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

/* The key of a float, given its bits.  -0 and 0 have equal keys.  descending reverses the order, so
 * NaN comes first. */
SORT_INLINE uint32_t sort_key(uint32_t bits, bool descending)
{
    uint32_t key = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        key = ~0u;
    if ((bits & 0x7fffffffu) == 0)
        key = 0x80000000u;
    return descending ? ~key : key;
}

enum { SORT_SLOTS = 16 }; /* CPU: groups of rows that threads sort at once */

#endif
