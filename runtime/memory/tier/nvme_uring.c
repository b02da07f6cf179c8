/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests through io_uring: one ring for reads and one for writes, so that two threads never share
 * a ring.  Files are registered; so is the staging memory if the kernel can pin it.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "memory/tier/nvme.h"

enum { DEPTH = 32, SLICES = 64 };

#define SLICE (INT64_C(1) << 30) /* the largest buffer that a ring registers */

struct lane {
    struct io_uring ring;
    bool open;
    bool broken; /* prepared requests in the ring must not be submitted */
    bool stuck;  /* submitted requests do not complete */
    struct nvme_pending_list pending;
    struct nvme_piece pieces[DEPTH];
    struct nvme_pending *owner[DEPTH]; /* the in-flight slot of each piece */
    int32_t free[DEPTH], n_free;
    int32_t queued, sent; /* requests prepared; submitted and not completed */
    double last_answer;   /* time of the last completion, for the deadline */
};

struct rings {
    struct lane lanes[2];
    bool buffers; /* the staging memory is registered with both rings */
};

/* ---- requests ---------------------------------------------------------------------------------
 */

/* The registered slice that contains all of a piece, or -1. */
static int slice_of(const struct nvme *n, const struct nvme_piece *p)
{
    const struct rings *r = n->state;
    int64_t from = p->memory - n->staging;
    if (!r->buffers || p->memory < n->staging || from + p->bytes > n->staged)
        return -1;
    return from / SLICE == (from + p->bytes - 1) / SLICE ? (int)(from / SLICE) : -1;
}

static int prepare(struct nvme *n, struct lane *l, bool write, int32_t slot)
{
    const struct nvme_piece *p = &l->pieces[slot];
    int slice = slice_of(n, p);
    unsigned bytes = (unsigned)p->bytes;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&l->ring);
    if (!sqe)
        return nvme_fail(n, write, p, "the ring is full");
    if (write && slice >= 0)
        io_uring_prep_write_fixed(sqe, p->file, p->memory, bytes, (uint64_t)p->at, slice);
    else if (write)
        io_uring_prep_write(sqe, p->file, p->memory, bytes, (uint64_t)p->at);
    else if (slice >= 0)
        io_uring_prep_read_fixed(sqe, p->file, p->memory, bytes, (uint64_t)p->at, slice);
    else
        io_uring_prep_read(sqe, p->file, p->memory, bytes, (uint64_t)p->at);
    sqe->flags |= IOSQE_FIXED_FILE;
    io_uring_sqe_set_data(sqe, (void *)(uintptr_t)(slot + 1));
    l->queued++;
    return 0;
}

static bool is_transient(int error)
{
    return error == -EINTR || error == -EAGAIN || error == -EBUSY;
}

static bool is_late(const struct nvme *n, const struct lane *l)
{
    return clock_seconds() - l->last_answer > n->deadline;
}

static void give_up(struct nvme *n, struct lane *l, bool write)
{
    l->broken = l->stuck = true;
    nvme_stuck(n, write);
}

/* Submits the prepared requests; retries later if the kernel is short of memory. */
static void submit(struct nvme *n, struct lane *l, bool write)
{
    while (l->queued) {
        int taken = n->sys->uring_submit(&l->ring);
        if (taken > 0) {
            l->queued -= taken;
            l->sent += taken;
        } else if (taken < 0 && !is_transient(taken)) {
            l->broken = true;
            char what[128];
            snprintf(what, sizeof what, "io_uring takes no request: %s", strerror(-taken));
            nvme_fail(n, write, &l->pieces[0], what);
            return;
        } else if (l->sent) {
            return;
        } else if (is_late(n, l)) {
            give_up(n, l, write);
            return;
        } else {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        }
    }
}

static void release(struct lane *l, int32_t slot)
{
    l->owner[slot]->out--;
    l->free[l->n_free++] = slot;
}

static void fail_pending(struct nvme_pending *f)
{
    f->failed = true;
    f->left.offset = f->left.end;
}

