/* SPDX-License-Identifier: Apache-2.0 */
/* Locks on the outputs of a process: see lock.h. */
#include "lock.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "say.h"

enum {
    LEASE = 120 /* seconds that a file server keeps the locks of a host that crashed, at most */
};

/* The text of a lock's file: "process 12 on host". */
#define SIGNED    "process "
#define SIGNED_AT " on "

/* The locks of this process. */
static struct lock {
    struct lock *next;
    char *path;       /* of the output */
    char *file;       /* the locked file */
    const char *made; /* path if this process made the directory, or NULL */
    int fd;
    bool shared; /* other ranks may have it, too */
} * locks;

/* ---- locks of open files --------------------------------------------------------------------- */

/* A lock of this kind belongs to the open file, not to the process: closing another descriptor of
 * the file does not end it, as with the locks of POSIX.  Changing its type is atomic. */
static int set_lock(int fd, short type)
{
#ifdef F_OFD_SETLK
    struct flock whole = {.l_type = type, .l_whence = SEEK_SET};

    return fcntl(fd, F_OFD_SETLK, &whole);
#else
    (void)fd;
    (void)type;
    errno = ENOSYS;
    return -1;
#endif
}

/* Whether the file system or the system has no locks. */
static bool is_without_locks(int error)
{
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

/* Whether the name still refers to the open file. */
static bool is_current(const char *file, int fd)
{
    struct stat a, b;

    return !stat(file, &a) && !fstat(fd, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* The name of the lock's file, malloc'ed. */
static char *file_of(const char *path, bool directory)
{
    size_t n = strlen(path), room = n + sizeof "/.lock";
    char *file = malloc(room);

    if (file)
        snprintf(file, room, "%s%s", path, directory ? "/.lock" : ".lock");
    return file;
}

/* Whether the output replaces or becomes a regular file; others are written in place. */
static bool is_lockable(const char *path, bool directory)
{
    struct stat st;

    return directory || (stat(path, &st) ? errno == ENOENT : S_ISREG(st.st_mode));
}

static struct lock **find(const char *path)
{
    struct lock **at = &locks;

    while (*at && strcmp((*at)->path, path))
        at = &(*at)->next;
    return at;
}

/* ---- release --------------------------------------------------------------------------------- */

/* Removes the file only if no other rank shares the lock: a newcomer must find it. */
static void release(struct lock *l)
{
    bool last = l->fd >= 0 && (!l->shared || !set_lock(l->fd, F_WRLCK));

    if (last && is_current(l->file, l->fd))
        unlink(l->file);
    if (l->fd >= 0)
        close(l->fd);
    if (l->made)
        rmdir(l->made); /* fails unless it is empty */
    free(l->path);
    free(l->file);
    free(l);
}

void lock_release(const char *path)
{
    struct lock **at = find(path), *l = *at;

    if (!l)
        return;
    *at = l->next;
    release(l);
}

static void release_all(void)
{
    while (locks)
        lock_release(locks->path);
}

/* ---- take ------------------------------------------------------------------------------------ */

/* The owner writes its number and host into the file, for the message of the one it refuses. */
static void sign(int fd)
{
    char host[HOST_NAME_MAX + 1] = "";

    gethostname(host, sizeof host - 1);
    if (ftruncate(fd, 0) || lseek(fd, 0, SEEK_SET) ||
        dprintf(fd, SIGNED "%ld" SIGNED_AT "%s\n", (long)getpid(), host) < 0)
        return; /* a disk that is full: the message lacks the owner */
}

enum { OWNER = HOST_NAME_MAX + 64 };

/* The first line of the file: its owner, or "". */
static void read_owner(int fd, char owner[OWNER])
{
    ssize_t n = read(fd, owner, OWNER - 1); /* it was just opened */

    owner[n > 0 ? n : 0] = 0;
    owner[strcspn(owner, "\n")] = 0;
}

/* Another host may have crashed: a file server then keeps its lock for a minute or two, which a
 * requeued run should outlast. */
static bool is_elsewhere(const char *owner)
{
    char host[HOST_NAME_MAX + 1] = "";
    const char *at = strstr(owner, SIGNED_AT);

    gethostname(host, sizeof host - 1);
    return at && strcmp(at + strlen(SIGNED_AT), host) != 0;
}

/* Whether to try again to get the lock that another process has; says so the first time. */
static bool waits(const char *option, const char *path, const char *owner, int tries)
{
    if (!is_elsewhere(owner) || tries >= LEASE)
        return false;
    if (!tries)
        say_note("%s %s: is locked by %s; waiting up to %d s, in case that host has crashed",
                 option, path, owner, LEASE);
    nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    return true;
}

static int without_locks(const char *option, const char *path, const char *file)
{
    unlink(file);
    say_note("%s %s: its file system has no locks: nothing keeps a second run from writing there",
             option, path);
    return -2;
}

/* Locks the open file.  Returns 0; 1: try again; -1 after an error message; -2 as open_locked. */
static int lock_file(const char *option, const char *path, const char *file, int fd, short type,
                     int tries)
{
    int error = set_lock(fd, type) ? errno : 0;
    char owner[OWNER];

    read_owner(fd, owner);
    if (*owner && strncmp(owner, SIGNED, strlen(SIGNED)))
        return say_fail("%s %s: %s is no lock of another run; move it away", option, path, file);
    if (!error)
        return is_current(file, fd) ? 0 : 1;
    if (is_without_locks(error))
        return without_locks(option, path, file);
    if (error != EAGAIN && error != EACCES)
        return say_fail("%s %s: cannot be locked: %s", option, path, strerror(error));
    if (waits(option, path, owner, tries))
        return 1;
    return say_fail("%s %s: another run is writing it%s%s: wait for its end, or give another name",
                    option, path, *owner ? ", " : "", owner);
}

/* Opens and locks the file.  Returns its descriptor, -1 if another process has the lock or the file
 * cannot be made, after an error message, or -2 without locks, after a note. */
static int open_locked(const char *option, const char *path, const char *file, short type)
{
    for (int tries = 0; tries < 2 * LEASE; tries++) {
        int fd = open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC, 0666);
        if (fd < 0)
            return say_fail("%s %s: %s cannot be made: %s", option, path, file, strerror(errno));
        int rc = lock_file(option, path, file, fd, type, tries);
        if (!rc)
            return fd;
        close(fd);
        if (rc < 0)
            return rc;
    }
    return say_fail("%s %s: cannot be locked: other runs begin and end all the time", option, path);
}

static int no_memory(const char *path)
{
    return say_fail("%s: no memory to lock it", path);
}

/* Keeps a lock until the process exits. */
static int hold(struct lock *l, const char *option, bool directory, short type)
{
    static bool registered;

    if (!l->path || !l->file)
        return no_memory(l->path ? l->path : "output");
    if (directory && !mkdir(l->path, 0777))
        l->made = l->path;
    l->fd = open_locked(option, l->path, l->file, type);
    if (l->fd == -1)
        return -1;
    if (l->fd >= 0 && type == F_WRLCK)
        sign(l->fd);
    if (!registered && atexit(release_all))
        return no_memory(l->path);
    registered = true;
    l->next = locks;
    locks = l;
    return 0;
}

static int take(const char *option, const char *path, bool directory, short type)
{
    if (*find(path) || !is_lockable(path, directory))
        return 0;
    struct lock *l = calloc(1, sizeof *l);
    if (!l)
        return no_memory(path);
    *l = (struct lock){.path = strdup(path),
                       .file = file_of(path, directory),
                       .fd = -1,
                       .shared = type == F_RDLCK};
    int rc = hold(l, option, directory, type);
    if (rc)
        release(l);
    return rc;
}

int lock_take(const char *option, const char *path, bool directory)
{
    return take(option, path, directory, F_WRLCK);
}

int lock_share(const char *option, const char *path, bool directory)
{
    if (take(option, path, directory, F_WRLCK))
        return -1;
    struct lock *l = *find(path);

    if (l)
        l->shared = true;
    return l && l->fd >= 0 && set_lock(l->fd, F_RDLCK)
               ? say_fail("%s %s: its lock cannot be shared: %s", option, path, strerror(errno))
               : 0;
}

int lock_join(const char *option, const char *path, bool directory)
{
    return take(option, path, directory, F_RDLCK);
}
