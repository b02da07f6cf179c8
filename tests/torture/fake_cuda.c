/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUDA on the host's memory, to make its calls fail without a GPU.  It is loaded before the program
 * (LD_PRELOAD) after tests/torture/shim.c, which decides which call fails: every call of the
 * runtime and of the driver is of kind "cuda", every call of cuBLASLt of kind "cublas".  Functions
 * that are not defined here come from the CUDA libraries, which find no GPU.
 *
 * Streams run immediately in the caller's thread, so events are complete when they are recorded.
 * Kernels and products do nothing: device memory holds zeros and copied data.  Work recorded into a
 * graph runs once, at once, and launching the graph does nothing.  A call that fails does nothing,
 * but calls that free something do free it.  Like CUDA, it refuses invalid handles: freed ones,
 * memory mapped twice, captures that were not started.
 *
 * FAKE_CUDA_DEVICES=0 reports no device: a program for the CPU then behaves the same on a machine
 * with a GPU, whose driver crashes without memory.  FAKE_CUDA_CAPABILITY=75 is an older card.
 *
 * At the end, objects that the program has not freed are reported, and the exit code is 9.
 */
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MEMORY ((size_t)1 << 30) /* bytes of the device */
#define UNIT   ((size_t)1 << 21)

/* The shim's answer whether the next call of a kind must fail. */
extern bool torture_fails(const char *kind) __attribute__((weak));
extern void *__libc_calloc(size_t, size_t);
extern void __libc_free(void *);

static atomic_size_t used; /* bytes of the device */
atomic_int fake_kernels;   /* and products that were run, each for 10 ms as events have it */
static __thread cudaError_t last;
static __thread struct CUstream_st *capturing;

/* Live objects, by the name used in the final report. */
enum thing { STREAM, EVENT, GRAPH, EXEC, HOST, REGISTERED, DEVICE, RANGE, PIECE, MAPPING };
static const char *const things[] = {"streams",
                                     "events",
                                     "graphs",
                                     "executable graphs",
                                     "blocks of pinned memory",
                                     "registered blocks",
                                     "blocks of device memory",
                                     "address ranges",
                                     "pieces of memory",
                                     "mapped pieces"};
enum { THINGS = sizeof things / sizeof *things };
static atomic_int out[THINGS];

static bool fails(const char *kind)
{
    return torture_fails && torture_fails(kind);
}

static cudaError_t answer(cudaError_t e)
{
    if (e != cudaSuccess && e != cudaErrorNotReady)
        last = e;
    return e;
}

/* At the start of a call that can fail. */
#define TURN(error)                                                                                \
    do {                                                                                           \
        if (fails("cuda"))                                                                         \
            return answer(error);                                                                  \
    } while (0)

/* At the end of a call that frees something. */
static cudaError_t given_back(enum thing t)
{
    out[t]--;
    return answer(fails("cuda") ? cudaErrorUnknown : cudaSuccess);
}

/* Not counted by the shim: this memory is not the process's own. */
static void *map_memory(void *at, size_t n, int prot)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    return (void *)syscall(SYS_mmap, at, n, prot, flags, -1, 0);
}

__attribute__((destructor)) static void tell_what_is_out(void)
{
    bool any = false;
    for (int i = 0; i < THINGS; i++) {
        if (out[i])
            dprintf(2, "fake CUDA: %d %s were not given back\n", (int)out[i], things[i]);
        any |= out[i] != 0;
    }
    if (any)
        _exit(9);
}

/* ---- the device ------------------------------------------------------------------------------ */

