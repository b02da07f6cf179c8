/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples clips during training, between steps and at the end, with the sampler of video_sample
 * in the context of the training: one arena and one budget.
 */
#ifndef VIDEO_WATCH_H
#define VIDEO_WATCH_H

#include "sample.h"
#include "stages.h"

struct video_watch {
    struct video_sampler sampler;
    struct video_prompts prompts;
    struct video_coder decoder;
    bool draws, decodes; /* clips; videos of the clips */
    const char *ending;  /* of the files of these videos */
};

/* Call before the context is opened: encodes the prompts, if there are any, under the same budget.
 * Returns 0, or -1 after an error message, as do all below. */
int video_watch_encode(struct video_watch *w, struct video_run *r);
/* Call after the data and before the model: reads files, makes the decoder and loads it. */
int video_watch_open(struct video_watch *w);
/* Refuses a state to resume, NULL: none, that lacks the decoder. */
int video_watch_check(const struct video_watch *w, const char *from);
/* Call before and after compiling the training program: see video_coder_compile_again. */
int video_watch_compile_first(struct video_watch *w);
int video_watch_compile(struct video_watch *w);

/* Samples and writes the clips of a run after that many steps, with the weights or their moving
 * average. */
int video_watch_draw(void *run, int64_t step);
void video_watch_close(struct video_watch *w);

#endif
