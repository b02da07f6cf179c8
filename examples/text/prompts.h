/* SPDX-License-Identifier: Apache-2.0 */
/* Reads prompts from files. */
#ifndef TEXT_PROMPTS_H
#define TEXT_PROMPTS_H

#include <stdint.h>

struct prompts {
    char **text;
    int64_t *line; /* the line where each begins in its file, from 1 */
    int64_t n, room;
};

/* Read one prompt per line, including empty ones, or a column of a CSV file whose first row has the
 * names.  Both return 0, or -1 after an error message; a file without prompts is refused. */
int prompts_read(struct prompts *p, const char *path);
int prompts_read_csv(struct prompts *p, const char *path, const char *column);

/* Adds a copy of a text.  Returns 0, or -1 after an error message. */
int prompts_add(struct prompts *p, const char *text, int64_t line);
void prompts_free(struct prompts *p);

/* Adds the distinct ones of n texts, in their order; their lines are their positions, from 1.
 * of[i]: the index in p of text i.  p must be empty.  Returns 0, or -1 after an error message. */
int prompts_distinct(struct prompts *p, const char *const *text, int64_t n, int64_t *of);

#endif
