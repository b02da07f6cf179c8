/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts ranks and rejects other connections.  One poll serves all connections, each for at most
 * ACCEPTOR_TIMEOUT seconds.  If there are too many, or no free descriptors, the oldest is closed;
 * a rank closed this way connects again.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dist/comm/acceptor.h"

enum {
    SPARE = 64 /* connections beyond the ranks of the job */,
    BURST = 16 /* accepts in a row */
};

int acceptor_open(struct acceptor *a, int size)
{
    a->capacity = size + SPARE;
    a->pending = calloc((size_t)a->capacity, sizeof *a->pending);
    a->polled = calloc((size_t)(ACCEPTOR_LISTENERS + a->capacity + size), sizeof *a->polled);
    return a->pending && a->polled ? 0 : error_set(CKPT_ENOMEM, "no memory for %d ranks", size);
}

void acceptor_count(struct acceptor *a, const char *from, const char *why)
{
    snprintf(a->last, sizeof a->last, "%s", from);
    a->why = why;
    a->rejected++;
}

void acceptor_describe(const struct acceptor *a, char *dst, size_t size)
{
    *dst = '\0';
    if (a->rejected)
        snprintf(dst, size, "; %lld other connection%s rejected, the last from %s: %s",
                 (long long)a->rejected, a->rejected == 1 ? " was" : "s were", a->last, a->why);
}

/* ---- visitors -------------------------------------------------------------------------------- */

static void remove_pending(struct acceptor *a, int i)
{
    a->n_pending--;
    memmove(&a->pending[i], &a->pending[i + 1], (size_t)(a->n_pending - i) * sizeof *a->pending);
}

static void reject(struct acceptor *a, int i, const char *why)
{
    acceptor_count(a, a->pending[i].from, why);
    close(a->pending[i].fd);
    remove_pending(a, i);
}

/* Whoever is still there is none of the ranks. */
void acceptor_close(struct acceptor *a)
{
    while (a->n_pending)
        reject(a, a->n_pending - 1, "it had sent no hello");
    free(a->pending);
    free(a->polled);
    a->pending = NULL;
    a->polled = NULL;
}

/* A connection that cannot take a challenge at once is closed: a new socket always has room for
 * it. */
static void send_challenge(struct acceptor *a, int fd)
{
    if (a->n_pending == a->capacity)
        reject(a, 0, "too many came at once");
    int i = a->n_pending++;
    struct pending_hello *v = &a->pending[i];
    *v = (struct pending_hello){
        .fd = fd, .until = clock_seconds() + ACCEPTOR_TIMEOUT, .from = "an unknown address"};
    socket_address(fd, true, v->from);
    v->challenge =
        (struct challenge){.magic = CHALLENGE_MAGIC, .secured = a->key->secured, .rank = a->rank};
    if (job_random(v->challenge.nonce, sizeof v->challenge.nonce))
        reject(a, i, "the system gave no random numbers");
    else if (send(fd, &v->challenge, sizeof v->challenge, MSG_NOSIGNAL | MSG_DONTWAIT) !=
             (ssize_t)sizeof v->challenge)
        reject(a, i, "it closed at once");
}

/* False if a connection waits that cannot be accepted now. */
static bool accept_all(struct acceptor *a, int listener)
{
    for (int i = 0; i < BURST; i++) {
        int fd = socket_accept(listener);
        if (fd >= 0) {
            send_challenge(a, fd);
            continue;
        }
        if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
            return true;
        if (!a->n_pending)
            return false;
        reject(a, 0, "no more connections could be opened");
    }
    return true;
}

/* ---- hellos ---------------------------------------------------------------------------------- */

