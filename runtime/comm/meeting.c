/*
 * A meeting.  Rank 0 opens a port, every other rank says who it is and where it can be reached, and
 * rank 0 answers all at once: the table of addresses, or the sentence that ends the job everywhere.
 * Then every pair that has no socket yet makes one, the higher rank to the lower.
 */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>
#include "comm/meeting.h"

#define HELLO "ckpt-hi"

/* Numbers travel as they are: ranks of one job run on machines of one kind. */
struct hello {
    char magic[8], version[16], token[64];
    int32_t rank, size, port, pid;
    char host[64];
};

struct answer {
    int32_t refused, again; /* again: come back later, this was not the job you look for */
    char sentence[CKPT_MESSAGE];
};

struct address {
    char host[64];
    int32_t port;
};

struct room {
    const struct comm_meeting *m;
    double until, deadline;
    char host[256]; /* where rank 0 listens */
    int port;
    int listener; /* own */
    int own_port;
    int *fds;
    struct hello *guests;    /* of rank 0 */
    struct address *address; /* of all */
};

static const char *token_of(const struct comm_meeting *m)
{
    return m->token ? m->token : "";
}

/* ---- where it is ----------------------------------------------------------------------------- */

static bool is_file(const struct comm_meeting *m)
{
    return strncmp(m->where, "file:", 5) == 0;
}

/* "tcp:HOST:PORT" */
static bool parse_address(struct room *room)
{
    const char *host = room->m->where + 4, *colon = strrchr(host, ':');
    char *end = NULL;
    if (strncmp(room->m->where, "tcp:", 4) || !colon || colon == host ||
        (size_t)(colon - host) >= sizeof room->host)
        return false;
    long port = strtol(colon + 1, &end, 10);
    if (end == colon + 1 || *end || port < 1 || port > 65535)
        return false;
    memcpy(room->host, host, (size_t)(colon - host));
    room->host[colon - host] = '\0';
    room->port = (int)port;
    return true;
}

/* A file of another job may lie there: it is written aside and put in place whole. */
static int write_address(const struct room *room)
{
    const char *path = room->m->where + 5;
    char aside[1024];
    snprintf(aside, sizeof aside, "%s.%ld", path, (long)getpid());
    FILE *f = fopen(aside, "w");
    bool ok = f && fprintf(f, "ckpt %s %d [%s]\n", room->host, room->port, token_of(room->m)) > 0;
    if (f && fclose(f))
        ok = false;
    if (ok && rename(aside, path) == 0)
        return 0;
    int rc = error_set(CKPT_ECOMM, "cannot write the meeting point %s: %s", path, strerror(errno));
    unlink(aside);
    return rc;
}

/* Is there an address of this job in the file? */
static bool read_address(struct room *room)
{
    char token[80] = "";
    FILE *f = fopen(room->m->where + 5, "r");
    if (!f)
        return false;
    int n = fscanf(f, "ckpt %255s %d [%79[^]\n]", room->host, &room->port, token);
    fclose(f);
    return n >= 2 && strcmp(token, token_of(room->m)) == 0;
}

/* ---- rank 0 ---------------------------------------------------------------------------------- */

static void tell(int fd, bool refused, const char *sentence, double until)
{
    struct answer a = {.refused = refused};
    snprintf(a.sentence, sizeof a.sentence, "%s", sentence);
    socket_write(fd, &a, sizeof a, until);
}

/* Tells everybody who is there, and fails. */
static int refuse_all(struct room *room, const char *fmt, ...) CKPT_PRINTF(2, 3);
static int refuse_all(struct room *room, const char *fmt, ...)
{
    char sentence[CKPT_MESSAGE];
    va_list ap;
    va_start(ap, fmt);
    error_vset(sentence, sizeof sentence, CKPT_ECOMM, fmt, ap);
    va_end(ap);
    for (int r = 1; r < room->m->size; r++)
        if (room->fds[r] >= 0)
            tell(room->fds[r], true, sentence, clock_seconds() + 1);
    return error_set(CKPT_ECOMM, "%s", sentence);
}

static int refuse_missing(struct room *room)
{
    char who[512];
    bool *missing = calloc((size_t)room->m->size, sizeof *missing);
    if (!missing)
        return refuse_all(room, "not all ranks came to %s", room->m->where);
    for (int r = 1; r < room->m->size; r++)
        missing[r] = room->fds[r] < 0;
    comm_name_ranks(who, sizeof who, missing, room->m->size);
    free(missing);
    return refuse_all(room, "%s of %d did not come to %s within %g s", who, room->m->size,
                      room->m->where, room->deadline);
}

