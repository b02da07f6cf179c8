/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What carries messages between ranks.  Collectives (linked.c) are made of rounds: in one round a
 * rank sends up to one message to every other and takes up to one of every other.  Messages between
 * two ranks arrive in the order they were sent.  Two rounds may be under way.
 *
 * The MPI plugin is built against this header alone, and is refused if LINK_ABI differs.
 */
#ifndef CKPT_LINK_H
#define CKPT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINK_ABI = 1, LINK_SLOTS = 2, LINK_SENTENCE = 1024 };

/* One round seen from one other rank.  out NULL: nothing to send; in NULL: nothing to take. */
struct link_part {
    const void *out;
    int64_t out_bytes;
    void *in;
    int64_t room; /* of in */
    int64_t got;  /* bytes that came */
    bool sent, came;
};

struct link;

struct link_ops {
    /* Begins the round of a slot; parts[r] is about rank r and stays until the round is over. */
    void (*start)(struct link *l, int slot, struct link_part *parts);
    /* Does what can be done at once; sets sent and came.  False if the link is broken. */
    bool (*progress)(struct link *l);
    /* Sleeps until something may have happened, at most so many seconds. */
    void (*wait)(struct link *l, double seconds);
    /* Tells all ranks that this one gives up; comes back soon, told or not. */
    void (*abort)(struct link *l, const char *sentence);
    /* failed: the others may be gone, so nothing is waited for.  False: buffers of a round under
     * way may still be written to, and must stay. */
    bool (*close)(struct link *l, bool failed);
};

struct link {
    const struct link_ops *ops;
    int rank, size;
    int lost;                       /* the rank behind a broken link, or -1 */
    char abort_text[LINK_SENTENCE]; /* what another rank aborted, or "" */
    char reason[256];               /* why the link is broken: "connection closed" */
    char how[128];
};

/* The one symbol of the plugin: opens the link of MPI_COMM_WORLD, or leaves why not in reason. */
#define LINK_MPI_SYMBOL "ckpt_link_mpi"
struct link *ckpt_link_mpi(int abi, char *reason, size_t size);

#endif
