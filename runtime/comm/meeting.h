/* How processes find each other without a launcher: rank 0 listens, the others come. */
#ifndef CKPT_MEETING_H
#define CKPT_MEETING_H

#include "comm/comm.h"

/*
 * Fills fds[r] with a connected socket to every other rank (-1 for the own one).  Rank 0 waits
 * until all are there and answers all at once: yes, with the addresses of all, or no, with one
 * sentence. Returns 0, CKPT_EINVAL, CKPT_ENOMEM or CKPT_ECOMM, the sentence in error_get().
 */
int meeting_hold(const struct comm_meeting *m, double deadline, int *fds);

/* ---- sockets, with an absolute deadline in clock_seconds() ---------------------------------- */

/* All bytes or nothing: true, or false when the time is over or the other side is gone. */
bool socket_write(int fd, const void *data, size_t bytes, double until);
bool socket_read(int fd, void *data, size_t bytes, double until);
/* Waits until fd can be read (or written). */
bool socket_ready(int fd, short events, double until);
/* A listening socket; *port 0 takes any and tells which.  -1 with errno. */
int socket_listen(const char *host, int *port);
/* Connects once.  -1 with errno, or with *why for names that are not found. */
int socket_connect(const char *host, int port, double until, const char **why);

#endif