/* What is wrong with a guest of this job, or "". */
static void judge(const struct room *room, const struct hello *h, char *wrong, size_t size)
{
    const struct comm_meeting *m = room->m;
    *wrong = '\0';
    if (strcmp(h->version, ckpt_version()))
        snprintf(wrong, size, "rank %d (%s) runs libckpt %s, rank 0 %s: install one version",
                 h->rank, h->host, h->version, ckpt_version());
    else if (h->size != m->size || h->rank < 1 || h->rank >= m->size)
        snprintf(wrong, size, "rank %d (%s) was started as one of %d, rank 0 as one of %d", h->rank,
                 h->host, h->size, m->size);
    else if (room->fds[h->rank] >= 0)
        snprintf(wrong, size, "two processes say they are rank %d: %d on %s and %d on %s", h->rank,
                 room->guests[h->rank].pid, room->guests[h->rank].host, h->pid, h->host);
}

/* One that knocked.  Strangers, and ranks of another job, are sent away; what cannot be right in
 * this job ends it. */
static int receive(struct room *room, int fd)
{
    struct hello h;
    char wrong[512];
    double until = clock_seconds() + 2;
    struct answer other = {.refused = 1, .again = 1};
    if (until > room->until)
        until = room->until;
    if (!socket_read(fd, &h, sizeof h, until) || memcmp(h.magic, HELLO, sizeof h.magic)) {
        close(fd);
        return 0;
    }
    h.version[sizeof h.version - 1] = h.token[sizeof h.token - 1] = '\0';
    h.host[sizeof h.host - 1] = '\0';
    if (strcmp(h.token, token_of(room->m))) {
        socket_write(fd, &other, sizeof other, until);
        close(fd);
        return 0;
    }
    judge(room, &h, wrong, sizeof wrong);
    if (*wrong) {
        tell(fd, true, wrong, until);
        close(fd);
        return refuse_all(room, "%s", wrong);
    }
    room->fds[h.rank] = fd;
    room->guests[h.rank] = h;
    return 0;
}

/* Where a guest can be reached: what its connection came from. */
static void note_address(struct room *room, int rank)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    struct address *to = &room->address[rank];
    to->port = room->guests[rank].port;
    if (getpeername(room->fds[rank], (struct sockaddr *)&a, &size) ||
        getnameinfo((struct sockaddr *)&a, size, to->host, sizeof to->host, NULL, 0,
                    NI_NUMERICHOST))
        memcpy(to->host, room->guests[rank].host, sizeof to->host);
}

static int welcome_all(struct room *room)
{
    int size = room->m->size;
    for (int r = 1; r < size; r++)
        note_address(room, r);
    for (int r = 1; r < size; r++) {
        double until = clock_seconds() + room->deadline;
        tell(room->fds[r], false, "", until);
        if (!socket_write(room->fds[r], room->address, (size_t)size * sizeof *room->address, until))
            return refuse_all(room, "rank %d is gone: %s", r, strerror(errno));
    }
    return 0;
}

