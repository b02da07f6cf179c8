/* SPDX-License-Identifier: Apache-2.0 */
/* The system's own calls, as a table. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef HAVE_NUMA
#include <numaif.h>
#endif
#include "memory/tier/sys.h"

/* Bits of a node mask.  mbind uses one bit less than maxnode says. */
enum { NODES = 1024, WORD = 8 * sizeof(unsigned long) };

static int sys_bind(void *address, size_t bytes, int node)
{
#ifdef HAVE_NUMA
    unsigned long mask[NODES / WORD] = {0};
    if (node < 0 || node >= NODES) {
        errno = EINVAL;
        return -1;
    }
    mask[node / WORD] = 1UL << (node % WORD);
    return (int)mbind(address, bytes, MPOL_PREFERRED, mask, NODES + 1, 0);
#else
    (void)address, (void)bytes, (void)node;
    errno = ENOSYS;
    return -1;
#endif
}

static int sys_open(const char *path, int flags, mode_t mode)
{
    return open(path, flags, mode);
}

#ifdef HAVE_LIBURING
static int sys_uring_init(unsigned entries, struct io_uring *ring)
{
    return io_uring_queue_init(entries, ring, 0);
}

static int sys_uring_wait(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                          struct __kernel_timespec *timeout)
{
    return io_uring_wait_cqes(ring, cqe, n, timeout, NULL);
}

static void sys_uring_forget(struct io_uring *ring)
{
    io_uring_unregister_files(ring);
    io_uring_unregister_buffers(ring);
}
#endif

const struct tier_sys tier_system = {
    .mmap = mmap,
    .munmap = munmap,
    .madvise = madvise,
    .bind = sys_bind,
    .open = sys_open,
    .unlink = unlink,
    .statvfs = fstatvfs,
    .fallocate = fallocate,
    .ftruncate = ftruncate,
    .pread = pread,
    .pwrite = pwrite,
    .close = close,
#ifdef HAVE_LIBURING
    .uring_init = sys_uring_init,
    .uring_buffers = io_uring_register_buffers,
    .uring_files = io_uring_register_files,
    .uring_submit = io_uring_submit,
    .uring_wait = sys_uring_wait,
    .uring_forget = sys_uring_forget,
    .uring_exit = io_uring_queue_exit,
#endif
};
