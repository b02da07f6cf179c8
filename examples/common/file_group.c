/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are replaced together: see file_group.h. */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "ckpt_tools.h"
#include "file_group.h"
#include "names.h"
#include "say.h"

#define JOURNAL ".saving"
#define NEW     ".new"

/* ---- names ----------------------------------------------------------------------------------- */

static int path_of(char dst[PATH_MAX], const char *directory, const char *name, const char *end)
{
    return snprintf(dst, PATH_MAX, "%s/%s%s", directory, name, end) < PATH_MAX
               ? 0
               : say_fail("%s/%s: the name is too long", directory, name);
}

static bool exists(const char *directory, const char *name, const char *end)
{
    char path[PATH_MAX];

    return !path_of(path, directory, name, end) && !access(path, F_OK);
}

/* Cuts NEW from the end of an entry that belongs to the group; false for others. */
static bool take_name(char *entry, file_group names)
{
    size_t n = strlen(entry), end = strlen(NEW);

    if (n <= end || strcmp(entry + n - end, NEW))
        return false;
    entry[n - end] = 0;
    for (; *names; names++)
        if (!fnmatch(*names, entry, 0))
            return true;
    return false;
}

/* Calls visit for each NAME of which there is a NAME.new.  Returns their number, or -1 after an
 * error message. */
static int each_new(const char *directory, file_group names,
                    int (*visit)(void *user, const char *directory, const char *name), void *user)
{
    DIR *d = opendir(directory);
    int n = 0, rc = d ? 0 : say_fail("%s: %s", directory, strerror(errno));

    for (struct dirent *e; d && !rc && (e = readdir(d));)
        if (take_name(e->d_name, names)) {
            rc = visit(user, directory, e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return rc ? -1 : n;
}

static int remove_new(void *user, const char *directory, const char *name)
{
    char path[PATH_MAX];

    (void)user;
    if (!path_of(path, directory, name, NEW))
        unlink(path);
    return 0;
}

/* ---- the journal ----------------------------------------------------------------------------- */

/* A line is "+NAME", a file that gets its name, or "-NAME", one that is removed before. */
static int apply_line(const char *directory, const char *line, bool listed)
{
    char path[PATH_MAX], made[PATH_MAX];
    const char *name = line + 1;

    if (strchr(name, '/') || path_of(path, directory, name, "") ||
        path_of(made, directory, name, NEW))
        return say_fail("%s/" JOURNAL ": is damaged", directory);
    /* A new file that already has its name stays. */
    if (*line == '-' && (!listed || !access(made, F_OK)))
        unlink(path);
    if (*line == '+' && rename(made, path) && errno != ENOENT)
        return say_fail("%s: %s", path, strerror(errno));
    return 0;
}

/* Whether the journal has the line "+NAME". */
static bool lists(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (; *text; text += strcspn(text, "\n"), text += *text == '\n')
        if (*text == '+' && !strncmp(text + 1, name, n) && text[n + 1] == '\n')
            return true;
    return false;
}

static int apply(const char *directory, const char *text)
{
    char line[NAME_MAX + 2], path[PATH_MAX];
    int rc = 0;

    for (const char *at = text; *at && !rc; at += strcspn(at, "\n") + 1) {
        snprintf(line, sizeof line, "%.*s", (int)strcspn(at, "\n"), at);
        rc = apply_line(directory, line, lists(text, line + 1));
    }
    if (!rc && !path_of(path, directory, JOURNAL, ""))
        unlink(path);
    return rc;
}

struct listing {
    FILE *f;
    const char *last; /* not listed with the others */
};

static int add_line(void *user, const char *directory, const char *name)
{
    const struct listing *l = user;

    (void)directory;
    if (strcmp(name, l->last))
        fprintf(l->f, "+%s\n", name);
    return 0;
}

/* The contents of the journal, malloc'ed; NULL after an error message. */
static char *read_journal(const char *path)
{
    char *text = NULL;
    size_t room = 0;
    FILE *f;

    if (ckpt_input_open(&f, path)) {
        say_fail("%s", ckpt_error(NULL));
        return NULL;
    }
    ssize_t n = getdelim(&text, &room, 0, f);
    fclose(f);
    if (n > 0 && text[n - 1] == '\n')
        return text;
    say_fail("%s: is damaged", path);
    free(text);
    return NULL;
}

static int write_journal(const char *path, const char *text)
{
    struct ckpt_replacement *file;

    if (ckpt_replace_open(&file, path))
        return say_fail("%s", ckpt_error(NULL));
    FILE *f = ckpt_replace_stream(file);
    if (!f || fputs(text, f) == EOF) {
        ckpt_replace_abandon(file);
        return say_fail("%s: cannot be written", path);
    }
    return ckpt_replace_commit(file, true) ? say_fail("%s", ckpt_error(NULL)) : 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

void file_group_abandon(const char *directory, file_group names)
{
    each_new(directory, names, remove_new, NULL);
}

int file_group_commit(const char *directory, file_group names, const char *first,
                      const char *obsolete)
{
    char path[PATH_MAX], *text = NULL;
    size_t size;

    if (path_of(path, directory, JOURNAL, ""))
        return -1;
    FILE *f = open_memstream(&text, &size);
    if (!f)
        return say_fail("%s: no memory for the list of its files", directory);
    fprintf(f, "-%s\n", first);
    if (obsolete)
        fprintf(f, "-%s\n", obsolete);
    int n = each_new(directory, names, add_line, &(struct listing){f, first});
    if (exists(directory, first, NEW)) /* last: readers begin with it */
        fprintf(f, "+%s\n", first);
    int rc = fclose(f) || n < 0 ? -1 : write_journal(path, text);
    if (rc)
        file_group_abandon(directory, names);
    else
        rc = apply(directory, text);
    free(text);
    return rc;
}

int file_group_recover(const char *directory, file_group names)
{
    char path[PATH_MAX];

    if (exists(directory, JOURNAL, "")) {
        char *text = path_of(path, directory, JOURNAL, "") ? NULL : read_journal(path);
        int rc = text ? apply(directory, text) : -1;
        free(text);
        if (!rc)
            say_note("%s: a save that was killed is completed: all of its files were whole",
                     directory);
        return rc;
    }
    int n = each_new(directory, names, remove_new, NULL);
    if (n > 0)
        say_note("%s: %d new files of a save that was killed are removed: not all were whole; the "
                 "files that were there before are",
                 directory, n);
    return n < 0 ? -1 : 0;
}

static int count(void *user, const char *directory, const char *name)
{
    (void)directory;
    names_add(user, name);
    return 0;
}

int file_group_check(const char *option, const char *directory, file_group names)
{
    struct names waiting = {0};
    char text[NAMES_TEXT];

    if (!exists(directory, JOURNAL, ""))
        return 0;
    if (each_new(directory, names, count, &waiting) < 0)
        return -1;
    return say_fail("%s %s: a save into it was killed while its files got their names; all are "
                    "whole, and %s are still NAME" NEW ": the next --save-hf into it completes "
                    "them, or rename them and remove " JOURNAL,
                    option, directory, waiting.n ? names_text(&waiting, text) : "none of them");
}

bool file_group_is_left(const char *directory, file_group names)
{
    struct names waiting = {0};
    struct stat st;

    return !stat(directory, &st) && S_ISDIR(st.st_mode) &&
           (exists(directory, JOURNAL, "") || each_new(directory, names, count, &waiting) > 0);
}
