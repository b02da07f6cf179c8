/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the sides of a rendezvous: rank 0 (rendezvous_host.c), the others, and
 * elastic jobs (lobby.c). */
#ifndef CKPT_RENDEZVOUS_STATE_H
#define CKPT_RENDEZVOUS_STATE_H

#include "dist/comm/acceptor.h"
#include "dist/comm/comm.h"
#include "dist/comm/rendezvous_file.h"

struct rendezvous {
    struct comm_rendezvous *m; /* a copy; an elastic job changes rank and size */
    bool waits;                /* an elastic job has told this process to wait */
    double until, deadline;
    char host[256]; /* address of rank 0 */
    int port;
    const char *path;      /* of "file:PATH", or NULL */
    char version[16];      /* as hellos carry it */
    char node[HELLO_TEXT]; /* name of this host */
    struct job_key key;
    struct rendezvous_file file; /* written by rank 0, or read by this rank */
    struct acceptor acceptor;
    int own_port;
    int *fds;
    struct arrival *arrivals;  /* on rank 0: the hello of each rank */
    struct address *addresses; /* of ranks 1 to size - 1 */
    char ended[CKPT_MESSAGE];  /* on rank 0: who gave up before the job began, and why; or "" */
    int told;                  /* on rank 0: processes that gave up, or were told that one did */
};

/* Opens the listeners of this rank; port 0 takes any.  Returns 0 or CKPT_ECOMM. */
int rendezvous_listen(struct rendezvous *v, const char *host, int port);

/* Closes the connection of an authenticated rank that cannot be used, and counts it. */
void rendezvous_reject(struct rendezvous *v, const struct arrival *from, const char *why);

/* One attempt to reach rank 0: 0, a code, or 1 with *why. */
int rendezvous_join(struct rendezvous *v, const char **why);

/* Parts of rank 0's: writes the file, once it listens; answers all ranks with the addresses.
 * Return 0 or a code. */
int rendezvous_publish(struct rendezvous *v);
int rendezvous_welcome(struct rendezvous *v);

/* Rank 0: a process gave up, this one or another one; the first one counts. */
void rendezvous_note_end(struct rendezvous *v, int rank, const char *why);

/* Rank 0: the job ends before it begins, for the reason of v->ended.  Tells those that are there,
 * and those that come in the next seconds.  Returns 0 where it is this process that gives up and
 * all others know it, else a code with the sentence. */
int rendezvous_end(struct rendezvous *v);
/* Those seconds, which a process that gives up waits for rank 0, too. */
double rendezvous_late(const struct rendezvous *v);

/* Forms an elastic job: sets rank and size, and connects this process with rank 0.  Returns 0 or a
 * code, with the sentence. */
int rendezvous_form(struct rendezvous *v);

/* Runs rank 0's part, starting with listening; if the user gave a token, the key is already set.
 * Returns 0 or a code, with the sentence. */
int rendezvous_host(struct rendezvous *v);

#endif
