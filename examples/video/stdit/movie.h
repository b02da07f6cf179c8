/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a sampled clip, written frame by frame: a video, its frames, a strip of some
 * frames. */
#ifndef STDIT_MOVIE_H
#define STDIT_MOVIE_H

#include "../../common/samples.h"
#include "../../common/sink.h"
#include "run.h"

struct stdit_movie {
    struct video_run *run;
    struct sample_name name;
    int64_t frames, taken;
    struct sink video, pictures; /* pictures: only at the end of a run */
    char video_path[4096], pictures_path[4096];
    uint8_t *strip;
};

/* Opens the files of sampled clip i after `step` steps (0: at the end), with this number of frames;
 * the caller closes m even after an error.  All return 0, or -1 after a sentence. */
int stdit_movie_open(struct stdit_movie *m, struct video_run *r, int64_t step, int64_t i,
                     int64_t frames);
/* Adds n frames. */
int stdit_movie_put(struct stdit_movie *m, const uint8_t *rgb, int64_t n);
int stdit_movie_finish(struct stdit_movie *m); /* after the last frame */
void stdit_movie_close(struct stdit_movie *m);

/* Prints the paths of the files. */
void stdit_movie_report(const struct video_run *r, int64_t step);

#endif
