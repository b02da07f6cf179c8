/* SPDX-License-Identifier: Apache-2.0 */
/* What vae-encode and vae-decode share: options, the model, programs of one chunk. */
#ifndef VAE_CODER_H
#define VAE_CODER_H

#include "ckpt.h"
#include "model_options.h"
#include "tiles.h"

struct vae_coder_options {
    struct vae_model_options model;
    const char *load, *clip;
    int64_t part, bands; /* CKPT_AUTO: chosen by the planner */
    int64_t frames, height, width; /* of `clip`, a shape that is planned for; 0: there is none */
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
    /* chunks that followed another one of as many frames */
    int64_t chunks;
    double since;           /* when the last chunk was done; 0: this is the first of a program */
    double seconds, waited; /* that they took, and of these for the device */
};

/* Parses the command line: options and two names of files, NULL where only a plan is asked for and
 * none is needed.  usage is for --help.  Returns 0 to go on, 1 when all is done and -1 when a
 * sentence was printed. */
int vae_coder_parse(struct vae_coder *k, int argc, char **argv, const char *usage,
                    const char *file[2]);

/* Whether the second file can be written at the end, a file or a directory. */
int vae_coder_check_paths(const struct vae_coder *k, const char *file[2], bool directory);

/* Takes the sizes of the frames, opens the device and loads the weights.  Returns 0, or -1 after a
 * sentence, as all below. */
int vae_coder_open(struct vae_coder *k, int64_t height, int64_t width);
void vae_coder_close(struct vae_coder *k);

/* The first half of it: the sizes of frames and of whole cells of such a model. */
void vae_coder_size(struct vae_coder *k, const struct vae_config *config, int64_t height,
                    int64_t width);

/*
 * What vae_coder_compile records.  Encoding takes "x" [1, T, padded height, padded width, 3] and
 * gives "latents" [1, T', h, w, Z]; decoding takes "latents" and gives "x" [1, T, height, width,
 * 3].
 */
ckpt_tensor vae_coder_record_encode(ckpt_tape *t, int64_t batch, void *coder);
ckpt_tensor vae_coder_record_decode(ckpt_tape *t, int64_t batch, void *coder);

/* Bytes [height][width][3] to a frame of x in [-1, 1], what is missing to whole cells being what
 * stands at the edge; and a decoded frame to bytes. */
void vae_coder_take_frame(const struct vae_coder *k, const uint8_t *rgb, float *x);
void vae_coder_give_frame(const struct vae_coder *k, const float *x, uint8_t *rgb);
/* A decoded frame to one of x, whole cells, which may begin at the same place or behind it. */
void vae_coder_pad_frame(const struct vae_coder *k, const float *decoded, float *x);

/* Makes the program of a chunk of so many frames, unless it is there.  record gets the coder, cut
 * as it is to be recorded. */
int vae_coder_compile(struct vae_coder *k, ckpt_recorder record, int64_t frames);

/* Makes that of a clip's first chunk, having seen that the shorter one at its end fits, too.
 * frames: of the clip; 0: not known. */
int vae_coder_prepare(struct vae_coder *k, ckpt_recorder record, int64_t frames, int64_t chunk);

/* Feeds one input and hands a step over; waits for the oldest step under way and fetches one
 * output.  Two may be under way: submit the next, then take the one before. */
int vae_coder_submit(struct vae_coder *k, const char *in, const float *x, int64_t n);
int vae_coder_take(struct vae_coder *k, const char *out, float *y, int64_t m);
/* Both. */
int vae_coder_run(struct vae_coder *k, const char *in, const float *x, int64_t n, const char *out,
                  float *y, int64_t m);

/* Prints what time a chunk and what memory the run took. */
void vae_coder_report(const struct vae_coder *k);

/* Rows and columns of the latents. */
int64_t vae_coder_rows(const struct vae_coder *k);
int64_t vae_coder_columns(const struct vae_coder *k);

#endif
