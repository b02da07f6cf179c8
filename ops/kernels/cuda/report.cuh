/* SPDX-License-Identifier: Apache-2.0 */
/* How CUDA kernels report an index out of range: see struct index_report (attr.h). */
#ifndef CKPT_CUDA_REPORT_CUH
#define CKPT_CUDA_REPORT_CUH

#include "attr.h"
#include "kernels/cuda/cuda.cuh"

/* The kernel argument for such reports, passed by value. */
struct index_reporter {
    const struct ckpt_run *run; /* device address */
    unsigned long long call;
    int64_t size; /* valid indices are in [0, size) */
};

static inline struct index_reporter index_reporter_of(const struct ckpt_kernel_args *a,
                                                      int64_t size)
{
    struct index_reporter r = {};
    r.run = a->run_device;
    r.call = (unsigned long long)(uint32_t)a->run->micro << 32 | (uint32_t)(a->op + 1);
    r.size = size;
    return r;
}

/* Reports that element `place`, in row-major order, of the indices of this call is `index`, out of
 * range.  Any thread may call it.  The report is in host memory; only this device writes it. */
static __device__ __noinline__ void report_index(const struct index_reporter &r, int64_t place,
                                                 int32_t index)
{
    struct index_report *report = r.run ? r.run->bad_index : nullptr;
    if (!report)
        return;
    unsigned long long *call = reinterpret_cast<unsigned long long *>(&report->call);
    unsigned long long *first = reinterpret_cast<unsigned long long *>(&report->first);
    if (r.run->halt)
        atomicCAS(r.run->halt, 0, HALT_INDEX);
    unsigned long long before = atomicCAS(call, 0ull, r.call);
    if (before && before != r.call)
        return;
    report->size = r.size;
    atomicMin(first, (unsigned long long)place << 32 | (uint32_t)index);
}

/* Returns whether index is in range; reports it if not. */
static __device__ __forceinline__ bool index_fits(const struct index_reporter &r, int64_t place,
                                                  int32_t index)
{
    bool fits = index >= 0 && index < r.size;
    if (!fits)
        report_index(r, place, index);
    return fits;
}

#endif
