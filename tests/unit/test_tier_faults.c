/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier when system calls fail, each n-th call in turn: one sentence that names the tier
 * and the directory, no file or descriptor left, and no endless wait.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <cmocka.h>
#include "test_directory.h"
#include "memory/tier/sys.h"
#include "memory/tier/tier.h"

#define MIB (INT64_C(1) << 20)

enum call {
    CALL_NONE,
    CALL_MMAP,
    CALL_OPEN,
    CALL_UNLINK,
    CALL_STATVFS,
    CALL_FALLOCATE,
    CALL_FTRUNCATE,
    CALL_PREAD,
    CALL_PWRITE,
    CALL_INIT,
    CALL_BUFFERS,
    CALL_FILES,
    CALL_SUBMIT,
    CALL_WAIT,
    CALL_COMPLETION,
    CALL_COUNT
};

/* The outcome of the n-th call. */
enum harm { HARM_ERROR, HARM_SHORT, HARM_NEVER };

static struct {
    enum call call;
    enum harm harm;
    int error, nth, hit;
    bool no_tmpfile, no_fallocate;
} fault;

static int counts[CALL_COUNT], opened, closed;
static int rings, forgotten; /* taken down, and before that rid of what was registered */
static int last_fd = -1;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool hold; /* requests that never complete are kept */

static bool strikes(enum call call)
{
    pthread_mutex_lock(&lock);
    bool strike = ++counts[call] == fault.nth && call == fault.call;
    fault.hit = fault.hit || strike;
    pthread_mutex_unlock(&lock);
    if (strike)
        errno = fault.error;
    return strike;
}

static int count(int *n, int add)
{
    pthread_mutex_lock(&lock);
    int now = *n += add;
    pthread_mutex_unlock(&lock);
    return now;
}

static void wait_for_release(void)
{
    pthread_mutex_lock(&lock);
    while (hold)
        pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
}

static void release(bool keep)
{
    pthread_mutex_lock(&lock);
    hold = keep;
    pthread_cond_broadcast(&released);
    pthread_mutex_unlock(&lock);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void *bad_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return strikes(CALL_MMAP) ? (void *)-1
                              : tier_system.mmap(at, bytes, protection, flags, fd, offset);
}

