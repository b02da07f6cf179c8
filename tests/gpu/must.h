/* SPDX-License-Identifier: Apache-2.0 */
/* How GPU tests end where the machine, not what they test, fails: the call and CUDA's error. */
#ifndef CKPT_TESTS_GPU_MUST_H
#define CKPT_TESTS_GPU_MUST_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <cuda_runtime_api.h>

static inline void must(bool ok, const char *what)
{
    if (ok)
        return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(cudaGetLastError()));
    exit(1);
}

#endif
