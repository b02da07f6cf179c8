/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of videos and prompts: see list.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/csv.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "list.h"

/* ---- texts --------------------------------------------------------------------------------- */

struct texts {
    char **data;
    int64_t n, capacity;
};

static void texts_free(struct texts *t)
{
    for (int64_t i = 0; i < t->n; i++)
        free(t->data[i]);
    free(t->data);
    *t = (struct texts){0};
}

static int texts_add(struct texts *t, const char *text, size_t n)
{
    if (t->n == t->capacity) {
        int64_t capacity = t->capacity ? 2 * t->capacity : 64;
        char **data = realloc(t->data, (size_t)capacity * sizeof *data);
        if (!data)
            return say_fail("no memory for a list of videos");
        t->data = data;
        t->capacity = capacity;
    }
    t->data[t->n] = strndup(text, n);
    return t->data[t->n] ? (t->n++, 0) : say_fail("no memory for a list of videos");
}

void video_list_free(struct video_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        free(l->video[i]);
        if (l->prompt)
            free(l->prompt[i]);
    }
    free(l->video);
    free(l->prompt);
    *l = (struct video_list){0};
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Reads the lines of a file without white space at their ends: the published trainers look for
 * their files under what Python's strip leaves of a prompt. */
static int read_lines(struct texts *t, const char *path)
{
    struct text_file f;
    char *line;
    int rc = text_file_open(&f, path) ? -1 : 1;

    while (rc > 0) {
        rc = text_file_line(&f, &line);
        if (rc > 0 && *text_strip(line) && texts_add(t, line, strlen(line)))
            rc = -1;
    }
    text_file_close(&f);
    return rc;
}

int video_list_lines(struct video_list *l, const char *videos, const char *prompts)
{
    struct texts v = {0}, p = {0};
    int rc = read_lines(&v, videos) || read_lines(&p, prompts) ? -1 : 0;

    if (!rc && v.n != p.n)
        rc = say_fail("%s has %lld lines, %s %lld: they belong together line by line", videos,
                      (long long)v.n, prompts, (long long)p.n);
    if (!rc && !v.n)
        rc = say_fail("%s: there is no video in it", videos);
    if (rc) {
        texts_free(&v);
        texts_free(&p);
        return rc;
    }
    *l = (struct video_list){v.n, v.data, p.data};
    return 0;
}

/* ---- videos alone -------------------------------------------------------------------------- */

int video_list_one(struct video_list *l, const char *video)
{
    struct texts t = {0};
    int rc = texts_add(&t, video, strlen(video));

    *l = (struct video_list){t.n, t.data, NULL};
    return rc;
}

/* Puts the directory of a list before a relative name. */
static int make_relative(char **name, const char *list)
{
    const char *slash = strrchr(list, '/');
    char *path;

    if (**name == '/' || !slash)
        return 0;
    if (asprintf(&path, "%.*s%s", (int)(slash + 1 - list), list, *name) < 0)
        return say_fail("no memory for a list of videos");
    free(*name);
    *name = path;
    return 0;
}

int video_list_paths(struct video_list *l, const char *path)
{
    struct texts t = {0};
    int rc = read_lines(&t, path);

    *l = (struct video_list){t.n, t.data, NULL};
    for (int64_t i = 0; i < t.n && !rc; i++)
        rc = make_relative(&t.data[i], path);
    return rc || t.n ? rc : say_fail("%s: names no video", path);
}

/* ---- tables -------------------------------------------------------------------------------- */

/* Finds the columns to read by the names in the first row. */
static int find_columns(struct csv *c, const char *const name[2], int at[2])
{
    int rc = csv_next(c);

    for (int k = 0; k < 2 && rc >= 0; k++) {
        at[k] = rc ? csv_find(c, name[k]) : -1;
        if (at[k] < 0)
            return say_fail("%s: there is no column \"%s\"; --%s-column names another", c->path,
                            name[k], k ? "caption" : "video");
    }
    return rc < 0 ? -1 : 0;
}

static int read_rows(struct csv *c, const int at[2], struct texts to[2])
{
    int rc;

    while ((rc = csv_next(c)) > 0) {
        if (at[0] >= c->n || at[1] >= c->n)
            return say_fail("%s: row %lld has %d columns", c->path, (long long)to[0].n + 1, c->n);
        for (int k = 0; k < 2; k++)
            if (texts_add(&to[k], c->field[at[k]], strlen(c->field[at[k]])))
                return -1;
    }
    return rc || to[0].n ? rc : say_fail("%s: there is no video in it", c->path);
}

int video_list_csv(struct video_list *l, const char *path, const char *video, const char *caption)
{
    const char *const name[] = {video, caption};
    struct texts to[2] = {{0}};
    struct csv c;
    int at[2];
    int rc = csv_open(&c, path) || find_columns(&c, name, at) || read_rows(&c, at, to) ? -1 : 0;

    csv_close(&c);
    if (rc) {
        texts_free(&to[0]);
        texts_free(&to[1]);
        return rc;
    }
    *l = (struct video_list){to[0].n, to[0].data, to[1].data};
    return 0;
}
