/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves of a run side by side.  FILE is the last one; each, that one included, is FILE-00000500 by
 * its number of steps, a hard link: FILE can be replaced, and is whole at any moment.
 */
#ifndef EXAMPLES_SAVES_H
#define EXAMPLES_SAVES_H

#include <stdbool.h>
#include <stdint.h>

/* What stays. */
struct saves_policy {
    int64_t last;  /* the last ones, at least 1 */
    int64_t every; /* and the first one of each so many steps, but for the first such part; 0: no */
};

enum { SAVES_PATH = 4096 };

/* The newest save that is whole, by its checksums, into path, "" where there is none.  says: names
 * those that are not, each in a sentence.  Returns 0, or -1 after a sentence: a file cannot be
 * looked at. */
int saves_newest(const char *file, bool says, char path[SAVES_PATH]);

/* Refuses whole saves of later steps, which belong to another run; a file that cannot have others
 * beside it; too long a name.  Returns 0, or -1 after a sentence. */
int saves_check(const char *file, int64_t step);

/* FILE was written, durably, after so many steps: keeps it, and removes what does not stay and what
 * is of later steps, and so damaged.  Returns 0, or -1 after a sentence. */
int saves_keep(const char *file, int64_t step, const struct saves_policy *policy);

#endif
