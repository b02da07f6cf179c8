/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the collectives between ranks over any transport and prints one line per job: the digest of
 * all results, which must not depend on the transport.  With a fault, every rank prints how it
 * ended.
 *
 *     comm_ranks threads SIZE
 *     comm_ranks tcp SIZE WHERE [FAULT RANK]      forks the ranks
 *     comm_ranks mpi [FAULT RANK]                 started by mpirun
 *
 * FAULT: drop, damage, late, stop (SIGSTOP), kill (SIGKILL), plan (another one), absent (tcp).
 * CKPT_TEST_DEADLINE: seconds, default 30.  Exits 0, 1, or 77 if the transport is not available.
 */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "dist/comm_threads.h"
#include "dist/exercise.h"

enum { FAULTY_CALL = 17 };

struct job {
    const char *kind, *where, *fault;
    int size, faulty;
    double deadline;
};

static void bring_fault(const struct job *job, struct comm *c)
{
    static const char *const names[] = {"", "drop", "late", "", "damage"};
    for (int k = COMM_FAULT_DROP; k <= COMM_FAULT_CORRUPT; k++)
        if (!strcmp(job->fault, names[k]))
            comm_inject(c, &(struct comm_fault){(enum comm_fault_kind)k, FAULTY_CALL,
                                                job->faulty ? 0 : 1, 2 * job->deadline});
}

static int check_plan(const struct job *job, struct comm *c)
{
    bool other = !strcmp(job->fault, "plan") && c->rank == job->faulty;
    return comm_agree(c, "started with",
                      &(struct comm_term){.name = "plan", .value = other ? 2 : 1}, 1);
}

/* Stops in the middle of the job. */
static int end_early(struct comm *c, int signal_number)
{
    int rc = comm_barrier(c, "before the fault");
    if (!rc)
        raise(signal_number);
    return rc;
}

static int work(const struct job *job, struct comm *c, uint64_t *digest, char *wrong, size_t size)
{
    bool faulty = c->rank == job->faulty;
    *digest = 0;
    if (faulty)
        bring_fault(job, c);
    int rc = check_plan(job, c);
    if (!rc && faulty && !strcmp(job->fault, "stop"))
        rc = end_early(c, SIGSTOP);
    if (!rc && faulty && !strcmp(job->fault, "kill"))
        rc = end_early(c, SIGKILL);
    if (!rc && !faulty && (!strcmp(job->fault, "stop") || !strcmp(job->fault, "kill")))
        rc = comm_barrier(c, "before the fault");
    snprintf(wrong, size, "%s", rc ? c->reason : "");
    if (!rc)
        rc = exercise(c, digest, wrong, size);
    if (!rc)
        rc = exercise_groups(c, digest, wrong, size);
    return rc;
}

/* All digests in one, printed by rank 0. */
static int print_digest(struct comm *c, uint64_t digest)
{
    int32_t halves[2] = {(int32_t)(digest >> 32), (int32_t)digest}, all[2 * 64];
    struct comm_call call = {COMM_ALL_GATHER, CKPT_I32, 0, 2, halves, all, "digests"};
    uint64_t h = HASH_START;
    int rc = c->size <= 64 ? comm_run(c, &call, NULL) : CKPT_EINVAL;
    for (int i = 0; i < 2 * c->size && !rc; i++)
        h = hash_mix(h, all[i]);
    if (!rc && c->rank == 0)
        printf("%d ranks: %016llx\n", c->size, (unsigned long long)h);
    return rc;
}

