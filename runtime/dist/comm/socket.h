/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets whose calls never wait beyond an absolute deadline, in seconds of clock_seconds(). */
#ifndef CKPT_SOCKET_H
#define CKPT_SOCKET_H

#include "core/base.h"

enum { SOCKET_HOST = 64 }; /* bytes of a numeric address, its scope and NUL included */

/* Transfers all bytes: true, or false with errno on timeout or if the peer closed. */
bool socket_write(int fd, const void *data, size_t bytes, double until);
bool socket_read(int fd, void *data, size_t bytes, double until);
/* Waits until fd is readable (or writable). */
bool socket_ready(int fd, short events, double until);

/*
 * Listens at every address of this machine that `host` resolves to, at most `most` of them, and at
 * no other.  *port 0 takes any free port and sets it; then only the first address is used.  Returns
 * the number of sockets in fds, or -1 with errno, or with *why if the name was not found.
 */
int socket_listen(const char *host, int *port, int *fds, int most, const char **why);
/* The next connection of a listener, or -1 with errno.  Both sockets are non-blocking; TCP_NODELAY
 * is set. */
int socket_accept(int listener);
/* Connects once; numeric: host is a numeric address and no name is looked up. -1 with errno, or
 * with *why if the name was not found. */
int socket_connect(const char *host, int port, bool numeric, double until, const char **why);

/* The numeric address of the other end (or of this one).  False with errno. */
bool socket_address(int fd, bool other, char host[SOCKET_HOST]);
/* Is this numeric address a loopback address? */
bool socket_is_loopback(const char *host);
/* The numeric address by which other hosts reach this one: the address of its name, or if that is
 * loopback, the address of the default route; without a route, loopback. */
void socket_own_address(char host[SOCKET_HOST]);

#endif
