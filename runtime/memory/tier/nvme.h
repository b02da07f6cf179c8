/* SPDX-License-Identifier: Apache-2.0 */
/* The NVMe tier inside: files, the calls under way, and the back ends that carry them out. */
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
    int64_t capacity; /* what --nvme gives it */
    int64_t bytes;    /* what it is long now */
    bool direct;      /* O_DIRECT */
    bool reserved;    /* its blocks are taken on the disk */
};

/* A stretch of the arena that goes round some of the files, stripe by stripe. */
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

/* A request: within one stripe. */
struct nvme_piece {
    int64_t offset, at; /* in the arena, in the file */
    int64_t bytes;
    char *memory;
    int32_t file;
};

/* A read or write, from where pieces are still to be taken off. */
struct nvme_call {
    bool write;
    int64_t offset, end;
    char *memory;
};

/* A call under way. */
struct nvme_flight {
    struct nvme_call asked, left; /* as it was made; what is still to be taken off it */
    int32_t out;                  /* requests with the disk */
    bool failed;
};

/* Those of one direction: the one that is waited for, and one that was begun ahead of its call. */
struct nvme_flights {
    struct nvme_flight at[2];
    int first, n;
};

struct nvme;

/* How requests reach the disk. */
struct nvme_io {
    /* Says why not in why. */
    int (*open)(struct nvme *n, char *why, size_t size);
    /* Returns 0 or CKPT_EIO after nvme_fail. */
    int (*move)(struct nvme *n, const struct nvme_call *call);
    /* Begins a call that move will be asked for; what goes wrong is for move to say. */
    void (*begin)(struct nvme *n, const struct nvme_call *call);
    /* false: a request is still under way; who carries it calls nvme_free when it is over. */
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
    char why[80];         /* it is not the one before it on the ladder */
    pthread_mutex_t lock; /* of tier.reason, tier.stuck and invalid */
    bool invalid;         /* a request was one the file system does not take */
};

extern const struct nvme_io nvme_pool;
#ifdef HAVE_LIBURING
extern const struct nvme_io nvme_uring;
#endif

/* ---- nvme_files.c -----------------------------------------------------------------------------
 */

/* Opens a nameless file in every directory; direct: past the page cache where the file system lets
 * it. Returns 0 or a code, the sentence in error_get(). */
int nvme_files_open(struct nvme_files *f, const struct tier_directories *d,
                    const struct tier_sys *sys, bool direct);
/* Makes the files long enough for so many bytes of arena; on failure they are as before. */
int nvme_files_reserve(struct nvme_files *f, int64_t bytes);
void nvme_files_close(struct nvme_files *f);
/* Takes the next piece off a call; false: there is none left. */
bool nvme_files_next(const struct nvme_files *f, struct nvme_call *call, struct nvme_piece *p);

/* ---- nvme_flights.c ---------------------------------------------------------------------------
 */

/* One more, or NULL where there are two. */
struct nvme_flight *nvme_flights_add(struct nvme_flights *f, const struct nvme_call *call);
/* The first, or NULL. */
struct nvme_flight *nvme_flights_first(struct nvme_flights *f);
void nvme_flights_drop_first(struct nvme_flights *f);
/* No piece is taken any more. */
void nvme_flights_cancel(struct nvme_flights *f);
/* Is this the call that a flight began? */
bool nvme_flight_is(const struct nvme_flight *f, const struct nvme_call *call);
/* Is all of it taken and back? */
bool nvme_flight_over(const struct nvme_flight *f);
/* Takes the next piece off the first flight that has one left, and counts it as out; NULL: there is
 * none. */
struct nvme_flight *nvme_flights_take(struct nvme_flights *f, const struct nvme_files *files,
                                      struct nvme_piece *p);

/* ---- nvme.c -----------------------------------------------------------------------------------
 */

/* Before a piece is written, and after one was read: its checksum.  Return 0, or CKPT_EIO after
 * nvme_fail. */
int nvme_before_write(struct nvme *n, const struct nvme_piece *p);
int nvme_after_read(struct nvme *n, const struct nvme_piece *p);
/* What came of a request, bytes or a negative errno.  Returns 0, or CKPT_EIO after nvme_fail. */
int nvme_result(struct nvme *n, bool write, const struct nvme_piece *p, int64_t result);
/* Keeps the sentence if it is the first.  Returns CKPT_EIO. */
int nvme_fail(struct nvme *n, bool write, const struct nvme_piece *p, const char *what);
/* The deadline has passed.  Returns CKPT_EIO. */
int nvme_stuck(struct nvme *n, bool write);
void nvme_free(struct nvme *n);

#endif
