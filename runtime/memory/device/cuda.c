/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA device: queues are streams, events are CUDA events, a recorded step is a CUDA graph.  A
 * failed call is kept with its reason until the next sync; commands after it are dropped.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include "kernels/cuda/expr_launch.h"
#include "kernels/cuda/kernel_cache.h"
#include "kernels/cuda/libs.h"
#include "kernels/cuda/nvrtc.h"
#include "kernels/cuda/probe.h"
#include "memory/device/cuda_arena.h"
#include "memory/device/cuda_clock.h"
#include "memory/device/cuda_files.h"
#include "memory/device/cuda_nvml.h"
#include "memory/device/cuda_pins.h"
#include "memory/device/cuda_watch.h"
#include "memory/device/device.h"

#define STREAMS QUEUE_READ /* this queue and those after it are threads */

/* Older cards have no bf16 (CUDA C++ Programming Guide, table of compute capabilities). */
enum { LEAST_CAPABILITY = 80 };

/* After a failure reported by poll, the streams get this many seconds to run empty. */
#define PATIENCE 10.0

struct cuda_device {
    struct device device;
    struct cuda_arena *arena;
    struct cuda_nvml *nvml; /* NULL: process_bytes falls back to the device's total use */
    struct cuda_libs *libs;
    cudaStream_t queues[STREAMS];
    cudaEvent_t marks[DEVICE_MARKS][STREAMS];
    double when[DEVICE_MARKS]; /* host clock when QUEUE_COMPUTE passed the mark; 0: not known */
    struct cuda_files *files;  /* NULL until the first call of cuda_io */
    int64_t file_marks[DEVICE_MARKS][QUEUE_COUNT];
    double deadline;
    struct cuda_watch watch;
    bool recording; /* commands are recorded, not run */
    bool part;      /* recording a part of a step, whose events others wait for */
    struct cuda_pins pins;
    struct {
        cudaEvent_t *data;
        int64_t capacity;
    } events;
    int32_t n_events;
    struct cuda_clock clock;
    int failure; /* the first since the last sync */
    bool stuck;  /* streams did not run empty after it: they are not waited for any more */
    int index;
};

struct device_step {
    cudaGraphExec_t exec;
};

static struct cuda_device *cuda(struct device *d)
{
    return (struct cuda_device *)d;
}

static void keep_failure(struct cuda_device *c, int rc, int32_t op, const char *reason)
{
    if (c->failure)
        return;
    c->failure = rc;
    c->device.failed_op = op;
    snprintf(c->device.reason, sizeof c->device.reason, "%s", reason);
}

