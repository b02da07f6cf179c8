/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The NVMe tier: checks calls, keeps checksums, reports failures, selects a back end.
 *
 * What always holds: a call lies in blocks of TIER_BLOCK bytes, as O_DIRECT demands, within the
 * bytes that are reserved.  A read returns the bytes of the last write of the same block, or fails:
 * their checksum is compared.  Of several failures the first sentence stays.  After a request that
 * missed the deadline the tier is stuck: nothing is submitted any more, and what the kernel may
 * still write to is never freed.  The lock guards the sentence and the two flags, which threads of
 * a back end set.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "memory/tier/nvme.h"

#define DEADLINE 30. /* seconds; a drive that resets itself needs about ten */

static struct nvme *nvme(struct tier *t)
{
    return (struct nvme *)t;
}

/* ---- failures ---------------------------------------------------------------------------------
 */

/* The later failures are mostly consequences of the first. */
static int keep_reason(struct nvme *n, const char *sentence)
{
    pthread_mutex_lock(&n->lock);
    if (!*n->tier.reason)
        snprintf(n->tier.reason, sizeof n->tier.reason, "%s", sentence);
    pthread_mutex_unlock(&n->lock);
    return CKPT_EIO;
}

int nvme_fail(struct nvme *n, bool write, const struct nvme_piece *p, const char *what)
{
    char sentence[sizeof n->tier.reason];
    snprintf(sentence, sizeof sentence,
             "nvme tier: %s of %lld bytes at byte %lld of the file in %.500s: %.300s",
             write ? "write" : "read", (long long)p->bytes, (long long)p->at,
             n->files.at[p->file].directory, what);
    return keep_reason(n, sentence);
}

int nvme_stuck(struct nvme *n, bool write)
{
    char sentence[sizeof n->tier.reason];
    snprintf(sentence, sizeof sentence, "nvme tier: a %s in %.500s%s did not complete within %g s",
             write ? "write" : "read", n->files.at[0].directory,
             n->files.n > 1 ? " and others" : "", n->deadline);
    pthread_mutex_lock(&n->lock);
    n->tier.stuck = true;
    pthread_mutex_unlock(&n->lock);
    return keep_reason(n, sentence);
}

static bool is_stuck(struct nvme *n)
{
    pthread_mutex_lock(&n->lock);
    bool stuck = n->tier.stuck;
    pthread_mutex_unlock(&n->lock);
    return stuck;
}

/* ---- requests ---------------------------------------------------------------------------------
 */

int nvme_before_write(struct nvme *n, const struct nvme_piece *p)
{
    uint64_t sum = checksum(p->memory, p->bytes);
    if (sum_table_put(&n->sums, p->offset, p->bytes, sum))
        return nvme_fail(n, true, p, "no memory for its checksum");
    return 0;
}

int nvme_after_read(struct nvme *n, const struct nvme_piece *p)
{
    uint64_t sum;
    if (!sum_table_get(&n->sums, p->offset, p->bytes, &sum))
        return nvme_fail(n, false, p, "no such block was written");
    if (checksum(p->memory, p->bytes) != sum)
        return nvme_fail(n, false, p,
                         "the bytes differ from those written: their checksum is another");
    return 0;
}

int nvme_result(struct nvme *n, bool write, const struct nvme_piece *p, int64_t result)
{
    char what[128];
    if (result == p->bytes)
        return 0;
    if (result == -EINVAL) { /* O_DIRECT was accepted and is rejected now: see open_files */
        pthread_mutex_lock(&n->lock);
        n->invalid = true;
        pthread_mutex_unlock(&n->lock);
    }
    if (result < 0)
        return nvme_fail(n, write, p, strerror((int)-result));
    snprintf(what, sizeof what, "it ended short, after %lld bytes", (long long)result);
    return nvme_fail(n, write, p, what);
}

static bool is_valid(const struct nvme *n, const struct nvme_call *call)
{
    int64_t bits = call->offset | call->end | (int64_t)(intptr_t)call->memory;
    return call->offset >= 0 && call->offset <= call->end &&
           call->end <= round_up(n->tier.bytes, TIER_BLOCK) && bits % TIER_BLOCK == 0;
}

static int check_call(struct nvme *n, const struct nvme_call *call)
{
    char sentence[200];
    if (is_valid(n, call))
        return 0;
    snprintf(sentence, sizeof sentence,
             "nvme tier: %s of bytes %lld to %lld of %lld from %p: not within, or not in blocks of "
             "%d",
             call->write ? "write" : "read", (long long)call->offset, (long long)call->end,
             (long long)n->tier.bytes, (void *)call->memory, TIER_BLOCK);
    return keep_reason(n, sentence);
}

