/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between threads of one process: a ring of a few messages for every pair of ranks.
 * Messages are copied in and out, so no rank accesses the buffers of another, even after a failure.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dist/comm_threads.h"

enum { MAILBOX_DEPTH = LINK_SLOTS };

struct message {
    char *data; /* grows to the largest message */
    int64_t bytes, capacity;
};

struct mailbox {
    struct message ring[MAILBOX_DEPTH];
    int64_t pushed, popped;
};

/* State shared by all ranks; the last one frees it. */
struct shared {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int size, open;
    bool *closed;
    char sentence[LINK_SENTENCE]; /* of the first abort */
    int aborter;
    struct mailbox *mailboxes; /* [from * size + to] */
};

struct thread_link {
    struct link link;
    struct shared *shared;
    struct link_part *parts[LINK_SLOTS]; /* per slot: its round, or NULL */
    int oldest;                          /* slot that was started first */
};

static struct thread_link *threaded(struct link *l)
{
    return (struct thread_link *)l;
}

static struct mailbox *mailbox_of(struct shared *w, int from, int to)
{
    return &w->mailboxes[from * w->size + to];
}

/* False if the ring is full or there is no memory. */
static bool push(struct mailbox *b, const void *data, int64_t bytes)
{
    if (b->pushed - b->popped == MAILBOX_DEPTH)
        return false;
    struct message *m = &b->ring[b->pushed % MAILBOX_DEPTH];
    if (bytes > m->capacity) {
        char *larger = realloc(m->data, (size_t)bytes);
        if (!larger)
            return false;
        m->data = larger;
        m->capacity = bytes;
    }
    memcpy(m->data, data, (size_t)bytes);
    m->bytes = bytes;
    b->pushed++;
    return true;
}

static bool pop(struct mailbox *b, struct link_part *part)
{
    if (b->pushed == b->popped)
        return false;
    const struct message *m = &b->ring[b->popped % MAILBOX_DEPTH];
    part->got = m->bytes < part->capacity ? m->bytes : part->capacity;
    memcpy(part->in, m->data, (size_t)part->got);
    b->popped++;
    return true;
}

static void thread_start(struct link *l, int slot, struct link_part *parts)
{
    struct thread_link *t = threaded(l);
    t->parts[slot] = parts;
    t->oldest = (slot + 1) % LINK_SLOTS;
}

/* The caller holds the lock.  Messages of a pair keep their order: the older round goes first. */
static bool progress_pair(struct thread_link *t, int other)
{
    struct shared *w = t->shared;
    bool moved = false, sending = true, receiving = true;
    for (int i = 0; i < LINK_SLOTS; i++) {
        struct link_part *parts = t->parts[(t->oldest + i) % LINK_SLOTS];
        if (!parts)
            continue;
        struct link_part *part = &parts[other];
        if (sending && !part->sent)
            moved |= part->sent =
                push(mailbox_of(w, t->link.rank, other), part->out, part->out_bytes);
        if (receiving && !part->came)
            moved |= part->came = pop(mailbox_of(w, other, t->link.rank), part);
        sending &= part->sent;
        receiving &= part->came;
    }
    return moved;
}

static bool is_awaited(const struct thread_link *t, int other)
{
    for (int i = 0; i < LINK_SLOTS; i++)
        if (t->parts[i] && !t->parts[i][other].came)
            return true;
    return false;
}

/* The caller holds the lock. */
static bool poll_failures(struct thread_link *t)
{
    struct shared *w = t->shared;
    if (*w->sentence && w->aborter != t->link.rank)
        memcpy(t->link.abort_text, w->sentence, sizeof t->link.abort_text);
    for (int r = 0; r < w->size; r++) {
        if (!w->closed[r] || !is_awaited(t, r))
            continue;
        t->link.lost = r;
        snprintf(t->link.reason, sizeof t->link.reason, "it closed its communicator");
        return false;
    }
    return true;
}

static bool thread_progress(struct link *l)
{
    struct thread_link *t = threaded(l);
    struct shared *w = t->shared;
    bool moved = false;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->size; r++)
        if (r != l->rank)
            moved |= progress_pair(t, r);
    bool alive = poll_failures(t);
    if (moved)
        pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    return alive;
}

static void thread_wait(struct link *l, double seconds)
{
    struct shared *w = threaded(l)->shared;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_mutex_lock(&w->lock);
    pthread_cond_timedwait(&w->changed, &w->lock, &t);
    pthread_mutex_unlock(&w->lock);
}

static void thread_abort(struct link *l, const char *sentence)
{
    struct shared *w = threaded(l)->shared;
    pthread_mutex_lock(&w->lock);
    if (!*w->sentence) {
        snprintf(w->sentence, sizeof w->sentence, "%s", sentence);
        w->aborter = l->rank;
    }
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void shared_free(struct shared *w)
{
    for (int i = 0; w->mailboxes && i < w->size * w->size; i++)
        for (int k = 0; k < MAILBOX_DEPTH; k++)
            free(w->mailboxes[i].ring[k].data);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->changed);
    free(w->mailboxes);
    free(w->closed);
    free(w);
}

/* rank -1: the opening thread, which holds a reference until all ranks are open. */
static void release_rank(struct shared *w, int rank)
{
    pthread_mutex_lock(&w->lock);
    if (rank >= 0)
        w->closed[rank] = true;
    bool last = --w->open == 0;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (last)
        shared_free(w);
}

static bool thread_close(struct link *l, bool failed)
{
    (void)failed;
    release_rank(threaded(l)->shared, l->rank);
    free(l);
    return true;
}

static const struct link_ops thread_ops = {.start = thread_start,
                                           .progress = thread_progress,
                                           .wait = thread_wait,
                                           .abort = thread_abort,
                                           .close = thread_close};

static struct shared *shared_make(int size)
{
    struct shared *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->changed, NULL);
    w->size = size;
    w->open = 1;
    w->closed = calloc((size_t)size, sizeof *w->closed);
    w->mailboxes = calloc((size_t)size * (size_t)size, sizeof *w->mailboxes);
    if (w->closed && w->mailboxes)
        return w;
    shared_free(w);
    return NULL;
}

static int open_rank(struct comm **c, struct shared *w, int rank, double deadline)
{
    struct thread_link *t = calloc(1, sizeof *t);
    if (!t)
        return CKPT_ENOMEM;
    t->shared = w;
    w->open++;
    t->link = (struct link){.ops = &thread_ops, .rank = rank, .size = w->size, .lost = -1};
    snprintf(t->link.how, sizeof t->link.how, "%d threads", w->size);
    return comm_open_linked(c, "threads", &t->link, deadline);
}

int comm_open_threads(struct comm **ranks, int size, double deadline)
{
    struct shared *w = shared_make(size);
    int rc = w ? 0 : CKPT_ENOMEM, made = 0;
    for (; made < size && !rc; made += !rc)
        rc = open_rank(&ranks[made], w, made, deadline);
    for (int r = 0; r < made && rc; r++)
        comm_close(ranks[r]);
    if (w)
        release_rank(w, -1);
    return rc ? error_set(CKPT_ENOMEM, "no memory for %d ranks", size) : 0;
}
