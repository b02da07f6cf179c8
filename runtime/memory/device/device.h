/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device runs kernels and copies.  It has one arena (reserved at open, mapped at compile, never
 * grown while a program runs), a few queues that run commands in order, and events between queues.
 * It makes no scheduling decisions: the executor submits instructions in one fixed order.
 */
#ifndef CKPT_DEVICE_H
#define CKPT_DEVICE_H

#include "core/base.h"

enum queue {
    QUEUE_COMPUTE,
    QUEUE_COPY_IN,
    QUEUE_COPY_OUT,
    QUEUE_COMM,    /* collectives */
    QUEUE_FILE_IN, /* copies from staging slots of READ; kept apart so that no copy waits for them
                    */
    QUEUE_FILE_OUT,
    QUEUE_READ, /* file I/O; this queue and the next take io, record and wait only */
    QUEUE_WRITE,
    QUEUE_HOST, /* kernels of the host, on host memory; also takes record and wait */
    QUEUE_COUNT
};

struct device;
struct algorithms;
struct expr_call; /* expr/call.h */

/* A whole step, or a part of QUEUE_COMPUTE's, recorded once to be submitted in one call. */
struct device_step;

enum {
    DEVICE_IN_FLIGHT = 2, /* in-flight slots: steps of a program that may be submitted at once */
    DEVICE_MARKS = 8,     /* marks that can be waited for, over all programs */
    DEVICE_DEADLINE = 30  /* seconds for a file operation or a copy */
};

/* One file operation.  call returns 0 or a code; owner, what and step identify it in messages.
 * begin: NULL, or a function that may be called ahead of call, while the operation before it is
 * still running. */
struct device_io {
    int (*call)(void *user, int64_t offset, void *host, int64_t bytes);
    void *user;
    int64_t offset, bytes;
    void *host;
    void *owner;
    int32_t what;
    int64_t step;
    void (*begin)(void *user, int64_t offset, void *host, int64_t bytes);
};

/* A call on the host in the middle of a stream: src goes to host_src, the call runs, host_dst goes
 * to dst.  What it points to stays as long as a recorded step may run it. */
struct device_visit {
    const void *src;
    void *host_src;
    int64_t src_bytes;
    void (*call)(void *user); /* uses no device */
    void *user;
    const void *host_dst;
    void *dst;
    int64_t dst_bytes;
};

enum { DEVICE_ROUTE = 24 };

