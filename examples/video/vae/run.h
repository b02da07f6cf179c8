/* SPDX-License-Identifier: Apache-2.0 */
/* One run of vae-train: declarations shared by its files. */
#ifndef VAE_RUN_H
#define VAE_RUN_H

#include "../../common/loader.h"
#include "../../common/say.h"
#include "../../common/training.h"
#include "../videos.h"
#include "lpips.h"
#include "options.h"
#include "quantizer.h"

/* Clips of one size, and optional tensors of a safetensors file. */
struct vae_data {
    char title[512];
    int64_t rows, frames;
    int64_t height, width;               /* of the clips */
    int64_t padded_height, padded_width; /* input of the model: whole cells */
    uint8_t *rgb;                        /* of a video: [rows, frames, height, width, 3]; or NULL */
    struct videos videos;                /* read as steps need them; rows 0: none */
    int64_t *lengths;                    /* frames of their files, [rows] */
    float *x;                            /* else [rows, frames, padded height, padded width, 3] */
    float *noise_2d, *noise;             /* [rows, T, h, w, Z], [rows, T', ...]; NULL: drawn */
};

/* The program for one length of clips. */
struct vae_program {
    struct vae_run *run;
    ckpt_program *program; /* owned by the context */
    int64_t frames;
    int64_t part; /* frames in the 2-D part at a time; 0: all */
};

/* The clips of future steps, in the order of the steps. */
struct vae_ahead {
    struct vae_run *run;
    int64_t step, taken; /* next step; its clips so far */
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
    ckpt_program *training;                       /* of the longest clips */
    int64_t trainable;                            /* parameters that are trained */
    int64_t first;                                /* steps of the resumed runs */
    struct vae_program program[VAE_MOST_LENGTHS]; /* one for each options.length */
    ckpt_program *reconstruction;                 /* owned by the context; NULL: not requested */
    float *batch;                                 /* of the longest clips; input of a step */
    struct vae_ahead ahead;
    struct loader_hold hold; /* during compilation */
    char *bad;               /* RESUME_BAD of the resumed state, or NULL */
    struct run_log log;
};

/* The random streams of the program, distinct from the streams of tape ops. */
enum vae_stream { VAE_STREAM_LENGTH = 0x56410001, VAE_STREAM_START, VAE_STREAM_DATA };

/* Fills d, and the lengths of clips if tensors determine them.  Returns 0, or -1 after a
 * sentence. */
int vae_data_open(struct vae_data *d, struct vae_options *o);
void vae_data_close(struct vae_data *d);

/* Converts bytes of frames to padded values for the model. */
void vae_data_values(const struct vae_data *d, const uint8_t *rgb, int64_t frames, float *to);

/* Copies frames of a row, from frame start on, into to [frames, padded height, padded width, 3]. */
void vae_data_take(const struct vae_data *d, int64_t row, int64_t start, int64_t frames, float *to);
int64_t vae_data_frame(const struct vae_data *d); /* elements of a frame */

/* Reads the clip of a sample: `frames` frames of a row, from a random start that depends on the
 * sample.  Returns 1, 0 if the row's file has too few frames, or -1 after a sentence. */
int vae_clip_read(const struct vae_run *r, struct loader_file *f, int64_t sample, int64_t row,
                  int64_t frames, uint8_t *rgb);

/* As in stdit-train: plan prints the memory for reading and fails if it is too little; open starts
 * reading at the current step. */
int vae_ahead_plan(const struct vae_run *r);
int vae_ahead_open(struct vae_run *r);
void vae_ahead_close(struct vae_run *r);

/* Compiles a program for each length, the longest last.  Returns 0, or -1 after a sentence. */
int vae_compile(struct vae_run *r);

/* Names of a training program's outputs beside its loss. */
#define VAE_L1         "l1" /* mean difference of an element */
#define VAE_KL         "kl"
#define VAE_LPIPS      "lpips"
#define VAE_COMMITMENT "commitment"

/* The program of a step, the first sample of this rank in it, and the first frame of a shorter clip
 * within its row. */
struct vae_program *vae_step_program(struct vae_run *r, int64_t step);
int64_t vae_step_sample(const struct vae_run *r, int64_t step);
int64_t vae_sample_start(const struct vae_run *r, int64_t sample, int64_t frames);

/* The results of a step. */
struct vae_result {
    float loss, l1, kl, lpips, commitment; /* NaN: the loss has no such term */
    struct vae_codes codes;
    double lr, ms;
    double data_ms; /* wait for clips from the loader */
};

/* The log's line of a step. */
void vae_log_step(struct vae_run *r, const struct vae_program *p, int64_t step,
                  const struct vae_result *result);

/* Encodes and decodes the clips, in chunks as files are, and prints the reconstruction error;
 * pictures go to options.out, if set.  The program is compiled before the first step, so that it is
 * known to fit.  Return 0, or -1 after a sentence. */
int vae_reconstruct_compile(struct vae_run *r);
int vae_reconstruct(struct vae_run *r);

/* ---- callbacks of struct trainer, which describes them -------------------------------------- */

void vae_describe(const void *run, FILE *f);
int vae_open_steps(void *run, struct training *t);
void vae_close_steps(void *user);

#endif
