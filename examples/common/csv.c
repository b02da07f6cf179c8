/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files: see csv.h. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "csv.h"
#include "say.h"

int csv_open(struct csv *c, const char *path)
{
    *c = (struct csv){.path = path};
    return text_file_open(&c->file, path);
}

void csv_close(struct csv *c)
{
    text_file_close(&c->file);
    free(c->text);
    free(c->field);
    *c = (struct csv){.path = NULL};
}

static int no_memory(const struct csv *c)
{
    return say_fail("%s, line %lld: no memory for a row", c->path, (long long)c->line);
}

static int put(struct csv *c, int byte)
{
    if (c->used == c->size) {
        size_t size = c->size ? 2 * c->size : 256;
        char *text = realloc(c->text, size);
        if (!text)
            return no_memory(c);
        c->text = text;
        c->size = size;
    }
    c->text[c->used++] = (char)byte;
    return 0;
}

/* Reads a field up to what ends it: a comma, a line feed or TEXT_END, which is returned; TEXT_BAD
 * after an error message. */
static int read_field(struct csv *c)
{
    struct text_file *f = &c->file;
    bool quoted = false;
    int byte = text_file_get(f);

    if (byte == '"') {
        quoted = true;
        byte = text_file_get(f);
    }
    for (;; byte = text_file_get(f)) {
        if (byte == TEXT_END && quoted)
            return say_fail("%s, line %lld: a quote is not closed", c->path, (long long)c->line) -
                   1;
        if (quoted && byte == '"') {
            byte = text_file_get(f);
            quoted = byte == '"'; /* two quotes stand for one */
        }
        if (!quoted && text_file_ends_line(f, byte))
            byte = '\n';
        if (byte < 0 || (!quoted && (byte == ',' || byte == '\n')))
            return byte == TEXT_BAD || put(c, 0) ? TEXT_BAD : byte;
        if (put(c, byte))
            return TEXT_BAD;
    }
}

/* Sets the field pointers: the fields lie one after the other in text. */
static int point(struct csv *c)
{
    char *at = c->text;

    if (c->n > c->room) {
        char **field = realloc(c->field, (size_t)c->n * sizeof *field);
        if (!field)
            return no_memory(c);
        c->field = field;
        c->room = c->n;
    }
    for (int i = 0; i < c->n; i++) {
        c->field[i] = at;
        at += strlen(at) + 1;
    }
    return 0;
}

int csv_next(struct csv *c)
{
    int end;

    do {
        c->line = c->file.line;
        c->used = 0;
        c->n = 0;
        do {
            end = read_field(c);
            c->n++;
        } while (end == ',');
        if (end == TEXT_BAD)
            return -1;
        if (end == TEXT_END && c->n == 1 && !*c->text)
            return 0;
    } while (c->n == 1 && !*c->text);
    return point(c) ? -1 : 1;
}

int csv_find(const struct csv *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->field[i], name))
            return i;
    return -1;
}
