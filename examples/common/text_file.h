/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Text files of people: captions, prompts, lists, tables.  All of them have one rule.
 *
 * A text file is UTF-8, with or without a byte order mark.  Its lines end with a line feed, a
 * carriage return or both.  UTF-16, zero bytes and bytes that are not UTF-8 are refused with the
 * line where they are.
 */
#ifndef EXAMPLES_TEXT_FILE_H
#define EXAMPLES_TEXT_FILE_H

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

enum { TEXT_END = -1, TEXT_BAD = -2 };

struct text_file {
    const char *name; /* for messages; borrowed */
    int64_t line;     /* number of the line in which the next byte is, from 1 */
    /* private */
    FILE *file;
    int64_t left;            /* bytes of the part that were not read */
    int back;                /* a byte that is read again; TEXT_END: none */
    int more;                /* bytes that the character still needs, ... */
    unsigned char low, high; /* ... and the range of the next one */
    char *text;              /* the last line */
    size_t size;
};

/* Opens a file, or `size` bytes of it from `start` on: a member of an archive, with its name for
 * messages.  Returns 0, or -1 after an error message; close t in either case. */
int text_file_open(struct text_file *t, const char *path);
int text_file_open_part(struct text_file *t, const char *path, const char *name, int64_t start,
                        int64_t size);
void text_file_close(struct text_file *t);

/* The next byte, TEXT_END, or TEXT_BAD after an error message. */
int text_file_get(struct text_file *t);
/* Whether a byte that was read ends a line; of two that end one together it takes the second. */
int text_file_ends_line(struct text_file *t, int byte);

/* Reads the next line, valid until the next call, without its end.  Returns 1, 0 at the end of the
 * file, or -1 after an error message. */
int text_file_line(struct text_file *t, char **line);

/* Reads what is left, at most `most` bytes.  The caller frees it; NULL after an error message. */
char *text_file_all(struct text_file *t, size_t most);

/* Removes white space at both ends, of all the kinds that Python's str.strip removes.  Returns
 * text. */
char *text_strip(char *text);

#endif