/* Whether the call succeeded; if not, keeps the failure. */
static bool accepted(struct cuda_device *c, cudaError_t e)
{
    if (e == cudaSuccess)
        return true;
    keep_failure(c, CKPT_EDEVICE, -1, cudaGetErrorString(e));
    cudaGetLastError();
    return false;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes of the device this process uses; without NVML what all processes use. */
static int64_t process_bytes(struct cuda_device *c)
{
    size_t unused = 0, total = 0;
    int64_t bytes = cuda_nvml_process_bytes(c->nvml);
    if (bytes >= 0)
        return bytes;
    accepted(c, cudaMemGetInfo(&unused, &total));
    return (int64_t)(total - unused);
}

static int64_t cuda_available(struct device *d)
{
    size_t unused = 0, total = 0;
    accepted(cuda(d), cudaMemGetInfo(&unused, &total));
    return (int64_t)unused + process_bytes(cuda(d));
}

static int64_t cuda_overhead(struct device *d)
{
    return process_bytes(cuda(d)) - cuda_arena_mapped(cuda(d)->arena);
}

static int cuda_map(struct device *d, int64_t bytes)
{
    return cuda_arena_map(cuda(d)->arena, bytes);
}

static char *cuda_base(struct device *d)
{
    return cuda_arena_base(cuda(d)->arena);
}

static void *cuda_host_alloc(struct device *d, int64_t bytes)
{
    void *p = NULL;
    (void)d;
    if (cudaHostAlloc(&p, (size_t)max_i64(1, bytes), cudaHostAllocDefault) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    return memset(p, 0, (size_t)max_i64(1, bytes));
}

static void cuda_host_free(struct device *d, void *p)
{
    if (!cuda(d)->stuck)
        cudaFreeHost(p);
}

static int cuda_pin(struct device *d, void *base, int64_t bytes)
{
    return cuda_pins_add(&cuda(d)->pins, base, bytes);
}

static void cuda_unpin(struct device *d, void *base, int64_t bytes)
{
    (void)bytes;
    cuda_pins_remove(&cuda(d)->pins, base);
}

static int cuda_node(struct device *d)
{
    return cuda_numa_node(d->where);
}

static void cuda_route(struct device *d, const char *where, char text[DEVICE_ROUTE])
{
    cuda_nvml_route(cuda(d)->nvml, where, text);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void cuda_stamp(struct device *d, enum queue q, double *when)
{
    struct cuda_device *c = cuda(d);
    if (c->failure)
        return;
    if (q >= STREAMS) {
        struct command command = {.kind = COMMAND_STAMP, .seconds = when};
        host_queue_submit(cuda_files_queue(c->files, q), &command);
        return;
    }
    accepted(c, cuda_clock_stamp(&c->clock, c->queues[QUEUE_COMPUTE], c->queues[q], when));
}

static void cuda_compute(struct device *d, enum queue q, ckpt_kernel fn,
                         const struct ckpt_kernel_args *args, double *seconds)
{
    struct cuda_device *c = cuda(d);
    struct ckpt_kernel_args a = *args;
    if (c->failure)
        return;
    if (q >= STREAMS) {
        struct command command = {
            .kind = COMMAND_COMPUTE, .kernel = fn, .args = a, .seconds = seconds};
        host_queue_submit(cuda_files_queue(c->files, q), &command);
        return;
    }
    a.stream = c->queues[q];
    if (!a.device)
        a.device = c->libs;
    bool timed = seconds && accepted(c, cuda_clock_start(&c->clock, c->queues[q], seconds));
    int rc = fn(&a);
    if (timed)
        accepted(c, cuda_clock_stop(&c->clock, c->queues[q]));
    cudaError_t e = cudaGetLastError();
    if (!rc && e != cudaSuccess)
        rc = CKPT_EDEVICE;
    if (rc)
        keep_failure(c, rc, args->op,
                     e != cudaSuccess ? cudaGetErrorString(e) : cuda_libs_reason(c->libs));
}

/* Copies in one piece, unless the host bytes are pinned in several. */
static void cuda_copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    struct cuda_device *c = cuda(d);
    bool watched = q != QUEUE_COMPUTE && !c->recording && !c->failure;
    if (watched)
        cuda_watch_begin(&c->watch, q, c->queues[q], bytes);
    for (int64_t at = 0, n; at < bytes && !c->failure; at += n) {
        char *to = (char *)dst + at;
        const char *from = (const char *)src + at;
        n = cuda_pins_run(&c->pins, from, cuda_pins_run(&c->pins, to, bytes - at));
        accepted(c, cudaMemcpyAsync(to, from, (size_t)n, cudaMemcpyDefault, c->queues[q]));
    }
    if (watched)
        cuda_watch_end(&c->watch, q, c->queues[q]);
}

static void cuda_visit_host(struct device *d, void *stream, const struct device_visit *v)
{
    struct cuda_device *c = cuda(d);
    const size_t in = (size_t)v->src_bytes, out = (size_t)v->dst_bytes;
    if (in && !c->failure)
        accepted(c, cudaMemcpyAsync(v->host_src, v->src, in, cudaMemcpyDeviceToHost, stream));
    if (!c->failure)
        accepted(c, cudaLaunchHostFunc(stream, v->call, v->user));
    if (out && !c->failure)
        accepted(c, cudaMemcpyAsync(v->dst, v->host_dst, out, cudaMemcpyHostToDevice, stream));
}

static void cuda_fill(struct device *d, enum queue q, void *dst, int byte, int64_t bytes)
{
    struct cuda_device *c = cuda(d);
    if (!c->failure)
        accepted(c, cudaMemsetAsync(dst, byte, (size_t)bytes, c->queues[q]));
}

static void cuda_record(struct device *d, enum queue q, int32_t event)
{
    struct cuda_device *c = cuda(d);
    if (c->failure)
        return;
    if (q >= STREAMS) {
        cuda_files_record(c->files, q, event);
        return;
    }
    if (c->files)
        cuda_files_set_by_stream(c->files, event);
    accepted(c, cudaEventRecordWithFlags(c->events.data[event], c->queues[q],
                                         c->part ? cudaEventRecordExternal : 0));
}

static void cuda_wait(struct device *d, enum queue q, int32_t event)
{
    struct cuda_device *c = cuda(d);
    if (c->failure)
        return;
    if (q >= STREAMS)
        cuda_files_wait(c->files, q, event);
    else if (c->files && cuda_files_is_by_thread(c->files, event))
        accepted(c, cuda_files_await(c->files, c->queues[q], event));
    else
        accepted(c, cudaStreamWaitEvent(c->queues[q], c->events.data[event], 0));
}

static void cuda_signal(struct device *d, enum queue q, int32_t event)
{
    struct cuda_device *c = cuda(d);
    cuda_record(d, q, event);
    if (q < STREAMS && c->files && !c->failure)
        accepted(c, cuda_files_signal(c->files, c->queues[q], event));
}

static bool poll_copies(void *user)
{
    struct cuda_device *c = user;
    return cuda_watch_poll(&c->watch, c->deadline);
}

static int cuda_io(struct device *d, enum queue q, const struct device_io *io)
{
    struct cuda_device *c = cuda(d);
    int rc = 0;
    if (!c->files)
        rc = cuda_files_open(&c->files, c->index, c->deadline, poll_copies, c);
    if (!rc && c->n_events)
        rc = cuda_files_events(c->files, c->n_events);
    if (rc || !io || c->failure)
        return rc;
    struct command command = {.kind = COMMAND_IO, .io = *io};
    host_queue_submit(cuda_files_queue(c->files, q), &command);
    return 0;
}

static void cuda_deadline(struct device *d, double seconds)
{
    struct cuda_device *c = cuda(d);
    c->deadline = seconds;
    if (c->files)
        cuda_files_shared(c->files)->deadline = seconds;
}

/* A failure of a thread's queue comes first: failures of later commands follow from it. */
static int take_failure(struct cuda_device *c)
{
    int rc = c->failure;
    c->failure = 0;
    c->device.failed_io = (struct device_io){0};
    if (c->watch.lost) { /* it stays lost */
        c->device.failed_op = -1;
        snprintf(c->device.reason, sizeof c->device.reason, "%s", c->watch.reason);
        return CKPT_EDEVICE;
    }
    if (c->files && host_shared_failed(cuda_files_shared(c->files))) {
        *c->device.reason = '\0';
        return host_shared_take_failure(cuda_files_shared(c->files), &c->device);
    }
    if (!rc) {
        c->device.failed_op = -1;
        *c->device.reason = '\0';
    }
    return rc;
}

/* Streams wait for the threads: a stream can only be waited for without a time limit once the
 * threads have done all commands, or hang. */
static void drain_files(struct cuda_device *c)
{
    for (int q = STREAMS; q < QUEUE_COUNT && c->files; q++) {
        struct host_queue *queue = cuda_files_queue(c->files, (enum queue)q);
        host_queue_drain(queue, queue->tail);
        cuda_files_check(c->files);
    }
}

/* Checks for hung copies and calls poll, which knows of other ranks.  False if what is waited for
 * hangs. */
static bool poll_all(struct cuda_device *c, double *failed_at)
{
    int32_t op = -1;
    c->stuck = c->stuck || poll_copies(c);
    int rc = c->device.poll && *failed_at == 0 ? c->device.poll(c->device.poll_user, &op) : 0;
    if (rc) {
        keep_failure(c, rc, op, "");
        *failed_at = clock_seconds();
    }
    if (*failed_at > 0 && clock_seconds() - *failed_at > PATIENCE)
        c->stuck = true;
    return !c->stuck;
}

/* Waits for an event, or for all of a stream if event is NULL.  Streams may wait for a file or for
 * another rank, and a copy may hang: then the wait polls and checks for that. */
static void await(struct cuda_device *c, cudaStream_t stream, cudaEvent_t event)
{
    const struct timespec nap = {.tv_nsec = 50000};
    double failed_at = 0;
    cudaError_t e = cudaErrorNotReady;
    if (c->stuck)
        return;
    if (!c->files && !c->device.poll && !cuda_watch_busy(&c->watch)) {
        accepted(c, event ? cudaEventSynchronize(event) : cudaStreamSynchronize(stream));
        return;
    }
    while ((e = event ? cudaEventQuery(event) : cudaStreamQuery(stream)) == cudaErrorNotReady) {
        cudaGetLastError(); /* clears "not ready" before the next kernel checks it */
        if (c->files)
            cuda_files_check(c->files);
        if (!poll_all(c, &failed_at))
            return;
        nanosleep(&nap, NULL);
    }
    accepted(c, e);
}

static int cuda_sync(struct device *d)
{
    struct cuda_device *c = cuda(d);
    drain_files(c);
    for (int q = 0; q < STREAMS; q++)
        await(c, c->queues[q], NULL);
    cuda_clock_read(&c->clock);
    return take_failure(c);
}

static void cuda_mark(struct device *d, int mark, enum queue q)
{
    struct cuda_device *c = cuda(d);
    if (q >= STREAMS)
        c->file_marks[mark][q] = c->files ? cuda_files_queue(c->files, q)->tail : 0;
    else if (!c->failure)
        accepted(c, cudaEventRecord(c->marks[mark][q], c->queues[q]));
    if (q == QUEUE_COMPUTE)
        c->when[mark] = 0;
}

/* Sets when[mark], which was passed.  The caller may come late, because submitting a step can wait
 * for the device: so the time is that of the mark before plus what the device measured since. */
static void note_when(struct cuda_device *c, int mark)
{
    const int before = (mark + DEVICE_MARKS - 1) % DEVICE_MARKS;
    const double now = clock_seconds();
    float ms;
    c->when[mark] = now;
    if (c->when[before] > 0 && cudaEventElapsedTime(&ms, c->marks[before][QUEUE_COMPUTE],
                                                    c->marks[mark][QUEUE_COMPUTE]) == cudaSuccess)
        c->when[mark] = fmin(now, c->when[before] + 1e-3 * (double)ms);
}

static int cuda_reach(struct device *d, int mark, double *when)
{
    struct cuda_device *c = cuda(d);
    for (int q = STREAMS; q < QUEUE_COUNT && c->files; q++)
        host_queue_drain(cuda_files_queue(c->files, (enum queue)q), c->file_marks[mark][q]);
    for (int q = 0; q < STREAMS; q++)
        await(c, NULL, c->marks[mark][q]);
    note_when(c, mark);
    if (when)
        *when = c->when[mark];
    if (c->failure || c->watch.lost ||
        (c->files && host_shared_failed(cuda_files_shared(c->files))))
        return cuda_sync(d);
    return take_failure(c);
}

static int cuda_events(struct device *d, int32_t n)
{
    struct cuda_device *c = cuda(d);
    for (; c->n_events < n; c->n_events++) {
        if (ARRAY_RESERVE(&c->events, c->n_events))
            return CKPT_ENOMEM;
        cudaEvent_t *made = &c->events.data[c->n_events];
        if (cudaEventCreateWithFlags(made, cudaEventDisableTiming) != cudaSuccess)
            return CKPT_ENOMEM;
    }
    return c->files ? cuda_files_events(c->files, c->n_events) : 0;
}

/* ---- recorded steps -------------------------------------------------------------------------- */

static void cuda_begin(struct device *d, bool part)
{
    struct cuda_device *c = cuda(d);
    c->recording = true;
    c->part = part;
    accepted(c, cudaStreamBeginCapture(c->queues[QUEUE_COMPUTE], cudaStreamCaptureModeThreadLocal));
}

/* Streams that joined the recording by an event must be joined to the stream it began on. */
static void join_queues(struct cuda_device *c)
{
    for (int q = 0; q < STREAMS; q++) {
        enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
        accepted(c, cudaStreamIsCapturing(c->queues[q], &status));
        if (q == QUEUE_COMPUTE || status != cudaStreamCaptureStatusActive)
            continue;
        accepted(c, cudaEventRecord(c->marks[0][q], c->queues[q]));
        accepted(c, cudaStreamWaitEvent(c->queues[QUEUE_COMPUTE], c->marks[0][q], 0));
    }
}

static void cuda_forget(struct device *d, struct device_step *step)
{
    if (step->exec && !cuda(d)->stuck)
        cudaGraphExecDestroy(step->exec);
    free(step);
}

static int cuda_end(struct device *d, struct device_step **out)
{
    struct cuda_device *c = cuda(d);
    struct device_step *step = calloc(1, sizeof *step);
    cudaGraph_t graph = NULL;
    c->recording = c->part = false;
    join_queues(c);
    accepted(c, cudaStreamEndCapture(c->queues[QUEUE_COMPUTE], &graph));
    if (!step)
        keep_failure(c, CKPT_ENOMEM, -1, "no memory to record a step");
    if (!c->failure && accepted(c, cudaGraphInstantiate(&step->exec, graph, 0)) &&
        accepted(c, cudaGraphUpload(step->exec, c->queues[QUEUE_COMPUTE])))
        accepted(c, cudaStreamSynchronize(c->queues[QUEUE_COMPUTE]));
    if (graph)
        cudaGraphDestroy(graph);
    int rc = take_failure(c);
    if (!rc)
        *out = step;
    else if (step)
        cuda_forget(d, step);
    return rc;
}

static void cuda_replay(struct device *d, struct device_step *step)
{
    struct cuda_device *c = cuda(d);
    if (!c->failure)
        accepted(c, cudaGraphLaunch(step->exec, c->queues[QUEUE_COMPUTE]));
}

static void cuda_range(struct device *d, const char *name)
{
    (void)d;
    if (name)
        nvtxRangePushA(name);
    else
        nvtxRangePop();
}

/* ---- opening and closing --------------------------------------------------------------------- */

static bool cuda_stop(struct device *d)
{
    struct cuda_device *c = cuda(d);
    drain_files(c);
    return cuda_files_stop(c->files) && !c->watch.lost;
}

static void cuda_close(struct device *d)
{
    struct cuda_device *c = cuda(d);
    cuda_stop(d);
    if (c->stuck ||
        c->watch.lost) /* the hung operation still uses all of this until the process ends */
        return;
    cudaDeviceSynchronize();
    cuda_watch_close(&c->watch);
    cuda_files_close(c->files);
    cuda_pins_free(&c->pins);
    cuda_libs_close(c->libs);
    cuda_clock_close(&c->clock);
    for (int32_t i = 0; i < c->n_events; i++)
        cudaEventDestroy(c->events.data[i]);
    for (int q = 0; q < STREAMS; q++) {
        for (int mark = 0; mark < DEVICE_MARKS; mark++)
            if (c->marks[mark][q])
                cudaEventDestroy(c->marks[mark][q]);
        if (c->queues[q])
            cudaStreamDestroy(c->queues[q]);
    }
    cudaFree(c->device.run);
    cuda_arena_close(c->arena);
    cuda_nvml_close(c->nvml);
    free(c->events.data);
    free(c);
}

static struct algorithms *cuda_algorithms(struct device *d)
{
    return cuda_libs_algorithms(cuda(d)->libs);
}

static void cuda_measure(struct device *d, bool measuring, void *cold, int64_t bytes)
{
    cuda_libs_set_measuring(cuda(d)->libs, measuring, cold, bytes);
}

static void cuda_compile(struct device *d, const struct expr_call *calls, int64_t n)
{
    cuda_expr_compile(cuda(d)->libs, calls, n);
}

static const struct device_ops cuda_ops = {.name = "cuda",
                                           .backend = CKPT_ON_CUDA,
                                           .available = cuda_available,
                                           .overhead = cuda_overhead,
                                           .map = cuda_map,
                                           .base = cuda_base,
                                           .host_alloc = cuda_host_alloc,
                                           .host_free = cuda_host_free,
                                           .compute = cuda_compute,
                                           .stamp = cuda_stamp,
                                           .copy = cuda_copy,
                                           .fill = cuda_fill,
                                           .record = cuda_record,
                                           .wait = cuda_wait,
                                           .signal = cuda_signal,
                                           .visit_host = cuda_visit_host,
                                           .io = cuda_io,
                                           .pin = cuda_pin,
                                           .unpin = cuda_unpin,
                                           .numa_node = cuda_node,
                                           .route = cuda_route,
                                           .deadline = cuda_deadline,
                                           .sync = cuda_sync,
                                           .mark = cuda_mark,
                                           .reach = cuda_reach,
                                           .events = cuda_events,
                                           .begin = cuda_begin,
                                           .end = cuda_end,
                                           .replay = cuda_replay,
                                           .forget = cuda_forget,
                                           .range = cuda_range,
                                           .stop = cuda_stop,
                                           .algorithms = cuda_algorithms,
                                           .measure = cuda_measure,
                                           .compile = cuda_compile,
                                           .close = cuda_close};

/* Selects the device of an index and makes its context, if the kernels were built for it. */
static int find_device(struct cuda_device *c, int index, int64_t *memory)
{
    struct cudaDeviceProp prop;
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n < 1)
        return error_set(CKPT_EDEVICE, "--device cuda: %s",
                         e == cudaErrorInsufficientDriver
                             ? "there is no NVIDIA driver, or it is older than the CUDA toolkit "
                               "that libckpt was built with"
                         : e != cudaSuccess ? cudaGetErrorString(e)
                                            : "there is no GPU");
    c->index = index % n;
    e = cudaGetDeviceProperties(&prop, c->index);
    if (e == cudaSuccess)
        e = cudaSetDevice(c->index);
    if (e != cudaSuccess)
        return error_set(CKPT_EDEVICE, "--device cuda: %s", cudaGetErrorString(e));
    snprintf(c->device.name, sizeof c->device.name, "%.63s", prop.name);
    c->device.capability = 10 * prop.major + prop.minor;
    c->device.cache = prop.l2CacheSize;
    if (c->device.capability < LEAST_CAPABILITY)
        return error_set(CKPT_EDEVICE,
                         "--device cuda: %s has compute capability %d.%d, and libckpt needs 8.0 or "
                         "later, for bf16",
                         prop.name, prop.major, prop.minor);
    if (cuda_compiled_for() < 0)
        return error_set(CKPT_EDEVICE,
                         "--device cuda: %s has compute capability %d.%d, for which the kernels "
                         "were not built; configure with --with-cuda-arch=%d%d",
                         prop.name, prop.major, prop.minor, prop.major, prop.minor);
    *memory = (int64_t)prop.totalGlobalMem;
    return 0;
}

static int make_queues(struct cuda_device *c)
{
    int low = 0, high = 0;
    bool ok = cudaDeviceGetStreamPriorityRange(&low, &high) == cudaSuccess;
    for (int q = 0; q < STREAMS && ok; q++) {
        /* A collective that waits for free multiprocessors makes other ranks wait, too. */
        ok = cudaStreamCreateWithPriority(&c->queues[q], cudaStreamNonBlocking,
                                          q == QUEUE_COMM ? high : low) == cudaSuccess;
        const unsigned flags = q == QUEUE_COMPUTE ? cudaEventDefault : cudaEventDisableTiming;
        for (int mark = 0; mark < DEVICE_MARKS && ok; mark++)
            ok = cudaEventCreateWithFlags(&c->marks[mark][q], flags) == cudaSuccess;
    }
    if (ok)
        ok = cudaMalloc((void **)&c->device.run, 2 * sizeof *c->device.run) == cudaSuccess;
    /* The mark before the first one. */
    if (ok)
        ok = cudaEventRecord(c->marks[DEVICE_MARKS - 1][QUEUE_COMPUTE], c->queues[QUEUE_COMPUTE]) ==
                 cudaSuccess &&
             cudaStreamSynchronize(c->queues[QUEUE_COMPUTE]) == cudaSuccess;
    c->when[DEVICE_MARKS - 1] = clock_seconds();
    return ok ? 0
              : error_set(CKPT_EDEVICE, "cannot open the CUDA device: %s",
                          cudaGetErrorString(cudaGetLastError()));
}

int device_open_cuda(struct device **d, int index, bool unordered)
{
    int64_t memory = 0;
    struct cuda_device *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(CKPT_ENOMEM, "no memory to open the CUDA device");
    c->device.ops = &cuda_ops;
    c->device.failed_op = -1;
    c->deadline = DEVICE_DEADLINE;
    int rc = find_device(c, index, &memory);
    char *where = c->device.where;
    if (!rc && cudaDeviceGetPCIBusId(where, (int)sizeof c->device.where, c->index) == cudaSuccess)
        c->nvml = cuda_nvml_open(where);
    if (!rc)
        rc = cuda_arena_open(&c->arena, c->index, memory);
    if (!rc)
        rc = make_queues(c);
    if (!rc && cuda_libs_open(&c->libs))
        rc = error_set(CKPT_ENOMEM, "no memory to open the CUDA device");
    if (rc) {
        cuda_close(&c->device);
        return rc;
    }
    cuda_libs_set_unordered(c->libs, unordered);
    *d = &c->device;
    return 0;
}

void device_describe_compiler(char *dst, size_t size)
{
    char directory[1024];
    int version = nvrtc_version();
    kernel_cache_directory(directory, sizeof directory);
    if (version)
        snprintf(dst, size, "NVRTC %d.%d, kernels kept in %s", version / 1000, version % 1000 / 10,
                 *directory ? directory : "no place");
    else
        snprintf(dst, size, "no NVRTC: element-wise expressions are interpreted");
}
