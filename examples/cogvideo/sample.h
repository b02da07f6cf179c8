/* SPDX-License-Identifier: Apache-2.0 */
/* Drawing latents of clips from text features, one clip after the other. */
#ifndef COGVIDEO_SAMPLE_H
#define COGVIDEO_SAMPLE_H

#include "run.h"

struct cogvideo_sampler {
    struct cogvideo_run *run; /* borrowed: its model draws, as its options say */
    struct cogvideo_geometry geometry;
    ckpt_program *program;   /* owned by the context */
    int64_t clips, n, batch; /* n: elements of a clip; batch: 2 with guidance */
    bool repeats;            /* the first latent frame is not part of the clip */
    int64_t step;            /* of a training that goes on behind it; 0: there is none */
    bool stopped;            /* broken off, as that training was asked to stop */
    float *text;             /* [clips, tokens, text width] */
    float *negative, *image;
    float *x, *clean, *old, *eps;  /* [n] */
    float *both, *v, *y, *picture; /* what the program is fed and gives: [batch, ...] */
    uint16_t *y_bf16;
    float *drawn; /* [clips, C, F, h, w]: all clips; NULL: they are only written */
};

/* Sizes of a clip out of the options; of clips of that size, whose first latent frame is no part of
 * them where it repeats.  The first returns 0, or -1 after a sentence, as all below. */
int cogvideo_sampler_size(struct cogvideo_sampler *s);
void cogvideo_sampler_shape(struct cogvideo_sampler *s, const struct cogvideo_geometry *g,
                            bool repeats);
/* Latent frames of a clip that is drawn, and its elements. */
int64_t cogvideo_sampler_frames(const struct cogvideo_sampler *s);
int64_t cogvideo_sampler_clip(const struct cogvideo_sampler *s);
/* Reads the files of the options. */
int cogvideo_sampler_read(struct cogvideo_sampler *s);

/* Compiles the program beside others of the run. */
int cogvideo_sampler_compile(struct cogvideo_sampler *s);

/* Opens the context with the model and compiles; show: prints what is drawn and the plan. */
int cogvideo_sampler_open(struct cogvideo_sampler *s, bool show);
/* Closes the context and what lives in it. */
void cogvideo_sampler_close(struct cogvideo_sampler *s);

/* Draws all clips: to s->drawn, and without a training to --out. */
int cogvideo_sampler_draw(struct cogvideo_sampler *s);
/* Writes a clip as the decoder and the trainers read it. */
int cogvideo_sampler_write(const struct cogvideo_sampler *s, const float *clip, const char *path);
void cogvideo_sampler_free(struct cogvideo_sampler *s);

#endif
