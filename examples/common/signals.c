/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: see signals.h.  Handlers only set flags of the library. */
#include <errno.h>
#include <signal.h>
#include "ckpt_dist.h"
#include "run_clock.h"
#include "signals.h"

static const int ending[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR2};
enum { ENDING = sizeof ending / sizeof *ending };

/* A terminal that closes may send its signal more than once, and so may a job launcher.  A signal
 * within this time after the first is the same request. */
static const double same = 0.5; /* seconds */

static ckpt *volatile watched;
static volatile sig_atomic_t stopping, saving;
static double since; /* time of the first stop signal; written once */
static struct sigaction before[ENDING];

/* The second signal takes its default action, so that the parent process sees which signal it was.
 */
static void stop(int number)
{
    int error = errno;
    ckpt *c = watched;

    if (stopping && run_clock_now() > since + same) {
        signal(number, SIG_DFL);
        raise(number);
    } else if (!stopping) {
        since = run_clock_now();
        stopping = 1;
        if (c)
            ckpt_request_stop(c);
    }
    errno = error;
}

static void save(int number)
{
    ckpt *c = watched;

    (void)number;
    if (c)
        ckpt_request_save(c);
    else
        saving = 1;
}

static void handle(int number, void (*handler)(int), struct sigaction *old)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};

    sigemptyset(&action.sa_mask);
    for (int i = 0; i < ENDING; i++)
        sigaddset(&action.sa_mask, ending[i]);
    sigaction(number, &action, old);
}

void signals_open(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    handle(SIGUSR1, save, NULL);
}

/* nohup ignores SIGHUP for a program that outlives its terminal; keep it ignored. */
static void watch_ending(void)
{
    for (int i = 0; i < ENDING; i++) {
        handle(ending[i], stop, &before[i]);
        if (ending[i] == SIGHUP && before[i].sa_handler == SIG_IGN)
            sigaction(SIGHUP, &before[i], NULL);
    }
}

bool signals_stopping(void)
{
    return stopping;
}

void signals_stop(void)
{
    stopping = 1;
}

void signals_watch(ckpt *c)
{
    ckpt *last = watched;

    watched = c;
    if (c && !last)
        watch_ending();
    if (c && stopping)
        ckpt_request_stop(c);
    for (int i = 0; !c && last && !stopping && i < ENDING; i++)
        sigaction(ending[i], &before[i], NULL); /* once it stops, a second signal ends it */
    if (c && saving) {                          /* SIGUSR1 arrived before training began */
        saving = 0;
        ckpt_request_save(c);
    }
}
