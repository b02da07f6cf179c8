/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The outputs of a run, checked before any work: whether each can be written, and whether no two
 * names of the run are one file.  One table has the options of the library and of the program.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "core/base.h"
#include "ckpt_tools.h"
#include "core/file.h"
#include "core/sized.h"

/* Upper bound of the file names that programs make in an output directory. */
#define INSIDE_DIRECTORY 128

static int refuse(const struct ckpt_path *p, const char *fmt, ...) CKPT_PRINTF(2, 3);

static int refuse(const struct ckpt_path *p, const char *fmt, ...)
{
    char why[CKPT_MESSAGE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    return error_set(CKPT_EINVAL, "%s %.300s: %s", p->option, p->path, why);
}

/* ---- identity of files ------------------------------------------------------------------------
 */

/* An existing file is identified by device and inode, a new one by those of its directory and by
 * its name.  found: the file exists; known: at least its directory does. */
struct identity {
    dev_t device;
    ino_t inode;
    mode_t mode;
    const char *name;
    bool found, known;
};

/* Copies the directory of path to dst; false if it does not fit. */
static bool directory_of(const char *path, char dst[PATH_MAX])
{
    int n = (int)(file_name_of(path) - path);

    return snprintf(dst, PATH_MAX, "%.*s", n ? n : 1, n ? path : ".") < PATH_MAX;
}

static struct identity identify(const char *path)
{
    char directory[PATH_MAX];
    struct identity id = {.name = file_name_of(path)};
    struct stat st;

    id.found = !stat(path, &st);
    id.known = id.found || (directory_of(path, directory) && !stat(directory, &st));
    if (id.known) {
        id.device = st.st_dev;
        id.inode = st.st_ino;
        id.mode = st.st_mode;
    }
    return id;
}

static bool same_file(const struct ckpt_path *a, const struct ckpt_path *b)
{
    struct identity x = identify(a->path), y = identify(b->path);

    if (!x.known || !y.known)
        return !strcmp(a->path, b->path);
    if (x.found && S_ISCHR(x.mode))
        return false; /* a terminal and /dev/null take everything */
    return x.found == y.found && x.device == y.device && x.inode == y.inode &&
           (x.found || !strcmp(x.name, y.name));
}

static int check_pair(const struct ckpt_path *a, const struct ckpt_path *b)
{
    const struct ckpt_path *out = a->kind == CKPT_PATH_INPUT ? b : a, *other = out == a ? b : a;
    bool reads = other->kind == CKPT_PATH_INPUT;

    if (reads && (out->kind == CKPT_PATH_INPUT || (a->family && a->family == b->family)))
        return 0;
    if (!same_file(a, b))
        return 0;
    return refuse(out, "is the same file as %s %.300s, which is %s", other->option, other->path,
                  reads ? "read" : "written, too");
}

/* ---- whether it can be written ----------------------------------------------------------------
 */

/* Whether the file is mounted by itself, as into a container.  False where the system does not
 * say. */
static bool is_mounted(const char *path)
{
#ifdef STATX_ATTR_MOUNT_ROOT
    struct statx st;

    return !statx(AT_FDCWD, path, 0, STATX_TYPE, &st) &&
           (st.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
#else
    (void)path;
    return false;
#endif
}

/* A file that is not writable must not be replaced either: its owner protected it. */
static int check_existing(const struct ckpt_path *p, const struct stat *st)
{
    if (S_ISDIR(st->st_mode))
        return refuse(p, "is a directory, not a file");
    if (access(p->path, W_OK))
        return refuse(p, "cannot be written: %s", strerror(errno));
    return 0;
}

/* Makes and removes a temporary file, as a real write would begin; writes nothing to path itself.
 */
static int check_file(const struct ckpt_path *p)
{
    struct ckpt_replacement o;
    struct stat st;
    const char *name = file_name_of(p->path);

    if (!*name)
        return refuse(p, "is the name of a directory, not of a file");
    bool found = !stat(p->path, &st);
    if (found && check_existing(p, &st))
        return CKPT_EINVAL;
    if (found && S_ISREG(st.st_mode) && is_mounted(p->path))
        return refuse(p, "is a file mounted by itself, as into a container, and cannot be "
                         "replaced: mount its directory");
    if (file_replacement_open(&o, p->path)) {
        if (strlen(name) + strlen(".tmp-4194304-0") > NAME_MAX)
            return refuse(p,
                          "the name is too long: it has %zu characters, and its temporary file 14 "
                          "more, of at most %d",
                          strlen(name), NAME_MAX);
        return error_set(CKPT_EINVAL, "%s %s", p->option, error_get());
    }
    /* Closing the only writer of a FIFO would end its reader, so the descriptor stays open. */
    if (!o.temporary && !fstat(o.fd, &st) && S_ISFIFO(st.st_mode))
        o.fd = -1;
    file_replacement_abandon(&o);
    return 0;
}

/* Checks the directory of a file that does not exist yet. */
static int check_new_log(const struct ckpt_path *p)
{
    char directory[PATH_MAX];
    const char *name = file_name_of(p->path);

    if (!*name)
        return refuse(p, "is the name of a directory, not of a file");
    if (strlen(name) > NAME_MAX || !directory_of(p->path, directory))
        return refuse(p, "cannot be written: %s", strerror(ENAMETOOLONG));
    return access(directory, W_OK | X_OK)
               ? refuse(p, "cannot be written: %s: %s", directory, strerror(errno))
               : 0;
}

static int check_log(const struct ckpt_path *p)
{
    struct stat st;
    int fd;

    if (stat(p->path, &st))
        return errno == ENOENT ? check_new_log(p)
                               : refuse(p, "cannot be written: %s", strerror(errno));
    if (check_existing(p, &st))
        return CKPT_EINVAL;
    if (file_open_special(p->path, &fd))
        return error_set(CKPT_EINVAL, "%s %s", p->option, error_get());
    if (fd >= 0 && !S_ISFIFO(st.st_mode))
        close(fd);
    return 0;
}

/* Makes a missing one; remove_made takes it away again. */
static int check_directory(const struct ckpt_path *p, bool *made)
{
    struct stat st;

    if (strlen(p->path) + INSIDE_DIRECTORY > PATH_MAX)
        return refuse(p, "the name is too long");
    *made = !mkdir(p->path, 0777);
    if (!*made && errno != EEXIST)
        return refuse(p, "cannot be made: %s", strerror(errno));
    if (stat(p->path, &st))
        return refuse(p, "%s", strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return refuse(p, "is %s, not a directory", file_kind(st.st_mode));
    return access(p->path, W_OK | X_OK) ? refuse(p, "cannot be written in: %s", strerror(errno))
                                        : 0;
}

static int check_one(const struct ckpt_path *p, bool *made)
{
    switch (p->kind) {
    case CKPT_PATH_FILE:
        return check_file(p);
    case CKPT_PATH_LOG:
        return check_log(p);
    case CKPT_PATH_DIRECTORY:
        return check_directory(p, made);
    default:
        return 0;
    }
}

/* ---- the whole table ---------------------------------------------------------------------------
 */

enum { LIBRARY_PATHS = 6 };

/* Lists the files that the library's options name; returns their number. */
static int library_paths(const struct ckpt_options *o, struct ckpt_path rows[LIBRARY_PATHS])
{
    const struct ckpt_path all[LIBRARY_PATHS] = {
        {"--plan-in", o->plan_in, CKPT_PATH_INPUT, CKPT_FAMILY_PLAN},
        {"--plan-out", o->plan_out, CKPT_PATH_FILE, CKPT_FAMILY_PLAN},
        {"--machine", o->machine, CKPT_PATH_INPUT, CKPT_FAMILY_MACHINE},
        {"--machine-out", o->machine_out, CKPT_PATH_FILE, CKPT_FAMILY_MACHINE},
        {"--graph-out", o->graph_out, CKPT_PATH_FILE, 0},
        {"--trace-out", o->trace_out, CKPT_PATH_FILE, 0},
    };
    memcpy(rows, all, sizeof all);
    return LIBRARY_PATHS;
}

/* Directories that were made to see that they can be: one may stand in another that came before. */
static void remove_made(const struct ckpt_path *paths, int n, const bool *made)
{
    for (int i = n - 1; i >= 0; i--)
        if (made[i])
            rmdir(paths[i].path);
}

static int check_all(const struct ckpt_path *paths, int n, bool *made)
{
    int rc = 0;

    for (int i = 0; i < n; i++)
        if (paths[i].path && (!paths[i].option || paths[i].kind < CKPT_PATH_INPUT ||
                              paths[i].kind > CKPT_PATH_DIRECTORY))
            return error_set(CKPT_EINVAL, "ckpt_paths_check: row %d has no option or no kind", i);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i && !rc; k++)
            if (paths[i].path && paths[k].path)
                rc = check_pair(&paths[i], &paths[k]);
    for (int i = 0; i < n && !rc; i++)
        if (paths[i].path)
            rc = check_one(&paths[i], &made[i]);
    remove_made(paths, n, made);
    return rc;
}

int ckpt_paths_check(const struct ckpt_options *o, const struct ckpt_path *paths, int n)
{
    struct ckpt_options options = CKPT_OPTIONS_INIT;
    struct ckpt_path *all;
    bool *made;

    if (n < 0 || (n && !paths))
        return error_set(CKPT_EINVAL, "ckpt_paths_check: %d rows, and no table", n);
    int rc = o ? sized_read("struct ckpt_options", &options, sizeof options, o) : 0;
    if (rc)
        return rc;
    all = calloc((size_t)n + LIBRARY_PATHS, sizeof *all);
    made = calloc((size_t)n + LIBRARY_PATHS, sizeof *made);
    if (all && made) {
        if (n)
            memcpy(all, paths, (size_t)n * sizeof *all);
        n += library_paths(&options, all + n);
        rc = check_all(all, n, made);
    } else
        rc = error_set(CKPT_ENOMEM, "no memory to check %d paths", n);
    free(all);
    free(made);
    return rc;
}
