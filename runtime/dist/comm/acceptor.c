/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepting ranks beside strangers.  All that connected are served by one poll, each for at most
 * ACCEPTOR_PATIENCE seconds; when too many wait, or no more descriptors are to be had, the one that
 * waits longest goes first.  A rank that had to go comes again.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dist/comm/acceptor.h"

enum { SPARE = 64 /* visitors beside the ranks of the job */, BURST = 16 /* accepted in a row */ };

int acceptor_open(struct acceptor *a, int size)
{
    a->most = size + SPARE;
    a->visitors = calloc((size_t)a->most, sizeof *a->visitors);
    a->polled = calloc((size_t)(ACCEPTOR_LISTENERS + a->most + size), sizeof *a->polled);
    return a->visitors && a->polled ? 0 : error_set(CKPT_ENOMEM, "no memory for %d ranks", size);
}

void acceptor_close(struct acceptor *a)
{
    for (int i = 0; i < a->n_visitors; i++)
        close(a->visitors[i].fd);
    a->n_visitors = 0;
    free(a->visitors);
    free(a->polled);
    a->visitors = NULL;
    a->polled = NULL;
}

void acceptor_count(struct acceptor *a, const char *from, const char *why)
{
    snprintf(a->last, sizeof a->last, "%s", from);
    a->why = why;
    a->strangers++;
}

void acceptor_describe(const struct acceptor *a, char *dst, size_t size)
{
    *dst = '\0';
    if (a->strangers)
        snprintf(dst, size, "; %lld other connection%s sent away, the last from %s: %s",
                 (long long)a->strangers, a->strangers == 1 ? " was" : "s were", a->last, a->why);
}

/* ---- visitors -------------------------------------------------------------------------------- */

static void forget(struct acceptor *a, int i)
{
    a->n_visitors--;
    memmove(&a->visitors[i], &a->visitors[i + 1],
            (size_t)(a->n_visitors - i) * sizeof *a->visitors);
}

static void send_away(struct acceptor *a, int i, const char *why)
{
    acceptor_count(a, a->visitors[i].from, why);
    close(a->visitors[i].fd);
    forget(a, i);
}

/* One that cannot be challenged at once is none: a fresh connection has room for so much. */
static void welcome(struct acceptor *a, int fd)
{
    if (a->n_visitors == a->most)
        send_away(a, 0, "too many came at once");
    int i = a->n_visitors++;
    struct visitor *v = &a->visitors[i];
    *v = (struct visitor){
        .fd = fd, .until = clock_seconds() + ACCEPTOR_PATIENCE, .from = "an unknown address"};
    socket_address(fd, true, v->from);
    v->challenge =
        (struct challenge){.magic = CHALLENGE_MAGIC, .secured = a->key->secured, .rank = a->rank};
    if (job_random(v->challenge.nonce, sizeof v->challenge.nonce))
        send_away(a, i, "the system gave no random numbers");
    else if (send(fd, &v->challenge, sizeof v->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) !=
             (ssize_t)sizeof v->challenge)
        send_away(a, i, "it was gone at once");
}

/* False when a connection waits that cannot be taken now. */
static bool accept_all(struct acceptor *a, int listener)
{
    for (int i = 0; i < BURST; i++) {
        int fd = socket_accept(listener);
        if (fd >= 0) {
            welcome(a, fd);
            continue;
        }
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return true;
        if (!a->n_visitors)
            return false;
        send_away(a, 0, "no more connections could be opened");
    }
    return true;
}

/* ---- hellos ---------------------------------------------------------------------------------- */

/* An answer without addresses, which is small enough for the socket; who is gone by then misses
 * nothing. */
