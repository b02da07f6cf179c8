/* SPDX-License-Identifier: Apache-2.0 */
/* A queue that is a host thread: it takes commands from a ring, in order. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "core/thread_team.h"
#include "memory/device/host_queue.h"
#include "memory/device/team.h"

/* ---- shared state ---------------------------------------------------------------------------- */

void host_shared_open(struct host_shared *s)
{
    s->deadline = DEVICE_DEADLINE;
    s->users = 1;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->reached, NULL);
}

void host_shared_close(struct host_shared *s)
{
    pthread_cond_destroy(&s->reached);
    pthread_mutex_destroy(&s->lock);
    free(s->events);
}

void host_shared_release(struct host_shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool last = --s->users == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        s->unused(s->user);
}

int host_shared_events(struct host_shared *s, int32_t n)
{
    if (n <= s->n_events)
        return 0;
    struct host_event *grown = realloc(s->events, (size_t)n * sizeof *grown);
    if (!grown)
        return CKPT_ENOMEM;
    memset(grown + s->n_events, 0, (size_t)(n - s->n_events) * sizeof *grown);
    s->events = grown;
    s->n_events = n;
    return 0;
}

bool host_shared_failed(struct host_shared *s)
{
    pthread_mutex_lock(&s->lock);
    bool failed = s->failure != 0;
    pthread_mutex_unlock(&s->lock);
    return failed;
}

