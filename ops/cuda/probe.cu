/* SPDX-License-Identifier: Apache-2.0 */
/* Asks CUDA for the code of one kernel; where the GPU has no image of it, it has none of any. */
#include "cuda/cuda.cuh"
#include "cuda/probe.h"

static __global__ void probe_kernel(void)
{
}

int cuda_probe(void)
{
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, probe_kernel) == cudaSuccess)
        return CKPT_OK;
    cudaGetLastError();
    return CKPT_EDEVICE;
}
