/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of videos and prompts: see list.h. */
#include <stdlib.h>
#include <string.h>
#include "../common/say.h"
#include "ckpt_tools.h"
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

void cogvideo_list_free(struct cogvideo_list *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        free(l->video[i]);
        free(l->prompt[i]);
    }
    free(l->video);
    free(l->prompt);
    *l = (struct cogvideo_list){0};
}

/* ---- lines --------------------------------------------------------------------------------- */

/* Without blanks around them. */
static int read_lines(struct texts *t, const char *path)
{
    static const char blanks[] = " \t\r\n";
    char *line = NULL;
    size_t size = 0;
    int rc = 0;
    FILE *f;

    if (ckpt_input_open(&f, path))
        return say_fail("%s", ckpt_error(NULL));
    while (!rc && getline(&line, &size, f) > 0) {
        const char *at = line + strspn(line, blanks);
        size_t n = strlen(at);
        while (n && strchr(blanks, at[n - 1]))
            n--;
        rc = n ? texts_add(t, at, n) : 0;
    }
    free(line);
    fclose(f);
    return rc;
}

int cogvideo_list_lines(struct cogvideo_list *l, const char *videos, const char *prompts)
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
    *l = (struct cogvideo_list){v.n, v.data, p.data};
    return 0;
}

/* ---- tables -------------------------------------------------------------------------------- */

struct csv {
    FILE *f;
    char *cell;
    size_t n, capacity;
    bool last; /* of its row */
};

static int put(struct csv *c, int ch)
{
    if (c->n + 1 >= c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 256;
        char *cell = realloc(c->cell, capacity);
        if (!cell)
            return say_fail("no memory for a row of a table");
        c->cell = cell;
        c->capacity = capacity;
    }
    c->cell[c->n++] = (char)ch;
    c->cell[c->n] = 0;
    return 0;
}

/* Inside of quotes commas and line ends are text, and two quotes are one. */
static int read_quoted(struct csv *c)
{
    for (int ch = getc(c->f);; ch = getc(c->f)) {
        if (ch == EOF)
            return say_fail("a quote in the table is not closed");
        if (ch == '"' && (ch = getc(c->f)) != '"') {
            ungetc(ch, c->f);
            return 0;
        }
        if (put(c, ch))
            return -1;
    }
}

/* 1: there is no cell any more. */
static int next_cell(struct csv *c)
{
    int ch = getc(c->f);

    c->n = 0;
    if (ch == EOF)
        return 1;
    if (put(c, 0))
        return -1;
    c->n = 0;
    for (; ch != ',' && ch != '\n' && ch != EOF; ch = getc(c->f))
        if (ch == '"' ? read_quoted(c) : ch != '\r' && put(c, ch))
            return -1;
    c->last = ch != ',';
    return 0;
}

/* Which columns are asked for, by the names in the first row. */
static int find_columns(struct csv *c, const char *path, const char *const name[2], int at[2])
{
    int rc = 0, i = 0;

    at[0] = at[1] = -1;
    do {
        rc = next_cell(c);
        for (int k = 0; k < 2 && !rc; k++)
            if (at[k] < 0 && !strcmp(c->cell, name[k]))
                at[k] = i;
        i++;
    } while (!rc && !c->last);
    for (int k = 0; k < 2 && rc >= 0; k++)
        if (at[k] < 0)
            return say_fail("%s: there is no column \"%s\"; --%s-column names another", path,
                            name[k], k ? "caption" : "video");
    return rc < 0 ? -1 : 0;
}

/* 1: there is no row any more. */
static int read_row(struct csv *c, const char *path, const int at[2], struct texts *to)
{
    const long long row = (long long)to[0].n + 1;
    int rc, i = 0, found = 0;

    do {
        rc = next_cell(c);
        if (rc > 0 && i)
            return say_fail("%s: row %lld ends too early", path, row);
        if (rc)
            return rc;
        for (int k = 0; k < 2; k++) {
            if (at[k] != i)
                continue;
            if (texts_add(&to[k], c->cell, strlen(c->cell)))
                return -1;
            found++;
        }
        i++;
    } while (!c->last);
    if (i == 1 && !*c->cell && found < 2) { /* an empty line */
        for (int k = 0; k < 2; k++)
            if (at[k] == 0)
                free(to[k].data[--to[k].n]);
        return 0;
    }
    if (found < 2)
        return say_fail("%s: row %lld has %d columns", path, row, i);
    return 0;
}

int cogvideo_list_csv(struct cogvideo_list *l, const char *path, const char *video,
                      const char *caption)
{
    const char *const name[] = {video, caption};
    struct texts to[2] = {{0}};
    struct csv c = {0};
    int at[2];

    if (ckpt_input_open(&c.f, path))
        return say_fail("%s", ckpt_error(NULL));
    int rc = find_columns(&c, path, name, at);
    while (!rc)
        rc = read_row(&c, path, at, to);
    fclose(c.f);
    free(c.cell);
    if (rc > 0 && !to[0].n)
        rc = say_fail("%s: there is no video in it", path);
    if (rc < 0) {
        texts_free(&to[0]);
        texts_free(&to[1]);
        return -1;
    }
    *l = (struct cogvideo_list){to[0].n, to[0].data, to[1].data};
    return 0;
}
