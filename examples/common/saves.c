/* SPDX-License-Identifier: Apache-2.0 */
/* Multiple saves of a run: see saves.h. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_files.h"
#include "ckpt_tools.h"
#include "saves.h"
#include "say.h"

enum { DIGITS = 8, MOST_DIGITS = 18 /* fits in 64 bits */ };

/* ---- names ----------------------------------------------------------------------------------- */

static int name_save(char path[SAVES_PATH], const char *file, int64_t step)
{
    int n = snprintf(path, SAVES_PATH, "%s-%0*lld", file, DIGITS, (long long)step);

    return n < SAVES_PATH ? 0 : say_fail("%s: the name is too long", file);
}

/* The step number in the name of a directory entry, or -1. */
static int64_t steps_of(const char *entry, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(entry, name, n) || entry[n] != '-')
        return -1;
    size_t digits = strspn(entry + n + 1, "0123456789");
    if (digits < DIGITS || digits > MOST_DIGITS || entry[n + 1 + digits])
        return -1;
    return strtoll(entry + n + 1, NULL, 10);
}

/* ---- list of saves --------------------------------------------------------------------------- */

struct list {
    int64_t *step; /* ascending */
    int n, room;
};

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static int list_add(struct list *l, int64_t step)
{
    if (l->n == l->room) {
        int room = l->room ? 2 * l->room : 16;
        int64_t *more = realloc(l->step, (size_t)room * sizeof *more);
        if (!more)
            return say_fail("no memory to list saves");
        l->step = more;
        l->room = room;
    }
    l->step[l->n++] = step;
    return 0;
}

/* The caller frees l->step, also after an error. */
static int list_saves(struct list *l, const char *file)
{
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    char path[SAVES_PATH];
    int rc = 0;

    *l = (struct list){0};
    snprintf(path, sizeof path, "%.*s", slash ? (int)(name - file) : 1, slash ? file : ".");
    DIR *d = opendir(path);
    if (!d)
        return say_fail("%s: %s", path, strerror(errno));
    for (struct dirent *e = readdir(d); e && !rc; e = readdir(d)) {
        int64_t step = steps_of(e->d_name, name);
        rc = step < 0 ? 0 : list_add(l, step);
    }
    closedir(d);
    if (l->n)
        qsort(l->step, (size_t)l->n, sizeof *l->step, ascending);
    return rc;
}

/* ---- intact saves ---------------------------------------------------------------------------- */

/* Codes of frozen weights are whole numbers. */
static bool is_whole_number(const char *dtype)
{
    return (*dtype == 'I' && strcmp(dtype, "I8") != 0) || *dtype == 'U' || !strcmp(dtype, "BOOL");
}

/* Reads every tensor, and so compares every checksum. */
static int read_all(ckpt_file *f)
{
    void *buffer = NULL; /* fp32 and i32 are equally long */
    int rc = 0;

    for (int i = 0; i < ckpt_file_count(f) && !rc; i++) {
        struct ckpt_file_entry e = CKPT_FILE_ENTRY_INIT;
        rc = ckpt_file_entry(f, i, &e);
        void *more = rc ? NULL : realloc(buffer, (size_t)e.numel * sizeof(float) + 1);
        if (!rc && !more)
            rc = CKPT_ENOMEM;
        if (!more)
            break;
        buffer = more;
        rc = is_whole_number(e.dtype) ? ckpt_file_read_i32(f, i, buffer, e.numel)
                                      : ckpt_file_read_f32(f, i, buffer, e.numel);
    }
    free(buffer);
    return rc;
}

/* Returns 1: intact; 0: damaged or missing; -1 after an error message. */
static int is_whole(const char *path, bool says)
{
    ckpt_file *f = NULL;

    if (access(path, F_OK) && errno == ENOENT)
        return 0;
    int rc = ckpt_file_open(&f, path);
    if (!rc)
        rc = read_all(f);
    ckpt_file_close(f);
    if (rc && rc != CKPT_EFORMAT)
        return rc == CKPT_ENOMEM ? say_fail("%s: no memory to check it", path)
                                 : say_fail("%s", ckpt_error(NULL));
    if (rc && says)
        say_note("%s; looking for the save before it", ckpt_error(NULL));
    return !rc;
}

