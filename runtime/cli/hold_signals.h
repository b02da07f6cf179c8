/* SPDX-License-Identifier: Apache-2.0 */
/* SIGINT, SIGTERM and SIGHUP wait until temporary files are removed. */
#ifndef CKPT_CLI_HOLD_SIGNALS_H
#define CKPT_CLI_HOLD_SIGNALS_H

#include <sys/types.h>

/* From here on such a signal is noted, and release_signals ends the process with it.  One caller at
 * a time; a signal that was ignored stays so. */
void hold_signals(void);
/* A child that gets the signal, too, so that waiting for it ends; 0: none any more. */
void hold_signals_for(pid_t pid);
void release_signals(void);

#endif
