/* SPDX-License-Identifier: Apache-2.0 */
/* Samples latents of clips from text features, one clip after the other. */
#ifndef COGVIDEO_SAMPLE_H
#define COGVIDEO_SAMPLE_H

#include "run.h"

struct cogvideo_sampler {
    struct cogvideo_run *run; /* borrowed: its model and its options */
    struct cogvideo_geometry geometry;
    ckpt_program *program;   /* owned by the context */
    int64_t clips, n, batch; /* n: elements of a clip; batch: 2 with guidance */
    bool repeats;            /* the first latent frame is not part of the clip */
    int64_t step;            /* of a training that continues afterwards; 0: no training */
    bool stopped;            /* incomplete: the training was asked to stop */
    float *text;             /* [clips, tokens, text width] */
    float *negative, *image;
    float *x, *clean, *old, *eps;  /* [n] */
    float *both, *v, *y, *picture; /* inputs and outputs of the program: [batch, ...] */
    uint16_t *y_bf16;
    float *drawn; /* [clips, C, F, h, w]: all clips; NULL: only written to files */
};

/* Set the sizes of a clip from the options, or from a shape; `repeats` marks a first latent frame
 * that is not part of the clip.  The first returns 0, or -1 after an error message, as do all
 * below. */
int cogvideo_sampler_size(struct cogvideo_sampler *s);
void cogvideo_sampler_shape(struct cogvideo_sampler *s, const struct cogvideo_geometry *g,
                            bool repeats);
/* Latent frames of a sampled clip, and its elements. */
int64_t cogvideo_sampler_frames(const struct cogvideo_sampler *s);
int64_t cogvideo_sampler_clip(const struct cogvideo_sampler *s);
/* Reads the files that the options name. */
int cogvideo_sampler_read(struct cogvideo_sampler *s);

/* Compiles the program beside the other programs of the run. */
int cogvideo_sampler_compile(struct cogvideo_sampler *s);

/* Opens the context with the model and compiles; show: prints the sampling settings and the
 * plan. */
int cogvideo_sampler_open(struct cogvideo_sampler *s, bool show);
/* Closes the context with everything in it. */
void cogvideo_sampler_close(struct cogvideo_sampler *s);

/* Samples all clips into s->drawn; outside of training also to --out. */
int cogvideo_sampler_draw(struct cogvideo_sampler *s);
/* Writes a clip in the format that the decoder and the trainers read. */
int cogvideo_sampler_write(const struct cogvideo_sampler *s, const float *clip, const char *path);
void cogvideo_sampler_free(struct cogvideo_sampler *s);

#endif
