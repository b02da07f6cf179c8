/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lower tiers: room for offloaded bytes outside the device.  The host tier is memory that
 * copies reach by its address; the NVMe tier is a file, or one in each of several directories, that
 * is only read and written.  Both are made as large as the programs need before the first step.
 */
#ifndef CKPT_TIER_H
#define CKPT_TIER_H

#include "core/base.h"

#define TIER_BLOCK     4096                 /* offsets, bytes and addresses of read and write */
#define TIER_STRIPE    (INT64_C(1) << 20)   /* of one of several directories */
#define TIER_PIN_CHUNK (INT64_C(256) << 20) /* host memory is pinned in pieces of this */

enum { TIER_DIRECTORIES = 16, TIER_PATH = 1024 };

struct tier;
struct tier_sys; /* memory/tier/sys.h; tests replace it */

struct tier_ops {
    const char *name; /* "host" or "nvme", as in --host and --nvme */
    /* Makes the arena this many bytes long, never shorter; what it holds stays.  Only while nothing
     * is under way.  Returns 0, CKPT_ENOMEM or CKPT_EIO, the sentence with the bytes that are
     * missing in error_get(); the arena is then as it was. */
    int (*reserve)(struct tier *t, int64_t bytes);
    /* Address of the arena, constant from open to close; NULL for a tier of files. */
    char *(*base)(struct tier *t);
    /* Return when the bytes are there.  One thread may write and another read at a time.  A tier of
     * files wants offset, bytes and address as multiples of TIER_BLOCK, and a block read exactly as
     * it was written, the same offset and bytes: its checksum is that of the whole.  Return 0 or
     * CKPT_EIO, the sentence in t->reason. */
    int (*write)(struct tier *t, int64_t offset, const void *src, int64_t bytes);
    int (*read)(struct tier *t, int64_t offset, void *dst, int64_t bytes);
    /* Begins a call of write or read ahead of it, so that the disk has work while the one before it
     * ends.  Belongs to the thread that makes the call next, or next but one; until that returns
     * the bytes are left alone.  One that is never made ends before another call or close does.
     * NULL for memory. */
    void (*begin)(struct tier *t, bool write, int64_t offset, void *memory, int64_t bytes);
    void (*close)(struct tier *t); /* t may be NULL */
};

struct tier {
    const struct tier_ops *ops;
    int64_t bytes;     /* of the arena */
    char how[256];     /* what it is made of: "io_uring, O_DIRECT, 2 directories" */
    bool cached;       /* its files go through the page cache: O_DIRECT was refused */
    char reason[1024]; /* the first failure of read or write; later ones leave it */
    bool stuck;        /* a deadline passed: memory given to that call may still be written to, so
                        * it must stay mapped while the process lives */
};

/*
 * Makes memory known to the device.  pin is called for [base, base + bytes) once the bytes are
 * there, unpin before they go or before the same piece is pinned anew, longer; pieces begin at
 * multiples of TIER_PIN_CHUNK from the arena's base and are no longer than that.  A copy by the
 * device should not cross from one into the next.
 */
struct tier_pin {
    int (*pin)(void *user, void *base, int64_t bytes); /* 0 or a code; reserve then fails */
    void (*unpin)(void *user, void *base, int64_t bytes);
    void *user;
    bool locks; /* what it pins counts against RLIMIT_MEMLOCK */
};

struct tier_host_options {
    int64_t budget; /* the most that reserve will ask for; so much address space is set aside */
    int node;       /* the NUMA node its pages shall lie on; -1: any */
    bool spread;    /* other nodes will do for what the node has no room for */
    const struct tier_pin *pin; /* NULL: the device needs none */
    int threads;                /* that touch new memory; 0: one per core, sixteen at most */
    const char *root;           /* where proc and sys stand, for recorded machines; NULL: "" */
    const struct tier_sys *sys; /* NULL: the system's calls */
};

/* Returns 0, CKPT_EINVAL or CKPT_ENOMEM, the sentence in error_get(). */
int tier_open_host(struct tier **t, const struct tier_host_options *o);

/* The directories of --nvme and the room in each: whole blocks, or whole stripes of several. */
struct tier_directories {
    int32_t n;
    struct {
        char path[TIER_PATH]; /* "": none was named, so this is only to plan with */
        int64_t bytes;
    } at[TIER_DIRECTORIES];
    int64_t bytes; /* the sum, what a planner may use */
};

/* What --nvme says: DIR:SIZE, or several with commas between them, or only a SIZE to plan with.
 * Sizes are rounded down as the tier wants them.  Returns 0 or CKPT_EINVAL, the sentence in
 * error_get(). */
int tier_read_directories(struct tier_directories *d, const char *text);

enum tier_io { TIER_IO_AUTO, TIER_IO_URING, TIER_IO_POOL };

struct tier_nvme_options {
    const struct tier_directories *directories; /* copied */
    enum tier_io io;  /* AUTO: io_uring if a probe finds that it works, else threads */
    double deadline;  /* seconds without an answer from the disk that are too many; 0: 30 */
    void *staging;    /* memory that most reads and writes come from or go to, or NULL; */
    int64_t staged;   /* bytes of it, made known to io_uring.  It must outlive the tier. */
    const char *root; /* as for the host tier */
    const struct tier_sys *sys;
};

/* Makes the files, of 0 bytes until reserve.  They have no name: nothing is left of them when the
 * process ends, however it ends.  Offsets go round the directories in stripes, until a smaller one
 * is full.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_EIO, the sentence in error_get(). */
int tier_open_nvme(struct tier **t, const struct tier_nvme_options *o);

/* A run of bytes of a tier of files that one thread moves in pieces, through memory of two of them
 * in turn.  As in a queue of a step the next piece begins before the one at hand is made, so that
 * the disk always has work.  from and bytes are multiples of the piece. */
struct tier_stream {
    struct tier *tier;
    bool write;
    int64_t from, bytes, piece;
    char *memory;
};

/* Returns when all is moved, 0 or the code of the first piece that failed. */
int tier_stream_run(const struct tier_stream *s);

#endif
