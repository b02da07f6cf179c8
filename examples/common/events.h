/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A TensorBoard event file: records of a length, a protocol buffer and checksums of both.  Each run
 * writes one file; a resumed run adds another, which makes readers discard the steps that will be
 * repeated.
 */
#ifndef EXAMPLES_EVENTS_H
#define EXAMPLES_EVENTS_H

#include <stdint.h>
#include <stdio.h>

/* As in struct run_log: a write error is reported once, and the program continues. */
struct events {
    FILE *f; /* NULL: no file, or writing failed */
    char path[4096];
    FILE *values; /* collects the current event in memory */
    char *bytes;
    size_t n;
    int failed; /* -1 if something was lost */
};

/* Opens a new file in a directory, which is made if missing; dir NULL: no file.  first: the first
 * step that will be run.  Returns 0, or -1 after an error message. */
int events_open(struct events *e, const char *dir, int64_t first);

/* Adds a number, or a PNG file, to the current event. */
void events_number(struct events *e, const char *tag, double value);
void events_picture(struct events *e, const char *tag, const char *png);
/* Writes the current event if it has any value, and flushes it to the system.  time: seconds since
 * 1970. */
void events_write(struct events *e, int64_t step, double time);

/* Returns 0, or -1 if something was lost. */
int events_close(struct events *e);

#endif
