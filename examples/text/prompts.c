/* SPDX-License-Identifier: Apache-2.0 */
/* Reads prompts from files: see prompts.h. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "../common/csv.h"
#include "../common/memory.h"
#include "../common/say.h"
#include "../common/text_file.h"
#include "prompts.h"

int prompts_add(struct prompts *p, const char *text, int64_t line)
{
    if (p->n == p->room) {
        int64_t room = p->room ? 2 * p->room : 64;
        char **all = realloc(p->text, (size_t)room * sizeof *all);
        if (all)
            p->text = all;
        int64_t *lines = all ? realloc(p->line, (size_t)room * sizeof *lines) : NULL;
        if (lines)
            p->line = lines;
        if (!all || !lines)
            return say_fail("no memory for %lld prompts", (long long)room);
        p->room = room;
    }
    p->text[p->n] = strdup(text);
    if (!p->text[p->n])
        return say_fail("no memory for a prompt of %zu bytes", strlen(text));
    p->line[p->n++] = line;
    return 0;
}

void prompts_free(struct prompts *p)
{
    for (int64_t i = 0; i < p->n; i++)
        free(p->text[i]);
    free(p->text);
    free(p->line);
    *p = (struct prompts){.n = 0};
}

/* ---- distinct texts ------------------------------------------------------------------------ */

struct place {
    const char *text;
    int64_t i;
};

static int by_text(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    int order = strcmp(x->text, y->text);

    return order ? order : (x->i > y->i) - (x->i < y->i);
}

/* Sets of[i] to the index of the first equal text. */
static int find_first(const char *const *text, int64_t n, int64_t *of)
{
    struct place *place = MEMORY_FOR(sizeof *place, n);

    if (!place)
        return say_fail("no memory to compare %lld texts", (long long)n);
    for (int64_t i = 0; i < n; i++)
        place[i] = (struct place){text[i], i};
    qsort(place, (size_t)n, sizeof *place, by_text);
    for (int64_t i = 0; i < n; i++) {
        bool same = i && !strcmp(place[i].text, place[i - 1].text);
        of[place[i].i] = same ? of[place[i - 1].i] : place[i].i;
    }
    free(place);
    return 0;
}

int prompts_distinct(struct prompts *p, const char *const *text, int64_t n, int64_t *of)
{
    if (find_first(text, n, of))
        return -1;
    for (int64_t i = 0; i < n; i++) {
        if (of[i] < i) {
            of[i] = of[of[i]]; /* already has its number */
            continue;
        }
        of[i] = p->n;
        if (prompts_add(p, text[i], i + 1))
            return -1;
    }
    return 0;
}

/* ---- files --------------------------------------------------------------------------------- */

int prompts_read(struct prompts *p, const char *path)
{
    struct text_file f;
    char *line;
    int rc = text_file_open(&f, path) ? -1 : 1;

    while (rc > 0) {
        int64_t number = f.line;
        rc = text_file_line(&f, &line);
        if (rc > 0 && prompts_add(p, line, number))
            rc = -1;
    }
    text_file_close(&f);
    return rc || p->n ? rc : say_fail("%s: is empty; one prompt per line is expected", path);
}

static int read_rows(struct prompts *p, struct csv *c, const char *column)
{
    int rc = csv_next(c), at = rc > 0 ? csv_find(c, column) : 0;

    if (rc <= 0)
        return rc ? -1 : say_fail("%s: is empty; a row with names of columns is expected", c->path);
    if (at < 0)
        return say_fail("%s: has no column \"%s\"; the first is \"%s\"", c->path, column,
                        c->field[0]);
    while ((rc = csv_next(c)) > 0) {
        if (c->n <= at)
            return say_fail("%s, line %lld: has %d columns, and \"%s\" is number %d", c->path,
                            (long long)c->line, c->n, column, at + 1);
        if (prompts_add(p, c->field[at], c->line))
            return -1;
    }
    return rc || p->n ? rc : say_fail("%s: has no row below the names of columns", c->path);
}

int prompts_read_csv(struct prompts *p, const char *path, const char *column)
{
    struct csv c;
    int rc = csv_open(&c, path) ? -1 : read_rows(p, &c, column);

    csv_close(&c);
    return rc;
}