int host_shared_take_failure(struct host_shared *s, struct device *d)
{
    pthread_mutex_lock(&s->lock);
    int rc = s->failure;
    d->failed_op = rc ? s->failed_op : -1;
    d->failed_io = rc ? s->failed_io : (struct device_io){0};
    if (s->hung)
        snprintf(d->reason, sizeof d->reason, "not finished within %g s", s->deadline);
    else if (rc)
        snprintf(d->reason, sizeof d->reason, "%s", s->reason);
    if (!s->hung)
        s->failure = 0;
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Keeps the first failure.  The caller holds the lock. */
static void fail(struct host_shared *s, int rc, int32_t op, const struct device_io *io)
{
    if (s->failure)
        return;
    s->failure = rc;
    snprintf(s->reason, sizeof s->reason, "%s", error_get()); /* set by a kernel on this thread */
    error_set(0, "%s", "");
    s->failed_op = op;
    s->failed_io = *io;
}

void host_shared_check(struct host_shared *s)
{
    double now = clock_seconds();
    bool lost = s->poll && s->poll(s->poll_user);
    pthread_mutex_lock(&s->lock);
    if (lost && !s->lost) {
        fail(s, CKPT_EDEVICE, -1, &(struct device_io){0});
        s->lost = s->hung = true;
        pthread_cond_broadcast(&s->reached);
    }
    for (int i = 0; i < QUEUE_COUNT && !s->hung; i++) {
        struct host_queue *q = s->queues[i];
        if (!q || q->since == 0 || now - q->since < s->deadline)
            continue;
        /* The slot at head is not reused until the operation ends. */
        fail(s, CKPT_EIO, -1, &q->ring[q->head % q->depth].io);
        q->hung = s->hung = true;
        pthread_cond_broadcast(&s->reached);
    }
    pthread_mutex_unlock(&s->lock);
}

void host_shared_reach(struct host_shared *s, int32_t event)
{
    pthread_mutex_lock(&s->lock);
    int64_t times = ++s->events[event].reached;
    if (s->on_reach)
        s->on_reach(s->user, event, times);
    pthread_cond_broadcast(&s->reached);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until an event was reached `target` times, or an operation hangs. */
static void host_shared_await(struct host_shared *s, int32_t event, int64_t target)
{
    pthread_mutex_lock(&s->lock);
    while (s->events[event].reached < target && !s->hung)
        pthread_cond_wait(&s->reached, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- commands -------------------------------------------------------------------------------- */

static int compute(const struct host_queue *q, const struct command *c)
{
    double before = c->seconds ? clock_seconds() : 0;
    struct ckpt_kernel_args args = c->args;
    args.threads = team_count(q->threads);
    int rc = c->kernel(&args);
    if (c->seconds)
        *c->seconds = clock_seconds() - before;
    return rc;
}

static bool has_reached(struct host_shared *s, const struct command *c)
{
    pthread_mutex_lock(&s->lock);
    bool reached = s->events[c->event].reached >= c->target;
    pthread_mutex_unlock(&s->lock);
    return reached;
}

static void begin(struct host_queue *q, int64_t i)
{
    const struct device_io *io = &q->ring[i % q->depth].io;
    if (i >= q->begun)
        io->begin(io->user, io->offset, io->host, io->bytes);
    q->begun = max_i64(q->begun, i + 1);
}

/* Begins the current file operation and the next one, unless that has to wait for an event: so the
 * disk has work while the current one ends. */
static void begin_ahead(struct host_queue *q)
{
    pthread_mutex_lock(&q->lock);
    int64_t tail = q->tail; /* slots before tail do not change until head moves */
    pthread_mutex_unlock(&q->lock);
    begin(q, q->head);
    for (int64_t i = q->head + 1; i < tail; i++) {
        const struct command *c = &q->ring[i % q->depth];
        if (c->kind == COMMAND_IO && c->io.begin)
            begin(q, i);
        if (c->kind != COMMAND_RECORD && (c->kind != COMMAND_WAIT || !has_reached(q->shared, c)))
            return;
    }
}

static int run_io(struct host_queue *q, const struct device_io *io)
{
    if (io->begin)
        begin_ahead(q);
    return io->call(io->user, io->offset, io->host, io->bytes);
}

/* Runs a command.  After a failure all work is skipped until the next sync: its inputs are missing,
 * and it may overwrite the only copy of other bytes. */
static void work(struct host_queue *q, const struct command *c)
{
    struct host_shared *s = q->shared;
    bool limited = c->kind == COMMAND_COPY || c->kind == COMMAND_IO;
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    bool failed = s->failure != 0;
    q->since = limited && !failed ? clock_seconds() : 0;
    pthread_mutex_unlock(&s->lock);
    if (failed)
        return;
    if (c->kind == COMMAND_COMPUTE)
        rc = compute(q, c);
    else if (c->kind == COMMAND_COPY)
        memcpy(c->dst, c->src, (size_t)c->bytes);
    else if (c->kind == COMMAND_FILL)
        memset(c->dst, c->byte, (size_t)c->bytes);
    else if (c->kind == COMMAND_STAMP)
        *c->seconds = clock_seconds();
    else
        rc = run_io(q, &c->io);
    if (!rc && !limited)
        return;
    pthread_mutex_lock(&s->lock);
    q->since = 0;
    if (rc)
        fail(s, rc, c->kind == COMMAND_COMPUTE ? c->args.op : -1, &c->io);
    pthread_mutex_unlock(&s->lock);
}

static void execute(struct host_queue *q, const struct command *c)
{
    if (c->kind == COMMAND_RECORD)
        host_shared_reach(q->shared, c->event);
    else if (c->kind == COMMAND_WAIT)
        host_shared_await(q->shared, c->event, c->target);
    else
        work(q, c);
}

static void *queue_main(void *arg)
{
    struct host_queue *q = arg;
    team_size(q->threads);
    pthread_mutex_lock(&q->lock);
    q->sleeping = true;
    pthread_cond_signal(&q->drained);
    for (;;) {
        q->sleeping = true;
        while (q->head == q->tail && !q->stop)
            pthread_cond_wait(&q->work, &q->lock);
        q->sleeping = false;
        if (q->head == q->tail)
            break;
        /* The caller does not reuse this slot until head moves. */
        const struct command *c = &q->ring[q->head % q->depth];
        pthread_mutex_unlock(&q->lock);
        execute(q, c);
        pthread_mutex_lock(&q->lock);
        if (++q->head == q->awaited)
            pthread_cond_signal(&q->drained);
    }
    pthread_mutex_unlock(&q->lock);
    pthread_mutex_lock(&q->shared->lock);
    bool orphan = q->orphan;
    pthread_mutex_unlock(&q->shared->lock);
    if (orphan) {
        free(q->ring);
        host_shared_release(q->shared);
    }
    return NULL;
}

/* ---- calls of the submitting thread ---------------------------------------------------------- */

/* Waits on drained are timed, to check for hung operations. */
static void init_drained(struct host_queue *q)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->drained, &attr);
    pthread_condattr_destroy(&attr);
}

/* Returns once the thread waits for commands.  OpenMP ends the process if it cannot start a thread;
 * no other thread may then be starting in OpenMP, since that would crash instead of exiting. */
int host_queue_start(struct host_queue *q, struct host_shared *shared, enum queue which,
                     int threads)
{
    q->shared = shared;
    q->threads = threads;
    q->depth = which == QUEUE_HOST ? HOST_UPDATES_DEPTH : HOST_QUEUE_DEPTH;
    q->ring = malloc((size_t)q->depth * sizeof *q->ring);
    if (!q->ring)
        return CKPT_ENOMEM;
    memset(q->ring, 0, (size_t)q->depth * sizeof *q->ring); /* memory does not grow later */
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    init_drained(q);
    errno = thread_start(&q->thread, queue_main, q);
    q->started = errno == 0;
    pthread_mutex_lock(&q->lock);
    while (q->started && !q->sleeping)
        pthread_cond_wait(&q->drained, &q->lock);
    pthread_mutex_unlock(&q->lock);
    if (!q->started)
        free(q->ring);
    else
        shared->queues[which] = q;
    return q->started ? 0 : CKPT_ENOMEM;
}

static bool is_hung(struct host_queue *q)
{
    pthread_mutex_lock(&q->shared->lock);
    bool hung = q->hung || q->shared->lost;
    pthread_mutex_unlock(&q->shared->lock);
    return hung;
}

/* The caller holds q->lock, which is taken before shared.lock.  False if an operation hangs. */
static bool await_done(struct host_queue *q, int64_t done)
{
    double tick = fmin(q->shared->deadline / 4, 1.);
    q->awaited = done;
    while (q->head < done) {
        struct timespec until = clock_after(tick);
        if (is_hung(q)) /* every later submission returns here as well */
            return false;
        if (!pthread_cond_timedwait(&q->drained, &q->lock, &until))
            continue;
        pthread_mutex_unlock(&q->lock);
        host_shared_check(q->shared);
        pthread_mutex_lock(&q->lock);
    }
    return true;
}

void host_queue_submit(struct host_queue *q, const struct command *c)
{
    pthread_mutex_lock(&q->lock);
    bool fits = q->tail - q->head < q->depth || await_done(q, q->tail - q->depth / 2);
    if (fits) {
        struct command *kept = &q->ring[q->tail++ % q->depth];
        *kept = *c;
        if (c->kind == COMMAND_COMPUTE && c->args.run) {
            kept->run = *c->args.run;
            kept->args.run = &kept->run;
        }
    }
    if (q->sleeping)
        pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

void host_queue_record(struct host_queue *q, int32_t event)
{
    q->shared->events[event].recorded++;
    struct command c = {.kind = COMMAND_RECORD, .event = event};
    host_queue_submit(q, &c);
}

void host_queue_wait(struct host_queue *q, int32_t event)
{
    struct command c = {
        .kind = COMMAND_WAIT, .event = event, .target = q->shared->events[event].recorded};
    host_queue_submit(q, &c);
}

void host_queue_drain(struct host_queue *q, int64_t done)
{
    pthread_mutex_lock(&q->lock);
    await_done(q, done);
    pthread_mutex_unlock(&q->lock);
}

bool host_queue_stop(struct host_queue *q)
{
    if (!q->started)
        return !q->orphan;
    q->started = false;
    host_queue_drain(q, q->tail);
    pthread_mutex_lock(&q->shared->lock);
    bool orphan = q->since != 0; /* an operation that ended late has set it to 0 */
    q->orphan = orphan;
    q->shared->users += orphan;
    pthread_mutex_unlock(&q->shared->lock);
    pthread_mutex_lock(&q->lock);
    q->stop = true;
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
    if (orphan) {
        pthread_detach(q->thread);
        return false;
    }
    pthread_join(q->thread, NULL);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->drained);
    pthread_mutex_destroy(&q->lock);
    free(q->ring);
    q->ring = NULL;
    return true;
}
