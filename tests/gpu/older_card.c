/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loaded by LD_PRELOAD (older_cards.sh): the GPU looks like one of compute capability
 * CKPT_TEST_CAPABILITY (80, 86 or 89), so the kernels for cards before Hopper run on a Hopper card.
 * Shared memory is limited as there.  Launch attributes (clusters, early starts) and TMA
 * descriptors, which such a card does not have, end the process.  NVRTC is not found, because its
 * binaries for the older card would not load.
 */
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int capability(void)
{
    const char *text = getenv("CKPT_TEST_CAPABILITY");
    return text ? atoi(text) : 89;
}

/* Bytes of shared memory that a block may request (CUDA C++ Programming Guide, table of compute
 * capabilities). */
static int shared_limit(void)
{
    return capability() == 80 ? 163 << 10 : 99 << 10;
}

static void *next(const char *name)
{
    void *f = dlsym(RTLD_NEXT, name);
    if (!f) {
        dprintf(2, "older_card: no %s\n", name);
        _exit(9);
    }
    return f;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    cudaError_t (*real)(int *, enum cudaDeviceAttr, int) = next("cudaDeviceGetAttribute");
    cudaError_t e = real(value, attribute, device);
    if (attribute == cudaDevAttrComputeCapabilityMajor)
        *value = capability() / 10;
    else if (attribute == cudaDevAttrComputeCapabilityMinor)
        *value = capability() % 10;
    else if (attribute == cudaDevAttrMaxSharedMemoryPerBlockOptin)
        *value = shared_limit();
    else if (attribute == cudaDevAttrMaxSharedMemoryPerMultiprocessor)
        *value = shared_limit() + 1024;
    return e;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    cudaError_t (*real)(struct cudaDeviceProp *, int) = next("cudaGetDeviceProperties");
    cudaError_t e = real(p, device);
    p->major = capability() / 10;
    p->minor = capability() % 10;
    p->sharedMemPerBlockOptin = shared_limit();
    p->sharedMemPerMultiprocessor = shared_limit() + 1024;
    return e;
}

cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute attribute, int value)
{
    cudaError_t (*real)(const void *, enum cudaFuncAttribute, int) = next("cudaFuncSetAttribute");
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && value > shared_limit()) {
        dprintf(2, "older_card: %d bytes of shared memory\n", value);
        return cudaErrorInvalidValue;
    }
    return real(f, attribute, value);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *f, void **args)
{
    cudaError_t (*real)(const cudaLaunchConfig_t *, const void *, void **) =
        next("cudaLaunchKernelExC");
    if (config->numAttrs > 0) {
        dprintf(2, "older_card: a launch with %u attributes\n", config->numAttrs);
        _exit(9);
    }
    return real(config, f, args);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **f, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    cudaError_t (*real)(const char *, void **, unsigned, unsigned long long,
                        enum cudaDriverEntryPointQueryResult *) =
        next("cudaGetDriverEntryPointByVersion");
    if (strstr(symbol, "TensorMap")) {
        dprintf(2, "older_card: %s\n", symbol);
        _exit(9);
    }
    return real(symbol, f, version, flags, result);
}

void *dlopen(const char *path, int mode)
{
    void *(*real)(const char *, int) = next("dlopen");
    return path && strstr(path, "nvrtc") ? NULL : real(path, mode);
}