static bool is_same(const char *a, const char *b)
{
    struct stat x, y;

    return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

int saves_newest(const char *file, bool says, char path[SAVES_PATH])
{
    struct list l;
    int whole = is_whole(file, says);
    int rc = whole < 0 || list_saves(&l, file) ? -1 : 0;

    snprintf(path, SAVES_PATH, "%s", file);
    if (whole < 0)
        return -1;
    for (int i = l.n - 1; i >= 0 && !whole && !rc; i--) {
        rc = name_save(path, file, l.step[i]);
        if (!rc && !is_same(path, file)) /* that file was checked above */
            whole = is_whole(path, says);
        rc = whole < 0 ? -1 : rc;
    }
    if (whole <= 0)
        *path = 0;
    free(l.step);
    return rc;
}

/* ---- saves to keep --------------------------------------------------------------------------- */

/* Links a temporary file as saves will be linked: some file systems, such as exFAT and those of
 * cloud stores, have no hard links. */
static int try_link(const char *file)
{
    struct ckpt_replacement *o;
    char path[SAVES_PATH];

    if (ckpt_replace_open(&o, file))
        return say_fail("%s", ckpt_error(NULL));
    int n = snprintf(path, sizeof path, "%s-0", ckpt_replace_name(o));
    int error = n >= SAVES_PATH ? ENAMETOOLONG : link(ckpt_replace_name(o), path) ? errno : 0;
    if (!error)
        unlink(path);
    ckpt_replace_abandon(o);
    return error ? say_fail("%s: several saves are kept as hard links, and its file system makes "
                            "none: %s; leave out --keep and --keep-every, or save elsewhere",
                            file, strerror(error))
                 : 0;
}

int saves_check(const char *file, int64_t step)
{
    struct list l;
    struct stat st;
    char path[SAVES_PATH];

    if (name_save(path, file, step))
        return -1;
    if (!stat(file, &st) && !S_ISREG(st.st_mode))
        return say_fail("%s: not a regular file: no others can be kept beside it", file);
    if (try_link(file))
        return -1;
    int rc = list_saves(&l, file);
    for (int i = l.n - 1; i >= 0 && l.step[i] > step && !rc; i--) {
        int whole = name_save(path, file, l.step[i]) ? -1 : is_whole(path, false);
        rc = whole > 0 ? say_fail("%s is of a later step than this run begins with: move it away, "
                                  "or save to another name",
                                  path)
                       : whole;
    }
    free(l.step);
    return rc;
}

/* Whether save i of the list stays.  Entry `newest` is the current save; later entries are removed.
 */
static bool stays(const struct list *l, int i, int newest, const struct saves_policy *policy)
{
    int64_t every = policy->every, before = i ? l->step[i - 1] : 0;

    if (i > newest)
        return false;
    return newest - i < policy->last || (every > 0 && l->step[i] / every > before / every);
}

static int find_step(const struct list *l, int64_t step)
{
    for (int i = 0; i < l->n; i++)
        if (l->step[i] == step)
            return i;
    return -1;
}

/* A file that cannot be removed only costs disk space; it does not end the run. */
static int remove_others(const char *file, int64_t step, const struct saves_policy *policy)
{
    struct list l;
    char path[SAVES_PATH];
    int rc = list_saves(&l, file), newest = rc ? -1 : find_step(&l, step);

    for (int i = 0; i < l.n && newest >= 0 && !rc; i++) {
        if (stays(&l, i, newest, policy))
            continue;
        rc = name_save(path, file, l.step[i]);
        if (!rc && ckpt_file_remove(path) && errno != ENOENT)
            say_note("%s", ckpt_error(NULL));
    }
    free(l.step);
    return rc;
}

int saves_keep(const char *file, int64_t step, const struct saves_policy *policy)
{
    char path[SAVES_PATH];

    if (name_save(path, file, step))
        return -1;
    if (!is_same(path, file)) {
        ckpt_file_remove(path); /* an older save of the same step */
        if (link(file, path))
            return say_fail("%s: cannot be kept as a hard link: %s", path, strerror(errno));
    }
    return remove_others(file, step, policy);
}