static int move(struct nvme *n, const struct nvme_call *call)
{
    if (check_call(n, call) || is_stuck(n))
        return CKPT_EIO;
    return call->offset == call->end ? 0 : n->io->move(n, call);
}

/* A write only reads the memory, whatever its type. */
static int nvme_write(struct tier *t, int64_t offset, const void *src, int64_t bytes)
{
    struct nvme_call call = {true, offset, offset + bytes, (char *)(uintptr_t)src};
    return move(nvme(t), &call);
}

static int nvme_read(struct tier *t, int64_t offset, void *dst, int64_t bytes)
{
    struct nvme_call call = {false, offset, offset + bytes, dst};
    return move(nvme(t), &call);
}

/* Reports nothing: the call that waits for these bytes checks again, and has a code to return. */
static void nvme_begin(struct tier *t, bool write, int64_t offset, void *memory, int64_t bytes)
{
    struct nvme *n = nvme(t);
    struct nvme_call call = {write, offset, offset + bytes, memory};
    if (bytes && is_valid(n, &call) && !is_stuck(n))
        n->io->begin(n, &call);
}

/* ---- opening ----------------------------------------------------------------------------------
 */

/* Writes and reads a block at the start of every file: before anything is reserved, the size that
 * calls are checked against is set for it. */
static int probe_blocks(struct nvme *n, char *block)
{
    int rc = 0;
    n->tier.bytes = n->files.zones[0].n * TIER_STRIPE;
    for (int32_t i = 0; i < n->files.zones[0].n && !rc; i++) {
        memset(block, 'a' + i, TIER_BLOCK);
        rc = nvme_write(&n->tier, i * TIER_STRIPE, block, TIER_BLOCK);
        if (!rc)
            rc = nvme_read(&n->tier, i * TIER_STRIPE, block, TIER_BLOCK);
    }
    n->tier.bytes = 0;
    sum_table_clear(&n->sums);
    return rc;
}

/* Tests the back end; the sentence of a failure is in tier.reason.  The block is a separate
 * mapping: after a deadline the kernel may still write to it, so it then stays mapped. */
static int probe(struct nvme *n)
{
    char *block =
        n->sys->mmap(NULL, TIER_BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED)
        return keep_reason(n, "nvme tier: no memory to try the disk with");
    int rc = probe_blocks(n, block);
    if (!is_stuck(n))
        n->sys->munmap(block, TIER_BLOCK);
    return rc;
}

static void close_backend(struct nvme *n)
{
    if (n->io)
        n->io->close(n);
    n->io = NULL;
    *n->tier.reason = 0;
}

static int try_backend(struct nvme *n, const struct nvme_io *io, char *why, size_t size)
{
    n->io = io;
    int rc = io->open(n, why, size);
    if (rc) {
        n->io = NULL;
        return rc;
    }
    rc = probe(n);
    if (rc)
        snprintf(why, size, "%s", n->tier.reason);
    return rc;
}

/* Selects the first back end that works; why: the reason against the one before. */
static int select_backend(struct nvme *n, enum tier_io requested, char *why, size_t size)
{
    int rc = CKPT_EIO;
#ifdef HAVE_LIBURING
    if (requested != TIER_IO_POOL) {
        rc = try_backend(n, &nvme_uring, why, size);
        if (!rc || requested == TIER_IO_URING || n->tier.stuck)
            return rc;
        close_backend(n);
    }
#else
    snprintf(why, size, "built without liburing");
    if (requested == TIER_IO_URING)
        return rc;
#endif
    char failure[sizeof n->tier.reason];
    rc = try_backend(n, &nvme_pool, failure, sizeof failure);
    if (rc)
        snprintf(why, size, "%s", failure);
    return rc;
}

static void describe(struct nvme *n)
{
    char io[64];
    bool direct = true, reserved = true;
    for (int32_t i = 0; i < n->files.n; i++) {
        direct = direct && n->files.at[i].direct;
        reserved = reserved && (n->files.at[i].reserved || !n->files.at[i].bytes);
    }
    n->tier.cached = !direct;
    n->io->describe(n, io, sizeof io);
    snprintf(n->tier.how, sizeof n->tier.how, "%s%s%s%s, %s, %d director%s%s", io,
             *n->why ? " (" : "", n->why, *n->why ? ")" : "",
             direct ? "O_DIRECT" : "page cache, no O_DIRECT there", n->files.n,
             n->files.n > 1 ? "ies" : "y", reserved ? "" : ", not preallocated");
}

