/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text files, one fact a line: what their writers and strict readers share.  Numbers are written
 * with a point whatever the user's language is.
 */
#ifndef CKPT_PLAN_LINES_H
#define CKPT_PLAN_LINES_H

#include "core/base.h"

/* The shortest decimal text that reads back as the same number; dst has room for LINES_REAL. */
#define LINES_REAL 32
void lines_format_real(char dst[LINES_REAL], double value);

/* "  # " and the name without control characters, and the end of the line. */
void lines_put_name(FILE *f, const char *name);

/* Puts a file in the place of path, whole or not at all: put writes it in the plain locale.  what
 * is "graph file" in the sentence.  Returns 0, CKPT_EIO or CKPT_ENOMEM. */
int lines_write(const char *what, const char *path, void (*put)(FILE *f, const void *user),
                const void *user, struct error *error);

/* The same text in memory, for free().  Returns 0 or CKPT_ENOMEM. */
int lines_print(void (*put)(FILE *f, const void *user), const void *user, char **text,
                size_t *size);

/* A file being read.  The first mistake sets rc and the sentence; calls after it do nothing. */
struct lines {
    const char *what, *path;
    struct error *error;
    FILE *f;
    char *line, *at; /* the running line, and what of it was not yet read */
    size_t line_size;
    int64_t n; /* its number */
    int rc;
};

/* Runs get on the file in the plain locale.  Returns l->rc. */
int lines_read(struct lines *l, const char *what, const char *path, struct error *error,
               void (*get)(struct lines *l, void *user), void *user);

/* The same of a text in memory. */
int lines_parse(struct lines *l, const char *what, char *text, size_t size, struct error *error,
                void (*get)(struct lines *l, void *user), void *user);

void lines_fail(struct lines *l, int code, const char *fmt, ...) CKPT_PRINTF(3, 4);

/* The next line; false after a mistake or at the end, which is one. */
bool lines_next(struct lines *l);
/* Takes word, if a blank follows it or the line ends. */
bool lines_take(struct lines *l, const char *word);
/* Takes a blank and a canonical whole number, or a finite real number, in a range. */
int64_t lines_number(struct lines *l, const char *what, int64_t least, int64_t most);
double lines_real(struct lines *l, const char *what, double least, double most);
/* Takes a blank and 16 hex digits. */
uint64_t lines_hex(struct lines *l, const char *what);
/* The line must end with a name, which is returned and may be changed. */
char *lines_name(struct lines *l);
/* A line of one key and one number. */
int64_t lines_total(struct lines *l, const char *key, int64_t least, int64_t most);
/* The line must end here. */
void lines_end(struct lines *l);
/* The running line must be "end", and nothing may follow it. */
void lines_last(struct lines *l);
/* The same of the next line. */
void lines_finish(struct lines *l);

#endif
