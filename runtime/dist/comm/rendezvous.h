/* SPDX-License-Identifier: Apache-2.0 */
/* How processes find each other without a launcher: rank 0 listens, the others come. */
#ifndef CKPT_RENDEZVOUS_H
#define CKPT_RENDEZVOUS_H

#include "dist/comm/comm.h"

enum { RENDEZVOUS_HOW = 128 };

/*
 * Fills fds[r] with a connected socket to every other rank (-1 for the own one).  Rank 0 waits
 * until all are there and answers all at once: yes, with the addresses of all, or no, with one
 * sentence.  how says in a few words where they met, whether they proved a token to each other, and
 * how many strangers came.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_ECOMM, the sentence in
 * error_get().  It takes at most twice the deadline, the look-up of names aside.
 */
int rendezvous_hold(const struct comm_rendezvous *m, double deadline, int *fds,
                    char how[RENDEZVOUS_HOW]);

#endif
