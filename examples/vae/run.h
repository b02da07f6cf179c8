/* SPDX-License-Identifier: Apache-2.0 */
/* One run of vae-train: what its parts share. */
#ifndef VAE_RUN_H
#define VAE_RUN_H

#include "../common/loader.h"
#include "../common/log.h"
#include "../common/say.h"
#include "../stdit/videos.h"
#include "lpips.h"
#include "options.h"
#include "quantizer.h"

/* Clips of one size, and what a safetensors file may bring beside them. */
struct vae_data {
    char title[512];
    int64_t rows, frames;
    int64_t height, width;               /* of the clips */
    int64_t padded_height, padded_width; /* of what the model sees: whole cells */
    uint8_t *rgb;                        /* of a video: [rows, frames, height, width, 3]; or NULL */
    struct stdit_videos videos;          /* that are read as steps need them; rows 0: none are */
    int64_t *lengths;                    /* frames of their files, [rows] */
    float *x;                            /* else [rows, frames, padded height, padded width, 3] */
    float *noise_2d, *noise;             /* [rows, T, h, w, Z], [rows, T', ...]; NULL: drawn */
};

/* The program of one length of clips. */
struct vae_program {
    struct vae_run *run;
    ckpt_program *program; /* owned by the context */
    int64_t frames;
    int64_t part; /* frames that pass the 2-D part together; 0: all */
};

/* The clips of the steps to come, in the order of their steps. */
struct vae_ahead {
    struct vae_run *run;
    int64_t step, taken; /* the next one; clips of it */
    struct loader_source source;
    struct loader *loader; /* NULL: clips are in memory */
};

struct vae_run {
    struct vae_options options;
    struct vae_data data;
    struct vae model;
    struct vae_lpips lpips;         /* with options.lpips */
    struct vae_quantizer quantizer; /* with options.vq */
    ckpt *context;
    int64_t trainable;                            /* parameters that are trained */
    int64_t first;                                /* steps of the runs that this one goes on with */
    struct vae_program program[VAE_MOST_LENGTHS]; /* of options.length */
    ckpt_program *reconstruction; /* owned by the context; NULL: none is asked for */
    float *batch;                 /* of the longest clips, while steps are fed */
    struct vae_ahead ahead;
    struct loader_hold hold; /* while programs are compiled */
    char *bad;               /* RESUME_BAD of the state that it goes on from, or NULL */
    struct run_log log;
};

/* The random streams of the program, apart from those of the ops of a tape. */
enum vae_stream { VAE_STREAM_LENGTH = 0x56410001, VAE_STREAM_START, VAE_STREAM_DATA };

/* Fills d, and the lengths of clips where tensors give them.  Returns 0, or -1 after a sentence. */
int vae_data_open(struct vae_data *d, struct vae_options *o);
void vae_data_close(struct vae_data *d);

/* Clips as they are read, into values: those of frames for the model. */
void vae_data_values(const struct vae_data *d, const uint8_t *rgb, int64_t frames, float *to);

/* Frames of a row from its frame start on, into to [frames, padded height, padded width, 3]. */
void vae_data_take(const struct vae_data *d, int64_t row, int64_t start, int64_t frames, float *to);
int64_t vae_data_frame(const struct vae_data *d); /* elements of a frame */

/* Reads the clip of a sample: `frames` of those of a row, from a place that is drawn for the sample
 * on.  Returns 1, 0 if the row's file has not so many, or -1 after a sentence. */
int vae_clip_read(const struct vae_run *r, struct loader_file *f, int64_t sample, int64_t row,
                  int64_t frames, uint8_t *rgb);

/* As of stdit-train: what reading takes, printed, and refused where it is too little; the start
 * of reading where the run stands. */
int vae_ahead_plan(const struct vae_run *r);
int vae_ahead_open(struct vae_run *r);
void vae_ahead_close(struct vae_run *r);

/* Compiles a program for each length, the longest last.  Returns 0, or -1 after a sentence. */
int vae_compile(struct vae_run *r);

/* Names of what a training program puts out beside its loss. */
#define VAE_L1         "l1" /* mean difference of an element */
#define VAE_KL         "kl"
#define VAE_LPIPS      "lpips"
#define VAE_COMMITMENT "commitment"

/* The program of a step, the first of its samples that this rank sees, and the frame of the data's
 * clips that a shorter one begins with. */
struct vae_program *vae_step_program(struct vae_run *r, int64_t step);
int64_t vae_step_sample(const struct vae_run *r, int64_t step);
int64_t vae_sample_start(const struct vae_run *r, int64_t sample, int64_t frames);

/* Runs the steps, logs them, dumps the first and saves at the end.  Returns 0 or -1. */
int vae_train(struct vae_run *r);

/* What a step came to. */
struct vae_result {
    float loss, l1, kl, lpips, commitment; /* NaN where there is no such term */
    struct vae_codes codes;
    double lr, ms;
    double data_ms; /* that it waited for clips that are read */
};

/* JSON lines: one for the run, one a step.  Opening prints a sentence when it fails. */
int vae_log_open(struct vae_run *r);
void vae_log_step(struct vae_run *r, const struct vae_program *p, int64_t step,
                  const struct vae_result *result);

/* Encodes and decodes the clips, in chunks as files are, and prints how near they come back;
 * pictures go to options.out, if any.  Its program is compiled before the first step, so that it is
 * known to fit.  Return 0, or -1 after a sentence. */
int vae_reconstruct_compile(struct vae_run *r);
int vae_reconstruct(struct vae_run *r);

#endif
