/*
 * Where compute happens.  A device has one arena (reserved at open, mapped at compile, never grown
 * while a program runs), a handful of queues that run commands in order, and events between queues.
 * The executor above it decides nothing: it hands over instructions in one fixed order.
 */
#ifndef CKPT_DEVICE_H
#define CKPT_DEVICE_H

#include "base.h"

enum queue { QUEUE_COMPUTE, QUEUE_COPY_IN, QUEUE_COPY_OUT, QUEUE_COUNT };

struct device;

struct device_ops {
    const char *name;
    /* Bytes of device memory that could be had now. */
    int64_t (*available)(struct device *d);
    /* Makes the arena exactly this many bytes long (0 unmaps it); contents below the smaller of the
     * two sizes stay.  Only while the queues are idle.  Returns 0 or CKPT_ENOMEM. */
    int (*map)(struct device *d, int64_t bytes);
    /* Base of the arena; constant from open to close. */
    char *(*base)(struct device *d);
    /* Queue commands.  All return at once; a failure is kept and returned by sync. */
    void (*compute)(struct device *d, enum queue q, ckpt_kernel fn,
                    const struct ckpt_kernel_args *args);
    void (*copy)(struct device *d, enum queue q, void *dst, const void *src, int64_t bytes);
    void (*fill)(struct device *d, enum queue q, void *dst, int byte, int64_t bytes);
    void (*record)(struct device *d, enum queue q, int32_t event);
    void (*wait)(struct device *d, enum queue q, int32_t event); /* for the last record so far */
    /* Waits until every queue is empty; returns the first failure since the last sync. */
    int (*sync)(struct device *d);
    /* Events 0 .. n-1 exist after this.  Only while idle. */
    int (*events)(struct device *d, int32_t n);
    void (*close)(struct device *d);
};

struct device {
    const struct device_ops *ops;
    int32_t failed_op; /* args.op of the kernel behind the failure that sync returned */
};

/* budget: bytes to reserve address space for; threads: kernel threads, 0 for one per core. */
int device_open_cpu(struct device **d, int64_t budget, int64_t threads);

#endif
