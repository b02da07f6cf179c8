/* SPDX-License-Identifier: Apache-2.0 */
/* How CPU kernels report that a step must have no effect: see HALT_NAN and struct index_report
 * (attr.h). */
#ifndef CKPT_CPU_REPORT_H
#define CKPT_CPU_REPORT_H

#include "attr.h"
#include "ckpt_op.h"

/* Keeps the first reason.  Atomic, because updates on the host run in another thread. */
static inline void report_halt(const struct ckpt_run *run, int32_t why)
{
    int32_t none = 0;
    if (run->halt)
        __atomic_compare_exchange_n(run->halt, &none, why, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED);
}

/* Whether this step or an update has failed so far. */
static inline bool report_is_halted(const struct ckpt_run *run)
{
    return run->halt && __atomic_load_n(run->halt, __ATOMIC_RELAXED);
}

/* Reports that element `place`, in row-major order, of the indices of this call is `index`, outside
 * [0, size).  Any thread of a kernel may call it. */
static inline void report_index(const struct ckpt_kernel_args *a, int64_t place, int32_t index,
                                int64_t size)
{
    struct index_report *r = a->run->bad_index;
    if (!r)
        return;
    uint64_t call = (uint64_t)(uint32_t)a->run->micro << 32 | (uint32_t)(a->op + 1), none = 0;
    uint64_t here = (uint64_t)place << 32 | (uint32_t)index;
    report_halt(a->run, HALT_INDEX);
    if (!__atomic_compare_exchange_n(&r->call, &none, call, false, __ATOMIC_RELAXED,
                                     __ATOMIC_RELAXED) &&
        none != call)
        return;
    __atomic_store_n(&r->size, size, __ATOMIC_RELAXED);
    uint64_t first = __atomic_load_n(&r->first, __ATOMIC_RELAXED);
    while (here < first && !__atomic_compare_exchange_n(&r->first, &first, here, false,
                                                        __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
}

#endif
