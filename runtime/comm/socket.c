/* Sockets that never wait longer than until a given moment. */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/meeting.h"

bool socket_ready(int fd, short events, double until)
{
    for (;;) {
        double left = until - clock_seconds();
        struct pollfd p = {.fd = fd, .events = events};
        int n = poll(&p, 1, left > 0 ? (int)(left * 1e3) + 1 : 0);
        if (n > 0)
            return true;
        if (n < 0 && errno != EINTR)
            return false;
        if (left <= 0) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

/* More to do after this many bytes were moved, or -1 with errno? */
static bool goes_on(int fd, ssize_t n, short events, double until)
{
    if (n > 0)
        return true;
    if (n == 0) {
        errno = ECONNRESET;
        return false;
    }
    return errno == EINTR ||
           ((errno == EAGAIN || errno == EWOULDBLOCK) && socket_ready(fd, events, until));
}

bool socket_write(int fd, const void *data, size_t bytes, double until)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = send(fd, (const char *)data + at, bytes - at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (!goes_on(fd, n, POLLOUT, until))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool socket_read(int fd, void *data, size_t bytes, double until)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
        if (!goes_on(fd, n, POLLIN, until))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

static struct addrinfo *look_up(const char *host, int port, int flags, const char **why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(host && *host ? host : NULL, service, &hints, &found);
    *why = rc ? gai_strerror(rc) : NULL;
    return rc ? NULL : found;
}

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &size))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

int socket_listen(const char *host, int *port)
{
    const char *why;
    int fd = -1, one = 1;
    struct addrinfo *all = look_up(host, *port, AI_PASSIVE, &why);
    errno = EADDRNOTAVAIL;
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, SOMAXCONN)) {
            int kept = errno;
            close(fd);
            errno = kept;
            fd = -1;
        }
    }
    if (all)
        freeaddrinfo(all);
    if (fd >= 0)
        *port = bound_port(fd);
    return fd;
}

/* Connects without waiting longer than until; -1 with errno. */
static int connect_to(const struct addrinfo *a, double until)
{
    int one = 1, error = 0;
    socklen_t size = sizeof error;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (connect(fd, a->ai_addr, a->ai_addrlen))
        error = errno;
    if (error == EINPROGRESS) {
        error = socket_ready(fd, POLLOUT, until) ? 0 : errno;
        if (!error)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

int socket_connect(const char *host, int port, double until, const char **why)
{
    int fd = -1;
    struct addrinfo *all = look_up(host, port, 0, why);
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = connect_to(a, until);
    if (all)
        freeaddrinfo(all);
    return fd;
}
