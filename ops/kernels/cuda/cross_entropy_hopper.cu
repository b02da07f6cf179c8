/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loss and gradient of wide rows (cross_entropy.cuh) on Hopper.  A cluster of blocks shares a row:
 * each block keeps a part of it in shared memory, and the maximum and sum of every warp are sent to
 * all blocks.  Compiled only for sm_90a, since the PTX of cluster instructions is not portable.
 */
#include "kernels/cuda/cross_entropy.cuh"
#include "kernels/cuda/hopper_cluster.cuh"

constexpr int MOST_BLOCKS = 8;

/* Values that the warps of a row exchange.  Two halves are used in turn, so that no block
 * overwrites values that another block may not have read yet. */
typedef double exchange_buffer[2][THREADS / 32];

/* A team that is a cluster of C blocks. */
template <int C> struct row_cluster {
    exchange_buffer *values;
    int rank, half;

    __device__ __forceinline__ int thread(void) const
    {
        return rank * blockDim.x + threadIdx.x;
    }

    __device__ __forceinline__ int threads(void) const
    {
        return C * blockDim.x;
    }

    __device__ __forceinline__ int64_t slot(int64_t j) const
    {
        return (j - thread()) / C + threadIdx.x;
    }

    __device__ __forceinline__ int64_t number(void) const
    {
        return blockIdx.x / C;
    }

    __device__ __forceinline__ int64_t count(void) const
    {
        return gridDim.x / C;
    }

    /* Sends this warp's x to all blocks.  Returns the value of warp `lane` of the row, or `none` if
     * there is no such warp. */
    __device__ __forceinline__ double exchange(double x, double none)
    {
        const int lane = threadIdx.x % 32;
        double *at = (*values)[half];
        if (lane < C)
            double_put(at + thread() / 32, x, lane);
        cluster_sync();
        half ^= 1;
        return lane < threads() / 32 ? at[lane] : none;
    }

    __device__ __forceinline__ float largest(float x)
    {
        x = warp_max(x);
        return warp_max((float)exchange((double)x, -INFINITY));
    }

    __device__ __forceinline__ double sum(double x)
    {
        return warp_sum(exchange(warp_sum(x), 0.));
    }
};

template <typename T, bool SMOOTH, int C>
static __global__ void __launch_bounds__(THREADS / C)
    cross_entropy_wide(const __grid_constant__ struct both_operands<T> o,
                       const __grid_constant__ struct cross_entropy c,
                       const __grid_constant__ struct index_reporter reporter)
{
    extern __shared__ uint4 stage[];
    __shared__ exchange_buffer values;
    struct row_cluster<C> team = {&values, cluster_rank(), 0};
    cluster_sync(); /* all blocks of the cluster have started */
    both_rows<T, SMOOTH>(team, o, stage, c, reporter);
}

/* ---- launching ------------------------------------------------------------------------------- */

template <int C, typename T>
static bool launch(const struct both_operands<T> &o, const struct cross_entropy &c,
                   const struct index_reporter &reporter, int bytes, cudaStream_t stream)
{
    auto kernel =
        c.smoothing > 0.f ? cross_entropy_wide<T, true, C> : cross_entropy_wide<T, false, C>;
    cudaLaunchAttribute cluster = {};
    cudaLaunchConfig_t config = {};
    int clusters = 0;
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = C;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(C);
    config.blockDim = dim3((unsigned)row_threads(c.n) / C);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = stream;
    config.attrs = &cluster;
    config.numAttrs = 1;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) || !clusters)
        return false;
    config.gridDim = dim3((unsigned)min_i64(c.rows, clusters) * C);
    return cudaLaunchKernelEx(&config, kernel, o, c, reporter) == cudaSuccess;
}

/* Selects the smallest cluster of which a multiprocessor holds three blocks, so that some blocks
 * access memory while others compute exponentials; else the largest. */
template <typename T>
static bool launch_cluster(const struct both_operands<T> &o, const struct cross_entropy &c,
                           const struct index_reporter &reporter, cudaStream_t stream)
{
    const int64_t limit = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) - 1024;
    const int64_t threads = row_threads(c.n);
    const int64_t whole = (c.n / wide<T>::n + threads - 1) / threads * threads * 16;
    int64_t blocks = 2;
    while (blocks < MOST_BLOCKS && whole / blocks > limit / 3)
        blocks *= 2;
    if (whole <= limit / 2 || whole / blocks > limit ||
        device_attribute(cudaDevAttrComputeCapabilityMajor) != 9)
        return false;
    const int bytes = (int)(whole / blocks);
    return blocks == 2   ? launch<2>(o, c, reporter, bytes, stream)
           : blocks == 4 ? launch<4>(o, c, reporter, bytes, stream)
                         : launch<8>(o, c, reporter, bytes, stream);
}

bool cross_entropy_cluster(const struct both_operands<float> &o, const struct cross_entropy &c,
                           const struct index_reporter &reporter, cudaStream_t stream)
{
    return launch_cluster(o, c, reporter, stream);
}

bool cross_entropy_cluster(const struct both_operands<bf16> &o, const struct cross_entropy &c,
                           const struct index_reporter &reporter, cudaStream_t stream)
{
    return launch_cluster(o, c, reporter, stream);
}
