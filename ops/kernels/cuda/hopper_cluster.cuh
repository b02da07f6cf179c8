/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of a cluster on Hopper, which can access each other's shared memory.  A variable has the
 * same offset in all of them; barriers and copies accept addresses in any block.
 */
#ifndef CKPT_CUDA_HOPPER_CLUSTER_CUH
#define CKPT_CUDA_HOPPER_CLUSTER_CUH

#include "kernels/cuda/hopper.cuh"

/* The block's rank within its cluster. */
__device__ __forceinline__ int cluster_rank(void)
{
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

/* A barrier of all threads of the cluster.  A block must not access another one before the first
 * such barrier, since that block may not have started.  It must not exit before a last one if
 * others may still access it. */
__device__ __forceinline__ void cluster_sync(void)
{
    asm volatile("barrier.cluster.arrive.release.aligned;\n"
                 "barrier.cluster.wait.acquire.aligned;" ::
                     : "memory");
}

/* piece_at() for blocks of a cluster: their shared addresses have the block's rank in the upper
 * byte, which descriptors must not contain. */
__device__ __forceinline__ uint32_t piece_in_block(const void *p)
{
    return shared_address(p) % (1 << 18) / 16;
}

/* The address of a shared variable in block `rank`. */
__device__ __forceinline__ uint32_t address_in(const void *p, int rank)
{
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there)
                 : "r"(shared_address(p)), "r"(rank));
    return there;
}

__device__ __forceinline__ void barrier_arrive_in(const uint64_t *barrier, int rank)
{
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(address_in(barrier, rank))
                 : "memory");
}

/* box_load() with multicast to every block of the bit mask `blocks`, at the same offset and counted
 * at the same barrier in each. */
__device__ __forceinline__ void box_load_all(void *to, const CUtensorMap *map,
                                             const uint64_t *barrier, const int (&at)[2],
                                             uint16_t blocks)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(to)),
                 "l"(map), "r"(shared_address(barrier)), "r"(at[0]), "r"(at[1]), "h"(blocks)
                 : "memory");
}

/* Writes a double to `to` in block `rank`, which sees it after cluster_sync(). */
__device__ __forceinline__ void double_put(const double *to, double x, int rank)
{
    asm volatile("st.shared::cluster.f64 [%0], %1;" ::"r"(address_in(to, rank)), "d"(x) : "memory");
}

/* Writes two floats to `to` in block `rank`; counts at that block's barrier. */
__device__ __forceinline__ void floats_send(const float2 *to, float2 x, const uint64_t *barrier,
                                            int rank)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 "
                 "[%0], {%1, %2}, [%3];" ::"r"(address_in(to, rank)),
                 "f"(x.x), "f"(x.y), "r"(address_in(barrier, rank))
                 : "memory");
}

/* Copies contiguous bytes to `to` in block `rank`; counts at that block's barrier. */
__device__ __forceinline__ void bulk_send(const void *to, const void *from, uint32_t bytes,
                                          const uint64_t *barrier, int rank)
{
    asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes "
                 "[%0], [%1], %2, [%3];" ::"r"(address_in(to, rank)),
                 "r"(shared_address(from)), "r"(bytes), "r"(address_in(barrier, rank))
                 : "memory");
}

#endif
