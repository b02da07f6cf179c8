/* SPDX-License-Identifier: Apache-2.0 */
/* Writes small video files of many kinds. */
#ifndef TESTS_UNIT_MOVIE_H
#define TESTS_UNIT_MOVIE_H

#include <stdbool.h>

struct movie {
    const char *name;  /* of the file, whose ending chooses its format */
    const char *codec; /* FFmpeg's name of an encoder */
    int width, height, frames;
    int group;           /* frames from key to key */
    int between;         /* frames that are coded in both directions, between others */
    bool open;           /* keys do not cut what is shown before them off */
    bool uneven;         /* the time between two frames varies */
    const char *options; /* of the encoder: "name=value:name=value", or NULL */
    int seed;            /* of what is to be seen */
    int turned;          /* degrees that players turn it by, clockwise */
    bool mirrored;       /* players exchange left and right, before they turn it */
    int before;          /* frames before the time 0, which players hide (.mp4) */
};

/* Whether this FFmpeg has that encoder. */
bool movie_can(const struct movie *m);

/* Writes it to a directory.  Returns 0, or -1. */
int movie_write(const struct movie *m, const char *folder);

#endif
