/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs and inputs by name.
 *
 * An output is written to PATH.tmp-PID-N and renamed.  The writer holds a lock (flock) on that
 * file: a temporary file that is not locked was left by a process that has ended, and is removed.
 * This also works where a process number has no meaning, in another container or on another host.
 * On a file system without locks nothing is removed.
 */
#include "ckpt_tools.h"
#include "core/file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define TRIES 100 /* names of temporary files to try; others may be in use */

int file_io_error(const char *path, const char *what)
{
    return error_set(CKPT_EIO, "%s: %s: %s", path, what, strerror(errno));
}

int file_write_all(const char *path, int fd, const void *src, int64_t n)
{
    const char *p = src;

    while (n > 0) {
        ssize_t put = write(fd, p, (size_t)min_i64(n, 1 << 30));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return file_io_error(path, "cannot be written");
        p += put;
        n -= put;
    }
    return 0;
}

const char *file_kind(mode_t mode)
{
    return S_ISREG(mode)    ? "a regular file"
           : S_ISDIR(mode)  ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

/* ---- inputs -------------------------------------------------------------------------------- */

int file_open_regular(const char *path, int *fd, int64_t *size, const char **why)
{
    static _Thread_local char text[64];
    struct stat st = {0};

    /* Without O_NONBLOCK a FIFO waits for a writer. */
    *fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd >= 0 && !fstat(*fd, &st) && S_ISREG(st.st_mode)) {
        *size = st.st_size;
        return 0;
    }
    *why = errno == ENXIO ? "it is a socket, not a regular file" : strerror(errno);
    if (*fd >= 0) {
        snprintf(text, sizeof text, "it is %s, not a regular file", file_kind(st.st_mode));
        *why = text;
        close(*fd);
    }
    *fd = -1;
    return CKPT_EIO;
}

FILE *file_open_input(const char *path, const char **why)
{
    int64_t size;
    int fd;

    if (file_open_regular(path, &fd, &size, why))
        return NULL;
    FILE *f = fdopen(fd, "r");
    if (!f) {
        *why = strerror(errno);
        close(fd);
    }
    return f;
}

int ckpt_input_open(FILE **f, const char *path)
{
    NOT_NULL(f);
    NOT_NULL(path);
    const char *why;

    *f = file_open_input(path, &why);
    return *f ? 0 : error_set(CKPT_EIO, "%s: cannot be read: %s", path, why);
}

/* ---- devices and FIFOs, which are written in place ------------------------------------------- */

/* The descriptor that a name in /dev refers to; opening the name itself would start at the
 * beginning of the descriptor's file. */
static int named_descriptor(const char *path)
{
    char *end;

    if (!strcmp(path, "/dev/stdin"))
        return 0;
    if (!strcmp(path, "/dev/stdout"))
        return 1;
    if (!strcmp(path, "/dev/stderr"))
        return 2;
    if (strncmp(path, "/dev/fd/", 8) || path[8] < '0' || path[8] > '9')
        return -1;
    long fd = strtol(path + 8, &end, 10);
    return *end || fd > INT32_MAX ? -1 : (int)fd;
}

static int open_descriptor(const char *path, int named, int *fd)
{
    int flags = fcntl(named, F_GETFL);

    if (flags >= 0 && (flags & O_ACCMODE) == O_RDONLY)
        return error_set(CKPT_EIO, "%s: is open for reading alone", path);
    *fd = flags < 0 ? -1 : fcntl(named, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? file_io_error(path, "cannot be written to") : 0;
}

int file_open_special(const char *path, int *fd)
{
    struct stat st;
    int named = named_descriptor(path);

    *fd = -1;
    if (named >= 0)
        return open_descriptor(path, named, fd);
    if (stat(path, &st) || S_ISREG(st.st_mode))
        return 0;
    if (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode))
        return error_set(CKPT_EIO, "%s: is %s, not a file", path, file_kind(st.st_mode));
    *fd = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (*fd < 0 && errno == ENXIO)
        return error_set(CKPT_EIO, "%s: is %s that nobody reads", path, file_kind(st.st_mode));
    if (*fd < 0)
        return file_io_error(path, "cannot be written to");
    /* Blocking again: writes wait for a slow reader. */
    fcntl(*fd, F_SETFL, fcntl(*fd, F_GETFL) & ~O_NONBLOCK);
    return 0;
}