/* Grows the files; never shrinks them.  Staging memory is taken with the first
 * bytes, so a tier that no plan uses takes none. */
static int nvme_reserve(struct tier *t, int64_t bytes)
{
    struct nvme *n = nvme(t);
    int64_t capacity = 0;
    if (bytes <= t->bytes)
        return 0;
    for (int32_t i = 0; i < n->files.n_zones; i++)
        capacity += n->files.zones[i].bytes;
    if (bytes > capacity)
        return error_set(CKPT_ENOMEM,
                         "nvme tier: %s (%lld bytes) are needed, --nvme is %s: %lld "
                         "bytes short",
                         human_bytes(bytes), (long long)bytes, human_bytes(capacity),
                         (long long)(bytes - capacity));
    int rc = nvme_files_reserve(&n->files, round_up(bytes, TIER_BLOCK));
    if (rc)
        return rc;
    if (!t->bytes && n->io->stage)
        n->io->stage(n);
    t->bytes = bytes;
    describe(n);
    return 0;
}

/* No address: bytes of this tier are copied, never mapped. */
static char *nvme_base(struct tier *t)
{
    (void)t;
    return NULL;
}

void nvme_free(struct nvme *n)
{
    nvme_files_close(&n->files);
    sum_table_free(&n->sums);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

/* If a request is still in flight its thread frees the tier. */
static void nvme_close(struct tier *t)
{
    if (t && (!nvme(t)->io || nvme(t)->io->close(nvme(t))))
        nvme_free(nvme(t));
}

static const struct tier_ops nvme_ops = {.name = "nvme",
                                         .reserve = nvme_reserve,
                                         .base = nvme_base,
                                         .write = nvme_write,
                                         .read = nvme_read,
                                         .begin = nvme_begin,
                                         .close = nvme_close};

static int check_directories(const struct tier_directories *d)
{
    if (d->n < 1 || d->n > TIER_DIRECTORIES || !*d->at[0].path)
        return error_set(CKPT_EINVAL,
                         "nvme tier: a run needs a directory: --nvme DIR:200G, or up to %d of them",
                         TIER_DIRECTORIES);
    for (int32_t i = 0; i < d->n; i++) {
        int64_t bytes = d->at[i].bytes, unit = d->n > 1 ? TIER_STRIPE : TIER_BLOCK;
        if (bytes < TIER_STRIPE || bytes % unit)
            return error_set(CKPT_EINVAL,
                             "nvme tier: %s: %lld bytes; give it 1M or more, in multiples of %lld",
                             d->at[i].path, (long long)bytes, (long long)unit);
    }
    return 0;
}

/* Some file systems accept O_DIRECT and then reject every request: then opens again without it. */
static int open_files(struct nvme *n, const struct tier_nvme_options *o)
{
    char why[CKPT_MESSAGE] = "";
    for (int direct = 1;; direct = 0) {
        int rc = nvme_files_open(&n->files, o->directories, n->sys, direct);
        if (rc)
            return rc;
        rc = select_backend(n, o->io, why, sizeof why);
        snprintf(n->why, sizeof n->why, "%.79s", why);
        if (!rc)
            return 0;
        if (!direct || !n->invalid || n->tier.stuck)
            return error_set(CKPT_EIO, "%s%s", *n->tier.reason ? "" : "nvme tier: ", why);
        close_backend(n);
        nvme_files_close(&n->files);
    }
}

int tier_open_nvme(struct tier **t, const struct tier_nvme_options *o)
{
    *t = NULL;
    int rc = check_directories(o->directories);
    if (rc)
        return rc;
    struct nvme *n = calloc(1, sizeof *n);
    if (!n)
        return error_set(CKPT_ENOMEM, "nvme tier: out of memory");
    n->tier.ops = &nvme_ops;
    n->sys = o->sys ? o->sys : &tier_system;
    n->deadline = o->deadline > 0 ? o->deadline : DEADLINE;
    n->staging = o->staging;
    n->staged = o->staging ? o->staged : 0;
    sum_table_init(&n->sums);
    pthread_mutex_init(&n->lock, NULL);
    rc = open_files(n, o);
    if (rc) {
        nvme_close(&n->tier);
        return rc;
    }
    describe(n);
    *t = &n->tier;
    return 0;
}
