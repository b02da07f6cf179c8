/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signal handling of the programs.
 *
 *   SIGPIPE, SIGXFSZ        are ignored: the write fails, and is reported as any other error
 *   SIGINT, SIGTERM,        end a program at once; during training they end the job on all ranks
 *   SIGHUP, SIGUSR2         after the current step, with the state saved, and a second one ends it
 *                           at once.  (mpirun forwards SIGUSR2; after SIGINT and SIGTERM it kills.)
 *   SIGUSR1                 saves the state of a training and continues
 */
#ifndef EXAMPLES_SIGNALS_H
#define EXAMPLES_SIGNALS_H

#include "ckpt.h"

/* Called by say_begin. */
void signals_open(void);

/* From here on stop and save signals apply to the training steps of c; NULL: no longer. */
void signals_watch(ckpt *c);

/* Whether a signal asked a training to stop; asks it to, for a signal that the program before this
 * one got (elastic.c). */
bool signals_stopping(void);
void signals_stop(void);

#endif
