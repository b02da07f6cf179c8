/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where compute happens.  A device has one arena (reserved at open, mapped at compile, never grown
 * while a program runs), a handful of queues that run commands in order, and events between queues.
 * The executor above it decides nothing: it hands over instructions in one fixed order.
 */
#ifndef CKPT_DEVICE_H
#define CKPT_DEVICE_H

#include "core/base.h"

enum queue {
    QUEUE_COMPUTE,
    QUEUE_COPY_IN,
    QUEUE_COPY_OUT,
    QUEUE_COMM,    /* collectives */
    QUEUE_FILE_IN, /* copies from what READ has read, which nothing faster should stand behind */
    QUEUE_FILE_OUT,
    QUEUE_READ, /* READ and WRITE are for files: they take io, record and wait only */
    QUEUE_WRITE,
    QUEUE_HOST, /* kernels of the host, on bytes of the host; else as these */
    QUEUE_COUNT
};

struct device;
struct pins;
struct expr_call; /* expr/call.h */

/* A whole step, or a part of QUEUE_COMPUTE's, recorded once to be handed over in one call. */
struct device_step;

enum {
    DEVICE_FLIGHTS = 2,  /* steps of a program that may be under way at once */
    DEVICE_MARKS = 8,    /* steps of all that can be waited for alone */
    DEVICE_DEADLINE = 30 /* seconds for a file operation or a copy */
};

/* One file operation.  call returns 0 or a code; owner and what say whose it is, for messages.
 * begin: NULL, or may be called before, while the operation in front of it is under way. */
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

enum { DEVICE_ROUTE = 24 };

struct device_ops {
    const char *name;
    enum ckpt_backend backend;
    /* Bytes of device memory this process could have in all, what it has now included. */
    int64_t (*available)(struct device *d);
    /* Bytes it has now outside the arena: context, code, what libraries keep. */
    int64_t (*overhead)(struct device *d);
    /* Makes the arena this many bytes long, up to whole pages (0 unmaps it); contents below the
     * smaller of the two sizes stay.  Only while the queues are idle.  Returns 0 or CKPT_ENOMEM. */
    int (*map)(struct device *d, int64_t bytes);
    /* Base of the arena; constant from open to close. */
    char *(*base)(struct device *d);
    /* Zeroed host memory that copies reach at full speed, or NULL; NULL may be freed. */
    void *(*host_alloc)(struct device *d, int64_t bytes);
    void (*host_free)(struct device *d, void *p);
    /* Makes host memory known to the device, so that copies reach it at full speed and need nobody
     * to wait; unpin wants the same range.  NULL: the device needs none.  Returns 0 or CKPT_ENOMEM,
     * the sentence in error_get(). */
    int (*pin)(struct device *d, void *base, int64_t bytes);
    void (*unpin)(struct device *d, void *base, int64_t bytes);
    /* The NUMA node that is nearest to the device, or -1.  NULL: the device is the host. */
    int (*numa_node)(struct device *d);
    /* How bytes get from here to the device that stands at this place of the bus of the same host:
     * "NVLink x18", "PCIe in a node", "across nodes", or "" where that is not known.  NULL: the
     * device has no place on a bus. */
    void (*route)(struct device *d, const char *where, char text[DEVICE_ROUTE]);
    /* Queue commands.  All return at once; a failure is kept and returned by sync. seconds: NULL,
     * or where the time of the kernel stands after the next sync. */
    void (*compute)(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args, double *seconds);
    void (*copy)(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes);
    void (*fill)(struct device *d, enum queue q, void *dst, int byte, int64_t bytes);
    void (*record)(struct device *d, enum queue q, int32_t event);
    void (*wait)(struct device *d, enum queue q, int32_t event); /* for the last record so far */
    /* *when: after the next sync, the seconds of one clock for all queues when this one came here;
     * untouched after a failure.  Not between begin and end. */
    void (*stamp)(struct device *d, enum queue q, double *when);
    /* As record, for a wait by QUEUE_READ, QUEUE_WRITE or QUEUE_HOST. */
    void (*signal)(struct device *d, enum queue q, int32_t event);
    /* On QUEUE_READ and QUEUE_WRITE; io is copied.  Returns 0, or CKPT_EDEVICE where the device can
     * not wait for such a queue, before anything is handed over: call it with NULL to ask, also
     * before the first use of QUEUE_HOST. */
    int (*io)(struct device *d, enum queue q, const struct device_io *io);
    /* Waits until every queue is empty; returns the first failure since the last sync. */
    int (*sync)(struct device *d);
    /* Marks the end of what was handed over to a queue so far; reach waits until all queues came to
     * their marks and returns the first failure so far.  After one it waits like sync, so that
     * nothing goes on with what is not there.  *when (NULL: not asked for): seconds of the clock of
     * the host when QUEUE_COMPUTE came there, or, on a GPU, when the wait ended. */
    void (*mark)(struct device *d, int mark, enum queue q);
    int (*reach)(struct device *d, int mark, double *when);
    /* Between begin and end commands are recorded, not run; replay runs them, any number of times.
     * Of a part the events are for others to wait for; no thread may, while there is any. NULL on a
     * device without this.  end returns 0, CKPT_ENOMEM or CKPT_EDEVICE. */
    void (*begin)(struct device *d, bool part);
    int (*end)(struct device *d, struct device_step **step);
    void (*replay)(struct device *d, struct device_step *step);
    void (*forget)(struct device *d, struct device_step *step);
    /* Events 0 .. n-1 exist after this.  Only while idle.  Returns 0 or CKPT_ENOMEM. */
    int (*events)(struct device *d, int32_t n);
    /* Names what is handed over from here on in a profiler's timeline, until NULL ends it.  NULL on
     * a device without this. */
    void (*range)(struct device *d, const char *name);
    /* Seconds that a file operation may take, and a copy, DEVICE_DEADLINE otherwise.  Only while
     * idle. */
    void (*deadline)(struct device *d, double seconds);
    /* Lets what was handed over end, and takes no more.  False if a file operation has no end: what
     * it may still touch must be left alone, also after close, which calls this if nobody did. */
    bool (*stop)(struct device *d);
    /* The algorithms that libraries use here: those put in before the first kernel runs are taken
     * again.  While measuring, others are chosen by timing on the operands of a kernel's first run,
     * whose result is then not to be used; cold: bytes of the arena that may be overwritten between
     * runs.  NULL on a device without libraries that choose. */
    struct pins *(*algorithms)(struct device *d);
    void (*measure)(struct device *d, bool measuring, void *cold, int64_t bytes);
    /* Compiles so many programs at once, in several threads; each would be when it first runs.
     * NULL on a device that compiles none. */
    void (*compile)(struct device *d, const struct expr_call *calls, int64_t n);
    void (*close)(struct device *d);
};

