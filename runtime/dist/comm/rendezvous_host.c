/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0 of a rendezvous: listens, waits until all ranks are connected, and answers all of them.
 * An invalid message of an authenticated rank ends the job for all.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "dist/comm/rendezvous_state.h"

/* Answers one rank; all: with the addresses, else with a sentence. */
static bool answer(struct rendezvous *v, int rank, bool all, const char *sentence, double until)
{
    const struct arrival *to = &v->arrivals[rank];
    int n = all ? v->m->size - 1 : 0;
    struct answer a = {.magic = ANSWER_MAGIC,
                       .verdict = all ? ANSWER_WELCOME : ANSWER_REFUSED,
                       .n_addresses = n,
                       .rank = rank};
    snprintf(a.sentence, sizeof a.sentence, "%s", sentence);
    answer_sign(&v->key, &to->challenge, &to->hello, v->addresses, &a);
    return socket_write(to->fd, &a, sizeof a, until) &&
           socket_write(to->fd, v->addresses, (size_t)n * sizeof *v->addresses, until);
}

/* Sends the error to all connected ranks, and fails. */
static int refuse_all(struct rendezvous *v, const char *fmt, ...) CKPT_PRINTF(2, 3);
static int refuse_all(struct rendezvous *v, const char *fmt, ...)
{
    char sentence[CKPT_MESSAGE];
    double until = clock_seconds() + 1;
    va_list ap;
    va_start(ap, fmt);
    error_vset(sentence, sizeof sentence, CKPT_ECOMM, fmt, ap);
    va_end(ap);
    for (int r = 1; r < v->m->size; r++)
        if (v->fds[r] >= 0)
            answer(v, r, false, sentence, until);
    return error_set(CKPT_ECOMM, "%s", sentence);
}

/* A host name may resolve to loopback on the host itself and to its address elsewhere. */
static void describe_listener(const struct rendezvous *v, char *dst, size_t size)
{
    char at[SOCKET_HOST];
    *dst = '\0';
    if (socket_address(v->acceptor.listeners[0], false, at) && socket_is_loopback(at) &&
        strcmp(v->host, "localhost") && !socket_is_loopback(v->host))
        snprintf(dst, size,
                 "; here %.80s is %s, which other hosts do not reach: give the address of rank 0",
                 v->host, at);
}

static int refuse_missing(struct rendezvous *v)
{
    char who[256], where[224], rejected[192];
    bool *missing = calloc((size_t)v->m->size, sizeof *missing);
    if (!missing)
        return refuse_all(v, "not all ranks reached %.200s", v->m->where);
    for (int r = 1; r < v->m->size; r++)
        missing[r] = v->fds[r] < 0;
    comm_name_ranks(who, sizeof who, missing, v->m->size);
    free(missing);
    describe_listener(v, where, sizeof where);
    acceptor_describe(&v->acceptor, rejected, sizeof rejected);
    return refuse_all(v, "%s of %d did not reach %.200s within %g s%s%s", who, v->m->size,
                      v->m->where, v->deadline, where, rejected);
}

/* ---- a process that gives up ----------------------------------------------------------------- */

/* Seconds, of the deadline at most, for which others may come later and are told. */
#define LATE_WAIT 10.0

double rendezvous_late(const struct rendezvous *v)
{
    return v->deadline < LATE_WAIT ? v->deadline : LATE_WAIT;
}

void rendezvous_note_end(struct rendezvous *v, int rank, const char *why)
{
    if (!*v->ended)
        snprintf(v->ended, sizeof v->ended, "rank %d gave up: %.*s", rank,
                 (int)sizeof v->ended - 32, why);
}

/* Of an elastic job that goes on elsewhere: it takes the place next. */
static bool is_of_former(const struct arrival *came)
{
    return came->hello.former_size && !*came->hello.gives_up;
}

static void tell_late(struct rendezvous *v, int missing)
{
    struct arrival came = {.fd = -1};
    int which;
    while (missing > 0 && !is_of_former(&came) &&
           acceptor_wait(&v->acceptor, clock_seconds() + rendezvous_late(v), NULL, 0, &came,
                         &which) == ACCEPTOR_ARRIVAL) {
        v->arrivals[0] = came; /* index 0 is this rank's own and unused */
        if (!is_of_former(&came))
            v->told += answer(v, 0, false, v->ended, clock_seconds() + 1);
        close(came.fd);
        missing--;
    }
}

int rendezvous_end(struct rendezvous *v)
{
    const int others = v->m->size - 1 - (v->m->lobby != NULL);
    for (int r = 1; r < v->m->size; r++)
        if (v->fds[r] >= 0)
            v->told += answer(v, r, false, v->ended, clock_seconds() + 1);
    tell_late(v, others - v->told);
    if (!v->m->gives_up)
        return error_set(CKPT_ECOMM, "%s", v->ended);
    return v->told >= others
               ? 0
               : error_set(CKPT_ECOMM, "%d of %d other ranks came within %g s to be told", v->told,
                           others, rendezvous_late(v));
}

