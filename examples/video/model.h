/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the programs of the family ask of a model: a transformer that predicts, from noisy latents,
 * features of a text and a timestep, what its schedule takes the noise away with.
 *
 * A new model is a struct video_model: the reader of its configuration, its parameters under the
 * names of its files, its forward pass, and its schedule of noise.  Data, training, adapters,
 * validation, sampling and the command lines are the family's.
 *
 * B samples, F latent frames of h x w, S text tokens.
 */
#ifndef VIDEO_MODEL_H
#define VIDEO_MODEL_H

#include "../text/reader.h"
#include "../common/adapters.h"
#include "autoencoder.h"
#include "ckpt_optim.h"

/* The shape that a program is recorded for. */
struct video_geometry {
    int64_t frames, height, width;    /* of the latents (or of the clip, in pixel space) */
    int64_t tokens;                   /* of a prompt */
    double pixel_height, pixel_width; /* of the video that was encoded; 0: not known */
    int64_t pixel_frames;             /* its frames; 0: computed from the latent frames */
};

/* Latents along the side of a patch, of all models of the family: sides of buckets are multiples.
 */
enum { VIDEO_CELLS = 2 };

/* The tensor of files with features of a picture, in diffusers' word. */
#define VIDEO_SIGHT "image_embeds"

/* The part of a configuration that the programs read. */
struct video_sizes {
    const char *name; /* "CogVideoX 2B" */
    int64_t heads, width, layers;
    int64_t channels; /* of the latents */
    int64_t factor;   /* pixels along the side of a latent */
    int64_t text_width, text_tokens;
    int64_t compression;           /* frames of a video per latent frame */
    int64_t patch_frames;          /* latent frames of a patch */
    double guidance, guidance_low; /* published scales; low: of the second model of a pair */
    double boundary;  /* of a pair: timestep below which the second model predicts; 0: no pair */
    bool first_frame; /* a first latent frame may be given: it has the timestep 0 */
    bool has_image;   /* a condition image beside the noisy latents */
    bool whole_image; /* it has all latent frames, as a clip that begins with the image */
    int64_t sight_tokens, sight_width; /* features of the picture beside its latents; 0: none */
};

/* How training noises clips, as the options ask for it; NULL: the model's own way. */
struct video_noising {
    const char *times;   /* distribution of timesteps */
    const char *weights; /* of the loss, by timestep */
    const char *expert;  /* the one of a pair that is read, and its timesteps; or both */
    double first;        /* fraction of samples whose first latent frame is given, without noise */
};

/* A model of a directory. */
struct video_net {
    const struct video_model *model;
    struct video_sizes sizes;
    struct video_noising noising;
    enum ckpt_dtype dtype;
    const char *begin; /* of the names of its parameters, where a run has both models of a pair */
    bool second;       /* of such a run the one for low noise levels */
    void *own;         /* the model's, from read to close */
};

struct video_inputs {
    ckpt_tensor x;     /* [B, channels, F, h, w] fp32: noisy latents */
    ckpt_tensor image; /* [B, channels, 1 or F, h, w] fp32: the condition of I2V, else CKPT_NONE */
    ckpt_tensor sight; /* [B, sight tokens, sight width] fp32: features of the picture, or none */
    ckpt_tensor text;  /* [B, S, text width] of the model's dtype */
    ckpt_tensor t;     /* [B] fp32; [B, 2]: of the first latent frame and of the others */
};

/* Noisy latents are signal x0 + noise eps. */
struct video_level {
    double signal, noise;
};

/* Replaces the sample x after its x0 is known: keep x_before + clean x0 + old x0_before + older
 * x0_before_that, of the two steps before. */
struct video_correction {
    double keep, clean, old, older;
};

/* Step i of sampling, from the prediction v at x and t: x0 = level.signal x - level.noise v; with
 * corrects x is corrected; then x becomes keep x + clean x0 + old x0_before + noise eps. */
struct video_step {
    double t;
    struct video_level level;
    bool corrects;
    struct video_correction correction;
    double keep, clean, old, noise;
};

/* Sampling as the options ask for it. */
struct video_drawing {
    const char *solver;   /* NULL: by the schedule's file */
    const char *guidance; /* how it changes over the steps */
    double scale, low;    /* low: of the second model of a pair */
    int64_t steps;
};

struct video_batch;
struct video_data;
struct video_options;
struct video_run;
struct video_shape;

