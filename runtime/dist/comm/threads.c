/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between threads of one process: a box for every pair of ranks that holds a few messages.
 * Messages are copied in and out, so that no rank ever looks into the buffers of another, however
 * badly that one ends.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "dist/comm/linked.h"

enum { BOX_DEPTH = LINK_SLOTS };

struct message {
    char *data; /* grows to the largest message, then stays */
    int64_t bytes, room;
};

struct box {
    struct message ring[BOX_DEPTH];
    int64_t pushed, taken;
};

/* What the ranks share; freed by the last one. */
struct world {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int size, open;
    bool *gone;
    char sentence[LINK_SENTENCE]; /* the first abort */
    int aborter;
    struct box *boxes; /* [from * size + to] */
};

struct thread_link {
    struct link link;
    struct world *world;
    struct link_part *parts[LINK_SLOTS]; /* of the round in each slot, or NULL */
    int oldest;                          /* slot that was started first */
};

static struct thread_link *threaded(struct link *l)
{
    return (struct thread_link *)l;
}

static struct box *box_of(struct world *w, int from, int to)
{
    return &w->boxes[from * w->size + to];
}

/* False if there is no room for it, in the box or in memory. */
static bool push(struct box *b, const void *data, int64_t bytes)
{
    if (b->pushed - b->taken == BOX_DEPTH)
        return false;
    struct message *m = &b->ring[b->pushed % BOX_DEPTH];
    if (bytes > m->room) {
        char *larger = realloc(m->data, (size_t)bytes);
        if (!larger)
            return false;
        m->data = larger;
        m->room = bytes;
    }
    memcpy(m->data, data, (size_t)bytes);
    m->bytes = bytes;
    b->pushed++;
    return true;
}

static bool take(struct box *b, struct link_part *part)
{
    if (b->pushed == b->taken)
        return false;
    const struct message *m = &b->ring[b->taken % BOX_DEPTH];
    part->got = m->bytes < part->room ? m->bytes : part->room;
    memcpy(part->in, m->data, (size_t)part->got);
    b->taken++;
    return true;
}

static void thread_start(struct link *l, int slot, struct link_part *parts)
{
    struct thread_link *t = threaded(l);
    t->parts[slot] = parts;
    t->oldest = (slot + 1) % LINK_SLOTS;
}

/* The caller holds the lock.  Messages of one pair keep their order: the older round goes first. */
static bool progress_pair(struct thread_link *t, int other)
{
    struct world *w = t->world;
    bool moved = false, sending = true, taking = true;
    for (int i = 0; i < LINK_SLOTS; i++) {
        struct link_part *parts = t->parts[(t->oldest + i) % LINK_SLOTS];
        if (!parts)
            continue;
        struct link_part *part = &parts[other];
        if (sending && !part->sent)
            moved |= part->sent = push(box_of(w, t->link.rank, other), part->out, part->out_bytes);
        if (taking && !part->came)
            moved |= part->came = take(box_of(w, other, t->link.rank), part);
        sending &= part->sent;
        taking &= part->came;
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
static bool listen(struct thread_link *t)
{
    struct world *w = t->world;
    if (*w->sentence && w->aborter != t->link.rank)
        memcpy(t->link.abort_text, w->sentence, sizeof t->link.abort_text);
    for (int r = 0; r < w->size; r++) {
        if (!w->gone[r] || !is_awaited(t, r))
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
    struct world *w = t->world;
    bool moved = false;
    pthread_mutex_lock(&w->lock);
    for (int r = 0; r < w->size; r++)
        if (r != l->rank)
            moved |= progress_pair(t, r);
    bool alive = listen(t);
    if (moved)
        pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
    return alive;
}

static void thread_wait(struct link *l, double seconds)
{
    struct world *w = threaded(l)->world;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    t.tv_nsec += (long)(seconds * 1e9);
    if (t.tv_nsec >= 1000000000) {
        t.tv_nsec -= 1000000000;
        t.tv_sec++;
    }
    pthread_mutex_lock(&w->lock);
    pthread_cond_timedwait(&w->news, &w->lock, &t);
    pthread_mutex_unlock(&w->lock);
}

static void thread_abort(struct link *l, const char *sentence)
{
    struct world *w = threaded(l)->world;
    pthread_mutex_lock(&w->lock);
    if (!*w->sentence) {
        snprintf(w->sentence, sizeof w->sentence, "%s", sentence);
        w->aborter = l->rank;
    }
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
}

static void world_free(struct world *w)
{
    for (int i = 0; w->boxes && i < w->size * w->size; i++)
        for (int k = 0; k < BOX_DEPTH; k++)
            free(w->boxes[i].ring[k].data);
    pthread_mutex_destroy(&w->lock);
    pthread_cond_destroy(&w->news);
    free(w->boxes);
    free(w->gone);
    free(w);
}

/* rank -1: whoever opens them, who holds the world together until all are there. */
static void leave(struct world *w, int rank)
{
    pthread_mutex_lock(&w->lock);
    if (rank >= 0)
        w->gone[rank] = true;
    bool last = --w->open == 0;
    pthread_cond_broadcast(&w->news);
    pthread_mutex_unlock(&w->lock);
    if (last)
        world_free(w);
}

static bool thread_close(struct link *l, bool failed)
{
    (void)failed;
    leave(threaded(l)->world, l->rank);
    free(l);
    return true;
}

static const struct link_ops thread_ops = {.start = thread_start,
                                           .progress = thread_progress,
                                           .wait = thread_wait,
                                           .abort = thread_abort,
                                           .close = thread_close};

static struct world *world_make(int size)
{
    struct world *w = calloc(1, sizeof *w);
    if (!w)
        return NULL;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->news, NULL);
    w->size = size;
    w->open = 1;
    w->gone = calloc((size_t)size, sizeof *w->gone);
    w->boxes = calloc((size_t)size * (size_t)size, sizeof *w->boxes);
    if (w->gone && w->boxes)
        return w;
    world_free(w);
    return NULL;
}

static int open_rank(struct comm **c, struct world *w, int rank, double deadline)
{
    struct thread_link *t = calloc(1, sizeof *t);
    if (!t)
        return CKPT_ENOMEM;
    t->world = w;
    w->open++;
    t->link = (struct link){.ops = &thread_ops, .rank = rank, .size = w->size, .lost = -1};
    snprintf(t->link.how, sizeof t->link.how, "%d threads", w->size);
    return comm_open_linked(c, "threads", &t->link, deadline);
}

int comm_open_threads(struct comm **ranks, int size, double deadline)
{
    struct world *w = world_make(size);
    int rc = w ? 0 : CKPT_ENOMEM, made = 0;
    for (; made < size && !rc; made += !rc)
        rc = open_rank(&ranks[made], w, made, deadline);
    for (int r = 0; r < made && rc; r++)
        comm_close(ranks[r]);
    if (w)
        leave(w, -1);
    return rc ? error_set(CKPT_ENOMEM, "no memory for %d ranks", size) : 0;
}