/* Fills the ring with pieces of the calls.  Writes are submitted one by one, so that the disk need
 * not wait for the checksums of all. */
static void fill(struct nvme *n, struct lane *l, bool write)
{
    while (l->n_free && !l->broken) {
        int32_t slot = l->free[l->n_free - 1];
        struct nvme_pending *f = nvme_pending_take(&l->pending, &n->files, &l->pieces[slot]);
        if (!f)
            break;
        l->owner[slot] = f;
        l->n_free--;
        if ((write && nvme_before_write(n, &l->pieces[slot])) || prepare(n, l, write, slot)) {
            fail_pending(f);
            release(l, slot);
        } else if (write) {
            submit(n, l, write);
        }
    }
    if (!l->broken)
        submit(n, l, write);
}

static void complete(struct nvme *n, struct lane *l, bool write, int32_t slot, int result)
{
    const struct nvme_piece *p = &l->pieces[slot];
    if (is_transient(result) && !is_late(n, l) &&
        !prepare(n, l, write, slot)) /* it was not started: submit it again */
        return;
    l->last_answer = clock_seconds();
    if (nvme_result(n, write, p, result) || (!write && nvme_after_read(n, p)))
        fail_pending(l->owner[slot]);
    release(l, slot);
}

/* Handles one completion.  A wait is for half of the first call's requests, since with few cores
 * each wake-up costs more than starting with the first completion gains. */
static void collect(struct nvme *n, struct lane *l, bool write)
{
    const struct nvme_pending *first = nvme_pending_first(&l->pending);
    int64_t half = max_i64(1, min_i64(l->sent, (first->out + 1) / 2));
    unsigned many = io_uring_cq_ready(&l->ring) ? 1 : (unsigned)half;
    struct io_uring_cqe *cqe = NULL;
    double whole = (double)(int64_t)n->deadline;
    struct __kernel_timespec t = {.tv_sec = (int64_t)whole,
                                  .tv_nsec = (long long)((n->deadline - whole) * 1e9)};
    int rc = n->sys->uring_wait(&l->ring, &cqe, many, &t);
    if (rc == -ETIME && many > 1) /* fewer may have completed */
        rc = n->sys->uring_wait(&l->ring, &cqe, 1, &(struct __kernel_timespec){0});
    if (rc == -ETIME || (is_transient(rc) && is_late(n, l))) {
        give_up(n, l, write);
    } else if (!is_transient(rc) && (rc || !cqe)) {
        l->stuck = l->broken; /* failed again while draining: what is in flight cannot be awaited */
        l->broken = true;
        nvme_fail(n, write, &l->pieces[0], strerror(-rc));
    } else if (!rc) {
        int32_t slot = (int32_t)(uintptr_t)io_uring_cqe_get_data(cqe) - 1;
        int result = cqe->res;
        io_uring_cqe_seen(&l->ring, cqe);
        l->sent--;
        complete(n, l, write, slot, result);
    }
}

/* Waits for the requests of the first call, or of all. */
static void await(struct nvme *n, struct lane *l, bool write, bool all)
{
    const struct nvme_pending *f = nvme_pending_first(&l->pending);
    while (l->sent && !l->stuck && (all || (!f->failed && !nvme_pending_done(f)))) {
        collect(n, l, write);
        fill(n, l, write);
    }
}

/* After a failure: starts no new requests and waits for all in flight. */
static void drain(struct nvme *n, struct lane *l, bool write)
{
    nvme_pending_cancel(&l->pending);
    await(n, l, write, true);
    l->pending.n = 0;
}

static void begin(struct nvme *n, struct lane *l, const struct nvme_call *call)
{
    if (!l->broken && nvme_pending_add(&l->pending, call)) {
        if (!l->sent)
            l->last_answer = clock_seconds();
        fill(n, l, call->write);
    }
}

static void uring_begin(struct nvme *n, const struct nvme_call *call)
{
    struct rings *r = n->state;
    begin(n, &r->lanes[call->write], call);
}