/* Sends an answer without addresses, small enough for the socket buffer; failures do not matter. */
static void send_short_answer(const struct acceptor *a, const struct pending_hello *v,
                              const struct hello *h, enum answer_verdict verdict)
{
    struct answer answer = {.magic = ANSWER_MAGIC, .verdict = verdict};
    if (verdict != ANSWER_UNPROVEN)
        answer_sign(a->key, &v->challenge, h, NULL, &answer);
    (void)send(v->fd, &answer, sizeof answer, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Checks a complete hello: true if it comes from a rank of this job. */
static bool check_hello(struct acceptor *a, int i, struct arrival *arrival)
{
    struct pending_hello *v = &a->pending[i];
    struct hello h;
    const char *wrong = hello_read(v->bytes, sizeof v->bytes, &h);
    if (!wrong && h.to != a->rank)
        wrong = "it looked for another rank";
    if (!wrong && !hello_is_proven(a->key, &v->challenge, &h)) {
        send_short_answer(a, v, &h, ANSWER_UNPROVEN);
        wrong = "it has another CKPT_JOB_TOKEN";
    }
    if (!wrong && strcmp(h.job, a->job)) {
        send_short_answer(a, v, &h, ANSWER_OTHER_JOB);
        wrong = "it is of another job";
    }
    if (wrong) {
        reject(a, i, wrong);
        return false;
    }
    *arrival = (struct arrival){.fd = v->fd, .challenge = v->challenge, .hello = h};
    memcpy(arrival->from, v->from, sizeof arrival->from);
    remove_pending(a, i);
    return true;
}

/* Reads more of a hello; true if it is complete and valid. */
static bool receive(struct acceptor *a, int i, struct arrival *arrival)
{
    struct pending_hello *v = &a->pending[i];
    ssize_t n = recv(v->fd, v->bytes + v->got, sizeof v->bytes - v->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return false;
    if (n <= 0) {
        reject(a, i, v->got ? "it closed in the middle of its hello" : "it closed without a hello");
        return false;
    }
    v->got += (size_t)n;
    return v->got == sizeof v->bytes && check_hello(a, i, arrival);
}

/* Polls listeners, connections and watched sockets, in this order. */
static bool poll_all(struct acceptor *a, double until, const int *watched, int n)
{
    double now = clock_seconds();
    int at = 0;
    for (int i = 0; i < a->n_listeners; i++)
        a->polled[at++] = (struct pollfd){.fd = a->listeners[i], .events = POLLIN};
    for (int i = 0; i < a->n_pending; i++)
        a->polled[at++] = (struct pollfd){.fd = a->pending[i].fd, .events = POLLIN};
    for (int i = 0; i < n; i++)
        a->polled[at++] = (struct pollfd){.fd = watched[i], .events = POLLIN};
    if (a->n_pending &&
        a->pending[0].until < until) /* timeouts are equal, so the first is the oldest */
        until = a->pending[0].until;
    double ms = until - now < 1 ? (until - now) * 1e3 + 1 : 1000;
    int ready = poll(a->polled, (nfds_t)at, ms > 0 ? (int)ms : 0);
    if (ready < 0)
        usleep(1000); /* avoids spinning on an immediate error */
    return ready > 0;
}

static bool serve_pending(struct acceptor *a, bool polled, struct arrival *arrival)
{
    const struct pollfd *p = a->polled + a->n_listeners;
    /* Backwards, so that removals do not move the entries still to visit. */
    for (int i = a->n_pending - 1; i >= 0 && polled; i--)
        if (p[i].revents && receive(a, i, arrival))
            return true;
    while (a->n_pending && clock_seconds() > a->pending[0].until)
        reject(a, 0, "it sent no hello in time");
    return false;
}

enum acceptor_event acceptor_wait(struct acceptor *a, double until, const int *watched, int n,
                                  struct arrival *arrival, int *which)
{
    while (clock_seconds() <= until) {
        bool all_taken = true, polled = poll_all(a, until, watched, n);
        const struct pollfd *rest = a->polled + a->n_listeners + a->n_pending;
        for (int i = 0; i < n && polled; i++)
            if (rest[i].fd >= 0 && rest[i].revents) {
                *which = i;
                return ACCEPTOR_READABLE;
            }
        if (serve_pending(a, polled, arrival))
            return ACCEPTOR_ARRIVAL;
        for (int i = 0; i < a->n_listeners && polled; i++)
            if (a->polled[i].revents)
                all_taken &= accept_all(a, a->listeners[i]);
        if (!all_taken)
            usleep(20000);
    }
    return ACCEPTOR_LATE;
}
