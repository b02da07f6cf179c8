/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Six ranks of an elastic job lose one and go on as three, since the samples divide by no more:
 * those three have the states of all six, whichever is lost and whoever takes the place first. They
 * form it also where they find the file of the job before.
 */
#undef NDEBUG
#include <assert.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>
#include "core/base.h"
#include "dist/comm/comm.h"

enum { SEATS = 6, STAY = 3 };

#define DEADLINE 20.0

/* The rank that a seat had. */
static int rank_of(int seat)
{
    return (5 * seat + 1) % SEATS;
}

/* The process of a seat: writes its former rank when it is in the job. */
static pid_t start(int seat, const char *meet, int to)
{
    struct comm_lobby *lobby = NULL;
    struct comm *comm;
    const pid_t child = fork();
    if (child)
        return child;
    alarm(60);
    const char rank = (char)rank_of(seat);
    struct comm_rendezvous m = {.where = meet,
                                .rank = seat,
                                .size = SEATS,
                                .lobby = &lobby,
                                .divides = SEATS,
                                .former_rank = rank,
                                .former_size = SEATS};
    const int rc = comm_open_tcp(&comm, &m, DEADLINE);
    if (!rc && write(to, &rank, 1) == 1)
        pause(); /* whoever leads keeps the place, else those that wait would form a job */
    printf("seat %d: %s\n", seat, error_get());
    _exit(1);
}

/* held: the lock of the place, which is freed a moment later; or -1. */
static void lose(int lost, const char *meet, int held)
{
    char rank[STAY];
    bool has[SEATS] = {false};
    pid_t child[SEATS] = {0};
    int end[2];
    assert(!pipe(end));
    for (int seat = 0; seat < SEATS; seat++)
        if (seat != lost)
            child[seat] = start(seat, meet, end[1]);
    close(end[1]);
    if (held >= 0) {
        usleep(300000);
        flock(held, LOCK_UN);
    }
    for (int i = 0; i < STAY; i++) {
        assert(read(end[0], &rank[i], 1) == 1);
        has[(int)rank[i]] = has[(rank[i] + SEATS - 1) % SEATS] = true;
    }
    for (int seat = 0; seat < SEATS; seat++)
        if (child[seat]) {
            kill(child[seat], SIGKILL);
            assert(waitpid(child[seat], NULL, 0) == child[seat]);
        }
    printf("without rank %d: ranks %d, %d and %d stay\n", rank_of(lost), rank[0], rank[1], rank[2]);
    for (int k = 0; k < SEATS; k++)
        assert(has[k]);
    close(end[0]);
}

/* The file of a job whose ranks are gone is there, and one that is dying has the lock for a moment:
 * those that read the file may lead the next job. */
static void find_old_file(const char *meet, const char *lock)
{
    const int held = open(lock, O_RDWR | O_CLOEXEC);
    assert(held >= 0 && !flock(held, LOCK_EX | LOCK_NB));
    assert(!access(meet + strlen("file:"), F_OK));
    lose(0, meet, held);
    close(held);
}

int main(void)
{
    char meet[64], lock[80];
    alarm(100);
    setvbuf(stdout, NULL, _IONBF, 0);
    snprintf(meet, sizeof meet, "file:/tmp/test_elastic_spares.%d", (int)getpid());
    snprintf(lock, sizeof lock, "%s.lock", meet + strlen("file:"));
    for (int lost = 0; lost < SEATS; lost++)
        lose(lost, meet, -1);
    find_old_file(meet, lock);
    unlink(meet + strlen("file:"));
    unlink(lock);
    return 0;
}
