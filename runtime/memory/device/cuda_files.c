/* SPDX-License-Identifier: Apache-2.0 */
/* Threads and streams that wait for each other: see cuda_files.h. */
#include <stdlib.h>
#include <string.h>
#include <cuda.h>
#include "memory/device/cuda_files.h"

enum { FILE_QUEUES = QUEUE_COUNT - QUEUE_READ };

/* The argument of the host function in a stream; it lives as long as the event. */
struct signal {
    struct host_shared *shared;
    int32_t event;
};

struct cuda_files {
    struct host_shared shared;
    struct host_queue queues[FILE_QUEUES];
    CUresult (*wait_value)(CUstream, CUdeviceptr, cuuint32_t, unsigned int);
    uint32_t *counters;      /* per event, how often it was reached; in pinned memory */
    CUdeviceptr on_device;   /* device address of counters */
    struct signal **signals; /* one by one: submitted ones must not move */
    bool *by_thread;         /* per event: a thread's queue recorded it last, not a stream */
    int32_t n_events;
};

static void notify_streams(void *user, int32_t event, int64_t times)
{
    struct cuda_files *f = user;
    __atomic_store_n(&f->counters[event], (uint32_t)times, __ATOMIC_RELEASE);
}

static void release(void *user)
{
    struct cuda_files *f = user;
    for (int32_t i = 0; i < f->n_events; i++)
        free(f->signals[i]);
    free(f->signals);
    free(f->by_thread);
    cudaFreeHost(f->counters);
    host_shared_close(&f->shared);
    free(f);
}

static int find_wait(struct cuda_files *f, int device)
{
    int can = 0;
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *function = NULL;
    cudaError_t e = cudaGetDriverEntryPointByVersion("cuStreamWaitValue32", &function, 12000,
                                                     cudaEnableDefault, &found);
    CUresult (*attribute)(int *, CUdevice_attribute, CUdevice) = NULL;
    if (e == cudaSuccess && found == cudaDriverEntryPointSuccess)
        f->wait_value = (CUresult(*)(CUstream, CUdeviceptr, cuuint32_t, unsigned int))function;
    e = cudaGetDriverEntryPointByVersion("cuDeviceGetAttribute", &function, 12000,
                                         cudaEnableDefault, &found);
    if (e == cudaSuccess && found == cudaDriverEntryPointSuccess)
        attribute = (CUresult(*)(int *, CUdevice_attribute, CUdevice))function;
    if (!f->wait_value || !attribute ||
        attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, device) !=
            CUDA_SUCCESS ||
        !can)
        return CKPT_EDEVICE;
    return 0;
}

int cuda_files_open(struct cuda_files **out, int device, double deadline, bool (*poll)(void *user),
                    void *user)
{
    struct cuda_files *f = calloc(1, sizeof *f);
    if (!f)
        return CKPT_ENOMEM;
    f->shared.on_reach = notify_streams;
    f->shared.unused = release;
    f->shared.user = f;
    f->shared.poll = poll;
    f->shared.poll_user = user;
    host_shared_open(&f->shared);
    f->shared.deadline = deadline;
    int rc = find_wait(f, device);
    for (int i = 0; i < FILE_QUEUES && !rc; i++)
        rc = host_queue_start(&f->queues[i], &f->shared, (enum queue)(QUEUE_READ + i),
                              QUEUE_READ + i == QUEUE_HOST ? 0 : 1);
    if (rc)
        cuda_files_close(f);
    else
        *out = f;
    return rc;
}

bool cuda_files_stop(struct cuda_files *f)
{
    bool ended = true;
    for (int i = 0; i < FILE_QUEUES && f; i++)
        ended &= host_queue_stop(&f->queues[i]);
    return ended;
}

void cuda_files_close(struct cuda_files *f)
{
    cuda_files_stop(f);
    if (f)
        host_shared_release(&f->shared);
}

static int grow_counters(struct cuda_files *f, int32_t n)
{
    void *device = NULL, *memory = NULL;
    size_t bytes = (size_t)n * sizeof *f->counters;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocMapped) != cudaSuccess)
        return CKPT_ENOMEM;
    memset(memory, 0, bytes);
    if (f->n_events)
        memcpy(memory, f->counters, (size_t)f->n_events * sizeof *f->counters);
    if (cudaHostGetDevicePointer(&device, memory, 0) != cudaSuccess) {
        cudaFreeHost(memory);
        return CKPT_ENOMEM;
    }
    cudaFreeHost(f->counters);
    f->counters = memory;
    f->on_device = (CUdeviceptr)device;
    return 0;
}

int cuda_files_events(struct cuda_files *f, int32_t n)
{
    if (n <= f->n_events)
        return 0;
    struct signal **signals = realloc(f->signals, (size_t)n * sizeof(*signals));
    f->signals = signals ? signals : f->signals;
    bool *by_thread = realloc(f->by_thread, (size_t)n * sizeof *by_thread);
    f->by_thread = by_thread ? by_thread : f->by_thread;
    if (!signals || !by_thread || host_shared_events(&f->shared, n) || grow_counters(f, n))
        return CKPT_ENOMEM;
    for (; f->n_events < n; f->n_events++) {
        struct signal *s = malloc(sizeof *s);
        if (!s)
            return CKPT_ENOMEM;
        *s = (struct signal){&f->shared, f->n_events};
        f->signals[f->n_events] = s;
        f->by_thread[f->n_events] = false;
    }
    return 0;
}

struct host_shared *cuda_files_shared(struct cuda_files *f)
{
    return &f->shared;
}

struct host_queue *cuda_files_queue(struct cuda_files *f, enum queue q)
{
    return &f->queues[q - QUEUE_READ];
}

void cuda_files_record(struct cuda_files *f, enum queue q, int32_t event)
{
    f->by_thread[event] = true;
    host_queue_record(cuda_files_queue(f, q), event);
}

void cuda_files_wait(struct cuda_files *f, enum queue q, int32_t event)
{
    host_queue_wait(cuda_files_queue(f, q), event);
}

static void reached(void *user)
{
    const struct signal *s = user;
    host_shared_reach(s->shared, s->event);
}

cudaError_t cuda_files_signal(struct cuda_files *f, cudaStream_t stream, int32_t event)
{
    f->shared.events[event].recorded++;
    return cudaLaunchHostFunc(stream, reached, f->signals[event]);
}

cudaError_t cuda_files_await(struct cuda_files *f, cudaStream_t stream, int32_t event)
{
    uint32_t target = (uint32_t)f->shared.events[event].recorded;
    CUdeviceptr at = f->on_device + (CUdeviceptr)event * sizeof *f->counters;
    CUresult e = f->wait_value(stream, at, target, CU_STREAM_WAIT_VALUE_GEQ);
    return e == CUDA_SUCCESS ? cudaSuccess : cudaErrorUnknown;
}

bool cuda_files_is_by_thread(const struct cuda_files *f, int32_t event)
{
    return f->by_thread[event];
}

void cuda_files_set_by_stream(struct cuda_files *f, int32_t event)
{
    f->by_thread[event] = false;
}

void cuda_files_check(struct cuda_files *f)
{
    host_shared_check(&f->shared);
    pthread_mutex_lock(&f->shared.lock);
    for (int32_t i = 0; i < f->n_events && f->shared.hung; i++)
        notify_streams(f, i, f->shared.events[i].recorded);
    pthread_mutex_unlock(&f->shared.lock);
}
