/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers shared by all CUDA kernels: element access, vectors of 16 bytes, reductions in a fixed
 * order, kernel launches. */
#ifndef CKPT_CUDA_CUH
#define CKPT_CUDA_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include "ckpt_op.h"
#include "kernels/cuda/probe.h"

typedef __nv_bfloat16 bf16;

__device__ __forceinline__ float to_float(float x)
{
    return x;
}

__device__ __forceinline__ float to_float(bf16 x)
{
    return __bfloat162float(x);
}

template <typename T> __device__ __forceinline__ T from_float(float x);

template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}

/* Rounds to nearest even, as all of libckpt does. */
template <> __device__ __forceinline__ bf16 from_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}

/* N elements that are loaded or stored by one instruction; the address must be a multiple of their
 * size. */
template <typename T, int N> struct alignas(sizeof(T) * N) vec {
    T at[N];
};

/* The number of elements of T in 16 bytes. */
template <typename T> struct wide {
    static constexpr int n = 16 / (int)sizeof(T);
};

template <typename T, int N>
__device__ __forceinline__ void load_floats(float (&dst)[N], const T *src)
{
    vec<T, N> v = *reinterpret_cast<const vec<T, N> *>(src);
#pragma unroll
    for (int i = 0; i < N; i++)
        dst[i] = to_float(v.at[i]);
}

template <typename T, int N>
__device__ __forceinline__ void store_floats(T *dst, const float (&src)[N])
{
    vec<T, N> v;
#pragma unroll
    for (int i = 0; i < N; i++)
        v.at[i] = from_float<T>(src[i]);
    *reinterpret_cast<vec<T, N> *>(dst) = v;
}

/* The 32-bit address of shared memory that PTX instructions expect. */
__device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

/* Loads four 8 x 8 matrices of bf16 from shared memory; lane i passes the address of row i % 8 of
 * matrix i / 8. */
__device__ __forceinline__ void load_matrix4(uint32_t (&r)[4], uint32_t row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(row)
                 : "memory");
}

__device__ __forceinline__ void load_matrix4(uint32_t (&r)[4], const bf16 *row)
{
    load_matrix4(r, shared_address(row));
}

/* Rounds two floats to bf16 and packs them, the first in the lower half. */
__device__ __forceinline__ uint32_t pack2(float first, float second)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
    return *reinterpret_cast<uint32_t *>(&pair);
}

/* Unpacks a word that pack2 made. */
__device__ __forceinline__ float2 unpack2(uint32_t pair)
{
    return float2{__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

/* Returns the smaller of x and 0.  A NaN stays NaN; fminf would return 0. */
__device__ __forceinline__ float at_most_zero(float x)
{
    float y;
    asm("min.NaN.f32 %0, %1, 0f00000000;" : "=f"(y) : "f"(x));
    return y;
}

/* Sums x over the lanes of a warp in a fixed order; every lane gets the sum. */
template <typename T> __device__ __forceinline__ T warp_sum(T x)
{
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x += __shfl_xor_sync(0xffffffffu, x, offset);
    return x;
}

/* The maximum over a warp, in every lane; NaN is ignored. */
__device__ __forceinline__ float warp_max(float x)
{
#pragma unroll
    for (int offset = 16; offset; offset >>= 1)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, offset));
    return x;
}

/* Sums x over the threads of a block (a multiple of 32, at most 1024) in a fixed order; every
 * thread gets the sum.  All threads of the block must call it; consecutive calls need no barrier
 * between them. */
template <typename T> __device__ __forceinline__ T block_sum(T x)
{
    __shared__ T part[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, warps = (blockDim.x + 31) >> 5;
    x = warp_sum(x);
    __syncthreads();
    if (lane == 0)
        part[warp] = x;
    __syncthreads();
    return warp_sum(lane < warps ? part[lane] : T(0));
}

/* Sums n partial sums of other blocks; every thread of a block of THREADS gets the sum. */
template <int THREADS>
__device__ __forceinline__ double block_sum_of(const double *partial, int64_t n)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += partial[i];
    return block_sum(sum);
}

/* Defines the kernel of an op: run for the dtype of an operand or result, in[i] or out[i]. */
#define CUDA_FLOATS(op, operand, run)                                                              \
    int cuda_##op(const struct ckpt_kernel_args *a)                                                \
    {                                                                                              \
        return a->operand.desc.dtype == CKPT_BF16 ? run<bf16>(a) : run<float>(a);                  \
    }

static inline cudaStream_t stream_of(const struct ckpt_kernel_args *a)
{
    return (cudaStream_t)a->stream;
}

/* ---- programmatic dependent launch ----------------------------------------------------------- */

/* Allows blocks of the next kernel of the stream to start as soon as resources are free. */
__device__ __forceinline__ void launch_dependents(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* Waits until the previous kernel has finished and its writes are visible. */
__device__ __forceinline__ void wait_for_previous_kernel(void)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Returns an attribute of the current device, or 0 if the query fails. */
static inline int device_attribute(cudaDeviceAttr attribute)
{
    int device, value = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&value, attribute, device) != cudaSuccess)
        return 0;
    return value;
}

/* Launches a kernel that calls wait_for_previous_kernel before it reads results of the previous
 * kernel.  On Hopper and later its blocks may start while the previous kernel finishes, but for
 * images of older cards, in which that call is empty. */
template <typename... P, typename... A>
static void launch_dependent(cudaStream_t stream, dim3 grid, dim3 block, void (*kernel)(P...),
                             A... args)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t config = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.stream = stream;
    config.attrs = &early;
    config.numAttrs = cuda_compiled_for() >= 90 ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, args...);
}

/* The return value of a kernel's function: CKPT_EDEVICE if a launch was refused.  The device later
 * asks CUDA for the reason. */
static inline int launched(void)
{
    return cudaPeekAtLastError() == cudaSuccess ? CKPT_OK : CKPT_EDEVICE;
}

/* Is the address a multiple of 16? */
static inline bool aligned16(const void *p)
{
    return ((uintptr_t)p & 15) == 0;
}

#endif
