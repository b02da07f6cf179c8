/* SPDX-License-Identifier: Apache-2.0 */
/* Signals while there are temporary files: see hold_signals.h. */
#include <signal.h>
#include <stddef.h>
#include "cli/hold_signals.h"

static const int ends[] = {SIGINT, SIGTERM, SIGHUP};
enum { ENDS = sizeof ends / sizeof *ends };

static struct sigaction before[ENDS];
static volatile sig_atomic_t caught, child;

static void note(int signal)
{
    caught = signal;
    if (child > 0)
        kill(child, signal);
}

void hold_signals(void)
{
    struct sigaction a = {.sa_handler = note};
    caught = child = 0;
    for (int i = 0; i < ENDS; i++) {
        sigaction(ends[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(ends[i], &a, NULL);
    }
}

void hold_signals_for(pid_t pid)
{
    child = pid;
    if (pid && caught)
        kill(pid, caught);
}

void release_signals(void)
{
    for (int i = 0; i < ENDS; i++)
        sigaction(ends[i], &before[i], NULL);
    if (caught)
        raise(caught);
}
