/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues that are threads of the host, and their events: all queues of the CPU device, those to and
 * from files of a GPU.  A queue is a thread and a ring of commands.
 */
#ifndef CKPT_HOST_QUEUE_H
#define CKPT_HOST_QUEUE_H

#include <pthread.h>
#include "memory/device/device.h"

/* An event is a pair of counters: how often it was recorded by the caller, and reached by a queue.
 */
struct host_event {
    int64_t recorded;
    int64_t reached;
};

struct host_queue;

/* What the queues of one device share. */
struct host_shared {
    pthread_mutex_t lock;
    pthread_cond_t reached; /* some event was, or waiting has no end */
    struct host_event *events;
    int32_t n_events;
    /* Tells who else waits that an event was reached so many times.  NULL: nobody. */
    void (*on_reach)(void *user, int32_t event, int64_t times);
    void *user;
    int failure; /* the first since the last sync; commands are skipped while there is one */
    int32_t failed_op;
    struct device_io failed_io;
    char reason[256];
    bool hung; /* a copy or file operation had no end in time */
    /* Asked now and then by who waits: whether something else that threads wait for has no end.
     * NULL: there is nothing else. */
    bool (*look)(void *looker);
    void *looker;
    bool lost;       /* it said so */
    double deadline; /* seconds for one */
    int32_t users;   /* the device, until it is closed, and threads that it could not wait for */
    void (*unused)(void *user); /* called by the last of them */
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
    struct ckpt_run run; /* what args.run pointed to: the caller's may be another step's by then */
    double *seconds;     /* NULL, or where the kernel's time goes, or the clock of a stamp */
    void *dst;
    const void *src;
    int64_t bytes;
    int byte;
    int32_t event;
    int64_t target; /* a wait is over when event.reached gets here */
    struct device_io io;
};

enum { HOST_QUEUE_DEPTH = 256 };

struct host_queue {
    struct host_shared *shared;
    pthread_t thread;
    bool started;
    int threads;  /* kernel threads of this queue */
    double since; /* when the operation at hand that has a deadline began, or 0; of shared.lock */
    bool hung;    /* it never ended; of shared.lock */
    bool orphan;  /* and the device was closed; of shared.lock */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the thread: there is a command, or stop */
    pthread_cond_t room; /* for the caller: what it awaits is done */
    int64_t awaited;     /* done commands at which room is signalled */
    bool sleeping;       /* the thread waits for work */
    struct command ring[HOST_QUEUE_DEPTH];
    int64_t head, tail; /* done, submitted */
    int64_t begun;      /* file operations before this command have begun; of the thread */
    bool stop;
};

void host_shared_open(struct host_shared *s);
void host_shared_close(struct host_shared *s);
/* One user less. */
void host_shared_leave(struct host_shared *s);
/* Events 0 .. n-1 exist after this.  Returns 0 or CKPT_ENOMEM. */
int host_shared_events(struct host_shared *s, int32_t n);
/* The failure since the last call, or 0; its op, file operation and reason go to d. */
int host_shared_take_failure(struct host_shared *s, struct device *d);
bool host_shared_failed(struct host_shared *s);
/* Looks for an operation without end; if there is one all waiting ends, and that is the failure. */
void host_shared_check(struct host_shared *s);
/* One more time. */
void host_shared_reach(struct host_shared *s, int32_t event);

/* Returns 0, or CKPT_ENOMEM and errno where there is no thread. */
int host_queue_start(struct host_queue *q, struct host_shared *shared, enum queue which,
                     int threads);
void host_queue_submit(struct host_queue *q, const struct command *c);
void host_queue_record(struct host_queue *q, int32_t event);
void host_queue_wait(struct host_queue *q, int32_t event);
/* Waits until this many commands are done, or the one at hand has no end. */
void host_queue_drain(struct host_queue *q, int64_t done);
/* Ends the thread.  False if that is in an operation without end: then the queue and what it shares
 * must stay until nobody uses it. */
bool host_queue_stop(struct host_queue *q);

#endif