cudaError_t cudaGetLastError(void)
{
    cudaError_t e = last;
    last = cudaSuccess;
    return e;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

const char *cudaGetErrorString(cudaError_t e)
{
    return e == cudaErrorMemoryAllocation ? "out of memory (fake CUDA)"
                                          : "unknown error (fake CUDA)";
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const char *devices = getenv("FAKE_CUDA_DEVICES");
    TURN(cudaErrorUnknown);
    *n = devices ? atoi(devices) : 1;
    return *n > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    TURN(cudaErrorUnknown);
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    TURN(cudaErrorUnknown);
    return answer(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    TURN(cudaErrorUnknown);
    const char *text = getenv("FAKE_CUDA_CAPABILITY");
    const int capability = text ? atoi(text) : 80;
    *p = (struct cudaDeviceProp){.name = "fake GPU",
                                 .totalGlobalMem = MEMORY,
                                 .major = capability / 10,
                                 .minor = capability % 10,
                                 .multiProcessorCount = 2};
    return answer(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    TURN(cudaErrorUnknown);
    *value = attribute == cudaDevAttrComputeCapabilityMajor   ? 8
             : attribute == cudaDevAttrComputeCapabilityMinor ? 0
             : attribute == cudaDevAttrMultiProcessorCount    ? 2
                                                              : 1 << 16;
    return answer(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int n, int device)
{
    TURN(cudaErrorUnknown);
    snprintf(id, (size_t)n, "ffff:ff:1f.0");
    return answer(device ? cudaErrorInvalidDevice : cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    TURN(cudaErrorUnknown);
    *low = *high = 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    TURN(cudaErrorUnknown);
    return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *unused, size_t *total)
{
    TURN(cudaErrorUnknown);
    *total = MEMORY;
    *unused = MEMORY - used;
    return cudaSuccess;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The size of a block is stored before it, on a separate page. */
static cudaError_t give_block(void **p, size_t n, enum thing t)
{
    char *base = map_memory(NULL, n + 4096, PROT_READ | PROT_WRITE);
    if (base == MAP_FAILED)
        return answer(cudaErrorMemoryAllocation);
    memcpy(base, &n, sizeof n);
    *p = base + 4096;
    out[t]++;
    return cudaSuccess;
}

static cudaError_t take_block(void *p, enum thing t)
{
    size_t n;
    if (!p)
        return cudaSuccess;
    memcpy(&n, (char *)p - 4096, sizeof n);
    syscall(SYS_munmap, (char *)p - 4096, n + 4096);
    return given_back(t);
}

cudaError_t cudaMalloc(void **p, size_t n)
{
    TURN(cudaErrorMemoryAllocation);
    return give_block(p, n, DEVICE);
}

cudaError_t cudaFree(void *p)
{
    return take_block(p, DEVICE);
}

cudaError_t cudaHostAlloc(void **p, size_t n, unsigned flags)
{
    TURN(cudaErrorMemoryAllocation);
    return give_block(p, n, HOST);
}

cudaError_t cudaFreeHost(void *p)
{
    return take_block(p, HOST);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned flags)
{
    TURN(cudaErrorUnknown);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaHostRegister(void *p, size_t n, unsigned flags)
{
    TURN(cudaErrorMemoryAllocation);
    out[REGISTERED]++;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *p)
{
    return given_back(REGISTERED);
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    TURN(cudaErrorUnknown);
    memmove(dst, src, n);
    return cudaSuccess;
}

/* Large zeroed blocks, as between the timed kernels of a first step, are untouched pages. */
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t n, cudaStream_t stream)
{
    const uintptr_t page = 4096;
    uintptr_t begin = ((uintptr_t)dst + page - 1) / page * page;
    uintptr_t end = ((uintptr_t)dst + n) / page * page;
    TURN(cudaErrorUnknown);
    if (byte || n < (1U << 20)) {
        memset(dst, byte, n);
        return cudaSuccess;
    }
    memset(dst, 0, begin - (uintptr_t)dst);
    map_memory((void *)begin, end - begin, PROT_READ | PROT_WRITE);
    memset((void *)end, 0, (uintptr_t)dst + n - end);
    return cudaSuccess;
}

/* ---- streams, events, graphs ----------------------------------------------------------------- */

struct CUstream_st {
    bool captured;
};

struct CUevent_st {
    int kernels; /* that had run */
};

struct CUgraph_st {
    int unused;
};

struct CUgraphExec_st {
    int unused;
};

/* A block of n bytes as a handle. */
static cudaError_t give_handle(void *handle, size_t n, enum thing t)
{
    void *p = __libc_calloc(1, n);
    if (!p)
        return answer(cudaErrorMemoryAllocation);
    memcpy(handle, &p, sizeof p);
    out[t]++;
    return cudaSuccess;
}

static cudaError_t take_handle(void *handle, enum thing t)
{
    if (!handle)
        return answer(cudaErrorInvalidResourceHandle);
    __libc_free(handle);
    return given_back(t);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    TURN(cudaErrorMemoryAllocation);
    return give_handle(stream, sizeof **stream, STREAM);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return take_handle(stream, STREAM);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    TURN(cudaErrorUnknown);
    return answer(stream->captured ? cudaErrorStreamCaptureUnsupported : cudaSuccess);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return cudaStreamSynchronize(stream);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    TURN(cudaErrorUnknown);
    return answer(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    TURN(cudaErrorMemoryAllocation);
    return give_handle(event, sizeof **event, EVENT);
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return take_handle(event, EVENT);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    TURN(cudaErrorUnknown);
    if (!event)
        return answer(cudaErrorInvalidResourceHandle);
    event->kernels = fake_kernels;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    TURN(cudaErrorUnknown);
    return answer(event ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return cudaEventSynchronize(event);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
    TURN(cudaErrorUnknown);
    *ms = 10.F * (float)(b->kernels - a->kernels);
    return cudaSuccess;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *user)
{
    TURN(cudaErrorUnknown);
    fn(user);
    return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    TURN(cudaErrorUnknown);
    if (capturing)
        return answer(cudaErrorIllegalState);
    capturing = stream;
    stream->captured = true;
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    TURN(cudaErrorUnknown);
    *status = stream->captured ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

/* Ends the capture even on failure, like CUDA. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    bool was = stream->captured;
    stream->captured = false;
    capturing = NULL;
    *graph = NULL;
    TURN(cudaErrorStreamCaptureInvalidated);
    return was ? give_handle(graph, sizeof **graph, GRAPH) : answer(cudaErrorIllegalState);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    TURN(cudaErrorMemoryAllocation);
    return give_handle(exec, sizeof **exec, EXEC);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return take_handle(graph, GRAPH);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return take_handle(exec, EXEC);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    TURN(cudaErrorMemoryAllocation);
    return answer(exec ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return cudaGraphUpload(exec, stream);
}

/* ---- kernels --------------------------------------------------------------------------------- */

cudaError_t cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                             cudaStream_t stream)
{
    TURN(cudaErrorLaunchFailure);
    fake_kernels++;
    bool sane = grid.x && grid.y && grid.z && block.x * block.y * block.z - 1U < 1024;
    return answer(sane ? cudaSuccess : cudaErrorInvalidConfiguration);
}

/* The code that nvcc generates for <<<>>> since CUDA 13. */
cudaError_t __cudaGetKernel(cudaKernel_t *handle, const void *kernel);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream);

cudaError_t __cudaGetKernel(cudaKernel_t *handle, const void *kernel)
{
    memcpy(handle, &kernel, sizeof kernel);
    return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
                               size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(kernel, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **args)
{
    return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, args, 0, config->stream);
}

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    TURN(cudaErrorUnknown);
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    TURN(cudaErrorNoKernelImageForDevice);
    *attributes = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024};
    return cudaSuccess;
}

/* ---- the driver ------------------------------------------------------------------------------ */

#define DRIVER_TURN(error)                                                                         \
    do {                                                                                           \
        if (fails("cuda"))                                                                         \
            return error;                                                                          \
    } while (0)

static CUresult granularity(size_t *unit, const CUmemAllocationProp *prop,
                            CUmemAllocationGranularity_flags flags)
{
    DRIVER_TURN(CUDA_ERROR_UNKNOWN);
    *unit = UNIT;
    return CUDA_SUCCESS;
}

static CUresult reserve(CUdeviceptr *base, size_t n, size_t align, CUdeviceptr at,
                        unsigned long long flags)
{
    DRIVER_TURN(CUDA_ERROR_OUT_OF_MEMORY);
    void *p = map_memory(NULL, n, PROT_NONE);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *base = (CUdeviceptr)(uintptr_t)p;
    out[RANGE]++;
    return CUDA_SUCCESS;
}

static CUresult driver_gave_back(enum thing t)
{
    out[t]--;
    return fails("cuda") ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

static CUresult free_range(CUdeviceptr base, size_t n)
{
    syscall(SYS_munmap, (void *)(uintptr_t)base, n);
    return driver_gave_back(RANGE);
}

/* The handle of a piece is its size. */
static CUresult create(CUmemGenericAllocationHandle *piece, size_t n,
                       const CUmemAllocationProp *prop, unsigned long long flags)
{
    DRIVER_TURN(CUDA_ERROR_OUT_OF_MEMORY);
    if (n % UNIT || used + n > MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *piece = n;
    used += n;
    out[PIECE]++;
    return CUDA_SUCCESS;
}

static CUresult release_piece(CUmemGenericAllocationHandle piece)
{
    used -= piece;
    return driver_gave_back(PIECE);
}

static CUresult map_piece(CUdeviceptr at, size_t n, size_t offset,
                          CUmemGenericAllocationHandle piece, unsigned long long flags)
{
    DRIVER_TURN(CUDA_ERROR_OUT_OF_MEMORY);
    if (offset || n != piece)
        return CUDA_ERROR_INVALID_VALUE;
    out[MAPPING]++;
    return CUDA_SUCCESS;
}

static CUresult unmap_piece(CUdeviceptr at, size_t n)
{
    map_memory((void *)(uintptr_t)at, n, PROT_NONE);
    return driver_gave_back(MAPPING);
}

static CUresult allow_access(CUdeviceptr at, size_t n, const CUmemAccessDesc *access, size_t count)
{
    DRIVER_TURN(CUDA_ERROR_UNKNOWN);
    return syscall(SYS_mprotect, (void *)(uintptr_t)at, n, PROT_READ | PROT_WRITE)
               ? CUDA_ERROR_UNKNOWN
               : CUDA_SUCCESS;
}

static CUresult device_attribute(int *value, CUdevice_attribute attribute, CUdevice device)
{
    DRIVER_TURN(CUDA_ERROR_UNKNOWN);
    *value = 1;
    return CUDA_SUCCESS;
}

/* A function for a thread: everything that a stream waits for was submitted before.  A thread that
 * failed may never reach it. */
static CUresult wait_value(CUstream stream, CUdeviceptr at, cuuint32_t value, unsigned flags)
{
    DRIVER_TURN(CUDA_ERROR_UNKNOWN);
    const uint32_t *counter = (const uint32_t *)(uintptr_t)at;
    for (int i = 0; i < 20000; i++) {
        if ((int32_t)(__atomic_load_n(counter, __ATOMIC_ACQUIRE) - value) >= 0)
            return CUDA_SUCCESS;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    return CUDA_ERROR_LAUNCH_TIMEOUT;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *found)
{
    static const struct {
        const char *name;
        void *function;
    } calls[] = {{"cuMemGetAllocationGranularity", granularity},
                 {"cuMemAddressReserve", reserve},
                 {"cuMemAddressFree", free_range},
                 {"cuMemCreate", create},
                 {"cuMemRelease", release_piece},
                 {"cuMemMap", map_piece},
                 {"cuMemUnmap", unmap_piece},
                 {"cuMemSetAccess", allow_access},
                 {"cuDeviceGetAttribute", device_attribute},
                 {"cuStreamWaitValue32", wait_value}};
    TURN(cudaErrorUnknown);
    *function = NULL;
    for (size_t i = 0; i < sizeof calls / sizeof *calls && !*function; i++)
        if (!strcmp(calls[i].name, name))
            *function = calls[i].function;
    *found = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
}
