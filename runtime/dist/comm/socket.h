/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets that never wait beyond an absolute deadline, in seconds of clock_seconds(). */
#ifndef CKPT_SOCKET_H
#define CKPT_SOCKET_H

#include "core/base.h"

enum { SOCKET_HOST = 64 }; /* bytes of an address in digits, its scope and end included */

/* All bytes or none: true, or false with errno when the time is over or the other side is gone. */
bool socket_write(int fd, const void *data, size_t bytes, double until);
bool socket_read(int fd, void *data, size_t bytes, double until);
/* Waits until fd can be read (or written). */
bool socket_ready(int fd, short events, double until);

/*
 * Listens at every address that the name or number `host` has on this machine, at most `most` of
 * them, and nowhere else.  *port 0 takes any and sets it; then only the first address is used.
 * Returns how many are in fds, or -1 with errno, or with *why for a name that is not found.
 */
int socket_listen(const char *host, int *port, int *fds, int most, const char **why);
/* The next connection of a listener, or -1 with errno; neither blocks, and small messages are sent
 * at once. */
int socket_accept(int listener);
/* Connects once; numeric: host is an address in digits, and no name is looked up.  -1 with errno,
 * or with *why for a name that is not found. */
int socket_connect(const char *host, int port, bool numeric, double until, const char **why);

/* The address of the other end (or of this one) in digits.  False with errno. */
bool socket_address(int fd, bool other, char host[SOCKET_HOST]);
/* Is this address in digits one that only this machine reaches? */
bool socket_is_loopback(const char *host);
/* The address, in digits, by which other hosts reach this one: that of its name, or where the name
 * is one for this machine alone, that of the default route; without one, loopback. */
void socket_own_address(char host[SOCKET_HOST]);

#endif
