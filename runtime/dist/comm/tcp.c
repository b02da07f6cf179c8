/* SPDX-License-Identifier: Apache-2.0 */
/* The link between processes over sockets.  Every message is preceded by its length. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dist/comm/linked.h"
#include "dist/comm/rendezvous.h"
#include "dist/comm/socket.h"

/* In place of a length: the sentence of a rank that aborts follows. */
#define ABORT (INT64_C(1) << 62)

struct peer {
    int fd;
    int64_t prefix;   /* length of the incoming message */
    int64_t received; /* bytes received of it, prefix included */
    int64_t sent;     /* bytes sent of the oldest unsent message, prefix included */
    bool closed;      /* closed by that rank, between two messages */
    int broken;       /* errno of a failed send; received data is still to be read */
    char sentence[LINK_SENTENCE];
};

struct tcp_link {
    struct link link;
    struct peer *peers;
    struct pollfd *polled;
    struct link_part *parts[LINK_SLOTS];
    int oldest;
};

static struct tcp_link *tcp(struct link *l)
{
    return (struct tcp_link *)l;
}

static void set_lost(struct tcp_link *t, int rank, const char *why)
{
    if (t->link.lost >= 0)
        return;
    t->link.lost = rank;
    snprintf(t->link.reason, sizeof t->link.reason, "%s", why);
}

static void tcp_start(struct link *l, int slot, struct link_part *parts)
{
    struct tcp_link *t = tcp(l);
    t->parts[slot] = parts;
    t->oldest = (slot + 1) % LINK_SLOTS;
}

/* The oldest part of a rank that is not completely sent (or received), or NULL. */
static struct link_part *first_part(const struct tcp_link *t, int rank, bool sending)
{
    for (int i = 0; i < LINK_SLOTS; i++) {
        struct link_part *parts = t->parts[(t->oldest + i) % LINK_SLOTS];
        if (parts && !(sending ? parts[rank].sent : parts[rank].came))
            return &parts[rank];
    }
    return NULL;
}

