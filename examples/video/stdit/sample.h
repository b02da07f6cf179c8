/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling clips: the steps from noise to latents, for a batch of clips. */
#ifndef STDIT_SAMPLE_H
#define STDIT_SAMPLE_H

#include "run.h"

struct stdit_sampler {
    struct video_run *run;
    struct video_shape shape; /* the data's, with the samples of a step */
    struct video_batch batch; /* with guidance: the clips with captions, then without */
    int64_t clips;
    bool guided, stopped;    /* stopped: interrupted by a stop request */
    int64_t step;            /* steps so far if training continues; 0: the end of the run */
    float *v;                /* [shape.batch, channels, T, h, w] */
    ckpt_progress *progress; /* over all sampled clips; NULL: not shown */
    int64_t done;            /* steps done */
    /* With given frames (run.given).  mask [clips, T]: 0 for frames that stay, 1 for frames that
     * are sampled, and in between for frames that are noised once the time is low enough.  The
     * noise has the shape of the clips. */
    float *mask;
    const float *edit_noise;
    bool *noised; /* [clips, T]: noise was added */
};

/* Allocates for this number of clips at a time.  Returns 0, or -1 after a sentence; the caller
 * closes s in both cases. */
int stdit_sampler_open(struct stdit_sampler *s, struct video_run *r, int64_t clips, int64_t step);
void stdit_sampler_close(struct stdit_sampler *s);

/* Sets the text of the clips, from row `first` of the data on; the caller then fills batch.z and
 * mask.  Returns 0, or -1 after a sentence. */
int stdit_sampler_text(struct stdit_sampler *s, int64_t first);
/* Samples from the noise in batch.z; the latents replace it. */
int stdit_sampler_draw(struct stdit_sampler *s);

#endif
