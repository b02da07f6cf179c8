/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on the outputs of a process, so that no two runs write to one.  A lock is an advisory lock
 * (fcntl, of an open file) on PATH.lock, or on DIR/.lock for a directory.  It ends with its owner,
 * however that ends, so a file that a killed process left refuses nobody.  It also works between
 * hosts and containers that share a file system; the lock of another host is waited for, two
 * minutes at most, as a file server keeps those of a host that crashed.
 */
#ifndef EXAMPLES_LOCK_H
#define EXAMPLES_LOCK_H

#include <stdbool.h>

/*
 * Takes the lock of an output until the process exits, or until lock_release.  A path that is not
 * for a regular file or a directory, such as a FIFO, is not locked.  A missing directory is made,
 * and removed with the lock if it is still empty.  On a file system without locks a note is
 * printed. option: named in messages; path and option are copied.  Returns 0, also if this process
 * already has the lock, or -1 after an error message: another process has it.
 */
int lock_take(const char *option, const char *path, bool directory);

/*
 * Ranks that write in one output: rank 0 takes the lock and shares it, then the others join.  A
 * newcomer is refused until all of them have ended.  Return as lock_take.
 */
int lock_share(const char *option, const char *path, bool directory);
int lock_join(const char *option, const char *path, bool directory);

/* Releases the lock of a path, if there is one. */
void lock_release(const char *path);

#endif
