/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs do with signals.
 *
 *   SIGPIPE, SIGXFSZ        are ignored: the write fails, and is named as any other
 *   SIGINT, SIGTERM,        end a program at once; while it trains they end the job behind the step
 *   SIGHUP, SIGUSR2         under way, on all ranks, with the state saved, and a second one ends it
 *                           at once.  (mpirun forwards SIGUSR2; after SIGINT and SIGTERM it kills.)
 *   SIGUSR1                 saves the state of a training and goes on
 */
#ifndef EXAMPLES_SIGNALS_H
#define EXAMPLES_SIGNALS_H

#include "ckpt.h"

/* First thing in every program. */
void signals_open(void);

/* Signals are for the steps of c from here on; NULL: no longer. */
void signals_watch(ckpt *c);

#endif
