/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the NVMe tier: files, calls in flight, and the back ends that do the I/O. */
#ifndef CKPT_TIER_NVME_H
#define CKPT_TIER_NVME_H

#include <pthread.h>
#include "core/checksum.h"
#include "memory/tier/sum_table.h"
#include "memory/tier/sys.h"
#include "memory/tier/tier.h"

struct nvme_file {
    char *directory;
    int fd;           /* -1: not open */
    int64_t capacity; /* bytes that --nvme gives it */
    int64_t bytes;    /* current length */
    bool direct;      /* opened with O_DIRECT */
    bool reserved;    /* its blocks are allocated on the disk */
};

/* A range of the arena that is striped over some of the files. */
struct nvme_zone {
    int64_t from, bytes; /* in the arena */
    int64_t start;       /* in each file */
    int32_t n, file[TIER_DIRECTORIES];
};

struct nvme_files {
    const struct tier_sys *sys;
    int32_t n, n_zones;
    struct nvme_file at[TIER_DIRECTORIES];
    struct nvme_zone zones[TIER_DIRECTORIES];
};

/* One request to the disk: within one stripe. */
struct nvme_piece {
    int64_t offset, at; /* in the arena, in the file */
    int64_t bytes;
    char *memory;
    int32_t file;
};

/* A read or write; offset and memory advance as pieces are taken off its front. */
struct nvme_call {
    bool write;
    int64_t offset, end;
    char *memory;
};

/* An in-flight slot: one call and its requests. */
struct nvme_pending {
    struct nvme_call call, left; /* the call as made; the part without requests so far */
    int32_t out;                 /* requests submitted to the disk and not completed */
    bool failed;
};

/* The in-flight slots of one direction: the call waited for, and one begun ahead. */
struct nvme_pending_list {
    struct nvme_pending at[2];
    int first, n;
};

struct nvme;

/* A back end: how requests reach the disk. */
struct nvme_io {
    /* Returns 0 or a code; then `why` says why the back end cannot be used. */
    int (*open)(struct nvme *n, char *why, size_t size);
    /* Prepares the staging memory, which takes memory from here on; NULL: nothing to do. */
    void (*stage)(struct nvme *n);
    /* Returns 0 or CKPT_EIO after nvme_fail. */
    int (*move)(struct nvme *n, const struct nvme_call *call);
    /* Begins a call that move will be called for; move reports its failures. */
    void (*begin)(struct nvme *n, const struct nvme_call *call);
    /* false: a request is still in flight; its thread calls nvme_free when it ends. */
    bool (*close)(struct nvme *n);
    void (*describe)(struct nvme *n, char *dst, size_t size);
};

struct nvme {
    struct tier tier;
    const struct tier_sys *sys;
    struct nvme_files files;
    struct sum_table sums;
    double deadline;
    char *staging;
    int64_t staged;
    const struct nvme_io *io;
    void *state;          /* of the back end */
    char why[80];         /* why the preferred back end is not used, or "" */
    pthread_mutex_t lock; /* protects tier.reason, tier.stuck and invalid */
    bool invalid;         /* the file system rejected a request with EINVAL */
};

extern const struct nvme_io nvme_pool;
#ifdef HAVE_LIBURING
extern const struct nvme_io nvme_uring;
#endif

/* ---- nvme_files.c -----------------------------------------------------------------------------
 */

/* Opens a nameless file in every directory; direct: with O_DIRECT where the file system allows it.
 * Returns 0 or a code, with the sentence. */
int nvme_files_open(struct nvme_files *f, const struct tier_directories *d,
                    const struct tier_sys *sys, bool direct);
/* Makes the files long enough for `bytes` bytes of arena; on failure their lengths stay. */
int nvme_files_reserve(struct nvme_files *f, int64_t bytes);
void nvme_files_close(struct nvme_files *f);
/* Takes the next piece off the front of a call; false: none is left. */
bool nvme_files_next(const struct nvme_files *f, struct nvme_call *call, struct nvme_piece *p);

/* ---- nvme_pending.c ---------------------------------------------------------------------------
 */

/* Adds a call, or returns NULL if both slots are in use. */
struct nvme_pending *nvme_pending_add(struct nvme_pending_list *f, const struct nvme_call *call);
/* The first, or NULL. */
struct nvme_pending *nvme_pending_first(struct nvme_pending_list *f);
void nvme_pending_drop_first(struct nvme_pending_list *f);
/* No more pieces are taken off any call. */
void nvme_pending_cancel(struct nvme_pending_list *f);
/* Whether a slot holds this call. */
bool nvme_pending_is(const struct nvme_pending *f, const struct nvme_call *call);
/* Whether all requests of a slot's call were made and have completed. */
bool nvme_pending_done(const struct nvme_pending *f);
/* Takes the next piece off the first call that has one left, and counts it in `out`; NULL: none
 * has.
 */
struct nvme_pending *nvme_pending_take(struct nvme_pending_list *f, const struct nvme_files *files,
                                       struct nvme_piece *p);

/* ---- nvme.c -----------------------------------------------------------------------------------
 */

/* Stores the checksum of a piece before it is written; compares it after it was read.  Return 0, or
 * CKPT_EIO after nvme_fail. */
int nvme_before_write(struct nvme *n, const struct nvme_piece *p);
int nvme_after_read(struct nvme *n, const struct nvme_piece *p);
/* Checks the result of a request: bytes or a negative errno.  Returns 0, or CKPT_EIO after
 * nvme_fail. */
int nvme_result(struct nvme *n, bool write, const struct nvme_piece *p, int64_t result);
/* Keeps the sentence of the first failure.  Returns CKPT_EIO. */
int nvme_fail(struct nvme *n, bool write, const struct nvme_piece *p, const char *what);
/* Reports that the deadline has passed.  Returns CKPT_EIO. */
int nvme_stuck(struct nvme *n, bool write);
void nvme_free(struct nvme *n);

#endif
