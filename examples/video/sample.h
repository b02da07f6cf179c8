/* SPDX-License-Identifier: Apache-2.0 */
/* Samples latents of clips from text features, one clip after the other. */
#ifndef VIDEO_SAMPLE_H
#define VIDEO_SAMPLE_H

#include "run.h"

struct video_sampler {
    struct video_run *run; /* borrowed: its model and its options */
    struct video_geometry geometry;
    ckpt_program *program; /* owned by the context */
    ckpt_program *low;     /* of the second model of a pair, where both are in the context */
    const struct video_net *recorded; /* the model that a program is recorded of */
    int64_t clips, n, batch;          /* n: elements of a clip; batch: 2 with guidance */
    bool repeats;                     /* the first latent frame is not part of the clip */
    int64_t begin, end;               /* steps of the current model */
    bool second;                      /* it is the second one of a pair */
    int64_t step;                     /* of a training that continues afterwards; 0: no training */
    bool stopped;                     /* incomplete: the training was asked to stop */
    float *text;                      /* [clips, tokens, text width] */
    float *negative;
    float *image;      /* [C, 1, h, w], or all frames: of I2V, or a given first frame */
    float *sight;      /* [rows, width]: features of the picture, where the model reads them */
    float *state;      /* of one clip, of a pair of models of all clips: the four below */
    float *x, *before; /* [n]: the sample, and that of the step before */
    float *old, *older, *eps;               /* [n]: x0 of the two steps before; noise */
    float *both, *v, *y, *picture, *sights; /* inputs and outputs of the program: [batch, ...] */
    uint16_t *y_bf16;
    float *drawn; /* [clips, C, F, h, w]: all clips; NULL: only written to files */
};

/* Set the sizes of a clip from the options, or from a shape; `repeats` marks a first latent frame
 * that is not part of the clip.  The first returns 0, or -1 after an error message, as do all
 * below. */
int video_sampler_size(struct video_sampler *s);
void video_sampler_shape(struct video_sampler *s, const struct video_geometry *g, bool repeats);
/* Latent frames of a sampled clip, and its elements. */
int64_t video_sampler_frames(const struct video_sampler *s);
int64_t video_sampler_clip(const struct video_sampler *s);
/* Reads the files that the options name. */
int video_sampler_read(struct video_sampler *s);

/* Compiles the program beside the other programs of the run. */
int video_sampler_compile(struct video_sampler *s);

/* Reads the second model of a pair in place of the first; what is sampled continues with it. */
int video_sampler_next(struct video_sampler *s);

/* Opens the context with the model and compiles; show: prints the sampling settings and the
 * plan. */
int video_sampler_open(struct video_sampler *s, bool show);
/* Closes the context with everything in it. */
void video_sampler_close(struct video_sampler *s);

/* Samples all clips into s->drawn, with a pair of models the steps of the current one; outside of
 * training also to --out. */
int video_sampler_draw(struct video_sampler *s);
/* Writes a clip in the format that the decoder and the trainers read. */
int video_sampler_write(const struct video_sampler *s, const float *clip, const char *path);
void video_sampler_free(struct video_sampler *s);

#endif
