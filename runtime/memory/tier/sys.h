/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls of the tiers, as a table: tests replace it by one whose n-th call fails.  Each
 * entry has the results and errno of the call of its name; the io_uring entries return a negative
 * errno, as liburing does.
 */
#ifndef CKPT_TIER_SYS_H
#define CKPT_TIER_SYS_H

#include <sys/statvfs.h>
#include <sys/types.h>
#ifdef HAVE_LIBURING
#include <liburing.h>
#endif
#include "core/base.h"

struct tier_sys {
    /* memory */
    void *(*mmap)(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
    int (*munmap)(void *address, size_t bytes);
    int (*madvise)(void *address, size_t bytes, int advice);
    int (*bind)(void *address, size_t bytes, int node); /* mbind: prefers this node */
    /* files */
    int (*open)(const char *path, int flags, mode_t mode);
    int (*unlink)(const char *path);
    int (*statvfs)(int fd, struct statvfs *s);
    int (*fallocate)(int fd, int mode, off_t offset, off_t bytes);
    int (*ftruncate)(int fd, off_t bytes);
    ssize_t (*pread)(int fd, void *dst, size_t bytes, off_t offset);
    ssize_t (*pwrite)(int fd, const void *src, size_t bytes, off_t offset);
    int (*close)(int fd);
#ifdef HAVE_LIBURING
    int (*uring_init)(unsigned entries, struct io_uring *ring);
    int (*uring_buffers)(struct io_uring *ring, const struct iovec *v, unsigned n);
    int (*uring_files)(struct io_uring *ring, const int *fds, unsigned n);
    int (*uring_submit)(struct io_uring *ring);
    int (*uring_wait)(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                      struct __kernel_timespec *timeout); /* waits for n completions */
    void (*uring_forget)(struct io_uring *ring);          /* unregisters files and buffers */
    void (*uring_exit)(struct io_uring *ring);
#endif
};

extern const struct tier_sys tier_system;

#endif
