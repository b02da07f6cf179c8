/* SPDX-License-Identifier: Apache-2.0 */
/* Asks CUDA for the attributes of one kernel.  If the build has no image of it for the current GPU,
 * it has no image of any kernel. */
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/probe.h"

static __global__ void probe_kernel(void)
{
}

int cuda_compiled_for(void)
{
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess)
        return attributes.ptxVersion;
    cudaGetLastError();
    return CKPT_EDEVICE;
}
