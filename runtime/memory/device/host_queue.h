/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues that are host threads, and their events: all queues of the CPU device, the queues for
 * files and for host kernels of a GPU.  A queue is a thread and a ring of commands.
 */
#ifndef CKPT_HOST_QUEUE_H
#define CKPT_HOST_QUEUE_H

#include <pthread.h>
#include "memory/device/device.h"

/* An event is a pair of counters: how often the caller recorded it, and how often a queue reached
 * it. */
struct host_event {
    int64_t recorded;
    int64_t reached;
};

struct host_queue;

/* State shared by the queues of one device. */
struct host_shared {
    pthread_mutex_t lock;
    pthread_cond_t reached; /* an event was reached, or an operation hangs */
    struct host_event *events;
    int32_t n_events;
    /* Notifies others, who wait elsewhere, that an event was reached `times` times.  NULL: none. */
    void (*on_reach)(void *user, int32_t event, int64_t times);
    void *user;
    int failure; /* the first since the last sync; commands are skipped while there is one */
    int32_t failed_op;
    struct device_io failed_io;
    char reason[256];
    bool hung; /* a copy or file operation exceeded the deadline */
    /* Called repeatedly by whoever waits: whether something else that threads wait for hangs. NULL:
     * there is nothing else. */
    bool (*poll)(void *poll_user);
    void *poll_user;
    bool lost;                  /* poll returned true */
    double deadline;            /* seconds for one operation */
    int32_t users;              /* the device until it is closed, and threads it could not join */
    void (*unused)(void *user); /* called when users becomes 0 */
    struct host_queue *queues[QUEUE_COUNT];
};

enum command_kind {
    COMMAND_COMPUTE,
    COMMAND_COPY,
    COMMAND_IO,
    COMMAND_FILL,
    COMMAND_STAMP,
    COMMAND_RECORD,
    COMMAND_WAIT
};

struct command {
    enum command_kind kind;
    ckpt_kernel kernel;
    struct ckpt_kernel_args args;
    struct ckpt_run run; /* copy of *args.run: the caller reuses its own for another step */
    double *seconds;     /* NULL, or where the kernel's time or the stamp's clock is stored */
    void *dst;
    const void *src;
    int64_t bytes;
    int byte;
    int32_t event;
    int64_t target; /* a wait ends when event.reached gets here */
    struct device_io io;
};

/* Commands that a queue holds: the caller waits where there are more.  Updates that the host
 * repeats are submitted up to a step before it gets to them. */
enum { HOST_QUEUE_DEPTH = 256, HOST_UPDATES_DEPTH = 4096 };

struct host_queue {
    struct host_shared *shared;
    pthread_t thread;
    bool started;
    int threads;  /* kernel threads of this queue */
    double since; /* start of the running operation if it has a deadline, or 0; under shared.lock */
    bool hung;    /* the operation exceeded it; under shared.lock */
    bool orphan;  /* and the device was closed; under shared.lock */
    pthread_mutex_t lock;
    pthread_cond_t work;    /* for the thread: there is a command, or stop */
    pthread_cond_t drained; /* for the caller: command `awaited` is done */
    int64_t awaited;        /* number of done commands at which drained is signalled */
    bool sleeping;          /* the thread waits for work */
    struct command *ring;
    int64_t depth;      /* of the ring */
    int64_t head, tail; /* commands done; submitted */
    int64_t begun; /* file operations before this command have begun; used by the thread only */
    bool stop;
};

void host_shared_open(struct host_shared *s);
void host_shared_close(struct host_shared *s);
/* Removes one user. */
void host_shared_release(struct host_shared *s);
/* Events 0 .. n-1 exist after this.  Returns 0 or CKPT_ENOMEM. */
int host_shared_events(struct host_shared *s, int32_t n);
/* The failure since the last call, or 0; sets op, file operation and reason in d. */
int host_shared_take_failure(struct host_shared *s, struct device *d);
bool host_shared_failed(struct host_shared *s);
/* Checks for a hung operation; if there is one, all waiting ends with that failure. */
void host_shared_check(struct host_shared *s);
/* Increments how often an event was reached. */
void host_shared_reach(struct host_shared *s, int32_t event);

/* Returns 0, or CKPT_ENOMEM with errno set if the thread cannot be started. */
int host_queue_start(struct host_queue *q, struct host_shared *shared, enum queue which,
                     int threads);
void host_queue_submit(struct host_queue *q, const struct command *c);
void host_queue_record(struct host_queue *q, int32_t event);
void host_queue_wait(struct host_queue *q, int32_t event);
/* Waits until `done` commands are done, or an operation hangs. */
void host_queue_drain(struct host_queue *q, int64_t done);
/* Ends the thread.  False if the thread is in a hung operation: then the queue and the shared state
 * must stay until nobody uses them. */
bool host_queue_stop(struct host_queue *q);

#endif
