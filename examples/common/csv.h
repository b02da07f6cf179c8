/* SPDX-License-Identifier: Apache-2.0 */
/* CSV files (RFC 4180): quoted fields may contain commas and line breaks. */
#ifndef EXAMPLES_CSV_H
#define EXAMPLES_CSV_H

#include <stdint.h>
#include "text_file.h"

struct csv {
    const char *path; /* borrowed */
    int64_t line;     /* line number at the start of the row */
    char **field;     /* fields of the current row */
    int n;
    /* private */
    struct text_file file;
    char *text; /* the fields, each with a terminating NUL */
    size_t size, used;
    int room;
};

/* Returns 0, or -1 after an error message. */
int csv_open(struct csv *c, const char *path);
void csv_close(struct csv *c);

/* Reads the next row that is not an empty line.  Returns 1, 0 at the end, or -1 after an error
 * message. */
int csv_next(struct csv *c);

/* The column with this name in the current row; -1: there is none. */
int csv_find(const struct csv *c, const char *name);

#endif
