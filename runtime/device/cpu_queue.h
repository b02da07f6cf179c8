/* Queues and events of the CPU device: a queue is a thread and a ring of commands. */
#ifndef CKPT_CPU_QUEUE_H
#define CKPT_CPU_QUEUE_H

#include <pthread.h>
#include "device/device.h"

/* An event is a pair of counters: how often it was recorded by the caller, and reached by a queue.
 */
struct cpu_event {
    int64_t recorded;
    int64_t reached;
};

/* What the queues of one device share. */
struct cpu_shared {
    pthread_mutex_t lock;
    pthread_cond_t reached; /* some event, or some queue ran empty */
    struct cpu_event *events;
    int32_t n_events;
    int failure; /* the first since the last sync */
    int32_t failed_op;
};

enum command_kind { COMMAND_COMPUTE, COMMAND_COPY, COMMAND_FILL, COMMAND_RECORD, COMMAND_WAIT };

struct command {
    enum command_kind kind;
    ckpt_kernel kernel;
    struct ckpt_kernel_args args;
    double *seconds; /* NULL, or where the kernel's time goes */
    void *dst;
    const void *src;
    int64_t bytes;
    int byte;
    int32_t event;
    int64_t target; /* a wait is over when event.reached gets here */
};

enum { CPU_QUEUE_DEPTH = 256 };

struct cpu_queue {
    struct cpu_shared *shared;
    pthread_t thread;
    bool started;
    int threads; /* kernel threads of this queue */
    pthread_mutex_t lock;
    pthread_cond_t work; /* for the thread: there is a command, or stop */
    pthread_cond_t room; /* for the caller: what it awaits is done */
    int64_t awaited;     /* done commands at which room is signalled */
    bool sleeping;       /* the thread waits for work */
    struct command ring[CPU_QUEUE_DEPTH];
    int64_t head, tail; /* done, submitted */
    bool stop;
};

int cpu_queue_start(struct cpu_queue *q, struct cpu_shared *shared, int threads);
void cpu_queue_submit(struct cpu_queue *q, const struct command *c);
/* Waits until this many commands are done. */
void cpu_queue_drain(struct cpu_queue *q, int64_t done);
void cpu_queue_stop(struct cpu_queue *q);

#endif
