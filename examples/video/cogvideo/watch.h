/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples clips during training, between steps and at the end, with the sampler of cogvideo-sample
 * in the context of the training: one arena and one budget.
 */
#ifndef COGVIDEO_WATCH_H
#define COGVIDEO_WATCH_H

#include "sample.h"
#include "stages.h"

struct cogvideo_watch {
    struct cogvideo_sampler sampler;
    struct cogvideo_prompts prompts;
    struct cogvae_coder decoder;
    bool draws, decodes; /* clips; videos of the clips */
};

/* Call before the context is opened: encodes the prompts, if there are any, under the same budget.
 * Returns 0, or -1 after an error message, as do all below. */
int cogvideo_watch_encode(struct cogvideo_watch *w, struct cogvideo_run *r);
/* Call after the data and before the model: reads files, makes the decoder and loads it. */
int cogvideo_watch_open(struct cogvideo_watch *w);
/* Call before and after compiling the training program: see cogvae_coder_compile_again. */
int cogvideo_watch_compile_first(struct cogvideo_watch *w);
int cogvideo_watch_compile(struct cogvideo_watch *w);

/* Whether clips are due after that many steps; samples and writes them, with the weights or their
 * moving average. */
bool cogvideo_watch_is_due(const struct cogvideo_watch *w, int64_t step);
int cogvideo_watch_draw(struct cogvideo_watch *w, int64_t step);
void cogvideo_watch_close(struct cogvideo_watch *w);

#endif
