/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets with absolute deadlines.  A listener is bound only to the addresses that were named.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "dist/comm/socket.h"

bool socket_ready(int fd, short events, double until)
{
    for (;;) {
        double left = until - clock_seconds();
        struct pollfd p = {.fd = fd, .events = events};
        double ms = left < 1e6 ? left * 1e3 + 1 : 1e9; /* clamps any deadline to an int */
        int n = poll(&p, 1, left > 0 ? (int)ms : 0);
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

/* Should the loop continue after n moved bytes?  False with errno on failure. */
static bool can_continue(int fd, ssize_t n, short events, double until)
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
        if (!can_continue(fd, n, POLLOUT, until))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

bool socket_read(int fd, void *data, size_t bytes, double until)
{
    for (size_t at = 0; at < bytes;) {
        ssize_t n = recv(fd, (char *)data + at, bytes - at, MSG_DONTWAIT);
        if (!can_continue(fd, n, POLLIN, until))
            return false;
        at += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* "localhost" is the loopback interface also where no resolver knows the name, for example without
 * /etc/hosts (RFC 6761, section 6.3); no name at all stands for it in getaddrinfo(). */
static struct addrinfo *look_up(const char *host, int port, int flags, const char **why)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags};
    struct addrinfo *found = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", port);
    int rc = getaddrinfo(strcmp(host, "localhost") ? host : NULL, service, &hints, &found);
    *why = rc ? gai_strerror(rc) : NULL;
    return rc ? NULL : found;
}

/* ---- addresses ------------------------------------------------------------------------------- */

static bool format_numeric(const struct sockaddr *a, socklen_t size, char host[SOCKET_HOST])
{
    int rc = getnameinfo(a, size, host, SOCKET_HOST, NULL, 0, NI_NUMERICHOST);
    if (rc)
        errno = rc == EAI_SYSTEM ? errno : EINVAL;
    return rc == 0;
}

bool socket_address(int fd, bool other, char host[SOCKET_HOST])
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    int rc = other ? getpeername(fd, (struct sockaddr *)&a, &size)
                   : getsockname(fd, (struct sockaddr *)&a, &size);
    return rc == 0 && format_numeric((struct sockaddr *)&a, size, host);
}

bool socket_is_loopback(const char *host)
{
    return !strncmp(host, "127.", 4) || !strcmp(host, "::1") || !strncmp(host, "::ffff:127.", 11);
}

/* The first address of a name that is not loopback. */
static bool address_of_name(const char *name, char host[SOCKET_HOST])
{
    const char *why;
    bool found = false;
    struct addrinfo *all = look_up(name, 0, 0, &why);
    for (struct addrinfo *a = all; a && !found; a = a->ai_next)
        found = format_numeric(a->ai_addr, a->ai_addrlen, host) && !socket_is_loopback(host);
    if (all)
        freeaddrinfo(all);
    return found;
}

/* Connecting a datagram socket sends nothing: the kernel only selects the source address. 192.0.2.1
 * is reserved for documentation (RFC 5737). */
static bool address_of_route(char host[SOCKET_HOST])
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    inet_pton(AF_INET, "192.0.2.1", &to.sin_addr);
    bool ok = fd >= 0 && !connect(fd, (struct sockaddr *)&to, sizeof to) &&
              socket_address(fd, false, host);
    if (fd >= 0)
        close(fd);
    return ok;
}

void socket_own_address(char host[SOCKET_HOST])
{
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    if (!address_of_name(name, host) && !address_of_route(host))
        snprintf(host, SOCKET_HOST, "127.0.0.1");
}

/* ---- listening ------------------------------------------------------------------------------- */

static int bound_port(int fd)
{
    struct sockaddr_storage a;
    socklen_t size = sizeof a;
    if (getsockname(fd, (struct sockaddr *)&a, &size))
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static int listen_at(const struct addrinfo *a)
{
    int one = 1, fd;
    fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
        return fd;
    int kept = errno;
    close(fd);
    errno = kept;
    return -1;
}

/* Skips addresses that this machine does not have and address families it lacks.  An occupied port
 * is an error, because other ranks would reach another program there. */
int socket_listen(const char *host, int *port, int *fds, int most, const char **why)
{
    int n = 0, failure = EADDRNOTAVAIL;
    bool any = *port == 0;
    struct addrinfo *all = look_up(host, *port, 0, why);
    for (struct addrinfo *a = all; a && n < most && !(any && n); a = a->ai_next) {
        int fd = listen_at(a);
        if (fd >= 0) {
            fds[n++] = fd;
            continue;
        }
        failure = errno;
        if (failure == EADDRNOTAVAIL || failure == EAFNOSUPPORT)
            continue;
        while (n)
            close(fds[--n]);
        break;
    }
    if (all)
        freeaddrinfo(all);
    if (n && any)
        *port = bound_port(fds[0]);
    errno = failure;
    return n ? n : -1;
}

static void send_at_once(int fd)
{
    int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        send_at_once(fd);
    return fd;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* The kernel may give a socket that connects to this machine the very port to which it connects,
 * where nobody listens; TCP then joins it to itself. */
static bool met_itself(int fd)
{
    struct sockaddr_storage own = {0}, other = {0};
    socklen_t own_size = sizeof own, other_size = sizeof other;
    return !getsockname(fd, (struct sockaddr *)&own, &own_size) &&
           !getpeername(fd, (struct sockaddr *)&other, &other_size) && own_size == other_size &&
           !memcmp(&own, &other, own_size);
}

/* At once, so that the listener that was looked for gets the port. */
static void free_own_port(int fd)
{
    struct linger none = {.l_onoff = 1};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
}

/* Connects before the deadline; -1 with errno. */
static int connect_to(const struct addrinfo *a, double until)
{
    int error = 0;
    socklen_t size = sizeof error;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
    if (fd < 0)
        return -1;
    send_at_once(fd);
    if (connect(fd, a->ai_addr, a->ai_addrlen))
        error = errno;
    if (error == EINPROGRESS || error == EINTR) {
        error = socket_ready(fd, POLLOUT, until) ? 0 : errno;
        if (!error && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size))
            error = errno;
    }
    if (!error && met_itself(fd)) {
        free_own_port(fd);
        error = ECONNREFUSED;
    }
    if (!error)
        return fd;
    close(fd);
    errno = error;
    return -1;
}

int socket_connect(const char *host, int port, bool numeric, double until, const char **why)
{
    int fd = -1;
    struct addrinfo *all = look_up(host, port, numeric ? AI_NUMERICHOST : 0, why);
    for (struct addrinfo *a = all; a && fd < 0; a = a->ai_next)
        fd = connect_to(a, until);
    int kept = errno;
    if (all)
        freeaddrinfo(all);
    errno = kept;
    return fd;
}