/* Functions that return int return 0, or -1 after an error message, where nothing else is said. */
struct video_model {
    const char *published; /* its name in messages and the texts of --help */
    const char *train_usage, *sample_usage;
    const struct ckpt_option *train_rows, *sample_rows; /* its own options; NULL: none */
    const char *programs, *out;    /* begin of their names; default directory for clips */
    int64_t frames, height, width; /* of a clip, where neither data nor options say them */
    enum text_family text;
    const char *negative; /* the other half of guidance, and dropped prompts; NULL: zeros */
    const char *unread; /* part of names of tensors that files have and nothing reads; NULL: none */
    const struct autoencoder *autoencoder;
    const struct adapter_names *adapters;
    const char *targets; /* layers of a block with adapters, where no option names them */

    /* Reads the configuration of a directory into n->sizes, and makes n->own; without parameters.
     */
    int (*read)(struct video_net *n, const char *dir);
    void (*close)(struct video_net *n);
    /* The directory or file of the weights; NULL: transformer in the directory, or this. */
    const char *(*weights)(const struct video_net *n);
    /* Whether the model can be recorded with this shape. */
    int (*check)(const struct video_net *n, const struct video_geometry *g);
    int64_t (*parameters)(const struct video_net *n);                             /* their number */
    int64_t (*tokens)(const struct video_net *n, const struct video_geometry *g); /* of the video */
    /* Makes the parameters in c, in place of earlier ones. */
    int (*create)(struct video_net *n, ckpt *c);
    /* The prediction [B, channels, F, h, w] in the model's dtype. */
    ckpt_tensor (*forward)(const struct video_net *n, ckpt_tape *t, const struct video_geometry *g,
                           const struct video_inputs *in);

    /* Reads the schedule of a directory; shift above 0 replaces that of its file.  any: without a
     * file any schedule will do, as the weights are random. */
    int (*schedule)(struct video_net *n, const char *dir, double shift, bool any);
    /* The timesteps of n training samples; they depend only on (seed, step, sample). */
    void (*draw_times)(const struct video_net *net, uint64_t seed, int64_t step, int64_t n,
                       float *t);
    /* The timesteps that training draws; NULL: 0 to 1000. */
    void (*range)(const struct video_net *n, double *from, double *to);
    /* The fraction of the distribution of timesteps that is in that range; NULL: no pairs. */
    double (*share)(const struct video_net *n);
    struct video_level (*level)(const struct video_net *n, float t);
    /* The weight of the loss at a timestep; NULL: 1. */
    double (*weight)(const struct video_net *n, float t);
    /* What the model predicts; signal and noise: the levels, [B, 1, 1, 1, 1]. */
    ckpt_tensor (*target)(ckpt_tape *t, ckpt_tensor x0, ckpt_tensor eps, ckpt_tensor signal,
                          ckpt_tensor noise);
    /* Refuses names in the options; and numbers of steps that the schedule does not have. */
    int (*check_drawing)(const struct video_drawing *d);
    int (*check_steps)(const struct video_net *n, int64_t steps);
    struct video_step (*step)(const struct video_net *n, const struct video_drawing *d, int64_t i);
    double (*guidance)(const struct video_net *n, const struct video_drawing *d, int64_t i);

    /* The family's data and batches (video_data_open and so on), or the model's own. */
    int (*data)(struct video_data *d, struct video_options *o);
    ckpt_recorder record; /* the loss; user: struct video_recorded */
    /* Fills a batch of one sample with a row of the data, the same on all ranks, with nothing
     * dropped; feeds it to a training program, and returns a code of the library. */
    int (*fill_row)(struct video_batch *b, int64_t row);
    int (*feed)(const struct video_batch *b, ckpt_program *p);
    uint64_t noise_of_validation; /* its random stream */
    bool whole_times;             /* timesteps are whole numbers */
};

/* Checks that the frames, rows and columns of a video (0: any) make whole latents.  Returns 0, or
 * -1 after an error message. */
int video_check_size(const struct video_sizes *s, int64_t frames, int64_t height, int64_t width);

/* Latent frames of a video, and these rounded up to whole patches: the first frame is repeated to
 * fill the patch. */
int64_t video_latent_frames(const struct video_sizes *s, int64_t frames);
int64_t video_whole_frames(const struct video_sizes *s, int64_t latents);

/* Text and video tokens of a sample. */
int64_t video_tokens(const struct video_net *n, const struct video_geometry *g);

#endif
