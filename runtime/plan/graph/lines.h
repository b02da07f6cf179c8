/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text files, one fact a line: functions of their writers and strict readers.  Their numbers are
 * those of core/number.h.
 */
#ifndef CKPT_PLAN_LINES_H
#define CKPT_PLAN_LINES_H

#include "core/base.h"

/* Writes "  # ", the name without control characters, and the end of the line.  Without a name it
 * is "unnamed". */
void lines_put_name(FILE *f, const char *name);

/* Replaces the file at path atomically; put writes it.  what names the kind of file
 * in messages, such as "graph file".  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int lines_write(const char *what, const char *path, void (*put)(FILE *f, const void *user),
                const void *user);

/* The same text in memory, for free().  Returns 0 or CKPT_ENOMEM. */
int lines_print(void (*put)(FILE *f, const void *user), const void *user, char **text,
                size_t *size);

/* A file being read.  The first error sets rc and the message; later calls do nothing. */
struct lines {
    const char *what, *path;
    FILE *f;
    char *line, *at; /* the current line, and its unread rest */
    size_t line_size;
    int64_t n; /* number of the current line */
    int rc;
};

/* Runs get on the file.  Returns l->rc. */
int lines_read(struct lines *l, const char *what, const char *path,
               void (*get)(struct lines *l, void *user), void *user);

/* The same of a text in memory. */
int lines_parse(struct lines *l, const char *what, char *text, size_t size,
                void (*get)(struct lines *l, void *user), void *user);

void lines_fail(struct lines *l, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* Reads the next line; false after an error.  The end of the file is an error. */
bool lines_next(struct lines *l);
/* Consumes word if a blank or the end of the line follows it; returns whether it did. */
bool lines_take(struct lines *l, const char *word);
/* Consumes a blank and a canonical whole number in a range, or a real number from 0 to most. */
int64_t lines_number(struct lines *l, const char *what, int64_t least, int64_t most);
double lines_real(struct lines *l, const char *what, double most);
/* Consumes a blank and 16 hex digits. */
uint64_t lines_hex(struct lines *l, const char *what);
/* The line must end with a name, which is returned and may be changed. */
char *lines_name(struct lines *l);
/* A line of one key and one number. */
int64_t lines_total(struct lines *l, const char *key, int64_t least, int64_t most);
/* The line must end here. */
void lines_end(struct lines *l);
/* The current line must be "end", and nothing may follow it. */
void lines_last(struct lines *l);

#endif
