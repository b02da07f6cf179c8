/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of events as TensorBoard reads them: records of a length, a protocol buffer and checksums
 * of both.  One file a run; a run that goes on writes the next one beside it, which tells readers
 * to forget the steps that it will run again.
 */
#ifndef EXAMPLES_EVENTS_H
#define EXAMPLES_EVENTS_H

#include <stdint.h>
#include <stdio.h>

/* As struct run_log: what cannot be written is said once, and the program goes on. */
struct events {
    FILE *f; /* NULL: there is none, or none any more */
    char path[4096];
    FILE *values; /* of the event that is being made, in memory */
    char *bytes;
    size_t n;
    int failed; /* -1 where something was lost */
};

/* Opens a new file in a directory, which may be missing; dir NULL: none.  first: the first step
 * that will be run.  Returns 0, or -1 after a sentence. */
int events_open(struct events *e, const char *dir, int64_t first);

/* Adds a number, or a PNG file, to the event that is being made. */
void events_number(struct events *e, const char *tag, double value);
void events_picture(struct events *e, const char *tag, const char *png);
/* Writes that event, if anything was added, and hands it over to the system.  time: seconds since
 * 1970. */
void events_write(struct events *e, int64_t step, double time);

/* Returns 0, or -1 where something was lost. */
int events_close(struct events *e);

#endif
