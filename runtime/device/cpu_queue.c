/* A queue of the CPU device: its thread takes commands from a ring, in order. */
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#include "device/cpu_queue.h"

static void set_kernel_threads(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(threads > 0 ? threads : omp_get_num_procs());
#else
    (void)threads;
#endif
}

static void reach(struct cpu_shared *s, int32_t event)
{
    pthread_mutex_lock(&s->lock);
    s->events[event].reached++;
    pthread_cond_broadcast(&s->reached);
    pthread_mutex_unlock(&s->lock);
}

static void await(struct cpu_shared *s, int32_t event, int64_t target)
{
    pthread_mutex_lock(&s->lock);
    while (s->events[event].reached < target)
        pthread_cond_wait(&s->reached, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* After a failure kernels are skipped until the next sync: their inputs are not there. */
static void compute(struct cpu_shared *s, const struct command *c)
{
    pthread_mutex_lock(&s->lock);
    bool failed = s->failure != 0;
    pthread_mutex_unlock(&s->lock);
    double before = c->seconds ? clock_seconds() : 0;
    int rc = failed ? 0 : c->kernel(&c->args);
    if (c->seconds)
        *c->seconds = clock_seconds() - before;
    if (!rc)
        return;
    pthread_mutex_lock(&s->lock);
    if (!s->failure) {
        s->failure = rc;
        s->failed_op = c->args.op;
    }
    pthread_mutex_unlock(&s->lock);
}

static void execute(struct cpu_shared *s, const struct command *c)
{
    switch (c->kind) {
    case COMMAND_COMPUTE:
        compute(s, c);
        break;
    case COMMAND_COPY:
        memcpy(c->dst, c->src, (size_t)c->bytes);
        break;
    case COMMAND_FILL:
        memset(c->dst, c->byte, (size_t)c->bytes);
        break;
    case COMMAND_RECORD:
        reach(s, c->event);
        break;
    case COMMAND_WAIT:
        await(s, c->event, c->target);
        break;
    }
}

static void *queue_main(void *arg)
{
    struct cpu_queue *q = arg;
    set_kernel_threads(q->threads);
    pthread_mutex_lock(&q->lock);
    for (;;) {
        q->sleeping = true;
        while (q->head == q->tail && !q->stop)
            pthread_cond_wait(&q->work, &q->lock);
        q->sleeping = false;
        if (q->head == q->tail)
            break;
        /* The slot stays ours until head moves. */
        const struct command *c = &q->ring[q->head % CPU_QUEUE_DEPTH];
        pthread_mutex_unlock(&q->lock);
        execute(q->shared, c);
        pthread_mutex_lock(&q->lock);
        if (++q->head == q->awaited)
            pthread_cond_signal(&q->room);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

int cpu_queue_start(struct cpu_queue *q, struct cpu_shared *shared, int threads)
{
    q->shared = shared;
    q->threads = threads;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->room, NULL);
    q->started = pthread_create(&q->thread, NULL, queue_main, q) == 0;
    return q->started ? 0 : CKPT_ENOMEM;
}

/* The caller holds the lock. */
static void await_done(struct cpu_queue *q, int64_t done)
{
    q->awaited = done;
    while (q->head < done)
        pthread_cond_wait(&q->room, &q->lock);
}

void cpu_queue_submit(struct cpu_queue *q, const struct command *c)
{
    pthread_mutex_lock(&q->lock);
    if (q->tail - q->head == CPU_QUEUE_DEPTH)
        await_done(q, q->tail - CPU_QUEUE_DEPTH / 2);
    q->ring[q->tail % CPU_QUEUE_DEPTH] = *c;
    q->tail++;
    if (q->sleeping)
        pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

void cpu_queue_drain(struct cpu_queue *q, int64_t done)
{
    pthread_mutex_lock(&q->lock);
    await_done(q, done);
    pthread_mutex_unlock(&q->lock);
}

void cpu_queue_stop(struct cpu_queue *q)
{
    if (!q->started)
        return;
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->room);
    pthread_mutex_destroy(&q->lock);
}
