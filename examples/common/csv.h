/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of text with commas (RFC 4180): fields may be in quotes, and have commas and lines then.
 */
#ifndef EXAMPLES_CSV_H
#define EXAMPLES_CSV_H

#include <stdint.h>
#include <stdio.h>

struct csv {
    FILE *file;
    const char *path; /* borrowed */
    int64_t line;     /* where the row began */
    char **field;     /* of the row that was read last */
    int n;
    /* its own */
    int64_t next_line;
    char *text; /* the fields, each with its end */
    size_t size, used;
    int room;
};

/* Returns 0, or -1 after a sentence. */
int csv_open(struct csv *c, const char *path);
void csv_close(struct csv *c);

/* The next row that is not an empty line.  Returns 1, 0 at the end, or -1 after a sentence. */
int csv_next(struct csv *c);

/* The column of that name in the row that was read last; -1: there is none. */
int csv_find(const struct csv *c, const char *name);

#endif
