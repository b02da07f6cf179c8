/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing clips: the steps from noise to latents, of as many clips as pass the model together. */
#ifndef STDIT_SAMPLE_H
#define STDIT_SAMPLE_H

#include "run.h"

struct stdit_sampler {
    struct stdit_run *run;
    struct stdit_shape shape; /* that of the data, with the samples of a step */
    struct stdit_batch batch; /* with guidance: the clips with their captions, then again without */
    int64_t clips;
    bool guided, stopped;    /* stopped: broken off, as the run was asked to stop */
    int64_t step;            /* behind which the run goes on; 0: it is at its end */
    float *v;                /* [shape.batch, channels, T, h, w] */
    ckpt_progress *progress; /* of all that is drawn; NULL: it is not shown */
    int64_t done;            /* steps */
    /* Where frames are given (run.given).  mask [clips, T]: 0 for frames that stay, 1 for those
     * that are drawn, and between for those that are noised when the time has come down to it;
     * their noise is shaped as the clips. */
    float *mask;
    const float *edit_noise;
    bool *noised; /* [clips, T]: they have their noise */
};

/* Room for so many clips at once.  Returns 0, or -1 after a sentence; s is to be closed then, too.
 */
int stdit_sampler_open(struct stdit_sampler *s, struct stdit_run *r, int64_t clips, int64_t step);
void stdit_sampler_close(struct stdit_sampler *s);

/* The text of clips from that row of the data on; then batch.z and mask are the caller's to fill.
 * Returns 0, or -1 after a sentence. */
int stdit_sampler_text(struct stdit_sampler *s, int64_t first);
/* From batch.z as it stands to latents there. */
int stdit_sampler_draw(struct stdit_sampler *s);

#endif
