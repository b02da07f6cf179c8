/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of videos, with or without prompts: files of lines, or a table. */
#ifndef VIDEO_LIST_H
#define VIDEO_LIST_H

#include <stdint.h>

struct video_list {
    int64_t n;
    char **video, **prompt; /* n of each; prompt NULL: none */
};

/* Lines at the same place in both files belong together; empty lines are skipped.  Return 0, or -1
 * after an error message. */
int video_list_lines(struct video_list *l, const char *videos, const char *prompts);
/* A table of comma-separated values (RFC 4180) whose first row names its columns. */
int video_list_csv(struct video_list *l, const char *path, const char *video, const char *caption);
/* One video; or the lines of a file, relative to its directory, which may name a video twice. */
int video_list_one(struct video_list *l, const char *video);
int video_list_paths(struct video_list *l, const char *path);
void video_list_free(struct video_list *l);

#endif
