/* Replaces a file atomically: temporary file beside it, sync, rename, sync of the directory. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "state/safetensors.h"

#define TRIES 100 /* names of temporary files; others may be left over from a crash */

static int io_error(const char *path, const char *what)
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
            return io_error(path, "cannot write");
        p += put;
        n -= put;
    }
    return 0;
}

/* A new file beside path, with the permissions a new file gets.  Returns its descriptor or -1. */
static int open_temporary(char *name, size_t size, const char *path)
{
    for (int i = 0; i < TRIES; i++) {
        snprintf(name, size, "%s.tmp-%ld-%d", path, (long)getpid(), i);
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

/* Makes the rename last through a power cut.  Some file systems cannot sync a directory. */
static int sync_directory(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? strndup(path, (size_t)(slash - path) + 1) : strdup(".");

    if (!dir)
        return error_set(CKPT_ENOMEM, "%s: was written, but there is no memory to sync it", path);
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(dir);
    if (fd < 0)
        return io_error(path, "was written, but its directory cannot be opened to sync it");
    bool failed = fsync(fd) && errno != EINVAL;
    int rc = failed ? io_error(path, "was written, but its directory cannot be synced") : 0;
    close(fd);
    return rc;
}

static int fill_temporary(const char *path, int fd, int (*fill)(void *user, int fd), void *user)
{
    int rc = fill(user, fd);

    if (!rc && fsync(fd))
        rc = io_error(path, "cannot write");
    if (close(fd) && !rc)
        rc = io_error(path, "cannot write");
    return rc;
}

int file_replace(const char *path, int (*fill)(void *user, int fd), void *user)
{
    size_t size = strlen(path) + 64;
    char *name = malloc(size);

    if (!name)
        return error_set(CKPT_ENOMEM, "%s: no memory to write it", path);
    int fd = open_temporary(name, size, path);
    if (fd < 0) {
        int rc = io_error(path, "cannot create a temporary file beside it");
        free(name);
        return rc;
    }
    int rc = fill_temporary(path, fd, fill, user);
    if (!rc && rename(name, path))
        rc = io_error(path, "cannot rename the temporary file to it");
    if (rc)
        unlink(name);
    else
        rc = sync_directory(path);
    free(name);
    return rc;
}
