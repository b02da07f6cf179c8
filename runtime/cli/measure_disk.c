/* Disk rates past the page cache: a temporary file, written and read in large pieces. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cli/cli.h"

#define PIECE     (INT64_C(8) << 20) /* of one request */
#define PIECES    32                 /* of the file */
#define ALIGNMENT 4096               /* of O_DIRECT buffers */

/* Bytes that are not all alike, so that no drive makes them less. */
static void fill(char *buffer)
{
    uint64_t state = 88172645463325252u;
    for (int64_t i = 0; i < PIECE; i += 8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memcpy(buffer + i, &state, 8);
    }
}

/* Moves the whole file.  Returns B/s, or -1 with errno. */
static double transfer(int fd, char *buffer, bool write)
{
    double before = clock_seconds();
    for (int64_t i = 0; i < PIECES; i++) {
        ssize_t n = write ? pwrite(fd, buffer, (size_t)PIECE, i * PIECE)
                          : pread(fd, buffer, (size_t)PIECE, i * PIECE);
        if (n < 0 && errno == EINTR) {
            i--;
            continue;
        }
        if (n != PIECE) {
            errno = n < 0 ? errno : EIO;
            return -1;
        }
    }
    if (write && fdatasync(fd))
        return -1;
    return (double)(PIECE * PIECES) / (clock_seconds() - before);
}

static int fail(char *message, const char *dir, const char *what)
{
    snprintf(message, CKPT_MESSAGE, "%.300s: %s: %s", dir, what, strerror(errno));
    return CKPT_EIO;
}

/* Opens a file that is gone when it is closed.  -1 where there is no O_DIRECT. */
static int open_direct(const char *dir, char *path, size_t size)
{
    snprintf(path, size, "%s/ckpt-machine.tmp-XXXXXX", dir);
    return mkostemp(path, O_DIRECT | O_CLOEXEC);
}

int measure_disk(struct machine *m, const char *dir, char message[CKPT_MESSAGE])
{
    char path[4096];
    char *buffer = aligned_alloc(ALIGNMENT, (size_t)PIECE);
    if (!buffer) {
        snprintf(message, CKPT_MESSAGE, "out of host memory");
        return CKPT_ENOMEM;
    }
    m->nvme_read = m->nvme_write = 0;
    int fd = open_direct(dir, path, sizeof(path));
    if (fd < 0 && errno == EINVAL) {
        free(buffer);
        snprintf(message, CKPT_MESSAGE, "%.300s: this file system has no O_DIRECT", dir);
        return 0;
    }
    int rc = fd < 0 ? fail(message, dir, "cannot create a temporary file there") : 0;
    if (!rc) {
        unlink(path);
        fill(buffer);
        double written = transfer(fd, buffer, true);
        double read = written < 0 ? -1 : transfer(fd, buffer, false);
        if (read < 0)
            rc = fail(message, dir, "cannot write and read 256 MiB there");
        m->nvme_write = rc ? 0 : written;
        m->nvme_read = rc ? 0 : read;
        close(fd);
    }
    free(buffer);
    return rc;
}
