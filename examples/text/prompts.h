/* SPDX-License-Identifier: Apache-2.0 */
/* Prompts out of files. */
#ifndef TEXT_PROMPTS_H
#define TEXT_PROMPTS_H

#include <stdint.h>

struct prompts {
    char **text;
    int64_t *line; /* where each begins in its file, from 1 */
    int64_t n, room;
};

/* A prompt a line, empty ones too; or a column of a CSV file, whose first row has the names.  Both
 * return 0, or -1 after a sentence; a file without a prompt is refused. */
int prompts_read(struct prompts *p, const char *path);
int prompts_read_csv(struct prompts *p, const char *path, const char *column);

/* Adds a copy of a text.  Returns 0, or -1 after a sentence. */
int prompts_add(struct prompts *p, const char *text, int64_t line);
void prompts_free(struct prompts *p);

/* Adds those of n texts that differ from all before them, in their order, with their places, from
 * 1, as lines.  of[i]: which of p text i is.  p is empty before.  Returns 0, or -1 after a
 * sentence. */
int prompts_distinct(struct prompts *p, const char *const *text, int64_t n, int64_t *of);

#endif