struct device {
    const struct device_ops *ops;
    char name[64];        /* of the hardware */
    char where[32];       /* "0000:18:00.0", or "" */
    int capability;       /* CUDA: 90 for compute capability 9.0 */
    struct ckpt_run *run; /* device memory behind args.run_device, or NULL */
    /* NULL, or called now and then while the caller waits for what may never end: what it returns
     * but 0 is a failure, of the op that it names, after which the queues run empty. */
    int (*look)(void *user, int32_t *op);
    void *look_user;
    int32_t failed_op; /* args.op of the kernel behind the failure that sync returned, or -1 */
    struct device_io failed_io; /* or the file operation; its call is NULL if it was none */
    char reason[256];           /* what the hardware or a library said of it, or "" */
};

/* Copies both ways at once, so many times: n bytes of the arena to host, and beside them the next n
 * of host to the next n of the arena. */
static inline void device_copy_both(struct device *d, char *arena, char *host, int64_t n, int times)
{
    for (int i = 0; i < times; i++) {
        d->ops->copy(d, QUEUE_COPY_OUT, host, arena, n);
        d->ops->copy(d, QUEUE_COPY_IN, arena + n, host + n, n);
    }
}

/* budget: bytes to reserve address space for; threads: kernel threads, 0 for one per core. */
int device_open_cpu(struct device **d, int64_t budget, int64_t threads);

/* The CUDA device of this index, counted round those there are; deterministic: kernels must give
 * the same bits every time.  Returns 0, CKPT_ENOMEM, or CKPT_EDEVICE (no driver, no GPU, one that
 * the kernels were not built for, a build without CUDA), the sentence in error_get(). */
int device_open_cuda(struct device **d, int index, bool deterministic);

/* Who compiles the kernels of element-wise expressions, and where they are kept, or that they are
 * interpreted; "" in a build without CUDA. */
void device_describe_compiler(char *dst, size_t size);

#endif
