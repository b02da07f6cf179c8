/* SPDX-License-Identifier: Apache-2.0 */
/* What the sides of a rendezvous share: rank 0 (rendezvous_host.c), and the others. */
#ifndef CKPT_RENDEZVOUS_STATE_H
#define CKPT_RENDEZVOUS_STATE_H

#include "dist/comm/acceptor.h"
#include "dist/comm/comm.h"
#include "dist/comm/rendezvous_file.h"

struct rendezvous {
    const struct comm_rendezvous *m;
    double until, deadline;
    char host[256]; /* where rank 0 listens */
    int port;
    const char *path;      /* of "file:PATH", or NULL */
    char version[16];      /* as hellos carry it */
    char node[HELLO_TEXT]; /* name of this machine */
    struct job_key key;
    struct rendezvous_file file; /* that rank 0 wrote, or this rank read */
    struct acceptor acceptor;
    int own_port;
    int *fds;
    struct arrival *arrivals;  /* of rank 0: what each rank said */
    struct address *addresses; /* of ranks 1 to size - 1 */
};

/* Opens the listeners of this rank; port 0 takes any.  Returns 0 or CKPT_ECOMM. */
int rendezvous_listen(struct rendezvous *v, const char *host, int port);

/* Closes the connection of one that said a right hello and is of no use all the same. */
void rendezvous_send_away(struct rendezvous *v, const struct arrival *from, const char *why);

/* The part of rank 0, from listening on; the key is made where the user gave a token.  Returns 0 or
 * a code, the sentence in error_get(). */
int rendezvous_host(struct rendezvous *v);

#endif
