/* SPDX-License-Identifier: Apache-2.0 */
/* How processes find each other without a launcher: rank 0 listens, the others connect. */
#ifndef CKPT_RENDEZVOUS_H
#define CKPT_RENDEZVOUS_H

#include "dist/comm/comm.h"

enum { RENDEZVOUS_HOW = 128 };

/*
 * Fills fds[r] with a connected socket to every other rank (-1 for this one).  Rank 0 waits for all
 * ranks, then answers all of them: success with the addresses of all, or failure with one sentence.
 * how receives a short text: the address, whether a token was proven, the number of rejected
 * connections.  An elastic job sets m->rank and m->size, and needs room for one socket more than
 * m->size.  Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_ECOMM, with the sentence.
 * It takes at most twice the deadline plus name look-ups.
 */
int rendezvous_connect(struct comm_rendezvous *m, double deadline, int *fds,
                       char how[RENDEZVOUS_HOW]);

#endif
