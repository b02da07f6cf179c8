/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files: see csv.h. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "ckpt_tools.h"
#include "csv.h"
#include "say.h"

int csv_open(struct csv *c, const char *path)
{
    *c = (struct csv){.path = path, .next_line = 1};
    if (ckpt_input_open(&c->file, path))
        return say_fail("%s", ckpt_error(NULL));
    int mark[] = {0xef, 0xbb, 0xbf}; /* UTF-8 byte order mark, as some programs write it */
    for (int i = 0; i < 3; i++) {
        int byte = getc(c->file);
        if (byte != mark[i]) {
            rewind(c->file);
            break;
        }
    }
    return 0;
}

void csv_close(struct csv *c)
{
    if (c->file)
        fclose(c->file);
    free(c->text);
    free(c->field);
    *c = (struct csv){.file = NULL};
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

/*
 * A field up to what ends it: a comma, '
 * ' or EOF, which is returned; -2 after an error message.
 */
static int read_field(struct csv *c)
{
    bool quoted = false;
    int byte = getc(c->file);

    if (byte == '"') {
        quoted = true;
        byte = getc(c->file);
    }
    for (;; byte = getc(c->file)) {
        if (byte == EOF && quoted)
            return say_fail("%s, line %lld: a quote is not closed", c->path, (long long)c->line) -
                   1;
        if (quoted && byte == '"') {
            byte = getc(c->file);
            quoted = byte == '"'; /* two quotes stand for one */
        }
        if (!quoted && byte == '\r') {
            int next = getc(c->file);
            if (next == '\n')
                byte = next;
            else
                ungetc(next, c->file);
        }
        c->next_line += byte == '\n';
        if (byte == EOF || (!quoted && (byte == ',' || byte == '\n')))
            return put(c, 0) ? -2 : byte;
        if (put(c, byte))
            return -2;
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
        c->line = c->next_line;
        c->used = 0;
        c->n = 0;
        do {
            size_t before = c->used;
            end = read_field(c);
            if (end == -2)
                return -1;
            if (strlen(c->text + before) + 1 != c->used - before)
                return say_fail("%s, line %lld: has a zero byte: not a text file", c->path,
                                (long long)c->line);
            c->n++;
        } while (end == ',');
        if (ferror(c->file))
            return say_fail("%s: cannot be read", c->path);
        if (end == EOF && c->n == 1 && !*c->text)
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