static int uring_move(struct nvme *n, const struct nvme_call *call)
{
    struct rings *r = n->state;
    struct lane *l = &r->lanes[call->write];
    const struct nvme_pending *f = nvme_pending_first(&l->pending);
    if (f && !nvme_pending_is(f, call))
        drain(n, l, call->write);
    if (!l->pending.n)
        begin(n, l, call);
    f = nvme_pending_first(&l->pending);
    if (!f)
        return CKPT_EIO;
    l->last_answer = clock_seconds();
    await(n, l, call->write, false);
    if (f->failed || l->broken) {
        drain(n, l, call->write);
        return CKPT_EIO;
    }
    nvme_pending_drop_first(&l->pending);
    return 0;
}

/* ---- opening ----------------------------------------------------------------------------------
 */

static int uring_fail(struct nvme *n, const char *what, int error, char *why, size_t size);

static int register_files(struct nvme *n, struct lane *l)
{
    int fds[TIER_DIRECTORIES];
    for (int32_t i = 0; i < n->files.n; i++)
        fds[i] = n->files.at[i].fd;
    return n->sys->uring_files(&l->ring, fds, (unsigned)n->files.n);
}

/* The kernel refuses memory that a driver mapped, or beyond the lock limit: then requests use
 * unregistered memory. */
static bool register_staging(struct nvme *n, struct lane *l)
{
    struct iovec v[SLICES];
    unsigned slices = 0;
    if (!n->staging || n->staged > SLICES * SLICE)
        return false;
    for (int64_t from = 0; from < n->staged; from += SLICE)
        v[slices++] = (struct iovec){n->staging + from, (size_t)min_i64(SLICE, n->staged - from)};
    return !n->sys->uring_buffers(&l->ring, v, slices);
}

static int open_lane(struct nvme *n, struct lane *l, char *why, size_t size)
{
    int rc = n->sys->uring_init(DEPTH, &l->ring);
    if (rc)
        return uring_fail(n, "io_uring", rc, why, size);
    l->open = true;
    for (int32_t i = 0; i < DEPTH; i++)
        l->free[l->n_free++] = i;
    rc = register_files(n, l);
    return rc ? uring_fail(n, "io_uring, registering files", rc, why, size) : 0;
}

/* The kernel frees a ring asynchronously, and until then keeps the files and their disk space: so
 * both are unregistered first.  With a hung request unregistering would hang as well. */
static bool uring_close(struct nvme *n)
{
    struct rings *r = n->state;
    for (int i = 0; i < 2; i++) {
        drain(n, &r->lanes[i], i);
        if (r->lanes[i].open && !r->lanes[i].stuck)
            n->sys->uring_forget(&r->lanes[i].ring);
        if (r->lanes[i].open)
            n->sys->uring_exit(&r->lanes[i].ring);
    }
    free(r);
    n->state = NULL;
    return true;
}

static int uring_fail(struct nvme *n, const char *what, int error, char *why, size_t size)
{
    snprintf(why, size, "%s: %s", what, strerror(-error));
    uring_close(n);
    return CKPT_EIO;
}

static int uring_open(struct nvme *n, char *why, size_t size)
{
    struct rings *r = calloc(1, sizeof *r);
    n->state = r;
    if (!r) {
        snprintf(why, size, "io_uring: out of memory");
        return CKPT_ENOMEM;
    }
    for (int i = 0; i < 2; i++) {
        int rc = open_lane(n, &r->lanes[i], why, size);
        if (rc)
            return rc;
    }
    return 0;
}

static void uring_stage(struct nvme *n)
{
    struct rings *r = n->state;
    r->buffers = register_staging(n, &r->lanes[0]) && register_staging(n, &r->lanes[1]);
}

static void uring_describe(struct nvme *n, char *dst, size_t size)
{
    const struct rings *r = n->state;
    snprintf(dst, size, "io_uring%s", r->buffers ? ", registered buffers" : "");
}

const struct nvme_io nvme_uring = {.open = uring_open,
                                   .stage = uring_stage,
                                   .move = uring_move,
                                   .begin = uring_begin,
                                   .close = uring_close,
                                   .describe = uring_describe};
