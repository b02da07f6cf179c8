/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Instructions specific to Hopper: warpgroup products (hopper_product.cuh), transaction barriers in
 * shared memory (mbarrier), TMA copies of boxes of a tensor, and register reallocation between
 * warpgroups.  Files that include this are compiled only for sm_90a (hopper_objects in
 * Makefile.am).
 */
#ifndef CKPT_CUDA_HOPPER_CUH
#define CKPT_CUDA_HOPPER_CUH

#include <cuda.h>
#include "kernels/cuda/hopper_product.cuh"

/* ---- barriers -------------------------------------------------------------------------------- */

/* mbarriers in shared memory.  A phase completes when `count` threads have arrived and all expected
 * bytes have been written. */
__device__ __forceinline__ void barrier_init(const uint64_t *barrier, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
                 "r"(count)
                 : "memory");
}

/* Call after the inits and before a barrier of all threads of the block, so that TMA copies see the
 * initialized barriers. */
__device__ __forceinline__ void barrier_inits_end(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    show_products();
}

__device__ __forceinline__ void barrier_arrive(const uint64_t *barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
                 : "memory");
}

/* Arrives once for the whole warp. */
__device__ __forceinline__ void barrier_arrive_warp(const uint64_t *barrier)
{
    __syncwarp();
    if (threadIdx.x % 32 == 0)
        barrier_arrive(barrier);
}

/* Arrives, and adds to the bytes that this phase expects from TMA copies. */
__device__ __forceinline__ void barrier_expect(const uint64_t *barrier, uint32_t bytes)
{
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
        "r"(bytes)
        : "memory");
}

/* Waits until more than `before` phases have completed.  The barrier must not complete two more
 * phases in the meantime, since only the parity is tested. */
__device__ __forceinline__ void barrier_wait(const uint64_t *barrier, int before)
{
    asm volatile("{ .reg .pred passed;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 passed, [%0], %1;\n"
                 "@!passed bra again; }" ::"r"(shared_address(barrier)),
                 "r"(before & 1)
                 : "memory");
}

/* Named barriers of a block, 1 to 15 (0 is __syncthreads()), for `count` threads. */
__device__ __forceinline__ void named_sync(int barrier, int count)
{
    asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

__device__ __forceinline__ void named_arrive(int barrier, int count)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(count) : "memory");
}

/* The same as named_sync; returns whether x is true in any of the threads. */
__device__ __forceinline__ bool named_any(int barrier, int count, bool x)
{
    int any;
    asm volatile("{ .reg .pred all, mine; setp.ne.s32 mine, %1, 0;\n"
                 "bar.red.or.pred all, %2, %3, mine;\n"
                 "selp.s32 %0, 1, 0, all; }"
                 : "=r"(any)
                 : "r"((int)x), "r"(barrier), "r"(count)
                 : "memory");
    return __shfl_sync(0xffffffffu, any, 0) != 0;
}

/* ---- matrices -------------------------------------------------------------------------------- */

/* Stores four (two) 8 x 8 matrices of bf16 from accumulator layout; lane i passes the address of
 * row i % 8 of matrix i / 8. */
__device__ __forceinline__ void store_matrix4(uint32_t row, uint32_t a, uint32_t b, uint32_t c,
                                              uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void store_matrix2(uint32_t row, uint32_t a, uint32_t b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row), "r"(a),
                 "r"(b)
                 : "memory");
}

/* ---- registers ------------------------------------------------------------------------------- */

/* Sets the registers per thread of the calling warpgroup (setmaxnreg).  Every warpgroup calls one
 * of these once, in the branch of its role; the kernel must have __launch_bounds__(threads, 1). */
template <int N> __device__ __forceinline__ void registers_more(void)
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void registers_fewer(void)
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* ---- TMA copies ------------------------------------------------------------------------------ */

/* One thread starts the copy of a box; `at` has its first coordinates, innermost first.
 * Elements outside of the tensor are loaded as zeros and not stored.  A load counts its bytes at
 * `barrier`. */
__device__ __forceinline__ void box_load(void *to, const CUtensorMap *map, const uint64_t *barrier,
                                         const int (&at)[2])
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1])
                 : "memory");
}

__device__ __forceinline__ void box_load(void *to, const CUtensorMap *map, const uint64_t *barrier,
                                         const int (&at)[3])
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
}

__device__ __forceinline__ void box_load(void *to, const CUtensorMap *map, const uint64_t *barrier,
                                         const int (&at)[4])
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                 "r"(at[3])
                 : "memory");
}

__device__ __forceinline__ void box_load(void *to, const CUtensorMap *map, const uint64_t *barrier,
                                         const int (&at)[5])
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "r"(at[2]),
                 "r"(at[3]), "r"(at[4])
                 : "memory");
}

/* Starts a copy of contiguous bytes; both addresses and the size must be multiples of 16. */
__device__ __forceinline__ void bulk_load(void *to, const void *from, uint32_t bytes,
                                          const uint64_t *barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

/* Starts a store.  The data must have been made visible by show_products() and a barrier. */
__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *from,
                                          const int (&at)[2])
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1])
                 : "memory");
}

__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *from,
                                          const int (&at)[3])
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2])
                 : "memory");
}

__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *from,
                                          const int (&at)[4])
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3])
                 : "memory");
}

__device__ __forceinline__ void box_store(const CUtensorMap *map, const void *from,
                                          const int (&at)[5])
{
    asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group "
                 "[%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(map),
                 "r"(shared_address(from)), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]),
                 "r"(at[4])
                 : "memory");
}

/* Stores contiguous bytes; both addresses and the size must be multiples of 16. */
__device__ __forceinline__ void bulk_store(void *to, const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(shared_address(from)), "r"(bytes)
                 : "memory");
}

/* Adds floats to memory.  The order of several additions is undefined unless the caller enforces
 * one. */
__device__ __forceinline__ void bulk_add(float *to, const void *from, uint32_t bytes)
{
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(shared_address(from)), "r"(bytes)
        : "memory");
}

__device__ __forceinline__ void stores_commit(void)
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* Waits until at most N groups of stores still read shared memory. */
template <int N> __device__ __forceinline__ void stores_read(void)
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* Waits until at most N groups of stores are incomplete. */
template <int N> __device__ __forceinline__ void stores_wait(void)
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/* Makes global memory writes that the thread has observed visible to TMA copies it starts later. */
__device__ __forceinline__ void show_copies(void)
{
    asm volatile("fence.proxy.async;" ::: "memory");
}

/* Prefetches a tensor map for its first use. */
__device__ __forceinline__ void map_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

#endif