int ckpt_log_open(FILE **f, const char *path)
{
    NOT_NULL(f);
    NOT_NULL(path);
    int fd, rc = file_open_special(path, &fd);

    *f = NULL;
    if (rc)
        return rc;
    if (fd < 0)
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_CLOEXEC, 0666);
    if (fd >= 0)
        *f = fdopen(fd, "a");
    if (*f)
        return 0;
    rc = file_io_error(path, "cannot be opened to append to it");
    if (fd >= 0)
        close(fd);
    return rc;
}

/* ---- temporary files ------------------------------------------------------------------------- */

const char *file_name_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* "." if path has no directory; freed by the caller; NULL: out of memory. */
static char *directory_of(const char *path)
{
    size_t n = (size_t)(file_name_of(path) - path);

    return n ? strndup(path, n) : strdup(".");
}

/* Whether entry is NAME.tmp-PID-N for this name. */
static bool is_temporary(const char *entry, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(entry, name, n) || strncmp(entry + n, ".tmp-", 5))
        return false;
    const char *digits = entry + n + 5;
    size_t pid = strspn(digits, "0123456789");
    if (!pid || digits[pid] != '-')
        return false;
    size_t number = strspn(digits + pid + 1, "0123456789");
    return number && !digits[pid + 1 + number];
}

/* Holds the lock while the file is removed, so that a process that makes one of the same name
 * notices (see hold). */
void file_remove_unlocked(int directory, const char *entry)
{
    struct stat st;
    int fd = openat(directory, entry, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);

    if (fd < 0)
        return;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && !flock(fd, LOCK_EX | LOCK_NB))
        unlinkat(directory, entry, 0);
    close(fd);
}

void file_sweep(const char *path)
{
    char *name = directory_of(path);
    DIR *d = name ? opendir(name) : NULL;

    free(name);
    if (!d)
        return;
    for (struct dirent *e = readdir(d); e; e = readdir(d))
        if (is_temporary(e->d_name, file_name_of(path)))
            file_remove_unlocked(dirfd(d), e->d_name);
    closedir(d);
}

/* Locks a new file; false if it was removed by a sweep between open and lock. */
static bool lock_new(int fd)
{
    struct stat st;

    if (flock(fd, LOCK_EX | LOCK_NB))
        return errno != EWOULDBLOCK; /* a file system without locks sweeps nothing */
    return !fstat(fd, &st) && st.st_nlink > 0;
}

/* Makes a file beside path, with the permissions of a new file.  Returns its descriptor or -1. */
static int open_temporary(char *name, size_t size, const char *path)
{
    for (int i = 0; i < TRIES; i++) {
        snprintf(name, size, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 && lock_new(fd))
            return fd;
        if (fd < 0 && errno != EEXIST)
            return -1;
        if (fd >= 0)
            close(fd);
    }
    return -1;
}