static int run_rank(const struct job *job, struct comm *c)
{
    char wrong[CKPT_MESSAGE] = "";
    uint64_t digest = 0;
    double begin = clock_seconds();
    int rc = work(job, c, &digest, wrong, sizeof wrong);
    if (!rc)
        rc = print_digest(c, digest);
    if (rc) {
        char line[2 * CKPT_MESSAGE];
        int n = snprintf(line, sizeof line, "[rank %d after %.1f s] %s\n", c->rank,
                         clock_seconds() - begin, *wrong ? wrong : c->reason);
        if (write(STDERR_FILENO, line, (size_t)n) < 0)
            rc = CKPT_EIO;
    }
    comm_close(c);
    fflush(stdout);
    return rc ? 1 : 0;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct thread {
    const struct job *job;
    struct comm *comm;
    pthread_t id;
    int rc;
};

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    t->rc = run_rank(t->job, t->comm);
    return NULL;
}

static int run_threads(const struct job *job)
{
    struct thread threads[64] = {{0}};
    struct comm *comms[64];
    int rc = job->size < 1 || job->size > 64 || comm_open_threads(comms, job->size, job->deadline);
    for (int r = 0; r < job->size && !rc; r++) {
        threads[r].job = job;
        threads[r].comm = comms[r];
        rc = pthread_create(&threads[r].id, NULL, thread_main, &threads[r]);
    }
    for (int r = 0; r < job->size && !rc; r++) {
        pthread_join(threads[r].id, NULL);
        rc |= threads[r].rc;
    }
    return rc ? 1 : 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

static int run_process(const struct job *job, int rank)
{
    struct comm *c = NULL;
    struct comm_rendezvous m = {.where = job->where,
                                .job = "comm_ranks",
                                .token = getenv("CKPT_JOB_TOKEN"),
                                .rank = rank,
                                .size = job->size};
    bool faulty = rank == job->faulty;
    if (faulty && !strcmp(job->fault, "absent"))
        return 0;
    if (faulty && !strcmp(job->fault, "size"))
        m.size++;
    if (faulty && !strcmp(job->fault, "twice"))
        m.rank = rank > 1 ? rank - 1 : rank + 1;
    if (comm_open_tcp(&c, &m, job->deadline)) {
        fprintf(stderr, "[rank %d] %s\n", rank, error_get());
        return 1;
    }
    return run_rank(job, c);
}

/* A rank that was stopped never ends by itself. */
static int run_tcp(const struct job *job)
{
    pid_t pids[64];
    int rc = 0, status;
    for (int r = 0; r < job->size; r++) {
        pids[r] = fork();
        if (pids[r] == 0)
            _exit(run_process(job, r));
    }
    for (int r = 0; r < job->size; r++) {
        if (!strcmp(job->fault, "stop") && r == job->faulty)
            continue;
        if (waitpid(pids[r], &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status))
            rc = 1;
    }
    if (!strcmp(job->fault, "stop")) {
        kill(pids[job->faulty], SIGKILL);
        waitpid(pids[job->faulty], &status, 0);
    }
    return rc;
}

static int run_mpi(const struct job *job)
{
    struct comm *c = NULL;
    if (comm_open_mpi(&c, job->deadline)) {
        fprintf(stderr, "%s\n", error_get());
        return 77;
    }
    return run_rank(job, c);
}

int main(int argc, char **argv)
{
    const char *deadline = getenv("CKPT_TEST_DEADLINE");
    struct job job = {.kind = argc > 1 ? argv[1] : "", .fault = "", .faulty = -1};
    int at = 2;
    job.deadline = deadline ? atof(deadline) : 30;
    if (strcmp(job.kind, "mpi") && argc > at)
        job.size = atoi(argv[at++]);
    if (!strcmp(job.kind, "tcp") && argc > at)
        job.where = argv[at++];
    if (argc > at + 1) {
        job.fault = argv[at];
        job.faulty = atoi(argv[at + 1]);
    }
    if (!strcmp(job.kind, "threads"))
        return run_threads(&job);
    if (!strcmp(job.kind, "tcp") && job.where && job.size > 0 && job.size <= 64)
        return run_tcp(&job);
    if (!strcmp(job.kind, "mpi"))
        return run_mpi(&job);
    fprintf(stderr, "comm_ranks: see the head of comm_ranks.c\n");
    return 2;
}
