/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening side of a rendezvous: accepts connections, sends each a challenge, and returns the
 * connections that answer with an authenticated hello.  Every other connection (a "stranger") is
 * closed and counted; it neither fails the job nor delays other ranks.
 */
#ifndef CKPT_ACCEPTOR_H
#define CKPT_ACCEPTOR_H

#include "dist/comm/hello.h"

struct pollfd;

enum { ACCEPTOR_LISTENERS = 8 }; /* addresses that one name can have */

#define ACCEPTOR_TIMEOUT 2.0 /* seconds from challenge to hello */

/* A connection that has not sent its complete hello yet. */
struct pending_hello {
    int fd;
    double until;
    size_t got; /* bytes of its hello received so far */
    char from[SOCKET_HOST];
    struct challenge challenge;
    char bytes[sizeof(struct hello)];
};

struct acceptor {
    const struct job_key *key;
    const char *job;
    int rank;                                       /* of this process */
    int listeners[ACCEPTOR_LISTENERS], n_listeners; /* opened and closed by the caller */
    struct pending_hello *pending;                  /* in order of arrival */
    int n_pending, capacity;
    struct pollfd *polled;
    int64_t rejected; /* number of rejected connections */
    char last[SOCKET_HOST];
    const char *why; /* reason of the last rejection */
};

/* An accepted rank. */
struct arrival {
    int fd; /* owned by the caller */
    char from[SOCKET_HOST];
    struct challenge challenge;
    struct hello hello;
};

/* Counts a rejected connection. */
void acceptor_count(struct acceptor *a, const char *from, const char *why);
/* Text about rejected connections to append to a sentence: "" or "; 3 other connections were
 * ...". */
void acceptor_describe(const struct acceptor *a, char *dst, size_t size);

/* Allocates for a job of `size` ranks; the caller sets the other members. 0 or CKPT_ENOMEM. */
int acceptor_open(struct acceptor *a, int size);
/* Rejects, and counts, every connection that is no rank's yet. */
void acceptor_close(struct acceptor *a);

enum acceptor_event { ACCEPTOR_LATE, ACCEPTOR_ARRIVAL, ACCEPTOR_READABLE };
/*
 * Waits until a rank is accepted, one of the n `watched` sockets is readable (*which; -1 entries
 * are skipped; n is at most the size of the job), or the time `until` passes.
 */
enum acceptor_event acceptor_wait(struct acceptor *a, double until, const int *watched, int n,
                                  struct arrival *arrival, int *which);

#endif
