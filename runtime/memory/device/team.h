/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that the loops of kernels are divided among: see team.c. */
#ifndef CKPT_TEAM_H
#define CKPT_TEAM_H

/* So many threads, or one per core where that is 0. */
int team_count(int threads);

/* Loops of the calling thread are divided among so many from now on, itself included. */
void team_size(int threads);

/* Starts them.  Returns 0 or CKPT_ENOMEM. */
int team_start(void);

/* What the compiler calls for a loop: threads 0 if it names none; flags mean nothing.  Inside one
 * the number of the calling thread, and how many there are. */
void team_run(void (*body)(void *data), void *data, unsigned threads, unsigned flags);
int team_number(void);
int team_threads(void);

#endif
