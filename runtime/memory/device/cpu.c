/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU device.  Its memory is one mapping inside an address range that was reserved at open; its
 * queues are threads, so that a missing event is a data race that a sanitizer can detect.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "memory/device/host_queue.h"
#include "memory/device/team.h"
#include "ops/kernels/cpu/blas.h"

struct cpu_device {
    struct device device;
    char *base;
    int64_t reserved; /* bytes of address space */
    int64_t mapped;   /* readable and writable bytes, in whole pages */
    int products;     /* threads for which blas_open reserved buffers */
    struct host_shared shared;
    struct host_queue queues[QUEUE_COUNT];
    int64_t marks[DEVICE_MARKS][QUEUE_COUNT]; /* tails of the queues */
    double when[DEVICE_MARKS];                /* QUEUE_COMPUTE came there */
};

static struct cpu_device *cpu(struct device *d)
{
    return (struct cpu_device *)d;
}

static int64_t page_size(void)
{
    return sysconf(_SC_PAGESIZE);
}

static int64_t cpu_available(struct device *d)
{
    (void)d;
    return (int64_t)sysconf(_SC_PHYS_PAGES) * page_size();
}

static int64_t cpu_overhead(struct device *d)
{
    (void)d;
    return 0;
}

static void *cpu_host_alloc(struct device *d, int64_t bytes)
{
    (void)d;
    return calloc(1, (size_t)bytes);
}

static void cpu_host_free(struct device *d, void *p)
{
    (void)d;
    free(p);
}

static char *cpu_base(struct device *d)
{
    return cpu(d)->base;
}

static int cpu_map(struct device *d, int64_t bytes)
{
    struct cpu_device *c = cpu(d);
    int64_t want = round_up(bytes, page_size());
    if (want > c->reserved)
        return CKPT_ENOMEM;
    if (want > c->mapped) {
        size_t more = (size_t)(want - c->mapped);
        if (mprotect(c->base + c->mapped, more, PROT_READ | PROT_WRITE))
            return CKPT_ENOMEM;
        madvise(c->base + c->mapped, more, MADV_HUGEPAGE);
    } else if (want < c->mapped) {
        size_t less = (size_t)(c->mapped - want);
        madvise(c->base + want, less, MADV_DONTNEED);
        mprotect(c->base + want, less, PROT_NONE);
    }
    c->mapped = want;
    return 0;
}

static void cpu_compute(struct device *d, enum queue q, ckpt_kernel fn,
                        const struct ckpt_kernel_args *args, double *seconds)
{
    struct command c = {.kind = COMMAND_COMPUTE, .kernel = fn, .args = *args, .seconds = seconds};
    host_queue_submit(&cpu(d)->queues[q], &c);
}

static void cpu_copy(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes)
{
    struct command c = {.kind = COMMAND_COPY, .dst = dst, .src = src, .bytes = bytes};
    host_queue_submit(&cpu(d)->queues[q], &c);
}

static void cpu_fill(struct device *d, enum queue q, void *dst, int byte, int64_t bytes)
{
    struct command c = {.kind = COMMAND_FILL, .dst = dst, .byte = byte, .bytes = bytes};
    host_queue_submit(&cpu(d)->queues[q], &c);
}

static void cpu_stamp(struct device *d, enum queue q, double *when)
{
    struct command c = {.kind = COMMAND_STAMP, .seconds = when};
    host_queue_submit(&cpu(d)->queues[q], &c);
}

static void cpu_record(struct device *d, enum queue q, int32_t event)
{
    host_queue_record(&cpu(d)->queues[q], event);
}

static void cpu_wait(struct device *d, enum queue q, int32_t event)
{
    host_queue_wait(&cpu(d)->queues[q], event);
}

static int cpu_io(struct device *d, enum queue q, const struct device_io *io)
{
    if (io) {
        struct command c = {.kind = COMMAND_IO, .io = *io};
        host_queue_submit(&cpu(d)->queues[q], &c);
    }
    return 0;
}

static int cpu_sync(struct device *d)
{
    struct cpu_device *c = cpu(d);
    for (int q = 0; q < QUEUE_COUNT; q++)
        host_queue_drain(&c->queues[q], c->queues[q].tail);
    return host_shared_take_failure(&c->shared, d);
}

static void cpu_mark(struct device *d, int mark, enum queue q)
{
    if (q == QUEUE_COMPUTE)
        cpu_stamp(d, q, &cpu(d)->when[mark]);
    cpu(d)->marks[mark][q] = cpu(d)->queues[q].tail;
}