static void answer_shortly(const struct acceptor *a, const struct visitor *v, const struct hello *h,
                           enum answer_verdict verdict)
{
    struct answer answer = {.magic = ANSWER_MAGIC, .verdict = verdict};
    if (verdict != ANSWER_UNPROVEN)
        answer_sign(a->key, &v->challenge, h, NULL, &answer);
    (void)send(v->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* A hello is whole: true if it is that of a rank of this job. */
static bool judge(struct acceptor *a, int i, struct arrival *arrival)
{
    struct visitor *v = &a->visitors[i];
    struct hello h;
    const char *wrong = hello_read(v->bytes, sizeof v->bytes, &h);
    if (!wrong && h.to != a->rank)
        wrong = "it looked for another rank";
    if (!wrong && !hello_is_proven(a->key, &v->challenge, &h)) {
        answer_shortly(a, v, &h, ANSWER_UNPROVEN);
        wrong = "it has another CKPT_JOB_TOKEN";
    }
    if (!wrong && strcmp(h.job, a->job)) {
        answer_shortly(a, v, &h, ANSWER_OTHER_JOB);
        wrong = "it is of another job";
    }
    if (wrong) {
        send_away(a, i, wrong);
        return false;
    }
    *arrival = (struct arrival){.fd = v->fd, .challenge = v->challenge, .hello = h};
    memcpy(arrival->from, v->from, sizeof arrival->from);
    forget(a, i);
    return true;
}

/* Takes what has come of a hello; true if that makes it a rank. */
static bool take(struct acceptor *a, int i, struct arrival *arrival)
{
    struct visitor *v = &a->visitors[i];
    ssize_t n = recv(v->fd, v->bytes + v->got, sizeof v->bytes - v->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n <= 0) {
        send_away(a, i, v->got ? "it left in the middle of its hello" : "it left without a word");
        return false;
    }
    v->got += (size_t)n;
    return v->got == sizeof v->bytes && judge(a, i, arrival);
}

/* Listeners, then visitors, then those watched. */
static bool poll_all(struct acceptor *a, double until, const int *watched, int n)
{
    double now = clock_seconds();
    int at = 0;
    for (int i = 0; i < a->n_listeners; i++)
        a->polled[at++] = (struct pollfd){.fd = a->listeners[i], .events = POLLIN};
    for (int i = 0; i < a->n_visitors; i++)
        a->polled[at++] = (struct pollfd){.fd = a->visitors[i].fd, .events = POLLIN};
    for (int i = 0; i < n; i++)
        a->polled[at++] = (struct pollfd){.fd = watched[i], .events = POLLIN};
    if (a->n_visitors && a->visitors[0].until < until) /* all have the same patience */
        until = a->visitors[0].until;
    double ms = until - now < 1 ? (until - now) * 1e3 + 1 : 1000;
    int ready = poll(a->polled, (nfds_t)at, ms > 0 ? (int)ms : 0);
    if (ready < 0)
        usleep(1000); /* what failed at once would fail again at once */
    return ready > 0;
}

static bool serve_visitors(struct acceptor *a, bool polled, struct arrival *arrival)
{
    const struct pollfd *p = a->polled + a->n_listeners;
    /* From the last on: those before it keep their places when one goes. */
    for (int i = a->n_visitors - 1; i >= 0 && polled; i--)
        if (p[i].revents && take(a, i, arrival))
            return true;
    while (a->n_visitors && clock_seconds() > a->visitors[0].until)
        send_away(a, 0, "it said no hello");
    return false;
}

enum acceptor_event acceptor_wait(struct acceptor *a, double until, const int *watched, int n,
                                  struct arrival *arrival, int *which)
{
    while (clock_seconds() <= until) {
        bool all_taken = true, polled = poll_all(a, until, watched, n);
        const struct pollfd *rest = a->polled + a->n_listeners + a->n_visitors;
        for (int i = 0; i < n && polled; i++)
            if (rest[i].fd >= 0 && rest[i].revents) {
                *which = i;
                return ACCEPTOR_READABLE;
            }
        if (serve_visitors(a, polled, arrival))
            return ACCEPTOR_ARRIVAL;
        for (int i = 0; i < a->n_listeners && polled; i++)
            if (a->polled[i].revents)
                all_taken &= accept_all(a, a->listeners[i]);
        if (!all_taken)
            usleep(20000);
    }
    return ACCEPTOR_LATE;
}