static int bad_open(const char *name, int flags, mode_t mode)
{
    if (strikes(CALL_OPEN))
        return -1;
    if (fault.no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    int fd = open(name, flags, mode);
    if (fd >= 0) {
        last_fd = fd;
        count(&opened, 1);
    }
    return fd;
}

static int bad_unlink(const char *name)
{
    return strikes(CALL_UNLINK) ? -1 : unlink(name);
}

static int bad_statvfs(int fd, struct statvfs *s)
{
    return strikes(CALL_STATVFS) ? -1 : fstatvfs(fd, s);
}

static int bad_fallocate(int fd, int mode, off_t offset, off_t bytes)
{
    if (strikes(CALL_FALLOCATE))
        return -1;
    if (!fault.no_fallocate)
        return fallocate(fd, mode, offset, bytes);
    errno = EOPNOTSUPP;
    return -1;
}

static int bad_ftruncate(int fd, off_t bytes)
{
    return strikes(CALL_FTRUNCATE) ? -1 : ftruncate(fd, bytes);
}

static ssize_t bad_pread(int fd, void *dst, size_t bytes, off_t offset)
{
    bool strike = strikes(CALL_PREAD);
    if (strike && fault.harm == HARM_ERROR)
        return -1;
    if (strike && fault.harm == HARM_NEVER)
        wait_for_release();
    return pread(fd, dst, strike && fault.harm == HARM_SHORT ? bytes / 2 : bytes, offset);
}

static ssize_t bad_pwrite(int fd, const void *src, size_t bytes, off_t offset)
{
    bool strike = strikes(CALL_PWRITE);
    if (strike && fault.harm == HARM_ERROR)
        return -1;
    if (strike && fault.harm == HARM_NEVER)
        wait_for_release();
    if (strike && fault.harm == HARM_SHORT)
        return bytes > TIER_BLOCK ? pwrite(fd, src, bytes / 2, offset) : 0;
    return pwrite(fd, src, bytes, offset);
}

/* From inside the call on: an abandoned thread may close later than the test checks. */
static int bad_close(int fd)
{
    int rc = close(fd);
    count(&closed, 1);
    return rc;
}

#ifdef HAVE_LIBURING
static int bad_init(unsigned entries, struct io_uring *ring)
{
    return strikes(CALL_INIT) ? -fault.error : tier_system.uring_init(entries, ring);
}

static int bad_buffers(struct io_uring *ring, const struct iovec *v, unsigned n)
{
    return strikes(CALL_BUFFERS) ? -fault.error : tier_system.uring_buffers(ring, v, n);
}

static int bad_files(struct io_uring *ring, const int *fds, unsigned n)
{
    return strikes(CALL_FILES) ? -fault.error : tier_system.uring_files(ring, fds, n);
}

static int bad_submit(struct io_uring *ring)
{
    return strikes(CALL_SUBMIT) ? -fault.error : tier_system.uring_submit(ring);
}

static int bad_wait(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                    struct __kernel_timespec *timeout)
{
    bool never = fault.call == CALL_WAIT && fault.error == ETIME && fault.hit;
    if (strikes(CALL_WAIT) || never)
        return -fault.error;
    int rc = tier_system.uring_wait(ring, cqe, n, timeout);
    if (!rc && strikes(CALL_COMPLETION))
        (*cqe)->res = fault.harm == HARM_SHORT ? (*cqe)->res / 2 : -fault.error;
    return rc;
}

static void count_forget(struct io_uring *ring)
{
    forgotten++;
    tier_system.uring_forget(ring);
}

static void count_exit(struct io_uring *ring)
{
    rings++;
    tier_system.uring_exit(ring);
}
#endif

static struct tier_sys bad_system(void)
{
    struct tier_sys s = tier_system;
    s.mmap = bad_mmap;
    s.open = bad_open;
    s.unlink = bad_unlink;
    s.statvfs = bad_statvfs;
    s.fallocate = bad_fallocate;
    s.ftruncate = bad_ftruncate;
    s.pread = bad_pread;
    s.pwrite = bad_pwrite;
    s.close = bad_close;
#ifdef HAVE_LIBURING
    s.uring_init = bad_init;
    s.uring_buffers = bad_buffers;
    s.uring_files = bad_files;
    s.uring_submit = bad_submit;
    s.uring_wait = bad_wait;
    s.uring_forget = count_forget;
    s.uring_exit = count_exit;
#endif
    return s;
}

/* ---- what a program does with a tier --------------------------------------------------------- */

static struct tier_sys system_used;
static char *memory;
static char message[1024], how[256];

enum { STAGED = 4 };

/* Two pieces; the second begins before the first is complete. */
static int go_through(struct tier *t, bool write, int64_t offset)
{
    return tier_stream_run(&(struct tier_stream){t, write, offset, 2 * MIB, MIB, memory});
}

static int use_tier(struct tier *t)
{
    for (int64_t i = 0; i < 3; i++) {
        int rc = t->ops->reserve(t, (2 * i + 2) * MIB);
        if (rc) {
            snprintf(message, sizeof message, "%s", error_get());
            return rc;
        }
        memset(memory, 'a' + (int)i, 2 * MIB);
        rc = go_through(t, true, 2 * i * MIB);
        if (!rc) {
            memset(memory, 0, 2 * MIB);
            rc = go_through(t, false, 2 * i * MIB);
        }
        if (rc) {
            snprintf(message, sizeof message, "%s", t->reason);
            return rc;
        }
        assert_true(memory[0] == 'a' + (int)i && !memcmp(memory, memory + 1, 2 * MIB - 1));
    }
    return 0;
}

static double patience = 20; /* s */

/* *stuck becomes whether it got stuck. */
static int run(enum tier_io io, bool *stuck)
{
    struct tier_directories d = {.n = 1, .at = {{"", 6 * MIB}}, .bytes = 6 * MIB};
    snprintf(d.at[0].path, TIER_PATH, "%s", dir);
    struct tier_nvme_options o = {.directories = &d,
                                  .io = io,
                                  .deadline = patience,
                                  .staging = memory,
                                  .staged = STAGED * MIB,
                                  .sys = &system_used};
    struct tier *t;
    memset(counts, 0, sizeof counts);
    fault.hit = *stuck = 0;
    *message = *how = 0;
    opened = closed = rings = forgotten = 0;
    int rc = tier_open_nvme(&t, &o);
    if (rc) {
        snprintf(message, sizeof message, "%s", error_get());
        return rc;
    }
    rc = use_tier(t);
    *stuck = t->stuck;
    snprintf(how, sizeof how, "%s", t->how);
    assert_int_equal(t->cached, strstr(how, "page cache") != NULL);
    /* a second failure leaves the first sentence */
    if (rc && *t->reason)
        assert_int_equal(t->ops->read(t, 1, memory, 1), CKPT_EIO);
    t->ops->close(t);
    return rc;
}

static void check_closed(void)
{
    for (int i = 0; i < 1000 && count(&closed, 0) < count(&opened, 0); i++)
        usleep(10000);
    assert_int_equal(count(&closed, 0), count(&opened, 0));
    assert_int_equal(names_in_dir(), 0);
}

/* ---- each n-th call -------------------------------------------------------------------------- */

enum outcome { FAILS, SURVIVES };

struct row {
    const char *name;
    enum call call;
    enum harm harm;
    int error;
    enum outcome outcome;
    int harmless;     /* the first so many calls only choose what is used */
    const char *says; /* a part of the sentence, or of how */
};

static const struct row shared_rows[] = {
    {"mmap", CALL_MMAP, HARM_ERROR, ENOMEM, FAILS, 0, "no memory"},
    {"open", CALL_OPEN, HARM_ERROR, EMFILE, FAILS, 0, "Too many open files"},
    {"open without O_DIRECT", CALL_OPEN, HARM_ERROR, EINVAL, SURVIVES, 0, "no O_DIRECT"},
    {"open without O_TMPFILE", CALL_OPEN, HARM_ERROR, EOPNOTSUPP, SURVIVES, 0, "O_DIRECT"},
    {"statvfs", CALL_STATVFS, HARM_ERROR, EIO, FAILS, 0, "free space: Input/output error"},
    {"fallocate", CALL_FALLOCATE, HARM_ERROR, ENOSPC, FAILS, 0, "No space left"},
    {"fallocate of a bad disk", CALL_FALLOCATE, HARM_ERROR, EIO, FAILS, 0, "Input/output error"},
    {"fallocate interrupted", CALL_FALLOCATE, HARM_ERROR, EINTR, SURVIVES, 0, "1 directory"},
    {"no fallocate there", CALL_FALLOCATE, HARM_ERROR, EOPNOTSUPP, SURVIVES, 0, "1 directory"},
};

static const struct row pool_rows[] = {
    {"pread", CALL_PREAD, HARM_ERROR, EIO, FAILS, 0, "Input/output error"},
    {"pread interrupted", CALL_PREAD, HARM_ERROR, EINTR, SURVIVES, 0, "8 threads"},
    {"short pread", CALL_PREAD, HARM_SHORT, 0, FAILS, 0, "ended short, after"},
    {"pread for ever", CALL_PREAD, HARM_NEVER, 0, FAILS, 0, "did not complete within"},
    {"pwrite", CALL_PWRITE, HARM_ERROR, EIO, FAILS, 0, "Input/output error"},
    {"pwrite, disk full", CALL_PWRITE, HARM_ERROR, ENOSPC, FAILS, 0, "No space left"},
    {"pwrite interrupted", CALL_PWRITE, HARM_ERROR, EINTR, SURVIVES, 0, "8 threads"},
    {"O_DIRECT in name only", CALL_PWRITE, HARM_ERROR, EINVAL, FAILS, 1, "Invalid argument"},
    {"O_DIRECT to write only", CALL_PREAD, HARM_ERROR, EINVAL, FAILS, 1, "Invalid argument"},
    {"short pwrite", CALL_PWRITE, HARM_SHORT, 0, FAILS, 0, "ended short, after"},
    {"pwrite for ever", CALL_PWRITE, HARM_NEVER, 0, FAILS, 0, "did not complete within"},
};

static const struct row uring_rows[] = {
    {"io_uring forbidden", CALL_INIT, HARM_ERROR, EPERM, FAILS, 0, "Operation not permitted"},
    {"no io_uring", CALL_INIT, HARM_ERROR, ENOSYS, FAILS, 0, "Function not implemented"},
    {"files", CALL_FILES, HARM_ERROR, EMFILE, FAILS, 0, "registering files"},
    {"buffers", CALL_BUFFERS, HARM_ERROR, EOPNOTSUPP, SURVIVES, 0, "io_uring, O_DIRECT"},
    {"submit", CALL_SUBMIT, HARM_ERROR, EBADF, FAILS, 0, "io_uring takes no request"},
    {"submit, kernel short of memory", CALL_SUBMIT, HARM_ERROR, EAGAIN, SURVIVES, 0, "io_uring"},
    {"submit, ring busy", CALL_SUBMIT, HARM_ERROR, EBUSY, SURVIVES, 0, "io_uring"},
    {"wait", CALL_WAIT, HARM_ERROR, EBADF, FAILS, 0, "Bad file descriptor"},
    {"wait interrupted", CALL_WAIT, HARM_ERROR, EINTR, SURVIVES, 0, "io_uring"},
    {"wait for ever", CALL_WAIT, HARM_ERROR, ETIME, FAILS, 0, "did not complete within"},
    {"request", CALL_COMPLETION, HARM_ERROR, EIO, FAILS, 0, "Input/output error"},
    {"request, disk full", CALL_COMPLETION, HARM_ERROR, ENOSPC, FAILS, 0, "No space left"},
    {"request again", CALL_COMPLETION, HARM_ERROR, EAGAIN, SURVIVES, 0, "io_uring"},
    {"O_DIRECT in name only", CALL_COMPLETION, HARM_ERROR, EINVAL, FAILS, 2, "Invalid argument"},
    {"short request", CALL_COMPLETION, HARM_SHORT, 0, FAILS, 0, "ended short, after"},
};

#define N_ROWS(rows) ((int)(sizeof rows / sizeof *(rows)))

/* Calls of its row, including the probe at open, after whose failure AUTO continues with threads.
 * */
static int probed(const struct row *r, enum tier_io io)
{
    if (io == TIER_IO_AUTO && r->call == CALL_MMAP)
        return 1;
    if (io != TIER_IO_AUTO || r->call < CALL_INIT || r->error == ETIME)
        return 0;
    return r->call >= CALL_SUBMIT ? 2 : 1000;
}

static void check_outcome(const struct row *r, enum tier_io io, int nth, int rc, bool stuck)
{
    bool survives = r->outcome == SURVIVES || nth <= r->harmless || nth <= probed(r, io);
    if (survives != !rc)
        fail_msg("%s, call %d: returned %d: %s", r->name, nth, rc, message);
    if (rc && !strstr(message, "nvme tier: "))
        fail_msg("%s, call %d: '%s' does not name the tier", r->name, nth, message);
    if (rc && r->call != CALL_MMAP && r->call != CALL_INIT && r->call != CALL_FILES &&
        !strstr(message, dir))
        fail_msg("%s, call %d: '%s' does not name the directory", r->name, nth, message);
    if (nth > r->harmless && nth > probed(r, io) && !strstr(rc ? message : how, r->says))
        fail_msg("%s, call %d: '%s' does not say '%s'", r->name, nth, rc ? message : how, r->says);
    if (rc && counts[CALL_FALLOCATE]) /* open went well */
        assert_int_equal(stuck, r->harm == HARM_NEVER || r->error == ETIME);
}

static void check_rings(const struct row *r)
{
    int stuck = count(&fault.hit, 0) && r->error == ETIME; /* to forget might be to wait for ever */
    assert_int_equal(forgotten, rings - stuck);
}

static int run_to_end(enum tier_io io, bool *stuck)
{
    release(true);
    int rc = run(io, stuck);
    release(false);
    check_closed();
    return rc;
}

/* Returns the number of calls that were made to fail. */
static int run_row(const struct row *r, enum tier_io io)
{
    bool stuck;
    fault.call = r->call;
    fault.harm = r->harm;
    fault.error = r->error;
    for (fault.nth = 1;; fault.nth += r->harm == HARM_NEVER ? 3 : 1) { /* those take their time */
        patience = r->harm == HARM_NEVER ? 0.4 : 20;
        int rc = run_to_end(io, &stuck);
        patience = 20;
        if ((rc || forgotten != rings) && !count(&fault.hit, 0) && r->harm == HARM_NEVER)
            rc = run_to_end(io, &stuck); /* a busy disk is late, too, perhaps while it closes */
        check_rings(r);
        if (!count(&fault.hit, 0)) {
            assert_int_equal(rc, 0);
            return fault.nth - 1;
        }
        check_outcome(r, io, fault.nth, rc, stuck);
    }
}

static void run_rows(const struct row *rows, int n, enum tier_io io)
{
    for (int i = 0; i < n; i++) {
        if (!run_row(&rows[i], io))
            fail_msg("%s: no such call was made", rows[i].name);
    }
}

static bool have_uring(void)
{
    bool stuck;
    fault.call = CALL_NONE;
    bool have = !run(TIER_IO_URING, &stuck);
    if (!have)
        print_message("without io_uring: %s\n", message);
    return have;
}

static void test_pool(void **state)
{
    (void)state;
    run_rows(shared_rows, N_ROWS(shared_rows), TIER_IO_POOL);
    run_rows(pool_rows, N_ROWS(pool_rows), TIER_IO_POOL);
}

static void test_uring(void **state)
{
    (void)state;
    if (!have_uring())
        skip();
    run_rows(shared_rows, N_ROWS(shared_rows), TIER_IO_URING);
    run_rows(uring_rows, N_ROWS(uring_rows), TIER_IO_URING);
}

static void test_auto(void **state)
{
    (void)state;
    if (!have_uring())
        skip();
    run_rows(shared_rows, N_ROWS(shared_rows), TIER_IO_AUTO);
    run_rows(uring_rows, N_ROWS(uring_rows), TIER_IO_AUTO);
}

/* ---- other file systems ---------------------------------------------------------------------- */

static void test_no_tmpfile(void **state)
{
    (void)state;
    static const struct row row = {"unlink", CALL_UNLINK, HARM_ERROR,         EACCES,
                                   FAILS,    0,           "Permission denied"};
    bool stuck;
    char orphan[128];
    snprintf(orphan, sizeof orphan, "%s/.ckpt-park", dir);
    fault.no_tmpfile = true;
    fault.call = CALL_NONE;
    fclose(fopen(orphan, "w")); /* of one that was killed: removed */
    assert_int_equal(run(TIER_IO_POOL, &stuck), 0);
    check_closed();
    fault.call = row.call;
    fault.error = row.error;
    fault.nth = 1;
    int rc = run(TIER_IO_POOL, &stuck);
    assert_int_equal(unlink(orphan), 0); /* it could not be removed */
    check_outcome(&row, TIER_IO_POOL, 1, rc, stuck);
    check_closed();
    fault.no_tmpfile = false;
}

static void test_no_fallocate(void **state)
{
    (void)state;
    static const struct row row = {"ftruncate", CALL_FTRUNCATE,  HARM_ERROR, EFBIG, FAILS,
                                   0,           "File too large"};
    bool stuck;
    fault.no_fallocate = true;
    fault.call = CALL_NONE;
    assert_int_equal(run(TIER_IO_POOL, &stuck), 0);
    assert_non_null(strstr(how, "not preallocated"));
    assert_true(run_row(&row, TIER_IO_POOL) > 0);
    fault.no_fallocate = false;
}

/* ---- a disk that has little ------------------------------------------------------------------ */

static int64_t blocks_free, blocks_all;

static int small_statvfs(int fd, struct statvfs *s)
{
    int rc = fstatvfs(fd, s);
    s->f_frsize = 4096;
    s->f_blocks = (fsblkcnt_t)blocks_all;
    s->f_bavail = (fsblkcnt_t)blocks_free;
    return rc;
}

/* Both directories are on one disk, which must have space for both and keeps a 64th free. */
static void test_small_disk(void **state)
{
    (void)state;
    struct tier_directories d = {.n = 2, .at = {{"", 4 * MIB}, {"", 4 * MIB}}, .bytes = 8 * MIB};
    struct tier_nvme_options o = {.directories = &d, .io = TIER_IO_POOL, .sys = &system_used};
    struct tier *t;
    for (int i = 0; i < 2; i++)
        snprintf(d.at[i].path, TIER_PATH, "%s", dir);
    fault.call = CALL_NONE;
    system_used.statvfs = small_statvfs;
    assert_int_equal(tier_open_nvme(&t, &o), 0);
    blocks_all = 64 * 100;
    blocks_free = 6 * MIB / 4096 + 100;
    assert_int_equal(t->ops->reserve(t, 6 * MIB), 0);
    blocks_free = 2 * MIB / 4096 + 99;
    assert_int_equal(t->ops->reserve(t, 8 * MIB), CKPT_ENOMEM);
    assert_int_equal(t->bytes, 6 * MIB);
    char expected[256];
    snprintf(expected, sizeof expected,
             "nvme tier: %s: 2.00 MiB (2097152 bytes) are needed, the disk has 2.00 MiB free: "
             "4096 bytes short",
             dir);
    assert_string_equal(error_get(), expected);
    blocks_free = 2 * MIB / 4096 + 100;
    assert_int_equal(t->ops->reserve(t, 8 * MIB), 0);
    t->ops->close(t);
    system_used = bad_system();
}

/* ---- a flipped bit --------------------------------------------------------------------------- */

static void flip(int64_t bit)
{
    int64_t at = bit / 8 / TIER_BLOCK * TIER_BLOCK;
    char *block = memory + 5 * MIB;
    assert_int_equal(pread(last_fd, block, TIER_BLOCK, at), TIER_BLOCK);
    block[bit / 8 - at] ^= (char)(1 << bit % 8);
    assert_int_equal(pwrite(last_fd, block, TIER_BLOCK, at), TIER_BLOCK);
}

static void test_flipped_bit(void **state)
{
    (void)state;
    struct tier_directories d = {.n = 1, .at = {{"", 6 * MIB}}, .bytes = 6 * MIB};
    struct tier_nvme_options o = {.directories = &d, .sys = &system_used};
    snprintf(d.at[0].path, TIER_PATH, "%s", dir);
    fault.call = CALL_NONE;
    for (int io = TIER_IO_AUTO; io <= TIER_IO_POOL; io += TIER_IO_POOL - TIER_IO_AUTO) {
        struct tier *t;
        o.io = (enum tier_io)io;
        assert_int_equal(tier_open_nvme(&t, &o), 0);
        assert_int_equal(t->ops->reserve(t, 4 * MIB), 0);
        memset(memory, 'x', 4 * MIB);
        assert_int_equal(t->ops->write(t, 0, memory, 3 * MIB + TIER_BLOCK), 0);
        assert_int_equal(t->ops->read(t, 0, memory, 3 * MIB + TIER_BLOCK), 0);
        for (int64_t bit = 0; bit < 8 * (3 * MIB + TIER_BLOCK); bit += 8 * 399989 + 5) {
            flip(bit);
            assert_int_equal(t->ops->read(t, 0, memory, 3 * MIB + TIER_BLOCK), CKPT_EIO);
            assert_non_null(strstr(t->reason, "the bytes differ from those written"));
            assert_non_null(strstr(t->reason, dir));
            flip(bit);
            assert_int_equal(t->ops->read(t, 0, memory, 3 * MIB + TIER_BLOCK), 0);
        }
        t->ops->close(t);
    }
}

/* ---- a slow disk ----------------------------------------------------------------------------- */

#ifdef HAVE_LIBURING
/* As if the time ended before all requests completed: one request each time is enough. */
static int impatient_wait(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                          struct __kernel_timespec *timeout)
{
    struct __kernel_timespec long_enough = {.tv_sec = 20};
    if (n > 1)
        return -ETIME;
    counts[CALL_WAIT]++;
    return tier_system.uring_wait(ring, cqe, 1,
                                  timeout->tv_sec || timeout->tv_nsec ? timeout : &long_enough);
}
#endif

static void test_slow_disk(void **state)
{
    (void)state;
    bool stuck;
    if (!have_uring())
        skip();
#ifdef HAVE_LIBURING
    system_used.uring_wait = impatient_wait;
    assert_int_equal(run(TIER_IO_URING, &stuck), 0);
    assert_true(counts[CALL_WAIT] >= 3 * 4);
#endif
    system_used = bad_system();
    assert_int_equal(run(TIER_IO_URING, &stuck), 0);
    assert_false(stuck);
}

/* ---- kill -9 --------------------------------------------------------------------------------- */

static void test_killed(void **state)
{
    (void)state;
    for (int named = 0; named < 2; named++) {
        int ready[2], status;
        char one;
        assert_int_equal(pipe(ready), 0);
        pid_t child = fork();
        if (!child) {
            struct tier_directories d = {.n = 1, .at = {{"", 6 * MIB}}, .bytes = 6 * MIB};
            struct tier_nvme_options o = {.directories = &d, .sys = &system_used};
            struct tier *t;
            snprintf(d.at[0].path, TIER_PATH, "%s", dir);
            fault.call = CALL_NONE;
            fault.no_tmpfile = named;
            if (!tier_open_nvme(&t, &o) && !t->ops->reserve(t, 6 * MIB) &&
                !t->ops->write(t, 0, memory, 2 * MIB) && write(ready[1], "x", 1) == 1)
                pause();
            _exit(1);
        }
        close(ready[1]);
        assert_int_equal(read(ready[0], &one, 1), 1);
        close(ready[0]);
        kill(child, SIGKILL);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSIGNALED(status));
        assert_int_equal(names_in_dir(), 0);
    }
}

static int begin(void **state)
{
    system_used = bad_system();
    memory = aligned_alloc(TIER_BLOCK, 6 * MIB);
    return memory ? make_dir(state) : -1;
}

static int end(void **state)
{
    free(memory);
    return remove_dir(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool),         cmocka_unit_test(test_uring),
        cmocka_unit_test(test_auto),         cmocka_unit_test(test_no_tmpfile),
        cmocka_unit_test(test_no_fallocate), cmocka_unit_test(test_small_disk),
        cmocka_unit_test(test_flipped_bit),  cmocka_unit_test(test_slow_disk),
        cmocka_unit_test(test_killed),
    };

    return cmocka_run_group_tests(tests, begin, end) ? 1 : 0;
}
