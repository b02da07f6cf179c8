/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening side of ranks that meet: takes connections from its listeners, challenges each, and
 * hands over those that say a proven hello.  Everything else that connects is a stranger: it is
 * sent away and counted, and neither ends the job nor holds up a rank beside it.
 */
#ifndef CKPT_ACCEPTOR_H
#define CKPT_ACCEPTOR_H

#include "dist/comm/hello.h"

struct pollfd;

enum { ACCEPTOR_LISTENERS = 8 }; /* addresses of one name */

#define ACCEPTOR_PATIENCE 2.0 /* seconds for a hello, from the challenge on */

/* One that connected and has not said its hello yet. */
struct visitor {
    int fd;
    double until;
    size_t got; /* bytes of its hello */
    char from[SOCKET_HOST];
    struct challenge challenge;
    char bytes[sizeof(struct hello)];
};

struct acceptor {
    const struct job_key *key;
    const char *job;
    int rank;                                       /* own */
    int listeners[ACCEPTOR_LISTENERS], n_listeners; /* the caller opens and closes them */
    struct visitor *visitors;                       /* in the order they came */
    int n_visitors, most;
    struct pollfd *polled;
    int64_t strangers; /* how many were sent away */
    char last[SOCKET_HOST];
    const char *why; /* what was wrong with the last */
};

/* A rank, as it proved. */
struct arrival {
    int fd; /* the caller's to close */
    char from[SOCKET_HOST];
    struct challenge challenge;
    struct hello hello;
};

/* Counts one that was sent away. */
void acceptor_count(struct acceptor *a, const char *from, const char *why);
/* What to say of the strangers, behind a sentence: "" or "; 3 other connections were ...". */
void acceptor_describe(const struct acceptor *a, char *dst, size_t size);

/* Room for a job of so many ranks; the other members are set by the caller.  0 or CKPT_ENOMEM. */
int acceptor_open(struct acceptor *a, int size);
void acceptor_close(struct acceptor *a);

enum acceptor_event { ACCEPTOR_LATE, ACCEPTOR_ARRIVAL, ACCEPTOR_READABLE };
/*
 * Waits until a rank arrives, one of the `watched` (n sockets, -1 for none, n at most the size of
 * the job) can be read (*which), or the time is over.
 */
enum acceptor_event acceptor_wait(struct acceptor *a, double until, const int *watched, int n,
                                  struct arrival *arrival, int *which);

#endif
