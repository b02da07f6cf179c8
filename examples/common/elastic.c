/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elastic trainers.  The samples of a step stay the same: fewer ranks have more of them each, and
 * their number divides that of the samples.  Where a run begins again, and from what, is decided in
 * resume.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "elastic.h"
#include "run_clock.h"
#include "say.h"
#include "signals.h"

/* Handed to the program that is executed next: the descriptor of standard output, the updates when
 * it began again, how often it did so there, the start of the run, and whether a signal asked to
 * stop. */
#define STORY "LIBCKPT_STORY"

enum { MOST_TRIES = 5 };

static int out = -1;
static long long updates = -1, tries;
static double begun;

static void read_story(void)
{
    const char *text = getenv(STORY);
    int fd, stops = 0;

    if (!text || sscanf(text, "%d,%lld,%lld,%lf,%d", &fd, &updates, &tries, &begun, &stops) != 5 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC))
        begun = run_clock_now();
    else
        out = fd;
    if (stops)
        signals_stop();
    if (out < 0) /* ranks other than 0 print nothing, and may become rank 0 */
        out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    unsetenv(STORY);
}

/* What the ranks divide. */
static int64_t shares(const struct trainer *t, int seats)
{
    const int64_t micro = t->library->micro_batch, samples = t->train->batch * seats;

    return micro > 0 ? samples / micro : samples;
}

int elastic_begin(const struct trainer *t, char *const *argv)
{
    static char where[4200];
    struct training_options *o = t->train;
    int rank, seats;

    if (!o->state.elastic || t->library->plan_only)
        return 0;
    if (!t->library->ranks || !strcmp(t->library->ranks, "none"))
        return say_fail("--elastic needs ranks: give --ranks tcp:HOST:PORT or file:PATH");
    if (t->library->sequence > 1 || t->library->tensor > 1)
        return say_fail("--elastic: groups that split %s cannot lose a rank; leave out %s",
                        t->library->sequence > 1 ? "sequences" : "layers",
                        t->library->sequence > 1 ? "--sequence" : "--tensor");
    if ((t->varies && t->varies(t->run)) || o->batch < 1)
        return say_fail("--elastic: steps of several sizes cannot be divided anew; leave out "
                        "--elastic, or the sizes");
    if (!argv)
        return say_fail("no memory for the arguments");
    if (ckpt_launched(&rank, &seats))
        return say_fail("%s", ckpt_error(NULL));
    snprintf(where, sizeof where, "elastic:%lld:%s", (long long)shares(t, seats),
             t->library->ranks);
    t->library->ranks = where;
    read_story();
    o->begun = begun;
    return 0;
}

int elastic_formed(const struct trainer *t)
{
    struct training_options *o = t->train;
    const int ranks = ckpt_ranks(*t->context);
    int rank, seats;

    if (!o->state.elastic || t->library->plan_only)
        return 0;
    if (ckpt_launched(&rank, &seats))
        return say_fail("%s", ckpt_error(NULL));
    o->batch = o->batch * seats / ranks;
    if (ranks < seats)
        say_print("elastic: %d of %d ranks, with --batch %lld\n", ranks, seats,
                  (long long)o->batch);
    fflush(stdout);
    return 0;
}

static void begin_again(const struct trainer *t, char *const *argv)
{
    const long long now = *t->context ? ckpt_updates(*t->context) : updates;
    char text[128];

    tries = now == updates ? tries + 1 : 0;
    if (tries >= MOST_TRIES) {
        say_fail("--elastic: ranks were lost %d times after %lld steps", MOST_TRIES + 1, now);
        return;
    }
    fflush(NULL);
    signal(SIGUSR1, SIG_IGN); /* by default it ends a process that does not yet handle it */
    snprintf(text, sizeof text, "%d,%lld,%lld,%.3f,%d", out, now, tries, begun, signals_stopping());
    if (setenv(STORY, text, 1) || fcntl(out, F_SETFD, 0) || dup2(out, STDOUT_FILENO) < 0)
        say_fail("--elastic: the program cannot begin again");
    else if (ckpt_restart(*t->context, argv))
        say_fail("%s", ckpt_error(*t->context));
}

void elastic_end(const struct trainer *t, char *const *argv)
{
    const struct resume_options *o = &t->train->state;

    if (!o->elastic || !(o->grows || ckpt_rank_is_lost(*t->context)))
        return;
    say_note(o->grows ? "--elastic: another rank is there: beginning again with it"
                      : "--elastic: beginning again with the ranks that are left");
    begin_again(t, argv);
}