static bool is_transient(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

static void send_to(struct tcp_link *t, int rank)
{
    struct peer *peer = &t->peers[rank];
    struct link_part *part;
    while ((part = first_part(t, rank, true))) {
        int64_t head = (int64_t)sizeof part->out_bytes, at = peer->sent - head;
        const char *from =
            at < 0 ? (const char *)&part->out_bytes + peer->sent : (const char *)part->out + at;
        int64_t left = at < 0 ? -at : part->out_bytes - at;
        ssize_t n = 0;
        if (left)
            n = send(peer->fd, from, (size_t)left,
                     MSG_NOSIGNAL | MSG_DONTWAIT | (at < 0 ? MSG_MORE : 0));
        if (n < 0 && !is_transient(errno))
            peer->broken = errno;
        if (n < 0)
            return;
        peer->sent += n;
        if (peer->sent < head + part->out_bytes)
            continue;
        peer->sent = 0;
        part->sent = true;
    }
}

/* Destination and length of the next bytes from a rank; NULL: no buffer yet. */
static char *destination(struct tcp_link *t, int rank, int64_t *left)
{
    struct peer *peer = &t->peers[rank];
    int64_t head = (int64_t)sizeof peer->prefix, at = peer->received - head;
    if (at < 0) {
        *left = -at;
        return (char *)&peer->prefix + peer->received;
    }
    if (peer->prefix == ABORT) {
        *left = LINK_SENTENCE - at;
        return peer->sentence + at;
    }
    struct link_part *part = first_part(t, rank, false);
    if (peer->prefix <= 0 || (part && peer->prefix > part->capacity))
        set_lost(t, rank, "it sent an invalid message");
    if (!part || t->link.lost >= 0)
        return NULL;
    *left = peer->prefix - at;
    return (char *)part->in + at;
}

/* No message is empty: a zero length is refused in destination(). */
static bool message_is_whole(const struct peer *peer)
{
    int64_t bytes = peer->prefix == ABORT ? LINK_SENTENCE : peer->prefix;
    return bytes > 0 && peer->received - (int64_t)sizeof peer->prefix == bytes;
}

static void finish_message(struct tcp_link *t, int rank)
{
    struct peer *peer = &t->peers[rank];
    peer->received = 0;
    if (peer->prefix == ABORT) {
        peer->sentence[LINK_SENTENCE - 1] = '\0';
        if (!*t->link.abort_text)
            memcpy(t->link.abort_text, peer->sentence, sizeof t->link.abort_text);
        return;
    }
    struct link_part *part = first_part(t, rank, false);
    part->got = peer->prefix;
    part->came = true;
}

static void receive_from(struct tcp_link *t, int rank)
{
    struct peer *peer = &t->peers[rank];
    int64_t left = 0;
    char *to;
    while (!peer->closed && (to = destination(t, rank, &left))) {
        ssize_t n = left ? recv(peer->fd, to, (size_t)left, MSG_DONTWAIT) : 0;
        if (n < 0 && is_transient(errno))
            return;
        if (n < 0 || (n == 0 && left)) {
            peer->closed = true;
            if (n < 0)
                peer->broken = errno;
            else if (peer->received)
                set_lost(t, rank, "its connection was closed");
            return;
        }
        peer->received += n;
        /* A message may be complete before its part is started. */
        if (message_is_whole(peer) && (peer->prefix & ABORT || first_part(t, rank, false)))
            finish_message(t, rank);
    }
}

/*
 * Finds the rank that failed.  A rank that closed after its last message has failed only if more is
 * expected from it.  A rank whose socket accepts no data has often ended because of another rank
 * that closed before.
 */
static void find_failed_rank(struct tcp_link *t)
{
    int closed = -1, broken = -1;
    for (int r = t->link.size - 1; r >= 0; r--) {
        const struct peer *peer = &t->peers[r];
        if (peer->closed && first_part(t, r, false))
            set_lost(t, r, "its connection was closed");
        if (peer->broken)
            broken = r;
        else if (peer->closed)
            closed = r;
    }
    if (broken >= 0 && closed >= 0)
        set_lost(t, closed, "its connection was closed");
    else if (broken >= 0)
        set_lost(t, broken, strerror(t->peers[broken].broken));
}

static bool tcp_progress(struct link *l)
{
    struct tcp_link *t = tcp(l);
    for (int r = 0; r < l->size; r++) {
        if (r == l->rank)
            continue;
        if (!t->peers[r].broken)
            send_to(t, r);
        receive_from(t, r);
    }
    find_failed_rank(t);
    return l->lost < 0;
}

static void tcp_wait(struct link *l, double seconds)
{
    struct tcp_link *t = tcp(l);
    for (int r = 0; r < l->size; r++)
        t->polled[r] = (struct pollfd){
            .fd = first_part(t, r, false) || first_part(t, r, true) ? t->peers[r].fd : -1,
            .events = (short)(POLLIN | (first_part(t, r, true) ? POLLOUT : 0))};
    ppoll(t->polled, (nfds_t)l->size, &(struct timespec){0, (long)(seconds * 1e9)}, NULL);
}

/* A partly sent message is completed first. */
static void tcp_abort(struct link *l, const char *sentence)
{
    struct tcp_link *t = tcp(l);
    int64_t prefix = ABORT;
    char text[sizeof prefix + LINK_SENTENCE] = "";
    memcpy(text, &prefix, sizeof prefix);
    snprintf(text + sizeof prefix, LINK_SENTENCE, "%s", sentence);
    for (int r = 0; r < l->size; r++) {
        struct peer *peer = &t->peers[r];
        double until = clock_seconds() + 0.1;
        if (r == l->rank)
            continue;
        while (peer->sent && !peer->broken && socket_ready(peer->fd, POLLOUT, until))
            send_to(t, r);
        if (!peer->sent && !peer->broken)
            socket_write(peer->fd, text, sizeof text, until);
    }
}

static bool tcp_close(struct link *l, bool failed)
{
    struct tcp_link *t = tcp(l);
    (void)failed;
    for (int r = 0; r < l->size && t->peers; r++)
        if (t->peers[r].fd >= 0)
            close(t->peers[r].fd);
    free(t->peers);
    free(t->polled);
    free(t);
    return true;
}

static const struct link_ops tcp_ops = {.start = tcp_start,
                                        .progress = tcp_progress,
                                        .wait = tcp_wait,
                                        .abort = tcp_abort,
                                        .close = tcp_close};

int comm_open_tcp(struct comm **c, struct comm_rendezvous *given, double deadline)
{
    struct comm_rendezvous m = *given;
    struct tcp_link *t = calloc(1, sizeof *t);
    size_t n = (size_t)max_i64(1, m.size) + 1;
    int *fds = calloc(n, sizeof *fds);
    if (t) {
        t->link = (struct link){.ops = &tcp_ops, .lost = -1};
        t->peers = calloc(n, sizeof *t->peers);
        t->polled = calloc(n, sizeof *t->polled);
    }
    int rc = t && fds && t->peers && t->polled
                 ? rendezvous_connect(&m, deadline > 0 ? deadline : COMM_DEADLINE, fds, t->link.how)
                 : error_set(CKPT_ENOMEM, "no memory for %d ranks", m.size);
    given->former_size = m.former_size;
    if (rc || m.gives_up) {
        free(fds);
        if (t)
            tcp_close(&t->link, true);
        return rc;
    }
    t->link.rank = m.rank;
    t->link.size = m.size;
    for (int r = 0; r < m.size; r++)
        t->peers[r].fd = fds[r];
    free(fds);
    return comm_open_linked(c, "tcp", &t->link, deadline);
}
