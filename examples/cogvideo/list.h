/* SPDX-License-Identifier: Apache-2.0 */
/* The list of videos and their prompts: two files of lines, or a table. */
#ifndef COGVIDEO_LIST_H
#define COGVIDEO_LIST_H

#include <stdint.h>

struct cogvideo_list {
    int64_t n;
    char **video, **prompt; /* n of each */
};

/* Lines at the same place in both files belong together; empty lines are skipped.  Return 0, or -1
 * after an error message. */
int cogvideo_list_lines(struct cogvideo_list *l, const char *videos, const char *prompts);
/* A table of comma-separated values (RFC 4180) whose first row names its columns. */
int cogvideo_list_csv(struct cogvideo_list *l, const char *path, const char *video,
                      const char *caption);
void cogvideo_list_free(struct cogvideo_list *l);

#endif