/* What is wrong with a rank of this job, or "". */
static void check_hello(const struct rendezvous *v, const struct hello *h, char *wrong, size_t size)
{
    *wrong = '\0';
    if (strcmp(h->version, v->version))
        snprintf(wrong, size, "rank %d (%s) runs libckpt %s, rank 0 %s: install one version",
                 h->rank, h->host, h->version, v->version);
    else if (h->size != v->m->size)
        snprintf(wrong, size, "rank %d (%s) was started as one of %d, rank 0 as one of %d", h->rank,
                 h->host, h->size, v->m->size);
    else if (v->fds[h->rank] >= 0)
        snprintf(wrong, size, "two processes are started as rank %d: %d on %s and %d on %s",
                 h->rank, v->arrivals[h->rank].hello.pid, v->arrivals[h->rank].hello.host, h->pid,
                 h->host);
}

/* Registers a rank of this job.  An inconsistent rank ends the job for all. */
static int register_rank(struct rendezvous *v, struct arrival *came)
{
    char wrong[512];
    check_hello(v, &came->hello, wrong, sizeof wrong);
    if (!*wrong && *came->hello.gives_up)
        rendezvous_note_end(v, came->hello.rank, came->hello.gives_up);
    if (!*wrong) {
        v->arrivals[came->hello.rank] = *came;
        v->fds[came->hello.rank] = came->fd;
        return 0;
    }
    int rc = refuse_all(v, "%s", wrong);
    v->arrivals[0] = *came; /* index 0 is this rank's own and unused */
    answer(v, 0, false, wrong, clock_seconds() + 1);
    close(came->fd);
    return rc;
}

/* A rank that sends data before it is answered has ended or is broken; it may connect again. */
static void drop_rank(struct rendezvous *v, int rank)
{
    rendezvous_reject(v, &v->arrivals[rank], "it left before all ranks were there");
    v->fds[rank] = -1;
}

int rendezvous_welcome(struct rendezvous *v)
{
    double until = clock_seconds() + v->deadline;
    for (int r = 1; r < v->m->size; r++) {
        struct address *to = &v->addresses[r - 1];
        memcpy(to->host, v->arrivals[r].from, sizeof to->host);
        to->port = v->arrivals[r].hello.port;
    }
    for (int r = 1; r < v->m->size; r++)
        if (!answer(v, r, true, "", until))
            return refuse_all(v, "rank %d is gone: %s", r, strerror(errno));
    return 0;
}

static int host_rendezvous(struct rendezvous *v)
{
    struct arrival came;
    int which = 0, rc = 0;
    if (v->m->gives_up)
        rendezvous_note_end(v, 0, v->m->gives_up);
    for (int missing = v->m->size - 1; missing && !rc && !*v->ended;) {
        switch (acceptor_wait(&v->acceptor, v->until, v->fds, v->m->size, &came, &which)) {
        case ACCEPTOR_LATE:
            return refuse_missing(v);
        case ACCEPTOR_ARRIVAL:
            rc = register_rank(v, &came);
            missing--;
            break;
        case ACCEPTOR_READABLE:
            drop_rank(v, which);
            missing++;
            break;
        }
    }
    if (!rc && *v->ended)
        return rendezvous_end(v);
    return rc ? rc : rendezvous_welcome(v);
}

/* ---- listening ------------------------------------------------------------------------------- */

/* Rank 0 writes its address and a secret, which lets readers of the file authenticate.  Without a
 * token the key, if there is one, is that of a file which this process read before. */
int rendezvous_publish(struct rendezvous *v)
{
    int rc = 0;
    snprintf(v->file.job, sizeof v->file.job, "%s", v->m->job);
    v->file.port = v->port = v->own_port;
    v->file.has_secret = !v->m->token && job_key_available();
    if (v->file.has_secret)
        rc = job_random(v->file.secret, sizeof v->file.secret);
    if (!rc && v->file.has_secret)
        rc = job_key_from_bytes(&v->key, v->file.secret, sizeof v->file.secret);
    return rc ? rc : rendezvous_file_write(v->path, &v->file);
}

int rendezvous_host(struct rendezvous *v)
{
    if (v->path) {
        socket_own_address(v->file.host);
        memcpy(v->host, v->file.host, sizeof v->file.host);
    }
    int rc = rendezvous_listen(v, v->host, v->path ? 0 : v->port);
    if (!rc && v->path)
        rc = rendezvous_publish(v);
    if (!rc)
        rc = host_rendezvous(v);
    if (v->path && v->file.port)
        rendezvous_file_remove(v->path, &v->file);
    return rc;
}
