/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of an elastic job that is lost while the job forms again, before ckpt_open has ended: the
 * others keep their states over a program that is executed again, and form the job once more.  The
 * program executes itself, with the number of the part as its argument.
 */
#undef NDEBUG
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "ckpt_dist.h"
#include "dist/comm/comm.h"

#define DEADLINE 20.0

static const char *meet; /* the place, as "file:PATH" */

static int open_job(ckpt **c, char where[256])
{
    struct ckpt_options o = CKPT_OPTIONS_INIT;
    o.device = "cpu";
    o.comm_deadline = DEADLINE;
    snprintf(where, 256, "elastic:2:%s", meet);
    o.ranks = where;
    return ckpt_open(c, &o);
}

/* The process of seat 1, which a job gets and loses at once: as soon as it has formed, or after
 * ckpt_open. */
static pid_t start_second(bool opens)
{
    char where[256];
    struct comm_lobby *lobby = NULL;
    struct comm *comm;
    ckpt *c;
    pid_t child = fork();
    if (child)
        return child;
    setenv("RANK", "1", 1);
    if (opens)
        _exit(open_job(&c, where) != 0);
    struct comm_rendezvous m = {.where = meet, .rank = 1, .size = 2, .lobby = &lobby, .divides = 2};
    _exit(comm_open_tcp(&comm, &m, DEADLINE) != 0);
}

static void end_second(pid_t child)
{
    int status;
    assert(waitpid(child, &status, 0) == child && !status);
}

static int restart(ckpt *c, char **argv, const char *part)
{
    argv[1] = (char *)part;
    int rc = ckpt_restart(c, argv);
    printf("FAIL: %s\n", ckpt_error(c));
    return rc ? 1 : 0;
}

int main(int argc, char **argv)
{
    char where[256], place[128], *again[] = {argv[0], NULL, argc > 2 ? argv[2] : place, NULL};
    const int part = argc > 1 ? atoi(argv[1]) : 0;
    bool before, saved;
    int64_t updates;
    ckpt *c;
    snprintf(place, sizeof place, "file:/tmp/test_elastic_open.%d", (int)getpid());
    meet = again[2];
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    const pid_t second = part < 2 ? start_second(!part) : 0;
    const int rc = open_job(&c, where);
    if (second)
        end_second(second);
    if (!part) {
        assert(!rc && ckpt_ranks(c) == 2 && !ckpt_rank_is_lost(NULL));
        return restart(c, again, "1");
    }
    if (part == 1) {
        assert(rc == CKPT_ECOMM && ckpt_rank_is_lost(NULL));
        return restart(NULL, again, "2");
    }
    assert(!rc && ckpt_ranks(c) == 1 && !ckpt_rank_is_lost(NULL));
    assert(!ckpt_job_history(c, &before, &saved, &updates));
    assert(before && !saved && updates == -1);
    ckpt_close(c);
    snprintf(place, sizeof place, "%s.lock", strchr(meet, ':') + 1);
    unlink(place);
    return 0;
}
