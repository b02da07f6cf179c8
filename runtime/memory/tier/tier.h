/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lower tiers: memory for offloaded bytes outside the device.  Copies access the host tier by
 * address; the NVMe tier is a file, or one in each of several directories, that is only read and
 * written.  Both are made as large as the programs need before the first step.
 */
#ifndef CKPT_TIER_H
#define CKPT_TIER_H

#include "core/base.h"

#define TIER_BLOCK     4096                 /* alignment of offset, bytes and address in files */
#define TIER_STRIPE    (INT64_C(1) << 20)   /* bytes per directory before the next one */
#define TIER_PIN_CHUNK (INT64_C(256) << 20) /* host memory is pinned in pieces of this size */

enum { TIER_DIRECTORIES = 16, TIER_PATH = 1024 };

struct tier;
struct tier_sys; /* memory/tier/sys.h; tests replace it */

struct tier_ops {
    const char *name; /* "host" or "nvme", as in --host and --nvme */
    /* Makes the arena this many bytes long, never shorter; its contents stay.  Only while nothing
     * is in flight.  Returns 0, CKPT_ENOMEM or CKPT_EIO, with the number of missing bytes in the
     * sentence; the arena is then unchanged. */
    int (*reserve)(struct tier *t, int64_t bytes);
    /* Address of the arena, constant from open to close; NULL for a tier of files. */
    char *(*base)(struct tier *t);
    /* Return when the transfer is done.  One thread may write and another read at a time.  A tier
     * of files needs offset, bytes and address as multiples of TIER_BLOCK, and each read must
     * repeat the offset and bytes of a write, because a checksum covers the whole block.  Return 0
     * or CKPT_EIO, the sentence in t->reason. */
    int (*write)(struct tier *t, int64_t offset, const void *src, int64_t bytes);
    int (*read)(struct tier *t, int64_t offset, void *dst, int64_t bytes);
    /* Begins a write or read before the call itself, so that the disk has work while the call
     * before it ends.  The same thread must make the call next, or next but one; until it returns
     * the bytes must not be touched.  If the call is never made, the operation ends before another
     * call or close does.  NULL for memory. */
    void (*begin)(struct tier *t, bool write, int64_t offset, void *memory, int64_t bytes);
    void (*close)(struct tier *t); /* t may be NULL */
};

struct tier {
    const struct tier_ops *ops;
    int64_t bytes;     /* of the arena */
    int64_t pageable;  /* bytes at its end that the device could not pin: it copies them slower */
    char how[256];     /* description: "io_uring, O_DIRECT, 2 directories" */
    bool cached;       /* its files go through the page cache: O_DIRECT was refused */
    char reason[1024]; /* the first failure of read or write; later ones do not change it */
    bool stuck;        /* a deadline passed: the memory of that call may still be written to, so it
                        * must stay mapped while the process lives */
};

/*
 * Pins memory for the device.  pin is called for [base, base + bytes) once the bytes are mapped;
 * unpin before they are unmapped, or before the same piece is pinned again, longer.  Pieces begin
 * at multiples of TIER_PIN_CHUNK from the arena's base and are no longer than that.  A copy by the
 * device should not cross from one piece into the next.
 */
struct tier_pin {
    int (*pin)(void *user, void *base, int64_t bytes); /* 0 or a code: no more is pinned then */
    void (*unpin)(void *user, void *base, int64_t bytes);
    void *user;
};

struct tier_host_options {
    int64_t budget;             /* upper bound of reserve; this much address space is reserved */
    int node;                   /* preferred NUMA node of its pages; -1: any */
    const struct tier_pin *pin; /* NULL: the device does not need it */
    int threads;                /* threads that touch new memory; 0: one per core, at most 16 */
    const char *root;           /* prefix of /proc and /sys, for recorded machines; NULL: "" */
    const struct tier_sys *sys; /* NULL: the system's calls */
};

/* Returns 0, CKPT_EINVAL or CKPT_ENOMEM, with the sentence. */
int tier_open_host(struct tier **t, const struct tier_host_options *o);

/* The directories of --nvme and the bytes in each: whole blocks, or whole stripes of several. */
struct tier_directories {
    int32_t n;
    struct {
        char path[TIER_PATH]; /* "": none was given, so this is only for planning */
        int64_t bytes;
    } at[TIER_DIRECTORIES];
    int64_t bytes; /* the sum: the tier's budget for the planner */
};

/* Parses --nvme: DIR:SIZE, or several separated by commas, or only a SIZE to plan with.  Sizes are
 * rounded down to the tier's unit.  Returns 0 or CKPT_EINVAL, with the sentence. */
int tier_read_directories(struct tier_directories *d, const char *text);

enum tier_io { TIER_IO_AUTO, TIER_IO_URING, TIER_IO_POOL };

struct tier_nvme_options {
    const struct tier_directories *directories; /* copied */
    enum tier_io io; /* AUTO: io_uring if a probe finds that it works, else threads */
    double deadline; /* seconds without an answer from the disk before a failure; 0: 30 */
    void *staging;   /* memory that most reads and writes use, or NULL; */
    int64_t staged;  /* its bytes, registered with io_uring by the first reserve.  It must outlive
                        the tier. */
    const struct tier_sys *sys;
};

/* Makes the files, 0 bytes long until reserve.  They have no name: nothing is left of them when the
 * process ends, in whatever way.  Offsets rotate over the directories in stripes, until a smaller
 * one is full.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_EIO, with the sentence. */
int tier_open_nvme(struct tier **t, const struct tier_nvme_options *o);

/* A range of bytes of a tier of files that one thread transfers in pieces, alternating between two
 * pieces of memory.  As in a queue of a step, the next piece begins before the current one ends, so
 * that the disk always has work.  from and bytes are multiples of piece. */
struct tier_stream {
    struct tier *tier;
    bool write;
    int64_t from, bytes, piece;
    char *memory;
};

/* Returns when all bytes are transferred: 0, or the code of the first piece that failed. */
int tier_stream_run(const struct tier_stream *s);

#endif