static int host_meeting(struct room *room)
{
    int missing = room->m->size - 1, rc = 0;
    while (missing && !rc) {
        if (!socket_ready(room->listener, POLLIN, room->until))
            return refuse_missing(room);
        int fd = accept4(room->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            rc = receive(room, fd);
        missing = 0;
        for (int r = 1; r < room->m->size; r++)
            missing += room->fds[r] < 0;
    }
    return rc ? rc : welcome_all(room);
}

/* ---- the others ------------------------------------------------------------------------------ */

/* 0, CKPT_ECOMM when refused for good, 1 to try again. */
static int ask(struct room *room, int fd)
{
    const struct comm_meeting *m = room->m;
    struct hello h = {.magic = HELLO,
                      .rank = m->rank,
                      .size = m->size,
                      .port = room->own_port,
                      .pid = (int32_t)getpid()};
    struct answer a;
    snprintf(h.version, sizeof h.version, "%s", ckpt_version());
    snprintf(h.token, sizeof h.token, "%s", token_of(m));
    gethostname(h.host, sizeof h.host - 1);
    /* Rank 0 may have begun to wait later than we did. */
    double until = clock_seconds() + room->deadline + 1;
    if (!socket_write(fd, &h, sizeof h, until) || !socket_read(fd, &a, sizeof a, until))
        return 1;
    a.sentence[sizeof a.sentence - 1] = '\0';
    if (a.refused)
        return a.again ? 1 : error_set(CKPT_ECOMM, "%s", a.sentence);
    return socket_read(fd, room->address, (size_t)m->size * sizeof *room->address, until) ? 0 : 1;
}

static int join_meeting(struct room *room)
{
    const char *why = NULL;
    const struct comm_meeting *m = room->m;
    char last[128] = "rank 0 did not open it";
    for (;;) {
        bool known = !is_file(m) || read_address(room);
        int fd = known ? socket_connect(room->host, room->port, room->until, &why) : -1;
        if (fd < 0 && known)
            snprintf(last, sizeof last, "%s", why ? why : strerror(errno));
        int rc = fd < 0 ? 1 : ask(room, fd);
        if (rc == 0) {
            room->fds[0] = fd;
            return 0;
        }
        if (fd >= 0) {
            snprintf(last, sizeof last, "another job, or nobody, answers there");
            close(fd);
        }
        if (rc < 0)
            return rc;
        if (clock_seconds() > room->until)
            return error_set(CKPT_ECOMM, "rank %d did not find rank 0 at %s within %g s: %s",
                             m->rank, m->where, room->deadline, last);
        usleep(20000);
    }
}

/* The lower rank listens; the higher says who it is. */
static int meet_peers(struct room *room)
{
    const struct comm_meeting *m = room->m;
    double until = clock_seconds() + room->deadline;
    const char *why = NULL;
    struct hello h = {.magic = HELLO, .rank = m->rank};
    snprintf(h.token, sizeof h.token, "%s", token_of(m));
    for (int r = 1; r < m->rank; r++) {
        int fd = room->fds[r] =
            socket_connect(room->address[r].host, room->address[r].port, until, &why);
        if (fd < 0 || !socket_write(fd, &h, sizeof h, until))
            return error_set(CKPT_ECOMM, "rank %d does not reach rank %d at %s port %d: %s",
                             m->rank, r, room->address[r].host, room->address[r].port,
                             why ? why : strerror(errno));
    }
    for (int missing = m->size - 1 - m->rank; missing > 0;) {
        if (!socket_ready(room->listener, POLLIN, until))
            return error_set(CKPT_ECOMM, "%d ranks above %d did not connect to it within %g s",
                             missing, m->rank, room->deadline);
        int fd = accept4(room->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        bool ours = fd >= 0 && socket_read(fd, &h, sizeof h, until) &&
                    !memcmp(h.magic, HELLO, sizeof h.magic) &&
                    !strncmp(h.token, token_of(m), sizeof h.token) && h.rank > m->rank &&
                    h.rank < m->size && room->fds[h.rank] < 0;
        if (ours) {
            room->fds[h.rank] = fd;
            missing--;
        } else if (fd >= 0) {
            close(fd);
        }
    }
    return 0;
}

/* ---- both ------------------------------------------------------------------------------------ */

static int open_listener(struct room *room)
{
    bool host = room->m->rank == 0;
    if (host && is_file(room->m) && gethostname(room->host, sizeof room->host - 1))
        return error_set(CKPT_ECOMM, "this machine has no name: %s", strerror(errno));
    room->own_port = host && !is_file(room->m) ? room->port : 0;
    room->listener = socket_listen(NULL, &room->own_port);
    if (room->listener < 0)
        return error_set(CKPT_ECOMM, "rank %d cannot listen on port %d: %s", room->m->rank,
                         room->own_port, strerror(errno));
    if (!host || !is_file(room->m))
        return 0;
    room->port = room->own_port;
    return write_address(room);
}

static int hold(struct room *room)
{
    int rc = open_listener(room);
    if (!rc)
        rc = room->m->rank == 0 ? host_meeting(room) : join_meeting(room);
    if (!rc && room->m->rank > 0)
        rc = meet_peers(room);
    if (!rc && room->m->rank == 0 && is_file(room->m))
        unlink(room->m->where + 5);
    if (room->listener >= 0)
        close(room->listener);
    return rc;
}

int meeting_hold(const struct comm_meeting *m, double deadline, int *fds)
{
    struct room room = {.m = m, .deadline = deadline, .listener = -1, .fds = fds};
    if (m->size < 1 || m->rank < 0 || m->rank >= m->size)
        return error_set(CKPT_EINVAL, "rank %d of %d: there is no such rank", m->rank, m->size);
    if (!is_file(m) && !parse_address(&room))
        return error_set(CKPT_EINVAL, "meeting point \"%s\": say tcp:HOST:PORT or file:PATH",
                         m->where);
    for (int r = 0; r < m->size; r++)
        fds[r] = -1;
    room.until = clock_seconds() + deadline;
    room.guests = calloc((size_t)m->size, sizeof *room.guests);
    room.address = calloc((size_t)m->size, sizeof *room.address);
    int rc = room.guests && room.address
                 ? hold(&room)
                 : error_set(CKPT_ENOMEM, "no memory for %d ranks", m->size);
    for (int r = 0; r < m->size && rc; r++)
        if (fds[r] >= 0)
            close(fds[r]);
    free(room.guests);
    free(room.address);
    return rc;
}