/* Makes the rename survive a power failure.  Some file systems cannot sync a directory. */
static int sync_directory(const char *path)
{
    char *dir = directory_of(path);

    if (!dir)
        return error_set(CKPT_ENOMEM, "%s: was written, but there is no memory to sync it", path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (fd < 0)
        return file_io_error(path, "was written, but its directory cannot be opened to sync it");
    bool failed = fsync(fd) && errno != EINVAL;
    int rc = failed ? file_io_error(path, "was written, but its directory cannot be synced") : 0;
    close(fd);
    return rc;
}

/* ---- outputs --------------------------------------------------------------------------------- */

static int begin(struct ckpt_replacement *o)
{
    size_t size = strlen(o->path) + 64;
    int rc = file_open_special(o->path, &o->fd);

    if (rc || o->fd >= 0)
        return rc;
    o->temporary = malloc(size);
    if (!o->temporary)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", o->path);
    file_sweep(o->path);
    o->fd = open_temporary(o->temporary, size, o->path);
    if (o->fd < 0) {
        rc = file_io_error(o->path, "cannot be written, no file can be made beside it");
        free(o->temporary);
        o->temporary = NULL;
    }
    return rc;
}

int file_replacement_open(struct ckpt_replacement *o, const char *path)
{
    *o = (struct ckpt_replacement){.path = strdup(path), .fd = -1};
    if (!o->path)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    int rc = begin(o);
    if (rc)
        file_replacement_abandon(o);
    return rc;
}

FILE *file_replacement_stream(struct ckpt_replacement *o)
{
    if (!o->stream)
        o->stream = fdopen(o->fd, "w");
    return o->stream;
}

static int close_output(struct ckpt_replacement *o)
{
    int rc = o->stream ? fclose(o->stream) : o->fd >= 0 ? close(o->fd) : 0;

    o->stream = NULL;
    o->fd = -1;
    return rc;
}

/* Flushes all bytes to the system and, if durable, to the disk; closes the file. */
static int flush_output(struct ckpt_replacement *o, bool durable)
{
    int rc = 0;

    errno = 0;
    if (o->stream && (fflush(o->stream) || ferror(o->stream))) {
        errno = errno ? errno : EIO;
        rc = file_io_error(o->path, "cannot be written");
    }
    /* Devices and FIFOs cannot be synced. */
    if (!rc && durable && o->temporary && fsync(o->fd))
        rc = file_io_error(o->path, "cannot be written");
    if (close_output(o) && !rc)
        rc = file_io_error(o->path, "cannot be written");
    return rc;
}

/* Network file systems report a failed write when the file is closed, so it is closed before the
 * rename; a second descriptor keeps the lock until then. */
int file_replacement_commit(struct ckpt_replacement *o, bool durable)
{
    int lock = o->temporary ? fcntl(o->fd, F_DUPFD_CLOEXEC, 0) : -1;
    int rc = o->temporary && lock < 0 ? file_io_error(o->path, "cannot be written")
                                      : flush_output(o, durable);

    if (!rc && o->temporary && rename(o->temporary, o->path))
        rc = file_io_error(o->path, "cannot rename the temporary file to it");
    if (rc)
        file_replacement_abandon(o);
    else if (o->temporary && durable)
        rc = sync_directory(o->path);
    if (lock >= 0)
        close(lock);
    free(o->temporary);
    free(o->path);
    *o = (struct ckpt_replacement){.fd = -1};
    return rc;
}

void file_replacement_abandon(struct ckpt_replacement *o)
{
    close_output(o);
    if (o->temporary)
        unlink(o->temporary);
    free(o->temporary);
    free(o->path);
    *o = (struct ckpt_replacement){.fd = -1};
}

int file_replace(const char *path, int (*fill)(void *user, int fd), void *user)
{
    struct ckpt_replacement o;
    int rc = file_replacement_open(&o, path);

    if (rc)
        return rc;
    rc = fill(user, o.fd);
    if (!rc)
        return file_replacement_commit(&o, true);
    file_replacement_abandon(&o);
    return rc;
}

/* ---- public calls ---------------------------------------------------------------------------- */

int ckpt_replace_open(struct ckpt_replacement **o, const char *path)
{
    NOT_NULL(o);
    NOT_NULL(path);
    struct ckpt_replacement *made;

    *o = NULL;
    made = malloc(sizeof *made);
    if (!made)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    int rc = file_replacement_open(made, path);
    if (rc)
        free(made);
    else
        *o = made;
    return rc;
}

FILE *ckpt_replace_stream(struct ckpt_replacement *o)
{
    return o ? file_replacement_stream(o) : NULL;
}

const char *ckpt_replace_name(const struct ckpt_replacement *o)
{
    if (!o)
        return "";
    return o->temporary ? o->temporary : o->path;
}

int ckpt_replace_commit(struct ckpt_replacement *o, bool durable)
{
    NOT_NULL(o);
    int rc = file_replacement_commit(o, durable);

    free(o);
    return rc;
}

void ckpt_replace_abandon(struct ckpt_replacement *o)
{
    if (o)
        file_replacement_abandon(o);
    free(o);
}
