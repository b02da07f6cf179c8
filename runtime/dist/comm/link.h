/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport of messages between ranks.  Collectives (linked.c) consist of rounds: in a round a
 * rank sends up to one message to every other rank and receives up to one from each.  Messages
 * between two ranks arrive in the order they were sent.  Two rounds may be in progress.
 *
 * The MPI plugin is built against this header alone, and is refused if LINK_ABI differs.
 */
#ifndef CKPT_LINK_H
#define CKPT_LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LINK_ABI = 1, LINK_SLOTS = 2, LINK_SENTENCE = 1024 };

/* One round with one other rank. out NULL: nothing to send; in NULL: nothing to receive. */
struct link_part {
    const void *out;
    int64_t out_bytes;
    void *in;
    int64_t capacity; /* capacity of in, bytes */
    int64_t got;      /* bytes received */
    bool sent, came;
};

struct link;

struct link_ops {
    /* Starts the round of a slot; parts[r] describes the messages with rank r and must stay valid
     * until the round ends. */
    void (*start)(struct link *l, int slot, struct link_part *parts);
    /* Sends and receives without blocking; sets sent and came.  False if the link failed. */
    bool (*progress)(struct link *l);
    /* Sleeps until something may have happened, at most for `seconds`. */
    void (*wait)(struct link *l, double seconds);
    /* Sends the sentence to all ranks: this one aborts.  Returns soon, even if it could not be
     * sent. */
    void (*abort)(struct link *l, const char *sentence);
    /* failed: other ranks may be gone, so it waits for nothing.  False: buffers of a round in
     * progress may still be written and must not be freed. */
    bool (*close)(struct link *l, bool failed);
};

struct link {
    const struct link_ops *ops;
    int rank, size;
    int lost;                       /* the rank whose connection failed, or -1 */
    char abort_text[LINK_SENTENCE]; /* sentence of the rank that aborted first, or "" */
    char reason[256];               /* why the link failed: "connection closed" */
    char how[128];
};

/* The plugin's only symbol: opens the link of MPI_COMM_WORLD, or writes the reason of the
 * failure. */
#define LINK_MPI_SYMBOL "ckpt_link_mpi"
struct link *ckpt_link_mpi(int abi, char *reason, size_t size);

#endif
