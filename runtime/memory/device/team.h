/* SPDX-License-Identifier: Apache-2.0 */
/* The thread team that runs the parallel loops of kernels: see team.c. */
#ifndef CKPT_TEAM_H
#define CKPT_TEAM_H

/* `threads`, or one per core if it is 0. */
int team_count(int threads);

/* Sets the team size of the calling thread's loops, itself included.  Returns the one before. */
int team_size(int threads);

/* Starts the threads.  Returns 0 or CKPT_ENOMEM. */
int team_start(void);

/* The compiler calls team_run for a loop: threads is 0 if the loop names none; flags are ignored.
 * Inside a loop, team_number is the number of the calling thread and team_threads the team size. */
void team_run(void (*body)(void *data), void *data, unsigned threads, unsigned flags);
int team_number(void);
int team_threads(void);

#endif
