/* SPDX-License-Identifier: Apache-2.0 */
/* The code shared by cogvideo-encode and cogvideo-decode: the model, and the program of a clip. */
#ifndef COGVIDEO_CODER_H
#define COGVIDEO_CODER_H

#include "ckpt_tools.h"
#include "vae.h"

/* The options of both programs. */
struct cogvae_coder_options {
    const char *model, *dtype;
    int64_t slice; /* CKPT_AUTO: selected by the planner */
    bool help, version;
    struct ckpt_options library;
};

#define COGVAE_CODER_INIT                                                                          \
    {                                                                                              \
        .dtype = "bf16", .slice = CKPT_AUTO, .library = CKPT_OPTIONS_INIT                          \
    }

struct cogvae_coder {
    struct cogvae_coder_options options;
    char directory[4096]; /* of config.json and the weights */
    struct cogvae m;
    ckpt *context;
    bool decode, joined; /* joined: the context belongs to another model */
    /* the program, for clips of one size */
    struct cogvae_clip clip;
    struct cogvae_passes passes;
    ckpt_program *program;
    float *in; /* the input of a pass */
    bool shown;
};

/* Parses the command line: the program's own table, which fills owner, then the coder's table and
 * the library's.  Returns 0 to go on, 1 to exit and -1 after an error message. */
int cogvae_coder_parse(struct cogvae_coder *k, const struct ckpt_option *table, void *owner,
                       int argc, char **argv, const char *usage);

/* Read the config; open the device and load one half of the weights.  Return 0, or -1 after an
 * error message, as do all below. */
int cogvae_coder_config(struct cogvae_coder *k, bool decode);
int cogvae_coder_open(struct cogvae_coder *k);
/* As cogvae_coder_open, but in the context of another model, before that model's parameters are
 * made. */
int cogvae_coder_join(struct cogvae_coder *k, ckpt *c);
void cogvae_coder_close(struct cogvae_coder *k);

/* Compiles the program for clips of that many frames, height and width, in pixels or latents,
 * unless it exists.  Shows the plan of the first program. */
int cogvae_coder_compile(struct cogvae_coder *k, int64_t frames, int64_t height, int64_t width);

/* Compiles again where other programs share the context.  Parameters lie below the working memory
 * of the programs, and a program is planned with the parameters known at that time.  So compile
 * this program first with `least`, in as few bytes as possible; then the other programs; then this
 * program again, in the memory that they leave. */
int cogvae_coder_compile_again(struct cogvae_coder *k, int64_t frames, int64_t height,
                               int64_t width, bool least);

/* Values of an input frame, and of an output frame. */
int64_t cogvae_coder_in(const struct cogvae_coder *k);
int64_t cogvae_coder_out(const struct cogvae_coder *k);
/* Output frames of a pass, and of a clip. */
int64_t cogvae_coder_pass_out(const struct cogvae_coder *k, int64_t pass);
int64_t cogvae_coder_clip_out(const struct cogvae_coder *k);

/* Encodes or decodes x, [frames, height, width, channels]; then copies the output of each pass into
 * y. */
int cogvae_coder_run(struct cogvae_coder *k, const float *x);
int cogvae_coder_take(struct cogvae_coder *k, int64_t pass, float *y);

/* Does both for a clip [frames, height, width, 3] of bytes.  x is the buffer for its values; its
 * moments are stored in y. */
int cogvae_coder_encode(struct cogvae_coder *k, const uint8_t *rgb, float *x, float *y);

/* Prints the statistics of the run. */
void cogvae_coder_report(const struct cogvae_coder *k);

/*
 * The published tiling, which is approximate: every tile is decoded as a clip of its own, and tiles
 * are blended where they overlap.  Decodes z, latents [frames, height, width, Z], into y [frames, 8
 * height, 8 width, 3]; compiles the programs that it needs.
 */
bool cogvae_coder_tiles(const struct cogvae_coder *k, int64_t height, int64_t width);
int cogvae_coder_decode_tiled(struct cogvae_coder *k, const float *z, int64_t frames,
                              int64_t height, int64_t width, float *y);
/* Checks that the programs of all tiles fit, before the first one runs. */
int cogvae_coder_prepare_tiled(struct cogvae_coder *k, int64_t frames, int64_t height,
                               int64_t width);

#endif
