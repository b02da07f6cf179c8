/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators over a link: rounds of checked messages, and fault injection for tests. */
#ifndef CKPT_LINKED_H
#define CKPT_LINKED_H

#include "dist/comm/comm.h"
#include "dist/comm/link.h"

enum { LINKED_PIECE = 128 << 10 }; /* payload bytes of one message */

/* A fault injected at the n-th call of a rank (from 0, calls of groups included). */
enum comm_fault_kind {
    COMM_FAULT_NONE,
    COMM_FAULT_DROP,    /* its first message to rank `to` is lost */
    COMM_FAULT_DELAY,   /* it arrives late by `seconds` */
    COMM_FAULT_KILL,    /* it stops without notice */
    COMM_FAULT_CORRUPT, /* one bit of its first message to rank `to` is flipped */
};

struct comm_fault {
    enum comm_fault_kind kind;
    int64_t call;
    int to;
    double seconds;
};

struct linked {
    struct comm comm;
    struct link *link;
    struct comm_fault fault;
    bool failed, dead;
    int64_t calls; /* calls, as faults count them */
    /* Per slot: one message to and one from every rank. */
    struct link_part *parts[LINK_SLOTS];
    char *out[LINK_SLOTS], *in[LINK_SLOTS];
    const char **from; /* payloads of the round that is received */
};

/* Takes ownership of the link, also on failure.  Returns 0 or CKPT_ENOMEM. */
int comm_open_linked(struct comm **c, const char *name, struct link *link, double deadline);

/* c must be open over a link. */
void comm_inject(struct comm *c, const struct comm_fault *fault);

/* The ranks that take part in a call. */
struct rank_group {
    struct linked *l;
    int rank, size;
    const int *members; /* ranks in l by group rank; NULL: all ranks of l */
    int64_t calls;      /* number of calls of this group */
    uint64_t id;        /* equal on all ranks of the group */
};

struct span {
    char *data;
    int64_t bytes; /* -1: no message */
};

/* A phase of a collective: n_pieces rounds, in each of which every rank sends to every other. */
struct exchange {
    const struct comm_call *call;
    const struct rank_group *ranks;
    int phase; /* index in its call, to tell phases apart */
    int64_t n_pieces;
    int64_t unit;  /* bytes per element */
    int64_t share; /* elements of the part that each rank owns; the last parts may be shorter */
    int64_t total; /* elements of all parts */
    /* The data for rank `to` of the group in piece p; the bytes expected from rank `from`. */
    struct span (*outgoing)(const struct exchange *f, int64_t p, int to);
    int64_t (*expect)(const struct exchange *f, int64_t p, int from);
    /* Consumes piece p: from[r] is the payload of each rank, NULL for this rank. */
    void (*receive)(const struct exchange *f, int64_t p, const char *const *from);
};

/* Runs one phase.  Returns 0 or CKPT_ECOMM. */
int linked_exchange(const struct exchange *f);

/* Runs a collective as one or two phases. */
int linked_collective(const struct rank_group *c, const struct comm_call *call);

#endif