struct device_ops {
    const char *name;
    enum ckpt_backend backend;
    /* Bytes of device memory that this process could use in all, including what it uses now. */
    int64_t (*available)(struct device *d);
    /* Bytes it uses now outside the arena: context, code, buffers of libraries. */
    int64_t (*overhead)(struct device *d);
    /* Makes the arena this many bytes long, rounded up to pages (0 unmaps it); contents below the
     * smaller of the two sizes stay.  Only while the queues are idle.  Returns 0 or CKPT_ENOMEM. */
    int (*map)(struct device *d, int64_t bytes);
    /* Base of the arena; constant from open to close. */
    char *(*base)(struct device *d);
    /* Zeroed host memory that copies access at full speed, or NULL; host_free accepts NULL. */
    void *(*host_alloc)(struct device *d, int64_t bytes);
    void (*host_free)(struct device *d, void *p);
    /* Pins host memory, so that copies access it at full speed and asynchronously; unpin takes the
     * same range.  NULL: the device does not need it.  Returns 0 or CKPT_ENOMEM, with the
     * sentence. */
    int (*pin)(struct device *d, void *base, int64_t bytes);
    void (*unpin)(struct device *d, void *base, int64_t bytes);
    /* The NUMA node nearest to the device, or -1.  NULL: the device is the host. */
    int (*numa_node)(struct device *d);
    /* The connection to another device of the same host, given by its PCI address: "NVLink x18",
     * "PCIe in a node", "across nodes", or "" if unknown.  NULL: the device has no PCI address. */
    void (*route)(struct device *d, const char *where, char text[DEVICE_ROUTE]);
    /* Queue commands.  All return at once; a failure is kept and returned by sync.  seconds: NULL,
     * or where the kernel's time is stored by the next sync. */
    void (*compute)(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args, double *seconds);
    void (*copy)(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes);
    void (*fill)(struct device *d, enum queue q, void *dst, int byte, int64_t bytes);
    void (*record)(struct device *d, enum queue q, int32_t event);
    void (*wait)(struct device *d, enum queue q, int32_t event); /* for the last record so far */
    /* The next sync sets *when to the time at which the queue got here, in seconds of one clock for
     * all queues; a failure leaves it unchanged.  Not between begin and end. */
    void (*stamp)(struct device *d, enum queue q, double *when);
    /* Like record, for events that QUEUE_READ, QUEUE_WRITE or QUEUE_HOST waits for. */
    void (*signal)(struct device *d, enum queue q, int32_t event);
    /* On the stream that a kernel got.  NULL: kernels run on the host. */
    void (*visit_host)(struct device *d, void *stream, const struct device_visit *v);
    /* On QUEUE_READ and QUEUE_WRITE; io is copied.  Returns 0, or CKPT_EDEVICE if the device cannot
     * wait for such a queue; then nothing is submitted.  Call it with io NULL to query this and to
     * open the queues, also before the first use of QUEUE_HOST. */
    int (*io)(struct device *d, enum queue q, const struct device_io *io);
    /* Waits until every queue is empty; returns the first failure since the last sync. */
    int (*sync)(struct device *d);
    /* mark marks the end of what was submitted to a queue so far; reach waits until all queues have
     * passed their marks and returns the first failure so far.  After a failure it waits like sync,
     * so that no work continues with missing data.  *when (may be NULL): the time of the host's
     * clock, in seconds, at which QUEUE_COMPUTE passed its mark. */
    void (*mark)(struct device *d, int mark, enum queue q);
    int (*reach)(struct device *d, int mark, double *when);
    /* Between begin and end commands are recorded, not run; replay runs them, any number of times.
     * part: the recording's events are waited for by commands outside it; host threads cannot wait
     * for them.  NULL on a device without recording.  end returns 0, CKPT_ENOMEM or CKPT_EDEVICE.
     */
    void (*begin)(struct device *d, bool part);
    int (*end)(struct device *d, struct device_step **step);
    void (*replay)(struct device *d, struct device_step *step);
    void (*forget)(struct device *d, struct device_step *step);
    /* Events 0 .. n-1 exist after this.  Only while idle.  Returns 0 or CKPT_ENOMEM. */
    int (*events)(struct device *d, int32_t n);
    /* Names the commands submitted from here on in a profiler's timeline, until NULL ends the
     * range. NULL on a device without this. */
    void (*range)(struct device *d, const char *name);
    /* Sets the deadline of a file operation or a copy, in seconds; DEVICE_DEADLINE by default. Only
     * while idle. */
    void (*deadline)(struct device *d, double seconds);
    /* Waits for submitted work and accepts no more.  False if a file operation hangs: memory that
     * it may still access must be left alone, also after close.  close calls stop if nobody did. */
    bool (*stop)(struct device *d);
    /* The algorithms that libraries use here; those added before the first kernel runs are used
     * again.  While measuring, others are selected by timing on the operands of a kernel's first
     * run, whose result is then invalid; cold: arena bytes that may be overwritten between runs.
     * NULL on a device without selectable algorithms. */
    struct algorithms *(*algorithms)(struct device *d);
    void (*measure)(struct device *d, bool measuring, void *cold, int64_t bytes);
    /* Compiles n programs at once, in several threads; otherwise each is compiled when it first
     * runs.  NULL on a device that compiles none. */
    void (*compile)(struct device *d, const struct expr_call *calls, int64_t n);
    void (*close)(struct device *d);
};

struct device {
    const struct device_ops *ops;
    char name[64];        /* of the hardware */
    char where[32];       /* "0000:18:00.0", or "" */
    int capability;       /* CUDA: 90 for compute capability 9.0 */
    int64_t cache;        /* bytes of the last cache before device memory; 0: not known */
    struct ckpt_run *run; /* two in device memory that args.run_device points to, or NULL: of this
                             step, and of the one before for deferred updates */
    /* NULL, or called repeatedly while the caller waits for work that may hang.  A result other
     * than 0 is the code of a failure, of the op that it sets; after it the queues run empty. */
    int (*poll)(void *user, int32_t *op);
    void *poll_user;
    int32_t failed_op;          /* args.op of the kernel whose failure sync returned, or -1 */
    struct device_io failed_io; /* or the file operation that failed; else its call is NULL */
    char reason[256];           /* what the hardware or a library reported, or "" */
};

/* Submits `times` rounds of copies in both directions at once: n bytes of the arena to host, and
 * the n bytes after host to the n bytes after these in the arena. */
static inline void device_copy_both(struct device *d, char *arena, char *host, int64_t n, int times)
{
    for (int i = 0; i < times; i++) {
        d->ops->copy(d, QUEUE_COPY_OUT, host, arena, n);
        d->ops->copy(d, QUEUE_COPY_IN, arena + n, host + n, n);
    }
}

/* budget: bytes to reserve address space for; threads: kernel threads, 0 for one per core. */
int device_open_cpu(struct device **d, int64_t budget, int64_t threads);

/* Opens the CUDA device of this index modulo the number of devices; unordered: kernels may add in
 * no fixed order where that is faster.  Returns 0, CKPT_ENOMEM, or CKPT_EDEVICE (no driver, no GPU,
 * one that the kernels were not built for, a build without CUDA), with the sentence. */
int device_open_cuda(struct device **d, int index, bool unordered);

/* Whether a GPU could be meant: the machine has an NVIDIA card, with or without a driver, and
 * CUDA_VISIBLE_DEVICES does not hide all. */
bool device_expected(void);

/* Describes the compiler of element-wise expressions and the directory of compiled kernels, or says
 * that expressions are interpreted; "" in a build without CUDA. */
void device_describe_compiler(char *dst, size_t size);

#endif
