/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files by name: an output replaces a file whole or not at all, an input is a regular file.
 * Everything that the library reads or writes under a name of the user goes through here.
 */
#ifndef CKPT_RUNTIME_FILE_H
#define CKPT_RUNTIME_FILE_H

#include <sys/types.h>
#include "core/base.h"
#include "ckpt_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

struct ckpt_replacement {
    char *path;      /* the name given by the caller */
    char *temporary; /* the file beside it that is written; NULL: path is not a regular file */
    int fd;
    FILE *stream; /* NULL until requested; then it owns fd */
};

/* ckpt_replace_open and the others, on a struct owned by the caller.  commit and abandon close it.
 */
int file_replacement_open(struct ckpt_replacement *o, const char *path);
FILE *file_replacement_stream(struct ckpt_replacement *o);
int file_replacement_commit(struct ckpt_replacement *o, bool durable);
void file_replacement_abandon(struct ckpt_replacement *o);

/* Replaces the file at path, whole or not at all: fill writes the new one to the descriptor. */
int file_replace(const char *path, int (*fill)(void *user, int fd), void *user);

/* Makes the sentence "PATH: WHAT: reason of errno"; returns CKPT_EIO. */
int file_io_error(const char *path, const char *what);

/* The file name part of a path. */
const char *file_name_of(const char *path);

/* Returns 0 or CKPT_EIO with the path in the sentence. */
int file_write_all(const char *path, int fd, const void *src, int64_t n);

/* Opens a regular file for reading without waiting for anything.  Returns 0, or CKPT_EIO with the
 * reason in *why, which is valid until the next call of the thread. */
int file_open_regular(const char *path, int *fd, int64_t *size, const char **why);
/* The same as a stream, or NULL. */
FILE *file_open_input(const char *path, const char **why);

/* Opens a descriptor onto a device, a FIFO, or a descriptor of this process by its name in /dev.
 * *fd is -1 if path is or will be a regular file, to be replaced as one.  Returns 0, or CKPT_EIO
 * with the sentence. */
int file_open_special(const char *path, int *fd);

/* The kind of a file of this mode: "a FIFO", "a directory". */
const char *file_kind(mode_t mode);

/* Removes a file of an open directory unless a process has it locked, as it has what it writes. */
void file_remove_unlocked(int directory, const char *entry);
/* Removes the temporary files of path that were left by processes that have ended. */
void file_sweep(const char *path);

#ifdef __cplusplus
}
#endif
#endif
