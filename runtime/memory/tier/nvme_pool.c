/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests by threads that call pread and pwrite: works everywhere.  Threads alternate between
 * pieces of reads and of writes.  A thread whose request never returns cannot be stopped; closing
 * then leaves it running, and it frees everything when it does return.
 */
#include <errno.h>
#include <stdlib.h>
#include "core/thread_team.h"
#include "memory/tier/nvme.h"

enum { THREADS = 8 };

struct lane {
    struct nvme_pending_list pending;
    int64_t done; /* completed requests */
};

struct pool {
    struct nvme *nvme;
    pthread_mutex_t lock;
    pthread_cond_t work; /* for threads: there are pieces, or stop */
    pthread_cond_t idle; /* for callers: a call is done, or a thread ended */
    struct lane lanes[2];
    int turn; /* the lane that threads try first */
    bool stop, given_up;
    int32_t n, alive;
    pthread_t threads[THREADS];
};

static void pool_free(struct pool *p)
{
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->idle);
    free(p);
}

/* ---- threads ----------------------------------------------------------------------------------
 */

static int transfer(struct nvme *n, bool write, const struct nvme_piece *p)
{
    int fd = n->files.at[p->file].fd;
    ssize_t result;
    if (write && nvme_before_write(n, p))
        return CKPT_EIO;
    do {
        result = write ? n->sys->pwrite(fd, p->memory, (size_t)p->bytes, p->at)
                       : n->sys->pread(fd, p->memory, (size_t)p->bytes, p->at);
    } while (result < 0 && errno == EINTR);
    int rc = nvme_result(n, write, p, result < 0 ? -errno : result);
    return rc || write ? rc : nvme_after_read(n, p);
}

static struct nvme_pending *take_piece(struct pool *p, struct lane **lane, struct nvme_piece *piece)
{
    for (int i = 0; i < 2; i++) {
        struct lane *l = &p->lanes[(p->turn + i) % 2];
        struct nvme_pending *f = nvme_pending_take(&l->pending, &p->nvme->files, piece);
        if (!f)
            continue;
        p->turn = !p->turn;
        *lane = l;
        return f;
    }
    return NULL;
}

/* Called with the lock held; releases it while the disk works. */
static void work(struct pool *p, struct lane *l, struct nvme_pending *f,
                 const struct nvme_piece *piece)
{
    bool write = l == &p->lanes[1];
    pthread_mutex_unlock(&p->lock);
    int rc = transfer(p->nvme, write, piece);
    pthread_mutex_lock(&p->lock);
    f->out--;
    l->done++;
    if (rc) {
        f->failed = true;
        f->left.offset = f->left.end;
    }
    if (nvme_pending_done(f))
        pthread_cond_broadcast(&p->idle);
}

static void *pool_run(void *arg)
{
    struct pool *p = arg;
    struct nvme_piece piece;
    struct lane *l;
    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct nvme_pending *f = take_piece(p, &l, &piece);
        if (f)
            work(p, l, f, &piece);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    p->alive--;
    bool last = p->given_up && !p->alive;
    pthread_cond_broadcast(&p->idle);
    pthread_mutex_unlock(&p->lock);
    if (last) {
        nvme_free(p->nvme);
        pool_free(p);
    }
    return NULL;
}

/* ---- callers ----------------------------------------------------------------------------------
 */

/* Waits on idle for at most this many seconds.  false: they have passed. */
static bool wait_idle(struct pool *p, double seconds)
{
    struct timespec t = clock_after(seconds);
    return pthread_cond_timedwait(&p->idle, &p->lock, &t) != ETIMEDOUT;
}

static void begin(struct pool *p, struct lane *l, const struct nvme_call *call)
{
    if (nvme_pending_add(&l->pending, call))
        pthread_cond_broadcast(&p->work);
}

static void pool_begin(struct nvme *n, const struct nvme_call *call)
{
    struct pool *p = n->state;
    pthread_mutex_lock(&p->lock);
    begin(p, &p->lanes[call->write], call);
    pthread_mutex_unlock(&p->lock);
}

/* Waits for the first call.  The deadline counts from the last completed request; false: it has
 * passed. */
static bool finish_first(struct pool *p, struct lane *l)
{
    const struct nvme_pending *f = nvme_pending_first(&l->pending);
    bool late = false;
    while (!late && !nvme_pending_done(f)) {
        int64_t done = l->done;
        late = !wait_idle(p, p->nvme->deadline) && l->done == done;
    }
    return nvme_pending_done(f);
}

/* Waits for all calls, without starting new requests. */
static bool finish_all(struct pool *p, struct lane *l)
{
    nvme_pending_cancel(&l->pending);
    while (l->pending.n) {
        if (!finish_first(p, l))
            return false;
        nvme_pending_drop_first(&l->pending);
    }
    return true;
}

static int pool_move(struct nvme *n, const struct nvme_call *call)
{
    struct pool *p = n->state;
    struct lane *l = &p->lanes[call->write];
    pthread_mutex_lock(&p->lock);
    struct nvme_pending *f = nvme_pending_first(&l->pending);
    bool ended = !f || nvme_pending_is(f, call) || finish_all(p, l), failed = false;
    if (ended) {
        if (!l->pending.n)
            begin(p, l, call);
        f = nvme_pending_first(&l->pending);
        ended = finish_first(p, l);
        failed = f->failed;
        if (!ended)
            nvme_pending_cancel(&l->pending);
        else if (failed)
            ended = finish_all(p, l);
        else
            nvme_pending_drop_first(&l->pending);
    }
    pthread_mutex_unlock(&p->lock);
    return !ended ? nvme_stuck(n, call->write) : failed ? CKPT_EIO : 0;
}

/* Waits for the threads up to the deadline, or hardly at all if it has passed before. */
static bool pool_close(struct nvme *n)
{
    struct pool *p = n->state;
    double patience = n->tier.stuck ? 0.1 : n->deadline, end = clock_seconds() + patience;
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_cond_broadcast(&p->work);
    while (p->alive && clock_seconds() < end)
        wait_idle(p, patience);
    p->given_up = p->alive > 0;
    bool gone = !p->given_up;
    for (int32_t i = 0; !gone && i < p->n; i++)
        pthread_detach(p->threads[i]);
    int32_t started = gone ? p->n : 0;
    pthread_mutex_unlock(&p->lock);
    for (int32_t i = 0; i < started; i++)
        pthread_join(p->threads[i], NULL);
    if (gone)
        pool_free(p);
    return gone;
}

static int pool_open(struct nvme *n, char *why, size_t size)
{
    struct pool *p = calloc(1, sizeof *p);
    pthread_condattr_t monotonic;
    if (!p) {
        snprintf(why, size, "out of memory");
        return CKPT_ENOMEM;
    }
    p->nvme = n;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&p->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    n->state = p;
    pthread_mutex_lock(&p->lock); /* threads start work once `alive` is set */
    while (p->n < THREADS && !thread_start(&p->threads[p->n], pool_run, p))
        p->n++;
    p->alive = p->n;
    pthread_mutex_unlock(&p->lock);
    if (p->n)
        return 0;
    snprintf(why, size, "the system gives no thread");
    pool_free(p);
    return CKPT_EIO;
}

static void pool_describe(struct nvme *n, char *dst, size_t size)
{
    const struct pool *p = n->state;
    snprintf(dst, size, "pread and pwrite by %d threads", p->n);
}

const struct nvme_io nvme_pool = {.open = pool_open,
                                  .move = pool_move,
                                  .begin = pool_begin,
                                  .close = pool_close,
                                  .describe = pool_describe};
