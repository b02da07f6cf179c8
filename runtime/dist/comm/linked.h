/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators made of a link: rounds of checked messages, and faults for tests. */
#ifndef CKPT_LINKED_H
#define CKPT_LINKED_H

#include "dist/comm/comm.h"
#include "dist/comm/link.h"

enum { LINKED_PIECE = 128 << 10 }; /* bytes of one message, without its head */

/* Something goes wrong at the n-th call of a rank (from 0, those of groups included). */
enum comm_fault_kind {
    COMM_FAULT_NONE,
    COMM_FAULT_DROP,    /* its first message to rank `to` is lost */
    COMM_FAULT_DELAY,   /* it comes late by so many seconds */
    COMM_FAULT_KILL,    /* it never comes again, and says nothing */
    COMM_FAULT_CORRUPT, /* a bit of its first message to rank `to` flips on the way */
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
    int64_t calls; /* as faults count them */
    /* Of each slot: one message to and from every rank. */
    struct link_part *parts[LINK_SLOTS];
    char *out[LINK_SLOTS], *in[LINK_SLOTS];
    const char **from; /* of the round that is taken */
};

/* Takes the link over, also on failure.  Returns 0 or CKPT_ENOMEM. */
int comm_open_linked(struct comm **c, const char *name, struct link *link, double deadline);

/* c: made of a link. */
void comm_inject(struct comm *c, const struct comm_fault *fault);

/* Those of its ranks that a call is of. */
struct rank_group {
    struct linked *l;
    int rank, size;
    const int *members; /* by their numbers here: their ranks in l; NULL: all ranks of l */
    int64_t calls;      /* of this group so far */
    uint64_t id;        /* the same on all its ranks */
};

struct span {
    char *data;
    int64_t bytes; /* -1: no message at all */
};

/* A stretch of a collective: n_pieces rounds, in each of which all ranks send to all. */
struct flow {
    const struct comm_call *call;
    const struct rank_group *ranks;
    int phase; /* of the call, so that its flows are told apart */
    int64_t n_pieces;
    int64_t unit;  /* bytes of an element */
    int64_t share; /* elements of the part that each rank owns, the last ones' may be less */
    int64_t total; /* elements of all parts */
    /* What goes to rank `to` of the group in piece p; how many bytes come from rank `from`. */
    struct span (*give)(const struct flow *f, int64_t p, int to);
    int64_t (*expect)(const struct flow *f, int64_t p, int from);
    /* Piece p is there: from[r] for every rank, the own one NULL. */
    void (*take)(const struct flow *f, int64_t p, const char *const *from);
};

/* Runs one.  Returns 0 or CKPT_ECOMM. */
int linked_flow(const struct flow *f);

/* Runs a collective as flows. */
int linked_collective(const struct rank_group *c, const struct comm_call *call);

#endif
