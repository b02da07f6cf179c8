/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by vae-encode and vae-decode: options, the model, programs of one chunk. */
#ifndef VAE_CODER_H
#define VAE_CODER_H

#include "ckpt.h"
#include "model_options.h"
#include "tiles.h"

struct vae_coder_options {
    struct vae_model_options model;
    const char *load, *clip;
    int64_t part, bands;           /* CKPT_AUTO: chosen by the planner */
    int64_t frames, height, width; /* shape of --clip, which is planned for; 0: none */
    bool partial, sample, blend, help, version;
    struct ckpt_options library;
};

struct vae_coder {
    struct vae_coder_options options;
    struct vae model;
    ckpt *context;
    bool quiet;                          /* plans are not shown */
    int64_t height, width;               /* of the frames */
    int64_t padded_height, padded_width; /* whole cells */
    /* the program */
    ckpt_program *program;
    int64_t frames; /* of its chunk */
    struct vae_cut cut;
    /* chunks after another one of the same length */
    int64_t chunks;
    double since;           /* time the last chunk was done; 0: a program's first chunk */
    double seconds, waited; /* of these chunks in all; part spent waiting for the device */
};

/* Parses the command line: options and two file names, which are NULL if only a plan is requested
 * and no file is needed.  usage is for --help.  Returns 0 to continue, 1 if the program is done and
 * -1 after printing a sentence. */
int vae_coder_parse(struct vae_coder *k, int argc, char **argv, const char *usage,
                    const char *file[2]);

/* Checks that the second file, a file or a directory, can be written at the end. */
int vae_coder_check_paths(const struct vae_coder *k, const char *file[2], bool directory);

/* Sets the sizes of the frames, opens the device and loads the weights.  Returns 0, or -1 after a
 * sentence, as all calls below. */
int vae_coder_open(struct vae_coder *k, int64_t height, int64_t width);
void vae_coder_close(struct vae_coder *k);

/* The first part of vae_coder_open: sizes of frames, and sizes padded to whole cells, for a
 * model. */
void vae_coder_size(struct vae_coder *k, const struct vae_config *config, int64_t height,
                    int64_t width);

/*
 * The recorders for vae_coder_compile.  Encoding maps "x" [1, T, padded height, padded width, 3] to
 * "latents" [1, T', h, w, Z]; decoding maps "latents" to "x" [1, T, height, width, 3].
 */
ckpt_tensor vae_coder_record_encode(ckpt_tape *t, int64_t batch, void *coder);
ckpt_tensor vae_coder_record_decode(ckpt_tape *t, int64_t batch, void *coder);

/* Converts bytes [height][width][3] to a frame of x in [-1, 1], padded to whole cells by repeating
 * the edge; and a decoded frame to bytes. */
void vae_coder_take_frame(const struct vae_coder *k, const uint8_t *rgb, float *x);
void vae_coder_give_frame(const struct vae_coder *k, const float *x, uint8_t *rgb);
/* Converts a decoded frame to a padded frame of x; x may start at `decoded` or after it. */
void vae_coder_pad_frame(const struct vae_coder *k, const float *decoded, float *x);

/* Compiles the program of a chunk of this many frames, unless it exists.  record gets the coder
 * with the chosen cut. */
int vae_coder_compile(struct vae_coder *k, ckpt_recorder record, int64_t frames);

/* Compiles the program of a clip's first chunk, after checking that a shorter last chunk also fits.
 * frames: of the clip; 0: unknown. */
int vae_coder_prepare(struct vae_coder *k, ckpt_recorder record, int64_t frames, int64_t chunk);

/* Submit feeds one input and submits a step; take waits for the oldest step in flight and fetches
 * one output.  Two steps may be in flight: submit the next, then take the previous one. */
int vae_coder_submit(struct vae_coder *k, const char *in, const float *x, int64_t n);
int vae_coder_take(struct vae_coder *k, const char *out, float *y, int64_t m);
/* Submits and takes one step. */
int vae_coder_run(struct vae_coder *k, const char *in, const float *x, int64_t n, const char *out,
                  float *y, int64_t m);

/* Prints the time per chunk and the memory of the run. */
void vae_coder_report(const struct vae_coder *k);

/* Rows and columns of the latents. */
int64_t vae_coder_rows(const struct vae_coder *k);
int64_t vae_coder_columns(const struct vae_coder *k);

#endif
