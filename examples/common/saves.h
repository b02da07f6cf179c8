/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multiple saves of a run.  FILE is the last save.  Each save, the last one included, is also a
 * hard link FILE-00000500, named by its number of steps.  FILE is replaced atomically, so it is
 * intact at any moment.  A state of several ranks is an index: its links keep its parts.
 */
#ifndef EXAMPLES_SAVES_H
#define EXAMPLES_SAVES_H

#include <stdbool.h>
#include <stdint.h>

/* Which saves to keep. */
struct saves_policy {
    int64_t last;  /* number of last saves, at least 1 */
    int64_t every; /* also the first save at or after each multiple of it; 0: none */
};

enum { SAVES_PATH = 4096 };

/* Finds the newest intact save, verified by its checksums; path is "" if there is none.  says:
 * reports each damaged save.  Returns 0, or -1 after an error message: a file cannot be read. */
int saves_newest(const char *file, bool says, char path[SAVES_PATH]);

/* Refuses intact saves of later steps, which belong to another run; a file that cannot have links
 * beside it; a name that is too long.  Returns 0, or -1 after an error message. */
int saves_check(const char *file, int64_t step);

/* Call it when FILE was written durably after `step` steps.  Links the save, and removes saves that
 * the policy does not keep, and saves of later steps, which are damaged.  Returns 0, or -1 after an
 * error message. */
int saves_keep(const char *file, int64_t step, const struct saves_policy *policy);

#endif