static int cpu_reach(struct device *d, int mark, double *when)
{
    struct cpu_device *c = cpu(d);
    for (int q = 0; q < QUEUE_COUNT; q++)
        host_queue_drain(&c->queues[q], c->marks[mark][q]);
    if (when)
        *when = c->when[mark];
    return host_shared_failed(&c->shared) ? cpu_sync(d) : 0;
}

static int cpu_events(struct device *d, int32_t n)
{
    return host_shared_events(&cpu(d)->shared, n);
}

static void cpu_deadline(struct device *d, double seconds)
{
    cpu(d)->shared.deadline = seconds;
}

static void release(void *user)
{
    struct cpu_device *c = user;
    if (c->base)
        munmap(c->base, (size_t)c->reserved);
    host_shared_close(&c->shared);
    blas_close(c->products);
    free(c);
}

static bool cpu_stop(struct device *d)
{
    bool ended = true;
    for (int q = 0; q < QUEUE_COUNT; q++)
        ended &= host_queue_stop(&cpu(d)->queues[q]);
    return ended;
}

static void cpu_close(struct device *d)
{
    cpu_stop(d);
    host_shared_release(&cpu(d)->shared);
}

static const struct device_ops cpu_ops = {.name = "cpu",
                                          .backend = CKPT_ON_CPU,
                                          .available = cpu_available,
                                          .overhead = cpu_overhead,
                                          .host_alloc = cpu_host_alloc,
                                          .host_free = cpu_host_free,
                                          .map = cpu_map,
                                          .base = cpu_base,
                                          .compute = cpu_compute,
                                          .stamp = cpu_stamp,
                                          .copy = cpu_copy,
                                          .fill = cpu_fill,
                                          .record = cpu_record,
                                          .wait = cpu_wait,
                                          .signal = cpu_record,
                                          .io = cpu_io,
                                          .sync = cpu_sync,
                                          .mark = cpu_mark,
                                          .reach = cpu_reach,
                                          .events = cpu_events,
                                          .deadline = cpu_deadline,
                                          .stop = cpu_stop,
                                          .close = cpu_close};

static int reserve(struct cpu_device *c, int64_t budget)
{
    /* Without a budget: as many bytes as the machine has. */
    int64_t bytes = min_i64(budget, cpu_available(&c->device));
    c->reserved = round_up(bytes, page_size());
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *p = mmap(NULL, (size_t)c->reserved, PROT_NONE, flags, -1, 0);
    if (p == MAP_FAILED)
        return error_set(CKPT_ENOMEM, "cannot reserve %s of address space: %s; lower --vram",
                         human_bytes(c->reserved), strerror(errno));
    c->base = p;
    return 0;
}

static int open_products(struct cpu_device *c, int threads)
{
    int rc = blas_open(threads);
    if (!rc)
        c->products = threads;
    return rc;
}

static int start_queues(struct cpu_device *c, int threads)
{
    for (int q = 0; q < QUEUE_COUNT; q++) {
        bool computes = q == QUEUE_COMPUTE || q == QUEUE_HOST;
        int rc = host_queue_start(&c->queues[q], &c->shared, (enum queue)q, computes ? threads : 1);
        if (rc)
            return error_set(rc, "cannot start the threads of the CPU device: %s", strerror(errno));
    }
    return 0;
}

static int start_team(const struct ckpt_kernel_args *a)
{
    (void)a;
    return team_start();
}

/* Starts the team of QUEUE_COMPUTE; the team of QUEUE_HOST starts with its first command. */
static int start_kernel_threads(struct cpu_device *c, int threads)
{
    cpu_compute(&c->device, QUEUE_COMPUTE, start_team, &(struct ckpt_kernel_args){.op = -1}, NULL);
    int rc = cpu_sync(&c->device);
    return rc ? error_set(rc,
                          "cannot start %d threads for kernels: lower --threads, or raise the "
                          "limits of processes and memory (ulimit -u, -v)",
                          threads)
              : 0;
}

int device_open_cpu(struct device **d, int64_t budget, int64_t threads)
{
    struct cpu_device *c = calloc(1, sizeof *c);
    if (!c)
        return error_set(CKPT_ENOMEM, "no memory to open the CPU device");
    c->device.ops = &cpu_ops;
    snprintf(c->device.name, sizeof c->device.name, "cpu");
    c->device.failed_op = -1;
    c->shared.unused = release;
    c->shared.user = c;
    host_shared_open(&c->shared);
    int n = team_count((int)threads), rc = reserve(c, budget);
    if (!rc)
        rc = open_products(c, n);
    if (!rc)
        rc = start_queues(c, n);
    if (!rc)
        rc = start_kernel_threads(c, n);
    if (rc) {
        cpu_close(&c->device);
        return rc;
    }
    *d = &c->device;
    return 0;
}
